"""Reliability and the bins that it supports."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradatim as gd
from gradatim.schemas.errors import DataRefused
from gradatim.tasks.difficulty.reliability import (
    choose_bins,
    growth,
    halves,
    least_reliability,
    own_bin_share,
    respondents_needed,
    separation,
    spearman_brown,
    split_half,
    supported_bins,
)
from gradatim.tasks.difficulty.responses import from_matrix


def test_halves_are_a_pure_function_of_seed_and_ids() -> None:
    names = [f"model-{i}" for i in range(9)]
    first, second = halves(names, 0, 0)
    assert len(first) == 5
    assert sorted([*first, *second]) == list(range(9))
    shuffled = names[::-1]
    again = halves(shuffled, 0, 0)
    assert {shuffled[i] for i in again[0]} == {names[i] for i in first}
    different = {tuple(halves(names, seed, number)[0]) for seed in range(3) for number in range(3)}
    assert len(different) > 5


def test_split_half_estimates_the_reliability_of_a_known_measurement() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=4000)
    answers = truth + 4.0 * random.normal(size=(24, 4000))  # a mean of 24 has error variance 16 / 24
    names = [f"r{i}" for i in range(24)]
    found = split_half(lambda rows: answers[rows].mean(axis=0), names, seed=1)
    assert found == pytest.approx(1 / (1 + 16 / 24), abs=0.03)
    assert found == pytest.approx(np.corrcoef(answers.mean(axis=0), truth)[0, 1] ** 2, abs=0.04)


def test_split_half_of_noise_is_zero_and_of_too_little_unknown() -> None:
    random = np.random.default_rng(0)
    noise = random.normal(size=(10, 500))
    names = [f"r{i}" for i in range(10)]
    found = split_half(lambda rows: noise[rows].mean(axis=0), names, seed=0)
    assert found is not None
    assert 0 <= found < 0.2
    assert split_half(lambda rows: noise[rows].mean(axis=0), names[:3], seed=0) is None
    assert split_half(lambda rows: np.ones(500), names, seed=0) is None
    assert split_half(lambda rows: noise[rows].mean(axis=0)[:2], names, seed=0) is None
    assert split_half(lambda rows: noise[rows].mean(axis=0), names, seed=0, splits=0) is None


def test_separation_is_the_share_of_variance_that_is_not_error() -> None:
    random = np.random.default_rng(0)
    truth, error = random.normal(size=50_000), np.full(50_000, 0.5)
    assert separation(truth + error * random.normal(size=50_000), error) == pytest.approx(1 / 1.25, abs=0.01)
    assert separation(np.array([1.0, 2.0, 3.0]), np.full(3, 9.0)) == 0.0
    assert separation(np.ones(5), np.ones(5)) is None
    assert separation(np.array([1.0, 2.0]), np.ones(2)) is None
    assert separation(np.array([1.0, 2.0, 4.0, 99.0]), np.array([0.0, 0.0, 0.0, np.nan])) == 1.0


def test_bins_follow_the_share_of_examples_in_their_own_bin() -> None:
    assert [supported_bins(r) for r in (0.0, 0.49, 0.5, 0.62, 0.8, 0.9, 0.99)] == [1, 1, 2, 3, 4, 6, 10]
    assert supported_bins(None) == 10
    for reliability in (0.55, 0.7, 0.9):
        k = supported_bins(reliability)
        assert own_bin_share(reliability, k) >= 0.6
        assert own_bin_share(reliability, k + 1) < 0.6


def test_the_share_in_the_own_bin_is_that_of_a_simulation() -> None:
    assert own_bin_share(0.5, 2) == pytest.approx(0.5 + np.arcsin(np.sqrt(0.5)) / np.pi, abs=1e-3)  # Sheppard (1899)
    random = np.random.default_rng(0)
    truth = random.normal(size=400_000)
    seen = np.sqrt(0.62) * truth + np.sqrt(0.38) * random.normal(size=400_000)
    cut = [np.argsort(np.argsort(v)) * 3 // 400_000 for v in (truth, seen)]
    assert own_bin_share(0.62, 3) == pytest.approx(np.mean(cut[0] == cut[1]), abs=3e-3)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_reliability_never_supports_fewer_bins(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 1 <= supported_bins(low) <= supported_bins(high) <= 10


def test_bins_are_never_more_than_different_values_also_by_force() -> None:
    assert choose_bins(np.array([1.0, 1.0, 2.0]), None, None) == 2
    assert choose_bins(np.arange(100.0), 0.62, None) == 3
    assert choose_bins(np.arange(100.0), 0.62, 20) == 20
    assert choose_bins(np.arange(5.0), 0.62, 20) == 5
    assert choose_bins(np.array([]), None, None) == 1


def test_more_bins_than_supported_are_cut_only_by_force_and_said() -> None:
    random = np.random.default_rng(0)
    rates = random.beta(4, 4, size=300)
    answers = from_matrix((random.random((12, 300)) < rates).astype(float))
    plain = gd.difficulty("pass_rate", responses=answers)
    assert plain.reliability is not None
    supported = supported_bins(plain.reliability)
    assert plain.bins == supported < 8
    forced = gd.difficulty("pass_rate", responses=answers, bins=8)
    assert forced.bins == 8
    assert f"8 bins were asked for, but the reliability supports {supported}" in forced.warnings
    assert not any("bins were asked for" in text for text in plain.warnings)


def test_spearman_brown_is_the_reliability_of_a_longer_measurement() -> None:
    assert spearman_brown(0.5, 2) == pytest.approx(2 / 3)
    assert spearman_brown(0.7, 1) == pytest.approx(0.7)
    assert spearman_brown(spearman_brown(0.7, 3), 1 / 3) == pytest.approx(0.7)
    assert (spearman_brown(-0.2, 2), spearman_brown(1.0, 0.1), spearman_brown(0.0, 9)) == pytest.approx((0.0, 1.0, 0.0))


def test_reliability_grows_with_respondents_as_spearman_and_brown_say() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=3000)
    answers = truth + 3.0 * random.normal(size=(80, 3000))
    names = [f"r{i}" for i in range(80)]
    table = growth(lambda rows: answers[rows].mean(axis=0), names, seed=1, overall=0.9)
    assert table["respondents"].to_list() == [4, 8, 16, 32, 80]
    for count, found in table.head(4).select("respondents", "reliability").iter_rows():
        assert found == pytest.approx(count / (count + 9), abs=0.03)
        assert found == pytest.approx(spearman_brown(80 / 89, count / 80), abs=0.03)
    assert (table["low"] <= table["reliability"]).all()
    assert (table["high"] >= table["reliability"]).all()
    assert table.row(-1) == (80, 0.9, 0.9, 0.9, 0)
    assert table["pairs"].to_list() == [3, 3, 3, 3, 0]


def test_growth_is_a_pure_function_of_seed_and_ids() -> None:
    random = np.random.default_rng(0)
    answers = random.normal(size=40) + random.normal(size=(20, 40))
    names = [f"r{i}" for i in range(20)]
    first = growth(lambda rows: answers[rows].mean(axis=0), names, seed=1)
    turned = growth(lambda rows: answers[::-1][rows].mean(axis=0), names[::-1], seed=1)
    assert first.select("respondents", "pairs").equals(turned.select("respondents", "pairs"))
    assert first["reliability"].to_list() == pytest.approx(turned["reliability"].to_list())
    assert not first.equals(growth(lambda rows: answers[rows].mean(axis=0), names, seed=2))


def test_growth_leaves_out_what_cannot_be_estimated() -> None:
    names = [f"r{i}" for i in range(16)]

    def refuse(rows: np.ndarray) -> np.ndarray:
        if len(rows) == 4:
            raise DataRefused("too few")
        return np.arange(5.0) + rows.mean() * 1e-3

    table = growth(refuse, names, seed=0)
    assert table.select("respondents", "reliability").rows() == [(8, pytest.approx(1.0))]
    assert len(growth(refuse, names[:7], seed=0, overall=0.5)) == 0
    assert len(growth(lambda rows: np.ones(9), names, seed=0)) == 0
    assert len(growth(refuse, names, seed=0, draws=0)) == 0
    assert table.schema["respondents"] == pl.Int64


def test_the_least_reliability_of_bins_is_where_they_become_supported() -> None:
    assert least_reliability(1) == 0.0
    for bins in range(2, 11):
        least = least_reliability(bins)
        assert supported_bins(least + 1e-6) >= bins
        assert supported_bins(least - 1e-3) < bins


def test_respondents_needed_for_more_bins_follow_from_the_reliability() -> None:
    needed = respondents_needed(0.5, 10, 4)
    assert needed is not None
    assert supported_bins(spearman_brown(0.5, needed / 10)) >= 4
    assert supported_bins(spearman_brown(0.5, (needed - 1) / 10)) < 4
    assert respondents_needed(0.0, 10, 4) is None
    assert respondents_needed(0.97, 10, 1) == 0

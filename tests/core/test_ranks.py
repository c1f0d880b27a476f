"""Percentiles and bins."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.ranks import distinct, percentile_and_bin

finite = st.floats(allow_nan=False, allow_infinity=False)


def test_a_small_case_by_hand() -> None:
    percentile, bins = percentile_and_bin(["d", "c", "b", "a"], np.array([3.0, 1.0, 1.0, 2.0]), 2)
    assert percentile.tolist() == [1.0, 0.5, 0.25, 0.75]  # the tie of c and b goes by id
    assert bins.tolist() == [1, 0, 0, 1]
    assert bins.dtype == np.int32


@given(st.lists(finite, min_size=1, max_size=60), st.integers(1, 12), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_laws_of_ranks_hold_for_any_numbers(values: list[float], bins: int, random) -> None:
    ids = [f"é{i:03d}" for i in range(len(values))]
    percentile, bin_ = percentile_and_bin(ids, np.array(values), bins)
    assert sorted((percentile * len(values)).round().astype(int)) == list(range(1, len(values) + 1))
    counts = np.bincount(bin_)
    assert len(counts) == min(bins, len(values))
    assert counts.max() - counts.min() <= 1
    in_order = np.array(values)[np.argsort(percentile)]
    assert (np.diff(in_order) >= -1e-9).all()
    shuffled = list(range(len(values)))
    random.shuffle(shuffled)
    again, bin_again = percentile_and_bin([ids[i] for i in shuffled], np.array(values)[shuffled], bins)
    assert again.tolist() == percentile[shuffled].tolist()
    assert bin_again.tolist() == bin_[shuffled].tolist()


def test_what_differs_by_less_than_a_billionth_is_a_tie() -> None:
    percentile, _ = percentile_and_bin(["b", "a"], np.array([0.3, 0.3 + 1e-12]), 2)
    assert percentile.tolist() == [1.0, 0.5]
    percentile, _ = percentile_and_bin(["b", "a"], np.array([0.3, 0.3 + 1e-8]), 2)
    assert percentile.tolist() == [0.5, 1.0]


def test_huge_numbers_and_signed_zeros_keep_their_order() -> None:
    percentile, _ = percentile_and_bin(["a", "b", "c"], np.array([1.7e308, 1.6e308, -1.7e308]), 1)
    assert percentile.tolist() == [1.0, 2 / 3, 1 / 3]
    percentile, _ = percentile_and_bin(["b", "a"], np.array([-0.0, 0.0]), 1)
    assert percentile.tolist() == [1.0, 0.5]
    assert distinct(np.array([0.0, -0.0, 1e-12, 1.0])) == 2


def test_fewer_rows_than_bins_leaves_no_bin_empty() -> None:
    assert percentile_and_bin(["a", "b", "c"], np.array([1.0, 2.0, 3.0]), 10)[1].tolist() == [0, 1, 2]


def test_no_rows_give_no_ranks() -> None:
    percentile, bins = percentile_and_bin(pl.Series("id", [], dtype=pl.String), np.array([]), 10)
    assert len(percentile) == len(bins) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_refused_with_its_id(value: float) -> None:
    with pytest.raises(DataRefused, match="'b'"):
        percentile_and_bin(["a", "b"], np.array([1.0, value]), 2)


def test_ids_that_repeat_and_bins_below_one_are_refused() -> None:
    with pytest.raises(DataRefused, match="twice"):
        percentile_and_bin(["a", "a"], np.array([1.0, 2.0]), 2)
    with pytest.raises(UsageError, match="0 bins"):
        percentile_and_bin(["a"], np.array([1.0]), 0)
    with pytest.raises(UsageError, match="ids came with"):
        percentile_and_bin(["a"], np.array([1.0, 2.0]), 1)


def test_a_million_rows_take_seconds() -> None:
    values = np.random.default_rng(0).integers(0, 50, 1_000_000).astype(float)
    ids = pl.Series("id", np.arange(1_000_000)).cast(pl.String)
    _, bins = percentile_and_bin(ids, values, 10)
    assert np.bincount(bins).tolist() == [100_000] * 10

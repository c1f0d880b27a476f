"""Bands of domains: brute force, conservation, limits of the entropy, and what is degenerate."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.diversity.domain_bands import (
    DomainBandsConfig,
    domain_bands,
    domain_entropy,
    domain_scores,
    squared_distances,
)
from gradatim.tasks.diversity.result import Diversity


def run(rows: np.ndarray, domain: list[str | None], **set_: object) -> Diversity:
    ids = [f"e{i:05d}" for i in range(len(rows))]
    table = pl.DataFrame({"example_id": ids, "v": np.asarray(rows, dtype=float).tolist(), "domain": domain})
    return domain_bands({"examples": table}, DomainBandsConfig.model_validate({"column": "v", **set_}), 0)


def unit(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("score", ["inter", "intra", "entropy"])
def test_scores_are_those_of_brute_force_and_bands_cut_each_domain_evenly(score: str) -> None:
    rows, domain = unit(103, 5), [f"d{i % 3}" for i in range(103)]
    found = run(rows, domain, score=score)
    code = np.arange(103) % 3
    centres = np.stack([rows[code == k].mean(axis=0) for k in range(3)])
    cosine = rows @ (centres / np.linalg.norm(centres, axis=1, keepdims=True)).T
    intra = cosine[np.arange(103), code]
    inter = np.array([np.delete(cosine[i], code[i]).mean() for i in range(103)])
    squared = ((rows[:, None] - centres) ** 2).sum(axis=2)
    tau = squared[np.arange(103), code].mean()
    soft = np.exp(-squared / tau) / np.exp(-squared / tau).sum(axis=1, keepdims=True)
    expected = {"inter": inter, "intra": intra, "entropy": -(soft * np.log(soft)).sum(axis=1)}[score]
    assert found.table["value"].to_numpy() == pytest.approx(expected, abs=1e-6)
    for k in range(3):
        band = found.table["cluster"].to_numpy()[code == k]
        value = found.table["value"].to_numpy()[code == k]
        assert set(np.bincount(band)) <= {len(band) // 5, len(band) // 5 + 1}
        assert all(value[band == b].max() <= value[band == b + 1].min() for b in range(4))
    away = [np.linalg.norm(centres[i] - centres[j]) for i in range(3) for j in range(i)]
    assert found.value("domain_inter") == pytest.approx(np.mean(away), abs=1e-6)
    own = squared[np.arange(103), code]
    assert found.value("domain_intra", "domain=d1") == pytest.approx(own[code == 1].mean(), abs=1e-6)
    assert found.value("domain_phi_intra") == pytest.approx(intra.mean(), abs=1e-6)


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(1, 6), st.floats(0.01, 100), st.integers(0, 999))
def test_entropy_lies_between_nought_and_the_logarithm_of_the_domains(n: int, k: int, tau: float, seed: int) -> None:
    squared = np.random.default_rng(seed).random((n, k)) * 4
    found = domain_entropy(squared, tau)
    assert (found >= 0).all()
    assert (found <= math.log(k) + 1e-9).all()
    order = np.random.default_rng(seed).permutation(k)
    assert domain_entropy(squared[:, order], tau) == pytest.approx(found, abs=2e-9)
    assert domain_entropy(squared * 0, tau) == pytest.approx(np.full(n, math.log(k)), abs=1e-8)


def test_a_row_at_its_centre_is_decided_and_one_between_two_is_not() -> None:
    squared = np.array([[0.0, 1e6], [1.0, 1.0]])
    assert domain_entropy(squared, 1.0).tolist() == [0, round(math.log(2), 9)]
    rows = unit(40, 3)
    parts = list(squared_distances(rows.astype(np.float32), rows[:3]))
    assert np.concatenate(parts) == pytest.approx(((rows[:, None] - rows[:3]) ** 2).sum(axis=2), abs=1e-6)


def test_opposite_domains_are_far_and_a_centre_of_zeros_has_no_direction() -> None:
    rows = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    found = run(rows, ["a", "a", "b", "b"])
    assert found.value("domain_inter") == pytest.approx(2)
    assert found.table["value"].to_list() == pytest.approx([-1, -1, -1, -1])
    assert found.value("domain_intra") == 0
    mixed = run(rows, ["a", "b", "a", "b"])
    assert mixed.table["value"].to_list() == [0, 0, 0, 0]
    inter, intra = domain_scores(rows.astype(np.float32), np.array([0, 0, 1, 1]), np.array([[1.0, 0], [-1.0, 0]]))
    assert (inter.tolist(), intra.tolist()) == ([-1, -1, -1, -1], [1, 1, 1, 1])


def test_the_order_of_rows_changes_nothing_and_ties_go_by_id() -> None:
    rows = np.tile([1.0, 1.0], (20, 1))
    ids = np.array([f"e{i:05d}" for i in range(20)])
    order = np.random.default_rng(0).permutation(20)
    tables = [
        pl.DataFrame({"example_id": ids[o], "v": rows[o].tolist(), "domain": [f"d{i % 2}" for i in o]})
        for o in (np.arange(20), order)
    ]
    one, other = (domain_bands({"examples": t}, DomainBandsConfig(column="v"), 0) for t in tables)
    assert one.table.equals(other.table)
    assert one.statistics.equals(other.statistics)
    assert one.table.filter(pl.col("example_id").is_in(ids[::2].tolist()))["cluster"].to_list() == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


def test_degenerate_and_bad_input() -> None:
    few = run(unit(3, 2), ["a", "a", "b"])
    assert any("fewer rows than bands: a, b" in warning for warning in few.warnings)
    assert few.table["cluster"].to_list() != []
    assert any("1 rows have no domain" in w for w in run(unit(9, 2), [None, *"aabbaabb"]).warnings)
    assert len(run(unit(9, 2), [None, *"aabbaabb"]).table) == 8
    assert few.summary().to_dict()
    with pytest.raises(DataRefused, match="domain has 1 value"):
        run(unit(3, 2), ["a"] * 3)
    with pytest.raises(DataRefused, match="domain has 0 values"):
        run(unit(3, 2), pl.Series([None] * 3, dtype=pl.String).to_list())
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        run(unit(3, 2), ["a", "b", "a"], by="domian")
    with pytest.raises(DataRefused, match="'e00000' holds NaN"):
        run(np.full((1, 2), math.nan), ["a"])


def test_the_pictures_draw() -> None:
    found = run(unit(50, 3), [f"d{i % 4}" for i in range(50)])
    assert "d3" in str(found.plot("domains").to_dict())
    assert found.plot("scores").to_dict()
    assert "Diversity as a reward" in found.cite()

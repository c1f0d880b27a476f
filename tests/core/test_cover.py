"""The greedy k-centre cover and the flat map."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.cover import hashed_sample, k_centre, principal_map


@settings(max_examples=25)
@given(st.integers(2, 11), st.integers(1, 4), st.integers(0, 10_000))
def test_the_greedy_radius_is_at_most_twice_the_best_and_never_rises(rows: int, k: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(-5, 6, (rows, 2)).astype(float)
    away = np.linalg.norm(points[:, None] - points, axis=2)
    best = min(away[:, list(c)].min(axis=1).max() for c in combinations(range(rows), min(k, rows)))
    picks, radii = k_centre(points, k, cosine=False)
    assert radii[-1] <= 2 * best + 1e-6
    assert (np.diff(radii) <= 0).all()
    assert radii[-1] == pytest.approx(away[:, picks].min(axis=1).max(), abs=1e-6)
    assert len(set(picks.tolist())) == len(picks) == len(radii) <= k


def test_under_cosine_orthogonal_rows_are_one_apart_and_picking_ends_where_all_are_covered() -> None:
    rows = np.eye(3)[[0, 0, 1, 1, 2]]
    picks, radii = k_centre(rows, 10)
    assert (picks.tolist(), radii.tolist()) == ([0, 2, 4], [1, 1, 0])
    assert k_centre(np.ones((1, 2)), 3)[0].tolist() == [0]
    with pytest.raises(UsageError, match="0 picks"):
        k_centre(rows, 0)


def test_the_map_is_the_principal_plane_and_keeps_its_orientation() -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((300, 5)) * [5, 3, 1, 0.1, 0.1] + 7
    places, shares = principal_map(rows)
    values = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    assert shares == pytest.approx(values[:2] / values.sum())
    assert places.var(axis=0, ddof=1) == pytest.approx(values[:2])
    assert np.corrcoef(places[:, 0], rows[:, 0])[0, 1] > 0.99
    flipped, _ = principal_map(rows[::-1])
    assert flipped[::-1] == pytest.approx(places, abs=1e-6)
    assert principal_map(np.ones((4, 1)))[0].tolist() == [[0, 0]] * 4


def test_a_hashed_sample_keeps_its_rows_when_others_are_added() -> None:
    ids = pl.Series([f"e{i}" for i in range(50)])
    few = set(ids.gather(hashed_sample(ids[:40], 10, 0, "x")).to_list())
    more = set(ids.gather(hashed_sample(ids, 10, 0, "x")).to_list())
    assert more - few <= set(ids[40:].to_list())
    assert hashed_sample(ids, 60, 0, "x").tolist() == list(range(50))

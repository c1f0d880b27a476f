"""All pairs within a cosine: equal to brute force in float64, and bounded where many are alike."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import range_search, vector_rows
from gradatim.tasks.core.range_search import cosine_pairs


def clustered(rows: int, width: int = 16, spread: float = 0.25, seed: int = 0) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    centre = random.normal(size=(max(1, rows // 4), width))
    return (centre[random.integers(0, len(centre), rows)] + spread * random.normal(size=(rows, width))).astype("f4")


def brute(vectors: NDArray[np.float32], threshold: float) -> dict[tuple[int, int], float]:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    unit = wide / np.where(norms > 0, norms, 1)[:, None]
    close = np.round(unit @ unit.T, 9)
    left, right = np.nonzero(np.triu(close >= threshold - 1e-9, 1))
    return {(int(a), int(b)): float(close[a, b]) for a, b in zip(left, right, strict=True)}


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.99])
def test_pairs_are_those_of_brute_force_across_blocks(monkeypatch: pytest.MonkeyPatch, threshold: float) -> None:
    monkeypatch.setattr(range_search, "_ROWS", 37)
    monkeypatch.setattr(range_search, "_COLUMNS", 101)
    vectors = clustered(500)
    found = cosine_pairs(vectors, threshold)
    true = brute(vectors, threshold)
    assert list(map(tuple, found.pairs.tolist())) == sorted(true)
    assert found.similarity == pytest.approx([true[pair] for pair in sorted(true)], abs=2e-9)
    assert found.left_out == 0


def test_lists_find_nearly_all_and_nothing_else() -> None:
    vectors = clustered(6000, width=32)
    true = brute(vectors, 0.9)
    ids = pl.Series([f"{i:04d}" for i in range(6000)])
    found = cosine_pairs(vectors, 0.9, ids, lists_probed=8)
    pairs = set(map(tuple, found.pairs.tolist()))
    assert pairs <= set(true)
    assert len(pairs) > 0.97 * len(true) > 1000
    every = cosine_pairs(vectors, 0.9, ids, lists_probed=10_000)
    assert set(map(tuple, every.pairs.tolist())) == set(true)


def test_a_vector_of_zeros_is_like_none_and_the_scale_does_not_matter() -> None:
    vectors = np.array([[0, 0], [1, 1], [3e30, 3e30], [0, 0], [-1, -1], [1e-30, 1e-30]], dtype=np.float32)
    for probed in (0, 2):
        assert cosine_pairs(vectors, 0.9, lists_probed=probed).pairs.tolist() == [[1, 2], [1, 5], [2, 5]]
    assert cosine_pairs(np.zeros((3, 2)), 0.9).pairs.shape == (0, 2)
    assert cosine_pairs(np.ones((1, 2)), 0.9).pairs.shape == (0, 2)


def test_in_a_crowd_each_row_keeps_its_nearest_and_the_rest_is_counted() -> None:
    vectors = np.ones((200, 8), dtype=np.float32) + clustered(200, 8, 0.01) * 0.01
    found = cosine_pairs(vectors, 0.9)
    assert len(found.pairs) + found.left_out == 200 * 199 // 2
    assert np.bincount(found.pairs[:, 0]).max() == range_search.MOST
    true = brute(vectors, 0.9)
    best = max(true[0, j] for j in range(1, 200))
    assert found.similarity[found.pairs[:, 0] == 0].max() == pytest.approx(best, abs=2e-9)


def test_a_threshold_that_is_none_is_an_error() -> None:
    with pytest.raises(UsageError, match="threshold 0"):
        cosine_pairs(np.ones((2, 2)), 0)


@pytest.mark.parametrize("probed", [0, 4])
def test_rows_that_are_read_slice_by_slice_give_the_pairs_of_the_matrix(
    monkeypatch: pytest.MonkeyPatch, probed: int
) -> None:
    vectors = clustered(3000, width=8)
    vectors[[5, 700]] = 0
    ids = pl.Series([f"{i:04d}" for i in range(3000)])
    true = cosine_pairs(vectors, 0.9, ids, lists_probed=probed)
    assert len(true.pairs) > 1000
    mixed = np.random.default_rng(3).permutation(3000)
    monkeypatch.setattr(range_search, "_SLICE", 97)
    monkeypatch.setattr(vector_rows, "HELD", 2**10)  # so that what is made stands on disk
    rows = vector_rows.VectorRows(vectors[mixed], np.argsort(mixed))
    found = cosine_pairs(rows, 0.9, ids, lists_probed=probed)
    assert found.pairs.tolist() == true.pairs.tolist()
    assert found.similarity.tolist() == true.similarity.tolist()

"""The truncated decomposition: a published one, an exact one, and what must not change it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.svd import truncated_svd

# the nine titles of Deerwester et al. (1990), a row a word
TITLES = {
    "human": (0, 3),
    "interface": (0, 2),
    "computer": (0, 1),
    "user": (1, 2, 4),
    "system": (1, 2, 3, 3),
    "response": (1, 4),
    "time": (1, 4),
    "EPS": (2, 3),
    "survey": (1, 8),
    "trees": (5, 6, 7),
    "graph": (6, 7, 8),
    "minors": (7, 8),
}


def titles() -> csr_matrix:
    counts = np.zeros((9, 12))
    for word, places in enumerate(TITLES.values()):
        for place in places:
            counts[place, word] += 1
    return csr_matrix(counts)


def test_the_nine_titles_have_the_singular_values_that_were_published() -> None:
    values, vectors = truncated_svd(titles(), 9, seed=0)
    assert values.round(2).tolist() == [3.34, 2.54, 2.35, 1.64, 1.50, 1.31, 0.85, 0.56, 0.36]
    assert np.allclose(vectors @ vectors.T, np.eye(9), atol=1e-12)


def slow_matrix(rows: int, columns: int) -> np.ndarray:
    """A matrix whose singular values fall slowly, the hard case of a randomised method."""
    rng = np.random.default_rng(5)
    left, right = np.linalg.qr(rng.normal(size=(rows, 80)))[0], np.linalg.qr(rng.normal(size=(columns, 80)))[0]
    return np.asarray(left * (1 / np.arange(1, 81) ** 0.5) @ right.T)


@pytest.mark.parametrize("shape", [(400, 150), (150, 400)])
def test_a_few_directions_of_many_are_those_of_the_exact_decomposition(shape: tuple[int, int]) -> None:
    matrix = slow_matrix(*shape)
    values, vectors = truncated_svd(csr_matrix(matrix), 10, seed=1)
    exact = np.linalg.svd(matrix)
    assert np.allclose(values, exact[1][:10], rtol=0.01)
    # what the ten directions hold is at most a thousandth under what any ten can hold
    held = np.linalg.norm(matrix @ vectors.T) ** 2
    assert held >= 0.999 * (exact[1][:10] ** 2).sum()


def test_the_seed_is_all_that_chance_decides_and_threads_decide_nothing() -> None:
    matrix = csr_matrix(slow_matrix(300, 200))
    with threadpool_limits(1):
        one = truncated_svd(matrix, 20, seed=3)
    with threadpool_limits(4):
        four = truncated_svd(matrix, 20, seed=3)
    assert np.array_equal(one[0], four[0])
    assert np.array_equal(one[1], four[1])
    assert not np.array_equal(one[1], truncated_svd(matrix, 20, seed=4)[1])


def test_the_first_of_the_largest_entries_of_a_direction_is_positive() -> None:
    _, vectors = truncated_svd(titles(), 9, seed=2)
    assert all(row[np.argmax(np.abs(row) >= np.abs(row).max() * (1 - 1e-6))] > 0 for row in vectors)
    # two entries of one size: the first one decides
    _, pair = truncated_svd(csr_matrix([[-1.0, 1.0], [-2.0, 2.0]]), 2, seed=0)
    assert np.allclose(pair, [[0.5**0.5, -(0.5**0.5)]])


@pytest.mark.parametrize(
    ("matrix", "rank"),
    [(np.zeros((4, 3)), 0), (np.zeros((0, 3)), 0), (np.ones((5, 4)), 1), (np.eye(3), 3), (np.full((1, 6), 2.0), 1)],
)
def test_there_are_no_more_directions_than_the_matrix_has(matrix: np.ndarray, rank: int) -> None:
    values, vectors = truncated_svd(csr_matrix(matrix), 5, seed=0)
    assert (len(values), vectors.shape) == (rank, (rank, matrix.shape[1]))


def test_a_rank_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="rank of 0"):
        truncated_svd(titles(), 0, seed=0)

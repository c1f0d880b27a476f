"""A truncated singular value decomposition of a large sparse matrix: seeded, on one thread, its signs fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.reduce import one_thread

OVERSAMPLE = 10
"""Directions that are looked at beyond those that are asked for."""
NEGLIGIBLE = 1e-6
"""Singular values below this share of the largest are rounding, not directions of the data."""

Floats = NDArray[np.float64]


def truncated_svd(matrix: Any, rank: int, seed: int, *, iterations: int = 3) -> tuple[Floats, Floats]:
    """Return the largest singular values and right singular vectors of a matrix, not centred.

    Parameters
    ----------
    matrix : scipy.sparse.csr_matrix or array, shape (n, m)
        Its rows stand in a canonical order, which is part of the result's rounding.
    rank : int
        Directions that are wanted.
    seed : int
        Of the random test matrix.
    iterations : int
        Power iterations; each is one more pass over the matrix and its transpose.

    Returns
    -------
    values : numpy.ndarray, shape (r,), float64
        Descending; r is at most `rank`, and less where the matrix has fewer directions.
    vectors : numpy.ndarray, shape (r, m), float64
        Orthonormal rows. In each the first entry that is as large as the largest one in size is positive.

    Raises
    ------
    UsageError
        A rank under 1.

    Notes
    -----
    The same bits on one machine for any number of threads. On another machine equal up to rounding; directions whose
    singular values are equal may be turned against each other there. O((nnz + (n + m) rank) rank) an iteration, memory
    3 x 8 x (n + m) (rank + 10) bytes.

    Source: N. Halko, P. G. Martinsson, J. A. Tropp (2011). Finding structure with randomness: probabilistic algorithms
    for constructing approximate matrix decompositions.
    """
    if rank < 1:
        raise UsageError(f"found a rank of {rank}", expected="at least 1")
    rows, columns = matrix.shape
    looked_at = min(rank + OVERSAMPLE, rows, columns)
    if looked_at == 0:
        return np.empty(0), np.empty((0, columns))
    across = matrix.T.tocsr() if hasattr(matrix, "tocsr") else matrix.T
    with one_thread():
        test = np.random.default_rng(seed).standard_normal((columns, looked_at))
        for _ in range(iterations):
            test = across @ _basis(matrix @ _basis(test))
        span = _basis(matrix @ _basis(test))
        # the small matrix span' A, transposed: its thin QR leaves a square one to decompose
        tall, square = np.linalg.qr(across @ span)
        left, values, _ = np.linalg.svd(square)
        vectors = np.ascontiguousarray((tall @ left).T)
    kept = int(np.count_nonzero(values > NEGLIGIBLE * values[0])) if values[0] > 0 else 0
    values, vectors = values[: min(kept, rank)], vectors[: min(kept, rank)]
    return values, vectors * _signs(vectors)[:, None]


def _basis(matrix: Floats) -> Floats:
    """Return orthonormal columns that span what the columns of a matrix span."""
    return np.asarray(np.linalg.qr(matrix)[0])


def _signs(vectors: Floats) -> Floats:
    size = np.abs(vectors)
    # entries that tie for the largest but for rounding count as equal, so that rounding decides no sign
    first = (size >= size.max(axis=1, keepdims=True, initial=0) * (1 - 1e-6)).argmax(axis=1)
    return np.where(vectors[np.arange(len(vectors)), first] < 0, -1.0, 1.0)

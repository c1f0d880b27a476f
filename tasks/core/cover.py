"""k-centre cover: rows from which every row is near, picked greedily; and a flat picture of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.reduce import moments, one_thread
from gradatim.tasks.core.row_numbers import bits_of, smallest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def hashed_sample(ids: pl.Series, size: int, seed: int, purpose: str) -> Ints:
    """Return the rows, ascending, of the `size` ids with the smallest hash of (seed, purpose, id); all if fewer."""
    if len(ids) <= size:
        return np.arange(len(ids))
    return smallest(bits_of(ids, seed, purpose), size)


def hashed_part(ids: pl.Series, rows: Ints, size: int, seed: int, purpose: str) -> Ints:
    """Return those of `rows` that `hashed_sample` draws of their ids."""
    if len(rows) <= size:
        return rows
    return rows[smallest(bits_of(ids, seed, purpose, rows), size)]


def k_centre(vectors: NDArray[Any], k: int, *, first: int = 0, cosine: bool = True) -> tuple[Ints, Floats]:
    """Pick k rows, each the farthest from those picked before.

    Parameters
    ----------
    vectors : array, shape (N, d)
        Under cosine of length 1.
    k : int
        At least 1; fewer rows are picked where no row is away from them.
    first : int
        Row picked first.
    cosine : bool
        Distance 1 - cosine; else Euclidean.

    Returns
    -------
    picks : numpy.ndarray, shape (at most k,), int64
    radii : numpy.ndarray, same shape, float64
        Largest distance of any row to its nearest pick, after each pick. Under the Euclidean distance at most twice
        that of the best k rows.

    Notes
    -----
    O(N d) a pick, in float64, distances rounded to 1e-9, ties to the lower row: 20,000 rows of width 256 take some
    milliseconds a pick.

    Source: T. F. Gonzalez (1985). Clustering to minimize the maximum intercluster distance.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if k < 1 or not 0 <= first < len(rows):
        raise UsageError(f"{k} picks from row {first} of {len(rows)}", where="k-centre", expected="rows that there are")
    if not cosine:
        rows = rows - rows.mean(axis=0)
    norms = np.einsum("nd,nd->n", rows, rows)
    picks, radii = [first], []
    near = np.full(len(rows), np.inf)
    with one_thread():
        while True:
            last = picks[-1]
            products = rows @ rows[last]
            away = 1 - products if cosine else np.sqrt(np.maximum(norms + norms[last] - 2 * products, 0))
            away[last] = 0
            near = np.minimum(near, np.round(np.maximum(away, 0), 9))
            farthest = int(near.argmax())
            radii.append(float(near[farthest]))
            if len(picks) == k or radii[-1] == 0:
                return np.array(picks, dtype=np.int64), np.array(radii)
            picks.append(farthest)


def principal_map(vectors: NDArray[Any]) -> tuple[Floats, Floats]:
    """Lay rows on their first two principal components.

    Returns
    -------
    places : numpy.ndarray, shape (N, 2), float64
        Of each component the largest weight is positive, so that the picture is not mirrored from run to run.
    shares : numpy.ndarray, shape (2,), float64
        Share of the variance that each shows; 0 where there is none.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    partial = moments([rows])
    centre = partial.total / partial.n
    rows = rows - centre
    with one_thread():
        values, axes = np.linalg.eigh(rows.T @ rows)
        axes = axes[:, ::-1][:, :2]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        places = np.round(rows @ axes, 9)
    shares = np.maximum(values[::-1][:2], 0) / max(float(values.sum()), 1e-300)
    if axes.shape[1] < 2:
        places, shares = np.column_stack([places, np.zeros(len(rows))]), np.append(shares, 0.0)
    return places, shares

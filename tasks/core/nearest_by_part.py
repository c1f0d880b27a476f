"""The nearest of many rows to each of many others, with neither in memory as a whole."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.neighbours import NearestNeighbours
from gradatim.tasks.core.row_numbers import per_row
from gradatim.tasks.core.vector_rows import SLICE, VectorRows, rows_together

BASE = 131_072
"""Rows that are looked through together, at most."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def nearest_by_part(
    vectors: VectorRows,
    ids: pl.Series,
    among: Ints,
    rows: Ints,
    *,
    metric: Literal["cosine", "euclidean"] = "cosine",
    where: str = "nearest neighbours",
) -> tuple[Ints, Floats]:
    """Find the nearest of the rows `among` to each of `rows`, but itself.

    Parameters
    ----------
    vectors : VectorRows, shape (N, d)
    ids : polars.Series of str, length N
        Unique, sorted: of equally near rows the first counts.
    among, rows : numpy.ndarray of int64
        Places of vectors, ascending.
    metric, where
        As of `NearestNeighbours`, whose errors are raised.

    Returns
    -------
    index : numpy.ndarray, shape (len(rows),), int64
        Place of each one's nearest; -1 where there is none.
    measure : numpy.ndarray, shape (len(rows),), float64
        Cosine similarity or Euclidean distance; NaN where `index` is -1.

    Notes
    -----
    ``len(rows) * len(among) * d`` products. Memory: some copies of `BASE` and `SLICE` vectors (fewer where they are
    wide), 24 bytes a row asked.
    Cosines are those of one search through all, to the bit. Euclidean distances are rounded to 1e-9 of the largest
    that there can be in the part, and the first part counts where they are equal.
    """
    index, measure = per_row(len(rows), np.int64, -1), per_row(len(rows), fill=np.nan)
    base, together = rows_together(vectors.shape[1], BASE), rows_together(vectors.shape[1], SLICE)
    for start in range(0, len(among), base):
        part = among[start : start + base]
        near = NearestNeighbours(vectors[part], ids.gather(part), metric=metric, where=where)
        for first in range(0, len(rows), together):
            asked = slice(first, min(first + together, len(rows)))
            some = rows[asked]
            found = near.search(vectors[some], 1, ids=ids.gather(some))
            at, value = found.index[:, 0], found.measure[:, 0]
            before = measure[asked]
            nearer = np.isnan(before) | (value > before if metric == "cosine" else value < before)
            taken = (at >= 0) & nearer
            index[asked] = np.where(taken, part[np.maximum(at, 0)], index[asked])
            measure[asked] = np.where(taken, value, before)
    return index, measure

"""Intrinsic dimension of a cloud of vectors: how fast neighbours move away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.neighbours import NearestNeighbours
from gradatim.tasks.core.reduce import ordered_sum

REFERENCE = 50_000
"""Most vectors among which neighbours are looked for."""


@dataclass(frozen=True)
class Dimension:
    """An estimate of the intrinsic dimension.

    Attributes
    ----------
    value : float
    queries, reference : int
        Vectors whose neighbours were looked for, and among how many.
    equal : int
        Vectors left out since an earlier one is equal.
    """

    value: float
    queries: int
    reference: int
    equal: int


def intrinsic_dimension(
    vectors: NDArray[Any], ids: pl.Series, *, k: int = 5, sample: int = 10_000, seed: int = 0
) -> Dimension:
    """Estimate the intrinsic dimension by maximum likelihood from distances to the first k neighbours.

    Parameters
    ----------
    vectors : array, shape (N, d)
        Finite.
    ids : polars.Series of str, length N
        Which vectors are sampled is a pure function of seed and id.
    k : int
        Neighbours, at least 2.
    sample : int
        Most vectors whose neighbours are looked for, among `REFERENCE` others at most.
    seed : int

    Returns
    -------
    Dimension
        value is 1 / mean of ln(T_k / T_j) over sampled vectors and j < k, T_j the distance to the j-th neighbour.

    Raises
    ------
    DataRefused
        If there are no k + 1 different vectors, or all neighbours are equally far.
    UsageError
        If k is below 2.

    Notes
    -----
    sample x reference distances. The mean is taken of inverse dimensions, as D. J. C. MacKay and Z. Ghahramani advise.

    Source: E. Levina, P. J. Bickel (2004). Maximum likelihood estimation of intrinsic dimension.
    """
    if k < 2 or sample < 1:
        raise UsageError(f"{k} neighbours of {sample} vectors", where="intrinsic dimension", expected="k from 2 on")
    order = sampled(ids, REFERENCE, seed)
    rows = np.asarray(vectors, dtype=np.float32)[order] + np.float32(0)  # one zero
    first = np.sort(_different(rows))
    equal = len(rows) - len(first)
    if len(first) <= k:
        raise DataRefused(
            f"only {len(first)} of {len(rows)} vectors are different",
            where="intrinsic dimension",
            expected=f"more than {k}, the number of neighbours",
        )
    names = pl.Series("id", ids.gather(order).gather(first), dtype=pl.String)
    base = NearestNeighbours(rows[first], names, metric="euclidean", where="intrinsic dimension")
    queries = slice(0, min(sample, len(first)))  # the order is random already
    away = base.search(rows[first][queries], k, ids=names[queries]).measure
    with np.errstate(divide="ignore"):
        ratios = np.log(away[:, -1:] / away[:, :-1])
    ratios = ratios[np.isfinite(ratios)]  # distances below the resolution of the search
    mean = ordered_sum(ratios) / max(ratios.size, 1)
    if mean <= 0:
        raise DataRefused(
            "all neighbours are equally far away, so that no dimension is too high",
            where="intrinsic dimension",
            expected="vectors that are not all at one distance, such as one-hot codes",
            remedy="give the dimension",
        )
    return Dimension(1.0 / mean, len(away), len(first), equal)


def sampled(ids: pl.Series, most: int, seed: int) -> NDArray[np.int64]:
    """Return the places of `most` ids at random, in random order, as a pure function of seed and id."""
    draw = uniform(ids, seed, "difficulty.inductive_bias")
    return np.lexsort((np.arange(len(ids)), draw))[:most].astype(np.int64)


def _different(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Place of the first of each group of equal rows."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return np.unique(keys, return_index=True)[1].astype(np.int64)

"""Class resolution: how near to each other the classes come, from all pairs or from the tail of a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.neighbours import NearestNeighbours

PAIRS = 2_000_000_000
"""Most distances that are looked at for nearest examples of another class."""
FEW_CLASSES, NEAR = 20, 32
SHARE, LEAST, MOST = 2000, 20, 2000
"""The tail holds one distance in SHARE (the authors' 2,000 of 4 million), at least LEAST, at most MOST of them."""

Floats = NDArray[np.float64]


def nearest_other_class(
    vectors: NDArray[Any], classes: NDArray[np.int64], ids: pl.Series, reference: NDArray[np.int64]
) -> Floats:
    """Measure each row's distance to the nearest reference row of another class.

    Parameters
    ----------
    vectors : array, shape (N, d)
    classes : (N,) int64, from 0
    ids : polars.Series of str, length N
    reference : (R,) int64
        Rows that are looked at, of two classes or more.

    Returns
    -------
    (N,) float64
        Euclidean distance; infinite where the reference holds no other class.

    Notes
    -----
    N x R distances, up to twice that where there are more than `FEW_CLASSES`.
    """
    found = np.full(len(vectors), np.inf)
    waiting = np.arange(len(vectors))
    if classes.max(initial=0) >= FEW_CLASSES:
        base = NearestNeighbours(vectors[reference], ids.gather(reference), metric="euclidean", where="classes")
        for start in range(0, len(vectors), 65_536):
            rows = slice(start, start + 65_536)
            near = base.search(vectors[rows], min(NEAR, len(reference)))
            other = (classes[reference][near.index] != classes[rows, None]) & (near.index >= 0)
            first = other.argmax(axis=1)
            at = np.arange(len(first))
            found[rows] = np.where(other[at, first], near.measure[at, first], np.inf)
        waiting = np.flatnonzero(np.isinf(found))
    for own in np.unique(classes[waiting]):
        rows, others = waiting[classes[waiting] == own], reference[classes[reference] != own]
        if len(others):
            base = NearestNeighbours(vectors[others], ids.gather(others), metric="euclidean", where="classes")
            found[rows] = base.search(vectors[rows], 1).measure[:, 0]
    return found


@dataclass(frozen=True)
class Tail:
    """Smallest distance between classes as extreme-value theory sees it.

    Attributes
    ----------
    value : float
        Smallest distance expected among `pairs`; NaN where the sample says nothing.
    index : float
        Extreme-value index of 1 / distance; below 0 it has an end, so that classes keep apart.
    sample, k : int
        Distances between classes that were measured, and how many of the smallest were used.
    pairs : float
        Pairs of rows of different classes in the whole set.
    minimum : float
        Smallest distance measured.
    """

    value: float
    index: float
    sample: int
    k: int
    pairs: float
    minimum: float


def extreme_value_resolution(vectors: NDArray[Any], classes: NDArray[np.int64], sizes: NDArray[np.int64]) -> Tail:
    """Estimate the smallest distance between classes in a set from the smallest in a sample of it.

    Parameters
    ----------
    vectors : array, shape (n, d)
        The sample; all n (n - 1) / 2 distances are measured.
    classes : (n,) int64
    sizes : (C,) int64
        Rows of each class in the whole set.

    Notes
    -----
    Distances of 0 are left out. With X = 1 / distance, X_k the k + 1-st largest, M1 and M2 the means of the first and
    second powers of ln X - ln X_k over the k largest: index g = M1 + 1 - 1 / (2 (1 - M1^2 / M2)); the level that one
    pair in the whole set is expected to exceed is X_k (1 + M1 max(1, 1 - g) (a^g - 1) / g) with a = k pairs / sample.

    Source: A. L. M. Dekkers, J. H. J. Einmahl, L. de Haan (1989). A moment estimator for the index of an extreme-value
    distribution; used as by A. Boopathy et al. (2023), whose code omits the factor max(1, 1 - g).
    """
    rows = np.asarray(vectors, dtype=np.float64)
    total = float(sizes.sum())
    pairs = (total**2 - float((sizes.astype(np.float64) ** 2).sum())) / 2
    smallest, count = _smallest(rows, classes)
    k = min(MOST, max(LEAST, count // SHARE))
    minimum = float(smallest[0]) if len(smallest) else np.nan
    if count <= 2 * LEAST:
        return Tail(np.nan, np.nan, count, 0, pairs, minimum)
    logs = -np.log(smallest[: k + 1])
    excess = logs[:k] - logs[k]
    first, second = float(excess.mean()), float((excess**2).mean())
    if first <= 0 or second <= first**2:
        return Tail(np.nan, np.nan, count, k, pairs, minimum)
    g = first + 1 - 0.5 / (1 - first**2 / second)
    log_a = np.log(k) + np.log(pairs) - np.log(count)
    growth = log_a if abs(g) < 1e-9 else np.expm1(min(g * log_a, 700.0)) / g
    level = np.exp(logs[k]) * (1 + first * max(1.0, 1 - g) * growth)
    return Tail(float(1 / level), float(g), count, k, pairs, minimum)


def _smallest(rows: Floats, classes: NDArray[np.int64]) -> tuple[Floats, int]:
    """Return the `MOST` + 1 smallest positive distances between classes, sorted, and how many were measured."""
    from scipy.spatial.distance import cdist

    kept, count = np.zeros(0), 0
    for start in range(0, len(rows), 512):
        stop = min(start + 512, len(rows))
        away = cdist(rows[start:stop], rows[start:])
        later = np.arange(start, len(rows)) > np.arange(start, stop)[:, None]
        away = away[later & (classes[start:] != classes[start:stop, None])]
        count += len(away)
        kept = np.sort(np.concatenate([kept, away[away > 0]]))[: MOST + 1]
    return kept, count

"""The leakage ratio of a split: how much of all similarity lies between rows of different splits.

L(π) = Σ_{i<j} w_i w_j sim(i, j) [π(i) ≠ π(j)], as a share of the same sum over all pairs: 0 where nothing alike is
parted, 1 where only unlike rows share a split. Three choices differ from DataSAIL's own evaluation, each on purpose:

* A row is no pair with itself. With self-pairs in the denominator the ratio of one split falls as rows get fewer.
* Similarities alone are summed. A sum of distances across splits grows as splits get *better*, so a caller with
  distances turns them into similarities first.
* What is in no split (place -1) is in no pair. Counted as parted, a row that was left out so that less leaks would
  raise the leakage.

Source: R. Joeres, D. B. Blumenthal, O. V. Kalinina (2025). Data splitting to avoid information leakage with DataSAIL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.vector_rows import AnyVectors

PAIRS = 40_000
"""Pairs that are drawn by default; as many or fewer are all measured."""
TEXT_WIDTH, TEXT_LENGTH = 2**18, 2_000
"""Columns that words are hashed into, and characters of a text that are looked at."""
_STEP = 8192
_Z = 1.959963984540054
_RULE_OF_THREE = 3.0

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Similar = Callable[[Ints, Ints], Floats]
"""Similarities in [0, 1] of pairs of rows: (left, right) -> (n,)."""


@dataclass(frozen=True)
class Leakage:
    """A leakage ratio.

    Attributes
    ----------
    ratio : float or None
        In [0, 1]; None where no pair of rows is alike at all, or there is no pair.
    low, high : float or None
        95 % interval; the ratio itself where all pairs were measured.
    pairs : int
        Pairs that were measured.
    exact : bool
    """

    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    exact: bool


def cluster_leakage(similarity: ArrayLike, weight: ArrayLike, place: ArrayLike) -> Leakage:
    """Measure the leakage ratio of clusters exactly.

    Parameters
    ----------
    similarity : array-like, shape (k, k)
        Symmetric, in [0, 1]. The diagonal is not looked at: a cluster that is whole leaks nothing to itself.
    weight : array-like, shape (k,)
        Rows of each cluster, or any weights of 0 or more.
    place : array-like of int, shape (k,)
        Split of each cluster; -1 for one that is in none.

    Raises
    ------
    UsageError
        Shapes do not fit, or the matrix is not symmetric or holds NaN or numbers below 0.

    Notes
    -----
    O(k²). A ratio of clusters leaves out pairs within clusters: compare it between splits of the same clusters alone.
    """
    matrix = np.array(similarity, dtype=np.float64)
    weights, places = np.asarray(weight, dtype=np.float64), np.asarray(place, dtype=np.int64)
    count = len(weights)
    if matrix.shape != (count, count) or places.shape != (count,):
        raise UsageError(
            f"similarities {matrix.shape}, weights {weights.shape} and places {places.shape}",
            where="leakage",
            expected="a square matrix with a weight and a place for each row",
        )
    np.fill_diagonal(matrix, 0.0)
    if not (np.isfinite(matrix).all() and (matrix >= 0).all() and np.allclose(matrix, matrix.T, atol=1e-9)):
        raise UsageError(
            "the similarities hold NaN or numbers below 0, or are not symmetric",
            where="leakage",
            expected="a symmetric matrix of numbers in [0, 1]",
        )
    one, two = np.triu_indices(count, 1)
    used = (places[one] >= 0) & (places[two] >= 0)
    one, two = one[used], two[used]
    alike = weights[one] * weights[two] * matrix[one, two]
    parted = places[one] != places[two]
    return _exact(math.fsum(alike[parted].tolist()), math.fsum(alike[~parted].tolist()), len(one))


def row_leakage(place: ArrayLike, ids: pl.Series, similar: Similar, *, seed: int = 0, pairs: int = PAIRS) -> Leakage:
    """Measure the leakage ratio of rows on pairs drawn at random, half of them parted and half not.

    How many pairs are parted is known; what is drawn for are the mean similarities of those and of the others.

    Parameters
    ----------
    place : array-like of int, shape (n,)
        Split of each row; -1 for one that is in none.
    ids : polars.Series of String, (n,)
        Unique: pairs are drawn by the rows' rank among the ids, so the order of rows does not matter.
    similar : callable
        Such as `vector_similarity` or `text_similarity` give.
    seed : int
    pairs : int
        Pairs to draw; where there are no more, all are measured.

    Returns
    -------
    Leakage
        With a 95 % interval from the variances of both means, symmetric in the log odds of the ratio. A mean for which
        every pair drawn had similarity 0 has 3 / pairs as its upper end. Where nearly all similarity lies in pairs so
        rare that few are drawn, intervals are too short: measure near-duplicates as pairs instead.

    Notes
    -----
    O(pairs) similarities and a sort of the ids.
    """
    places = np.asarray(place, dtype=np.int64)
    if len(places) != len(ids):
        raise UsageError(f"{len(places)} places and {len(ids)} ids", where="leakage", expected="one for each row")
    if pairs < 2:
        raise UsageError(f"{pairs} pairs", where="leakage", expected="at least 2")
    order = ids.cast(pl.String).arg_sort().to_numpy().astype(np.int64)
    rows = order[places[order] >= 0]
    rows = rows[np.argsort(places[rows], kind="stable")]
    size = np.unique(places[rows], return_counts=True)[1].astype(np.float64)
    whole = len(rows) * (len(rows) - 1) // 2
    if whole <= pairs:
        one, two = (rows[end] for end in np.triu_indices(len(rows), 1))
        alike = similar(one, two)
        parted = places[one] != places[two]
        return _exact(math.fsum(alike[parted].tolist()), math.fsum(alike[~parted].tolist()), whole)
    within = float((size * (size - 1)).sum() / 2)
    across = whole - within
    if not across or not within:
        ratio = float(across > 0)  # one split, or none with two rows
        return Leakage(ratio, ratio, ratio, 0, exact=True)
    half = max(2, pairs // 2)
    start = np.concatenate([[0.0], np.cumsum(size)])
    draws = [uniform(map(str, range(half)), seed, f"leakage {name}") for name in ("split", "one", "two")]
    first, second = _splits_across(size, draws[0])
    apart = _measured(similar, rows, start[first] + draws[1] * size[first], start[second] + draws[2] * size[second])
    mine = np.minimum(np.searchsorted(np.cumsum(size * (size - 1)) / (2 * within), draws[0], "right"), len(size) - 1)
    left = np.floor(draws[1] * size[mine])
    right = np.floor(draws[2] * (size[mine] - 1))
    together = _measured(similar, rows, start[mine] + left, start[mine] + right + (right >= left))
    return _estimated(across, apart, within, together)


def vector_similarity(vectors: AnyVectors, ids: pl.Series | None = None) -> Similar:
    """Return the cosine of rows, 0 where it is below 0 or a vector is zero.

    Parameters
    ----------
    vectors : array or VectorRows, shape (n, d)
    ids : polars.Series of str, optional
        For the error, `DataRefused`, where a vector that is looked at holds NaN or infinity.
    """

    def similar(one: Ints, two: Ints) -> Floats:
        out = np.empty(len(one))
        for start in range(0, len(one), _STEP):
            part = slice(start, start + _STEP)
            left, right = (np.asarray(vectors[end[part]], dtype=np.float64) for end in (one, two))
            scale = [np.sqrt(np.einsum("nd,nd->n", side, side)) for side in (left, right)]
            for norm, end in zip(scale, (one, two), strict=True):
                if not np.isfinite(norm).all():
                    row = int(end[part][~np.isfinite(norm)][0])
                    raise DataRefused(
                        f"the vector of {f'row {row}' if ids is None else repr(ids[row])} holds NaN or infinity",
                        where="leakage",
                        expected="finite numbers",
                    )
            norms = scale[0] * scale[1]
            product = np.einsum("nd,nd->n", left, right)
            out[part] = np.divide(product, norms, out=np.zeros(len(product)), where=norms > 0)
        return np.asarray(np.round(np.clip(out, 0.0, 1.0), 9), dtype=np.float64)

    return similar


def text_similarity(texts: pl.Series) -> Similar:
    """Return the cosine of counts of hashed words and pairs of words: for texts without vectors.

    A null is like nothing. It sees words, not meaning, and the first 2,000 characters alone. Only texts of pairs that
    are asked for are hashed: some 20,000 short pairs a second.

    Source: K. Weinberger et al. (2009). Feature hashing for large scale multitask learning.
    """

    def similar(one: Ints, two: Ints) -> Floats:
        from sklearn.feature_extraction.text import HashingVectorizer

        hashed = HashingVectorizer(
            n_features=TEXT_WIDTH, ngram_range=(1, 2), token_pattern=r"\S+", norm="l2", alternate_sign=False
        )
        out = np.empty(len(one))
        for start in range(0, len(one), _STEP):
            part = slice(start, start + _STEP)
            words = (texts.gather(end[part]).fill_null("").str.slice(0, TEXT_LENGTH).to_list() for end in (one, two))
            sides = [hashed.transform(side) for side in words]
            out[part] = np.asarray(sides[0].multiply(sides[1]).sum(axis=1)).ravel()
        return np.asarray(np.round(np.clip(out, 0.0, 1.0), 9), dtype=np.float64)

    return similar


def mean_similarity(vectors: AnyVectors, cluster: ArrayLike, clusters: int) -> Floats:
    """Return the mean cosine of the rows of two clusters for each two clusters, 0 where it is below 0.

    Parameters
    ----------
    vectors : array or VectorRows, shape (n, d)
        In canonical order.
    cluster : array-like of int, shape (n,)
        In [0, clusters); rows of -1 are left out, and so are vectors of zeros.

    Returns
    -------
    numpy.ndarray, shape (clusters, clusters), float64
        Symmetric, rounded to 1e-9. A cluster without a vector is like nothing.

    Notes
    -----
    O(n d + clusters² d): the mean over all pairs of rows is the product of the clusters' mean unit vectors.
    """
    from gradatim.tasks.core.clusters import cluster_sums
    from gradatim.tasks.core.reduce import one_thread
    from gradatim.tasks.core.vector_rows import vector_rows

    codes = np.asarray(cluster, dtype=np.int64)
    unit = replace(vector_rows(vectors), unit=True)
    held = np.concatenate([np.zeros(0, bool), *(rows.any(axis=1) for _, rows in unit.slices())])
    codes = np.where(held, codes, -1)
    size = np.bincount(codes[codes >= 0], minlength=clusters)
    centre = cluster_sums(unit, codes, clusters) / np.maximum(size, 1)[:, None]
    with one_thread():
        products = centre @ centre.T
    return np.asarray(np.round(np.clip((products + products.T) / 2, 0.0, 1.0), 9))


def _exact(across: float, within: float, pairs: int) -> Leakage:
    ratio = across / (across + within) if across + within > 0 else None
    return Leakage(ratio, ratio, ratio, pairs, exact=True)


def _splits_across(size: Floats, draw: Floats) -> tuple[Ints, Ints]:
    """Draw two different splits, as often as they have pairs of rows."""
    one, two = np.triu_indices(len(size), 1)
    reach = np.cumsum(size[one] * size[two])
    chosen = np.minimum(np.searchsorted(reach / reach[-1], draw, "right"), len(one) - 1)
    return one[chosen], two[chosen]


def _measured(similar: Similar, rows: Ints, one: Floats, two: Floats) -> Floats:
    return similar(rows[np.floor(one).astype(np.int64)], rows[np.floor(two).astype(np.int64)])


def _estimated(across: float, apart: Floats, within: float, together: Floats) -> Leakage:
    """Put two means together, with the delta method on the log odds."""
    measured = len(apart) + len(together)
    means, errors = [], []
    for values in (apart, together):
        mean = math.fsum(values.tolist()) / len(values)
        spread = math.fsum(((values - mean) ** 2).tolist()) / (len(values) - 1)
        means.append(mean)
        errors.append(math.sqrt(spread / len(values)))
    parted, whole = across * means[0], within * means[1]
    if not parted + whole:
        return Leakage(None, None, None, measured, exact=False)
    ratio = parted / (parted + whole)
    if parted and whole:
        reach = math.exp(_Z * math.hypot(errors[0] / means[0], errors[1] / means[1]))
        low, high = parted / (parted + whole * reach), parted * reach / (parted * reach + whole)
    else:
        most = _RULE_OF_THREE / (len(together) if parted else len(apart))
        low = parted / (parted + within * most) if parted else 0.0
        high = 1.0 if parted else across * most / (across * most + whole)
    return Leakage(ratio, low, high, measured, exact=False)

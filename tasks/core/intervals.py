"""Intervals and tests for proportions, means and their differences.

The unit of chance is the cluster (template, document, person), not the row. All that the bootstrap needs is, for each
cluster, the sum of scores and the number of rows, so that its cost depends on the number of clusters alone; clusters
with equal sums are drawn together, which changes no probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.tasks.core.reduce import one_thread

RESAMPLES = 2000
MOST_KINDS = 2000
"""From this number of distinct clusters on, totals are drawn from their normal limit."""

FEW_CLUSTERS = 20
"""Below this number the percentile bootstrap is known to be too narrow."""

_CELLS = 4_000_000  # weights held at a time: 32 MB
_CHEAP = 10  # a multinomial count costs about as much as drawing ten clusters one by one

Floats = NDArray[np.float64]
Arm = tuple[Floats, Floats]
"""Sums of scores and numbers of rows, each of shape (runs, clusters, quantities)."""


@dataclass(frozen=True, repr=False)
class Interval:
    """An estimate with its interval.

    Attributes
    ----------
    value, low, high : float
        NaN where there is nothing to estimate from.
    n : int
        Observations: rows, or clusters where the method says so.
    method : str
        How the interval was made.
    p : float
        Two-sided p-value of value = 0, where one was made; else NaN.
    """

    value: float
    low: float
    high: float
    n: int
    method: str
    p: float = float("nan")

    def __repr__(self) -> str:
        return f"{self.value:.4f} (interval {self.low:.4f} to {self.high:.4f}; n {self.n:,}; {self.method})"


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Score interval of a proportion; defined for none, all, and no observations (0 to 1).

    Source: E. B. Wilson (1927). Probable inference, the law of succession, and statistical inference.
    """
    _check_counts(successes, n, level)
    if n == 0:
        return Interval(float("nan"), 0.0, 1.0, 0, "wilson")
    from scipy.special import ndtri

    z2 = float(ndtri(0.5 + level / 2)) ** 2
    p = successes / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    low = 0.0 if successes == 0 else float(centre - half)
    high = 1.0 if successes == n else float(centre + half)
    return Interval(float(p), max(low, 0.0), min(high, 1.0), round(n), "wilson")


def jeffreys(successes: float, n: float, level: float = 0.95) -> Interval:
    """Equal-tailed interval of a proportion under Jeffreys' prior, Beta(1/2, 1/2); 0 and 1 are kept as ends.

    Source: L. D. Brown, T. T. Cai, A. DasGupta (2001). Interval estimation for a binomial proportion.
    """
    _check_counts(successes, n, level)
    if n == 0:
        return Interval(float("nan"), 0.0, 1.0, 0, "jeffreys")
    from scipy.special import betaincinv

    tail, a, b = (1 - level) / 2, successes + 0.5, n - successes + 0.5
    low = 0.0 if successes == 0 else float(betaincinv(a, b, tail))
    high = 1.0 if successes == n else float(betaincinv(a, b, 1 - tail))
    return Interval(successes / n, low, high, round(n), "jeffreys")


def mover(parts: Sequence[Interval], contrast: ArrayLike) -> Interval:
    """Interval of a linear combination from the intervals of its independent parts.

    For a difference of two Wilson intervals this is Newcombe's hybrid score interval; positively correlated parts make
    it wider than needed.

    Source: G. Y. Zou, A. Donner (2008). Construction of confidence limits about effect measures: a general approach;
    R. G. Newcombe (1998). Interval estimation for the difference between independent proportions.
    """
    c = np.asarray(contrast, dtype=np.float64)
    value, low, high = (np.array([getattr(part, end) for part in parts]) for end in ("value", "low", "high"))
    centre = float(c @ value)
    down = np.where(c >= 0, value - low, high - value)
    up = np.where(c >= 0, high - value, value - low)
    reach = np.abs(c).sum()  # what proportions allow
    return Interval(
        centre,
        max(centre - float(np.sqrt(np.sum((c * down) ** 2))), -reach if (c < 0).any() else 0.0),
        min(centre + float(np.sqrt(np.sum((c * up) ** 2))), reach if (c < 0).any() else float(c.sum())),
        min((part.n for part in parts), default=0),
        "wilson by mover" if len(parts) > 1 else "wilson",
    )


def bootstrap(
    arms: Sequence[Arm],
    contrast: ArrayLike,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile interval of a linear combination of mean scores, resampling clusters (and runs, where several).

    Parameters
    ----------
    arms : sequence of (sums, counts)
        For each arm two arrays of shape (runs, clusters, quantities), or (clusters, quantities) for one run. All arms
        share the clusters, and so their weights: this is what makes a comparison paired. Runs (seeds) of different arms
        are resampled independently of each other.
    contrast : array-like, shape (total number of quantities,)
        Weights of the mean scores of arm 0's quantities, then arm 1's, ...: ``[1]`` a mean, ``[1, -1]`` a gap or a
        paired difference, ``[1, -1, -1, 1]`` a difference of gaps.
    resamples : int
    seed : int
    level : float

    Returns
    -------
    Interval
        `n` is the number of clusters with a row. Where all scores are 0 or all are 1 in a quantity, or there is one
        cluster, the bootstrap shows no spread: the interval is then widened to that of Wilson over clusters. `p` is
        twice the smaller share of draws on either side of 0 (each counted with one draw more).

    Notes
    -----
    O(resamples x distinct clusters). From 2,000 distinct clusters on, totals are drawn from their joint normal limit.
    With fewer than 20 clusters, or 5 runs, read the interval as a lower bound of the uncertainty.

    Source: B. Efron, R. Tibshirani (1993). An Introduction to the Bootstrap; T. Sellam et al. (2022). The MultiBERTs
    (runs x examples).
    """
    weights = np.asarray(contrast, dtype=np.float64)
    pairs = [_shaped(sums, counts) for sums, counts in arms]
    if weights.shape != (sum(sums.shape[2] for sums, _ in pairs),):
        raise UsageError(f"a contrast of shape {weights.shape}", expected="one number for each quantity of each arm")
    if len({sums.shape[1] for sums, _ in pairs}) != 1:
        raise UsageError("the arms differ in their number of clusters", expected="the same clusters in the same order")
    if resamples < 1 or not 0 < level < 1:
        raise UsageError(f"resamples {resamples}, level {level}", expected="resamples >= 1 and 0 < level < 1")
    totals = [(sums.sum(axis=(0, 1)), counts.sum(axis=(0, 1))) for sums, counts in pairs]
    means = np.concatenate([np.divide(s, c, out=np.full_like(s, np.nan), where=c > 0) for s, c in totals])
    present = np.concatenate([(counts.sum(axis=0) > 0).sum(axis=0) for _, counts in pairs])
    any_row = np.any([counts.sum(axis=(0, 2)) > 0 for _, counts in pairs], axis=0)
    clusters = int(any_row.sum())
    used = weights != 0
    if np.isnan(means[used]).any():
        return Interval(float("nan"), float("nan"), float("nan"), clusters, "none: no rows")
    value = float(weights[used] @ means[used])
    with one_thread():
        draws, method = _draws([(s[:, any_row], c[:, any_row]) for s, c in pairs], resamples, seed)
    drawn = draws[:, used] @ weights[used]
    drawn = drawn[np.isfinite(drawn)]  # a resample may miss a small slice altogether
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail]) if len(drawn) else (value, value)
    below, above = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    p = min(1.0, 2 * (min(below, above) + 1) / (len(drawn) + 1))
    bounded = bool(((means[used] >= 0) & (means[used] <= 1)).all())
    flat = bounded and bool(((means[used] == 0) | (means[used] == 1)).any())
    if clusters < 2 or flat or low == high:
        if not bounded:
            return Interval(value, float("nan"), float("nan"), clusters, "none: no spread between clusters")
        parts = [wilson(means[i] * present[i], float(present[i]), level) for i in np.flatnonzero(used)]
        wide = mover(parts, weights[used])
        low, high = min(float(low), wide.low), max(float(high), wide.high)
        p = 1.0 if low <= 0 <= high else p
        method = f"{wide.method} over clusters" if clusters < 2 else f"{method}, widened to {wide.method} over clusters"
    return Interval(value, float(low), float(high), clusters, method, p)


def cluster_bootstrap(
    sums: ArrayLike, counts: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0, level: float = 0.95
) -> Interval:
    """Interval of one mean score from each cluster's sum of scores and number of rows, both of shape (clusters,)."""
    arm = (_column(sums), _column(counts))
    return bootstrap([arm], [1.0], resamples=resamples, seed=seed, level=level)


def paired_cluster_bootstrap(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Interval of the difference of two mean scores over the same clusters.

    Parameters
    ----------
    first, second : (sums, counts)
        Each of shape (clusters,): the difference of means is taken; or (clusters, 2) with an in-distribution and an OOD
        column: the difference of gaps (ID - OOD) is taken.
    """
    arms = [(_column(sums), _column(counts)) for sums, counts in (first, second)]
    contrast = {1: [1.0, -1.0], 2: [1.0, -1.0, -1.0, 1.0]}.get(arms[0][0].shape[-1])
    if contrast is None:
        raise UsageError(f"{arms[0][0].shape[-1]} quantities in each arm", expected="1, or 2 (in distribution, OOD)")
    return bootstrap(arms, contrast, resamples=resamples, seed=seed, level=level)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value that two models on the same independent rows are right equally often.

    Parameters
    ----------
    only_first, only_second : int
        Rows that the first model alone, and the second alone, got right.

    Source: Q. McNemar (1947). Note on the sampling error of the difference between correlated proportions.
    """
    if only_first < 0 or only_second < 0:
        raise UsageError(f"discordant rows {only_first}, {only_second}", expected="counts of 0 or more")
    from scipy.special import bdtr

    n = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), n, 0.5))) if n else 1.0


def holm(p: ArrayLike) -> Floats:
    """Adjust p-values of several tests so that the chance of any false alarm is held; NaN stays NaN and is not counted.

    Source: S. Holm (1979). A simple sequentially rejective multiple test procedure.
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return adjusted


def _draws(arms: list[Arm], resamples: int, seed: int) -> tuple[Floats, str]:
    """Draw mean scores of all quantities of all arms: shape (resamples, quantities), and how it was done."""
    rng = np.random.Generator(np.random.PCG64(int(value_hash({"purpose": "bootstrap", "seed": seed}), 16)))
    clusters = arms[0][0].shape[1]
    columns = [part.transpose(1, 0, 2).reshape(clusters, -1) for arm in arms for part in arm]
    rows = np.concatenate(columns, axis=1)
    kinds, repeats = _kinds(rows)
    many = len(kinds) > MOST_KINDS
    if many:
        drawn = [_means(rng, _normal_totals(rng, rows, resamples), arms)]
    else:
        block = max(1, _CELLS // clusters) if clusters < _CHEAP * len(kinds) else max(1, _CELLS // len(kinds))
        drawn = [
            _means(rng, _weights(rng, repeats, min(block, resamples - start)) @ kinds, arms)
            for start in range(0, resamples, block)
        ]
    several = any(sums.shape[0] > 1 for sums, _ in arms)
    method = ("runs x clusters" if several else "cluster") + " bootstrap" + (", normal limit" if many else "")
    return np.concatenate(drawn), method


def _means(rng: np.random.Generator, totals: Floats, arms: list[Arm]) -> Floats:
    """Turn drawn totals into mean scores, drawing each arm's runs."""
    size, at, means = len(totals), 0, []
    for sums, _ in arms:
        runs, _, quantities = sums.shape
        width = runs * quantities
        scores, rows = (totals[:, at + i * width : at + (i + 1) * width].reshape(size, runs, -1) for i in (0, 1))
        at += 2 * width
        chosen = rng.multinomial(runs, np.full(runs, 1 / runs), size)[:, :, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append((chosen * scores).sum(axis=1) / (chosen * rows).sum(axis=1))
    return np.concatenate(means, axis=1)


def _kinds(rows: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Distinct rows in sorted order, and how often each occurs; unsorted where there are more than `MOST_KINDS`."""
    names = [f"c{i}" for i in range(rows.shape[1])]
    counted = pl.DataFrame(rows, schema=names, orient="row").group_by(names).agg(pl.len().alias("rows"))
    if len(counted) <= MOST_KINDS:
        counted = counted.sort(names)
    return counted.select(names).to_numpy().astype(np.float64), counted["rows"].to_numpy().astype(np.int64)


def _weights(rng: np.random.Generator, repeats: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """How often each kind of cluster is drawn in each of `size` resamples: shape (size, kinds)."""
    clusters, kinds = int(repeats.sum()), len(repeats)
    if clusters >= _CHEAP * kinds:
        return rng.multinomial(clusters, repeats / clusters, size)
    kind = np.repeat(np.arange(kinds), repeats)[rng.integers(0, clusters, (size, clusters))]
    kind += np.arange(size)[:, None] * kinds
    return np.bincount(kind.ravel(), minlength=size * kinds).reshape(size, kinds)


def _normal_totals(rng: np.random.Generator, rows: Floats, size: int) -> Floats:
    """Draw totals over resampled clusters from their normal limit: shape (size, columns)."""
    total = rows.sum(axis=0)
    spread = rows - total / len(rows)
    values, vectors = np.linalg.eigh(spread.T @ spread)
    root = vectors * np.sqrt(np.clip(values, 0, None)) @ vectors.T  # unique, whatever signs the vectors have
    return np.asarray(total + rng.standard_normal((size, len(total))) @ root)


def _shaped(sums: Floats, counts: Floats) -> Arm:
    pair = tuple(np.asarray(part, dtype=np.float64) for part in (sums, counts))
    first, second = (part[None] if part.ndim == 2 else part for part in pair)
    if first.shape != second.shape or first.ndim != 3:
        raise UsageError(
            f"sums of shape {first.shape} and counts of shape {second.shape}",
            expected="two arrays of one shape: (runs, clusters, quantities) or (clusters, quantities)",
        )
    if not np.isfinite(first).all() or not np.isfinite(second).all() or (second < 0).any() or first[second == 0].any():
        raise UsageError(
            "a sum or count is not finite, a count is negative, or a cluster of no rows has a sum",
            expected="finite sums, counts of 0 or more, sum 0 where the count is 0",
        )
    return first, second


def _column(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array[:, None] if array.ndim == 1 else array


def _check_counts(successes: float, n: float, level: float) -> None:
    if not (0 <= successes <= n) or not 0 < level < 1:
        raise UsageError(
            f"{successes} successes of {n} at level {level}", expected="0 <= successes <= n and 0 < level < 1"
        )

"""How reliable a difficulty is, and how many bins that supports.

Reliability R is the share of the variance of the estimated difficulties that is not error: the squared correlation of
estimated and true difficulty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.ranks import distinct

MAX_BINS = 10
SHARE = 0.6


def halves(respondents: Sequence[str], seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut respondents into two halves at random, as a pure function of (seed, number, ids).

    Returns
    -------
    two arrays of int64
        Indices; the first half is the larger by one where their number is odd.
    """
    draw = uniform(respondents, seed, f"difficulty.split_half.{number}")
    order = np.lexsort((np.asarray(respondents, dtype=object), draw))
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def split_half(
    estimate: Callable[[np.ndarray], np.ndarray], respondents: Sequence[str], *, seed: int, splits: int = 5
) -> float | None:
    """Average the split-half reliability over several random halves of the respondents.

    Parameters
    ----------
    estimate : callable
        Takes indices of respondents, returns difficulties (J,) from these alone, NaN where there is none.
    respondents : sequence of str
    seed, splits : int

    Returns
    -------
    float or None
        2 r / (1 + r) of the mean correlation r of the halves (Spearman-Brown: the halves' reliability stepped up to all
        respondents); None with fewer than four respondents, fewer than three common examples or no variance.

    Notes
    -----
    Source: C. Spearman (1910). Correlation calculated from faulty data; W. Brown (1910). Some experimental results in
    the correlation of mental abilities.
    """
    if len(respondents) < 4 or splits < 1:
        return None
    found = []
    for number in range(splits):
        first, second = (estimate(half) for half in halves(respondents, seed, number))
        both = np.isfinite(first) & np.isfinite(second)
        if both.sum() >= 3 and np.ptp(first[both]) > 1e-12 and np.ptp(second[both]) > 1e-12:
            found.append(float(np.corrcoef(first[both], second[both])[0, 1]))
    if not found:
        return None
    return spearman_brown(float(np.mean(found)), 2.0)


def spearman_brown(reliability: float, factor: float) -> float:
    """Reliability with `factor` times as many respondents: k R / (1 + (k - 1) R), in [0, 1]; 0 where R is not positive.

    Source: C. Spearman (1910). Correlation calculated from faulty data; W. Brown (1910). Some experimental results in
    the correlation of mental abilities.
    """
    r = min(max(reliability, 0.0), 1.0)
    return factor * r / (1.0 + (factor - 1.0) * r) if r > 0 else 0.0


def growth(
    estimate: Callable[[np.ndarray], np.ndarray],
    respondents: Sequence[str],
    *,
    seed: int,
    draws: int = 3,
    overall: float | None = None,
) -> pl.DataFrame:
    """Measure the reliability with 4, 8, 16, ... respondents, on pairs of disjoint random subsets of that size.

    Parameters
    ----------
    estimate : callable
        As of `split_half`. A subset that it refuses (`DataRefused`) is left out.
    respondents : sequence of str
    seed, draws : int
        Pairs of each size; subsets of one draw are nested, a pure function of (seed, draw, ids).
    overall : float, optional
        Reliability with all respondents, for a last row.

    Returns
    -------
    polars.DataFrame
        respondents, reliability (mean correlation of the pairs, at least 0), low and high (least and largest of the
        pairs), pairs; sizes up to half of the respondents. No rows with fewer than 8.

    Notes
    -----
    2 x draws estimates a size. Unlike `spearman_brown` nothing is assumed of how errors shrink.
    """
    rows: list[tuple[int, float, float, float, int]] = []
    size = 4
    orders = []
    for draw in range(draws):
        chance = uniform(respondents, seed, f"difficulty.growth.{draw}")
        orders.append(np.lexsort((np.asarray(respondents, dtype=object), chance)))
    while 2 * size <= len(respondents) and draws > 0:
        found = []
        for order in orders:
            try:
                first, second = estimate(np.sort(order[:size])), estimate(np.sort(order[size : 2 * size]))
            except DataRefused:
                continue
            both = np.isfinite(first) & np.isfinite(second)
            if both.sum() >= 3 and np.ptp(first[both]) > 1e-12 and np.ptp(second[both]) > 1e-12:
                found.append(max(0.0, float(np.corrcoef(first[both], second[both])[0, 1])))
        if found:
            rows.append((size, float(np.mean(found)), min(found), max(found), len(found)))
        size *= 2
    if overall is not None and rows:
        rows.append((len(respondents), overall, overall, overall, 0))
    kinds = {"respondents": pl.Int64, "reliability": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema={**kinds, "pairs": pl.Int64}, orient="row")


def respondents_needed(reliability: float, respondents: int, bins: int) -> int | None:
    """How many respondents would support so many bins, by Spearman and Brown's formula; None where R is 0.

    A number for planning: it takes the further respondents to be like those at hand.
    """
    if not reliability > 0.0:
        return None
    wanted, r = least_reliability(bins), min(reliability, 1.0 - 1e-9)
    return int(np.ceil(respondents * wanted * (1.0 - r) / (r * (1.0 - wanted)) - 1e-9))


def separation(values: np.ndarray, errors: np.ndarray) -> float | None:
    """Reliability from standard errors: (variance - mean squared error) / variance, at least 0.

    `values` and `errors` are (J,); rows without an error are left out. None with fewer than three or without variance.

    Source: B. D. Wright, G. N. Masters (1982). Rating scale analysis.
    """
    use = np.isfinite(values) & np.isfinite(errors)
    if use.sum() < 3:
        return None
    variance = float(np.var(values[use], ddof=1))
    if variance <= 1e-12:
        return None
    return max(0.0, 1.0 - float(np.mean(errors[use] ** 2)) / variance)


def supported_bins(reliability: float | None) -> int:
    """How many equal-count bins a reliability supports, 1 to 10.

    The largest number k for which at least three in five examples are expected in the bin where their true difficulty
    belongs and, for two bins, at least half again as many as chance would put there (.75). With true and estimated
    difficulty bivariate normal of correlation sqrt(R) the share depends on R and k alone. So R >= .50 supports 2
    bins, .53 3, .74 4, .84 5, .97 10; less than .50, where error outweighs truth, supports one. An unknown reliability
    supports the most, since nothing speaks against it.
    """
    if reliability is None:
        return MAX_BINS
    return next((k for k in range(MAX_BINS, 1, -1) if reliability >= least_reliability(k) - 1e-9), 1)


def own_bin_share(reliability: float, bins: int) -> float:
    """Expected share of examples whose estimated bin is the true one, for bivariate normal difficulties."""
    from scipy.special import ndtr, ndtri

    edges = ndtri(np.arange(bins + 1) / bins)
    estimate = ndtri((np.arange(bins)[:, None] + (np.arange(500) + 0.5) / 500) / bins)
    spread = np.sqrt(max(1.0 - reliability, 1e-12))
    centre = np.sqrt(reliability) * estimate
    share = ndtr((edges[1:, None] - centre) / spread) - ndtr((edges[:-1, None] - centre) / spread)
    return float(share.mean())


@cache
def least_reliability(bins: int) -> float:
    """Smallest reliability that supports `bins`, by bisection; 0 for one bin."""
    if bins < 2:
        return 0.0
    target = max(SHARE, 1.5 / bins)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if own_bin_share(middle, bins) >= target - 1e-6 else (middle, high)
    return high


def choose_bins(values: np.ndarray, reliability: float | None, forced: int | None) -> int:
    """Bins to cut: `forced`, or what the reliability supports; never more than there are different values."""
    return max(1, min(forced or supported_bins(reliability), distinct(values) if len(values) else 1))

"""Levels easy, medium and hard from counts of successes, by exact comparison of integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.tasks.difficulty.rollout_measures import different

LEVELS = ("easy", "medium", "hard")
Integers = NDArray[np.int64]


def clpo_levels(successes: ArrayLike, attempts: ArrayLike) -> Integers:
    """Cut by accuracy: hard up to .3, medium up to .7, easy above; 0 easy, 1 medium, 2 hard.

    Parameters
    ----------
    successes, attempts : array-like of int, shape (N,)

    Notes
    -----
    10 s <= 3 n is compared, never s / n with .3: 3 of 10 is hard.

    Source: CLPO: Curriculum learning meets policy optimization for LLM reasoning (2025), arXiv 2509.25004; thresholds
    of the authors' code.
    """
    s, n = np.asarray(successes, dtype=np.int64), np.asarray(attempts, dtype=np.int64)
    return np.where(10 * s <= 3 * n, 2, np.where(10 * s <= 7 * n, 1, 0)).astype(np.int64)


def hase_levels(successes: ArrayLike, attempts: ArrayLike) -> Integers:
    """Cut the failure rate at its 30th and 70th percentile: easy up to the first, hard from the second on.

    Parameters
    ----------
    successes, attempts : array-like of int, shape (N,)

    Notes
    -----
    A percentile lies at rank q (N - 1), between two values in proportion (numpy's linear method), and is compared as a
    fraction. Where both percentiles are the same value, rows that have it are medium: they are no easier than they are
    hard. O(N log N).

    Source: P. Hase, M. Bansal, P. Clark, S. Wiegreffe (2024). The unreasonable effectiveness of easy training data for
    hard tasks; cut-offs of the authors' code.
    """
    pairs = different(successes, attempts)
    if not len(pairs.row):
        return np.zeros(0, dtype=np.int64)
    failure = [Fraction(int(n - s), int(n)) for s, n in zip(pairs.s, pairs.n, strict=True)]
    order = sorted(range(len(failure)), key=failure.__getitem__)
    ends = np.cumsum(pairs.rows[order])
    low, high = (_percentile(failure, order, ends, tenths) for tenths in (3, 7))
    level = np.array([0 if f <= low and f < high else 2 if f >= high and f > low else 1 for f in failure])
    return np.asarray(level[pairs.row], dtype=np.int64)


def _percentile(values: list[Fraction], order: list[int], ends: Integers, tenths: int) -> Fraction:
    """Return the percentile at `tenths` / 10 of values repeated so that in sorted order the i-th ends at `ends[i]`."""
    last = int(ends[-1]) - 1
    at, rest = divmod(tenths * last, 10)
    here, after = (values[order[int(np.searchsorted(ends, i, side="right"))]] for i in (at, min(at + 1, last)))
    return here + (after - here) * Fraction(rest, 10)

"""What counts of successful rollouts say: failure, learnability, mixed groups, pass@k, each with its posterior error.

All take `s`, `n`: successes and attempts, (N,) integers with 0 <= s <= n and n >= 1, and return (N,) float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST = 2**31 - 1
"""Largest count."""


class Pairs(NamedTuple):
    """Different pairs of successes `s` and attempts `n`, each (M,); `row` (N,) numbers each row's pair."""

    s: Integers
    n: Integers
    row: Integers
    rows: Integers


def different(s: ArrayLike, n: ArrayLike) -> Pairs:
    """Find the different pairs, sorted by (n, s), and how many `rows` have each: few, where rows are many."""
    key = (np.asarray(n, dtype=np.int64) << 31) | np.asarray(s, dtype=np.int64)
    found, row, rows = np.unique(key, return_inverse=True, return_counts=True)
    return Pairs(found & MOST, found >> 31, row.ravel(), rows)


def posterior_mean(s: Integers, n: Integers) -> Floats:
    """Mean of the posterior of the pass rate under Jeffreys' prior: (s + 1/2) / (n + 1)."""
    return np.asarray((s + 0.5) / (n + 1.0))


def learnability(p: Floats) -> Floats:
    """Variance of one rollout, p (1 - p): largest at 1/2, 0 where all or none succeed."""
    return p * (1 - p)


def mixed_group(p: Floats, group: int) -> Floats:
    """Chance that `group` rollouts are not all alike, 1 - p^G - (1 - p)^G: only then is there a relative advantage."""
    return np.asarray(1 - p**group - (1 - p) ** group)


def pass_at_k(s: Integers, n: Integers, k: int) -> Floats:
    """Chance that one of k rollouts succeeds, estimated without bias: 1 - C(n - s, k) / C(n, k); needs n >= k.

    Source: M. Chen et al. (2021). Evaluating large language models trained on code.
    """
    fail = np.ones(len(s))
    for i in range(k):
        fail *= np.maximum(n - s - i, 0) / (n - i)
    return 1 - fail


def posterior_error(s: Integers, n: Integers, measure: str, *, group: int = 8, k: int = 1) -> Floats:
    """Standard deviation of a measure under the posterior Beta(s + 1/2, n - s + 1/2) of the pass rate, in closed form.

    `measure` is one of failure, learnability, mixed_group, pass_at_k.
    """
    a, b = np.asarray(s + 0.5, dtype=np.float64), np.asarray(n - s + 0.5, dtype=np.float64)
    if measure == "failure":
        return np.asarray(np.sqrt(a * b / (a + b) ** 2 / (a + b + 1)))

    def m(i: int, j: int) -> Floats:
        return _moment(a, b, i, j)

    if measure == "learnability":
        mean, square = m(1, 1), m(2, 2)
    elif measure == "mixed_group":
        g = group
        mean = m(g, 0) + m(0, g)  # that of the complement, whose spread is the same
        square = m(2 * g, 0) + m(0, 2 * g) + 2 * m(g, g)
    else:
        mean, square = m(0, k), m(0, 2 * k)
    return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0)))


def image(low: Floats, high: Floats, measure: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """Carry an interval of the pass rate over to a measure that rises up to 1/2 and falls after it."""
    ends = measure(low), measure(high)
    top = np.where((low <= 0.5) & (high >= 0.5), measure(np.full_like(low, 0.5)), np.maximum(*ends))
    return np.minimum(*ends), top


def _moment(a: Floats, b: Floats, i: int, j: int) -> Floats:
    """E p^i (1 - p)^j of p ~ Beta(a, b)."""
    from scipy.special import betaln

    return np.asarray(np.exp(betaln(a + i, b + j) - betaln(a, b)))

"""How well the model describes each item: infit, outfit, and a test of fit (S-X2, or Yen's Q1 with missing cells)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.e_step import expectation, posteriors
from gradatim.tasks.difficulty.item_response.marginal import Grid, Patterns

MOST = 20_000_000
MOST_SX2 = 2_000_000_000
LEAST_EXPECTED = 1.0
Q1_GROUPS = 10


@dataclass(frozen=True)
class FitTest:
    """A chi-square test of each item's fit.

    Attributes
    ----------
    method : str
        S-X2; Q1 where cells are missing, which refuses too often; or none, and why.
    statistic, p : (J,) float64
        Chi-square and its upper tail; NaN where no degree of freedom is left.
    df : (J,) int64
        Groups of respondents, less estimated parameters of the item.
    """

    method: str
    statistic: np.ndarray
    df: np.ndarray
    p: np.ndarray


def mean_squares(data: Patterns, curves: Curves, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared residuals of each item, averaged over the posterior of ability: infit and outfit.

    Infit is the sum of squared residuals over the sum of their expectations, outfit the mean of squared residuals each
    over its own expectation, which is sensitive to single surprising answers.

    Parameters
    ----------
    data : Patterns
    curves : Curves
    grid : Grid

    Returns
    -------
    infit, outfit : numpy.ndarray, shape (J,)
        About 1 where the model holds; more where answers are noisier than it says, less where they follow ability more
        closely. NaN throughout where J x nodes exceeds 20 million.

    Notes
    -----
    O(n J Q). Source: B. D. Wright, G. N. Masters (1982). Rating scale analysis.
    """
    items = len(curves.a)
    if items * len(grid.nodes) > MOST:
        return np.full(items, np.nan), np.full(items, np.nan)
    right = np.zeros((items, len(grid.nodes)))
    square = np.zeros(items)
    dichotomous = not np.any((data.y > 0) & (data.y < 1))
    squares = right if dichotomous else np.zeros_like(right)
    for part, posterior, _ in posteriors(data, curves, grid):
        scores = data.y[:, part].astype(np.float64, copy=False)
        weighted = data.weight[part, None] * posterior
        right += scores @ weighted
        square += scores**2 @ data.weight[part]
        if not dichotomous:
            squares += scores**2 @ weighted
    counts = expectation(data, curves, grid).counts
    n = counts if data.complete else data.masks.T.astype(np.float64) @ counts
    p, q = curves.right_wrong(grid.nodes)
    residual = square - 2 * (right * p).sum(axis=1) + (n * p**2).sum(axis=1)
    spread = p * q
    infit = residual / np.maximum((n * spread).sum(axis=1), 1e-12)
    answered = np.broadcast_to(n, right.shape).sum(axis=1)
    each = right * q**2 + (n - right) * p**2 if dichotomous else squares - 2 * right * p + n * p**2
    outfit = (each / np.maximum(spread, 1e-300)).sum(axis=1) / np.maximum(answered, 1e-12)
    return np.asarray(infit), np.asarray(outfit)


def fit_test(data: Patterns, curves: Curves, grid: Grid, parameters: np.ndarray) -> FitTest:
    """Test each item's fit: S-X2 where everyone answered everything, else Yen's Q1.

    Parameters
    ----------
    data : Patterns
        Answers of 0 and 1 (a fraction has no test).
    curves : Curves
    grid : Grid
    parameters : numpy.ndarray, shape (J,)
        Estimated parameters of each item, which are taken off the degrees of freedom.

    Notes
    -----
    S-X2 compares, at each sum score, the observed share of right answers with the one the model expects there; groups
    are joined until they expect one right and one wrong answer. O(J^2 Q) after the E-step. Sum scores of respondents
    with different items are not comparable, so with missing cells Q1 compares shares in ten groups of estimated
    ability; as ability rests on the same answers it refuses good items too often, above all in short tests.

    Source: M. Orlando, D. Thissen (2000). Likelihood-based item-fit indices for dichotomous item response theory
    models; W. M. Yen (1981). Using simulation results to choose a latent trait model.
    """
    items = len(curves.a)
    nothing = np.full(items, np.nan)
    if np.any((data.y > 0) & (data.y < 1)):
        return FitTest("none: scores are fractions", nothing, np.zeros(items, dtype=np.int64), nothing)
    if not data.complete:
        return _finished("Q1", *_grouped(data, curves, grid), parameters, joined=False)
    if items**2 * len(grid.nodes) > MOST_SX2 or items < 2:
        why = "none: too few items" if items < 2 else "none: too many items"
        return FitTest(why, nothing, np.zeros(items, dtype=np.int64), nothing)
    total = np.rint(data.y.sum(axis=0)).astype(np.int64)
    score = np.arange(1, items)
    member = (total[None, :] == score[:, None]) * data.weight
    size = np.broadcast_to(member.sum(axis=1), (items, items - 1))
    right = data.y.astype(np.float64, copy=False) @ member.T
    return _finished("S-X2", size, right, size * _expected_shares(curves, grid), parameters, joined=True)


def _expected_shares(curves: Curves, grid: Grid) -> np.ndarray:
    """Share of right answers that the model expects at sum scores 1 to J - 1, (J, J - 1)."""
    items = len(curves.a)
    weight = np.exp(grid.log_weights)
    p, q = curves.right_wrong(grid.nodes)
    scores = np.zeros((items + 1, len(weight)))  # Lord and Wingersky: chance of each sum score at each node
    scores[0] = 1.0
    for j in range(items):
        scores[1 : j + 2] = scores[1 : j + 2] * q[j] + scores[: j + 1] * p[j]
        scores[0] *= q[j]
    everyone = scores[1:items] @ weight
    found = np.empty((items, items - 1))
    for j in range(items):
        rest = _without(scores, p[j], q[j])
        found[j] = (rest[: items - 1] * p[j]) @ weight / np.maximum(everyone, 1e-300)
    return np.clip(found, 1e-12, 1 - 1e-12)


def _without(scores: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Take one item out of the chances of sum scores (J + 1, Q), from the end where errors shrink: (J, Q)."""
    last = len(scores) - 1
    rest = np.empty((last, scores.shape[1]))
    up, down = np.flatnonzero(q >= 0.5), np.flatnonzero(q < 0.5)
    before = np.zeros(len(up))
    for s in range(last):
        before = (scores[s, up] - p[up] * before) / q[up]
        rest[s, up] = before
    before = np.zeros(len(down))
    for s in range(last, 0, -1):
        before = (scores[s, down] - q[down] * before) / p[down]
        rest[s - 1, down] = before
    return np.maximum(rest, 0.0)


def _grouped(data: Patterns, curves: Curves, grid: Grid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Respondents, right answers and expected ones by item and group of ability, (J, 10) each."""
    theta = expectation(data, curves, grid).mean
    order = np.argsort(theta, kind="stable")
    rank = np.empty(len(theta))
    rank[order] = np.cumsum(data.weight[order]) - 0.5 * data.weight[order]
    group = np.minimum((rank * Q1_GROUPS / data.weight.sum()).astype(np.int64), Q1_GROUPS - 1)
    member = (group[:, None] == np.arange(Q1_GROUPS)) * data.weight[:, None]
    mask = data.masks[data.group].T.astype(np.float64)
    expected = curves.right_wrong(theta)[0] * mask
    return mask @ member, data.y.astype(np.float64, copy=False) @ member, expected @ member


def _finished(
    method: str, size: np.ndarray, right: np.ndarray, expected: np.ndarray, parameters: np.ndarray, *, joined: bool
) -> FitTest:
    """Add up (O - E)^2 / (E (1 - E / n)) over groups, joined where they expect too little."""
    from scipy.special import chdtrc

    items = len(parameters)
    statistic, groups = np.zeros(items), np.zeros(items, dtype=np.int64)
    for j in range(items):
        rows = np.stack([size[j], right[j], expected[j]], axis=1)
        for n, r, e in _joined(rows[rows[:, 0] > 0]) if joined else rows[rows[:, 0] > 0]:
            if 0 < e < n:
                statistic[j] += (r - e) ** 2 / (e * (1 - e / n))
                groups[j] += 1
    df = np.maximum(groups - np.asarray(parameters, dtype=np.int64), 0)
    some = df > 0
    statistic = np.where(some, statistic, np.nan)
    p = np.where(some, chdtrc(np.maximum(df, 1), np.where(some, statistic, 1.0)), np.nan)
    return FitTest(method, statistic, df, p)


def _joined(rows: np.ndarray) -> Iterator[tuple[float, float, float]]:
    """Join groups from the low end until each expects a right and a wrong answer; what is left joins the last."""
    done: list[list[float]] = []
    current = np.zeros(3)
    for row in rows:
        current = current + row
        if current[2] >= LEAST_EXPECTED and current[0] - current[2] >= LEAST_EXPECTED:
            done.append(current.tolist())
            current = np.zeros(3)
    if done and current[0] > 0:
        done[-1] = (np.array(done[-1]) + current).tolist()
    return iter([(n, r, e) for n, r, e in done])

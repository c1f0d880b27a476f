"""The Rasch model by conditional maximum likelihood: locations that assume nothing about the abilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response.marginal import Patterns, group_patterns

MOST_ITEMS = 200


@dataclass(frozen=True)
class ConditionalFit:
    """A Rasch model given the sum scores.

    Attributes
    ----------
    b, se_b : (J,) float64
        Locations with mean 0 and their errors; NaN for items that everyone or nobody got right.
    loglik : float
        Conditional log-likelihood.
    n_parameters : int
        Items in the fit less 1.
    respondents : int
        Those with neither nothing nor everything right, the others say nothing.
    converged : bool
    """

    b: np.ndarray
    se_b: np.ndarray
    loglik: float
    n_parameters: int
    respondents: int
    converged: bool


def fit_conditional(matrix: np.ndarray) -> ConditionalFit:
    """Fit a Rasch model by conditional maximum likelihood.

    Given a respondent's sum score, the chance of his pattern no longer depends on his ability. Beside `fit_irt` with
    slope 1 this shows how much the normal distribution of abilities matters.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (n, J)
        Scores of 0 and 1, NaN where not attempted, at most 200 items.

    Returns
    -------
    ConditionalFit

    Raises
    ------
    UsageError
        If the array has not two dimensions, or more than 200 columns.
    DataRefused
        If a score is neither 0 nor 1, or fewer than two items tell respondents apart.

    Notes
    -----
    O(J^4) a step and set of answered items, for a numerical second derivative of exact first ones.

    Source: E. B. Andersen (1972). The numerical solution of a set of conditional estimation equations.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] > MOST_ITEMS:
        raise UsageError(
            f"found an array of shape {matrix.shape}",
            where="fit_conditional",
            expected=f"(respondents, items), at most {MOST_ITEMS} items",
            remedy="use fit_irt",
        )
    seen = np.isfinite(matrix)
    if np.isinf(matrix).any() or not np.isin(matrix[seen], (0.0, 1.0)).all():
        raise DataRefused("a score is neither 0 nor 1", where="fit_conditional", remedy="use fit_irt")
    total, answered = np.where(seen, matrix, 0.0).sum(axis=0), seen.sum(axis=0)
    inner = np.flatnonzero((total > 0) & (total < answered))
    if len(inner) < 2:
        raise DataRefused(
            f"{len(inner)} of {matrix.shape[1]} items tell respondents apart",
            where="fit_conditional",
            expected="2 or more",
            remedy="use pass_rate",
        )
    data = group_patterns(matrix[:, inner])
    share = total[inner] / answered[inner]
    b = np.log((1 - share) / share)
    b -= b.mean()
    loglik, score = _likelihood(data, b)
    converged, information = False, np.eye(len(b))
    for _ in range(100):
        information = _information(data, b)
        step = np.linalg.pinv(information, rcond=1e-9, hermitian=True) @ score
        step = np.clip(step - step.mean(), -2.0, 2.0)
        while True:
            value, slope = _likelihood(data, b + step)
            if value >= loglik - 1e-11 * abs(loglik) or np.abs(step).max() < 1e-9:
                break
            step = step / 2
        b, loglik, score = b + step, value, slope
        if np.abs(step).max() < 1e-8:
            converged = True
            break
    places, errors = np.full((2, matrix.shape[1]), np.nan)
    places[inner] = b
    errors[inner] = np.sqrt(np.diag(np.linalg.pinv(information, rcond=1e-9, hermitian=True)))
    sums, counts = data.y.sum(axis=0), data.masks.sum(axis=1)[data.group]
    informative = int(data.weight[(sums > 0) & (sums < counts)].sum())
    return ConditionalFit(places, errors, loglik, len(inner) - 1, informative, converged)


def _likelihood(data: Patterns, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Conditional log-likelihood and its first derivatives in b, (J,)."""
    value, gradient = 0.0, np.zeros(len(b))
    sums = np.rint(data.y.sum(axis=0)).astype(np.int64)
    for number, mask in enumerate(data.masks):
        mine, items = np.flatnonzero(data.group == number), np.flatnonzero(mask)
        if len(items) < 2:
            continue
        count = np.bincount(sums[mine], data.weight[mine], len(items) + 1)
        right = data.y[np.ix_(items, mine)] @ data.weight[mine]
        log_symmetric, share = _shares(-b[items])
        value += float(-right @ b[items] - count @ log_symmetric)
        gradient[items] += share @ count - right
    return value, gradient


def _information(data: Patterns, b: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Minus the second derivatives, by central differences of the first."""
    columns = []
    for j in range(len(b)):
        move = np.zeros(len(b))
        move[j] = h
        columns.append((_likelihood(data, b - move)[1] - _likelihood(data, b + move)[1]) / (2 * h))
    found = np.array(columns)
    return np.asarray((found + found.T) / 2)


def _shares(easiness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log elementary symmetric functions of exp(easiness), (J + 1,), and the share right by item and score, (J, J + 1).

    They are summed item by item, which only adds positive terms, for all items and for all but each one.
    """
    items = len(easiness)
    centre = easiness.mean()
    e = np.exp(easiness - centre)
    table = np.zeros((items + 1, items + 1))  # row j: without item j; the last row: all
    table[:, 0] = 1.0
    scale = 0.0
    for j in range(items):
        grown = table.copy()
        grown[:, 1:] += e[j] * table[:, :-1]
        grown[j] = table[j]
        top = grown.max()
        table, scale = grown / top, scale + np.log(top)
    if not table[items].all():
        raise DataRefused(
            "locations lie too far apart for sum scores to be counted", where="fit_conditional", remedy="use fit_irt"
        )
    share = np.zeros((items, items + 1))
    share[:, 1:] = e[:, None] * table[:items, :-1] / table[items, 1:]
    return np.log(table[items]) + scale + centre * np.arange(items + 1), share

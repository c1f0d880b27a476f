"""Observed information of the marginal likelihood, Newton's last steps, and standard errors.

By Louis' identity the observed information is D - C: D the expected complete-data information (one small block an
item) and C the sum over respondents of the posterior covariance of their complete-data scores.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.marginal import (
    BOUND,
    Expectation,
    Grid,
    Maximum,
    Objective,
    blocks,
    expectation,
    posteriors,
    probabilities,
)

EXACT_PARAMETERS = 700  # beyond, posteriors are narrow: the low-rank form agrees to three digits, 3 % at worst
EXACT_OPERATIONS = 4e11
LOW_RANK_PATTERNS = 5000
NARROW = 0.01  # posterior variance below which scores are linear in ability to three digits of a standard error


@dataclass(frozen=True)
class Errors:
    """Standard errors of a (J,), d (J,) and b = -d / a (J,), NaN where there is none, and how they were made."""

    a: np.ndarray
    d: np.ndarray
    b: np.ndarray
    how: str


def is_exact(objective: Objective, grid: Grid) -> bool:
    """Whether the full observed information is affordable: seconds and some hundred MB at most."""
    size = len(objective.start())
    terms = len(objective.data.masks) * len(grid.nodes) + 4 * len(objective.data.weight)
    return size <= EXACT_PARAMETERS and terms * size**2 <= EXACT_OPERATIONS


def finish(objective: Objective, grid: Grid, maximum: Maximum) -> tuple[Maximum, np.ndarray | None]:
    """Take Newton steps from where EM ended until they vanish.

    Returns
    -------
    Maximum
        `settled` says whether the last step was smaller than 1e-6, after which the error is of its square.
    numpy.ndarray or None
        The observed information (P, P), None where it is not positive definite.
    """
    x, trace, information = maximum.x, list(maximum.trace), None
    for _ in range(8):
        a, d = objective.unpack(x)
        e = expectation(objective.data, a, d, grid)
        score, block = objective.derivatives(a, d, e, grid)
        free = _free(objective, a)
        information = _observed(objective, a, d, e, block, grid)
        step = np.zeros_like(x)
        try:
            mine = information[np.ix_(free, free)]
            np.linalg.cholesky(mine)  # only of a positive definite matrix
            step[free] = np.linalg.solve(mine, _collapse(objective, score)[free])
        except np.linalg.LinAlgError:
            return Maximum(x, tuple(trace), maximum.settled), None
        if not np.isfinite(step).all():
            return Maximum(x, tuple(trace), maximum.settled), None
        largest = float(np.abs(step).max(initial=0.0))
        if largest > 0.5:  # too far from the maximum for Newton: EM has said where it is
            return Maximum(x, tuple(trace), maximum.settled), information
        after = objective.unpack(x + step)
        prior = objective.log_prior(*after)
        value = expectation(objective.data, *after, grid).loglik + prior if np.isfinite(prior) else -np.inf
        if value < trace[-1] - 1e-11 * abs(trace[-1]):
            return Maximum(x, tuple(trace), maximum.settled), information
        x = x + step
        trace.append(value)
        if largest < 1e-6:
            return Maximum(x, tuple(trace), True), information
    return Maximum(x, tuple(trace), False), information


def standard_errors(objective: Objective, grid: Grid, x: np.ndarray, information: np.ndarray | None) -> Errors:
    """Turn the observed information into standard errors, b's by the delta method.

    Without `information` (too many parameters to invert) the covariance of each respondent's scores is replaced by the
    part that is linear in ability and, for wide posteriors, quadratic: at most twice the number of respondents in rank.
    """
    a, d = objective.unpack(x)
    items, free = len(a), _free(objective, a)
    if information is not None:
        inverse = np.full_like(information, np.nan)
        with contextlib.suppress(np.linalg.LinAlgError):
            inverse[np.ix_(free, free)] = np.linalg.inv(information[np.ix_(free, free)])
        spread, at = np.diag(inverse), np.arange(items)
        if objective.model == "2pl":
            aa, ad, dd = spread[:items], inverse[at, items + at], spread[items:]
        elif objective.model == "1pl":
            aa, ad, dd = np.full(items, spread[0]), inverse[0, 1:], spread[1:]
        else:
            aa, ad, dd = np.zeros(items), np.zeros(items), spread
        how = "observed information"
    else:
        aa, ad, dd, how = _low_rank(objective, a, d, grid)
    with np.errstate(invalid="ignore", divide="ignore"):
        bb = aa * d**2 / a**4 - 2 * ad * d / a**3 + dd / a**2
        root_a, root_d, root_b = (np.sqrt(np.where(v > 0, v, np.nan)) for v in (aa, dd, bb))
    return Errors(root_a, root_d, root_b, how)


def _free(objective: Objective, a: np.ndarray) -> np.ndarray:
    """Parameters that Newton may move: all but those of items whose slope stands at its bound."""
    if objective.model == "fixed":
        return np.arange(len(a))
    if objective.model == "1pl":
        return np.arange(len(a) + 1) if 0 < a[0] < BOUND else np.arange(1, len(a) + 1)
    inside = np.flatnonzero(np.abs(a) < BOUND)
    return np.concatenate([inside, len(a) + inside])


def _collapse(objective: Objective, score: np.ndarray) -> np.ndarray:
    """Turn an (J, 2) score in (a_j, d_j) into one in the model's parameters."""
    if objective.model == "2pl":
        return score.T.ravel()
    return np.concatenate([[score[:, 0].sum()], score[:, 1]]) if objective.model == "1pl" else score[:, 1]


def _spread_out(objective: Objective, over_a: np.ndarray, over_d: np.ndarray) -> np.ndarray:
    """Lay two (..., J) arrays out in the model's parameters (..., P)."""
    if objective.model == "2pl":
        return np.concatenate([over_a, over_d], axis=-1)
    if objective.model == "1pl":
        return np.concatenate([over_a.sum(axis=-1, keepdims=True), over_d], axis=-1)
    return over_d


def _observed(
    objective: Objective, a: np.ndarray, d: np.ndarray, e: Expectation, block: np.ndarray, grid: Grid
) -> np.ndarray:
    """Observed information (P, P), exact on the grid."""
    data, items, at = objective.data, len(a), np.arange(len(a))
    curve = probabilities(a, d, grid.nodes)
    masks = data.masks.astype(np.float64)
    aa, ad, dd = block.T
    if objective.model == "2pl":
        total = np.zeros((2 * items, 2 * items))
        total[at, at], total[items + at, items + at] = aa, dd
        total[at, items + at] = total[items + at, at] = ad
    elif objective.model == "1pl":
        total = np.zeros((items + 1, items + 1))
        total[0, 0], total[at + 1, at + 1] = aa.sum(), dd
        total[0, 1:] = total[1:, 0] = ad
    else:
        total = np.diag(dd)
    # a respondent's score at node t is u t + v - p(t), so Cov = var(t) u u' - u c' - c u' + E[p p'] - E[p] E[p]'
    for mask, counts in zip(masks, e.counts, strict=True):
        p = curve.T * mask
        p = _spread_out(objective, p * grid.nodes[:, None], p) * np.sqrt(counts)[:, None]
        total -= p.T @ p  # of one array by itself: half the work
    for part, posterior, _ in posteriors(data, a, d, grid, width=2 * len(total)):
        weight = data.weight[part, None]
        answered = None if data.complete else masks[data.group[part]]
        mean = _projected(objective, a, d, posterior, answered, grid)
        mean *= np.sqrt(weight)
        total += mean.T @ mean
        if objective.model != "fixed":
            cross = _projected(objective, a, d, posterior * (grid.nodes - e.mean[part, None]), answered, grid)
            scores = data.y[:, part].T.astype(np.float64)
            u = scores if objective.model == "2pl" else scores.sum(axis=1, keepdims=True)
            width = u.shape[1]
            mixed = (weight * u).T @ cross
            total[:width] += mixed
            total[:, :width] += mixed.T
            u = np.sqrt(weight * e.variance[part, None]) * u
            total[:width, :width] -= u.T @ u
    return total


def _projected(
    objective: Objective, a: np.ndarray, d: np.ndarray, weights: np.ndarray, answered: np.ndarray | None, grid: Grid
) -> np.ndarray:
    """Sum a respondent's p(t) over nodes with `weights` (B, Q), where `answered` (B, J; None: everywhere): (B, P)."""
    over_d = np.empty((len(weights), len(a)))
    over_a = np.empty_like(over_d) if objective.model != "fixed" else over_d
    tilted = weights * grid.nodes
    for part in blocks(len(a), len(grid.nodes) + 2 * len(weights)):
        curve = probabilities(a[part], d[part], grid.nodes).T
        np.matmul(weights, curve, out=over_d[:, part])
        if objective.model != "fixed":
            np.matmul(tilted, curve, out=over_a[:, part])
    if answered is not None:
        over_d *= answered
        if over_a is not over_d:
            over_a *= answered
    return _spread_out(objective, over_a, over_d)


def _low_rank(
    objective: Objective, a: np.ndarray, d: np.ndarray, grid: Grid
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Variances of a and d and their covariance, by the identity of Woodbury on D - B'B, B of at most 2 N rows."""
    data, items = objective.data, len(a)
    e = expectation(data, a, d, grid)
    aa, ad, dd = objective.derivatives(a, d, e, grid)[1].T
    dd = np.maximum(dd, 1e-12)
    count, size = len(data.weight), len(objective.start())
    if count > LOW_RANK_PATTERNS:
        basis, how = np.zeros((1, size)), "complete-data information: too small"
    else:
        rows = []
        for part, posterior, _ in posteriors(data, a, d, grid, width=2 * size):
            weight, variance = data.weight[part, None], np.maximum(e.variance[part, None], 1e-12)
            answered = data.masks[data.group[part]].astype(np.float64)
            first = grid.nodes - e.mean[part, None]
            scores = data.y[:, part].T.astype(np.float64) * variance
            linear = _spread_out(objective, scores, np.zeros_like(scores))
            linear -= _projected(objective, a, d, posterior * first, answered, grid)
            rows.append(linear * np.sqrt(weight / variance))
            wide = np.flatnonzero(e.variance[part] > NARROW)
            if not len(wide):
                continue
            mass, first, variance = posterior[wide], first[wide], variance[wide]
            skew = (mass * first**3).sum(axis=1, keepdims=True) / variance
            second = first**2 - variance - skew * first
            norm = np.maximum((mass * second**2).sum(axis=1, keepdims=True), 1e-24)
            curved = _projected(objective, a, d, mass * second, answered[wide], grid)
            rows.append(curved * np.sqrt(weight[wide] / norm))
        basis = np.concatenate(rows)
        how = "observed information, quadratic in ability"
    if objective.model == "2pl":
        determinant = aa * dd - ad**2
        inverse = np.stack([dd, -ad, -ad, aa]).reshape(2, 2, items) / determinant
        parts = basis.reshape(-1, 2, items)
        solved = np.einsum("uvj,nvj->nuj", inverse, parts)
    elif objective.model == "1pl":
        schur = 1.0 / (aa - ad**2 / dd).sum()
        tilt = -ad / dd
        first = schur * (basis[:, :1] + basis[:, 1:] @ tilt[:, None])
        solved = np.concatenate([first, basis[:, 1:] / dd + first * tilt], axis=1)
    else:
        solved = basis / dd
    core = np.eye(len(basis)) - solved.reshape(len(basis), -1) @ basis.T
    try:
        grown = np.linalg.solve(core, solved.reshape(len(basis), -1))
    except np.linalg.LinAlgError:
        grown = np.full((len(basis), basis.shape[1]), np.nan)
    flat = solved.reshape(len(basis), -1)
    extra = np.einsum("np,np->p", flat, grown)
    if objective.model == "2pl":
        mixed = np.einsum("nj,nj->j", flat[:, :items], grown[:, items:])
        return inverse[0, 0] + extra[:items], inverse[0, 1] + mixed, inverse[1, 1] + extra[items:], how
    if objective.model == "1pl":
        mixed = flat[:, 0] @ grown[:, 1:]
        var_d = 1 / dd + schur * tilt**2 + extra[1:]
        return np.full(items, schur + extra[0]), schur * tilt + mixed, var_d, how
    return np.zeros(items), np.zeros(items), 1 / dd + extra, how

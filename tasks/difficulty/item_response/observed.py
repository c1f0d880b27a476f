"""Newton's last steps and standard errors of models with asymptotes, by the observed information.

Louis' identity: the observed information is the expected complete-data information (a small block an item) minus the
sum over respondents of the posterior covariance of their complete-data scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.asymptotes import HIGH, LOW, Asymptotic
from gradatim.tasks.difficulty.item_response.e_step import Counted, posteriors
from gradatim.tasks.difficulty.item_response.marginal import BOUND, Grid, Maximum

EXACT_OPERATIONS = 2e10  # about two seconds on two cores
MOST_PARAMETERS = 4000  # a matrix of 128 MB
MOST_CELLS = 60_000_000
NARROW = 0.01  # posterior variance below which scores are linear in ability to three digits of a standard error


@dataclass(frozen=True)
class CurveErrors:
    """Standard errors of a, d, b = -d / a, g and u, (J,) each, NaN where there is none; and how they were made."""

    a: np.ndarray
    d: np.ndarray
    b: np.ndarray
    g: np.ndarray
    u: np.ndarray
    how: str


def is_exact(objective: Asymptotic, grid: Grid) -> bool:
    """Whether the full observed information is affordable: seconds and some hundred MB at most."""
    terms = len(objective.data.weight) * len(grid.nodes)
    size = objective.parts * objective.items
    return terms * objective.items**2 <= EXACT_OPERATIONS and size <= MOST_PARAMETERS


def finish(objective: Asymptotic, grid: Grid, maximum: Maximum, turns: int = 60) -> tuple[Maximum, np.ndarray | None]:
    """Climb from where EM ended by Newton's steps, damped where the likelihood is not concave, until they vanish.

    Returns
    -------
    Maximum
        `settled` says whether the last step was undamped and smaller than 1e-6.
    numpy.ndarray or None
        The observed information (P, P) at the end, None where it is not positive definite.
    """
    x, trace = maximum.x, list(maximum.trace)
    low, high = objective.bounds()
    information, damping, close = None, 0.0, False
    for _ in range(turns):
        e = objective.expect(x, grid)
        full = objective.widen(x)
        score = objective.collapse(objective.score(full, e, grid)[0].ravel())
        information = (observed if close else near)(objective, full, e, grid)  # far off, the cheap one will do
        held = ((x <= low) & (score < 0)) | ((x >= high) & (score > 0))
        free = np.flatnonzero(~held)
        step, added = _damped(information[np.ix_(free, free)], score[free], damping)
        full_step = np.zeros_like(x)
        full_step[free] = step
        largest = float(np.abs(full_step).max(initial=0.0))
        full_step *= min(1.0, 1.5 / max(largest, 1e-300))
        rising = False
        for _ in range(25):
            to = np.clip(x + full_step, low, high)
            prior = objective.prior(to) if objective.inside(to) else -np.inf
            value = objective.expect(to, grid).loglik + prior if np.isfinite(prior) else -np.inf
            if value >= trace[-1] - 1e-11 * abs(trace[-1]):
                rising = True
                break
            full_step /= 3.0
        if not rising and not close:
            close = True
            continue
        if not rising:
            return Maximum(x, tuple(trace), largest < 1e-3), information
        moved = float(np.abs(to - x).max(initial=0.0))
        x, damping = to, added / 10 if added > 1e-8 else 0.0
        trace.append(value)
        if close and added == 0.0 and moved < 1e-6 and largest < 1e-6:
            return Maximum(x, tuple(trace), True), information
        close = close or largest < 0.05
    return Maximum(x, tuple(trace), False), information if close else None


def _damped(information: np.ndarray, score: np.ndarray, damping: float) -> tuple[np.ndarray, float]:
    """Solve with as little of the diagonal added as makes the matrix positive definite: step, what was added."""
    diagonal = np.maximum(np.abs(np.diag(information)), 1e-8)
    while True:
        try:
            mine = information + np.diag(damping * diagonal)
            np.linalg.cholesky(mine)
            return np.linalg.solve(mine, score), damping
        except np.linalg.LinAlgError:
            damping = max(10 * damping, 1e-6)


def observed(objective: Asymptotic, full: np.ndarray, e: Counted, grid: Grid) -> np.ndarray:
    """Observed information (P, P), minus the priors' second derivatives, exact on the grid."""
    data, items, parts = objective.data, objective.items, objective.parts
    total = _laid_out(objective.curvature(full, e, grid)).reshape(parts, items, parts, items)
    curves = objective.unpack(objective.narrow(full))
    t = objective.tangent(curves, grid.nodes)
    masks = data.masks.astype(np.float64)
    shift, slope = t.over_wrong, t.over_right - t.over_wrong  # a respondent's score is slope y + shift
    for part, posterior, _ in posteriors(data, curves, grid, width=2 * parts * items):
        y = data.y[:, part].astype(np.float64, copy=False)
        answered = 1.0 if data.complete else masks[data.group[part]].T
        mean = np.stack([y * (slope[k] @ posterior.T) + answered * (shift[k] @ posterior.T) for k in range(parts)])
        mean = mean.reshape(parts * items, -1) * np.sqrt(data.weight[part])
        total += (mean @ mean.T).reshape(total.shape)
        for q in range(len(grid.nodes)):
            weight = np.sqrt(data.weight[part] * posterior[:, q])
            scaled = y * weight
            both = scaled @ scaled.T
            if data.complete:
                mixed = np.broadcast_to((scaled @ weight)[:, None], both.shape)
                neither: float | np.ndarray = float(weight @ weight)
            else:
                present = masks[data.group[part]].T * weight
                mixed, neither = scaled @ present.T, present @ present.T
            for k in range(parts):
                for m in range(k, parts):
                    s_k, s_m = slope[k, :, q, None], slope[m, :, q]
                    c_k, c_m = shift[k, :, q, None], shift[m, :, q]
                    block = s_k * both * s_m + s_k * mixed * c_m + c_k * mixed.T * s_m + c_k * neither * c_m
                    total[k, :, m] -= block
                    if m > k:
                        total[m, :, k] -= block.T
    matrix = total.reshape(parts * items, parts * items)
    return objective.collapse(objective.collapse(matrix).T).T


def _laid_out(blocks_: np.ndarray) -> np.ndarray:
    """Turn blocks (J, p, p) into a block-diagonal matrix (p J, p J), parameters before items."""
    items, parts, _ = blocks_.shape
    full = np.zeros((parts, items, parts, items))
    at = np.arange(items)
    full[:, at, :, at] = blocks_
    return full.reshape(parts * items, parts * items)


def near(objective: Asymptotic, full: np.ndarray, e: Counted, grid: Grid) -> np.ndarray:
    """Observed information with the covariance of each respondent's scores kept to second order in ability."""
    total = _laid_out(objective.curvature(full, e, grid))
    for rows in _covariances(objective, full, e, grid):
        total -= rows @ rows.T
    return objective.collapse(objective.collapse(total).T).T


def _covariances(objective: Asymptotic, full: np.ndarray, e: Counted, grid: Grid) -> Iterator[np.ndarray]:
    """Yield columns (p J, B) whose outer products add up to the covariances that `near` takes off."""
    data, items, parts = objective.data, objective.items, objective.parts
    curves = objective.unpack(objective.narrow(full))
    t = objective.tangent(curves, grid.nodes)
    masks = data.masks.astype(np.float64)
    shift, slope = t.over_wrong, t.over_right - t.over_wrong
    for part, posterior, _ in posteriors(data, curves, grid, width=4 * parts * items):
        y = data.y[:, part].astype(np.float64, copy=False)
        answered = 1.0 if data.complete else masks[data.group[part]].T
        first = grid.nodes - e.mean[part, None]
        variance = np.maximum(e.variance[part, None], 1e-12)
        skew = (posterior * first**3).sum(axis=1, keepdims=True) / variance
        second = first**2 - variance - skew * first
        norm = np.maximum((posterior * second**2).sum(axis=1, keepdims=True), 1e-24)
        wide = (variance > NARROW).astype(np.float64)
        for form, size in ((first, variance), (second * wide, norm)):
            tilted = (posterior * form).T * np.sqrt(data.weight[part] / size[:, 0])
            rows = np.stack([y * (slope[k] @ tilted) + answered * (shift[k] @ tilted) for k in range(parts)])
            yield rows.reshape(parts * items, -1)


def standard_errors(objective: Asymptotic, grid: Grid, x: np.ndarray, information: np.ndarray | None) -> CurveErrors:
    """Turn the observed information into standard errors, those of b, g and u by the delta method.

    Parameters at a bound are held there and have no error.
    """
    full, items, parts = objective.widen(x), objective.items, objective.parts
    how = "observed information"
    if information is None:
        e = objective.expect(x, grid)
        if len(full) <= MOST_PARAMETERS and len(objective.data.weight) * len(full) ** 2 <= 20 * EXACT_OPERATIONS:
            information, how = near(objective, full, e, grid), "observed information, quadratic in ability"
        else:
            return _from_blocks(objective, full, e, grid)
    low, high = objective.bounds()
    free = np.flatnonzero((x > low) & (x < high))
    inverse = np.full_like(information, np.nan)
    try:
        inverse[np.ix_(free, free)] = np.linalg.inv(information[np.ix_(free, free)])
    except np.linalg.LinAlgError:
        how = "none: the information is singular"
    return _delta(objective, full, _items_of(objective, inverse).reshape(items, parts, parts), how)


def _items_of(objective: Asymptotic, inverse: np.ndarray) -> np.ndarray:
    """Cut each item's covariance (J, p, p) out of that of the model's parameters; given slopes have variance 0."""
    items, parts, at = objective.items, objective.parts, np.arange(objective.items)
    first = {"free": items, "common": 1, "given": 0}[objective.slope]
    where = [at if objective.slope == "free" else np.zeros(items, dtype=int)]
    where += [first + k * items + at for k in range(parts - 1)]
    found = np.zeros((items, parts, parts))
    for k in range(parts):
        for m in range(parts):
            if objective.slope != "given" or (k and m):
                found[:, k, m] = inverse[where[k], where[m]]
    return found


def _from_blocks(objective: Asymptotic, full: np.ndarray, e: Counted, grid: Grid) -> CurveErrors:
    """Errors of many items without a matrix of all their parameters, by the identity of Woodbury on D - B B'.

    Where slopes are shared, or B would not fit, only D is inverted: errors are too small, and named so.
    """
    items, parts = objective.items, objective.parts
    low, high = (objective.widen(v).reshape(parts, items) for v in objective.bounds())
    table = full.reshape(parts, items)
    held = (table <= low) | (table >= high)
    if objective.slope != "free":
        held[0] = True
    free = (~held.T).astype(np.float64)  # what is held has no variance and is taken out of the blocks
    inside = free[:, :, None] * free[:, None, :]
    blocks_ = objective.curvature(full, e, grid) * inside + np.eye(parts) * (1 - free)[:, :, None]
    covariance = np.linalg.pinv(blocks_, hermitian=True) * inside
    rank = 2 * len(objective.data.weight)
    if objective.slope == "common" or rank > MOST_PARAMETERS or rank * len(full) > MOST_CELLS:
        return _delta(objective, full, covariance, "complete-data information: too small")
    basis = np.concatenate(list(_covariances(objective, full, e, grid)), axis=1).reshape(parts, items, -1)
    solved = np.einsum("jkm,mjn->kjn", covariance, basis)
    core = np.eye(basis.shape[2]) - basis.reshape(parts * items, -1).T @ solved.reshape(parts * items, -1)
    try:
        grown = np.linalg.solve(core, solved.reshape(parts * items, -1).T).T.reshape(solved.shape)
    except np.linalg.LinAlgError:
        return _delta(objective, full, covariance, "complete-data information: too small")
    covariance += np.einsum("kjn,mjn->jkm", solved, grown)
    return _delta(objective, full, covariance, "observed information, quadratic in ability")


def _delta(objective: Asymptotic, full: np.ndarray, covariance: np.ndarray, how: str) -> CurveErrors:
    table = full.reshape(objective.parts, objective.items)
    a, d = table[:2]
    nothing = np.full(objective.items, np.nan)
    variance = covariance[:, np.arange(objective.parts), np.arange(objective.parts)].T
    with np.errstate(invalid="ignore", divide="ignore"):
        bb = variance[0] * d**2 / a**4 - 2 * covariance[:, 0, 1] * d / a**3 + variance[1] / a**2
        root = [np.sqrt(np.where(v > 0, v, np.nan)) for v in (*variance, bb)]
    curves = objective.unpack(objective.narrow(full))
    g = root[2] * curves.g * (1 - curves.g) if objective.lower else nothing
    u = root[objective.parts - 1] * curves.u * (1 - curves.u) if objective.upper else nothing
    g = np.where(np.abs(table[2]) < min(-LOW, BOUND), g, np.nan) if objective.lower else g
    return CurveErrors(root[0], root[1], root[-1], g, u, how)


def at_end(objective: Asymptotic, x: np.ndarray) -> np.ndarray:
    """Items of which an estimated asymptote stands at an end of its range, (J,) bool."""
    table = objective.widen(x).reshape(objective.parts, objective.items)
    found = np.zeros(objective.items, dtype=bool)
    if objective.lower:
        found |= (table[2] <= LOW) | (table[2] >= HIGH)
    if objective.upper:
        found |= (table[-1] >= -LOW) | (table[-1] <= -HIGH)
    return found

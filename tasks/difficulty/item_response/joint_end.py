"""What is made of the end of a joint fit: errors, fit of items, places of extreme ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gradatim.tasks.difficulty.item_response.cells import Cells, Dense, Layout, Sparse
from gradatim.tasks.difficulty.item_response.joint_step import (
    BOUND,
    LOW,
    Abilities,
    Kind,
    Totals,
    asymptotes,
    evaluate,
    totals,
)
from gradatim.tasks.difficulty.item_response.joint_sweep import State, Sweep


def finished(sweep: Sweep, state: State, group: np.ndarray, errors: bool) -> tuple[np.ndarray, float]:
    """Return items' (a, d, g, u, se_a, se_d, se_b, se_g, se_u) (9, J), and Laplace's log-likelihood."""
    kind, x = sweep.kind, state.x
    items = np.full((9, x.shape[1]), np.nan)
    items[:4] = x[0], x[1], *asymptotes(x)
    people = Abilities.of(state.theta, state.variance, sweep.layout.kind)

    def work(part: slice, block: Dense | Sparse) -> tuple[slice, np.ndarray, Totals]:
        found = evaluate(block, x[:, part], sweep.centre[part], state.log_a, people, kind)
        return part, _errors(found.information, x[:, part], kind), totals(block, x[:, part], found, sweep.times[part])

    nothing = np.zeros(len(state.theta))
    sums = Totals(0.0, nothing, nothing, nothing)
    for part, rows, more in sweep.over(work):
        if errors:
            items[4:, part] = rows
        sums = sums + more
    laplace = sums.loglik - 0.5 * (state.theta**2).sum() - 0.5 * np.log1p(sums.information).sum()
    return items[:, group], float(laplace)


def mean_squares(sweep: Sweep, state: State, group: np.ndarray) -> np.ndarray:
    """Infit and outfit of all items, (2, J). Source: B. D. Wright, G. N. Masters (1982). Rating scale analysis."""
    people = Abilities.of(state.theta, state.variance, sweep.layout.kind)
    ones, found = people.moments[:, :1], np.empty((2, len(group)))

    def work(part: slice, block: Dense | Sparse) -> tuple[slice, np.ndarray]:
        x, number = state.x[:, group[part]], block.score.dtype.type
        z = block.by_item(x[0].astype(number)) * block.by_respondent(people.theta) + block.by_item(x[1].astype(number))
        g, u = (block.by_item(value.astype(number)) for value in asymptotes(x))
        p = g + (u - g) * (number(0.5) + number(0.5) * np.tanh(number(0.5) * z))
        spread = np.maximum(p * (1 - p), number(1e-6))
        square = block.masked((block.score - p) ** 2)
        sums = [block.over_respondents(v, ones)[:, 0] for v in (square, square / spread, block.masked(spread))]
        counts = sweep.layout.cells.answered[part]
        return part, np.stack([sums[0] / np.maximum(sums[2], 1e-12), sums[1] / counts])

    for part, rows in sweep.over(work):
        found[:, part] = rows
    return found


def _errors(information: np.ndarray, x: np.ndarray, kind: Kind) -> np.ndarray:
    """Standard errors of a, d, b, g, u, (5, B), from each item's information given abilities."""
    size = information.shape[1]
    inverse = np.linalg.inv(information + 1e-12 * np.eye(size))
    inverse[:, np.arange(size), np.arange(size)] = np.maximum(inverse[:, np.arange(size), np.arange(size)], 0.0)
    at = {name: place for place, name in enumerate(kind.free)}
    a, d = x[0], x[1]
    g, u = asymptotes(x)
    dd = inverse[:, at[1], at[1]]
    found = np.full((5, len(a)), np.nan)
    aa, ad = (inverse[:, 0, 0], inverse[:, 0, at[1]]) if kind.slope else (np.zeros(len(a)), np.zeros(len(a)))
    with np.errstate(invalid="ignore", divide="ignore"):
        bb = aa * d**2 / a**4 - 2 * ad * d / a**3 + dd / a**2
        found[1:3] = np.sqrt(dd), np.sqrt(np.maximum(bb, 0.0))
        if kind.slope:
            found[0] = np.where(np.abs(a) < BOUND, np.sqrt(aa), np.nan)
        for row, k, value in ((3, 2, g), (4, 3, u)):
            if k in at:
                inside = (x[k] > LOW) & (x[k] < -LOW)
                found[row] = np.where(inside, value * (1 - value) * np.sqrt(inverse[:, at[k], at[k]]), np.nan)
    return found


def place_extremes(
    cells: Cells, outer: np.ndarray, extreme: np.ndarray, theta: np.ndarray, slope: float, pool: ThreadPoolExecutor
) -> np.ndarray:
    """Place extreme items where half a response is expected to differ from the rest, on a curve from 0 to 1.

    Returns (4, J'): slope, intercept, and the errors of intercept and location.
    """
    found = np.full((4, len(outer)), np.nan)
    if not len(outer):
        return found
    some = cells.take(outer)
    n = some.answered.astype(np.float64)
    target = np.where(extreme[outer] > 0, n - 0.5, 0.5)
    d = np.log(target / (n - target)) * np.sqrt(1 + slope**2 / 2.89)
    plain = Kind(False, False, False, True, False)
    sweep = Sweep(Layout(some, np.float64), plain, np.zeros(len(outer)), np.ones(len(outer)), pool)
    people = Abilities.of(theta, np.zeros_like(theta), np.float64)

    def work(part: slice, block: Dense | Sparse) -> tuple[slice, np.ndarray, np.ndarray]:
        here = d[part].copy()
        weight = np.ones_like(here)
        for _ in range(100):
            z = block.by_item(np.full(len(here), slope)) * block.by_respondent(people.theta) + block.by_item(here)
            p = block.masked(0.5 + 0.5 * np.tanh(0.5 * z))
            sums = block.over_respondents(p, people.moments[:, :1])[:, 0]
            weight = np.maximum(block.over_respondents(p * (1 - p), people.moments[:, :1])[:, 0], 1e-12)
            move = np.clip((target[part] - sums) / weight, -1.0, 1.0)
            here += move
            if np.abs(move).max(initial=0.0) < 1e-10:
                break
        return part, here, 1 / np.sqrt(weight)

    found[0] = slope
    for part, here, error in sweep.over(work):
        found[1, part], found[2, part], found[3, part] = here, error, error / slope
    return found

"""Where to place items that everyone got right or nobody did, which have no finite maximum."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.e_step import posteriors
from gradatim.tasks.difficulty.item_response.marginal import Grid, Patterns, blocks, probabilities, unique_rows


def placed(
    seen: np.ndarray, extreme: np.ndarray, data: Patterns, curves: Curves, grid: Grid
) -> tuple[float, np.ndarray, np.ndarray]:
    """Place extreme items half a response from their end, on a curve from 0 to 1 with the slope of the others.

    Parameters
    ----------
    seen : numpy.ndarray, shape (n, J), bool
        Which cells were answered.
    extreme : numpy.ndarray, shape (J,)
        1 for all right, -1 for none right, 0 for the others.
    data, curves, grid
        The fit to the other items.

    Returns
    -------
    slope : float
        Median slope of the other items, 1 where there is none above 0.
    intercept, error : numpy.ndarray, shape (J',)
        One an extreme item, in their order.
    """
    outer = np.flatnonzero(extreme)
    slope = float(np.median(curves.a)) if len(curves.a) and np.median(curves.a) > 0 else 1.0
    intercept, error = np.empty(len(outer)), np.empty(len(outer))
    for part in blocks(len(outer), len(seen) + 4 * len(grid.nodes)):
        at = outer[part]
        first, group, _ = unique_rows(np.packbits(seen[:, at].T, axis=1))  # few sets of respondents, many items
        answered = np.zeros((len(data.weight), len(first)))
        np.add.at(answered, data.index, seen[:, at[first]].astype(np.float64))
        counts = np.zeros((len(first), len(grid.nodes)))
        for some, posterior, _ in posteriors(data, curves, grid):
            counts += answered[some].T @ posterior
        for sign in (-1, 1):
            location, spread = _half_a_response(counts, sign, slope, grid)
            mine = np.flatnonzero(extreme[at] == sign)
            intercept[part.start + mine] = location[group[mine]]
            error[part.start + mine] = spread[group[mine]]
    return slope, intercept, error


def _half_a_response(counts: np.ndarray, sign: int, slope: float, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Find d (C,) at which half a response of `counts` (C, Q) is expected to differ from the rest, and its error."""
    n = counts.sum(axis=1)
    target = np.where(sign > 0, n - 0.5, 0.5)
    d = np.log(target / (n - target)) * np.sqrt(1 + slope**2 / 2.89)
    weight = np.ones_like(n)
    for _ in range(100):
        p = probabilities(np.full(len(d), slope), d, grid.nodes)
        weight = np.maximum((counts * p * (1 - p)).sum(axis=1), 1e-12)
        step = np.clip((target - (counts * p).sum(axis=1)) / weight, -1.0, 1.0)
        d = d + step
        if np.abs(step).max(initial=0.0) < 1e-12:
            break
    return d, 1 / np.sqrt(weight)

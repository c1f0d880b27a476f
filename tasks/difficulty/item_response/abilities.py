"""Posterior modes (MAP) of abilities, and their errors."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.difficulty.item_response.curves import Curves, information_of
from gradatim.tasks.difficulty.item_response.e_step import posteriors
from gradatim.tasks.difficulty.item_response.marginal import Grid, Patterns, blocks, probabilities


def modes(data: Patterns, curves: Curves, grid: Grid, turns: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Find the posterior mode of each pattern's ability, theta ~ N(0, 1), by Fisher scoring from its best node.

    Parameters
    ----------
    data : Patterns
    curves : Curves
    grid : Grid
        Where the search starts: with guessing a posterior can have several modes, and the highest node is near the
        highest of them. A mode may lie outside of the grid.

    Returns
    -------
    theta, error : numpy.ndarray, shape (N,)
        The mode and 1 / sqrt(I(theta) + 1), I the test information of the items that were answered.

    Notes
    -----
    O(N J) a turn, few turns. Source: F. M. Lord (1980). Applications of item response theory to practical testing
    problems.
    """
    theta = np.empty(len(data.weight))
    for part, posterior, _ in posteriors(data, curves, grid):
        theta[part] = _top(posterior, grid)
    error = np.ones(len(theta))
    for part in blocks(len(theta), 8 * len(curves.a)):
        y = data.y[:, part].astype(np.float64, copy=False)
        mask = None if data.complete else data.masks[data.group[part]].T
        theta[part], error[part] = _climb(y, mask, curves, theta[part], grid.step, turns)
    return theta, error


def _top(posterior: np.ndarray, grid: Grid) -> np.ndarray:
    """Place the top of each posterior (B, Q) by a parabola through the logs of its highest node and the two beside."""
    at = np.clip(posterior.argmax(axis=1), 1, posterior.shape[1] - 2)
    rows = np.arange(len(at))
    left, top, right = (np.log(np.maximum(posterior[rows, at + k], 1e-300)) for k in (-1, 0, 1))
    bend = np.minimum(left - 2 * top + right, -1e-12)
    return np.asarray(grid.nodes[at] + np.clip(0.5 * (left - right) / bend, -1.0, 1.0) * grid.step)


def _climb(
    y: np.ndarray, mask: np.ndarray | None, curves: Curves, theta: np.ndarray, most: float, turns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from `theta` in steps of at most `most`, halved where a slope changes its sign."""
    theta, before = theta.copy(), np.zeros(len(theta))
    limit = np.full(len(theta), most)
    information = np.ones(len(theta))
    going = np.arange(len(theta))
    for _ in range(turns):
        all_go = len(going) == len(theta)
        mine = y if all_go else y[:, going]
        seen = mask if mask is None or all_go else mask[:, going]
        score, information[going] = _slope(mine, seen, curves, theta[going])
        step = score / (information[going] + 1.0)
        turned = step * before[going] < 0
        limit[going[turned]] /= 2
        step = np.clip(step, -limit[going], limit[going])
        theta[going] += step
        before[going] = step
        going = going[np.abs(step) > 1e-11]
        if not len(going):
            break
    return theta, 1 / np.sqrt(information + 1.0)


def _slope(y: np.ndarray, mask: np.ndarray | None, curves: Curves, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First derivative of each log posterior, and the test information of the items answered."""
    if curves.bare:
        p = probabilities(curves.a, curves.d, theta)
        spread = p * (1 - p)
        if mask is not None:
            p, spread = p * mask, spread * mask
        return curves.a @ y - curves.a @ p - theta, curves.a**2 @ spread
    s, r = curves.shape(theta)
    g, u = curves.g[:, None], curves.u[:, None]
    right, wrong = g * r + u * s, (1 - g) * r + (1 - u) * s
    steep = curves.a[:, None] * (u - g) * s * r
    residual = y / np.maximum(right, 1e-300) - (1 - y) / np.maximum(wrong, 1e-300)
    information = information_of(curves, theta)
    if mask is not None:
        residual, information = residual * mask, information * mask
    return (residual * steep).sum(axis=0) - theta, information.sum(axis=0)

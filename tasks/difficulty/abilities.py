"""Posterior modes (MAP) of abilities, and their errors."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.difficulty.asymptotes import posteriors
from gradatim.tasks.difficulty.curves import Curves, information_of
from gradatim.tasks.difficulty.marginal import Grid, Patterns, blocks


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
        theta[part] = grid.nodes[posterior.argmax(axis=1)]
    error = np.ones(len(theta))
    for part in blocks(len(theta), 8 * len(curves.a)):
        y, mask = data.y[:, part].astype(np.float64, copy=False), data.masks[data.group[part]].T
        theta[part], error[part] = _climb(y, mask, curves, theta[part], grid.step, turns)
    return theta, error


def _climb(
    y: np.ndarray, mask: np.ndarray, curves: Curves, theta: np.ndarray, most: float, turns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from `theta` in steps of at most `most`, halved where a slope changes its sign."""
    theta, before = theta.copy(), np.zeros(len(theta))
    limit = np.full(len(theta), most)
    information = np.ones(len(theta))
    going = np.arange(len(theta))
    for _ in range(turns):
        score, information[going] = _slope(y[:, going], mask[:, going], curves, theta[going])
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


def _slope(y: np.ndarray, mask: np.ndarray, curves: Curves, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First derivative of each log posterior, and the test information of the items answered."""
    s, r = curves.shape(theta)
    if curves.bare:
        residual = np.where(mask, y - s, 0.0)
        return curves.a @ residual - theta, curves.a**2 @ (mask * (s * r))
    g, u = curves.g[:, None], curves.u[:, None]
    right, wrong = g * r + u * s, (1 - g) * r + (1 - u) * s
    steep = curves.a[:, None] * (u - g) * s * r
    residual = np.where(mask, y / np.maximum(right, 1e-300) - (1 - y) / np.maximum(wrong, 1e-300), 0.0)
    return (residual * steep).sum(axis=0) - theta, (mask * information_of(curves, theta)).sum(axis=0)

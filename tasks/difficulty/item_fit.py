"""How well the model describes each item: the infit mean square."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.difficulty.marginal import Grid, Patterns, expectation, posteriors, probabilities

MOST = 20_000_000


def infit(data: Patterns, a: np.ndarray, d: np.ndarray, grid: Grid) -> np.ndarray:
    """Squared residuals of each item over their expectation, both averaged over the posterior of ability.

    Parameters
    ----------
    data : Patterns
    a, d : numpy.ndarray, shape (J,)
    grid : Grid

    Returns
    -------
    numpy.ndarray, shape (J,)
        About 1 where the model holds; more where answers are noisier than it says, less where they follow ability more
        closely. NaN throughout where J x nodes exceeds 20 million.

    Notes
    -----
    O(n J Q). Source: B. D. Wright, G. N. Masters (1982). Rating scale analysis.
    """
    if len(a) * len(grid.nodes) > MOST:
        return np.full(len(a), np.nan)
    right = np.zeros((len(a), len(grid.nodes)))
    square = np.zeros(len(a))
    for part, posterior, _ in posteriors(data, a, d, grid):
        scores = data.y[:, part].astype(np.float64, copy=False)
        right += scores @ (data.weight[part, None] * posterior)
        square += scores**2 @ data.weight[part]
    counts = expectation(data, a, d, grid).counts
    n = counts if data.complete else data.masks.T.astype(np.float64) @ counts
    p = probabilities(a, d, grid.nodes)
    residual = square - 2 * (right * p).sum(axis=1) + (n * p**2).sum(axis=1)
    return np.asarray(residual / np.maximum((n * p * (1 - p)).sum(axis=1), 1e-12))

"""Whether abler respondents do better at an item, by the correlation of scores and abilities."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.difficulty.item_response.cells import Cells, Layout


def score_correlations(cells: Cells, abilities: np.ndarray) -> np.ndarray:
    """Correlate each item's scores with the abilities (n,) of those who answered: (J,), 0 without variance.

    O(cells), no (n, J) matrix.
    """
    moments = np.stack([np.ones(cells.n), abilities, abilities**2], axis=1)
    sums = np.empty((cells.items, 6))
    for part, block in Layout(cells, np.float64):
        there = block.masked(np.ones_like(block.score))
        sums[part, :3] = block.over_respondents(there, moments)
        sums[part, 3:5] = block.over_respondents(block.score, moments[:, :2])
        sums[part, 5] = block.over_respondents(block.score**2, moments[:, :1])[:, 0]
    n, theta, square, y, mixed, y_square = sums.T
    spread = (square / n - (theta / n) ** 2) * (y_square / n - (y / n) ** 2)
    covariance = mixed / n - theta / n * y / n
    return np.where(spread > 1e-24, covariance / np.sqrt(np.maximum(spread, 1e-24)), 0.0)

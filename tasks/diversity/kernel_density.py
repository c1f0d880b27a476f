"""Gaussian kernel density estimates, evaluated in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_CELLS = 4_000_000


@dataclass(frozen=True)
class Density:
    """A density: `rows` of shape (n, d), the lower root of the kernel's covariance, whitened rows, log of the norm."""

    rows: Floats
    root: Floats
    white: Floats
    log_norm: float


def fit(rows: Floats) -> Density | None:
    """Fit a density to rows, its width by Scott's rule; None where there are too few rows for a covariance.

    A jitter of a millionth of the mean variance keeps dimensions that hardly vary finite.

    Source: D. W. Scott (1992). Multivariate Density Estimation.
    """
    n, d = rows.shape
    if n < d + 2:
        return None
    middle = rows - rows.mean(axis=0)
    covariance = middle.T @ middle / (n - 1)
    scale = float(np.trace(covariance)) / d
    if scale <= 0:
        return None
    covariance = (covariance + 1e-6 * scale * np.eye(d)) * n ** (-2 / (d + 4))
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, rows.T).T
    log_norm = -np.log(n) - d / 2 * np.log(2 * np.pi) - float(np.log(np.diag(root)).sum())
    return Density(rows, root, np.ascontiguousarray(white), float(log_norm))


def evaluate(density: Density, points: Floats) -> Floats:
    """Return the density at points of shape (m, d): shape (m,). O(n m d) time, memory of a block."""
    asked = np.linalg.solve(density.root, points.T).T
    square, found = (density.white**2).sum(axis=1), np.empty(len(asked))
    step = max(1, _CELLS // len(density.white))
    for start in range(0, len(asked), step):
        block = asked[start : start + step]
        exponent = block @ density.white.T
        exponent -= square / 2
        exponent -= (block**2).sum(axis=1, keepdims=True) / 2
        top = exponent.max(axis=1, keepdims=True)
        total = np.exp(exponent - top).sum(axis=1)
        found[start : start + step] = top[:, 0] + np.log(total)
    return np.asarray(np.exp(found + density.log_norm))


def draw(density: Density, size: int, rng: np.random.Generator) -> Floats:
    """Draw points from a density: shape (size, d)."""
    chosen = density.rows[rng.integers(0, len(density.rows), size)]
    return np.asarray(chosen + rng.standard_normal((size, chosen.shape[1])) @ density.root.T)

"""Linear probes: ridge by normal equations, logistic regression by L-BFGS, Platt's scaling; in blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradatim.tasks.core.reduce import BLOCK, moments, one_thread

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Linear:
    """A linear function of vectors: `weights` of shape (d,), and `intercept`."""

    weights: Floats
    intercept: float

    def of(self, matrix: Matrix, rows: Ints) -> Floats:
        """Return its values at some rows, in float64, block by block: (len(rows),)."""
        found = np.empty(len(rows))
        with one_thread():
            for start in range(0, len(rows), BLOCK):
                part = matrix[rows[start : start + BLOCK]].astype(np.float64)
                found[start : start + BLOCK] = part @ self.weights + self.intercept
        return found


def ridge(matrix: Matrix, rows: Ints, y: Floats, alphas: Sequence[float]) -> list[Linear]:
    """Fit ridge regression for each penalty.

    Parameters
    ----------
    matrix : array, shape (N, d)
    rows : array, shape (n,)
        Training rows, in canonical order.
    y : array, shape (n,)
    alphas : sequence of float
        Penalties: |y - Xw - b|² + alpha |w|² is least; the intercept b is free.

    Notes
    -----
    O(n d²) once and O(d³) for each penalty; where there are fewer rows than columns, O(n² d) and O(n³). Memory 8 d² or
    8 n d bytes.
    """
    from scipy.linalg import solve

    centre, offset = _mean(matrix, rows), float(y.mean())
    if len(rows) > matrix.shape[1]:
        joined = (
            np.column_stack([part - centre, y[start : start + len(part)] - offset])
            for start, part in _parts(matrix, rows)
        )
        gram = moments(joined).gram
        square, right = gram[:-1, :-1], gram[:-1, -1]
        left = None
    else:
        left = matrix[rows].astype(np.float64) - centre
        with one_thread():
            square, right = left @ left.T, y - offset
    found = []
    for alpha in alphas:
        with one_thread():
            solved = solve(square + alpha * np.eye(len(square)), right, assume_a="pos")
            weights = solved if left is None else left.T @ solved
        found.append(Linear(weights, offset - float(centre @ weights)))
    return found


def logistic(matrix: Matrix, rows: Ints, y: Floats, alphas: Sequence[float]) -> list[Linear]:
    """Fit logistic regression of `y` in {0, 1} for each penalty: log-loss + alpha |w|² / 2 is least.

    Arguments as `ridge`. Each of some hundred steps of L-BFGS passes over the rows once, O(n d); a fit starts from that
    with the next larger penalty.
    """
    from scipy.optimize import minimize

    centre = _mean(matrix, rows)
    share = min(max(float(y.mean()), 1e-6), 1 - 1e-6)
    state = np.append(np.zeros(matrix.shape[1]), math.log(share / (1 - share)))
    found: dict[float, Linear] = {}
    for alpha in sorted(alphas, reverse=True):

        def loss(at: Floats, alpha: float = alpha) -> tuple[float, Floats]:
            weights, total, slope = at[:-1], 0.0, np.zeros(len(at))
            for start, raw in _parts(matrix, rows):
                part, truth = raw - centre, y[start : start + len(raw)]
                z = part @ weights + at[-1]
                total += float((np.logaddexp(0.0, z) - truth * z).sum())
                away = 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700))) - truth
                slope[:-1] += part.T @ away
                slope[-1] += away.sum()
            slope[:-1] += alpha * weights
            return (total + 0.5 * alpha * float(weights @ weights)) / len(rows), slope / len(rows)

        with one_thread():
            options: Any = {"maxiter": 1000, "maxfun": 2000, "ftol": 1e-14, "gtol": 1e-8}
            state = minimize(loss, state, jac=True, method="L-BFGS-B", options=options).x
        found[alpha] = Linear(state[:-1].copy(), float(state[-1] - centre @ state[:-1]))
    return [found[alpha] for alpha in alphas]


@dataclass(frozen=True)
class Platt:
    """A probability from a score: 1 / (1 + exp(-(slope score + intercept)))."""

    slope: float
    intercept: float

    def of(self, score: Floats) -> Floats:
        """Return probabilities."""
        probability: Floats = 1.0 / (1.0 + np.exp(-np.clip(self.slope * score + self.intercept, -700, 700)))
        return probability


def platt(score: Floats, y: Floats) -> Platt:
    """Fit Platt's scaling on held-out scores; targets are drawn in, so that separated classes keep finite slopes.

    Source: J. C. Platt (1999). Probabilistic outputs for support vector machines and comparisons to regularized
    likelihood methods.
    """
    from scipy.optimize import minimize

    ones = float(y.sum())
    zeros = len(y) - ones
    target = np.where(y > 0, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    centre, spread = float(score.mean()), float(score.std()) or 1.0
    unit = (score - centre) / spread

    def loss(at: Floats) -> tuple[float, Floats]:
        z = at[0] * unit + at[1]
        away = 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700))) - target
        return float((np.logaddexp(0.0, z) - target * z).sum()), np.array([float(away @ unit), float(away.sum())])

    start = np.array([0.0, math.log((ones + 1) / (zeros + 1))])
    slope, intercept = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return Platt(float(slope / spread), float(intercept - slope * centre / spread))


def auc(score: Floats, y: Floats) -> float:
    """Share of pairs of a one and a zero in which the one scores higher, ties half; NaN where a class is missing."""
    from scipy.stats import rankdata

    ones = int(y.sum())
    zeros = len(y) - ones
    if not ones or not zeros:
        return math.nan
    ranks = rankdata(np.round(score, 9))
    return round(float((ranks[y > 0].sum() - ones * (ones + 1) / 2) / (ones * zeros)), 9)


def _parts(matrix: Matrix, rows: Ints) -> Iterator[tuple[int, Floats]]:
    for start in range(0, len(rows), BLOCK):
        yield start, matrix[rows[start : start + BLOCK]].astype(np.float64)


def _mean(matrix: Matrix, rows: Ints) -> Floats:
    total = np.zeros(matrix.shape[1])
    for _, part in _parts(matrix, rows):
        total += part.sum(axis=0)
    mean: Floats = total / len(rows)
    return mean

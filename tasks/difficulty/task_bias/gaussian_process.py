"""Gaussian process of a radial kernel: its posterior at test points, and each point left out of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.reduce import one_thread

Floats = NDArray[np.float64]
JITTER = 1e-6
"""Added to the kernel's diagonal, 1, so that near-equal points do not break the Cholesky factor."""


def kernel(first: Floats, second: Floats, length: float) -> Floats:
    """Radial kernel exp(-|x - y|^2 / (2 length^2)), (n, m)."""
    from scipy.spatial.distance import cdist

    return np.asarray(np.exp(cdist(first, second, "sqeuclidean") / (-2 * length**2)))


def median_distance(points: Floats) -> float:
    """Median of the positive distances between points; raises `DataRefused` where all points are equal."""
    from scipy.spatial.distance import pdist

    away = pdist(points)
    away = away[away > 0]
    if not len(away):
        raise DataRefused("all vectors are equal", where="gaussian process", expected="vectors that differ")
    return float(np.median(away))


def posterior_losses(
    train: Floats, targets: Floats, test: Floats, truth: Floats, length: float, *, samples: int, random: Any
) -> Floats:
    """Draw mean squared test errors of functions from the posterior.

    Parameters
    ----------
    train, test : (n, d), (m, d) float64
    targets, truth : (n, C), (m, C) float64
        Outputs are independent, with the same kernel.
    length : float
        Length scale of the kernel.
    samples : int
    random : numpy.random.Generator

    Returns
    -------
    (samples,) float64

    Notes
    -----
    In the eigenbasis of the posterior covariance the error is a sum over eigenvalues l of non-central chi-squares of C
    degrees of freedom, l chi2(C, b^2 / l): no function of m values is drawn. O(n^3 + m^3 + samples m).

    Source: C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning, chapter 2.
    """
    from scipy.linalg import cho_factor, cho_solve, eigh

    with one_thread():
        factor = cho_factor(kernel(train, train, length) + JITTER * np.eye(len(train)), lower=True)
        across = kernel(train, test, length)
        solved = cho_solve(factor, across)
        bias = solved.T @ targets - truth
        covariance = kernel(test, test, length) - across.T @ solved
        values, vectors = eigh((covariance + covariance.T) / 2)
        squares = ((vectors.T @ bias) ** 2).sum(axis=1)
    total = np.zeros(samples)
    outputs = truth.shape[1]
    for value, square in zip(values, squares, strict=True):
        if value <= 1e-12:  # known for certain
            total += square
        else:
            total += value * random.noncentral_chisquare(outputs, square / value, samples)
    return total / truth.size


def left_out_errors(points: Floats, targets: Floats, length: float) -> Floats:
    """Expected squared error at each point under the posterior of all others, mean over outputs, (n,).

    Source: Rasmussen and Williams (2006), section 5.4.2: mean y - (K^-1 y) / (K^-1)_ii, variance 1 / (K^-1)_ii.
    """
    from scipy.linalg import cho_factor, cho_solve

    with one_thread():
        factor = cho_factor(kernel(points, points, length) + JITTER * np.eye(len(points)), lower=True)
        inverse = cho_solve(factor, np.eye(len(points)))
        weights = cho_solve(factor, targets)
    precision = np.diag(inverse)
    return np.asarray(((weights / precision[:, None]) ** 2).mean(axis=1) + 1 / precision)

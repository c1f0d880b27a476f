"""Bits of inductive bias that a task asks for, from a handful of numbers about it.

All in logarithms: the bits of an image task have 16 to 41 digits, those of a text task in embeddings may have hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import UsageError

LN2, LN10 = float(np.log(2)), float(np.log(10))


@dataclass(frozen=True)
class InductiveBias:
    """Information that a learner must bring along to generalise.

    Attributes
    ----------
    log10_bits : float
        NaN where the training data leave nothing to be brought: bits of 0 or less.
    log10_dimensions : float
        log10 of the dimensions of hypothesis space that the data leave open; NaN where they leave none.
    bits_per_dimension : float
    frequency, degree : float
        Highest frequency M = 2 pi R / delta and degree K of the harmonics; NaN for control tasks.
    """

    log10_bits: float
    log10_dimensions: float
    bits_per_dimension: float
    frequency: float = float("nan")
    degree: float = float("nan")

    @property
    def bits(self) -> float:
        """Bits as a number: infinite beyond 1e308, 0 where nothing is to be brought."""
        if np.isnan(self.log10_bits):
            return 0.0
        return float(10**self.log10_bits) if self.log10_bits < 308 else float("inf")


def classification_bits(
    n: float, radius: float, dimension: float, classes: int, resolution: float, epsilon: float
) -> InductiveBias:
    """Bound the inductive bias of a classification task.

    Parameters
    ----------
    n : float
        Training points, at least 1.
    radius : float
        Largest norm of a point.
    dimension : float
        Intrinsic dimension, at least 1.
    classes : int
        At least 2.
    resolution : float
        Smallest distance between points of different classes.
    epsilon : float
        Error that is aimed at, above 0.

    Raises
    ------
    UsageError
        If a number is out of its range.

    Notes
    -----
    M = 2 pi R / delta; K = (sqrt((m - 1)^2 + 4 M^2) - (m - 1)) / 2; E = C(m + K, m) + C(m + K - 1, m);
    D = C - 1 outputs, d = C discrete combinations: bits = (2 D d E - n D) (log2(d D) / 2 - log2 epsilon +
    log2(K sqrt(D) / R) + log2 W) with ln W = ln(m / 6) / 2 + (ln 2 + (m + 1) / 2 ln pi + ln d - ln Gamma((m + 1) / 2))
    / m + ln R - ln(n) / m.

    Source: A. Boopathy et al. (2023). Model-agnostic measure of generalization difficulty.
    """
    from scipy.special import gammaln

    _positive(n=n, radius=radius, resolution=resolution, epsilon=epsilon)
    if dimension < 1 or classes < 2 or n < 1 or not np.isfinite(dimension):
        raise UsageError(
            f"dimension {dimension:g}, classes {classes}, n {n:g}",
            where="inductive bias",
            expected="a dimension and n of at least 1, two classes or more",
        )
    m, d, outputs = float(dimension), float(classes), float(classes - 1)
    frequency = 2 * np.pi * radius / resolution
    degree = 2 * frequency**2 / (np.hypot(m - 1, 2 * frequency) + (m - 1))  # without cancellation
    harmonics = float(
        np.logaddexp(_log_binomial(m + degree, m), _log_binomial(m + degree - 1, m))  # ln E
    )
    open_ = _log_difference(np.log(2 * d) + harmonics, np.log(n)) + np.log(outputs)
    spread = 0.5 * np.log(m / 6) + np.log(radius) - np.log(n) / m
    spread += (np.log(2) + (m + 1) / 2 * np.log(np.pi) + np.log(d) - gammaln((m + 1) / 2)) / m
    slope = np.log(degree) + 0.5 * np.log(outputs) - np.log(radius)
    each = (0.5 * np.log(outputs) + 0.5 * np.log(d) - np.log(epsilon) + slope + spread) / LN2
    return _bits(open_, float(each), float(frequency), float(degree))


def control_bits(
    n: float, observations: float, actions: int, *, resolution: float = 0.001, epsilon: float = 0.001
) -> InductiveBias:
    """Bound the inductive bias of a control task from the sizes of its spaces.

    Parameters
    ----------
    n : float
        Time steps seen.
    observations : float
        Dimensions of the observations (two an observation of cartpole), at least 1.
    actions : int
        Dimensions of the actions.
    resolution, epsilon : float
        Spatial resolution, and the distance from the best action that is aimed at.

    Notes
    -----
    bits = D (2 (2 pi / delta)^m pi^(m/2) / Gamma(m/2 + 1) - n) (log2(4 pi^2 / sqrt 6) + log2 D + log2(m) / 2 -
    log2 delta - log2(n) / m - log2 epsilon).

    Source: as `classification_bits`; formula of the authors' code.
    """
    from scipy.special import gammaln

    _positive(n=n, resolution=resolution, epsilon=epsilon)
    if observations < 1 or actions < 1:
        raise UsageError(
            f"{observations:g} observed dimensions, {actions} of actions", where="inductive bias", expected="at least 1"
        )
    m = float(observations)
    harmonics = LN2 + m * np.log(2 * np.pi / resolution) + m / 2 * np.log(np.pi) - gammaln(m / 2 + 1)
    open_ = _log_difference(float(harmonics), float(np.log(n))) + np.log(actions)
    each = np.log2(4 * np.pi**2 / np.sqrt(6)) + np.log2(actions) + 0.5 * np.log2(m)
    each -= np.log2(resolution) + np.log2(n) / m + np.log2(epsilon)
    return _bits(float(open_), float(each))


def _bits(
    log_dimensions: float, each: float, frequency: float = float("nan"), degree: float = float("nan")
) -> InductiveBias:
    log10 = (log_dimensions + np.log(each)) / LN10 if each > 0 else np.nan
    return InductiveBias(float(log10), float(log_dimensions / LN10), each, frequency, degree)


def _log_binomial(a: float, b: float) -> float:
    """Logarithm of the generalised binomial coefficient C(a, b) for a >= b - 1 > -1, -inf at a = b - 1."""
    from scipy.special import gammaln

    return float(gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1)) if a > b - 1 else -np.inf


def _log_difference(a: float, b: float) -> float:
    """Return ln(e^a - e^b), NaN where it is not positive."""
    return a + float(np.log1p(-np.exp(b - a))) if a > b else float("nan")


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (np.isfinite(value) and value > 0):
            raise UsageError(f"{name} is {value:g}", where="inductive bias", expected="a number above 0")

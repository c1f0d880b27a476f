"""Scaled non-central chi-square: fitted to losses, with the logarithm of its lower tail however deep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import DataRefused, UsageError

Floats = NDArray[np.float64]
LARGE = 100.0
"""Order of the Bessel function from which its uniform expansion is used."""
BINS = 256
"""Losses are fitted as the means and sizes of so many equal cells of their range."""
TOO_MANY = 4e6
"""Non-centrality from which the sum over its Poisson mixture gives way to the normal approximation."""


class ScaledChi2(NamedTuple):
    """`scale` times a chi-square of `df` degrees of freedom and non-centrality `nc`."""

    df: float
    nc: float
    scale: float


def fit(losses: ArrayLike, start: ScaledChi2 | None = None) -> ScaledChi2:
    """Fit by maximum likelihood, from the best of some laws with the same mean and variance.

    Parameters
    ----------
    losses : array-like of float, shape (n,)
        Positive, at least 10 of them, not all equal.
    start : ScaledChi2, optional
        Where to begin.

    Raises
    ------
    DataRefused
        If they are not so.

    Notes
    -----
    Some hundred evaluations of 256 densities. Many pairs of df and nc describe the same losses about equally well: read
    the tail, not the parameters.
    """
    from scipy.optimize import minimize

    x = np.sort(np.asarray(losses, dtype=np.float64).ravel())
    if len(x) < 10 or not np.isfinite(x).all() or x[0] <= 0 or x[-1] - x[0] <= 1e-12 * x[-1]:
        raise DataRefused(
            f"{len(x)} losses from {x.min(initial=np.inf):g} to {x.max(initial=-np.inf):g}",
            where="non-central chi-square",
            expected="ten or more positive losses that differ",
        )
    unit = float(x.mean())
    cell = np.minimum(((x - x[0]) / (x[-1] - x[0]) * BINS).astype(np.int64), BINS - 1)
    sizes = np.bincount(cell, minlength=BINS)
    means = np.bincount(cell, x / unit, BINS)[sizes > 0] / sizes[sizes > 0]
    sizes = sizes[sizes > 0]

    def cost(logs: Floats) -> float:
        value = -float(np.sum(sizes * log_density(means, ScaledChi2(*np.exp(logs)))))
        return value if np.isfinite(value) else 1e300

    laws = _matched(x / unit) if start is None else [start._replace(scale=start.scale / unit)]
    starts = [np.log(np.maximum(law, 1e-12)) for law in laws]
    best = min(starts, key=cost)
    passes = 1 if start else 2  # the second time from where the first ended, with a fresh simplex
    for _ in range(passes):
        found = minimize(cost, best, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4, "maxiter": 400})
        best = min((found.x, best), key=cost)
    df, nc, scale = np.exp(best)
    return ScaledChi2(float(df), float(nc), float(scale * unit))


def log_density(x: ArrayLike, law: ScaledChi2) -> Floats:
    """Logarithm of the density at x > 0, (n,)."""
    y = np.asarray(x, dtype=np.float64) / law.scale
    order = law.df / 2 - 1
    log_bessel = _log_bessel(order, np.sqrt(law.nc * y))
    with np.errstate(divide="ignore"):
        density = -np.log(2) - (y + law.nc) / 2 + order / 2 * np.log(y / law.nc) + log_bessel
    return np.asarray(density - np.log(law.scale))


def _log_bessel(order: float, z: Floats) -> Floats:
    """Logarithm of the modified Bessel function I of `order` > -1 at z > 0."""
    from scipy.special import gammaln, ive

    if order >= LARGE:  # the uniform expansion, whose next term is below 1e-9
        root = np.sqrt(1 + (z / order) ** 2)
        p = 1 / root
        u1 = (3 * p - 5 * p**3) / 24
        u2 = (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152
        u3 = (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / 414720
        whole = order * (root + np.log(z / order / (1 + root))) - 0.5 * np.log(2 * np.pi * order * root)
        return np.asarray(whole + np.log1p(u1 / order + u2 / order**2 + u3 / order**3))
    scaled = ive(order, z)
    with np.errstate(divide="ignore"):
        found = np.log(scaled) + z
    tiny = scaled < 1e-290  # z is so small that the first term of the series is all
    return np.where(tiny, order * np.log(z / 2) - gammaln(order + 1), found)


def log_cdf(x: float, law: ScaledChi2) -> float:
    """Logarithm of P(loss <= x), also where the probability is too small for a number; -inf at x <= 0.

    Notes
    -----
    Sum over the Poisson mixture of central chi-squares, in logarithms; error about 1e-10, relative. From a
    non-centrality of `TOO_MANY` on it is the normal approximation of `sankaran`.
    """
    _check(law)
    if x <= 0:
        return -np.inf
    if law.nc >= TOO_MANY:
        from scipy.special import log_ndtr

        return float(log_ndtr(sankaran(x, law)))
    from scipy.special import gammaln, logsumexp

    half, y = law.nc / 2, x / law.scale / 2
    j = np.arange(int(half + 12 * np.sqrt(half) + 60))
    poisson = j * np.log(half) - half - gammaln(j + 1) if half > 0 else np.where(j == 0, 0.0, -np.inf)
    terms = poisson + _log_lower_gamma(law.df / 2 + j, y)
    return min(0.0, float(logsumexp(terms)))


def sankaran(x: float, law: ScaledChi2) -> float:
    """Normal score of a loss under the approximation of the non-central chi-square by a power of a normal.

    Source: M. Sankaran (1959). On the non-central chi-square distribution. Biometrika 46.
    """
    _check(law)
    k, nc = law.df, law.nc
    h = 1 - 2 / 3 * (k + nc) * (k + 3 * nc) / (k + 2 * nc) ** 2
    p = (k + 2 * nc) / (k + nc) ** 2
    m = (h - 1) * (1 - 3 * h)
    power = (x / law.scale / (k + nc)) ** h
    return float((power - (1 + h * p * (h - 1 - 0.5 * (2 - h) * m * p))) / (h * np.sqrt(2 * p) * (1 + 0.5 * m * p)))


def _log_lower_gamma(a: NDArray[Any], y: float) -> Floats:
    """Logarithm of the regularised lower incomplete gamma function P(a, y)."""
    from scipy.special import gammainc, gammaln

    whole = gammainc(a, y)
    with np.errstate(divide="ignore"):
        found = np.log(whole)
    deep = whole < 1e-280  # then y << a, and the series of positive terms ends soon
    if deep.any():
        b = a[deep]
        term = total = np.ones_like(b)
        for i in range(1, 10_000):
            term = term * y / (b + i)
            total = total + term
            if term.max() < 1e-17:
                break
        found[deep] = b * np.log(y) - y - gammaln(b + 1) + np.log(total)
    return np.asarray(found)


def _matched(x: Floats) -> list[ScaledChi2]:
    """Laws with the mean and variance of x, for ratios nc / df over six decades."""
    mean, half = float(x.mean()), float(x.var()) / 2
    found = []
    for ratio in 10.0 ** np.arange(-3, 4):
        scale = half * (1 + ratio) / (mean * (1 + 2 * ratio))
        df = mean / scale / (1 + ratio)
        found.append(ScaledChi2(float(df), float(df * ratio), float(scale)))
    return found


def _check(law: ScaledChi2) -> None:
    values: tuple[Any, ...] = law
    if not all(np.isfinite(values)) or law.df <= 0 or law.nc < 0 or law.scale <= 0:
        raise UsageError(f"{law}", where="non-central chi-square", expected="df and scale above 0, nc of 0 or more")

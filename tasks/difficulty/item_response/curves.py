"""Item characteristic curves, P(theta) = g + (u - g) sigma(a (theta - b)), and the information they carry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.marginal import blocks, sigma


@dataclass(frozen=True)
class Curves:
    """The curves of J items in slope-intercept form, d = -a b.

    Attributes
    ----------
    a, d, g, u : (J,) float64
        Slope, intercept, lower and upper asymptote.
    """

    a: np.ndarray
    d: np.ndarray
    g: np.ndarray
    u: np.ndarray

    @classmethod
    def plain(cls, a: np.ndarray, d: np.ndarray) -> Curves:
        """Make curves from 0 to 1."""
        return cls(a, d, np.zeros(len(a)), np.ones(len(a)))

    @property
    def bare(self) -> bool:
        """Whether every curve runs from 0 to 1."""
        return not self.g.any() and bool((self.u == 1).all())

    def part(self, chosen: slice | np.ndarray) -> Curves:
        """Return some of the curves."""
        return Curves(self.a[chosen], self.d[chosen], self.g[chosen], self.u[chosen])

    def shape(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sigma(a theta + d) and 1 minus it, each (J, T) and both to full relative precision."""
        z = np.multiply.outer(self.a, theta)
        z += self.d[:, None]
        return sigma(z), sigma(-z)

    def right_wrong(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return P and 1 - P, each (J, T) and both to full relative precision."""
        s, r = self.shape(theta)
        g, u = self.g[:, None], self.u[:, None]
        return g * r + u * s, (1 - g) * r + (1 - u) * s


def probability(a: np.ndarray, b: np.ndarray, g: np.ndarray, u: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return P(right) of J items at abilities `theta` (T,): (J, T), in [0, 1]."""
    return _curves(a, b, g, u).right_wrong(np.asarray(theta, dtype=np.float64))[0]


def item_information(a: np.ndarray, b: np.ndarray, g: np.ndarray, u: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return Fisher's information about ability in each item, a^2 (P - g)^2 (u - P)^2 / ((u - g)^2 P (1 - P)).

    Parameters
    ----------
    a, b, g, u : array_like, shape (J,)
        Discrimination, location, lower and upper asymptote; a number stands for all items.
    theta : array_like, shape (T,)
        Abilities.

    Returns
    -------
    numpy.ndarray, shape (J, T)
        In 1 / logit^2; a^2 P (1 - P) where g = 0 and u = 1.

    Notes
    -----
    Source: A. Birnbaum (1968). Some latent trait models and their use in inferring an examinee's ability.
    """
    return information_of(_curves(a, b, g, u), np.asarray(theta, dtype=np.float64))


def test_information(a: np.ndarray, b: np.ndarray, g: np.ndarray, u: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the sum of `item_information` over items at abilities `theta` (T,): (T,).

    The standard error of a maximum likelihood ability is 1 / sqrt(information), that of a posterior mode about
    1 / sqrt(information + 1).
    """
    return total_information(_curves(a, b, g, u), np.asarray(theta, dtype=np.float64))


def information_area(
    a: np.ndarray, b: np.ndarray, g: np.ndarray, u: np.ndarray, low: float = -np.inf, high: float = np.inf
) -> np.ndarray:
    """Return the area under each item's information curve between two abilities, (J,), in closed form.

    The integrand is a (P - g)(u - P) / ((u - g) P (1 - P)) in P, so the area is |a| / (u - g) times the difference
    of P - g u log P + (1 - g)(1 - u) log(1 - P): |a| over the whole line where g = 0 and u = 1.
    """
    curves = _curves(a, b, g, u)
    from scipy.special import xlogy

    with np.errstate(invalid="ignore"):
        ends = []
        for end in (low, high):
            if np.isfinite(end):
                right, wrong = (v[:, 0] for v in curves.right_wrong(np.array([end])))
            else:
                right = np.where((end > 0) == (curves.a > 0), curves.u, curves.g)
                wrong = 1 - right
            value = right - xlogy(curves.g * curves.u, right) + xlogy((1 - curves.g) * (1 - curves.u), wrong)
            ends.append(value)
    return np.asarray(curves.a / (curves.u - curves.g) * (ends[1] - ends[0]))


def information_of(curves: Curves, theta: np.ndarray) -> np.ndarray:
    """Return `item_information` of curves at theta (T,): (J, T)."""
    s, r = curves.shape(theta)
    g, u = curves.g[:, None], curves.u[:, None]
    steep = curves.a[:, None] * (u - g) * s * r
    return np.asarray(steep**2 / np.maximum((g * r + u * s) * ((1 - g) * r + (1 - u) * s), 1e-300))


def total_information(curves: Curves, theta: np.ndarray) -> np.ndarray:
    """Return the information of all curves together at theta (T,): (T,)."""
    total = np.zeros(len(theta))
    for part in blocks(len(curves.a), 4 * len(theta)):
        total += information_of(curves.part(part), theta).sum(axis=0)
    return total


def _curves(a: np.ndarray, b: np.ndarray, g: np.ndarray, u: np.ndarray) -> Curves:
    a, b, g, u = (np.ravel(v) for v in np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (a, b, g, u))))
    return Curves(a, -a * b, g, u)

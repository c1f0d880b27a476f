"""Glicko-2 on arrays: rating, deviation and volatility of players from dated games, a period at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import DataRefused, UsageError

SCALE = 400 / np.log(10)  # 173.7178: rating points of one unit of Glickman's inner scale
CENTRE = 1500.0
TOLERANCE = 1e-9
"""The root for ln(volatility^2) is bracketed to this; Glickman's example uses 1e-6."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Ratings:
    """What the games say about each player, in order of `players`.

    Attributes
    ----------
    players : array, shape (P,), sorted
    rating, deviation : (P,) float64, rating points
        `deviation` is that of the last period in which the player played; `deviation_at` lets it grow.
    volatility : (P,) float64
    games : (P,) int64
    last : (P,) int64
        Last period in which the player played.
    most : (P,) float64
        Bound of an idle player's deviation.
    """

    players: NDArray[np.generic]
    rating: Floats
    deviation: Floats
    volatility: Floats
    games: Integers
    last: Integers
    most: Floats

    def deviation_at(self, period: int) -> Floats:
        """Let deviations grow to the end of `period`, up to `most`: an idle period adds volatility^2; (P,)."""
        idle = np.maximum(period - self.last, 0)
        return np.asarray(SCALE * _idle(self.deviation / SCALE, self.volatility, idle, self.most / SCALE))


def rate(
    period: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    score: ArrayLike,
    *,
    tau: float = 0.5,
    rating: ArrayLike = 1500.0,
    deviation: ArrayLike = 350.0,
    volatility: ArrayLike = 0.06,
    most: ArrayLike | None = None,
) -> Ratings:
    """Rate players by Glicko-2 from their games with each other.

    Parameters
    ----------
    period : array-like of int, shape (n,)
        Rating period of each game. Numbers that nobody played in count as idle periods.
    first, second : array-like, shape (n,)
        The players, of any sortable kind.
    score : array-like of float, shape (n,)
        Score of `first`, in [0, 1]; a draw is 0.5. `second` gets the rest.
    tau : float
        How fast volatility may change, usually 0.3 to 1.2; 0 holds it.
    rating, deviation, volatility : float or array-like, shape (P,)
        Of each player, in sorted order, before the first game. A volatility of 0 stays 0: the player does not change.
    most : float or array-like, shape (P,), optional
        Deviation that idle players do not exceed; by default `deviation`, that of a newcomer.

    Returns
    -------
    Ratings

    Raises
    ------
    DataRefused
        If there is no game, a score lies outside of [0, 1], or a player plays itself.
    UsageError
        If shapes differ, or a setting is out of range.

    Notes
    -----
    All updates of a period start from the values before it. O(n log n), and 0.2 ms a period; the order of the games
    changes no bit.

    Source: M. E. Glickman (2012). Example of the Glicko-2 system; M. E. Glickman (2001). Dynamic paired comparison
    models with stochastic variances. Journal of Applied Statistics 28, 673-689.
    """
    when, points = np.asarray(period), np.asarray(score, dtype=np.float64)
    sides = np.asarray(first), np.asarray(second)
    _check(when, sides, points, tau)
    players, codes = np.unique(np.concatenate(sides), return_inverse=True)
    left, right = codes[: len(points)].astype(np.int64), codes[len(points) :].astype(np.int64)
    if (left == right).any():
        who = players[left[left == right][0]]
        raise DataRefused(f"a player plays itself, first {who}", where="rate", expected="two different players")
    size = len(players)
    mu = (_initial("rating", rating, size, -np.inf) - CENTRE) / SCALE
    phi = _initial("deviation", deviation, size, np.nextafter(0, 1)) / SCALE
    sigma = _initial("volatility", volatility, size, 0.0)
    bound = phi.copy() if most is None else _initial("most", most, size, np.nextafter(0, 1)) / SCALE
    last, games = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for now, rows in _periods(when.astype(np.int64), left, right, points):
        me = np.concatenate([left[rows], right[rows]])
        active, local = np.unique(me, return_inverse=True)
        half = len(rows)
        opponent = np.concatenate([local[half:], local[:half]])
        gain = np.concatenate([points[rows], 1.0 - points[rows]])
        idle = np.where(games[active] > 0, np.maximum(now - last[active] - 1, 0), 0)
        before = mu[active], _idle(phi[active], sigma[active], idle, bound[active]), sigma[active]
        mu[active], phi[active], sigma[active] = _period(*before, local, opponent, gain, tau)
        last[active], games[active] = now, games[active] + np.bincount(local)
    return Ratings(players, mu * SCALE + CENTRE, phi * SCALE, sigma, games, last, bound * SCALE)


def new_volatility(delta: Floats, phi: Floats, v: Floats, sigma: Floats, tau: float) -> Floats:
    """Find each player's new volatility: the root of Glickman's f, by the Illinois method on all players at once.

    Parameters
    ----------
    delta, phi, v, sigma : (P,) float64
        Estimated improvement, deviation before the games, variance of the improvement, volatility > 0.
    tau : float, > 0
    """
    start = 2 * np.log(sigma)

    def f(x: Floats) -> Floats:
        e = np.exp(x)
        total = phi**2 + v + e
        return np.asarray(e * (delta**2 - total) / (2 * total**2) - (x - start) / tau**2)

    above = delta**2 > phi**2 + v
    a, b = start.copy(), np.where(above, np.log(np.where(above, delta**2 - phi**2 - v, 1.0)), start - tau)
    below = ~above & (f(b) < 0)
    while below.any():
        b = np.where(below, b - tau, b)
        below = below & (f(b) < 0)
    f_a, f_b = f(a), f(b)
    for _ in range(200):
        open_ = (np.abs(b - a) > TOLERANCE) & (f_a != 0) & (f_b != 0)
        if not open_.any():
            break
        c = np.where(open_, a + (a - b) * f_a / np.where(open_, f_b - f_a, 1.0), b)
        f_c = f(c)
        crossed = f_c * f_b <= 0
        a, f_a = np.where(open_ & crossed, b, a), np.where(open_, np.where(crossed, f_b, f_a / 2), f_a)
        b, f_b = np.where(open_, c, b), np.where(open_, f_c, f_b)
    return np.asarray(np.exp(np.where(f_b == 0, b, a) / 2))


def _period(
    mu: Floats, phi: Floats, sigma: Floats, me: Integers, opponent: Integers, score: Floats, tau: float
) -> tuple[Floats, Floats, Floats]:
    """Update all who play in one period at once; `me`, `opponent` number them, a row a game and side."""
    from scipy.special import expit

    g = 1 / np.sqrt(1 + 3 * phi**2 / np.pi**2)
    z = g[opponent] * (mu[me] - mu[opponent])
    expected = expit(z)
    information = np.bincount(me, g[opponent] ** 2 * expected * expit(-z), len(mu))
    pull = np.bincount(me, g[opponent] * (score - expected), len(mu))
    v = 1 / np.maximum(information, np.finfo(float).tiny)
    if tau > 0:
        moves = sigma > 0  # what cannot change does not
        sigma = sigma.copy()
        sigma[moves] = new_volatility((v * pull)[moves], phi[moves], v[moves], sigma[moves], tau)
    variance = 1 / (1 / (phi**2 + sigma**2) + information)
    return mu + variance * pull, np.sqrt(variance), sigma


def _idle(phi: Floats, sigma: Floats, periods: Integers, bound: Floats) -> Floats:
    """Let deviations on the inner scale grow by volatility^2 an idle period, up to `bound`, but never shrink."""
    return np.asarray(np.maximum(phi, np.minimum(np.sqrt(phi**2 + periods * sigma**2), bound)))


def _periods(when: Integers, left: Integers, right: Integers, score: Floats) -> Iterator[tuple[int, Integers]]:
    """Yield each period and its games, in an order that their content alone decides."""
    order = np.lexsort((score, right, left, when))
    cuts = np.flatnonzero(np.diff(when[order])) + 1
    for rows in np.split(order, cuts):
        yield int(when[rows[0]]), rows


def _initial(name: str, given: ArrayLike, size: int, least: float) -> Floats:
    values = np.asarray(given, dtype=np.float64)
    if values.shape not in ((), (size,)):
        raise UsageError(f"{name} of shape {values.shape} for {size} players", where="rate", expected=f"({size},)")
    if not np.isfinite(values).all() or (values < least).any():
        kind = {0.0: ", at least 0", -np.inf: ""}.get(least, ", more than 0")
        raise UsageError(f"{name} is {values.min() if values.size else values}", where="rate", expected="finite" + kind)
    return np.broadcast_to(values, (size,)).astype(np.float64)


def _check(when: NDArray[np.generic], sides: tuple[NDArray[np.generic], ...], score: Floats, tau: float) -> None:
    shapes = {when.shape, score.shape, *(side.shape for side in sides)}
    if len(shapes) != 1 or score.ndim != 1:
        raise UsageError(f"arrays of shapes {sorted(shapes)}", where="rate", expected="four arrays of one length")
    if not len(score):
        raise DataRefused("there is no game", where="rate", expected="at least one")
    if when.dtype.kind not in "iu":
        raise UsageError(f"periods of type {when.dtype}", where="rate", expected="whole numbers")
    bad = ~((score >= 0) & (score <= 1))
    if bad.any():
        raise DataRefused(
            f"{int(bad.sum())} of {len(score)} scores lie outside of [0, 1], first {score[bad][0]:g}",
            where="rate",
            expected="1 for a win of the first player, 0.5 for a draw, 0 for a loss",
        )
    if not 0 <= tau < np.inf:
        raise UsageError(f"tau is {tau}", where="rate", expected="0.3 to 1.2, or 0 to hold the volatility")

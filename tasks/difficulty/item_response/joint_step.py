"""One block of items in a sweep of the joint fit: their Newton step, guarded, and what it tells of respondents.

Notation: z = a theta + d, s = sigma(z), P = g + (u - g) s. A cell's score in z is e = (y - P) P' / (P (1 - P)), its
information w = P'^2 / (P (1 - P)); w' is the slope of w. Where g = 0 and u = 1, e = y - P and w = P (1 - P).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.cells import Dense, Sparse

BOUND = 30.0
"""Largest |discrimination|; an item that reaches it separates the respondents perfectly and has no finite maximum."""
LOG_A_SD, D_SD, LOGIT_SD = 0.5, 3.0, 1.0
"""Weak priors: log a ~ N(its mean over items, .5^2), d ~ N(0, 3^2); logit g and logit(1 - u) sd 1."""
LOW, HIGH = -12.0, 1.5
"""Range of logit g and logit(1 - u) where these are estimated; at HIGH g = .82."""
STEEP, FAR = 1.0, 3.0
"""Largest step of a slope or a logit asymptote, and of an intercept."""
HALVINGS = 8


@dataclass(frozen=True)
class Kind:
    """What is estimated of an item, under which priors.

    Attributes
    ----------
    slope, lower, upper : bool
        Whether each item has its own slope, and whether g and u are estimated.
    plain : bool
        Whether all curves run from 0 to 1.
    weak : bool
        Whether the weak priors of slopes and intercepts count.
    """

    slope: bool
    lower: bool
    upper: bool
    plain: bool
    weak: bool

    @property
    def free(self) -> tuple[int, ...]:
        """Rows of an items' array (a, d, logit g, logit u) that are estimated."""
        return tuple(k for k, use in enumerate((self.slope, True, self.lower, self.upper)) if use)


@dataclass(frozen=True)
class Abilities:
    """Abilities theta and their posterior variances (n,), and the moments (1, theta, theta^2, v, v theta), (n, 5)."""

    theta: np.ndarray
    variance: np.ndarray
    moments: np.ndarray

    @classmethod
    def of(cls, theta: np.ndarray, variance: np.ndarray, kind: type) -> Abilities:
        """Prepare abilities for arithmetic in `kind`."""
        moments = np.stack([np.ones_like(theta), theta, theta**2, variance, variance * theta], axis=1)
        return cls(theta.astype(kind), variance.astype(kind), moments.astype(kind))


@dataclass(frozen=True)
class Evaluated:
    """One block at some parameters.

    Attributes
    ----------
    loglik, target : (B,)
        Log-likelihood of each item's cells, and the item's part of what is climbed: with its priors, less the part of
        the abilities' log-determinant that it may change.
    gradient, information : (B, p) and (B, p, p)
        Of the target in the free parameters; the information is the observed one.
    score, weight, bend : arrays of cells
        e, w and w'.
    """

    loglik: np.ndarray
    target: np.ndarray
    gradient: np.ndarray
    information: np.ndarray
    score: np.ndarray
    weight: np.ndarray
    bend: np.ndarray


def evaluate(
    block: Dense | Sparse, x: np.ndarray, centre: np.ndarray, log_a: float, people: Abilities, kind: Kind
) -> Evaluated:
    """Evaluate a block at items' parameters x (4, B): a, d, logit g, logit u.

    `centre` (B,) is where the prior of logit g is centred, `log_a` the mean of log a.
    """
    a, d = x[0], x[1]
    number = block.score.dtype.type
    z = block.by_item(a.astype(number)) * block.by_respondent(people.theta)
    z += block.by_item(d.astype(number))
    if kind.plain:
        loglik, score, weight, bend, curvature, tangents = _plain(block, z, a, d, people)
    else:
        loglik, score, weight, bend, curvature, tangents = _asymptotic(block, z, x, people, kind)
    e = block.over_respondents(score, people.moments[:, :2])
    if curvature is weight:
        w = block.over_respondents(weight, people.moments[:, :4])
    else:
        w = np.empty((len(a), 4))
        w[:, :3] = block.over_respondents(curvature, people.moments[:, :3])
        w[:, 3:] = block.over_respondents(weight, people.moments[:, 3:4])
    b = block.over_respondents(bend, people.moments[:, 3:])
    size = len(kind.free)
    gradient, information = np.empty((len(a), size)), np.empty((len(a), size, size))
    at = {name: place for place, name in enumerate(kind.free)}
    dd = at[1]
    gradient[:, dd] = e[:, 0] - 0.5 * a**2 * b[:, 0]
    information[:, dd, dd] = w[:, 0]
    if kind.slope:
        gradient[:, 0] = e[:, 1] - a * w[:, 3] - 0.5 * a**2 * b[:, 1]
        information[:, 0, 0] = w[:, 2]
        information[:, 0, dd] = information[:, dd, 0] = w[:, 1]
    target = loglik - 0.5 * a**2 * w[:, 3]
    for (k, m), value in tangents.items():
        if m < 0:
            gradient[:, at[k]] = value
        else:
            information[:, at[k], at[m]] = information[:, at[m], at[k]] = value
    target += add_priors(x, centre, log_a, kind, gradient, information)
    return Evaluated(loglik, target, gradient, information, score, weight, bend)


def add_priors(
    x: np.ndarray,
    centre: np.ndarray,
    log_a: float,
    kind: Kind,
    gradient: np.ndarray | None = None,
    information: np.ndarray | None = None,
) -> np.ndarray:
    """Return the log density of each item's priors up to a constant, (B,); add their derivatives to what is given."""
    a, d = x[0], x[1]
    value = np.zeros(len(a))
    at = {name: place for place, name in enumerate(kind.free)}

    def add(k: int, first: np.ndarray, second: np.ndarray | float) -> None:
        if gradient is not None and information is not None:
            gradient[:, at[k]] += first
            information[:, at[k], at[k]] += second

    if kind.weak:
        value -= 0.5 * (d / D_SD) ** 2
        add(1, -d / D_SD**2, 1 / D_SD**2)
        if kind.slope:
            with np.errstate(invalid="ignore", divide="ignore"):
                away = np.log(a) - log_a
            value -= 0.5 * (away / LOG_A_SD) ** 2
            value[a <= 0] = -np.inf
            add(0, -away / (LOG_A_SD**2 * a), np.maximum(1 - away, 0.25) / (LOG_A_SD**2 * a**2))
    for k, use, middle in ((2, kind.lower, centre), (3, kind.upper, -centre)):
        if use:
            away = x[k] - middle
            value -= 0.5 * (away / LOGIT_SD) ** 2
            add(k, -away / LOGIT_SD**2, 1 / LOGIT_SD**2)
    return value


Tangents = dict[tuple[int, int], np.ndarray]
Pieces = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, Tangents]


def _plain(block: Dense | Sparse, z: np.ndarray, a: np.ndarray, d: np.ndarray, people: Abilities) -> Pieces:
    number = z.dtype.type
    p = np.multiply(z, number(0.5))
    np.tanh(p, out=p)
    p *= number(0.5)
    p += number(0.5)
    bend = number(1.0) - p
    weight = p * bend
    softplus = np.maximum(p, bend)
    np.log(softplus, out=softplus)
    np.maximum(z, number(0.0), out=z)
    np.subtract(z, softplus, out=softplus)
    bend -= p
    bend *= weight
    score = np.subtract(block.score, p, out=p)
    for cells in (softplus, weight, bend, score):
        block.masked(cells)
    right = block.over_respondents(block.score, people.moments[:, :2])
    passed = block.over_respondents(softplus, people.moments[:, :1])[:, 0]
    return d * right[:, 0] + a * right[:, 1] - passed, score, weight, bend, weight, {}


def _asymptotic(block: Dense | Sparse, z: np.ndarray, x: np.ndarray, people: Abilities, kind: Kind) -> Pieces:
    number = z.dtype.type
    tiny = number(1e-30)
    g, u = (block.by_item(value.astype(number)) for value in asymptotes(x))
    s = number(0.5) + number(0.5) * np.tanh(number(0.5) * z)
    r = number(1.0) - s
    right, wrong = g * r + u * s, (number(1.0) - g) * r + (number(1.0) - u) * s
    steep = (u - g) * s * r
    both = np.maximum(right * wrong, tiny)
    y = block.score
    residual = block.masked((y - right) / both)
    score = steep * residual
    weight = steep * steep / both
    bend = weight * (number(2.0) * (r - s) - steep * (wrong - right) / both)
    loglik = y * np.log(np.maximum(right, tiny)) + (number(1.0) - y) * np.log(np.maximum(wrong, tiny))
    # minus the second derivative of a cell is `outer` dP dP' - `residual` d2P
    floor = number(1e-15)
    outer = y / np.maximum(right, floor) ** 2 + (number(1.0) - y) / np.maximum(wrong, floor) ** 2
    outer, curvature = block.masked(outer), outer * steep * steep - residual * steep * (r - s)
    for cells in (loglik, weight, bend, curvature):
        block.masked(cells)
    ones = people.moments[:, :1]
    tangents: Tangents = {}
    slopes: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # dP, d2P with z, d2P
    if kind.lower:
        first = r * (g * (number(1.0) - g))
        slopes[2] = first, -s * first, first * (number(1.0) - number(2.0) * g)
    if kind.upper:
        first = s * (u * (number(1.0) - u))
        slopes[3] = first, r * first, first * (number(1.0) - number(2.0) * u)
    for k, (first, mixed, second) in slopes.items():
        bent = block.masked((number(2.0) * steep * mixed - weight * (wrong - right) * first) / both)
        tangents[k, -1] = block.over_respondents(first * residual, ones)[:, 0]
        tangents[k, -1] -= 0.5 * x[0] ** 2 * block.over_respondents(bent, people.moments[:, 3:4])[:, 0]
        cross = block.over_respondents(outer * first * steep - residual * mixed, people.moments[:, :2])
        tangents[k, 1] = cross[:, 0]
        if kind.slope:
            tangents[k, 0] = cross[:, 1]
        tangents[k, k] = block.over_respondents(outer * first * first - residual * second, ones)[:, 0]
    if len(slopes) == 2:
        tangents[3, 2] = block.over_respondents(outer * slopes[2][0] * slopes[3][0], ones)[:, 0]
    return block.over_respondents(loglik, ones)[:, 0], score, weight, bend, curvature, tangents


def asymptotes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return g and u (B,) of items' parameters; exactly 0 and 1 where their logits are infinite."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x[2])), 1 / (1 + np.exp(-x[3]))


@dataclass(frozen=True)
class Stepped:
    """A block after its step.

    Attributes
    ----------
    x : (4, B)
    before, after : Totals of respondents and log-likelihood at the old and the new parameters
    moved : float
        Largest accepted move of a slope, relative, or of another parameter.
    """

    x: np.ndarray
    before: Totals
    after: Totals
    moved: float


@dataclass(frozen=True)
class Totals:
    """Sums over a block's (or all) items.

    Attributes
    ----------
    loglik : float
    gradient : (n,)
        sum of a e.
    information : (n,)
        sum of a^2 w.
    bend : (n,)
        sum of a^3 w', the slope of `information` in ability.
    """

    loglik: float
    gradient: np.ndarray
    information: np.ndarray
    bend: np.ndarray

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.loglik + other.loglik,
            self.gradient + other.gradient,
            self.information + other.information,
            self.bend + other.bend,
        )


def totals(block: Dense | Sparse, x: np.ndarray, found: Evaluated, times: np.ndarray) -> Totals:
    """Sum a block over its items, each `times` (B,) as often."""
    a = x[0]
    score, weight, bend = ((times * a**power).astype(block.score.dtype) for power in (1, 2, 3))
    return Totals(
        float((times * found.loglik).sum()),
        block.over_items(found.score, score),
        block.over_items(found.weight, weight),
        block.over_items(found.bend, bend),
    )


def step(
    block: Dense | Sparse,
    x: np.ndarray,
    centre: np.ndarray,
    times: np.ndarray,
    log_a: float,
    people: Abilities,
    kind: Kind,
) -> Stepped:
    """Take one Newton step of each item at given abilities; no item's target falls."""
    found = evaluate(block, x, centre, log_a, people, kind)
    before = totals(block, x, found, times)
    move = _newton(found, x, kind)
    slack = (3e-5 if block.score.dtype == np.float32 else 1e-12) * (1 + np.abs(found.target))
    start = found.target
    new, tried = x, found
    for turn in range(HALVINGS):
        new = _clipped(x + move, x, kind)
        tried = evaluate(block, new, centre, log_a, people, kind)
        fell = ~(tried.target >= start - slack)
        if not fell.any():
            break
        move[:, fell] *= 0.25 if turn < HALVINGS - 2 else 0.0
    change = np.abs(new[list(kind.free)] - x[list(kind.free)])
    if kind.slope:
        change[0] /= np.maximum(np.abs(x[0]), 1.0)
    change /= np.maximum(1.0, np.abs(x[list(kind.free)]) / 4)
    return Stepped(new, before, totals(block, new, tried, times), float(change.max(initial=0.0)))


def _newton(found: Evaluated, x: np.ndarray, kind: Kind) -> np.ndarray:
    gradient, information = found.gradient, found.information
    size = gradient.shape[1]
    diagonal = information[:, np.arange(size), np.arange(size)]
    information = information.copy()
    information[:, np.arange(size), np.arange(size)] = diagonal + 1e-9 * (1 + np.abs(diagonal))
    if kind.plain and size == 1:
        raw = gradient / information[:, 0]
    elif kind.plain:
        aa, ad, dd = information[:, 0, 0], information[:, 0, 1], information[:, 1, 1]
        determinant = np.maximum(aa * dd - ad**2, 1e-10 * aa * dd)
        raw = np.stack(
            [
                (dd * gradient[:, 0] - ad * gradient[:, 1]) / determinant,
                (aa * gradient[:, 1] - ad * gradient[:, 0]) / determinant,
            ],
            axis=1,
        )
    else:
        gradient = gradient.copy()
        for place, k in enumerate(kind.free):
            low, high = ((-BOUND, BOUND), (-np.inf, np.inf), (LOW, HIGH), (-HIGH, -LOW))[k]
            held = ((x[k] <= low) & (gradient[:, place] < 0)) | ((x[k] >= high) & (gradient[:, place] > 0))
            gradient[held, place] = 0.0
            information[held, place, :] = information[held, :, place] = 0.0
            information[held, place, place] = 1.0
        # where it is not concave the amount of the curvature still gives a direction of ascent
        value, vector = np.linalg.eigh(information)
        value = np.maximum(np.abs(value), 1e-3)
        raw = np.einsum("jab,jb->ja", vector, np.einsum("jab,ja->jb", vector, gradient) / value)
    move = np.zeros_like(x)
    limit = np.array([FAR if k == 1 else STEEP for k in kind.free])
    # a step that is too long is shortened as a whole: its direction is one of ascent
    shrink = np.minimum(1.0, (limit / np.maximum(np.abs(raw), 1e-300)).min(axis=1))
    move[list(kind.free)] = (raw * shrink[:, None]).T
    return move


def _clipped(new: np.ndarray, old: np.ndarray, kind: Kind) -> np.ndarray:
    if kind.slope:
        new[0] = np.clip(new[0], -BOUND, BOUND)
        if kind.weak:
            new[0] = np.maximum(new[0], old[0] / 2)
    if kind.lower:
        new[2] = np.clip(new[2], LOW, HIGH)
    if kind.upper:
        new[3] = np.clip(new[3], -HIGH, -LOW)
    return new

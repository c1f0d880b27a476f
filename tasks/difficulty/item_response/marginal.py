"""The marginal likelihood of 1PL and 2PL models and its maximum: Bock-Aitkin EM, accelerated.

Notation: respondents i (grouped into N different response patterns with weights), items j, quadrature nodes q. With
z = a theta + d an observation y in [0, 1] contributes y z - log(1 + exp z). The first term is linear in theta, so a
pattern enters only through sum_j y a and sum_j y d, and the second term only through which items were answered. A pass
therefore costs O(N J + (N + J) Q) for complete data instead of O(N J Q).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

BLOCK = 4_000_000  # numbers in a temporary: 32 MB
BOUND = 30.0
"""Largest |discrimination|; an item that reaches it separates the respondents perfectly and has no finite maximum."""

LOG_A_SD, B_SD = 0.5, 2.0
"""Weak priors of the 2PL: log a ~ N(0, LOG_A_SD^2), b ~ N(0, B_SD^2)."""


@dataclass(frozen=True)
class Patterns:
    """Responses grouped into different patterns, items first.

    Attributes
    ----------
    y : (J, N) float32 or float64, 0 where missing
    masks : (K, J) bool, the different sets of items that were answered
    group : (N,) row of `masks` of each pattern
    weight : (N,) respondents with the pattern
    index : (n,) pattern of each respondent
    """

    y: np.ndarray
    masks: np.ndarray
    group: np.ndarray
    weight: np.ndarray
    index: np.ndarray

    @property
    def complete(self) -> bool:
        """Whether everyone answered everything."""
        return len(self.masks) == 1 and bool(self.masks.all())


@dataclass(frozen=True)
class Grid:
    """Equally spaced quadrature nodes on [-limit, limit] with normalised N(0, 1) weights.

    The trapezoid rule is exact to about exp(-2 pi^2 (sd / step)^2) for a normal shape, so a step of at most one
    posterior standard deviation resolves a respondent.
    """

    nodes: np.ndarray
    log_weights: np.ndarray

    @classmethod
    def of(cls, size: int, limit: float = 6.0) -> Grid:
        """Make a grid of `size` nodes."""
        nodes = np.linspace(-limit, limit, size)
        log_weights = -0.5 * nodes**2
        return cls(nodes, log_weights - np.log(np.exp(log_weights).sum()))

    @property
    def step(self) -> float:
        """Distance between nodes."""
        return float(self.nodes[1] - self.nodes[0])

    def doubled(self) -> Grid:
        """Halve the step."""
        return Grid.of(2 * len(self.nodes) - 1, float(self.nodes[-1]))

    def widened(self) -> Grid:
        """Add two to the limit, with the same step."""
        limit = float(self.nodes[-1]) + 2.0
        return Grid.of(round(2 * limit / self.step) + 1, limit)


@dataclass(frozen=True)
class Expectation:
    """What one pass over the respondents gives at some parameters.

    `loglik` is the marginal log-likelihood (without priors); `mean` and `variance` (N,) are each pattern's posterior
    moments of theta; `counts` (K, Q) the expected respondents at each node, by answered set; `curve` (J, Q) the chance
    of a right answer, kept for the M-step where it is small.
    """

    loglik: float
    mean: np.ndarray
    variance: np.ndarray
    counts: np.ndarray
    curve: np.ndarray | None = field(default=None, kw_only=True)


def group_patterns(matrix: np.ndarray) -> Patterns:
    """Group the rows of an (n, J) matrix of scores in [0, 1], NaN where missing, into `Patterns`.

    Patterns are sorted, so that the order of respondents changes no bit of what follows.
    """
    kind = np.float64 if matrix.size <= 20_000_000 else np.float32
    rows = np.ascontiguousarray(matrix, dtype=kind)
    seen = np.isfinite(rows)
    complete, right = bool(seen.all()), rows == 1.0
    if (right | (rows == 0.0) | ~seen).all():  # 0 and 1 alone: a bit a cell tells rows apart
        bits = np.packbits(right, axis=1)
        keys = bits if complete else np.concatenate([bits, np.packbits(seen, axis=1)], axis=1)
    else:
        keys = np.where(seen, rows, kind(-1.0)) + kind(0.0)
    first, index, weight = unique_rows(keys)
    masks_first, group, _ = unique_rows(np.packbits(seen[first], axis=1))
    y = rows[first] if complete else np.where(seen[first], rows[first], kind(0.0))
    y = np.ascontiguousarray(np.maximum(y, 0.0).T)
    return Patterns(y, seen[first][masks_first], group, weight.astype(np.float64), index)


def unique_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first index of each different row of a 2-d array, each row's number among these, and their counts."""
    if not rows.shape[1]:
        return np.zeros(1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64), np.array([len(rows)])
    rows = np.ascontiguousarray(rows)
    flat = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, index, count = np.unique(flat, return_index=True, return_inverse=True, return_counts=True)
    return first, index.ravel(), count


def blocks(total: int, width: int) -> Iterator[slice]:
    """Cut `range(total)` into slices such that a temporary of `width` numbers a row stays small."""
    size = max(1, BLOCK // max(width, 1))
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def curves(a: np.ndarray, d: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return P = sigma(a theta + d) and log(1 + exp(a theta + d)), each (J, Q), without overflow."""
    z = np.multiply.outer(a, nodes)
    z += d[:, None]
    p = sigma(z)
    softplus = np.maximum(z, 0.0)
    softplus -= np.log(np.maximum(p, 1.0 - p))
    return p, softplus


def probabilities(a: np.ndarray, d: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return P = sigma(a theta + d), (J, Q)."""
    z = np.multiply.outer(a, nodes)
    z += d[:, None]
    return sigma(z)


def sigma(z: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-z)) without overflow."""
    p: np.ndarray = np.negative(z)
    np.clip(p, -700.0, 700.0, out=p)
    np.exp(p, out=p)
    p += 1.0
    np.reciprocal(p, out=p)
    return p


def posteriors(
    data: Patterns, a: np.ndarray, d: np.ndarray, grid: Grid, *, width: int = 0, kept: list[np.ndarray] | None = None
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield for blocks of patterns: the slice, the posterior over nodes (B, Q) and the log-likelihoods (B,).

    `width` is how many further numbers a pattern the caller needs, so that blocks stay small; `kept` receives the
    chances of right answers to the last block of items.
    """
    size = len(grid.nodes)
    slope, constant = np.zeros(len(data.weight)), np.zeros(len(data.weight))
    passed = np.zeros((len(data.masks), size))
    for part in blocks(len(a), size + data.y.shape[1]):
        scores = data.y[part].astype(np.float64, copy=False)
        slope += a[part] @ scores
        constant += d[part] @ scores
        p, softplus = curves(a[part], d[part], grid.nodes)
        if kept is not None:
            kept[:] = [p]
        passed += softplus.sum(axis=0) if data.complete else data.masks[:, part].astype(np.float64) @ softplus
    base = grid.log_weights - passed
    for part in blocks(len(slope), size + width):
        joint = np.multiply.outer(slope[part], grid.nodes)
        joint += base[data.group[part]]
        top = joint.max(axis=1)
        joint -= top[:, None]
        np.exp(joint, out=joint)
        total = joint.sum(axis=1)
        joint /= total[:, None]
        yield part, joint, np.log(total) + top + constant[part]


def expectation(data: Patterns, a: np.ndarray, d: np.ndarray, grid: Grid) -> Expectation:
    """Do the E-step at (a, d)."""
    count = len(data.weight)
    mean, variance, loglik = np.empty(count), np.empty(count), np.empty(count)
    counts = np.zeros((len(data.masks), len(grid.nodes)))
    kept: list[np.ndarray] = []
    for part, posterior, value in posteriors(data, a, d, grid, kept=kept):
        loglik[part] = value
        mean[part] = posterior @ grid.nodes
        variance[part] = np.maximum(posterior @ grid.nodes**2 - mean[part] ** 2, 0.0)
        if len(counts) == 1:
            counts[0] += data.weight[part] @ posterior
        else:
            np.add.at(counts, data.group[part], posterior * data.weight[part, None])
    curve = kept[0] if kept and len(kept[0]) == len(a) else None
    return Expectation(float(data.weight @ loglik), mean, variance, counts, curve=curve)


@dataclass(frozen=True)
class Objective:
    """The (penalised) log-likelihood of one model, and its pieces.

    Attributes
    ----------
    data : Patterns
    model : "1pl", "2pl" or "fixed"
        One free slope, a slope an item, or given slopes.
    slopes : (J,)
        The given slopes of the model "fixed"; start values otherwise.
    weak_priors : bool
        Whether the 2PL's weak priors count.
    """

    data: Patterns
    model: str
    slopes: np.ndarray
    weak_priors: bool = False

    def unpack(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (a, d), each (J,), of a parameter vector: [a_1..a_J, d], [a, d] or [d]."""
        items = len(self.slopes)
        if self.model == "2pl":
            return x[:items], x[items:]
        return (np.full(items, x[0]), x[1:]) if self.model == "1pl" else (self.slopes, x)

    def pack(self, a: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Undo `unpack`."""
        if self.model == "2pl":
            return np.concatenate([a, d])
        return np.concatenate([a[:1], d]) if self.model == "1pl" else d.copy()

    def expect(self, x: np.ndarray, grid: Grid) -> Expectation:
        """Do the E-step at a parameter vector."""
        return expectation(self.data, *self.unpack(x), grid)

    def prior(self, x: np.ndarray) -> float:
        """Log prior density of a parameter vector."""
        return self.log_prior(*self.unpack(x))

    def inside(self, x: np.ndarray) -> bool:
        """Whether a parameter vector is one that an accelerated step may reach."""
        return bool(np.abs(self.unpack(x)[0]).max(initial=0.0) <= BOUND)

    def start(self) -> np.ndarray:
        """Start from the items' marginal log-odds, widened for the spread of theta."""
        score, n = self.score_sums(), self.answered()
        p = np.clip(score / n, 0.5 / n, 1 - 0.5 / n)
        return self.pack(self.slopes, np.log(p / (1 - p)) * np.sqrt(1 + self.slopes**2 / 2.89))

    def score_sums(self) -> np.ndarray:
        """Sum of scores of each item, (J,)."""
        return np.asarray(self.data.y @ self.data.weight, dtype=np.float64)

    def answered(self) -> np.ndarray:
        """Respondents who answered each item, (J,)."""
        size = len(self.data.masks)
        return np.bincount(self.data.group, self.data.weight, size) @ self.data.masks.astype(np.float64)

    def log_prior(self, a: np.ndarray, d: np.ndarray) -> float:
        """Log density of the weak priors, up to a constant; minus infinity outside of a > 0."""
        if not self.weak_priors:
            return 0.0
        if (a <= 0).any():
            return -np.inf
        return float(-0.5 * ((np.log(a) / LOG_A_SD) ** 2 + (d / a / B_SD) ** 2).sum())

    def derivatives(
        self, a: np.ndarray, d: np.ndarray, e: Expectation, grid: Grid, curve: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return each item's score (J, 2) in (a, d) and complete-data information (J, 3): aa, ad, dd.

        `curve` (J, Q) is the chance of a right answer at (a, d), where known.
        At the parameters of the E-step the score is also that of the marginal likelihood (Fisher's identity).
        """
        data, nodes = self.data, grid.nodes
        powers = np.stack([nodes**2, nodes, np.ones_like(nodes)], axis=1)
        gradient, information = np.empty((len(a), 2)), np.empty((len(a), 3))
        for part in blocks(len(a), len(nodes) + data.y.shape[1]):
            p = probabilities(a[part], d[part], nodes) if curve is None else curve[part]
            n = e.counts if data.complete else data.masks[:, part].T.astype(np.float64) @ e.counts
            scores = data.y[part]
            right = n * p
            gradient[part, 0] = scores @ (data.weight * e.mean) - right @ nodes
            gradient[part, 1] = scores @ data.weight - right.sum(axis=1)
            information[part] = (right * (1.0 - p)) @ powers
        if self.weak_priors:
            log_a = np.log(a)
            gradient[:, 0] += -log_a / (LOG_A_SD**2 * a) + d**2 / (B_SD**2 * a**3)
            gradient[:, 1] += -d / (B_SD**2 * a**2)
            information[:, 0] += (1 - log_a) / (LOG_A_SD**2 * a**2) + 3 * d**2 / (B_SD**2 * a**4)
            information[:, 1] += -2 * d / (B_SD**2 * a**3)
            information[:, 2] += 1 / (B_SD**2 * a**2)
        return gradient, information

    def improve(self, x: np.ndarray, e: Expectation, grid: Grid, steps: int) -> np.ndarray:
        """Do the M-step: `steps` Newton steps on the expected complete-data log-likelihood."""
        a, d = self.unpack(x)
        for step in range(steps):
            gradient, information = self.derivatives(a, d, e, grid, None if step else e.curve)
            (ga, gd), (aa, ad, dd) = gradient.T, information.T
            dd = np.maximum(dd, 1e-10)
            if self.model == "2pl":
                schur = aa - ad**2 / dd
                schur = np.where(schur > 1e-8 * np.abs(aa), schur, np.abs(aa) + 1e-8)  # not concave: a safe direction
                move = np.clip((ga - ad * gd / dd) / schur, -1.0, 1.0)
                new_a = np.clip(a + move, -BOUND, BOUND)
                new_a = np.maximum(new_a, a / 2) if self.weak_priors else new_a
            elif self.model == "1pl":
                schur_sum = (aa - ad**2 / dd).sum()
                move_sum = (ga - ad * gd / dd).sum() / max(schur_sum, 1e-10)
                new_a = np.clip(a + np.clip(move_sum, -1.0, 1.0), 0.0, BOUND)
            else:
                new_a = a
            d = d + np.clip((gd - ad * (new_a - a)) / dd, -5.0, 5.0)
            a = new_a
        return self.pack(a, d)


@dataclass(frozen=True)
class Maximum:
    """Where the climb ended: parameters, log-likelihood (with priors) of each accepted pass, whether it settled."""

    x: np.ndarray
    trace: tuple[float, ...]
    settled: bool


class Climbable(Protocol):
    """What `maximise` needs of an objective."""

    def expect(self, x: np.ndarray, grid: Grid) -> Expectation: ...

    def prior(self, x: np.ndarray) -> float: ...

    def inside(self, x: np.ndarray) -> bool: ...

    def improve(self, x: np.ndarray, e: Any, grid: Grid, steps: int) -> np.ndarray: ...


def maximise(
    objective: Climbable, grid: Grid, x: np.ndarray, *, tolerance: float = 1e-7, passes: int = 2000, memory: int = 6
) -> Maximum:
    """Climb by EM with Anderson acceleration until no parameter moves by more than `tolerance` in a pass.

    An accelerated step that lowers the log-likelihood is replaced by the plain EM step, so the accepted log-likelihoods
    never fall by more than rounding, 1e-11 of them.

    Source: R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an
    EM algorithm; D. G. Anderson (1965). Iterative procedures for nonlinear integral equations.
    """
    trace: list[float] = []
    points: list[np.ndarray] = []
    moves: list[np.ndarray] = []
    before = plain = x
    for turn in range(passes):
        prior = objective.prior(x)
        e = objective.expect(x, grid) if np.isfinite(prior) else None
        value = e.loglik + prior if e is not None else -np.inf
        if e is None or (trace and value < trace[-1] - 1e-11 * abs(trace[-1])):
            x = plain if x is not plain else (x + before) / 2
            plain = x
            points, moves = [], []
            if np.abs(x - before).max() < tolerance:
                return Maximum(before, tuple(trace), True)
            continue
        trace.append(value)
        before, plain = x, objective.improve(x, e, grid, 2 if turn < 4 else 1)
        move = plain - x
        if np.abs(move).max(initial=0.0) < tolerance:
            return Maximum(plain, tuple(trace), True)
        points, moves = [*points, x][-memory:], [*moves, move][-memory:]
        x = plain
        if len(points) > 1 and turn >= 3:
            slopes = np.diff(np.array(moves), axis=0).T
            mix = np.linalg.lstsq(slopes, move, rcond=1e-12)[0]
            jump = (np.diff(np.array(points), axis=0).T + slopes) @ mix
            x = plain - jump
            if np.abs(jump).max() > 5.0 or not objective.inside(x):
                x = plain
    return Maximum(before, tuple(trace), False)

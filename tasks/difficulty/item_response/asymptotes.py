"""The marginal likelihood of models with guessing and slips (3PL, 4PL, fixed guessing), and its M-step.

With a lower asymptote above 0 the log-odds of an answer are not linear in ability, so a pattern no longer enters
through two sums only: a pass costs two products of (N, J) by (J, Q) matrices. Asymptotes move on the logit scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradatim.tasks.difficulty.item_response import marginal
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.e_step import Counted, counted
from gradatim.tasks.difficulty.item_response.marginal import BOUND, Expectation, Grid, Patterns, blocks
from gradatim.tasks.difficulty.item_response.weak_priors import WeakPriors

LOW, HIGH = -12.0, 3.0
"""Range of logit g and logit(1 - u); at LOW (6e-6) an asymptote is as good as absent and has no finite maximum."""
MOST_INTERCEPT = 35.0
"""Largest |d|: an item that fewer get right than guess it has no finite location without a prior."""
GAP = 0.02
"""Least distance of the asymptotes of one item."""


@dataclass(frozen=True)
class Tangent:
    """Derivatives of item curves at nodes in (a, d, logit g, logit u), as far as these are estimated.

    `over_right` and `over_wrong` (p, J, Q) hold dP / P and -dP / (1 - P), the scores of a right and a wrong answer.
    """

    right: np.ndarray
    wrong: np.ndarray
    over_right: np.ndarray
    over_wrong: np.ndarray


@dataclass(frozen=True)
class Asymptotic:
    """The (penalised) log-likelihood of a model with asymptotes, given or estimated.

    A parameter vector holds the slopes (one an item, one for all, or none), the intercepts, and where estimated
    logit g and logit u.

    Attributes
    ----------
    data : Patterns
    slope : "free", "common" or "given"
    start_at : Curves
        Where to start; also the given slopes and asymptotes.
    lower, upper : bool
        Whether g and u are estimated.
    weak_curve, weak_asymptotes : bool
        Whether the priors log a ~ N(0, 0.5^2) (of free slopes) and b ~ N(0, 2^2), and those of asymptotes count.
    centre : (J,) float64
        logit(1 / K), where the prior of logit g is centred, and minus that of logit u.
    """

    data: Patterns
    slope: Literal["free", "common", "given"]
    start_at: Curves
    lower: bool
    upper: bool
    weak_curve: bool
    weak_asymptotes: bool
    centre: np.ndarray

    @property
    def items(self) -> int:
        """How many items."""
        return len(self.centre)

    @property
    def priors(self) -> WeakPriors:
        """The priors that count."""
        own = [*([self.centre] if self.lower else []), *([-self.centre] if self.upper else [])]
        return WeakPriors(self.weak_curve, self.slope == "free", tuple(own) if self.weak_asymptotes else ())

    @property
    def parts(self) -> int:
        """Parameters an item has when each has its own slope."""
        return 2 + self.lower + self.upper

    def unpack(self, x: np.ndarray) -> Curves:
        """Return the curves of a parameter vector."""
        full = self.widen(x)
        at = iter(full.reshape(-1, self.items)[2:])
        g = _expit(next(at)) if self.lower else self.start_at.g
        u = _expit(next(at)) if self.upper else self.start_at.u
        return Curves(full[: self.items], full[self.items : 2 * self.items], g, u)

    def widen(self, x: np.ndarray) -> np.ndarray:
        """Return the vector with a slope for each item, (p J,)."""
        if self.slope == "free":
            return x
        if self.slope == "common":
            return np.concatenate([np.full(self.items, x[0]), x[1:]])
        return np.concatenate([self.start_at.a, x])

    def narrow(self, full: np.ndarray) -> np.ndarray:
        """Undo `widen`."""
        if self.slope == "free":
            return full
        return np.concatenate([full[:1], full[self.items :]]) if self.slope == "common" else full[self.items :]

    def collapse(self, score: np.ndarray) -> np.ndarray:
        """Turn derivatives (..., p J) with a slope for each item into ones in the model's parameters (..., P)."""
        if self.slope == "free":
            return score
        rest = score[..., self.items :]
        if self.slope == "given":
            return rest
        return np.concatenate([score[..., : self.items].sum(axis=-1, keepdims=True), rest], axis=-1)

    def start(self) -> np.ndarray:
        """Return the parameter vector of `start_at`."""
        at = self.start_at
        parts = [at.a, at.d]
        if self.lower:
            parts.append(_logit(np.clip(at.g, _expit(LOW), _expit(HIGH))))
        if self.upper:
            parts.append(-_logit(np.clip(1 - at.u, _expit(LOW), _expit(HIGH))))
        low, high = self.bounds()
        return np.asarray(np.clip(self.narrow(np.concatenate(parts)), low, high))

    def expect(self, x: np.ndarray, grid: Grid) -> Counted:
        """Do the E-step at a parameter vector."""
        return counted(self.data, self.unpack(x), grid)

    def inside(self, x: np.ndarray) -> bool:
        """Whether a parameter vector lies within the bounds of slopes and asymptotes."""
        return bool(self._allowed(self.widen(x).reshape(self.parts, self.items)).all())

    def prior(self, x: np.ndarray) -> float:
        """Log density of the weak priors, up to a constant; minus infinity outside of a > 0 where slopes have one."""
        return float(self.priors.log_density(self.widen(x).reshape(self.parts, self.items)).sum())

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the least and largest value of each parameter, (P,) each."""
        low = [np.full(self.items, -BOUND), np.full(self.items, -MOST_INTERCEPT)]
        high = [np.full(self.items, BOUND), np.full(self.items, MOST_INTERCEPT)]
        if self.lower:
            low, high = [*low, np.full(self.items, LOW)], [*high, np.full(self.items, HIGH)]
        if self.upper:
            low, high = [*low, np.full(self.items, -HIGH)], [*high, np.full(self.items, -LOW)]
        return self.narrow(np.concatenate(low)), self.narrow(np.concatenate(high))

    def tangent(self, curves: Curves, nodes: np.ndarray) -> Tangent:
        """Return the scores of right and wrong answers at each node."""
        s, r = curves.shape(nodes)
        g, u = curves.g[:, None], curves.u[:, None]
        right = np.maximum(g * r + u * s, 1e-300)
        wrong = np.maximum((1 - g) * r + (1 - u) * s, 1e-300)
        steep = (u - g) * s * r
        first = [steep * nodes, steep]
        if self.lower:
            first.append(g * (1 - g) * r)
        if self.upper:
            first.append(u * (1 - u) * s)
        change = np.stack(first)
        return Tangent(right, wrong, change / right, -change / wrong)

    def answered(self, e: Expectation) -> np.ndarray:
        """Expected respondents who answered each item at each node: (1, Q) for complete data, else (J, Q)."""
        return np.asarray(e.counts if self.data.complete else self.data.masks.T.astype(np.float64) @ e.counts)

    def score(self, full: np.ndarray, e: Counted, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        """Return each item's score (p, J), with priors, and the scores' expected information (J, p, p).

        At the parameters of the E-step the score is also that of the marginal likelihood (Fisher's identity). The
        information is Fisher's, with priors by Gauss and Newton: never indefinite.
        """
        table = full.reshape(self.parts, self.items)
        curves, n = self.unpack(self.narrow(full)), self.answered(e)
        score, information = np.empty_like(table), np.empty((self.items, self.parts, self.parts))
        for part in blocks(self.items, 16 * len(grid.nodes)):
            t, right = self.tangent(curves.part(part), grid.nodes), e.right[part]
            asked = n if self.data.complete else n[part]
            score[:, part] = np.einsum("pjq,jq->pj", t.over_right, right)
            score[:, part] += np.einsum("pjq,jq->pj", t.over_wrong, asked - right)
            weight = asked * t.right * t.wrong  # dP = over_right P = -over_wrong (1 - P)
            scaled = t.over_right - t.over_wrong  # = dP / (P (1 - P))
            for k in range(self.parts):
                for m in range(k, self.parts):
                    information[part, k, m] = information[part, m, k] = (weight * scaled[k] * scaled[m]).sum(axis=1)
        first, second = self.priors.derivatives(table, newton=False)
        return score + first, information + second

    def curvature(self, full: np.ndarray, e: Counted, grid: Grid) -> np.ndarray:
        """Expected complete-data information (J, p, p), minus the priors' second derivatives."""
        curves, n = self.unpack(self.narrow(full)), self.answered(e)
        information = np.empty((self.items, self.parts, self.parts))
        for part in blocks(self.items, 16 * len(grid.nodes)):
            some, right = curves.part(part), e.right[part]
            t = self.tangent(some, grid.nodes)
            missed = (n if self.data.complete else n[part]) - right
            pull = right / t.right - missed / t.wrong
            second = self._second(some, grid.nodes)
            for k in range(self.parts):
                for m in range(k, self.parts):
                    value = right * t.over_right[k] * t.over_right[m] + missed * t.over_wrong[k] * t.over_wrong[m]
                    if (k, m) in second:
                        value = value - pull * second[k, m]
                    information[part, k, m] = information[part, m, k] = value.sum(axis=1)
        table = full.reshape(self.parts, self.items)
        return np.asarray(information + self.priors.derivatives(table, newton=True)[1])

    def _second(self, curves: Curves, nodes: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        """Second derivatives of P that are not zero, (J, Q) each."""
        s, r = curves.shape(nodes)
        g, u = curves.g[:, None], curves.u[:, None]
        second = {(1, 1): (u - g) * s * r * (r - s)}
        second[0, 1], second[0, 0] = second[1, 1] * nodes, second[1, 1] * nodes**2
        if self.lower:
            second[1, 2] = -g * (1 - g) * s * r
            second[0, 2] = second[1, 2] * nodes
            second[2, 2] = g * (1 - g) * (1 - 2 * g) * r
        if self.upper:
            last = self.parts - 1
            second[1, last] = u * (1 - u) * s * r
            second[0, last] = second[1, last] * nodes
            second[last, last] = u * (1 - u) * (1 - 2 * u) * s
        return second

    def improve(self, x: np.ndarray, e: Counted, grid: Grid, steps: int) -> np.ndarray:
        """Do the M-step: `steps` steps of Fisher scoring on the expected complete-data log-likelihood.

        A step of an item (of all of them where they share a slope) that would lower its part is halved.
        """
        full = self.widen(x)
        value = self._expected(full, e, grid)
        shared = self.slope == "common"
        for _ in range(steps):
            score, information = self.score(full, e, grid)
            step = self._fisher_step(score, information)
            largest = np.array([1.0, 4.0, *[1.5] * (self.parts - 2)])[:, None]
            over = np.abs(step / largest).max(axis=0)
            step /= np.maximum(over.max(initial=1.0) if shared else over, 1.0)
            size = np.ones(self.items)
            for _ in range(12):
                moved = self._clipped(full.reshape(self.parts, -1) + size * step)
                new = self._expected(moved.ravel(), e, grid)
                worse = ~((new >= value - 1e-12 * np.abs(value)) & self._allowed(moved))
                if shared:
                    fell = not new.sum() >= value.sum() - 1e-12 * abs(value.sum())
                    worse[:] = fell or not self._allowed(moved).all()
                if not worse.any():
                    break
                size[worse] /= 2
            keep = ~worse
            full = np.where(keep, moved, full.reshape(self.parts, -1)).ravel()
            value = np.where(keep, new, value)
        return self.narrow(full)

    def _fisher_step(self, score: np.ndarray, information: np.ndarray) -> np.ndarray:
        """Solve every item's system, with a ridge of a millionth of its diagonal: (p, J)."""
        at = np.arange(self.parts)
        information[:, at, at] += 1e-6 * information[:, at, at] + 1e-9
        if self.slope == "free":
            return np.asarray(np.linalg.solve(information, score.T[:, :, None])[:, :, 0].T)
        rest, coupling = information[:, 1:, 1:], information[:, 1:, 0]
        alone = np.linalg.solve(rest, np.stack([score[1:].T, coupling], axis=2))
        step = np.zeros_like(score)
        if self.slope == "common":
            gain = (score[0] - (coupling * alone[:, :, 0]).sum(axis=1)).sum()
            step[0] = gain / max((information[:, 0, 0] - (coupling * alone[:, :, 1]).sum(axis=1)).sum(), 1e-9)
        step[1:] = (alone[:, :, 0] - alone[:, :, 1] * step[0][:, None]).T
        return step

    def _expected(self, full: np.ndarray, e: Counted, grid: Grid) -> np.ndarray:
        """Each item's expected complete-data log-likelihood with its priors, (J,)."""
        right, wrong = self.unpack(self.narrow(full)).right_wrong(grid.nodes)
        value = (e.right * np.log(np.maximum(right, 1e-300))).sum(axis=1)
        value += ((self.answered(e) - e.right) * np.log(np.maximum(wrong, 1e-300))).sum(axis=1)
        return np.asarray(value + self.priors.log_density(full.reshape(self.parts, self.items)))

    def _clipped(self, table: np.ndarray) -> np.ndarray:
        """Keep slopes and asymptotes in their ranges, (p, J)."""
        low, high = (self.widen(v).reshape(self.parts, -1) for v in self.bounds())
        if self.slope == "given":
            low[0], high[0] = table[0], table[0]
        return np.asarray(np.clip(table, low, high))

    def _allowed(self, table: np.ndarray) -> np.ndarray:
        """Whether each item's slope and asymptotes lie within their bounds and apart, (J,)."""
        fine = (np.abs(table[0]) <= BOUND) & (np.abs(table[1]) <= MOST_INTERCEPT)
        logits = iter(table[2:])
        g, u = self.start_at.g, self.start_at.u
        if self.lower:
            lower = next(logits)
            fine &= (lower >= LOW) & (lower <= HIGH)
            g = _expit(lower)
        if self.upper:
            upper = next(logits)
            fine &= (upper <= -LOW) & (upper >= -HIGH)
            u = _expit(upper)
        return np.asarray(fine & (u - g >= GAP))


def _logit(p: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(p) - np.log1p(-p))


def _expit(z: np.ndarray | float) -> np.ndarray:
    return marginal.sigma(np.atleast_1d(np.asarray(z, dtype=np.float64)))

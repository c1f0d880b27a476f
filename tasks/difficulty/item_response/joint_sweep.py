"""Sweeps of a joint fit: every item's step on several threads, then every ability's, then the scale of all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from gradatim.tasks.difficulty.item_response.cells import Cells, Dense, Layout, Sparse
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.joint_step import (
    BOUND,
    D_SD,
    HIGH,
    LOW,
    Abilities,
    Kind,
    Stepped,
    Totals,
    add_priors,
    step,
)

T = TypeVar("T")
FLATTEST = 1e-3
"""Where slopes stop that fall because respondents do not differ."""


@dataclass(frozen=True)
class State:
    """Where the climb stands: items' (a, d, logit g, logit u) (4, J), abilities and posterior variances (n,)."""

    x: np.ndarray
    theta: np.ndarray
    variance: np.ndarray
    log_a: float


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Sweep:
    """What one sweep over the blocks needs besides the state.

    Attributes
    ----------
    layout : Layout
    kind : Kind
    centre, times : (J,)
        Where the prior of logit g is centred; how many items each stands for.
    pool : ThreadPoolExecutor
    parts : two arrays (J,) and (n,), or None
        The part of each item and respondent, where these fall into several that share nothing: each part's abilities
        then have a mean of their own.
    """

    layout: Layout
    kind: Kind
    centre: np.ndarray
    times: np.ndarray
    pool: ThreadPoolExecutor
    parts: tuple[np.ndarray, np.ndarray] | None = None

    def over(self, work: Callable[[slice, Dense | Sparse], T]) -> Iterable[T]:
        """Do `work` on each block on several threads; results come in the order of blocks."""
        cuts = self.layout.cuts
        size = max(1, min(16, len(cuts) // 8))

        def some(at: int) -> list[T]:
            return [work(slice(start, end), self.layout.block(start, end)) for start, end in cuts[at : at + size]]

        for group in self.pool.map(some, range(0, len(cuts), size)):
            yield from group

    def items(self, state: State) -> tuple[np.ndarray, Totals, Totals, float]:
        """Step every item; returns the new items, the totals at the old and at the new ones, and the largest move."""
        people = Abilities.of(state.theta, state.variance, self.layout.kind)
        x, moved = np.empty_like(state.x), 0.0
        nothing = np.zeros(len(state.theta))
        before = after = Totals(0.0, nothing, nothing, nothing)

        def work(part: slice, block: Dense | Sparse) -> tuple[slice, Stepped]:
            return part, step(
                block, state.x[:, part], self.centre[part], self.times[part], state.log_a, people, self.kind
            )

        for part, done in self.over(work):
            x[:, part] = done.x
            before, after, moved = before + done.before, after + done.after, max(moved, done.moved)
        return x, before, after, moved

    def value(self, state: State, sums: Totals) -> float:
        """What is climbed: log-likelihood, ability prior, log-determinant, item priors."""
        prior = (self.times * add_priors(state.x, self.centre, state.log_a, self.kind)).sum()
        people = 0.5 * (state.theta**2).sum() + 0.5 * np.log1p(sums.information).sum()
        return float(sums.loglik + prior - people)


def start_at_rates(cells: Cells, slope: float, given: np.ndarray, kind: Kind) -> State:
    """Start from log-odds of right answers, of items and of respondents."""
    items = cells.items
    x = np.zeros((4, items))
    x[0] = slope
    n = np.maximum(cells.answered, 1)
    p = np.clip(cells.item_totals() / n, 0.5 / n, 1 - 0.5 / n)
    g = np.minimum(0.2, 0.7 * p) if kind.lower else given[:items]
    u = np.maximum(0.9, p + 0.7 * (1 - p)) if kind.upper else np.ones(items)
    with np.errstate(divide="ignore"):
        x[2], x[3] = np.log(g / (1 - g)), np.log(u / (1 - u))
    p = np.clip((p - g) / (u - g), 0.02 if not kind.plain else 0.0, 0.98 if not kind.plain else 1.0)
    x[1] = np.log(p / (1 - p))
    right, count = cells.respondent_totals()
    theta = np.log((right + 0.5) / (count - right + 0.5))
    theta = theta - theta.mean()
    theta = theta / theta.std() if theta.std() > 1e-9 else theta
    return State(x, theta, np.zeros(cells.n), 0.0)


def start_near(
    cold: State, start: tuple[Curves, np.ndarray, np.ndarray], items: np.ndarray, kind: Kind, free: bool
) -> State:
    """Start from another fit's curves of `items`, its abilities and their variances."""
    curves, theta, variance = start
    a, d = curves.a[items], curves.d[items]
    if not len(items) or (kind.slope and kind.weak and (a <= 0).any()):
        return cold
    x = cold.x.copy()
    x[0], x[1] = a if free or kind.slope else x[0], d
    log_a = float(np.log(a).mean()) if kind.slope and kind.weak else 0.0
    return State(x, theta - theta.mean(), variance, log_a)


def climb(
    sweep: Sweep, state: State, tolerance: float, sweeps: int, free: bool
) -> tuple[State, tuple[float, ...], bool]:
    """Sweep until nothing moves, with Anderson's acceleration.

    A jump that lowers the value is taken back, a step of abilities that does is shortened, and one of items, which
    takes the variances from where abilities came, is repeated with those where they are: these no step of items can
    lower, for the log-determinant is concave. So the value never falls by more than rounding.

    Source: D. G. Anderson (1965). Iterative procedures for nonlinear integral equations.
    """
    trace: list[float] = []
    if not sweep.layout.cells.items:
        return replace(state, variance=np.ones_like(state.variance)), (), True
    # what rounding may take from the sum of so many logarithms
    slack = 2e-7 if sweep.layout.kind is np.float32 else 1e-12
    stretch, settled, exact = 1.0, False, False
    last: tuple[State, Totals] | None = None
    plain: State | None = None
    memory = Memory(sweep.kind)
    for _ in range(sweeps):
        x, before, after, moved = sweep.items(state)
        value = sweep.value(state, before)
        if last is not None and not value >= trace[-1] - slack * abs(trace[-1]):
            memory = Memory(sweep.kind)
            if plain is not None:
                state, plain = plain, None
                continue
            stretch /= 4
            if stretch < 1e-3:
                return last[0], tuple(trace), settled
            state = _move_people(sweep, *last, stretch, free)[0]
            continue
        new = replace(state, x=x, variance=1 / (1 + after.information))
        if sweep.kind.slope and sweep.kind.weak and not (sweep.kind.lower or sweep.kind.upper):
            new = replace(new, log_a=float(np.log(x[0]).mean()))
        climbed = sweep.value(new, after)
        if climbed < value - slack * abs(value) and not exact:
            state, exact = replace(state, variance=1 / (1 + before.information)), True
            continue
        trace.append(climbed)
        last, stretch, plain, exact = (new, after), 1.0, None, False
        start = state
        state, people = _move_people(sweep, new, after, stretch, free)
        settled = max(moved, people) < tolerance
        if settled:
            return new, tuple(trace), True
        jumped = memory.jump(start, state) if len(trace) >= 4 else None
        if jumped is not None:
            plain, state = state, jumped
    return last[0] if last else state, tuple(trace), False


class Memory:
    """The last sweeps, from which the next state is extrapolated: by what best cancels the moves of abilities."""

    def __init__(self, kind: Kind, size: int = 5) -> None:
        self.kind, self.size = kind, size
        self.ends: list[State] = []
        self.moves: list[np.ndarray] = []

    def jump(self, start: State, end: State) -> State | None:
        """Note a sweep from `start` to `end` and extrapolate; None where there is nothing to go by, or too far to."""
        self.ends = [*self.ends, end][-self.size :]
        self.moves = [*self.moves, end.theta - start.theta][-self.size :]
        if len(self.moves) < 2:
            return None
        mix = np.linalg.lstsq(np.diff(np.array(self.moves), axis=0).T, self.moves[-1], rcond=1e-8)[0]
        theta, x = end.theta.copy(), end.x.copy()
        rows = [0, *self.kind.free] if not self.kind.slope else list(self.kind.free)
        for share, one, next_ in zip(mix, self.ends[:-1], self.ends[1:], strict=True):
            theta -= share * (next_.theta - one.theta)
            x[rows] -= share * (next_.x[rows] - one.x[rows])
        inside = np.abs(x[0]).max() <= BOUND and (x[0].min() > 0 or not (self.kind.weak and self.kind.slope))
        if not inside or np.abs(theta - end.theta).max() > 3.0:
            return None
        for k, low, high in ((2, LOW, HIGH), (3, -HIGH, -LOW)):
            if k in self.kind.free:
                x[k] = np.clip(x[k], low, high)
        log_a = end.log_a
        if self.kind.slope and self.kind.weak and not (self.kind.lower or self.kind.upper):
            log_a = float(np.log(x[0]).mean())
        return replace(end, theta=theta, x=x, log_a=log_a)


def _move_people(sweep: Sweep, state: State, sums: Totals, stretch: float, free: bool) -> tuple[State, float]:
    """Step every ability, then move and stretch all of them to where their prior fits best, and items with them."""
    theta, information = state.theta, sums.information
    gradient = sums.gradient - theta - 0.5 * state.variance * sums.bend
    item, person = sweep.parts or (np.zeros(state.x.shape[1], dtype=np.intp), np.zeros(len(theta), dtype=np.intp))
    size = np.bincount(person)
    if sweep.kind.weak:  # the priors of intercepts look at the mean ability
        pull = np.bincount(item, -(state.x[0] * state.x[1]) / D_SD**2, len(size))
        gradient = gradient + (pull / size)[person]
    move = stretch * np.clip(gradient / (1 + information), -1.0, 1.0)
    new = theta + move
    middle = np.bincount(person, new) / size
    new = new - middle[person]
    information = np.maximum(information + sums.bend * move, 0.0)
    x = state.x.copy()
    steepest = max(float(np.abs(x[0]).max(initial=0.0)), 1e-300)
    scale = float(np.clip(_scale(new, information), min(1.0, FLATTEST / steepest), BOUND / steepest)) if free else 1.0
    x[1] += x[0] * middle[item]
    x[0] *= scale
    variance = 1 / (1 + scale**2 * information)
    moved = max(float(np.abs(move).max(initial=0.0)), abs(scale - 1), float(np.abs(middle).max()))
    return State(x, new / scale, variance, state.log_a + np.log(scale)), moved


def _scale(theta: np.ndarray, information: np.ndarray) -> float:
    """Stretch s that maximises - sum theta^2 / (2 s^2) - sum log(1 + s^2 information) / 2; within a factor of two."""
    square, low, high = float((theta**2).sum()), -np.log(2.0), np.log(2.0)
    for _ in range(60):
        middle = (low + high) / 2
        s2 = np.exp(2 * middle)
        slope = square / s2 - (s2 * information / (1 + s2 * information)).sum()
        low, high = (middle, high) if slope > 0 else (low, middle)
    return float(np.exp((low + high) / 2))

"""The search of a packing: units and tolerances, and the moves, swaps and chains that make an assignment better.

Assignments are compared by three whole numbers, in this order: rows missing to the tolerances, leakage, rows beside the
targets. Whole numbers add exactly, so neither the order of units nor threads change a result.

Source: B. W. Kernighan, S. Lin (1970). An efficient heuristic procedure for partitioning graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

SEARCHED = 2_000
"""Units that are placed one by one and searched; the smaller ones beyond fill what room is left."""
_SWAPPED = 256
_CHAIN = 32
_FORCED = 16
_STEPS = 20_000
_WHOLE = 2.0**51

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Units:
    """What is packed, and into what.

    Attributes
    ----------
    names : polars.Series of String, (u,)
        Unique; what chance is drawn from.
    rows : numpy.ndarray, shape (u, 1 + s), int64
        Rows of each unit: all of them, then those of each of s strata (none where nothing is stratified).
    shares : tuple of float, (k,)
        Share of all rows that each split is to have; they sum to 1.
    epsilon, delta : float
        A split has at least share (1 - epsilon) of all rows, and share (1 - delta) of each stratum's, rounded down.
    fixed : numpy.ndarray, shape (u,), int64
        Split of a unit that has its place already; -1 for one that is to be placed.
    mass : numpy.ndarray, shape (u,), int64
        What a unit leaks by: its rows, also those that count for no size (one too large is in `rows` with 0).
    similarity : numpy.ndarray, shape (u, u), optional
        In [0, 1]; the diagonal is not looked at.
    """

    names: pl.Series
    rows: Ints
    shares: tuple[float, ...]
    epsilon: float
    delta: float
    fixed: Ints
    mass: Ints
    similarity: Floats | None = None

    @cached_property
    def least(self) -> Ints:
        """Fewest rows of each split and stratum: shape (k, 1 + s)."""
        slack = np.full(self.rows.shape[1], 1 - self.delta)
        slack[0] = 1 - self.epsilon
        wanted = np.outer(self.shares, self.rows.sum(axis=0)) * slack
        found: Ints = np.floor(np.round(wanted, 6)).astype(np.int64)
        found[:, 0] = np.maximum(found[:, 0], 1)
        return found

    @cached_property
    def target(self) -> Ints:
        """Rows that each split and stratum should have: shape (k, 1 + s)."""
        wanted: Ints = np.rint(np.outer(self.shares, self.rows.sum(axis=0))).astype(np.int64)
        return wanted

    @cached_property
    def weight(self) -> Floats | None:
        """Similar rows between two units as whole numbers, so that sums of them are exact: shape (u, u)."""
        if self.similarity is None:
            return None
        mass = self.mass.astype(np.float64)
        found = np.outer(mass, mass) * np.round(self.similarity, 9)
        np.fill_diagonal(found, 0.0)
        total = found.sum() / 2
        return np.asarray(np.rint(found * (_WHOLE / total))) if total > 0 else None


def loads(rows: Ints, place: Ints, splits: int) -> Ints:
    """Add up the rows of each split: shape (splits, columns); units of place -1 are in none."""
    out = np.zeros((splits, rows.shape[1]), np.int64)
    for split in range(splits):
        out[split] = rows[place == split].sum(axis=0)
    return out


class State:
    """An assignment with the sums that moves are judged by."""

    def __init__(self, units: Units, place: Ints) -> None:
        self.units, self.place = units, place.copy()
        self.load = loads(units.rows, place, len(units.shares))
        self.beside: Floats | None = None
        if units.weight is not None:
            member = place[:, None] == np.arange(len(units.shares))
            self.beside = units.weight @ member.astype(np.float64)

    @property
    def score(self) -> tuple[int, int, int]:
        """Rows missing, leakage, rows beside the targets."""
        leakage = 0
        if self.beside is not None:
            own = self.beside[np.arange(len(self.place)), self.place]
            leakage = int(self.beside.sum() - own.sum()) // 2
        return int(self._missing(self.load).sum()), leakage, int(self._beside_target(self.load).sum())

    def _missing(self, load: Ints, split: int | slice = slice(None)) -> Ints:
        return np.asarray(np.maximum(self.units.least[split] - load, 0).sum(axis=-1))

    def _beside_target(self, load: Ints, split: int | slice = slice(None)) -> Ints:
        return np.asarray(np.abs(self.units.target[split] - load).sum(axis=-1))

    def moved(self, unit: Ints, source: int, goal: int, more: Ints | None = None) -> tuple[Ints, Floats, Ints]:
        """Say how the score changes where units leave `source` for `goal`, and others (`more`) come back for them."""
        rows = self.units.rows[unit] if more is None else self.units.rows[unit] - self.units.rows[more]
        missing = np.zeros(len(unit), np.int64)
        away = np.zeros(len(unit), np.int64)
        for split, sign in ((source, -1), (goal, 1)):
            after = self.load[split] + sign * rows
            missing += self._missing(after, split) - self._missing(self.load[split], split)
            away += self._beside_target(after, split) - self._beside_target(self.load[split], split)
        leakage = np.zeros(len(unit))
        weight = self.units.weight
        if self.beside is not None and weight is not None:
            leakage = self.beside[unit, source] - self.beside[unit, goal]
            if more is not None:
                leakage = leakage + self.beside[more, goal] - self.beside[more, source] + 2 * weight[unit, more]
        return missing, leakage, away

    def put(self, unit: int, goal: int) -> None:
        source = int(self.place[unit])
        self.place[unit] = goal
        self.load[source] -= self.units.rows[unit]
        self.load[goal] += self.units.rows[unit]
        if self.beside is not None and self.units.weight is not None:
            self.beside[:, source] -= self.units.weight[:, unit]
            self.beside[:, goal] += self.units.weight[:, unit]


_Change = tuple[tuple[int, float, int], list[tuple[int, int]]]


def improve(state: State, free: Ints, seen: set[bytes]) -> None:
    """Take the best move, where none helps the best swap, where none does a chain of moves, until nothing helps.

    From what is in `seen`, where earlier searches came by moves and swaps, no chain is tried again.
    """
    searched = len(free) <= SEARCHED
    if not searched and not state.score[0]:
        return  # nothing is missing, and there are no similarities to lessen the leakage by
    if not searched:
        free = _useful(state, free)
    for _ in range(_STEPS):
        found = min(_moves(state, free), default=None, key=lambda change: change[0])
        if found is None or found[0] >= (0, 0.0, 0):
            found = min(_swaps(state, free), default=None, key=lambda change: change[0])
        if found is None or found[0] >= (0, 0.0, 0):
            here = state.place.tobytes()
            if state.beside is None or here in seen:
                return
            seen.add(here)
            if not _chain(state, free):
                return
            continue
        for unit, goal in found[1]:
            state.put(unit, goal)


def _chain(state: State, free: Ints) -> bool:
    """Take the best moves one after the other, each unit once and also where they harm, and keep the best beginning.

    Of few units each is tried as the first.
    """
    firsts = [None] if len(free) > _FORCED else [None, *free.tolist()]
    return any(_chain_from(state, free, first) for first in firsts)


def _chain_from(state: State, free: Ints, first: int | None) -> bool:
    before = best = state.score
    done: list[tuple[int, int]] = []
    kept = 0
    for step in range(min(_CHAIN, len(free))):
        among = free if step or first is None else np.array([first])
        moves = list(_moves(state, among))
        if not moves:
            break
        ((unit, goal),) = min(moves, key=lambda change: change[0])[1]
        done.append((unit, int(state.place[unit])))
        state.put(unit, goal)
        free = free[free != unit]
        if state.score < best:
            best, kept = state.score, len(done)
    for unit, source in reversed(done[kept:]):
        state.put(unit, source)
    return best < before


def _useful(state: State, free: Ints) -> Ints:
    """Choose units to repair with: those with rows of what is missing, the smallest first."""
    lacks = np.maximum(state.units.least - state.load, 0).any(axis=0)
    useful = state.units.rows[free][:, lacks].any(axis=1)
    order = np.lexsort((free, state.units.rows[free, 0], ~useful))
    return np.asarray(np.sort(free[order[:SEARCHED]]))


def _moves(state: State, free: Ints) -> Iterator[_Change]:
    """Give the best move between each two splits."""
    for source in range(len(state.load)):
        here = free[state.place[free] == source]
        for goal in range(len(state.load)):
            if goal != source and len(here) and (state.place == source).sum() > 1:
                change, best = _least(*state.moved(here, source, goal))
                yield change, [(int(here[best]), goal)]


def _swaps(state: State, free: Ints) -> Iterator[_Change]:
    """Give the best swap between each two splits, among the units that alone would do least harm."""
    for source in range(len(state.load)):
        for goal in range(source + 1, len(state.load)):
            here, there = (_promising(state, free, *way) for way in ((source, goal), (goal, source)))
            if len(here) and len(there):
                one, two = np.repeat(here, len(there)), np.tile(there, len(here))
                change, best = _least(*state.moved(one, source, goal, two))
                yield change, [(int(one[best]), goal), (int(two[best]), source)]


def _promising(state: State, free: Ints, source: int, goal: int) -> Ints:
    here = free[state.place[free] == source]
    if len(here) <= _SWAPPED:
        return np.asarray(here)
    _, leakage, away = state.moved(here, source, goal)
    found: Ints = here[np.lexsort((here, away, leakage))[:_SWAPPED]]
    return found


def _least(missing: Ints, leakage: Floats, away: Ints) -> tuple[tuple[int, float, int], int]:
    """Find the smallest of triples, the first of equals."""
    among = np.flatnonzero(missing == missing.min())
    among = among[leakage[among] == leakage[among].min()]
    best = int(among[np.argmin(away[among])])
    return (int(missing[best]), float(leakage[best]), int(away[best])), best

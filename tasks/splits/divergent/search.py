"""The search for two sides whose atoms are alike and whose compounds are not."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.hashing import random_bits, uniform
from gradatim.tasks.splits.divergent.units import UnitBag, Units

UNUSED = 2
PRICE = 2.0
"""What an atom divergence above the cap costs while the sides grow: about what it earns in compound divergence, so that
the search may pass through sides that are a little too unlike."""
STAGES = ((2.0, 0.0), (3.0, 0.0), (5.0, 0.0), (0.0, 20.0))
"""Price of what is above the cap, and price of all of it once it is above: one stage of exchanges each. The last leaves
nothing above that can be helped."""
PATIENCE = 100


@dataclass(frozen=True)
class Aim:
    """What a search is for.

    Attributes
    ----------
    target : float
        Compound divergence.
    cap : float
        Most of the atom divergence.
    quota : tuple of int
        Rows of V and of W.
    candidates, starts : int
        Units that are looked at for each step; searches of which the best is kept.
    exchanges : float
        Most exchanges to try in a stage, as a share of the units placed.
    least : int
        Rows of V that hold each atom of W.
    """

    target: float
    cap: float
    quota: tuple[int, int]
    candidates: int
    starts: int
    exchanges: float
    least: int


@dataclass(frozen=True)
class Found:
    """Sides: `side` (units,) int8 of V, W and UNUSED; the exact divergences; exchanges made."""

    side: np.ndarray
    atom: float
    compound: float
    exchanges: int


def search(units: Units, names: pl.Series, fixed: np.ndarray, aim: Aim, seed: int) -> Found:
    """Place units.

    Parameters
    ----------
    units : Units
    names : polars.Series of String, (units,)
        What chance depends on, with the seed.
    fixed : numpy.ndarray of int8, (units,)
        Side that a unit has and keeps, UNUSED for those to be placed. Units without rows are never placed.
    aim : Aim
    seed : int

    Notes
    -----
    Steps x candidates x pieces a unit; about 20 ns each. See docs/splits/mcd.md.
    """
    from gradatim.tasks.splits.divergent import kernels

    free = np.flatnonzero((fixed == UNUSED) & (units.rows > 0))
    order = free[np.argsort(uniform(names.gather(free), seed, "mcd order"), kind="stable")].astype(np.int64)

    def attempt(start: int) -> _Try:
        one = _Try(units, order, aim, random_bits([f"start {start}"], seed, "mcd candidates"))
        for which in (kernels.V, kernels.W):
            for unit in np.flatnonzero(fixed == which):
                kernels.put(unit, which, 1.0, one.game)
        one.grow()
        one.improve()
        return one

    # the loops let go of the interpreter's lock; starts know nothing of each other, so threads change no result
    with ThreadPoolExecutor(min(aim.starts, os.cpu_count() or 1)) as threads:
        best = min(threads.map(attempt, range(aim.starts)), key=lambda one: one.reached)
    side = np.full(len(units), UNUSED, np.int8)
    for which in (kernels.V, kernels.W):
        side[best.members[which, : best.counts[which]]] = which
    chosen = fixed != UNUSED
    side[chosen] = fixed[chosen]
    compound, atom = best.divergences()
    return Found(side, atom, compound, best.done)


class _Try:
    """The arrays of one start, which the kernels change in place."""

    def __init__(self, units: Units, order: np.ndarray, aim: Aim, counter: np.ndarray) -> None:
        self.aim = aim
        self.places, self.count = order.copy(), len(order)
        self.members = np.zeros((2, len(order)), np.int64)
        self.counts = np.zeros(2, np.int64)
        self.done = 0
        self.price = np.array([aim.target, aim.cap, 0.0, PRICE])
        state = (np.zeros((2, 3)), *_tables(units.atoms), *_tables(units.compounds))
        lines = (
            units.atoms.line, units.compounds.line, units.atoms.weight, units.compounds.weight, units.rows,
        )  # fmt: skip
        holders, filled = np.zeros((units.atoms.size, 2), np.int64), np.zeros(2, np.int64)
        quota = np.array(aim.quota, np.int64)
        self.game: Any = (
            lines, units.atoms.arrays, units.compounds.arrays, state, self.price, holders, filled, quota, counter,
        )  # fmt: skip

    def grow(self) -> None:
        from gradatim.tasks.splits.divergent import kernels

        self.count = kernels.fill(self.places, self.count, self.members, self.counts, self.aim.candidates, self.game)

    @property
    def reached(self) -> int:
        from gradatim.tasks.splits.divergent import kernels

        return int(kernels.now(self.game))

    def improve(self) -> None:
        from gradatim.tasks.splits.divergent import kernels

        aim = self.aim
        args = (self.members, self.counts, aim.candidates, self.game, aim.least)
        self.count = kernels.mend(self.places, self.count, *args)
        tries = int(aim.exchanges * self.counts.sum())
        for above, whole in STAGES:
            self.price[2:] = whole, above
            self.done += kernels.exchange(tries, PATIENCE, self.places, self.count, *args)

    def divergences(self) -> tuple[float, float]:
        from gradatim.tasks.splits.divergent import kernels

        atoms, compounds, (sums, *_) = self.game[1], self.game[2], self.game[3]
        compound, atom = (
            float(kernels.divergence(sums[row, 2], sums[row, 0], sums[row, 1], bag[6]))
            for row, bag in ((0, compounds), (1, atoms))
        )
        return compound, atom


def _tables(bag: UnitBag) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((bag.size, 5)), np.zeros((4, len(bag.arrays[5])))

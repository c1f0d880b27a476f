"""Units that a search places whole: rows, groups of rows, and what a released split already holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.core.divergences import UNIT, Bag, Profile
from gradatim.tasks.core.pieces import pack, ranges

TERMS = 8
"""Terms of the binomial series of `kernels`."""


@dataclass(frozen=True)
class UnitBag:
    """The pieces of each unit.

    Attributes
    ----------
    line : numpy.ndarray, shape (units,), int64
    weight : numpy.ndarray, shape (units,), float64
        All its pieces together.
    arrays : tuple of numpy.ndarray
        As `kernels` describes a bag.
    size : int
        Number of pieces.
    """

    line: np.ndarray
    weight: np.ndarray
    arrays: tuple[np.ndarray, ...]
    size: int


@dataclass(frozen=True)
class Units:
    """What is placed: `rows` (units,) int64, with their atoms and compounds."""

    rows: np.ndarray
    atoms: UnitBag
    compounds: UnitBag

    def __len__(self) -> int:
        return len(self.rows)


def units_of(profile: Profile, unit: np.ndarray, count: int, alphas: tuple[float, float]) -> Units:
    """Add up the pieces of the rows of each unit.

    Parameters
    ----------
    profile : Profile
    unit : numpy.ndarray, shape (rows,), int64
        Unit of each row, -1 for a row that takes no part, as one without content must not.
    count : int
        Number of units; one may have no rows.
    alphas : tuple of float
        Exponents of V, for atoms and for compounds.
    """
    rows = np.bincount(unit[unit >= 0], minlength=count)
    bags = [_unit_bag(bag, unit, rows, alpha) for bag, alpha in zip((profile.atoms, profile.compounds), alphas,
                                                                    strict=True)]  # fmt: skip
    return Units(rows, bags[0], bags[1])


def _unit_bag(bag: Bag, unit: np.ndarray, rows: np.ndarray, alpha: float) -> UnitBag:
    used = np.flatnonzero(unit >= 0)
    alone = rows[unit[used]] == 1
    lines = len(bag.start) - 1
    line = np.full(len(rows), lines, np.int64)  # a unit without rows has the last line, which is empty
    line[unit[used[alone]]] = bag.line[used[alone]]
    start, code, weight = np.append(bag.start, bag.start[-1]), bag.code, bag.weight
    holders = np.ones(len(code), np.int64)
    together = used[~alone]
    if len(together):
        length = np.diff(bag.start)[bag.line[together]]
        entry = ranges(bag.start[:-1][bag.line[together]], length)
        joint, mine = np.unique(unit[together], return_inverse=True)
        line[joint] = lines + 1 + np.arange(len(joint))
        own = np.repeat(mine, length)
        both, first = pack([own, bag.code[entry]], [len(joint), max(1, bag.size)])
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, both, bag.weight[entry])
        counts = np.bincount(own[first], minlength=len(joint))
        start = np.concatenate([start, start[-1] + np.cumsum(counts)])
        code = np.concatenate([code, bag.code[entry][first]])
        weight = np.concatenate([weight, sums])
        holders = np.concatenate([holders, np.bincount(both, minlength=len(first))])
    level_of, first = pack([weight], [int(weight.max(initial=0)) + 1])
    levels = weight[first]
    pair, first = pack([code, level_of], [max(1, bag.size), max(1, len(levels))])
    piece, value = code[first], levels[level_of[first]] * UNIT
    sum_of = np.bincount(np.repeat(np.arange(len(start) - 1), np.diff(start)), weight, minlength=len(start) - 1)
    arrays = (
        start.astype(np.int64),
        pair.astype(np.int32),
        holders.astype(np.int32),
        piece.astype(np.int32),
        np.searchsorted(piece, np.arange(bag.size + 1)).astype(np.int64),
        value.astype(np.float64),
        series(alpha),
    )
    return UnitBag(line, sum_of[line] * UNIT, arrays, bag.size)


def series(alpha: float) -> np.ndarray:
    """Return the factors of the series of (1 + r)^a - 1 for a = alpha (V) and 1 - alpha (W), the exponent last."""
    n = np.arange(1, TERMS + 1)
    return np.array([[*((a - n + 1) / n), a] for a in (alpha, 1 - alpha)])

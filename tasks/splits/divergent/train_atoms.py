"""A cut that leaves the atoms of the test in train."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradatim.tasks.core.divergences import Bag
from gradatim.tasks.core.pieces import ranges
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import TRAIN, Cut, Pool


def keeps_atoms(
    cut: Cut, atoms: Bag, tested: Callable[[], np.ndarray], least: int, held: Callable[[], np.ndarray] | None = None
) -> Cut:
    """Return a cut that puts components back into train until each tested atom stands in `least` of its rows.

    Of the components that hold a missing atom the one drawn furthest from test goes back.

    Parameters
    ----------
    cut : Cut
    atoms : Bag
    tested : callable
        Gives the atoms of the out-of-distribution rows, bool, (atoms,), as they are now.
    least : int
        Where the pool has fewer rows with an atom, all of them go to train.
    held : callable, optional
        Gives the rows that a release holds in test, bool, (rows,), once a cut: neither they nor their components count.
    """

    def kept(pool: Pool, config: SplitConfig) -> np.ndarray:
        chosen = cut(pool, config)
        free = pool.rows if held is None else pool.rows & ~beside(held(), pool.code)
        wanted = np.where(tested(), np.minimum(atoms.holders(free), least), 0)
        length = np.append(np.diff(atoms.start), 0)
        while True:
            in_train = free & (chosen[pool.code] == TRAIN)
            short = atoms.holders(in_train) < wanted
            if not short.any():
                return chosen
            rows = np.flatnonzero(free & ~in_train & (atoms.line >= 0))
            entry = ranges(atoms.start[atoms.line[rows]], length[atoms.line[rows]])
            owner = np.repeat(rows, length[atoms.line[rows]])
            missing = short[atoms.code[entry]]
            code, component = atoms.code[entry][missing], pool.code[owner[missing]]
            order = np.lexsort((component, -pool.draw[component], code))
            first = order[np.concatenate([[True], np.diff(code[order]) > 0])]
            chosen[component[first]] = TRAIN

    return kept


def beside(rows: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Say which rows are of a component that some of `rows` (bool) are of; `code` is the component of each."""
    there: np.ndarray = (np.bincount(code[rows], minlength=int(code.max(initial=0)) + 1) > 0)[code]
    return there


def with_any(atoms: Bag, some: np.ndarray) -> np.ndarray:
    """Say which rows have an atom of `some` (bool, (atoms,))."""
    lines = np.zeros(len(atoms.start), np.bool_)  # the last is that of rows without atoms
    lines[np.repeat(np.arange(len(atoms.start) - 1), np.diff(atoms.start))[some[atoms.code]]] = True
    found: np.ndarray = lines[atoms.line]
    return found

"""Atoms and compounds of rows, whatever they are made of, and how far two sets of rows differ in them (DBCA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from gradatim.tasks.core.compounds import atoms as atoms_of
from gradatim.tasks.core.compounds import chernoff_divergence, compounds
from gradatim.tasks.core.distinct_trees import distinct
from gradatim.tasks.core.factor_cells import cell_numbers, read_factors
from gradatim.tasks.core.ngrams import hash_words
from gradatim.tasks.core.pieces import collect, pack
from gradatim.tasks.core.two_sample import chosen

SOURCE = "Keysers et al. (2020). Measuring Compositional Generalization: A Comprehensive Method on Realistic Data."
UNIT = 2.0**-20
"""Weights are whole multiples of this, so that their sums are exact in any order."""
TOP = 100_000
"""Compounds that count by default: those of the greatest weight in all rows."""
ATOMS, COMPOUNDS = 0.5, 0.1
"""Exponents of train in the Chernoff coefficients of DBCA."""


@dataclass(frozen=True)
class Bag:
    """Weighted pieces of rows as compressed sparse rows; rows of the same content share a line.

    Attributes
    ----------
    line : numpy.ndarray, shape (rows,), int64
        -1 for a row without content.
    start : numpy.ndarray, shape (lines + 1,), int64
    code : numpy.ndarray, shape (entries,), int64
        Each piece once a line. What a code stands for does not depend on the order of rows.
    weight : numpy.ndarray, shape (entries,), int64
        Above 0, in steps of `UNIT`.
    size : int
        Number of pieces.
    """

    line: np.ndarray
    start: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    size: int

    def totals(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Weight of each piece in the rows where `chosen` (bool) is true, float64, exact below 2^53 steps."""
        times = self._rows(chosen)
        return np.bincount(self.code, self.weight * times[self._lines()], minlength=self.size) * UNIT

    def holders(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Rows with each piece, int64."""
        held = np.bincount(self.code, self._rows(chosen)[self._lines()], minlength=self.size)
        return held.astype(np.int64)

    def _rows(self, chosen: np.ndarray | None) -> np.ndarray:
        mine = self.line if chosen is None else self.line[chosen]
        return np.bincount(mine[mine >= 0], minlength=len(self.start) - 1)

    def _lines(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@dataclass(frozen=True)
class Profile:
    """Atoms and compounds of rows.

    Attributes
    ----------
    atoms, compounds : Bag
    kind : str
        What they are, in words, e.g. "connected parts of 2 to 5 nodes, weighted".
    left_out : int
        Different compounds beyond those of the greatest weight, which do not count.
    """

    atoms: Bag
    compounds: Bag
    kind: str
    left_out: int

    @property
    def known(self) -> np.ndarray:
        """Rows that have atoms, bool."""
        known: np.ndarray = self.atoms.line >= 0
        return known


def tree_profile(trees: pl.Series, max_size: int = 5, *, top: int = TOP, ids: pl.Series | None = None) -> Profile:
    """Take labels as atoms and connected sub-graphs of 2 to `max_size` nodes, weighted, as compounds.

    Parameters
    ----------
    trees : polars.Series
        As for `distinct_trees.distinct`, which also says what is refused. A null has neither atoms nor compounds.
    max_size : int
    top : int
        Compounds to keep: those of the greatest weight in all rows, the first in the order of codes among equals.
    ids : polars.Series of String, optional
        Names of the rows, for errors.
    """
    found = distinct(trees, ids)
    single, large = atoms_of(found), compounds(found, max_size, weights=True)
    atoms = Bag(single.tree, single.indptr, single.code, _steps(single.count), single.size)
    bag = Bag(large.tree, large.indptr, large.code, _steps(large.weight), large.size)
    return _profile(atoms, bag, top, f"connected parts of 2 to {max_size} nodes, weighted")


def factor_profile(
    examples: pl.DataFrame, columns: Sequence[str], ways: Sequence[int] = (2,), *, top: int = TOP
) -> Profile:
    """Take values of factors as atoms, and values that occur together, two by two or more, as compounds, unweighted.

    Parameters
    ----------
    examples : polars.DataFrame
    columns : sequence of str
        As for `factor_cells.read_factors`. A row without a value of a factor lacks that atom and its compounds.
    ways : sequence of int
        How many factors a compound joins.
    top : int
    """
    found = read_factors(examples, columns)
    line, first = pack(
        [codes + 1 for codes in found.codes.T], [len(level) + 1 for level in found.levels]
    )  # rows of equal values share a line
    codes = found.codes[first]
    offsets = np.cumsum([0, *(len(level) for level in found.levels)])
    at, of = np.nonzero(codes >= 0)
    atoms = _bag(line, at, codes[at, of] + offsets[of], len(first), int(offsets[-1]))
    lines, cells, begin = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for r in ways:
        for some in combinations(range(len(found.names)), r):
            whole = np.flatnonzero((codes[:, some] >= 0).all(axis=1))
            number = cell_numbers(codes[whole][:, some], [len(found.levels[f]) for f in some])
            seen, cell = np.unique(number, return_inverse=True)
            lines.append(whole)
            cells.append(cell + begin)
            begin += len(seen)
    bag = _bag(line, np.concatenate(lines), np.concatenate(cells), len(first), begin)
    empty = (codes < 0).all(axis=1)[line]
    atoms, bag = (Bag(np.where(empty, -1, one.line), one.start, one.code, one.weight, one.size) for one in (atoms, bag))
    joined = " or ".join(map(str, ways))
    return _profile(atoms, bag, top, f"values of {joined} factors together, unweighted")


def text_profile(texts: pl.Series, max_size: int = 2, *, top: int = TOP) -> Profile:
    """Take words as atoms and runs of 2 to `max_size` words as compounds, unweighted; a text without words has none."""
    words = hash_words(texts, ignore_case=False)
    line = np.where(words.count > 0, np.arange(len(texts)), -1)
    parts = []
    for sizes in ((1,), tuple(range(2, max_size + 1))):
        grams = [words.ngrams(n) for n in sizes]
        text, key = (np.concatenate([gram[i] for gram in grams]) for i in (0, 1))
        seen, code = np.unique(key, return_inverse=True)
        parts.append(_bag(line, text, code, len(texts), len(seen)))
    return _profile(parts[0], parts[1], top, f"runs of 2 to {max_size} words, unweighted")


@dataclass(frozen=True)
class Divergences:
    """How far train and test differ.

    Attributes
    ----------
    atom, compound : float or None
        From 0, alike, to 1, disjoint; None where a side has none.
    train, test : int
        Rows with atoms.
    """

    atom: float | None
    compound: float | None
    train: int
    test: int


def divergences(
    profile: Profile, train: np.ndarray, test: np.ndarray, *, atoms: float = ATOMS, compounds: float = COMPOUNDS
) -> Divergences:
    """Measure two sets of rows.

    Parameters
    ----------
    profile : Profile
    train, test : numpy.ndarray of bool, shape (rows,)
    atoms, compounds : float
        Exponents of train.

    Notes
    -----
    Linear in the entries of different rows: a second for a million. Compounds of other definitions give other numbers:
    compare only what has the same `Profile.kind`.
    """
    found = []
    for bag, alpha in ((profile.atoms, atoms), (profile.compounds, compounds)):
        p, q = bag.totals(train), bag.totals(test)
        found.append(chernoff_divergence(p, q, alpha) if p.any() and q.any() else None)
    known = profile.known
    return Divergences(found[0], found[1], int((known & train).sum()), int((known & test).sum()))


def split_divergences(
    examples: pl.DataFrame, split: pl.Series, *, max_size: int = 5, most: int = 100_000, seed: int = 0
) -> Divergences:
    """Measure a split by the column `structure`: train against test_ood, or test where there is no test_ood.

    Parameters
    ----------
    examples : polars.DataFrame
        Columns example_id and structure; neither need be sorted.
    split : polars.Series of String, (rows,)
        The split of each row.
    max_size : int
    most : int
        Rows of each side that are looked at: those of the smallest uniform numbers. Rare compounds of a sample seem
        further apart than they are: compare with a control of the same sizes.
    seed : int
    """
    other = "test_ood" if (split == "test_ood").any() else "test"
    names = ("train", other)
    sides = [examples.filter(split == name).drop_nulls("structure") for name in names]
    sides = [side[chosen(side["example_id"], most, seed)] for side in sides]
    both = pl.concat([side.select("example_id", "structure") for side in sides])
    profile = tree_profile(both["structure"], max_size, ids=both["example_id"])
    first = np.arange(len(both)) < len(sides[0])
    return divergences(profile, first, ~first)


def _steps(weight: np.ndarray) -> np.ndarray:
    steps: np.ndarray = np.round(weight / UNIT).astype(np.int64)
    return steps


def _bag(line: np.ndarray, lines: np.ndarray, code: np.ndarray, count: int, size: int) -> Bag:
    pieces, _ = collect(line, lines, code, count, size)
    return Bag(line, pieces.indptr, pieces.code, _steps(pieces.count), size)


def _profile(atoms: Bag, bag: Bag, top: int, kind: str) -> Profile:
    """Keep the compounds of the greatest weight, and number them anew."""
    total = bag.totals()
    order = np.lexsort((np.arange(bag.size), -total))[:top]
    kept = np.zeros(bag.size, np.bool_)
    kept[order[total[order] > 0]] = True
    there = kept[bag.code] & (bag.weight > 0)
    number = np.cumsum(kept) - 1
    ends = np.concatenate([[0], np.cumsum(there)])[bag.start]
    size = int(kept.sum())
    fewer = Bag(bag.line, ends, number[bag.code[there]], bag.weight[there], size)
    return Profile(atoms, fewer, kind, int((total > 0).sum()) - size)

"""Scores of many respondents on many items, stored item by item, and cut into blocks that are computed in cache.

Where most cells are there, a block is a small dense matrix and its sums are matrix products; where few are, it is a run
of cells and its sums are segment sums. Both give the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

BLOCK = 1 << 15
"""Cells of a block: its temporaries stay in a core's cache, and in memory that is not handed back."""
DENSE = 0.2
"""Share of cells from which on a dense block is faster than segment sums."""
ABSENT = 2
"""Code of a missing cell in a dense array of scores."""


@dataclass(frozen=True)
class Cells:
    """Scores of n respondents on J items, item by item, respondents in order within an item.

    Attributes
    ----------
    pointer : (J + 1,) int64
        Item j's cells are [pointer[j], pointer[j + 1]); every item has at least one.
    who : (C,) uint16 (uint32 above 65,536 respondents)
        Respondent of each cell.
    score : (C,) uint8 of 0 and 1, float64, or float32 above 20 million fractional cells
    n : int
        Respondents.
    """

    pointer: np.ndarray
    who: np.ndarray
    score: np.ndarray
    n: int

    @property
    def items(self) -> int:
        """J."""
        return len(self.pointer) - 1

    @property
    def size(self) -> int:
        """C."""
        return len(self.who)

    @property
    def share(self) -> float:
        """Cells that are there, of all n x J."""
        return self.size / max(self.n * self.items, 1)

    @property
    def complete(self) -> bool:
        """Whether everyone answered everything."""
        return self.size == self.n * self.items

    @property
    def binary(self) -> bool:
        """Whether all scores are 0 or 1."""
        return self.score.dtype == np.uint8

    @property
    def answered(self) -> np.ndarray:
        """Respondents of each item, (J,)."""
        return np.diff(self.pointer)

    @property
    def item(self) -> np.ndarray:
        """Item of each cell, (C,) uint32."""
        return np.repeat(np.arange(self.items, dtype=np.uint32), self.answered)

    def item_totals(self) -> np.ndarray:
        """Sum of each item's scores, (J,) float64."""
        if not self.size:
            return np.zeros(self.items)
        return np.add.reduceat(self.score, self.pointer[:-1], dtype=np.float64)

    def respondent_totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Each respondent's sum of scores and number of cells, (n,) float64 and int64."""
        total, count = np.zeros(self.n), np.zeros(self.n, dtype=np.int64)
        for start in range(0, self.size, 1 << 22):
            part = slice(start, start + (1 << 22))
            total += np.bincount(self.who[part], self.score[part], self.n)
            count += np.bincount(self.who[part], minlength=self.n)
        return total, count

    @classmethod
    def of(cls, matrix: np.ndarray) -> Cells:
        """Take the cells of an (n, J) matrix of scores in [0, 1], NaN where missing; every column has one at least."""
        matrix = np.asarray(matrix)
        item, who = np.nonzero(np.isfinite(matrix.T))
        score = matrix[who, item]
        pointer = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=matrix.shape[1]))])
        return cls(pointer.astype(np.int64), who.astype(index_type(len(matrix))), compact(score), len(matrix))

    def matrix(self, kind: type = np.float64) -> np.ndarray:
        """Lay the cells out as an (n, J) matrix, NaN where missing."""
        full: np.ndarray = np.full((self.n, self.items), np.nan, dtype=kind)
        full[self.who, self.item] = self.score
        return full

    def take(self, items: np.ndarray) -> Cells:
        """Return the cells of some items, given by rising indices."""
        if len(items) == self.items and (items == np.arange(self.items)).all():
            return self
        chosen = np.zeros(self.items, dtype=bool)
        chosen[items] = True
        keep = np.repeat(chosen, self.answered)
        pointer = np.concatenate([[0], np.cumsum(self.answered[items])]).astype(np.int64)
        return Cells(pointer, self.who[keep], self.score[keep], self.n)

    def among(self, respondents: np.ndarray) -> tuple[Cells, np.ndarray]:
        """Keep some respondents, renumbered, and the items that they answered; returns these items' indices as well."""
        place = np.full(self.n, -1, dtype=np.int64)
        place[respondents] = np.arange(len(respondents))
        keep = place[self.who] >= 0
        counts = np.add.reduceat(keep, self.pointer[:-1], dtype=np.int64) if self.size else np.zeros(0, dtype=np.int64)
        stay = np.flatnonzero(counts)
        pointer = np.concatenate([[0], np.cumsum(counts[stay])]).astype(np.int64)
        who = place[self.who[keep]].astype(index_type(len(respondents)))
        return Cells(pointer, who, self.score[keep], len(respondents)), stay


def index_type(n: int) -> type:
    """Smallest type that numbers n respondents."""
    return np.uint16 if n <= 1 << 16 else np.uint32


def compact(score: np.ndarray) -> np.ndarray:
    """Store scores as uint8 where all are 0 or 1, else as they are (float32 above 20 million)."""
    if score.dtype == np.uint8:
        return score
    if ((score == 0) | (score == 1)).all():
        return score.astype(np.uint8)
    return score.astype(np.float64 if len(score) <= 20_000_000 else np.float32)


@dataclass(frozen=True)
class Dense:
    """A block of B items x n respondents; arrays of cells are (B, n).

    `score` (B, n) is 0 where missing, and `seen` (B, n) 1 where a cell is there, or None where all are.
    """

    score: np.ndarray
    seen: np.ndarray | None

    def by_item(self, x: np.ndarray) -> np.ndarray:
        """Give an item's number (B,) to its cells."""
        return x[:, None]

    def by_respondent(self, x: np.ndarray) -> np.ndarray:
        """Give a respondent's number (n,) to its cells."""
        return x

    def masked(self, cells: np.ndarray) -> np.ndarray:
        """Set missing cells to 0, in place."""
        if self.seen is not None:
            cells *= self.seen
        return cells

    def over_respondents(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sum each item's cells with weights (n, k): (B, k)."""
        return np.asarray(cells @ weights, dtype=np.float64)

    def over_items(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sum each respondent's cells with weights (B,): (n,)."""
        return np.asarray(weights @ cells, dtype=np.float64)


@dataclass(frozen=True)
class Sparse:
    """A block of B items as a run of cells; arrays of cells are (C,)."""

    score: np.ndarray
    who: np.ndarray
    pointer: np.ndarray
    counts: np.ndarray
    n: int

    def by_item(self, x: np.ndarray) -> np.ndarray:
        """Give an item's number (B,) to its cells."""
        return np.repeat(x, self.counts)

    def by_respondent(self, x: np.ndarray) -> np.ndarray:
        """Give a respondent's number (n,) to its cells."""
        return np.take(x, self.who)

    def masked(self, cells: np.ndarray) -> np.ndarray:
        """Nothing is missing in a run of cells."""
        return cells

    @cached_property
    def _rows(self) -> Any:
        from scipy.sparse import csr_array

        return csr_array((self.score, self.who, self.pointer), shape=(len(self.counts), self.n))

    @cached_property
    def _columns(self) -> Any:
        return self._rows.T

    def over_respondents(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sum each item's cells with weights (n, k): (B, k)."""
        self._rows.data = cells  # the pattern is checked once
        return np.asarray(self._rows @ np.ascontiguousarray(weights), dtype=np.float64)

    def over_items(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Sum each respondent's cells with weights (B,): (n,)."""
        self._columns.data = cells
        return np.asarray(self._columns @ weights, dtype=np.float64)


class Layout:
    """Cells cut into blocks, dense or sparse as fits their share.

    Parameters
    ----------
    cells : Cells
    kind : type
        float64 or float32 of the arithmetic.
    dense : bool, optional
        Force the layout; by default dense where a fifth of the cells or more are there.
    block : int
        Cells of a block.
    """

    def __init__(self, cells: Cells, kind: type, dense: bool | None = None, block: int = BLOCK) -> None:
        self.cells, self.kind = cells, kind
        self.dense = cells.share >= DENSE if dense is None else dense
        self.full: np.ndarray | None = None
        if self.dense:
            size = max(1, block // max(cells.n, 1))
            self.cuts = [(s, min(s + size, cells.items)) for s in range(0, cells.items, size)]
            self.full = cells.score.reshape(cells.items, cells.n) if cells.complete else self._spread()
        else:
            block *= 2
            cut = np.searchsorted(cells.pointer, np.arange(0, cells.size + block, block))
            cut = np.unique(np.minimum(np.concatenate([[0], cut, [cells.items]]), cells.items))
            self.cuts = [(int(s), int(e)) for s, e in itertools.pairwise(cut)]

    def _spread(self) -> np.ndarray:
        """Lay all cells out as (J, n), `ABSENT` where missing."""
        cells = self.cells
        full = np.full((cells.items, cells.n), ABSENT, dtype=cells.score.dtype)
        for start, end in self.cuts:
            some = slice(cells.pointer[start], cells.pointer[end])
            item = np.repeat(np.arange(start, end), np.diff(cells.pointer[start : end + 1]))
            full[item, cells.who[some]] = cells.score[some]
        return full

    def __iter__(self) -> Iterator[tuple[slice, Dense | Sparse]]:
        for start, end in self.cuts:
            yield slice(start, end), self.block(start, end)

    def block(self, start: int, end: int) -> Dense | Sparse:
        """Make the block of items [start, end)."""
        cells = self.cells
        if self.full is not None:
            score = self.full[start:end]
            if cells.complete:
                return Dense(score.astype(self.kind), None)
            seen = (score != ABSENT).astype(self.kind)
            score = score.astype(self.kind)
            score *= seen
            return Dense(score, seen)
        first, last = cells.pointer[start], cells.pointer[end]
        pointer = (cells.pointer[start : end + 1] - first).astype(np.int32)
        who, score = cells.who[first:last].astype(np.int32), cells.score[first:last].astype(self.kind)
        return Sparse(score, who, pointer, np.diff(pointer), cells.n)

"""How alike the symbols of trees are: the overlap of the symbols that stand above, below and beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradatim.tasks.core.local_structures import LocalStructures
from gradatim.tasks.core.pieces import pack, ranges

BLOCK = 1 << 20
"""Neighbours, or pairs of symbols, that are looked at together."""
NOBODY = -1


def blocks(lengths: np.ndarray) -> Iterator[tuple[int, int]]:
    """Cut ranges into blocks of about `BLOCK` elements; a range is never cut."""
    ends = np.cumsum(lengths)
    cuts = [0]
    while cuts[-1] < len(lengths):
        done = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, done + BLOCK, side="right"))))
    return pairwise(cuts)


@dataclass(frozen=True)
class _Neighbours:
    """Who stands on one side of each symbol: pairs (symbol, neighbour) of the reference as sorted keys."""

    width: int
    keys: np.ndarray
    owner: np.ndarray
    owned: np.ndarray  # sorted keys (owner, symbol) of the pairs that have an owner
    theirs: np.ndarray  # the neighbour of each of them

    @classmethod
    def of(cls, symbol: np.ndarray, neighbour: np.ndarray, owner: np.ndarray, width: int) -> _Neighbours:
        keys = symbol * width + neighbour
        order = np.argsort(keys)
        has = np.flatnonzero(owner != NOBODY)
        owned = owner[has] * width + symbol[has]
        by_owner = np.argsort(owned)
        return cls(width, keys[order], owner[order], owned[by_owner], neighbour[has[by_owner]])

    def compare(self, one: np.ndarray, other: np.ndarray, mine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the neighbours that two symbols share, and those of either, without what the tree `mine` owns."""
        code, first = pack([one, other], [self.width, self.width])
        shared = self._shared(one[first], other[first])[code]
        either = self._count(one) + self._count(other)
        for symbol, against, both in ((one, other, True), (other, one, False)):
            key = np.where(mine == NOBODY, NOBODY, mine * self.width + symbol)
            start = np.searchsorted(self.owned, key)
            lengths = np.searchsorted(self.owned, key, side="right") - start
            either -= lengths
            for begin, end in blocks(lengths):
                pair = np.repeat(np.arange(end - begin), lengths[begin:end])
                at = ranges(start[begin:end], lengths[begin:end])
                there, owner = self._find(against[begin:end][pair], self.theirs[at])
                # a neighbour that both own is taken away once
                gone = there if both else there & (owner != mine[begin:end][pair])
                shared[begin:end] -= np.bincount(pair[gone], minlength=end - begin)
        return shared, either - shared

    def _shared(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        swap = self._count(one) > self._count(other)
        one, other = np.where(swap, other, one), np.where(swap, one, other)
        start, lengths = np.searchsorted(self.keys, one * self.width), self._count(one)
        shared = np.zeros(len(one), dtype=np.int64)
        for begin, end in blocks(lengths):
            pair = np.repeat(np.arange(end - begin), lengths[begin:end])
            at = ranges(start[begin:end], lengths[begin:end])
            there, _ = self._find(other[begin:end][pair], self.keys[at] % self.width)
            shared[begin:end] = np.bincount(pair[there], minlength=end - begin)
        return shared

    def _count(self, symbol: np.ndarray) -> np.ndarray:
        ends = np.searchsorted(self.keys, np.arange(self.width + 1) * self.width)
        number: np.ndarray = np.diff(ends)[symbol]
        return number

    def _find(self, symbol: np.ndarray, neighbour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether each pair is one of the reference, and its owner."""
        key = symbol * self.width + neighbour
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return self.keys[at] == key, self.owner[at]


@dataclass(frozen=True)
class Similarity:
    """Similarity of symbols: mean over kinds of pairs of mean over sides of the Jaccard overlap of their neighbours.

    Kinds are parent and child, and adjacent siblings; sides before and after. A side on which neither symbol has a
    neighbour does not count, nor a kind without sides; where none is left the similarity is 0.
    """

    width: int
    sides: tuple[tuple[_Neighbours, _Neighbours], ...]

    @classmethod
    def of(cls, structures: LocalStructures, seen: np.ndarray, owner: np.ndarray) -> Similarity:
        """Look at the pairs that are `seen` (bool, shape (size,)); `owner` as in `easiness.score_unseen`."""
        width, sides = len(structures.labels), []
        for kind, roles in enumerate(structures.kinds):
            pairs = np.flatnonzero(seen & (structures.kind == kind))
            if len(roles) == 2 and len(pairs):
                before, after = structures.symbols[pairs, 0], structures.symbols[pairs, 1]
                sides.append(
                    (
                        _Neighbours.of(before, after, owner[pairs], width),
                        _Neighbours.of(after, before, owner[pairs], width),
                    )
                )
        return cls(width, tuple(sides))

    def __call__(self, one: np.ndarray, other: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Compare pairs of symbols.

        Parameters
        ----------
        one, other : numpy.ndarray of int64, shape (n,)
            Symbols as places in `LocalStructures.labels`.
        mine : numpy.ndarray of int64, shape (n,)
            Tree whose own pairs do not count, or `NOBODY`.

        Returns
        -------
        numpy.ndarray, shape (n,), float64 in [0, 1]
        """
        code, first = pack([one, other, mine + 1], [self.width, self.width, int(mine.max(initial=0)) + 2])
        one, other, mine = one[first], other[first], mine[first]
        total, kinds = np.zeros(len(one)), np.zeros(len(one))
        for pair in self.sides:
            added, counted = np.zeros(len(one)), np.zeros(len(one))
            for side in pair:
                shared, either = side.compare(one, other, mine)
                added += np.where(either > 0, shared / np.maximum(either, 1), 0.0)
                counted += either > 0
            total += added / np.maximum(counted, 1)
            kinds += counted > 0
        similarity: np.ndarray = (total / np.maximum(kinds, 1))[code]
        return similarity

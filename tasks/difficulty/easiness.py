"""How near an unobserved local structure comes to one that was seen: one symbol replaced by a similar one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.local_structures import LocalStructures
from gradatim.tasks.core.pieces import pack, ranges

BLOCK = 1 << 20
"""Replacements, or neighbours, that are looked at together."""
MOST = 200_000_000
"""Replacements beyond which the soft score is refused."""
NOBODY = -1


@dataclass(frozen=True)
class Unseen:
    """Scores of unobserved structures.

    Attributes
    ----------
    code : numpy.ndarray, shape (unseen,), int64
        Structures, ascending.
    easiness : numpy.ndarray, shape (unseen,), float64
        In [0, 1]; 0 where no replacement of one symbol was seen.
    nearest : numpy.ndarray, shape (unseen,), int64
        The seen structure with the most similar replacement, the lowest code of equals; -1 where easiness is 0.
    """

    code: np.ndarray
    easiness: np.ndarray
    nearest: np.ndarray


def score_unseen(structures: LocalStructures, unseen: np.ndarray, seen: np.ndarray, owner: np.ndarray) -> Unseen:
    """Score structures that were not seen.

    Parameters
    ----------
    structures : LocalStructures
    unseen : numpy.ndarray of int64
        Codes to score, ascending.
    seen : numpy.ndarray of bool, shape (size,)
        Whether the reference holds a structure.
    owner : numpy.ndarray of int64, shape (size,)
        The tree, if there is just one, whose example alone holds a structure of the reference; `NOBODY` otherwise. An
        owned structure is scored against the reference without its owner.

    Returns
    -------
    Unseen

    Raises
    ------
    UsageError
        If there are more than `MOST` replacements to try.

    Notes
    -----
    For each kind and place the seen structures are sorted by their other symbols; replacements are a range of them.
    Time is linear in the number of replacements times the neighbours of the rarer symbol; memory is a block's.
    """
    similar = _Similarity.of(structures, seen, owner)
    easiness, nearest = np.zeros(len(unseen)), np.full(len(unseen), -1, dtype=np.int64)
    work = []
    for kind, roles in enumerate(structures.kinds):
        targets = np.flatnonzero(structures.kind[unseen] == kind)
        pool = np.flatnonzero(seen & (structures.kind == kind))
        if not len(targets) or not len(pool):
            continue
        codes = np.concatenate([unseen[targets], pool])
        for place in range(len(roles)):
            others = [structures.symbols[codes, i] for i in range(len(roles)) if i != place]
            context, _ = pack(others, [len(structures.labels)] * len(others))
            theirs = np.argsort(context[len(targets) :], kind="stable")
            in_order = context[len(targets) :][theirs]
            low = np.searchsorted(in_order, context[: len(targets)])
            high = np.searchsorted(in_order, context[: len(targets)], side="right")
            work.append((place, targets, pool[theirs], low, high - low))
    total = sum(int(lengths.sum()) for *_, lengths in work)
    if total > MOST:
        raise UsageError(
            f"{total:,} replacements would have to be tried to score {len(unseen):,} unobserved structures",
            where="score: soft",
            expected=f"at most {MOST:,}",
            remedy="take  score: hard,  or trees whose labels are fewer (a class of words instead of each word)",
        )
    for place, targets, pool, low, lengths in work:
        for start, stop in _blocks(lengths):
            target = np.repeat(targets[start:stop], lengths[start:stop])
            found = pool[ranges(low[start:stop], lengths[start:stop])]
            mine = owner[unseen[target]]
            other = (mine == NOBODY) | (owner[found] != mine)
            target, found, mine = target[other], found[other], mine[other]
            sim = similar(structures.symbols[unseen[target], place], structures.symbols[found, place], mine)
            _keep_best(easiness, nearest, target, found, sim)
    return Unseen(unseen, easiness, nearest)


def _keep_best(
    easiness: np.ndarray, nearest: np.ndarray, target: np.ndarray, found: np.ndarray, sim: np.ndarray
) -> None:
    order = np.lexsort((found, -sim, target))
    order = order[sim[order] > 0]
    target, found, sim = target[order], found[order], sim[order]
    first = np.flatnonzero(np.diff(target, prepend=-1))
    target, found, sim = target[first], found[first], sim[first]
    better = (sim > easiness[target]) | ((sim == easiness[target]) & (found < nearest[target]))
    easiness[target[better]], nearest[target[better]] = sim[better], found[better]


def _blocks(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Cut ranges into blocks of about `BLOCK` elements; a range is never cut."""
    ends = np.cumsum(lengths)
    cuts = [0]
    while cuts[-1] < len(lengths):
        done = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, done + BLOCK, side="right"))))
    return list(pairwise(cuts))


@dataclass(frozen=True)
class _Neighbours:
    """Who stands on one side of each symbol: pairs (symbol, neighbour) of the reference as sorted keys."""

    width: int
    keys: np.ndarray
    owner: np.ndarray
    owned: np.ndarray  # sorted keys (owner, symbol) of the pairs that have an owner

    @classmethod
    def of(cls, symbol: np.ndarray, neighbour: np.ndarray, owner: np.ndarray, width: int) -> _Neighbours:
        keys = symbol * width + neighbour
        order = np.argsort(keys)
        has = owner != NOBODY
        return cls(width, keys[order], owner[order], np.sort(owner[has] * width + symbol[has]))

    def count(self, symbol: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Neighbours of each symbol, without those that belong to the tree `mine`."""
        everyone = self._end(symbol) - self._start(symbol)
        key = mine * self.width + symbol
        own = np.searchsorted(self.owned, key, side="right") - np.searchsorted(self.owned, key)
        others: np.ndarray = everyone - np.where(mine == NOBODY, 0, own)
        return others

    def common(self, one: np.ndarray, other: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Count the neighbours that two symbols share, without those that belong to the tree `mine`."""
        swap = self._end(one) - self._start(one) > self._end(other) - self._start(other)
        one, other = np.where(swap, other, one), np.where(swap, one, other)
        start, lengths = self._start(one), self._end(one) - self._start(one)
        shared = np.zeros(len(one), dtype=np.int64)
        for first, last in _blocks(lengths):
            pair = np.repeat(np.arange(first, last), lengths[first:last])
            at = ranges(start[first:last], lengths[first:last])
            key = other[pair] * self.width + self.keys[at] % self.width
            there = np.minimum(np.searchsorted(self.keys, key), max(len(self.keys) - 1, 0))
            both = self.keys[there] == key
            foreign = (mine[pair] == NOBODY) | ((self.owner[at] != mine[pair]) & (self.owner[there] != mine[pair]))
            shared += np.bincount(pair[both & foreign], minlength=len(one))
        return shared

    def _start(self, symbol: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.keys, symbol * self.width)

    def _end(self, symbol: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.keys, (symbol + 1) * self.width)


@dataclass(frozen=True)
class _Similarity:
    """Similarity of symbols: mean over kinds of mean over sides of the Jaccard overlap of their neighbours."""

    sides: tuple[tuple[_Neighbours, _Neighbours], ...]

    @classmethod
    def of(cls, structures: LocalStructures, seen: np.ndarray, owner: np.ndarray) -> _Similarity:
        sides = []
        for kind, roles in enumerate(structures.kinds):
            if len(roles) == 2:
                pairs = np.flatnonzero(seen & (structures.kind == kind))
                before, after = structures.symbols[pairs, 0], structures.symbols[pairs, 1]
                width = len(structures.labels)
                sides.append(
                    (
                        _Neighbours.of(before, after, owner[pairs], width),
                        _Neighbours.of(after, before, owner[pairs], width),
                    )
                )
        return cls(tuple(sides))

    def __call__(self, one: np.ndarray, other: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Similarity of each pair, float64 in [0, 1]; a side on which neither has a neighbour does not count."""
        code, first = pack([one, other, mine + 1], [int(x.max(initial=0)) + 1 for x in (one, other, mine + 1)])
        one, other, mine = one[first], other[first], mine[first]
        total, kinds = np.zeros(len(one)), np.zeros(len(one))
        for pair in self.sides:
            added, counted = np.zeros(len(one)), np.zeros(len(one))
            for side in pair:
                common = side.common(one, other, mine)
                union = side.count(one, mine) + side.count(other, mine) - common
                added += np.where(union > 0, common / np.maximum(union, 1), 0.0)
                counted += union > 0
            total += added / np.maximum(counted, 1)
            kinds += counted > 0
        similarity: np.ndarray = (total / np.maximum(kinds, 1))[code]
        return similarity

"""How near an unobserved local structure comes to one that was seen: one symbol replaced by a similar one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.local_structures import LocalStructures
from gradatim.tasks.core.pieces import pack, ranges
from gradatim.tasks.difficulty.structure.symbol_similarity import NOBODY, Similarity, blocks

MOST = 50_000_000
"""Replacements beyond which the soft score is refused."""


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
    similar = Similarity.of(structures, seen, owner)
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
        for start, stop in blocks(lengths):
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

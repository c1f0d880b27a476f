"""Whole units (components, clusters) into splits: sizes and strata within tolerances, as little leakage as possible.

The binary program of DataSAIL, by heuristics instead of a solver: regions grown around drawn units, then the best move
or swap until none helps.

Source: R. Joeres, D. B. Blumenthal, O. V. Kalinina (2025). Data splitting to avoid information leakage with DataSAIL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradatim.schemas.hashing import uniform
from gradatim.tasks.splits.cuts import largest_remainders
from gradatim.tasks.splits.packing_search import SEARCHED, Floats, Ints, State, Units, improve, loads

STARTS, FEWER, MANY = 48, 12, 200
"""Starting points of the search where there are similarities, and for more than so many units."""


@dataclass(frozen=True)
class Packed:
    """Where units were put.

    Attributes
    ----------
    place : numpy.ndarray, shape (u,), int64
        Split of each unit.
    missing : numpy.ndarray, shape (k, 1 + s), int64
        Rows that each split and stratum has too few.
    """

    place: Ints
    missing: Ints


def room(rows: int, shares: Sequence[float], epsilon: float) -> int:
    """Return the rows of the largest unit that some split can hold while all others get their least."""
    least = np.maximum(np.floor(np.round(np.asarray(shares) * rows * (1 - epsilon), 6)), 1).astype(np.int64)
    return int(rows - least.sum() + least.max())


def pack(units: Units, seed: int, purpose: str) -> Packed:
    """Put each unit into a split.

    Notes
    -----
    With similarities O(starts * moves * (u k s + u)); some seconds for 2,000 units. Without, or for more units: the
    `SEARCHED` largest one by one, then the rest in the order of their draws up to each split's room, O(u log u).
    """
    order = units.names.arg_sort().to_numpy()  # ties go to the smaller name, whatever order units come in
    alike = None if units.similarity is None else units.similarity[np.ix_(order, order)]
    units = replace(
        units, names=units.names.gather(order), rows=units.rows[order], fixed=units.fixed[order],
        mass=units.mass[order], similarity=alike,
    )  # fmt: skip
    best: tuple[tuple[int, int, int], Ints] | None = None
    seen: set[bytes] = set()
    for start in _starts(units, seed, purpose):
        state = State(units, start)
        improve(state, np.flatnonzero(units.fixed < 0), seen)
        if best is None or state.score < best[0]:
            best = state.score, state.place.copy()
    assert best is not None
    place = np.empty(len(order), np.int64)
    place[order] = best[1]
    return Packed(place, np.maximum(units.least - loads(units.rows, best[1], len(units.shares)), 0))


def _starts(units: Units, seed: int, purpose: str) -> Iterator[Ints]:
    """Give starting points: by size and draw, and, where there are similarities, also regions around drawn units."""
    draw = uniform(units.names, seed, purpose)
    yield _by_size(units, draw)
    if units.weight is not None and (units.fixed < 0).any():
        for number in range(1, STARTS if len(units.names) <= MANY else FEWER):
            draw = uniform(units.names, seed, f"{purpose} start {number}")
            yield _grown(units, draw) if number % 2 else _by_size(units, draw)


def _by_size(units: Units, draw: Floats) -> Ints:
    """Place the largest first, each by its draw among the splits that have room, and let the small ones fill up."""
    place = units.fixed.copy()
    load = loads(units.rows, place, len(units.shares))[:, 0]
    free = np.flatnonzero(place < 0)
    free = free[np.lexsort((draw[free], -units.rows[free, 0]))]
    single, small = free[:SEARCHED], free[SEARCHED:]
    for unit, size in zip(single.tolist(), units.rows[single, 0].tolist(), strict=True):
        room = np.maximum(units.target[:, 0] - load, 0)
        open_ = np.where(room >= size, room, 0)
        if not open_.any():
            chosen = int(np.argmax(units.target[:, 0] - load))
        else:
            # the last split has the largest share as a rule: small draws are held out, as everywhere
            reach = np.cumsum(open_[::-1])
            chosen = len(load) - 1 - int(np.searchsorted(reach, draw[unit] * reach[-1], side="right"))
        place[unit] = chosen
        load[chosen] += size
    if len(small):
        place[small] = _filled(units, place, small, draw[small])
    return place


def _filled(units: Units, place: Ints, small: Ints, draw: Floats) -> Ints:
    """Fill the room that each split has left in each stratum, in the order of the draws; a unit is of its main one."""
    splits, strata = len(units.shares), max(1, units.rows.shape[1] - 1)
    columns = units.rows[:, 1:] if units.rows.shape[1] > 1 else units.rows
    wanted = units.target[:, 1:] if units.rows.shape[1] > 1 else units.target
    room = np.maximum(wanted - loads(columns, place, splits), 0).astype(np.float64)
    size, home = units.rows[small, 0], np.argmax(columns[small], axis=1)
    order = np.lexsort((draw, home))
    middle = np.cumsum(size[order]) - size[order] / 2
    held = np.bincount(home, weights=size, minlength=strata)
    start = np.concatenate([[0.0], np.cumsum(held)])
    out = np.empty(len(small), np.int64)
    for stratum in np.flatnonzero(held):
        share = room[::-1, stratum] if room[:, stratum].any() else np.asarray(units.shares)[::-1]
        edge = np.cumsum(largest_remainders(share / share.sum() * held[stratum]))
        here = order[home[order] == stratum] if strata > 1 else order
        where = middle[int(np.searchsorted(home[order], stratum)) :][: len(here)] - start[stratum]
        out[here] = splits - 1 - np.minimum(np.searchsorted(edge, where, side="right"), splits - 1)
    return out


def _grown(units: Units, draw: Floats) -> Ints:
    """Grow each split but the largest around the free unit of the smallest draw, by the least cut a row."""
    weight = units.weight
    assert weight is not None
    place = units.fixed.copy()
    size = units.rows[:, 0]
    load = loads(units.rows, place, len(units.shares))[:, 0]
    order = np.argsort(units.target[:, 0], kind="stable")
    total = weight.sum(axis=1)
    for split in order[:-1].tolist():
        inside = weight[:, place == split].sum(axis=1)
        while (room := int(units.target[split, 0] - load[split])) > 0:
            fits = np.flatnonzero((place < 0) & (size <= room))
            if not len(fits):
                break
            if load[split]:
                cut = np.round((total[fits] - 2 * inside[fits]) / np.maximum(size[fits], 1), 3)
                chosen = int(fits[np.lexsort((draw[fits], cut))[0]])
            else:
                chosen = int(fits[np.argmin(draw[fits])])
            place[chosen] = split
            load[split] += size[chosen]
            inside += weight[:, chosen]
    place[place < 0] = order[-1]
    return place

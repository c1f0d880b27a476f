"""All pairs of vectors of at least a given cosine: exactly, or by lists around some of the vectors.

Blocks of float32 products propose pairs, with a margin that no rounding exceeds; each is measured again in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.neighbour_parts import Floats, Ints, faiss, matrix, norms_of, scaled
from gradatim.tasks.core.shingles import unique
from gradatim.tasks.core.vector_rows import AnyVectors, VectorRows, scratch, vector_rows

EXACT_ROWS = 50_000
"""Up to so many vectors all pairs are looked at where nobody says otherwise."""
LISTS_PROBED = 8
MOST = 64
"""Later rows that one row is paired with, at most, in one block or list."""
_ULP = 2.0**-24
_ROWS, _COLUMNS, _HELD, _SLICE = 1024, 8192, 2**22, 2**17


@dataclass(frozen=True)
class CosinePairs:
    """Pairs of rows, left before right, ascending, their cosine rounded to 1e-9, and how many were left out."""

    pairs: Ints
    similarity: Floats
    left_out: int


def cosine_pairs(
    vectors: AnyVectors, threshold: float, ids: pl.Series | None = None, *, lists_probed: int | None = None
) -> CosinePairs:
    """Find the pairs of vectors whose cosine is at least `threshold`.

    Parameters
    ----------
    vectors : array or VectorRows, shape (N, d)
        Finite, in the order of their ids; a vector of zeros is like none. Read some rows at a time.
    threshold : float in (0, 1]
    ids : polars.Series of str, optional
        Choose the vectors around which lists are made, by their hash; by default the numbers of the rows do.
    lists_probed : int, optional
        0: look at all pairs. k > 0: each vector belongs to the nearest of about sqrt(8 N) chosen vectors, and is
        measured against those that belong to one of its own k nearest: pairs may be missed, and at the edge which ones
        may depend on the machine. By default 0 up to `EXACT_ROWS` vectors, else `LISTS_PROBED`.

    Returns
    -------
    CosinePairs
        In a crowd each row is paired with no more than its `MOST` nearest later rows of a block; the rest is counted.

    Notes
    -----
    Exact: N² d / 2 products. Lists: 100,000 x 256 in 2 to 5 s on two cores, 1M in 90 s. Held are 8 bytes a row, and 8
    to 16 a pair; the vectors scaled to length 1, 4 d bytes a row, and which lists they look into, 12 bytes a row and
    list probed, are on disk beyond 64 MB each.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"threshold {threshold}", where="cosine pairs", expected="a number in (0, 1]")
    rows = vectors if isinstance(vectors, VectorRows) else vector_rows(matrix(vectors, "cosine pairs"))
    norms = np.concatenate([np.empty(0), *(norms_of(part) for _, part in rows.slices())])
    used = np.flatnonzero(norms > 0)
    if len(used) < len(rows):
        rows, norms = rows.view(used), norms[used]
    unit = scratch(*rows.shape)
    for some, part in rows.slices():
        unit[some] = scaled(np.ascontiguousarray(part, dtype=np.float32), norms[some])
    least = np.float32(threshold - (rows.shape[1] + 8) * 2.02 * _ULP)
    if lists_probed is None:
        lists_probed = 0 if len(used) <= EXACT_ROWS else LISTS_PROBED
    if lists_probed > 0:
        found, left_out = _by_lists(unit, least, used, ids, lists_probed)
    else:
        found, left_out = _all(unit, least)
    pairs, similarity = _measured(rows, norms, found, threshold)
    return CosinePairs(used[pairs], similarity, left_out)


def _all(unit: NDArray[np.float32], least: np.float32) -> tuple[Ints, int]:
    found: list[Ints] = []
    left_out = 0
    for start in range(0, len(unit), _ROWS):
        for first in range(start, len(unit), _COLUMNS):
            close = unit[start : start + _ROWS] @ unit[first : first + _COLUMNS].T
            if first < start + _ROWS:
                later = np.arange(first, first + close.shape[1]) > np.arange(start, start + len(close))[:, None]
                close[~later] = -2
            one, two, beyond = _above(close, least)
            found.append((one + start) * len(unit) + two + first)
            left_out += beyond
    return np.concatenate(found) if found else np.empty(0, np.int64), left_out


def _by_lists(
    unit: NDArray[np.float32], least: np.float32, used: Ints, ids: pl.Series | None, probed: int
) -> tuple[Ints, int]:
    count = len(unit)
    lists = max(1, min(count, round(math.sqrt(8 * count))))
    centre = unit[_chosen(used, ids, lists)]
    probed = min(probed, lists)
    order, edge = _guests(unit, centre, probed)
    every, left_out = np.empty(0, np.int64), 0
    waiting: list[Ints] = []
    for number in range(lists):
        guests = np.array(order[edge[number] : edge[number + 1]])
        members = guests[guests % probed == 0] // probed
        guests = guests // probed
        for one, two, beyond in _join(unit, members, guests, least):
            waiting.append(np.minimum(one, two) * count + np.maximum(one, two))
            left_out += beyond
        if sum(map(len, waiting)) > _HELD or number == lists - 1:
            every, waiting = unique(np.concatenate([every, *waiting])), []
    return every, left_out


def _chosen(used: Ints, ids: pl.Series | None, lists: int) -> Ints:
    """Choose rows by the hash of their ids."""
    best = pl.DataFrame(schema={"bits": pl.UInt64, "id": pl.String, "row": pl.Int64})
    for start in range(0, len(used), _SLICE):
        some = used[start : start + _SLICE]
        names = pl.Series(some).cast(pl.String) if ids is None else ids.gather(some)
        bits = random_bits(names, 0, "lists of vectors")
        more = pl.DataFrame({"bits": bits, "id": names, "row": np.arange(start, start + len(some))})
        best = pl.concat([best, more]).sort("bits", "id").head(lists)
    return best["row"].to_numpy()


def _guests(unit: NDArray[np.float32], centre: NDArray[np.float32], probed: int) -> tuple[Ints, Ints]:
    """Sort rows by the lists among whose nearest they are, as ``row * probed + place``; and say where each list begins.

    Counted, then laid out slice by slice, so that nothing is sorted as a whole.
    """
    near = scratch(len(unit), probed, np.int32)
    size = np.zeros(len(centre), dtype=np.int64)
    for start in range(0, len(unit), _SLICE):
        part = slice(start, start + _SLICE)
        near[part] = faiss().knn(unit[part], centre, probed, metric=faiss().METRIC_INNER_PRODUCT)[1]
        size += np.bincount(near[part].ravel(), minlength=len(centre))
    edge = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    order = scratch(len(unit) * probed, 1, np.int64)[:, 0]
    free = edge[:-1].copy()
    for start in range(0, len(unit), _SLICE):
        number = near[start : start + _SLICE].ravel()
        sorted_here = np.argsort(number, kind="stable")
        number = number[sorted_here]
        many = np.bincount(number, minlength=len(centre))
        within = np.arange(len(number)) - np.repeat(np.cumsum(many) - many, many)
        order[free[number] + within] = sorted_here + start * probed
        free += many
    return order, edge


def _join(
    unit: NDArray[np.float32], members: Ints, guests: Ints, least: np.float32
) -> Iterator[tuple[Ints, Ints, int]]:
    """Measure a list's members against its guests (its members are among them): blocks of pairs."""
    held = unit[guests]
    for start in range(0, len(members), _ROWS):
        some = members[start : start + _ROWS]
        for first in range(0, len(guests), _COLUMNS):
            close = unit[some] @ held[first : first + _COLUMNS].T
            close[some[:, None] == guests[None, first : first + _COLUMNS]] = -2
            one, two, beyond = _above(close, least)
            yield some[one], guests[two + first], beyond


def _above(close: NDArray[np.float32], least: np.float32) -> tuple[Ints, Ints, int]:
    """Return rows and columns of what reaches `least`, the `MOST` largest of each row, and how many were dropped."""
    one, two = np.divmod(np.flatnonzero(close.ravel() >= least), close.shape[1])
    many = np.bincount(one, minlength=len(close)) if len(one) else np.zeros(1, np.int64)
    if many.max(initial=0) <= MOST:
        return one, two, 0
    order = np.lexsort((two, -close[one, two], one))
    one, two = one[order], two[order]
    rank = np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many)
    kept = rank < MOST
    return one[kept], two[kept], int((~kept).sum())


def _measured(rows: VectorRows, norms: Floats, coded: Ints, threshold: float) -> tuple[Ints, Floats]:
    coded = unique(coded)
    pairs = np.stack([coded // max(1, len(rows)), coded % max(1, len(rows))], axis=1)
    similarity = np.empty(len(pairs))
    step = max(1, _HELD // rows.shape[1])
    for start in range(0, len(pairs), step):
        one, two = pairs[start : start + step].T
        products = np.einsum("nd,nd->n", rows[one].astype(np.float64), rows[two].astype(np.float64))
        similarity[start : start + step] = products / norms[one] / norms[two]
    similarity = np.minimum(np.round(similarity, 9), 1.0)
    kept = similarity >= threshold - 1e-9
    return pairs[kept], similarity[kept]

"""What the search for neighbours is made of: keys that sort, equal vectors as groups, faiss and its threads.

A key is an int64 that sorts by (distance rounded to 1e-9, place in the order of ids): the distance, as a whole number
of at most 31 bits, above the place in the low 32 bits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError

SLICE = 32
"""Queries whose candidates are measured together: small enough for a processor's cache."""
ROWS = 8192
"""Rows that are converted together."""
UNIT = 10**9
"""Distances are whole multiples of 1e-9."""
LOW = 0xFFFFFFFF
NONE = np.iinfo(np.int64).max
"""The key where there is no neighbour."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Equal vectors, which are searched once.

    Attributes
    ----------
    members : numpy.ndarray, shape (N,), int64
        Rows, group by group, those of one group in the order of ids.
    starts : numpy.ndarray, shape (groups + 1,), int64
        Members of group g are ``members[starts[g] : starts[g + 1]]``.
    first : numpy.ndarray, shape (groups,), int64
        Place of each group's first member in the order of ids; ascending.
    """

    members: Ints
    starts: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.first)

    def unfold(self, best: Ints, k: int, own: Ints, tie: Ints) -> Ints:
        """Replace groups by their members, leave each query itself out, and keep the nearest `k`.

        Parameters
        ----------
        best : array, shape (Q, c)
            Keys of groups, ascending.
        own : array, shape (Q,)
            Place of each query itself in the order of ids, or -1.
        tie : array, shape (N,)
            Place of each row in the order of ids.
        """
        if len(self) == len(tie):
            keys = np.where((best & LOW) == own[:, None], NONE, best)
            keys.sort(axis=1)
            return padded(keys, k)
        out = np.full((len(best), k), NONE, dtype=np.int64)
        numbers = np.empty(len(tie), dtype=np.int64)
        numbers[self.first] = np.arange(len(self))
        for start in range(0, len(best), SLICE):
            part = best[start : start + SLICE]
            found = part != NONE
            group = numbers[np.where(found, part & LOW, self.first[0])]
            size = np.where(found, np.minimum(self.starts[group + 1] - self.starts[group], k + 1), 0)
            # a group behind k + 1 members that are strictly nearer adds nothing
            before = np.cumsum(size, axis=1) - size
            farther = np.concatenate([np.ones((len(part), 1), bool), np.diff(part >> 32, axis=1) != 0], axis=1)
            size[np.maximum.accumulate(np.where(farther, before, 0), axis=1) > k] = 0
            flat_size, total = size.ravel(), size.sum(axis=1)
            row = np.repeat(np.arange(len(part)), total)
            within = np.arange(len(row)) - np.repeat(np.cumsum(flat_size) - flat_size, flat_size)
            place = tie[self.members[np.repeat(self.starts[group].ravel(), flat_size) + within]]
            flat = (np.repeat(part.ravel() >> 32, flat_size) << 32) | place
            flat[place == own[start : start + SLICE][row]] = NONE
            keys = np.full((len(part), int(total.max(initial=0))), NONE, dtype=np.int64)
            keys[row, np.arange(len(row)) - np.repeat(np.cumsum(total) - total, total)] = flat
            keys.sort(axis=1)
            out[start : start + SLICE] = padded(keys, k)
        return out


def equal_groups(rows: Any, by_tie: Ints, tie: Ints) -> Groups:
    """Find equal vectors of float32 by their 128-bit hash; `rows` is sliced, an array or `VectorRows`.

    `by_tie` holds the rows in the order of ids, `tie` is its inverse.
    """
    parts = []
    for start in range(0, len(rows), ROWS):
        plain = rows[start : start + ROWS] + np.float32(0)  # one zero
        parts.append(b"".join(map(xxhash.xxh3_128_digest, plain)))
    digests = np.frombuffer(b"".join(parts), dtype=np.uint64).reshape(-1, 2)
    frame = pl.DataFrame({"a": digests[:, 0], "b": digests[:, 1], "tie": tie})
    frame = frame.with_columns(pl.col("tie").min().over("a", "b").alias("first")).sort("first", "tie")
    first = frame["first"].to_numpy()
    new = np.flatnonzero(np.diff(first, prepend=-1)) if len(first) else np.zeros(0, dtype=np.int64)
    members = by_tie[frame["tie"].to_numpy()]
    return Groups(members, np.append(new, len(first)).astype(np.int64), first[new])


def faiss() -> Any:
    """Import faiss, which is heavy, when it is needed."""
    import faiss as module

    return module


@contextmanager
def openmp(module: Any, threads: int | None) -> Iterator[None]:
    """Hold faiss to a number of threads, and give back the number that was set before."""
    before = module.omp_get_max_threads()
    module.omp_set_num_threads(max(1, min(threads or before, os.cpu_count() or 1)))
    try:
        yield
    finally:
        module.omp_set_num_threads(before)


def matrix(found: NDArray[Any], where: str) -> NDArray[np.float32]:
    """Take rows as float32, or raise `UsageError`."""
    rows = np.asarray(found)
    if rows.ndim != 2 or rows.shape[1] == 0 or rows.dtype.kind not in "fiub":
        raise UsageError(
            f"an array of shape {rows.shape} and type {rows.dtype}", where=where, expected="(N, d) numbers"
        )
    return np.ascontiguousarray(rows, dtype=np.float32)


def norms_of(rows: NDArray[np.float32]) -> Floats:
    """Return the 2-norm of each row, summed in float64: no float32 is too large or too small for that."""
    norms = np.empty(len(rows))
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS].astype(np.float64)
        norms[start : start + ROWS] = np.sqrt(np.einsum("nd,nd->n", part, part))
    return norms


def scaled(rows: NDArray[np.float32], norms: Floats) -> NDArray[np.float32]:
    """Return rows of length 1; those of zeros stay."""
    unit = np.empty_like(rows)
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        unit[part] = rows[part].astype(np.float64) / np.where(norms[part] > 0, norms[part], 1.0)[:, None]
    return unit


def shifted(rows: NDArray[np.float32], centre: Floats, unit: float) -> NDArray[np.float32]:
    """Return rows less `centre`, in multiples of `unit`."""
    near = np.empty_like(rows)
    for start in range(0, len(rows), ROWS):
        with np.errstate(over="ignore"):  # an infinite figure is seen, and measured in float64
            near[start : start + ROWS] = (rows[start : start + ROWS].astype(np.float64) - centre) / unit
    return near


def power_of_two(least: Any) -> Any:
    """Return the smallest power of two of at least `least`, so that it divides without rounding."""
    return np.exp2(np.ceil(np.log2(np.maximum(least, 2.0**-1000))))


def mean(rows: NDArray[np.float32]) -> Floats:
    """Return the mean row, summed in the order of rows."""
    total = np.zeros(rows.shape[1])
    for start in range(0, len(rows), ROWS):
        total += rows[start : start + ROWS].astype(np.float64).sum(axis=0)
    return total / max(1, len(rows))


def padded(keys: Ints, k: int) -> Ints:
    """Return k keys a row, `NONE` where there are fewer."""
    if keys.shape[1] >= k:
        return keys[:, :k]
    return np.concatenate([keys, np.full((len(keys), k - keys.shape[1]), NONE, dtype=np.int64)], axis=1)

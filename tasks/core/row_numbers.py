"""One number a row, made some rows at a time and kept on disk where rows are many: a million more cost no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.vector_rows import scratch

HELD = 2**21
"""Bytes up to which numbers of rows stay in memory (2 MB)."""
SLICE = 2**17
"""Rows that are looked at together."""

Ints = NDArray[Any]


def per_row(rows: int, dtype: Any = np.float64, fill: Any = 0) -> NDArray[Any]:
    """Return an array of one number a row, filled: on disk beyond `HELD` bytes (`scratch`)."""
    out = scratch(rows, 1, dtype, held=HELD)[:, 0]
    if fill != 0:
        for part in slices(rows):
            out[part] = fill
    return out


def slices(rows: int, step: int = 0) -> Iterator[slice]:
    """Give the rows `SLICE` or `step` at a time."""
    step = step or SLICE
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def mapped_over(rows: int, made: Callable[[slice], NDArray[Any]], dtype: Any = np.float64) -> NDArray[Any]:
    """Make numbers of rows some rows at a time."""
    out = per_row(rows, dtype)
    for part in slices(rows):
        out[part] = made(part)
    return out


def numbered(rows: int) -> Ints:
    """Return 0, 1, ... of all rows, in 32 bits where that is enough."""
    return mapped_over(rows, lambda part: np.arange(part.start, part.stop), np.int32 if rows < 2**31 else np.int64)


def bits_of(ids: pl.Series, seed: int, purpose: str, rows: Ints | None = None) -> NDArray[np.uint64]:
    """Draw 64 random bits for the ids of all rows, or of some (`schemas.hashing.random_bits`)."""
    if rows is None:
        return mapped_over(len(ids), lambda part: random_bits(ids[part], seed, purpose), np.uint64)
    return mapped_over(len(rows), lambda part: random_bits(ids.gather(rows[part]), seed, purpose), np.uint64)


def smallest(values: NDArray[Any], size: int) -> Ints:
    """Return the places, ascending, of the `size` smallest values; of equal ones the first."""
    held = np.zeros(0, dtype=np.int64)
    for part in slices(len(values), max(SLICE, size)):
        held = np.concatenate([held, np.arange(part.start, part.stop)])
        if len(held) > size:
            held = np.sort(held[np.argsort(values[held], kind="stable")[:size]])
    return held


def codes_of(column: pl.Series, names: Sequence[Any] | pl.Series) -> Ints:
    """Return the place of each row's value among `names`, -1 for others and nulls."""
    places = pl.Series(range(len(names)), dtype=pl.Int32)

    def of(part: slice) -> NDArray[Any]:
        found = column[part].replace_strict(names, places, default=-1, return_dtype=pl.Int32)
        return np.asarray(found.fill_null(-1).to_numpy())

    return mapped_over(len(column), of, np.int32)


def counted(column: pl.Series) -> pl.DataFrame:
    """Count the rows of each value that is not null: name and n, the most frequent first, ties by name."""
    found = pl.DataFrame(schema={"name": column.dtype, "n": pl.UInt32})
    for part in slices(len(column)):
        some = column[part].drop_nulls().alias("name").value_counts(name="n")
        found = pl.concat([found, some.cast({"n": pl.UInt32})]).group_by("name").agg(pl.col("n").sum())
    return found.sort("n", "name", descending=[True, False])


def counts(codes: Ints, size: int) -> NDArray[np.int64]:
    """Count the rows of each code in [0, size); those below are left out."""
    total = np.zeros(size, dtype=np.int64)
    for part in slices(len(codes)):
        total += np.bincount(codes[part][codes[part] >= 0], minlength=size)
    return total


def by_code(codes: Ints, size: int) -> tuple[Ints, NDArray[np.int64]]:
    """Sort rows by their code in [0, size), in their order within each; rows of -1 are left out.

    Returns
    -------
    rows : numpy.ndarray of int
    starts : numpy.ndarray of int64, shape (size + 1,)
        Rows of code i are ``rows[starts[i]:starts[i + 1]]``.
    """
    starts = np.concatenate([[0], np.cumsum(counts(codes, size))])
    rows = per_row(int(starts[-1]), np.int32 if len(codes) < 2**31 else np.int64)
    following = starts[:-1].copy()
    for part in slices(len(codes)):
        some = codes[part]
        order = np.argsort(some, kind="stable")
        order = order[some[order] >= 0]
        number = np.bincount(some[order], minlength=size)
        within = np.arange(len(order)) - np.repeat(np.cumsum(number) - number, number)
        rows[np.repeat(following, number) + within] = order + part.start
        following += number
    return rows, starts


def windows(values: NDArray[Any], spans: Sequence[tuple[int, int]]) -> Iterator[Ints]:
    """Give the places of the values that rank from `start` to before `stop`, ties by place, in that order."""
    ranked = mapped_over(len(values), lambda part: values[part], values.dtype)
    ranked.sort()
    for start, stop in spans:
        low, high = ranked[start], ranked[stop - 1]
        found = []
        before = 0
        for part in slices(len(values)):
            some = values[part]
            before += int((some < low).sum())
            found.append(np.flatnonzero((some >= low) & (some <= high)) + part.start)
        places = np.concatenate(found)
        yield places[np.argsort(values[places], kind="stable")][start - before : stop - before]


def twice(ids: pl.Series) -> Any:
    """Return the first of sorted ids that stands twice, None where each stands once."""
    for part in slices(len(ids)):
        some = ids[max(0, part.start - 1) : part.stop]
        equal = some[1:].eq_missing(some[:-1])
        if equal.any():
            return some[int(equal.arg_max() or 0) + 1]
    return None


def matched(left: pl.Series, right: pl.Series) -> tuple[Ints, Ints]:
    """Find where sorted unique ids stand in both: places in `left` and in `right`, ascending. A null is in neither."""
    found: list[tuple[Ints, Ints]] = [(np.zeros(0, dtype=np.int32),) * 2]
    null = left.null_count()
    for part in slices(len(left) - null):
        part = slice(part.start + null, part.stop + null)
        some = left[part]
        first, last = right.search_sorted(some[0], side="left"), right.search_sorted(some[-1], side="right")
        pairs = (
            pl.DataFrame({"id": some, "left": np.arange(part.start, part.stop, dtype=np.int32)})
            .join(pl.DataFrame({"id": right[first:last], "right": np.arange(first, last, dtype=np.int32)}), on="id")
            .sort("left")
        )
        found.append((pairs["left"].to_numpy(), pairs["right"].to_numpy()))
    one, other = (np.concatenate([pair[side] for pair in found]) for side in (0, 1))
    return one, other

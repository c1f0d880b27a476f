"""Sums of floats that come out the same on any machine, thread count or cut into batches.

Floating-point addition is not associative, so the order of a sum is part of its result. Here it is fixed: rows stand in
a canonical order that the caller gives (by id or by value), are cut into blocks of `BLOCK` rows whatever batches they
came in, and blocks are merged as a balanced binary tree.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError

BLOCK = 4096
"""Rows of one partial sum."""
_TOGETHER = 2**17  # numbers that are added up together: a power of two, so that the tree of sums stays the same

Floats = NDArray[np.float64]


def ordered_sum(values: ArrayLike, *, sort: bool = True) -> float:
    """Sum numbers in an order that depends on the numbers alone.

    Parameters
    ----------
    values : array-like of float, shape (n,)
    sort : bool
        Sort by value first, so that the order of rows does not matter; False where it is canonical already.

    Returns
    -------
    float
        0.0 for no values; NaN if one is NaN. Error at most ``log2(n)`` roundings.

    Notes
    -----
    Additions are element by element in a binary tree, so no instruction set changes them. O(n log n); 1M in 0.1 s.
    """
    ordered = _copied(values)
    if sort:
        ordered.sort()
    if ordered.size > _TOGETHER:  # the same tree, of which no more than a block is held at a time
        starts = range(0, ordered.size, _TOGETHER)
        ordered = np.array([ordered_sum(ordered[start : start + _TOGETHER], sort=False) for start in starts])
    while ordered.size > 1:
        half = ordered.size // 2
        rest = ordered[2 * half :]
        ordered = np.concatenate([ordered[: 2 * half : 2] + ordered[1 : 2 * half : 2], rest])
    return float(ordered[0]) if ordered.size else 0.0


def sorted_sum(values: ArrayLike) -> float:
    """Sum numbers one after the other by value, as `group_sums` does of one group; memory does not grow with them."""
    ordered, total = _copied(values), 0.0
    ordered.sort()
    for start in range(0, ordered.size, _TOGETHER):
        part = np.concatenate([[total], ordered[start : start + _TOGETHER]])
        total = float(np.bincount(np.zeros(len(part), dtype=np.int64), weights=part)[0])
    return total


def _copied(values: ArrayLike) -> Floats:
    """Copy numbers: on disk where they are many."""
    from gradatim.tasks.core.row_numbers import mapped_over

    numbers = np.asarray(values).ravel()
    if numbers.size <= _TOGETHER:
        return np.array(numbers, dtype=np.float64)
    return mapped_over(numbers.size, lambda part: numbers[part])


def group_sums(groups: ArrayLike, values: ArrayLike, size: int) -> Floats:
    """Sum `values` in each group, whatever the order of rows.

    Parameters
    ----------
    groups : array-like of int, shape (n,), in [0, size)
    values : array-like of float, shape (n,)
    size : int
        Number of groups.

    Returns
    -------
    numpy.ndarray, shape (size,), float64
        0.0 for an empty group.

    Notes
    -----
    Whole numbers add exactly in any order; others are sorted by (group, value) first. 1M rows: 5 ms or 0.2 s.
    """
    codes = np.asarray(groups, dtype=np.int64)
    numbers = np.asarray(values, dtype=np.float64)
    if not np.array_equal(numbers, np.rint(numbers)):
        order = np.lexsort((numbers, codes))
        codes, numbers = codes[order], numbers[order]
    return np.bincount(codes, weights=numbers, minlength=size).astype(np.float64)


@dataclass(frozen=True)
class Moments:
    """Partial sums over rows of a matrix: count `n`, `total` of shape (d,), `gram` of shape (d, d), i.e. XᵀX."""

    n: int
    total: Floats
    gram: Floats

    def __add__(self, other: Moments) -> Moments:
        if self.total.shape != other.total.shape:
            raise UsageError(
                f"vectors of {other.total.size} numbers cannot be added to vectors of {self.total.size}",
                expected="one width for all rows",
            )
        return Moments(self.n + other.n, self.total + other.total, self.gram + other.gram)


def moments(
    batches: Iterable[NDArray[Any]],
    *,
    prepare: Callable[[NDArray[Any]], Floats] | None = None,
    threads: int | None = None,
) -> Moments:
    """Accumulate the moments of the rows of a stream of matrices; the cut into batches does not matter.

    Parameters
    ----------
    batches : iterable of arrays, each of shape (rows, d)
        In canonical order of rows; not changed after they are given. Float32 becomes float64 a block at a time.
    prepare : callable, optional
        Turns a block of rows into the rows that are added up, e.g. to normalise them; may leave rows out.
    threads : int, optional
        Blocks that are worked on at the same time, by default one a processor; the result does not depend on it.

    Raises
    ------
    UsageError
        If there is no batch, so that the width is unknown, or widths differ.

    Notes
    -----
    O(n d²) time, O(d²) memory: partial sums wait in a stack as in a binary counter, at most log2(n / BLOCK) of them.
    """
    waiting: list[tuple[int, Moments]] = []
    for partial in _partials(batches, prepare, processors() if threads is None else threads):
        item = (0, partial)
        while waiting and waiting[-1][0] == item[0]:
            level, earlier = waiting.pop()
            item = (level + 1, earlier + item[1])
        waiting.append(item)
    if not waiting:
        raise UsageError("there is no row to add up", expected="at least one batch of vectors")
    return reduce(lambda right, left: left + right, [partial for _, partial in reversed(waiting)])


def merge(partials: Sequence[Moments]) -> Moments:
    """Merge the moments of parts, in canonical order of the parts, as a balanced binary tree."""
    if not partials:
        raise UsageError("there is no part to merge", expected="the moments of at least one part")
    level = list(partials)
    while len(level) > 1:
        level = [level[i] + level[i + 1] if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def one_thread() -> AbstractContextManager[Any]:
    """Hold NumPy's linear algebra to one thread, whose order of additions does not depend on the machine's cores."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()  # looks through the loaded libraries: once


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _partials(
    batches: Iterable[NDArray[Any]], prepare: Callable[[NDArray[Any]], Floats] | None, threads: int
) -> Iterator[Moments]:
    """Add up each block, some blocks at a time, and give the sums in order."""

    def partial(block: NDArray[Any]) -> Moments:
        rows = block.astype(np.float64, copy=False) if prepare is None else prepare(block)
        return Moments(len(rows), rows.sum(axis=0), rows.T @ rows)

    with one_thread(), ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Moments]] = deque()
        for block in _blocks(batches):
            pending.append(pool.submit(partial, block))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _blocks(batches: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Re-cut batches into blocks of `BLOCK` rows."""
    kept: list[NDArray[Any]] = []
    rows = 0
    for batch in batches:
        rest = np.asarray(batch)
        rest = rest if rest.dtype == np.float32 else rest.astype(np.float64, copy=False)
        if rest.ndim != 2:
            raise UsageError(f"found an array of {rest.ndim} dimensions", expected="batches of shape (rows, width)")
        while rows + len(rest) >= BLOCK:
            cut = BLOCK - rows
            yield _joined([*kept, rest[:cut]])
            rest, kept, rows = rest[cut:], [], 0
        if len(rest) or not kept:
            kept, rows = [*kept, rest], rows + len(rest)
    if rows or kept:
        yield _joined(kept)


def _joined(blocks: list[NDArray[Any]]) -> NDArray[Any]:
    if len(blocks) > 1:  # an empty rest in front of a block would copy it
        blocks = [block for block in blocks if len(block)] or blocks[:1]
    widths = {block.shape[1] for block in blocks}
    if len(widths) > 1:
        raise UsageError(f"vectors of different widths: {sorted(widths)}", expected="one width for all rows")
    return np.ascontiguousarray(blocks[0] if len(blocks) == 1 else np.concatenate(blocks))

"""Exact Jaccard similarity of the shingle sets of given pairs of texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.shingles import CHUNK, Ints, Shingles, Unit, chunks, distinct, shingles

_PAIRS = 2**17
_HELD = 2**23  # bytes of text whose shingles are all held: some 50 MB


def jaccard(
    texts: pl.Series, pairs: Ints, size: int, unit: Unit = "words", *, lowercase: bool = True
) -> NDArray[np.float64]:
    """Return the Jaccard similarity of the shingle sets of pairs of texts.

    Parameters
    ----------
    texts : polars.Series of String
    pairs : array, shape (n, 2), int64
        Places in `texts`, in ascending order of the first: pairs of one text are then measured together.
    size, unit, lowercase
        As for `shingles`.

    Returns
    -------
    numpy.ndarray, shape (n,), float64
        Shingles that both have over shingles that either has; 0 where one text has none. Exact, but for two different
        shingles of one 64-bit hash (less than one chance in 10^15 a pair of texts of 100 shingles).

    Notes
    -----
    Shingles of long columns are made anew, block by block, so memory does not grow with the pairs. A million pairs of
    short texts in some five seconds.

    Source: P. Jaccard (1912). The distribution of the flora in the alpine zone.
    """
    out = np.zeros(len(pairs))
    length = texts.str.len_bytes().fill_null(0).to_numpy().astype(np.int64) + 1
    whole = int(length.sum()) * (5 if unit == "characters" else 1) <= _HELD
    sets = distinct(_all(texts, size, unit, lowercase=lowercase)) if whole else None
    for start, stop in _blocks(length[pairs].sum(axis=1), whole=whole):
        place = some = pairs[start:stop]
        if not whole:
            rows, place = np.unique(some, return_inverse=True)
            sets = distinct(shingles(texts.gather(rows), size, unit, lowercase=lowercase))
            place = place.reshape(some.shape)
        assert sets is not None
        count = np.diff(sets.starts)[place]
        small = np.where(count[:, 0] <= count[:, 1], 0, 1)
        one, two = np.take_along_axis(place, np.stack([small, 1 - small], axis=1), axis=1).T
        many = count.min(axis=1)
        pair = np.repeat(np.arange(len(some)), many)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(many) - many, many)
        code = sets.values[np.repeat(sets.starts[one], many) + within] & np.uint64(0xFFFFFFFF)
        asked = (two[pair].astype(np.uint64) << np.uint64(32)) | code
        found = np.searchsorted(sets.values, asked)
        hit = sets.values[np.minimum(found, max(0, len(sets.values) - 1))] == asked if len(asked) else asked == 0
        both = np.bincount(pair[hit], minlength=len(some))
        either = count.sum(axis=1) - both
        out[start:stop] = np.divide(both, either, out=np.zeros(len(some)), where=either > 0)
    return out


def _all(texts: pl.Series, size: int, unit: Unit, *, lowercase: bool) -> Shingles:
    """Cut all texts into shingles, chunk by chunk."""
    parts = [shingles(part, size, unit, lowercase=lowercase) for _, part in chunks(texts)]
    count = [np.diff(part.starts) for part in parts]
    values = np.concatenate([part.values for part in parts]) if parts else np.empty(0, np.uint64)
    return Shingles(values, np.concatenate([np.zeros(1, np.int64), *count]).cumsum())


def _blocks(size: Ints, *, whole: bool) -> Iterator[tuple[int, int]]:
    """Cut pairs into runs of some `CHUNK` bytes of text, or of `_PAIRS`."""
    ends = np.cumsum(size)
    start = 0
    while start < len(size):
        done = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, done + CHUNK, side="right"))
        stop = start + _PAIRS if whole else min(max(start + 1, stop), start + _PAIRS)
        stop = min(stop, len(size))
        yield start, stop
        start = stop

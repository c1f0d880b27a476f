"""Frames whose columns lie on disk where they are many: mapped, without a name, gone with the last that holds them.

Texts, numbers and vectors of float32 are mapped; columns of other types stay in memory. What a frame is then asked for
is read page by page, and the system takes the pages back when memory runs short. Slices, `gather` and comparisons read
without a copy; sorting, filtering or joining the whole frame would copy it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.vector_rows import SLICE, rows_together

HELD = 2**24
"""Bytes up to which a frame stays in memory (16 MB)."""
VIEW = 16
"""Bytes of a text beside what it says."""
MARKED = 64
"""Of so many ids of a run one is remembered, so that equal ranges of ids can be cut."""
TEXTS = 2**31 - 2**20
"""Bytes of long texts behind one buffer, at most: views count them in 32 bits."""
INLINE = 12
"""Bytes of a text up to which its view holds it."""


def mapped(frames: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Put frames together to one, on disk where they take more than `HELD` bytes.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
        In order, of one schema; each is let go before the next is asked for.
    schema : mapping of str to polars.DataType
        Columns of the result, and what they are cast to.

    Returns
    -------
    polars.DataFrame
        Of one chunk. Columns that are mapped take no memory but 1 byte a row where there are nulls.

    Raises
    ------
    UsageError
        The disk that holds temporary files (``TMPDIR``) is full.
    """
    waiting, size = [pl.DataFrame(schema=schema)], 0
    columns: list[_Column] | None = None
    for frame in frames:
        part = frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
        if columns is None:
            waiting.append(part)
            size += int(part.estimated_size()) + VIEW * len(part) * sum(kind == pl.String for kind in part.dtypes)
            if size <= HELD:
                continue
            columns = [_Column(name, part.schema[name]) for name in schema]
        for held in waiting or [part]:
            for column in columns:
                column.add(held[column.name])
        waiting = []
    return pl.concat(waiting).rechunk() if columns is None else pl.DataFrame([column.series() for column in columns])


def taken(frame: pl.DataFrame, rows: NDArray[Any]) -> pl.DataFrame:
    """Return some rows of a frame, by their places: on disk where they take more than `HELD` bytes."""
    return mapped((frame[rows[start : start + SLICE]] for start in range(0, len(rows), SLICE)), frame.schema)


def collected(scans: pl.LazyFrame | Sequence[pl.LazyFrame]) -> pl.DataFrame:
    """Read a table sorted by example_id; it lies on disk where it takes more than `HELD` bytes.

    Parameters
    ----------
    scans : polars.LazyFrame or sequence of polars.LazyFrame
        With example_id; of equal ids their order stays. Several, of one schema, are read one after the other: one of
        many files reads ahead in all of them.

    Notes
    -----
    Streamed once into sorted runs, and where these lie across each other once more, range of ids by range. Memory: some
    runs of `SLICE` rows (fewer where vectors are wide), and a few bytes for `MARKED` rows.
    """
    scans = [scans] if isinstance(scans, pl.LazyFrame) else scans
    schema = scans[0].collect_schema()
    width = sum(kind.size for kind in schema.values() if isinstance(kind, pl.Array))
    rows = rows_together(width, SLICE)
    starts, marks, last = [0], [], None
    ordered, nulls = True, 0

    def runs() -> Iterator[pl.DataFrame]:
        nonlocal last, ordered, nulls
        batches = (batch for scan in scans for batch in scan.collect_batches(chunk_size=rows, maintain_order=True))
        for batch in batches:
            for part in batch.iter_slices(rows):
                ids = part["example_id"]
                run = part if ids.is_sorted() else part.sort("example_id", maintain_order=True)
                ids = run["example_id"]
                nulls += ids.null_count()
                ordered = ordered and (last is None or bool(ids[0] is not None and ids[0] >= last))
                last = ids[-1]
                marks.append(_owned(ids.gather_every(MARKED)))
                starts.append(starts[-1] + len(run))
                yield run

    found = mapped(runs(), schema)
    if nulls or (not ordered and len(found) <= rows):
        return found.sort("example_id", maintain_order=True)
    if ordered:
        return found
    every = pl.concat(marks).sort()
    cuts = every.gather_every(max(1, rows // MARKED))[1:].unique(maintain_order=True)
    parts = [found[start:end] for start, end in pairwise(starts)]
    ends = [np.append(part["example_id"].search_sorted(cuts, side="left").to_numpy(), len(part)) for part in parts]

    def ranges() -> Iterator[pl.DataFrame]:
        begins = [0] * len(parts)
        for number in range(len(cuts) + 1):
            some = []
            for i, part in enumerate(parts):
                end = int(ends[i][number])
                some.append(part[begins[i] : end])
                begins[i] = end
            yield pl.concat(some).sort("example_id", maintain_order=True)

    return mapped(ranges(), schema)


class _Column:
    """A column that is written part by part."""

    def __init__(self, name: str, kind: pl.DataType) -> None:
        self.name, self.kind, self.rows = name, kind, 0
        self.valid: list[NDArray[np.bool_] | int] = []  # a number of rows that all hold something
        self.nulls = False
        self.plain = kind.is_numeric() and not kind.is_decimal()
        self.vectors = isinstance(kind, pl.Array) and kind.inner == pl.Float32
        self.text = kind == pl.String
        self.memory: list[pl.Series] = []
        # closed when they are mapped, or with this
        self.values, self.long = (tempfile.TemporaryFile(prefix="gradatim-") for _ in range(2))  # noqa: SIM115
        self.regions = [0]

    def add(self, part: pl.Series) -> None:
        """Write what comes next."""
        if not len(part):
            return
        if not (self.plain or self.vectors or self.text):
            self.memory.append(part)
            return
        self.rows += len(part)
        missing = part.null_count() > 0
        self.nulls = self.nulls or missing
        valid = part.is_not_null().to_numpy() if missing else np.ones(len(part), dtype=bool)
        self.valid.append(valid if missing else len(part))
        if self.text:
            self._texts(part, valid)
        elif self.plain:
            _write(self.values, part.fill_null(0).to_numpy() if missing else part.to_numpy())
        else:
            from gradatim.tasks.core.embeddings import numbers

            _write(self.values, numbers(part))

    def _texts(self, part: pl.Series, valid: NDArray[np.bool_]) -> None:
        """Write views, and behind them the texts that are too long for these."""
        part = part.rechunk()
        if len(part) > 1 and int(part.str.len_bytes().sum()) > TEXTS // 2:
            half = len(part) // 2
            self._texts(part[:half], valid[:half])
            self._texts(part[half:], valid[half:])
            return
        array = part.to_arrow(compat_level=pl.CompatLevel.newest())
        raw = np.frombuffer(array.buffers()[1], dtype=np.int32).reshape(-1, 4)
        views = raw[array.offset : array.offset + len(part)].copy()
        views[~valid] = 0
        long = views[:, 0] > INLINE
        if long.any():
            plain = part.filter(pl.Series(long)).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_string())
            _, offsets, data = plain.buffers()
            places = np.frombuffer(offsets, dtype=np.int64)[plain.offset : plain.offset + len(plain) + 1]
            end = self.long.tell()
            if end + int(places[-1] - places[0]) - self.regions[-1] > TEXTS:
                self.regions.append(end)
            _write(self.long, np.frombuffer(data, dtype=np.uint8)[places[0] : places[-1]])
            views[long, 2] = len(self.regions) - 1
            views[long, 3] = end - self.regions[-1] + places[:-1] - places[0]
        _write(self.values, views)

    def series(self) -> pl.Series:
        """Map what was written."""
        if self.memory:
            return pl.concat(self.memory).rechunk().alias(self.name)
        if not self.rows:
            return pl.Series(self.name, [], dtype=self.kind)
        told = (np.ones(part, dtype=bool) if isinstance(part, int) else part for part in self.valid)
        valid = np.concatenate(list(told)) if self.nulls else None
        bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        values = pa.py_buffer(_map(self.values))
        if self.text:
            texts = _map(self.long)
            regions = [pa.py_buffer(texts[a:b]) for a, b in pairwise([*self.regions, len(texts)])] if len(texts) else []
            array = pa.Array.from_buffers(pa.string_view(), self.rows, [bits, values, *regions])
        elif self.plain:
            kind = pl.Series([], dtype=self.kind).to_arrow().type
            array = pa.Array.from_buffers(kind, self.rows, [bits, values])
        else:
            width = self.kind.size  # type: ignore[attr-defined]
            flat = pa.Array.from_buffers(pa.float32(), self.rows * width, [None, values])
            array = pa.FixedSizeListArray.from_arrays(flat, width, mask=None if valid is None else pa.array(~valid))
        found = pl.from_arrow(array)
        assert isinstance(found, pl.Series)
        return found.alias(self.name)


def _owned(texts: pl.Series) -> pl.Series:
    """Return texts of their own: a view would hold all that they were cut from."""
    found = pl.from_arrow(texts.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(found, pl.Series)
    return found


def _map(file: Any) -> NDArray[np.uint8]:
    file.flush()
    held = file.tell()
    # the mapping stays when the file is closed
    with file:
        return np.asarray(np.memmap(file, dtype=np.uint8, mode="r")) if held else np.zeros(0, dtype=np.uint8)


def _write(file: Any, values: NDArray[Any]) -> None:
    try:
        file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
    except OSError as error:
        raise UsageError(
            f"no room for columns of rows: {error.strerror}",
            where=tempfile.gettempdir(),
            expected="a disk for temporary files",
            remedy="free it, or name another folder with the environment variable TMPDIR",
        ) from None

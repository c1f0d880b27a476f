"""Signatures of rows, column by column in files that are mapped, so that a million rows more cost a few bytes each.

Signatures come in parts, in any order, and are read again in the order of their ids: ids from an Arrow file,
uncompressed; digests and the keys of each band as plain numbers, one file each. What is mapped belongs to the system's
page cache, which takes it back when memory runs short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.shingles import Hashes, Ints

ROWS = 2**20
"""Rows that are looked at together."""
SLICE = 2**17
"""Rows that are written, or scanned, together."""
RANGES = 32
"""Ranges of hashes into which rows are parted at most, each found by one scan."""

Signatures = pl.DataFrame | pl.LazyFrame | Iterable[pl.DataFrame]


@dataclass(frozen=True)
class SignatureFiles:
    """Signatures of N rows that can be compared, in the order of their ids.

    Attributes
    ----------
    ids : polars.Series of String
        Sorted, each once; mapped, so gone with the folder: see `names`.
    digests : numpy.ndarray, shape (N, 2), uint64
        High and low halves.
    keys : tuple of numpy.ndarray, shape (N,), uint64
        One a band; empty where signatures have no bands.
    """

    ids: pl.Series
    digests: Hashes
    keys: tuple[Hashes, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def names(self, rows: Ints) -> pl.Series:
        """Return the ids of some rows as text of their own, which outlives the files."""
        owned = pl.from_arrow(self.ids.gather(rows).to_arrow(compat_level=pl.CompatLevel.oldest()))
        assert isinstance(owned, pl.Series)
        return owned.alias("example_id")


def in_parts(signatures: Signatures, rows: int = SLICE) -> Iterator[pl.DataFrame]:
    """Give a frame, a lazy one or parts as frames of at most `rows` rows."""
    if isinstance(signatures, pl.LazyFrame):
        signatures = signatures.collect_batches(chunk_size=rows)
    for part in [signatures] if isinstance(signatures, pl.DataFrame) else signatures:
        yield from part.iter_slices(rows)


def in_blocks(signatures: Signatures, rows: int = ROWS // 2) -> Iterator[pl.DataFrame]:
    """Put parts together to frames of about `rows` rows, however small they come."""
    waiting: list[pl.DataFrame] = []
    for part in in_parts(signatures):
        waiting.append(part)
        if sum(map(len, waiting)) >= rows:
            yield pl.concat(waiting, rechunk=False)
            waiting = []
    if waiting:
        yield pl.concat(waiting, rechunk=False)


def halves(digests: pl.Series) -> Hashes:
    """Return digests of 32 hex digits as two numbers each: shape (rows, 2)."""
    raw = bytes.fromhex("".join(digests.to_list()))
    return np.frombuffer(raw, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def keys_of(bands: pl.Series) -> Hashes:
    """Return the keys of rows that all have them: shape (rows, bands)."""
    width = bands.dtype.size  # type: ignore[attr-defined]
    return np.asarray(bands.explode().to_numpy() if len(bands) else [], dtype=np.uint64).reshape(-1, width)


def spilled(signatures: Iterable[pl.DataFrame], folder: Path) -> SignatureFiles:
    """Write signatures to files of a folder, and map these.

    Parameters
    ----------
    signatures : iterable of polars.DataFrame
        example_id, digest, bands, in parts; rows without a digest are passed over.
    folder : pathlib.Path
        Empty. Takes 8 bytes a row and band, 16 a digest and 16 or more an id; twice that where ids are out of order.

    Raises
    ------
    DataRefused
        If an id stands twice.
    UsageError
        If some rows have bands and others none.

    Notes
    -----
    Where parts follow one another in the order of ids nothing is held but a part; else the ids are sorted in memory,
    some 40 bytes a row.
    """
    rows, bands, plain, ordered, last = 0, 0, 0, True, None
    sink = pa.OSFile(str(folder / "ids"), "wb")
    with sink, pa.ipc.new_file(sink, pa.schema([("id", pa.string_view())])) as file:
        for part in signatures:
            some = part.select("example_id", "digest", "bands").drop_nulls("digest")
            if some.is_empty():
                continue
            ids = some["example_id"]
            follows = last is None or ids[0] > last
            ordered = ordered and follows and bool((ids[1:] > ids[:-1]).all())
            last = ids[-1]
            compact = ids.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string_view())
            file.write_batch(pa.record_batch([compact], names=["id"]))
            _append(folder / "digests", halves(some["digest"]))
            if some["bands"].null_count() == 0:
                keys = keys_of(some["bands"])
                bands = keys.shape[1]
                for band in range(bands):
                    _append(folder / f"band{band}", np.ascontiguousarray(keys[:, band]))
            plain += some["bands"].null_count()
            rows += len(some)
    if plain and plain < rows:
        raise UsageError("some signatures have bands and others none", where="compare", remedy="make them alike")
    names = pa.ipc.open_file(pa.memory_map(str(folder / "ids"))).read_all()["id"]
    found = pl.from_arrow(names) if rows else pl.Series([], dtype=pl.String)
    assert isinstance(found, pl.Series)
    files = ["digests", *(f"band{band}" for band in range(bands))]
    if not ordered:
        order = found.arg_sort().to_numpy()
        found = found.gather(order)
        twice = found.filter((found == found.shift(1)).fill_null(False))
        if len(twice):
            raise DataRefused(f"the id {twice[0]!r} stands twice", where="compare", expected="one signature an id")
        for name in files:
            _reorder(folder / name, order, width=2 if name == "digests" else 1)
    digests, *keys_by_band = (_mapped(folder / name, rows) for name in files)
    return SignatureFiles(found.alias("example_id"), digests.reshape(-1, 2), tuple(keys_by_band))


def by_range(values: Hashes, among: NDArray[np.bool_]) -> Iterator[Ints]:
    """Give the rows `among` the hashes, ascending, range of hashes by range: equal hashes come together.

    A range holds some `ROWS` rows, or a `RANGES`-th of very many, so that the scans stay linear.
    """
    many = int(among.sum())
    ranges = min(RANGES, -(-many // ROWS))
    if ranges <= 1:
        yield np.flatnonzero(among)
        return
    edges = [(number * 2**64) // ranges for number in range(ranges + 1)]
    for low, high in pairwise(edges):
        found = []
        for start in range(0, len(values), SLICE):
            part = np.ascontiguousarray(values[start : start + SLICE])
            inside = (part >= np.uint64(low)) & (part <= np.uint64(high - 1)) & among[start : start + SLICE]
            found.append(np.flatnonzero(inside) + start)
        yield np.concatenate(found)


def first_of_equal(digests: Hashes) -> tuple[NDArray[np.bool_], Ints]:
    """Tell the first row of each digest, shape (N, 2), from the others, which are given as (row, first row)."""
    first, copies = np.zeros(len(digests), dtype=bool), [np.empty((0, 2), np.int64)]
    for some in by_range(digests[:, 0], np.ones(len(digests), dtype=bool)):
        high, low = digests[some].T
        frame = pl.DataFrame({"row": some, "high": high, "low": low})
        frame = frame.select("row", first=pl.col("row").min().over("high", "low"))
        first[frame.filter(pl.col("row") == pl.col("first"))["row"].to_numpy()] = True
        copies.append(frame.filter(pl.col("row") != pl.col("first")).to_numpy())
    return first, np.concatenate(copies)


def _append(path: Path, values: Hashes) -> None:
    try:
        with path.open("ab") as file:
            values.tofile(file)
    except OSError as error:
        raise UsageError(
            f"no room for signatures: {error.strerror}",
            where=str(path.parent),
            expected="a disk for temporary files",
            remedy="free it, or name another folder with the environment variable TMPDIR",
        ) from None


def _mapped(path: Path, rows: int) -> Hashes:
    return np.memmap(path, dtype=np.uint64, mode="r") if rows else np.empty(0, np.uint64)


def _reorder(path: Path, order: Ints, width: int) -> None:
    held = _mapped(path, len(order)).reshape(-1, width)
    moved = path.with_suffix(".moved")
    for start in range(0, len(order), SLICE):
        _append(moved, held[order[start : start + SLICE]])
    moved.replace(path)

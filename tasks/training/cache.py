"""The examples that a run needs, as one uncompressed Arrow IPC file a host, memory-mapped by every rank.

Parquet row groups are thousands of times slower to read in an arbitrary order. The file's name is the content hash of
its rows and columns, so that arms, seeds and later runs on the same rows share it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import content_hash, value_hash

ID = "example_id"
_ROWS = 65_536


def write(examples: pl.DataFrame | pl.LazyFrame, columns: Sequence[str], folder: Path) -> Path:
    """Write the columns needed, rows sorted by id, once; return the file.

    Parameters
    ----------
    examples : DataFrame or LazyFrame
        With `example_id`, unique and without nulls.
    columns : sequence of str
        Further columns that the model reads.
    folder : Path
        Shared cache folder; made if absent.

    Raises
    ------
    UsageError
        If a column is missing.
    DataRefused
        If an id is null or stands twice.
    """
    names = [ID, *(c for c in dict.fromkeys(columns) if c != ID)]
    known = examples.collect_schema().names()
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no column {name!r}{nearest(name, known)}", where="examples", expected=", ".join(known)
            )
    frame = examples.lazy().select(names).sort(ID).collect()
    ids = frame[ID]
    if ids.null_count():
        raise DataRefused(f"{ids.null_count()} rows have no id", where="examples: example_id", expected="no nulls")
    twice = (ids == ids.shift(1)).fill_null(False)
    if twice.any():
        raise DataRefused(
            f"the id {ids.filter(twice)[0]!r} stands twice", where="examples: example_id", expected="unique ids"
        )
    table = frame.to_arrow()
    key = value_hash([content_hash(table), [[f.name, str(f.type)] for f in table.schema]])
    path = folder / f"{key}.arrow"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{key}.{uuid.uuid4().hex}.tmp"
    try:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            for batch in table.combine_chunks().to_batches(max_chunksize=_ROWS):
                writer.write_batch(batch)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


class Cache:
    """Random access to a cache file by row; the file is mapped anew in each process, so it may be forked or pickled."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = -1

    def _open(self) -> None:
        if self._pid == os.getpid():
            return
        if not self.path.is_file():
            raise UsageError("the cache file is gone", where=str(self.path), remedy="prepare the run again")
        reader = pa.ipc.open_file(pa.memory_map(str(self.path)))
        self._schema = reader.schema
        self._batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_pid": -1}

    def __len__(self) -> int:
        self._open()
        return sum(map(len, self._batches))

    def take(self, rows: np.ndarray) -> pa.Table:
        """Return rows in the order asked for; any row as often as it is asked for."""
        self._open()
        rows = np.asarray(rows, dtype=np.int64)
        batch, place = np.divmod(rows, _ROWS)
        pieces, origin = [], []
        for number in np.unique(batch).tolist():
            here = np.flatnonzero(batch == number)
            pieces.append(self._batches[number].take(pa.array(place[here])))
            origin.append(here)
        if not pieces:
            return self._schema.empty_table()
        table = pa.Table.from_batches(pieces).combine_chunks()
        if len(pieces) == 1:
            return table
        back = np.empty(len(rows), dtype=np.int64)
        back[np.concatenate(origin)] = np.arange(len(rows))
        return table.take(pa.array(back))

    def batches(self, rows: np.ndarray | None = None) -> Iterator[pa.Table]:
        """Yield all rows, or some in the order of the file, in parts of at most 65,536."""
        self._open()
        wanted = np.arange(len(self)) if rows is None else np.unique(rows)
        for begin in range(0, len(wanted), _ROWS):
            yield self.take(wanted[begin : begin + _ROWS])

    def ids(self) -> pl.Series:
        """Return all ids, in row order."""
        self._open()
        return pl.Series(ID, pa.chunked_array([b.column(ID) for b in self._batches], self._schema.field(ID).type))

    def rows_of(self, ids: pl.Series, *, where: str) -> np.ndarray:
        """Return each id's row; raises `DataRefused` with the first id that is not there."""
        index = pl.DataFrame({ID: self.ids()}).with_row_index("row")
        asked = pl.DataFrame({ID: ids.cast(pl.String)}).with_row_index("place")
        found = asked.join(index, on=ID, how="left", maintain_order="left")["row"]
        if found.null_count():
            lost = ids.filter(found.is_null())
            raise DataRefused(
                f"{len(lost)} ids are not among the examples, first {lost[0]!r}",
                where=where,
                expected="ids of the examples table",
            )
        return found.to_numpy().astype(np.int64)

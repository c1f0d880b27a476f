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
import pyarrow.compute as pc

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import add_hashes, content_hash, value_hash

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
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        # written before its name is known, since the name is the hash of what it holds; nothing is held in memory
        examples.lazy().select(names).sort(ID).sink_ipc(
            temporary, compression="uncompressed", compat_level=pl.CompatLevel.oldest()
        )
        path = folder / f"{_key(temporary)}.arrow"
        if not path.is_file():
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _key(path: Path) -> str:
    """Check the ids of a file that is sorted by them, and hash its content and its columns."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        parts, last = [], pa.array([], reader.schema.field(ID).type)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            ids = pa.concat_arrays([last, batch.column(ID)])
            if ids.null_count:
                raise DataRefused(
                    f"{ids.null_count} rows have no id", where="examples: example_id", expected="no nulls"
                )
            twice = ids.slice(1).filter(pc.equal(ids.slice(1), ids.slice(0, max(len(ids) - 1, 0))))
            if len(twice):
                raise DataRefused(
                    f"the id {twice[0].as_py()!r} stands twice", where="examples: example_id", expected="unique ids"
                )
            last = ids.slice(max(len(ids) - 1, 0))
            parts.append(content_hash([batch]))
        return value_hash([add_hashes(parts), [[f.name, str(f.type)] for f in reader.schema]])


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
        self._starts = np.cumsum([0, *map(len, self._batches)])
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_pid": -1}

    def __len__(self) -> int:
        self._open()
        return int(self._starts[-1])

    def take(self, rows: np.ndarray) -> pa.Table:
        """Return rows in the order asked for; any row as often as it is asked for."""
        self._open()
        rows = np.asarray(rows, dtype=np.int64)
        batch = np.searchsorted(self._starts, rows, side="right") - 1
        place = rows - self._starts[batch]
        if len(rows) and batch.min() == batch.max():
            return pa.Table.from_batches([self._batches[batch[0]].take(pa.array(place))])
        pieces, origin = [], []
        for number in np.unique(batch).tolist():
            here = np.flatnonzero(batch == number)
            pieces.append(self._batches[number].take(pa.array(place[here])))
            origin.append(here)
        if not pieces:
            return self._schema.empty_table()
        table = pa.Table.from_batches(pieces).combine_chunks()
        back = np.empty(len(rows), dtype=np.int64)
        back[np.concatenate(origin)] = np.arange(len(rows))
        return table.take(pa.array(back))

    def batches(self, rows: np.ndarray | None = None) -> Iterator[pa.Table]:
        """Yield all rows, or some in the order of the file, in parts of at most 65,536."""
        self._open()
        wanted = np.arange(len(self)) if rows is None else np.unique(rows)
        for begin in range(0, len(wanted), _ROWS):
            yield self.take(wanted[begin : begin + _ROWS])

    def ids(self) -> Iterator[pa.Array]:
        """Yield all ids, in row order, part by part."""
        self._open()
        for batch in self._batches:
            yield batch.column(ID)

    def rows_of(self, ids: pl.Series, *, where: str) -> np.ndarray:
        """Return each id's row; raises `DataRefused` with the first id that is not there."""
        known = pl.concat([pl.Series(ID, part, dtype=pl.String) for part in self.ids()], rechunk=False)
        index = pl.DataFrame({ID: known}).with_row_index("row")
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

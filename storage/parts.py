"""Parts: the files that a table version lists, each named by what it was made from and what it holds.

A part is called ``part-{fingerprint}-{index:05d}-{content_hash}.parquet``. The *fingerprint* says which step, at
which revision, with which settings, on which input bytes made it, so that the Delta log alone tells what can be used
again; all parts with one fingerprint are one step's whole result. The *content hash* is the sum of the rows' hashes:
a table version's hash is the sum over its parts. (A part of the same content that stands in other types too ends in
``-t`` and a hash of the types.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import content_hash, value_hash
from gradatim.schemas.tables import TableSpec

ROW_GROUP = 131_072
PART_ROWS = 8 * ROW_GROUP
"""Rows of a part at most; a step that reads part by part holds no more than this."""
PART_BYTES = 256 * 2**20
"""Bytes of a part in memory at which it is cut earlier, in windows of `_WINDOW` rows."""
_WINDOW = 8_192

_NAME = re.compile(r"part-([0-9a-f]{32})-(\d{5,})-([0-9a-f]{32})(?:-t([0-9a-f]{8}))?\.parquet")


@dataclass(frozen=True)
class Part:
    """One Parquet file of a table.

    Attributes
    ----------
    fingerprint : str
        Of the step that made it, 32 hex digits.
    index : int
        Place among the parts of its fingerprint.
    content_hash : str
        Sum of its rows' hashes, 32 hex digits.
    rows, bytes : int
    first, last : tuple
        Smallest and largest key; empty for a part without rows.
    group : str
        Which result of the table it belongs to: a method, a strategy, an arm.
    types : str
        Hash of its columns' types, 8 hex digits, where a part of the same content stands in other types; else empty.
    """

    fingerprint: str
    index: int
    content_hash: str
    rows: int
    bytes: int
    first: tuple[Any, ...] = ()
    last: tuple[Any, ...] = ()
    group: str = ""
    types: str = ""

    @property
    def name(self) -> str:
        """File name in the table's folder."""
        suffix = f"-t{self.types}" if self.types else ""
        return f"part-{self.fingerprint}-{self.index:05d}-{self.content_hash}{suffix}.parquet"

    def to_dict(self) -> dict[str, Any]:
        """Return what a commit's metadata says about the part."""
        return {
            "name": self.name,
            "rows": self.rows,
            "bytes": self.bytes,
            "first": list(self.first),
            "last": list(self.last),
            "group": self.group,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Part:
        """Rebuild what `to_dict` gave; raises `ValueError` for a name that is no part's."""
        match = _NAME.fullmatch(data["name"])
        if match is None:
            raise ValueError(f"{data['name']!r} is no part's name")
        made, index, content, types = match.groups()
        key = tuple(data["first"]), tuple(data["last"])
        return cls(made, int(index), content, data["rows"], data["bytes"], *key, data["group"], types or "")


def fingerprint(step: str, revision: int, section_hash: str, inputs: Sequence[str]) -> str:
    """Name a step's result by all that determines it.

    Parameters
    ----------
    step : str
        Step and method, e.g. ``difficulty irt``.
    revision : int
        The plug-in's revision.
    section_hash : str
        Hash of its section of the recipe (`Recipe` sections have `section_hash()`; `value_hash` for anything else).
    inputs : sequence of str
        Content hashes of the input parts, or of whole input tables; their order counts.

    Returns
    -------
    str
        32 hex digits.
    """
    return value_hash({"step": step, "revision": revision, "section": section_hash, "inputs": list(inputs)})


def cut(frames: Iterable[pa.Table], rows: int = PART_ROWS, size: int = PART_BYTES) -> Iterator[pa.Table]:
    """Cut a stream into parts of at most `rows` rows and about `size` bytes; one empty table where it holds no rows.

    Where the cuts lie depends on the rows alone, never on how the stream was batched.
    """
    window = min(_WINDOW, rows)
    held: list[pa.Table] = []
    count = weight = 0
    empty: pa.Table | None = None
    for piece in _windows(frames, window):
        if not len(piece):
            empty = piece
            continue
        cost = _weight(piece)
        if held and (count + len(piece) > rows or weight + cost > size):
            yield _concat(held)
            held, count, weight = [], 0, 0
        held.append(piece)
        count, weight = count + len(piece), weight + cost
    if held:
        yield _concat(held)
    elif empty is not None:
        yield empty


def _windows(frames: Iterable[pa.Table], window: int) -> Iterator[pa.Table]:
    """Cut a stream again into windows of exactly `window` rows, the last of which is shorter; an empty one if none."""
    rest: pa.Table | None = None
    seen = False
    for frame in frames:
        table = _concat([rest, frame]) if rest is not None and len(rest) else frame
        whole = len(table) - len(table) % window
        for start in range(0, whole, window):
            seen = True
            yield table.slice(start, window)
        rest = table.slice(whole)
    if rest is not None and (len(rest) or not seen):
        yield rest


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise DataRefused(
            f"one column comes in two types: {error}",
            expected="one type a column",
            remedy="cast it in one of the files",
        ) from None


def _weight(table: pa.Table) -> int:
    return sum(_column_weight(column) for column in table.columns)


def _column_weight(column: pa.ChunkedArray | pa.Array) -> int:
    """Return the bytes of a column's values; depends on the values alone, unlike `nbytes`."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return (pc.sum(pc.binary_length(column)).as_py() or 0) + 4 * len(column)
    if pa.types.is_list(kind):
        return _column_weight(pc.list_flatten(column)) + 4 * len(column)
    if pa.types.is_map(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return sum(
            _column_weight(inner.slice(low, high - low)) + 4 * len(chunk)
            for chunk in chunks
            if len(chunk)
            for low, high in [(chunk.offsets[0].as_py(), chunk.offsets[-1].as_py())]
            for inner in (chunk.keys, chunk.items)
        )
    if pa.types.is_struct(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return sum(_column_weight(child) for chunk in chunks for child in chunk.flatten())
    return 8 * len(column)


def sort(table: pa.Table, spec: TableSpec, *, ordered: bool, where: str = "") -> pa.Table:
    """Sort a part by its table's key; with `ordered` it must be sorted already and is refused if it is not."""
    key = pl.DataFrame(pl.from_arrow(table.select(list(spec.key))))
    wrong = _descents(key)
    if not wrong.any():
        return table
    if ordered:
        row = int(wrong.arg_max() or 0)
        raise DataRefused(
            f"the stream is not sorted: {key.row(row + 1)} comes after {key.row(row)}",
            where=where or f"table {spec.name}",
            expected="rows sorted by " + ", ".join(spec.key),
            remedy="sort them, or leave out ordered=True so that each part is sorted here",
        )
    order = key.select(pl.arg_sort_by(key.columns, nulls_last=False, maintain_order=True)).to_series()
    return table.take(order.to_arrow())


def _descents(key: pl.DataFrame) -> pl.Series:
    """Mark each row whose successor has a smaller key (nulls count as smallest)."""
    if len(key) < 2:
        return pl.Series([False])
    wrong, tie = pl.lit(False), pl.lit(True)
    for name in key.columns:
        here, after = pl.col(name), pl.col(name).shift(-1)
        here_null, after_null = here.is_null(), after.is_null()
        falls = (here > after).fill_null(~here_null & after_null)
        wrong = wrong | (tie & falls)
        tie = tie & here.eq_missing(after)
    return key.select(wrong.alias("wrong")).to_series().head(len(key) - 1)


def write_part(
    table: pa.Table, spec: TableSpec, folder: Path, made: str, index: int, group: str = ""
) -> tuple[Part, Path]:
    """Write a sorted table as a part; returns its description and the file, which nobody sees yet.

    The rows are hashed in a second thread while Parquet is written (zstd, row groups of 131,072 rows, statistics).
    """
    draft = folder / f"{made}-{index:05d}.parquet"
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(content_hash, table)
        with pq.ParquetWriter(draft, table.schema, compression="zstd", write_statistics=True) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP)
            writer.add_key_value_metadata({"gradatim.fingerprint": made, "gradatim.rows": str(len(table))})
        content = hashing.result()
    first, last = _key_at(table, spec, 0), _key_at(table, spec, len(table) - 1)
    part = Part(made, index, content, len(table), draft.stat().st_size, first, last, group)
    return part, draft


def _key_at(table: pa.Table, spec: TableSpec, row: int) -> tuple[Any, ...]:
    return tuple(table.column(name)[row].as_py() for name in spec.key) if len(table) else ()


def types_hash(schema: pa.Schema) -> str:
    """Hash the names and types of columns: 8 hex digits."""
    return value_hash([[field.name, str(field.type)] for field in schema])[:8]


def read_part(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a part's columns from a local file, memory-mapped; raises `DataRefused` where the file is damaged."""
    try:
        return pq.read_table(path, columns=list(columns) if columns is not None else None, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataRefused(
            f"the Parquet file cannot be read: {str(error).splitlines()[0]}",
            where=str(path),
            expected="a whole Parquet file",
            remedy="run the step again; the table keeps its former version",
        ) from None

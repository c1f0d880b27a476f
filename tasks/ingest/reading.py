"""What a reader is given and hands out, and reading a shard through the reader of its format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Config, get
from gradatim.tasks.ingest.arrow_types import conform, storable, unify, widen
from gradatim.tasks.ingest.sources import Shard

BATCH_ROWS = 65_536
"""Most rows in a batch."""

MAX_COLUMNS = 2_000
"""More columns than this are taken for a mistake: keys that are values."""

SHORT = 120
"""Characters of a rejected value that are kept."""


class ReaderConfig(Config):
    """Readers have no settings of their own: the recipe's `examples` section says all."""


@dataclass(frozen=True)
class ReadOptions:
    """How a shard is read.

    Attributes
    ----------
    encoding : str
        Of text files.
    text_columns : frozenset of str
        Columns that are read as text as it stands: leading zeros and trailing ones are kept.
    schema : pyarrow.Schema, optional
        Columns and types to hand out; without it each batch has the types that its own values have.
    types_only : bool
        Whether the caller wants types, not rows: a reader that knows them from the file's head stops there.
    """

    encoding: str = "utf-8"
    text_columns: frozenset[str] = frozenset()
    schema: pa.Schema | None = None
    types_only: bool = False


@dataclass(frozen=True)
class Reject:
    """A row that cannot be used: its place, why, the column at fault and its value (shortened)."""

    row: int
    reason: str
    column: str | None = None
    value: str | None = None


@dataclass(frozen=True)
class Batch:
    """Rows of one shard.

    Attributes
    ----------
    table : pyarrow.Table
        The good rows, in the file's order; without columns where none has a key.
    rows : pyarrow.Array of int64
        Row of each in the file, from 0; a header and blank lines are no rows.
    rejects : list of Reject
        The rows that could not be read.
    """

    table: pa.Table
    rows: pa.Array
    rejects: list[Reject] = field(default_factory=list)


def shorten(value: object) -> str:
    """Cut a value's text to `SHORT` characters."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def rejects_table(uri: str, rejects: list[Reject]) -> pa.Table:
    """Write rejects as the table `rejects`."""
    return pa.table(
        {
            "source_uri": pa.array([uri] * len(rejects), pa.string()),
            "source_row": pa.array([r.row for r in rejects], pa.int64()),
            "reason": pa.array([r.reason for r in rejects], pa.string()),
            "column": pa.array([r.column for r in rejects], pa.string()),
            "value": pa.array([r.value for r in rejects], pa.string()),
        }
    )


def read_shard(shard: Shard, options: ReadOptions) -> Iterator[Batch]:
    """Read a shard with the reader of its format.

    Yields
    ------
    Batch
        With the columns and types of ``options.schema`` where there is one.

    Raises
    ------
    DataRefused
        The file as a whole cannot be read: truncated, damaged, another encoding, two columns of one name.
    """
    reader = get("reader", shard.format).run
    for batch in reader(shard, options):
        names = batch.table.schema.names
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataRefused(f"two columns are called {twice!r}", where=shard.uri, remedy="rename one of them")
        if len(names) > MAX_COLUMNS:
            raise DataRefused(
                f"{len(names):,} columns", where=shard.uri, expected=f"at most {MAX_COLUMNS:,}; are keys values here?"
            )
        if options.schema is not None:
            batch = replace(batch, table=conform(batch.table, options.schema, len(batch.rows), where=shard.uri))
        yield batch


def shard_schema(shard: Shard, options: ReadOptions) -> pa.Schema:
    """Find the columns and types of one shard by reading it once (Parquet and Arrow: its head only).

    Depends on the shard alone, so that it can be kept by the shard's content hash. Inside one file, values that do not
    meet otherwise make the column text.
    """
    types: dict[str, pa.DataType] = {}
    for batch in read_shard(shard, replace(options, schema=None, types_only=True)):
        for f in batch.table.schema:
            kind = f.type if pa.types.is_null(f.type) else storable(f.type, where=f"{shard.uri}: column {f.name!r}")
            types[f.name] = widen(types.get(f.name, pa.null()), kind) or pa.string()
    return pa.schema(list(types.items()))


def source_schema(schemas: dict[str, pa.Schema]) -> pa.Schema:
    """Find the one schema of a source from its shards' (by uri); raises as `arrow_types.unify`."""
    wide = unify(schemas.items())
    return pa.schema([(f.name, storable(f.type)) for f in wide])

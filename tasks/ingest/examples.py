"""From a recipe's `examples` section to the table `examples`: shard by shard, or a whole small source at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused, GradatimError
from gradatim.schemas.recipe import Examples
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.ingest.identity import KEYS, compare_versions, resolve_duplicates
from gradatim.tasks.ingest.mapping import check_columns, map_batch, text_columns
from gradatim.tasks.ingest.reading import ReadOptions, Reject, read_shard, rejects_table, shard_schema, source_schema
from gradatim.tasks.ingest.sources import Shard, shards

PART_ROWS = 1_000_000
"""Rows of a source file that make one part."""

PART_BYTES = 512 << 20
"""Bytes of Arrow data that make one part, where rows are long."""


@dataclass(frozen=True)
class IngestCounts:
    """What became of the rows; ``rows_in = published + rejected + redelivered`` holds or construction fails.

    Attributes
    ----------
    rows_in : int
        Rows of the source, bad ones included.
    published : int
        Rows of the table `examples`; equals new + same + changed.
    rejected : int
        Rows of the table `rejects`.
    redelivered : int
        Rows equal to one that was published.
    new, same, changed : int
        Published ids against the version before; all are new where there is none.
    vanished : int
        Ids of the version before that did not come.
    """

    rows_in: int
    published: int
    rejected: int
    redelivered: int
    new: int
    same: int = 0
    changed: int = 0
    vanished: int = 0

    def __post_init__(self) -> None:
        if self.rows_in != self.published + self.rejected + self.redelivered:
            raise GradatimError(f"rows do not add up: {self}", expected="rows_in = published + rejected + redelivered")
        if self.published != self.new + self.same + self.changed:
            raise GradatimError(f"ids do not add up: {self}", expected="published = new + same + changed")

    def __str__(self) -> str:
        parts = [f"{self.same:,} same"] if self.same or self.changed else []
        parts += [f"{self.new:,} new", *([f"{self.changed:,} changed"] if self.changed else [])]
        parts += [f"{self.redelivered:,} re-delivered", f"{self.rejected:,} rejected"]
        gone = f"; {self.vanished:,} vanished" if self.vanished else ""
        return f"rows in {self.rows_in:,} = {' + '.join(parts)}{gone}"


@dataclass(frozen=True)
class Part:
    """About `PART_ROWS` rows or `PART_BYTES` of one shard, mapped.

    Attributes
    ----------
    shard : str
        uri of the shard.
    index : int
        Which part of it, from 0.
    table : pyarrow.Table
        In the schema of `examples` and the payload, sorted by example_id, then source_row.
    rejects : pyarrow.Table
        In the schema of `rejects`.
    rows_in : int
        ``len(table) + len(rejects)``.
    """

    shard: str
    index: int
    table: pa.Table
    rejects: pa.Table
    rows_in: int

    def keys(self) -> pl.DataFrame:
        """The narrow columns on which duplicates are decided."""
        return pl.DataFrame(pl.from_arrow(self.table.select(KEYS)))

    def without(self, positions: np.ndarray) -> pa.Table:
        """The table without the rows at `positions`."""
        if not len(positions):
            return self.table
        keep = np.ones(len(self.table), dtype=bool)
        keep[positions] = False
        return self.table.filter(pa.array(keep))


def read_options(examples: Examples) -> ReadOptions:
    """How the shards of this section are read, without a schema yet."""
    return ReadOptions(encoding=examples.encoding, text_columns=text_columns(examples))


def examples_schema(schemas: Mapping[str, pa.Schema], examples: Examples) -> pa.Schema:
    """Find the one schema of a source from its shards' (`shard_schema`), and check the recipe's columns against it.

    Raises
    ------
    UsageError
        A column of the recipe is not there.
    DataRefused
        Shards whose types do not meet; or no shard has a column.
    """
    wide = source_schema(dict(schemas))
    if not len(wide):
        raise _empty(examples)
    check_columns(examples, wide, where=str(examples.source))
    return wide


def map_shard(shard: Shard, examples: Examples, schema: pa.Schema, part_rows: int = PART_ROWS) -> Iterator[Part]:
    """Read and map one shard: depends on the shard, the section and the source's schema alone.

    Memory is bounded by a part. A shard without rows yields no part. About 150,000 to 250,000 rows a second and core.
    """
    options = replace(read_options(examples), schema=schema)
    tables: list[pa.Table] = []
    rejects: list[Reject] = []
    index = rows = size = 0
    for batch in read_shard(shard, options):
        table, unusable = map_batch(batch, examples, shard.uri)
        tables.append(table)
        rejects += [*batch.rejects, *unusable]
        rows += len(batch.rows) + len(batch.rejects)
        size += table.nbytes
        if rows >= part_rows or size >= PART_BYTES:
            yield _part(shard, index, tables, rejects)
            tables, rejects, rows, size, index = [], [], 0, 0, index + 1
    if rows:
        yield _part(shard, index, tables, rejects)


def _part(shard: Shard, index: int, tables: list[pa.Table], rejects: list[Reject]) -> Part:
    table = pa.concat_tables(tables).sort_by([("example_id", "ascending"), ("source_row", "ascending")])
    bad = rejects_table(shard.uri, sorted(rejects, key=lambda reject: reject.row))
    return Part(shard.uri, index, table, bad, len(table) + len(bad))


@dataclass(frozen=True)
class Ingested:
    """A whole source in memory.

    Attributes
    ----------
    table : polars.DataFrame
        The table `examples` and the payload, sorted by example_id.
    rejects : polars.DataFrame
        The table `rejects`.
    counts : IngestCounts
    """

    table: pl.DataFrame
    rejects: pl.DataFrame
    counts: IngestCounts


def read_examples(
    examples: Examples, *, base: str | Path = ".", previous: pl.DataFrame | None = None, seed: int = 0
) -> Ingested:
    """Read a whole source, or generate a procedural data set, into memory.

    Parameters
    ----------
    examples : Examples
    base : str or Path
        Folder at which a relative source starts, and to which `source_uri` is relative.
    previous : polars.DataFrame, optional
        Columns example_id and content_hash of the version before.
    seed : int
        For procedural data sets that draw.

    Raises
    ------
    UsageError
        A file or column that is not there.
    DataRefused
        A file that cannot be read, shards whose types do not meet, no row at all.
    """
    if examples.generate is not None:
        return _generated(examples, previous, seed)
    found = shards(str(examples.source), base, examples.format)
    options = read_options(examples)
    schema = examples_schema({shard.uri: shard_schema(shard, options) for shard in found}, examples)
    parts = [part for shard in found for part in map_shard(shard, examples, schema)]
    if not parts:
        raise _empty(examples)
    resolution = resolve_duplicates([part.keys() for part in parts], examples.on_conflict, examples.id)
    kept = pa.concat_tables([part.without(drop) for part, drop in zip(parts, resolution.drop, strict=True)])
    table = pl.DataFrame(pl.from_arrow(kept)).sort("example_id")
    bad = pl.DataFrame(pl.from_arrow(pa.concat_tables([part.rejects for part in parts])))
    rejects = pl.concat([bad, resolution.rejects]).sort("source_uri", "source_row")
    seen = compare_versions(previous, table)
    counts = IngestCounts(
        rows_in=sum(part.rows_in for part in parts),
        published=len(table),
        rejected=len(rejects),
        redelivered=resolution.redelivered,
        new=seen.new,
        same=seen.same,
        changed=seen.changed,
        vanished=seen.vanished,
    )
    return Ingested(table, rejects, counts)


def _generated(examples: Examples, previous: pl.DataFrame | None, seed: int) -> Ingested:
    assert examples.generate is not None
    plugin, config = resolve("dataset", examples.generate, where="examples.generate")
    table = pl.concat(list(plugin.run(config, seed))).sort("example_id")
    rejects = pl.DataFrame(pl.from_arrow(rejects_table("", [])))
    seen = compare_versions(previous, table)
    counts = IngestCounts(len(table), len(table), 0, 0, seen.new, seen.same, seen.changed, seen.vanished)
    return Ingested(table, rejects, counts)


def _empty(examples: Examples) -> DataRefused:
    return DataRefused(
        "there is no row in the whole source that can be read",
        where=str(examples.source),
        expected="at least one row: in JSON Lines an object a line, in CSV a header and a line",
        remedy="look at the file's first lines; NaN and Infinity are no JSON: write null",
    )

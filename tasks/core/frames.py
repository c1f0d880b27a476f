"""Polars frames in the schema of a table's contract."""

from __future__ import annotations

import polars as pl

from gradatim.schemas.tables import spec


def polars_schema(table: str) -> dict[str, pl.DataType]:
    """Return a contract's columns with their Polars types."""
    empty = pl.from_arrow(spec(table).schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)


def conform(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Give a frame the columns and types of a table of `schemas.tables`, sorted by its key; what it lacks is null."""
    schema = polars_schema(table)
    columns = [name if name in frame.columns else pl.lit(None).alias(name) for name in schema]
    return frame.select(columns).cast(schema).sort(spec(table).key)  # type: ignore[arg-type]

"""The members of rows as sorted lists, from a column of lists or from several columns."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def sets(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return each row's members as texts, sorted, each once; null where no column has a value."""
    flat, known = [], pl.Series([False]).new_from_index(0, len(rows))
    for name in columns:
        column = rows[name]
        if isinstance(column.dtype, pl.Array):
            column = column.arr.to_list()
        listed = isinstance(column.dtype, pl.List)
        one = column.alias("member").to_frame().with_row_index("row")
        one = one.explode("member") if listed else one
        if one["member"].dtype.is_float():
            one = one.with_columns(pl.col("member").fill_nan(None))
        one = one.select("row", pl.col("member").cast(pl.String)).drop_nulls()
        known |= column.is_not_null() if listed else pl.int_range(len(rows), eager=True).is_in(one["row"].implode())
        flat.append(one)
    found = pl.concat(flat).group_by("row").agg(pl.col("member").unique().sort())
    every = pl.DataFrame({"known": known}).with_row_index("row")
    every = every.join(found, on="row", how="left", maintain_order="left")
    return every.select(pl.when("known").then(pl.col("member").fill_null([])))["member"]

"""The members of rows as sorted lists, from a column of lists or from several columns."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def sets(rows: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return each row's members as texts, sorted, each once; null where no column has a value."""
    parts = []
    for name in columns:
        column = rows[name]
        if isinstance(column.dtype, pl.Array):
            column = column.arr.to_list()
        if column.dtype.is_float():
            column = column.fill_nan(None)
        if isinstance(column.dtype, pl.List):
            if column.dtype.inner.is_float():  # type: ignore[union-attr]
                column = column.list.eval(pl.element().fill_nan(None))
            texts = column.cast(pl.List(pl.String))
        else:
            texts = pl.select(pl.concat_list(pl.lit(column.cast(pl.String))).alias(name))[name]
            texts = texts.set(column.is_null(), None)
        parts.append(texts)
    known = parts[0].is_not_null()
    for one in parts[1:]:
        known |= one.is_not_null()
    nothing = pl.lit([], pl.List(pl.String))
    filled = [pl.when(pl.lit(one).is_null()).then(nothing).otherwise(pl.lit(one)) for one in parts]
    joined = pl.select(pl.concat_list(filled).list.drop_nulls().list.unique().list.sort().alias("members"))["members"]
    return joined.set(~known, None) if not known.all() else joined

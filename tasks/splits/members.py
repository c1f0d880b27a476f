"""Members of rows: the skills or labels of each, from a column of lists or from several columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.splits.values import as_text, quoted


def members(examples: pl.DataFrame, columns: Sequence[str]) -> tuple[pl.DataFrame, np.ndarray]:
    """List the members of each row once.

    Parameters
    ----------
    examples : polars.DataFrame
    columns : sequence of str
        A column of lists, each of whose values is a member; or columns of single values, each a member where it is not
        null.

    Returns
    -------
    polars.DataFrame
        row (place among the examples, Int64) and member (String), sorted, each pair once.
    numpy.ndarray of bool, (rows,)
        Rows that have a value in one of the columns; an empty list is one.

    Raises
    ------
    UsageError
        For a column of anything else.
    """
    known = np.zeros(len(examples), np.bool_)
    parts = []
    for name in columns:
        column = examples[name]
        kind = column.dtype
        if isinstance(kind, pl.Array):
            column = column.arr.to_list()
        rows = pl.Series("row", np.arange(len(column)), dtype=pl.Int64)
        if isinstance(column.dtype, pl.List):
            known |= column.is_not_null().to_numpy()
            frame = pl.DataFrame({"row": rows, "member": column}).explode("member")
        else:
            frame = pl.DataFrame({"row": rows, "member": column})
        if frame["member"].dtype.is_nested():
            raise UsageError(
                f"the column {name!r} holds {kind}", where="table examples", expected="single values, or lists of them"
            )
        frame = frame.with_columns(as_text(frame["member"])).drop_nulls()
        known[frame["row"].to_numpy()] = True
        parts.append(frame)
    return pl.concat(parts).unique().sort("row", "member"), known


def joined(long: pl.DataFrame, rows: int, sign: str) -> pl.Series:
    """Name the members of each row, in the order of names: ``algebra + geometry``; null where it has none."""
    levels = long["member"].unique().sort()
    named = pl.DataFrame({"member": levels, "name": [quoted(level) for level in levels]}, schema_overrides=_TEXTS)
    one = long.join(named, on="member", how="left", maintain_order="left")
    texts = one.group_by("row", maintain_order=True).agg(pl.col("name").str.join(sign))
    every = pl.DataFrame({"row": pl.Series(np.arange(rows), dtype=pl.Int64)})
    return every.join(texts, on="row", how="left", maintain_order="left")["name"]


_TEXTS = {"member": pl.String, "name": pl.String}

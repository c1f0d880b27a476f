"""What the row-wise methods share: finding a column of the examples, and setting rows without a value apart."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.difficulty.result import Difficulty, build


def example_column(tables: Mapping[str, pl.DataFrame], name: str, where: str) -> pl.DataFrame:
    """Return example_id and the column `name` as ``found``, sorted by id.

    Raises
    ------
    UsageError
        If the column or example_id is not there.
    DataRefused
        If an id is null or stands twice.
    """
    examples = tables["examples"]
    if "example_id" not in examples.columns:
        raise UsageError(
            f"the examples have no column 'example_id'{nearest('example_id', examples.columns)}",
            where=where,
            expected="an id for each example, as gd.read gives it",
            remedy="rename the column of ids:  examples.rename({'id': 'example_id'})",
        )
    if name not in examples.columns:
        raise UsageError(
            f"the examples have no column {name!r}{nearest(name, examples.columns)}",
            where=where,
            expected="one of " + ", ".join(c for c in examples.columns if c != "example_id"),
        )
    frame = examples.select(pl.col("example_id").cast(pl.String), pl.col(name).alias("found")).sort("example_id")
    ids = frame["example_id"]
    if empty := ids.null_count():
        raise DataRefused(f"{empty:,} of {len(frame):,} examples have no id", where=where, expected="an id for each")
    twice = ids.filter(ids == ids.shift())
    if len(twice):
        raise DataRefused(
            f"the id {twice[0]!r} stands twice, as do {len(twice):,} rows in all",
            where=where,
            expected="unique ids",
            remedy="keep one row an example",
        )
    return frame


def row_wise(
    frame: pl.DataFrame,
    *,
    method: str,
    title: str,
    scale: str,
    sign: float,
    bins: int | None,
    lacking: str,
    source: str,
) -> Difficulty:
    """Build a `Difficulty` from a frame of example_id and number (Float64).

    Rows whose number is null, NaN or infinite get no difficulty: they are excluded with the reason `lacking`.
    """
    usable = frame.filter(pl.col("number").is_finite())  # null is not true either
    gone = frame.join(usable, on="example_id", how="anti").select("example_id").sort("example_id")
    raw = usable["number"].to_numpy()
    return build(
        method=method,
        title=title,
        ids=usable["example_id"].to_list(),
        value=sign * raw + 0.0,
        raw=raw,
        scale=scale,
        n=np.ones(len(raw), dtype=np.int64),
        bins=bins,
        excluded=gone.with_columns(pl.lit(lacking).alias("reason")),
        source=source,
    )

"""Each stratum has its share of test, to a row."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.frozen import KEPT
from gradatim.tasks.splits.promises import random


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Measure the largest error of a stratum's test rows; a bound only where rows stand alone and nothing is frozen."""
    column = settings["column"]
    inside = random.promises(settings, rows)
    if not column or settings["folds"] > 1:
        return inside
    used = rows.filter(pl.col("split") != "excluded")
    per = used.group_by(pl.col(column).cast(pl.String)).agg(
        pl.len().alias("rows"), (pl.col("split") == "test").sum().alias("test")
    )
    worst = float((per["test"].cast(pl.Float64) - settings["test"] * per["rows"]).abs().max() or 0.0)
    free = rows["component"].null_count() == len(rows) and not rows["reason"].str.starts_with(KEPT).any()
    name = f"constraint:largest error of a stratum's test rows ({column})"
    return [*inside, Check(name, worst, "<= 1" if free else None, worst <= 1 if free else None, len(per))]

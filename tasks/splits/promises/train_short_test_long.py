"""No row of train is longer than the fold says; every row of test_ood is, and of a tested length."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises import threshold
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare lengths with the limit that the fold's axis names, and count wrong slices."""
    column = str(settings["column"])
    limit = str(rows["axis"][0]).removeprefix(f"{column} <= ")
    side = threshold.sides({"column": column, "train": f"<= {limit}", "gap": None}, rows)
    checks = []
    if settings["lengths"]:
        tested = np.zeros(len(rows), np.bool_)
        for one in settings["lengths"]:
            text = one if isinstance(one, str) else f"== {one}"
            tested |= threshold.sides({"column": column, "train": text, "gap": None}, rows) == IN
        side = np.where((side == OUT) & ~tested, NEITHER, side)
    else:
        told = rows["held_out"].drop_nulls()
        own = rows.filter(pl.col("held_out").is_not_null())[column].cast(pl.String)
        wrong = int((told != pl.Series([f"{column}="]).new_from_index(0, len(own)) + own).sum())
        checks.append(zero("constraint:rows whose held_out is not their length", wrong, len(own)))
    return [*compared(side, rows, f"{column} beyond {limit}"), *checks]

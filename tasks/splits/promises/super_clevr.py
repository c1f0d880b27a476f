"""Each fold trains on one level of one factor, and all its rows have the base level of every other."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises import holdout_values
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Find the factor and the level that the fold's axis names, and compare every factor."""
    axis = str(rows["axis"][0])
    name = next(name for name in settings["base"] if axis.startswith(f"{name}: trained on "))
    level = axis.removeprefix(f"{name}: trained on ")
    own = texts(rows[name])
    known = own.is_not_null().to_numpy()
    side = np.where((own == level).fill_null(False).to_numpy(), IN, OUT)
    for other, base in settings["base"].items():
        if other != name:
            # 1 where a row has the base level, 0 where another, 2 where none
            has = holdout_values.sides({"column": other, "values": [base]}, rows)
            known &= has == OUT
    found = compared(np.where(known, side, NEITHER), rows, f"{name} {level}")
    levels = own.filter(rows["split"].is_in(["test_ood", "validation_ood"])).n_unique()
    return [*found, Check(f"tested_levels:{name}", float(levels), None, None, own.drop_nulls().n_unique())]

"""Each in-distribution point of the cube lies in the region that is seen, and each of test_ood outside it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compute the region that the fold's axis names from the coordinates."""
    axis = str(rows["axis"][0])
    inputs = settings["inputs"]

    def coordinate(k: int) -> pl.Expr:
        if isinstance(rows[inputs[0]].dtype, pl.List | pl.Array) and len(inputs) == 1:
            lists = pl.col(inputs[0]).cast(pl.List(pl.Float64))
            return lists.list.get(k, null_on_oob=True)
        return pl.col(inputs[k]).cast(pl.Float64)

    d = len(inputs)
    if isinstance(rows[inputs[0]].dtype, pl.List | pl.Array) and len(inputs) == 1:
        d = int(rows[inputs[0]].cast(pl.List(pl.Float64)).list.len().max() or 0)
    x = [coordinate(k).fill_nan(None) for k in range(d)]
    known = pl.all_horizontal(one.is_not_null() for one in x)
    if found := re.fullmatch(r"x(\d+) = 1 is seen", axis):
        seen = x[int(found[1])] > 0
    elif found := re.fullmatch(r"at most (\d+) of -1 are seen", axis):
        seen = pl.sum_horizontal((one < 0).cast(pl.Int64) for one in x) <= int(found[1])
    elif axis.endswith("f1 is seen"):
        seen = (x[0] * x[1] * x[2]) > 0
    else:
        first = 3 if axis.endswith("f3 is seen") else 2
        seen = pl.any_horizontal(one > 0 for one in x[:first])
    side = rows.select(pl.when(known).then(pl.when(seen).then(IN).otherwise(OUT)).otherwise(NEITHER).alias("side"))
    return compared(np.asarray(side["side"].to_numpy()), rows, "the unseen")

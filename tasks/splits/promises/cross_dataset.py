"""Training rows are of the data sets that the fold's axis names, test_ood rows of the others."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare each row's data set with the plan that the axis names."""
    column = str(settings["column"])
    dataset = rows[column].cast(pl.String)
    plan = str(rows["axis"][0]).removeprefix(f"{column}: ")
    if plan == "all":
        trained = dataset.is_not_null()
    elif plan.endswith(" alone") and (dataset == plan.removesuffix(" alone")).any():
        trained = dataset == plan.removesuffix(" alone")
    else:
        trained = dataset != plan.removeprefix("all but ")
    inside, outside = by_rule(rows)
    strange = int((inside & ~trained.fill_null(False)).sum())
    known = int((outside & trained.fill_null(True)).sum())
    return [
        zero(f"constraint:in-distribution rows of a {column} not trained on", strange, int(inside.sum())),
        zero(f"constraint:test_ood rows of a {column} trained on", known, int(outside.sum())),
    ]

"""No template is on both sides."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.core.templates import mask, skeletons
from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Find the templates of both sides anew, and count those that they share."""
    column = rows[settings["column"]]
    if settings["mask"] == "skeleton":
        column = skeletons(column, settings["labels"])
    elif settings["mask"] == "constants":
        column = mask(column.cast(pl.String), entities=settings["entities"])
    elif column.dtype.is_float():
        column = column.fill_nan(None)
    inside, outside = by_rule(rows)
    trained, tested = column.filter(inside).unique(), column.filter(outside).unique()
    nameless = int(column.filter(inside | outside).is_null().sum())
    return [
        zero("constraint:templates on both sides", int(tested.is_in(trained.implode()).sum()), len(tested)),
        zero("constraint:rows without a template", nameless, int((inside | outside).sum())),
        Check("held_out_templates", float(len(tested)), None, None, column.drop_nulls().n_unique()),
    ]

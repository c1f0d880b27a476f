"""Generalisation cases are in no training set, and what training shows of a word is in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared, named_cells, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare each row's type with the cases that ``held_out`` names; count primitives that train lacks."""
    column = str(settings["column"])
    kind = texts(rows[column])
    named = {cell[column] for cell in named_cells(rows) if list(cell) == [column]}
    shown = kind.str.contains(r"^(?:primitive$|exposure_example)").fill_null(False)
    inside = (kind == "in_distribution").fill_null(False) | shown
    side = np.where(inside.to_numpy(), IN, np.where(kind.is_in(list(named)).fill_null(False).to_numpy(), OUT, NEITHER))
    checks = compared(side, rows, "the cases tested")
    if settings["files"] is None:
        used = shown & rows["split"].is_in(["validation", "test"])
        checks.append(
            zero("constraint:primitives and exposure examples outside train", int(used.sum()), int(shown.sum()))
        )
    else:
        file = texts(rows[settings["files"]]).replace({"dev": "validation"})
        alone = rows["component"].is_null() if "component" in rows.columns else pl.Series([True] * len(rows))
        here = pl.Series(side == IN) & alone & rows["split"].is_in(["train", "validation", "test"])
        moved = here & (file != rows["split"]).fill_null(True)
        checks.append(zero("constraint:rows outside their published file", int(moved.sum()), int(here.sum())))
    return checks

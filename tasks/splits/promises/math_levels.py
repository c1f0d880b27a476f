"""The levels of train satisfy the condition, those of test_ood do not; in a fold of a subject all are of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises import threshold
from gradatim.tasks.splits.promises._sides import NEITHER, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Read the levels from their last digits, and compare."""
    level, subject = str(settings["level"]), settings["subject"]
    column = rows[level]
    if not column.dtype.is_numeric():
        digits = column.cast(pl.String).str.strip_chars().str.extract(r"([0-9]+)$")
        column = digits.cast(pl.Int64, strict=False)
    numbers = pl.DataFrame({"level": column})
    side = threshold.sides({"column": "level", "train": settings["train"], "gap": None}, numbers)
    what = f"{level} beyond {settings['train']}"
    if subject is not None:
        name = str(rows["axis"][0]).removeprefix(f"level, {subject} ")
        own = (rows[subject].cast(pl.String) == name).fill_null(False).to_numpy()
        side, what = np.where(own, side, NEITHER), f"{what}, or of another {subject}"
    return compared(side, rows, what)

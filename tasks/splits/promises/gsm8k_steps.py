"""The steps of train satisfy the condition, those of test_ood do not, counted anew from the answers."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises import threshold
from gradatim.tasks.splits.promises._sides import compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Split answers at line ends and at the marks of calculations."""
    if settings["steps"] is not None:
        counts = rows[settings["steps"]]
    else:
        answers = rows[settings["answer"] or "output"].cast(pl.String)
        if settings["count"] == "calculations":
            counts = answers.str.extract_all("<<[^<>]*>>").list.len().cast(pl.Int64)
        else:
            lines = answers.str.split("\n")
            blank = lines.list.eval(pl.element().str.strip_chars() == "")
            # the line of the final answer, and what follows it, do not count
            last = lines.list.eval(pl.element().str.strip_chars().str.starts_with("####").cum_max())
            counted = pl.DataFrame({"blank": blank, "last": last}).select(
                pl.col("blank").list.len().cast(pl.Int64).alias("all"), "blank", "last"
            )
            none = counted.with_row_index("row").explode("blank", "last").group_by("row", maintain_order=True)
            counts = none.agg((~pl.col("blank") & ~pl.col("last")).sum().cast(pl.Int64).alias("n"))["n"]
        counts = counts.set((counts == 0) | answers.is_null(), None)
    frame = pl.DataFrame({"steps": counts})
    side = threshold.sides({"column": "steps", "train": settings["train"], "gap": None}, frame)
    return compared(side, rows, f"steps beyond {settings['train']}")

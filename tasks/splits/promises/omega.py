"""No higher level of a template, no joined skills and nothing marked is trained on; what is tested was prepared."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero
from gradatim.tasks.splits.promises import holdout_values, threshold
from gradatim.tasks.splits.promises._members import sets
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Check the regime that the fold's axis names."""
    regime = str(rows["axis"][0])
    if regime == "exploratory":
        return _exploratory(settings, rows)
    if regime == "compositional":
        return _compositional(settings, rows)
    side = holdout_values.sides({"column": settings["strategy"], "values": settings["marked"]}, rows)
    return compared(side, rows, f"what {settings['strategy']} marks")


def _exploratory(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    level, template = str(settings["level"]), texts(rows[settings["template"]])
    side = threshold.sides({"column": level, "train": settings["train"], "gap": None}, rows)
    side = np.where(template.is_null().to_numpy(), NEITHER, side)
    trained = set(template.filter(rows["split"] == "train"))
    outside = by_rule(rows)[1]
    strange = outside & ~template.is_in(list(trained - {None}))
    return [
        *compared(side, rows, f"{level} beyond {settings['train']}"),
        zero("constraint:test_ood rows of a template that is not trained on", int(strange.sum()), int(outside.sum())),
    ]


def _compositional(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    members = sets(rows, settings["skills"])
    size = members.list.len().fill_null(0).to_numpy()
    if settings["pairs"]:
        holds = np.zeros(len(rows), np.bool_)
        for pair in settings["pairs"]:
            both = [members.list.contains(skill).fill_null(False).to_numpy() for skill in pair]
            holds |= both[0] & both[1]
    else:
        holds = size > 1
    side = np.where(size == 1, IN, np.where(holds & (size > 1), OUT, NEITHER))
    alone = members.filter((rows["split"] == "train") & pl.Series(size == 1)).explode().value_counts(name="n")
    least = int(settings["keep_skills"])
    enough = set(alone.filter(pl.col("n") >= least).to_series(0))
    outside = by_rule(rows)[1]
    tested = set(members.filter(outside).explode().drop_nulls())
    few = len(tested - enough)
    return [
        *compared(side, rows, "joined skills"),
        zero(f"constraint:tested skills alone in fewer than {least} training rows", few, len(tested)),
    ]

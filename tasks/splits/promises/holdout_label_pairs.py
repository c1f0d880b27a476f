"""No in-distribution row has both labels of a held-out pair, each row of test_ood does, and train has every label."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._members import sets
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared

_LABEL = r'"(?:[^"\\]|\\.)*"|[^";]+?'


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Look for the pairs that the settings name, or that ``held_out`` says were drawn."""
    labels = sets(rows, [settings["column"]])
    pairs = [tuple(pair) for pair in settings["pairs"]] or _drawn(rows)
    holds = np.zeros(len(rows), np.bool_)
    for pair in pairs:
        both = [labels.list.contains(label).fill_null(False).to_numpy() for label in pair]
        holds |= both[0] & both[1]
    side = np.where(labels.is_null().to_numpy(), NEITHER, np.where(holds, OUT, IN))
    least = int(settings["keep_labels"])
    beside = pl.DataFrame({"label": labels, "train": rows["split"] == "train"}).explode("label").drop_nulls("label")
    counts = beside.group_by("label").agg(pl.len().alias("all"), pl.col("train").sum().alias("trained"))
    few = counts.filter(pl.col("trained") < pl.min_horizontal("all", pl.lit(least)))
    return [
        *compared(side, rows, "a held-out pair"),
        zero(f"constraint:labels in fewer than {least} training rows", len(few), len(counts)),
        Check("held_out_pairs", float(len(pairs)), None, None, len(counts)),
    ]


def _drawn(rows: pl.DataFrame) -> list[tuple[str, ...]]:
    pairs = []
    for piece in {piece for text in rows["held_out"].drop_nulls().unique() for piece in text.split("; ")}:
        found = re.fullmatch(rf"({_LABEL}) \+ ({_LABEL})", piece)
        if found:
            pairs.append(tuple(json.loads(one) if one.startswith('"') else one for one in found.groups()))
    return pairs

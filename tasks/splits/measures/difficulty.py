"""How hard the rows of each split are."""

from __future__ import annotations

import math

import polars as pl

from gradatim.tasks.splits.measures.balance import from_train, labelled
from gradatim.tasks.splits.measures.block import Block, Measured


def difficulty(block: Block) -> Measured:
    """Return ``difficulty_mean:SPLIT``, the histogram ``bin:K:SPLIT`` (shares), and ``tv:bin:SPLIT`` from train."""
    found: Measured = {}
    for name, part in block.parts.items():
        if block.has("value") and len(known := part["value"].drop_nulls()):
            found[f"difficulty_mean:{name}"] = (math.fsum(known.to_list()) / len(known), len(known))
        if block.has("bin") and len(bins := part["bin"].drop_nulls()):
            for value, count in bins.value_counts().sort("bin").iter_rows():
                found[f"bin:{value}:{name}"] = (count / len(bins), len(bins))
    if labelled(block, "bin"):
        found |= from_train(block, "bin")
    return found


def histogram(table: pl.DataFrame) -> pl.DataFrame:
    """Read the histogram back from a certificate's rows: bin, split, share (mean over seeds and folds)."""
    parts = table.filter(pl.col("check").str.starts_with("bin:")).with_columns(
        pl.col("check").str.split(":").list.get(1).cast(pl.Int64).alias("bin"),
        pl.col("check").str.split(":").list.get(2).alias("split"),
    )
    # a bin that a fold's split does not have has no row there: its share is 0
    folds = table.select("seed", "fold").unique().height
    return parts.group_by("bin", "split").agg(share=pl.col("value").sum() / folds).sort("bin", "split")

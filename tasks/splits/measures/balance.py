"""Sizes, and how labels and domains are spread over the splits."""

from __future__ import annotations

import math

import polars as pl

from gradatim.tasks.splits.measures.block import Block, Measured

MOST_VALUES = 1_000
"""Distinct values up to which a column counts as labels."""
_NAMES = {"output": "label", "domain": "domain"}


def balance(block: Block) -> Measured:
    """Count rows and groups of each split, and compare label and domain shares of train and the tests.

    Returns
    -------
    dict
        ``rows:SPLIT``, ``groups:SPLIT``; for output (as label) and domain, where they have 2 to 1,000 values:
        ``label_values:SPLIT``, ``label_largest_share:SPLIT`` and ``tv:output:SPLIT``, the total variation from train.
    """
    found: Measured = {f"rows:{name}": (float(len(part)), len(part)) for name, part in block.parts.items() if len(part)}
    if block.has("component") and block.rows["component"].null_count() < len(block.rows):
        for name, part in block.parts.items():
            if len(part):
                found[f"groups:{name}"] = (float(part["component"].drop_nulls().n_unique()), len(part))
    for column, name in _NAMES.items():
        if not labelled(block, column):
            continue
        for split, part in block.parts.items():
            counts = part[column].drop_nulls().value_counts()["count"]
            if len(counts):
                found[f"{name}_values:{split}"] = (float(len(counts)), len(part))
                found[f"{name}_largest_share:{split}"] = (int(counts.max()) / int(counts.sum()), len(part))  # type: ignore[arg-type]
        found |= from_train(block, column)
    return found


def labelled(block: Block, column: str) -> bool:
    """Whether a column has few values, and more than one."""
    return block.has(column) and 1 < block.rows[column].drop_nulls().n_unique() <= MOST_VALUES


def from_train(block: Block, column: str) -> Measured:
    """Return the total variation between train and each test."""
    parts = {name: block.parts[name] for name in ("test", "test_ood")}
    return {
        f"tv:{column}:{name}": (total_variation(block.train[column], part[column]), len(part))
        for name, part in parts.items()
        if len(part) and len(block.train)
    }


def total_variation(left: pl.Series, right: pl.Series) -> float:
    """Return half the sum of the absolute differences of two columns' shares, in [0, 1]; null counts as a value."""
    shares = [
        side.to_frame("value").group_by("value").agg((pl.len() / len(side)).alias(name))
        for side, name in ((left, "left"), (right, "right"))
    ]
    joined = shares[0].join(shares[1], on="value", how="full", nulls_equal=True).fill_null(0.0)
    return math.fsum((joined["left"] - joined["right"]).abs().to_list()) / 2

"""What a certificate measures on a split and, by the same code, on its random control."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits.shift import shift_auc

Measured = dict[str, tuple[float | None, int]]
"""Value and number of rows by the name of the check."""

_MOST_LABELS = 1_000
_Z_POWER_80 = 1.959963984540054 + 0.8416212335729143
"""Normal quantiles for a two-sided test at 5 % with a power of 80 %."""


def measure(rows: pl.DataFrame, seed: int) -> Measured:
    """Measure one split.

    Parameters
    ----------
    rows : polars.DataFrame
        example_id, split, component, input; output, domain, bin, value (difficulty) and score where they are known.
    seed : int

    Returns
    -------
    dict
        ``rows:``, ``duplicates_across``, ``tv:`` (total variation, 0 to 1), ``difficulty_mean:``, ``score:``,
        ``score_gap`` (out of distribution less in distribution), ``detectable_gap``, ``shift_auc``.
    """
    used = rows.filter(pl.col("split") != "excluded")
    parts = {name: used.filter(pl.col("split") == name) for name in SPLITS if name != "excluded"}
    found: Measured = {f"rows:{name}": (float(len(part)), len(part)) for name, part in parts.items() if len(part)}
    if "input" in rows.columns:
        found["duplicates_across"] = (float(duplicates_across(used)), len(used))
    train = parts["train"]
    for column in ("output", "domain", "bin"):
        if column in rows.columns and 1 < used[column].drop_nulls().n_unique() <= _MOST_LABELS:
            for name in ("test", "test_ood"):
                if len(train) and len(parts[name]):
                    found[f"tv:{column}:{name}"] = (
                        total_variation(train[column], parts[name][column]),
                        len(parts[name]),
                    )
    for column, prefix in (("value", "difficulty_mean"), ("score", "score")):
        if column in rows.columns:
            for name, part in parts.items():
                known = part[column].drop_nulls()
                if len(known):
                    found[f"{prefix}:{name}"] = (math.fsum(known.to_list()) / len(known), len(known))
    inside, outside = found.get("score:test"), found.get("score:test_ood")
    if inside and outside:
        found["score_gap"] = ((outside[0] or 0.0) - (inside[0] or 0.0), inside[1] + outside[1])
    if len(parts["test"]) and len(parts["test_ood"]):
        sizes = len(parts["test"]), len(parts["test_ood"])
        found["detectable_gap"] = (detectable_gap(*sizes), sum(sizes))
    other = parts["test_ood"] if len(parts["test_ood"]) else parts["test"]
    if "input" in rows.columns and len(train) and len(other):
        columns = ["example_id", "input", "component"]
        found["shift_auc"] = shift_auc(train.select(columns), other.select(columns), seed)
    return found


def duplicates_across(rows: pl.DataFrame) -> int:
    """Count the distinct normalised inputs that stand in more than one split."""
    text = pl.col("input").str.normalize("NFC").str.replace_all(r"\s+", " ").str.strip_chars()
    per_text = rows.drop_nulls("input").group_by(text).agg(pl.col("split").n_unique().alias("places"))
    return int((per_text["places"] > 1).sum())


def total_variation(left: pl.Series, right: pl.Series) -> float:
    """Return half the sum of the absolute differences of two columns' shares, in [0, 1]; null counts as a value."""
    shares = [
        side.to_frame("value").group_by("value").agg((pl.len() / len(side)).alias(name))
        for side, name in ((left, "left"), (right, "right"))
    ]
    joined = shares[0].join(shares[1], on="value", how="full", nulls_equal=True).fill_null(0.0)
    return math.fsum((joined["left"] - joined["right"]).abs().to_list()) / 2


def detectable_gap(left: int, right: int, rate: float = 0.5) -> float:
    """Return the smallest difference of two rates that a two-sided test at 5 % sees with a power of 80 %.

    Normal approximation at a common `rate`; .5 is the least favourable. Rows count as independent: with groups the true
    number is larger.
    """
    return _Z_POWER_80 * float(np.sqrt(rate * (1 - rate) * (1 / left + 1 / right)))

"""Diversity shift and correlation shift between train and test_ood (OoD-Bench), exact over categories."""

from __future__ import annotations

import numpy as np
import polars as pl

from gradatim.tasks.core.ood_shift import SOURCE, exact_shift
from gradatim.tasks.splits.measures.balance import labelled
from gradatim.tasks.splits.measures.block import Block, Measured
from gradatim.tasks.splits.measures.shift import Told

__all__ = ["SOURCE", "ood_shift"]

BINS = 20
"""Equal-count bins of the classifier's score, which stands in for a learned feature."""


def ood_shift(block: Block, told: Told | None) -> Measured:
    """Measure by what the environments differ: features that one side alone has, or other labels of equal features.

    Parameters
    ----------
    block : Block
    told : Told or None
        The classifier that tells train from test_ood: its out-of-fold score, in 20 bins of equal counts, is a feature.

    Returns
    -------
    dict
        ``diversity_shift:Z`` and ``correlation_shift:Z`` in [0, 1] (Hellinger form), for Z = domain and template where
        they have 2 to 1,000 values, and for Z = classifier. The label is the output where it has few values, else the
        difficulty bin; without a label there is no correlation shift.
    """
    label = next((name for name in ("output", "bin") if labelled(block, name)), None)
    found: Measured = {}
    for column in ("domain", "template"):
        if labelled(block, column):
            both = pl.concat([block.train.with_columns(side=0), block.compared.with_columns(side=1)])
            found |= _shift(both, pl.col(column).cast(pl.String).fill_null("null"), label, column)
    if told is not None and len(told.rows) >= 2 * BINS:
        cell = np.minimum(
            np.argsort(np.argsort(told.score, kind="stable"), kind="stable") * BINS // len(told.score), BINS
        )
        both = told.rows.with_columns(side=pl.Series(told.label), cell=pl.Series(cell))
        found |= _shift(both, pl.col("cell"), label, "classifier")
    return found


def _shift(both: pl.DataFrame, feature: pl.Expr, label: str | None, name: str) -> Measured:
    value = pl.lit(0) if label is None else pl.col(label)
    rows = both.select("side", z=feature, y=value).drop_nulls()
    sides = rows.group_by("z", "y").agg(one=(pl.col("side") == 0).sum(), other=(pl.col("side") == 1).sum())
    if not len(sides) or not sides["one"].sum() or not sides["other"].sum():
        return {}
    place = sides["z"].rank("dense").to_numpy() - 1, sides["y"].rank("dense").to_numpy() - 1
    counts = np.zeros((2, place[0].max() + 1, place[1].max() + 1), np.int64)
    counts[0][place], counts[1][place] = sides["one"].to_numpy(), sides["other"].to_numpy()
    shift = exact_shift(counts[0], counts[1])
    found: Measured = {f"diversity_shift:{name}": (shift.diversity, len(rows))}
    if label is not None:
        found[f"correlation_shift:{name}"] = (shift.correlation, len(rows))
    return found

"""Numbers of folds: those that a release gave stay with what they hold out, new ones follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from gradatim.tasks.splits.frozen import CONTROLS


def numbered(
    labels: Sequence[str], frozen: pl.DataFrame | None, folds: int, *, by: Literal["held_out", "axis"] = "held_out"
) -> list[tuple[int, str]]:
    """Number folds by what they hold out, or by their axis where rows of a fold differ in what is held out.

    Parameters
    ----------
    labels : sequence of str
        What each fold's ``held_out`` (or ``axis``) says, in the order in which new folds are numbered; empty where
        nothing is held out.
    frozen : polars.DataFrame or None
        The released split; numbers are those of its folds where it has the columns fold and `by`.
    folds : int
        Cuts of the in-distribution rows within each fold, which the engine numbers apart.
    by : "held_out" or "axis"
        The column that tells folds apart.

    Returns
    -------
    list of (int, str)
        Number and label of each fold, sorted.
    """
    known: dict[str, int] = {}
    if frozen is not None and {by, "fold"} <= set(frozen.columns):
        if "strategy" in frozen.columns:  # controls shift nothing, and their axes say so
            frozen = frozen.filter(~pl.col("strategy").str.contains(CONTROLS))
        told = frozen.group_by("fold").agg(pl.col(by).drop_nulls().min().fill_null("")).sort("fold")
        for fold, label in told.iter_rows():
            known.setdefault(label, fold // folds)
    after = max(known.values(), default=-1) + 1
    fresh = [label for label in labels if label not in known]
    numbers = {label: known[label] for label in labels if label in known}
    numbers |= {label: after + place for place, label in enumerate(fresh)}
    return sorted((number, label) for label, number in numbers.items())

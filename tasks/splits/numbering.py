"""Numbers of folds: those that a release gave stay with what they hold out, new ones follow."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def numbered(labels: Sequence[str], frozen: pl.DataFrame | None, folds: int) -> list[tuple[int, str]]:
    """Number folds by what they hold out.

    Parameters
    ----------
    labels : sequence of str
        What each fold's ``held_out`` says, in the order in which new folds are numbered; empty where nothing is held
        out.
    frozen : polars.DataFrame or None
        The released split; numbers are those of its folds where it has the columns fold and held_out.
    folds : int
        Cuts of the in-distribution rows within each fold, which the engine numbers apart.

    Returns
    -------
    list of (int, str)
        Number and label of each fold, sorted.
    """
    known: dict[str, int] = {}
    if frozen is not None and {"held_out", "fold"} <= set(frozen.columns):
        told = frozen.group_by("fold").agg(pl.col("held_out").drop_nulls().min().fill_null("")).sort("fold")
        for fold, label in told.iter_rows():
            known.setdefault(label, fold // folds)
    after = max(known.values(), default=-1) + 1
    fresh = [label for label in labels if label not in known]
    numbers = {label: known[label] for label in labels if label in known}
    numbers |= {label: after + place for place, label in enumerate(fresh)}
    return sorted((number, label) for label, number in numbers.items())

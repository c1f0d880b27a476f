"""What the presets of papers have in common: rows are decided by the first case that holds of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.tasks.splits.values import assignments


@dataclass(frozen=True)
class Case:
    """Rows, the side that they are on, and why.

    Attributes
    ----------
    rows : numpy.ndarray of bool, (rows,)
    side : int
        IN, OUT or NEITHER of `engine`.
    reason : str or polars.Series of String, (rows,)
    """

    rows: np.ndarray
    side: int
    reason: str | pl.Series


def decide(*cases: Case) -> tuple[np.ndarray, pl.Series]:
    """Give each row the side and the reason of its first case; the last case takes what is left.

    Returns
    -------
    (numpy.ndarray of int8, polars.Series of String)
        Sides and reasons, (rows,).
    """
    *before, last = cases
    side = np.select([case.rows for case in before], [case.side for case in before], last.side).astype(np.int8)
    told = pl.lit(last.reason)
    for case in reversed(before):
        told = pl.when(pl.lit(pl.Series(case.rows))).then(pl.lit(case.reason)).otherwise(told)
    # a literal alone is one row
    return side, pl.select(pl.lit(pl.Series(side)), reason=told)["reason"]


def only(text: pl.Series, rows: np.ndarray) -> pl.Series:
    """Keep the texts of some rows; the others are null."""
    return pl.select(pl.when(pl.lit(pl.Series(rows))).then(pl.lit(text)).alias("held_out"))["held_out"]


def cells(names: Sequence[str], values: Sequence[pl.Series], rows: np.ndarray) -> pl.Series:
    """Name the values of some rows as ``held_out`` does, ``colour=red, shape=square``; the others are null.

    Parameters
    ----------
    names : sequence of str
    values : sequence of polars.Series of String, (rows,)
        Without nulls where `rows` holds.
    rows : numpy.ndarray of bool, (rows,)
    """
    chosen = pl.Series(np.flatnonzero(rows), dtype=pl.UInt32)
    place = np.full(len(rows), len(chosen), np.uint32)
    place[rows] = np.arange(len(chosen), dtype=np.uint32)
    told = assignments(names, [column.gather(chosen) for column in values])
    return pl.concat([told.cast(pl.String), pl.Series([None], dtype=pl.String)]).gather(pl.Series(place))

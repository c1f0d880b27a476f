"""Marks of a split by a count: steps, levels, lengths; each count beyond the limit is named in ``held_out``."""

from __future__ import annotations

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.splits import conditions
from gradatim.tasks.splits.engine import IN, NEITHER, OUT
from gradatim.tasks.splits.inputs import phrase


def by_count(
    name: str, counts: pl.Series, shown: pl.Series, train: str, ids: pl.Series, unknown: str
) -> tuple[np.ndarray, pl.Series, pl.Series]:
    """Mark rows by a condition on a count.

    Parameters
    ----------
    name : str
        What is counted, for reasons.
    counts : polars.Series of numbers, (rows,)
    shown : polars.Series, (rows,)
        How a count is written in the reason.
    train : str
        The condition of the rows that are trained on.
    ids : polars.Series
        For errors.
    unknown : str
        Why a row without a count is excluded.

    Returns
    -------
    side : numpy.ndarray of int8
    reason : polars.Series of String
    held_out : polars.Series of String
        Such as ``steps=7``, of the rows beyond the limit.

    Raises
    ------
    DataRefused
        Where no row has a count, or all are on one side.
    """
    condition = conditions.parse(train)
    values = conditions.comparable(counts, condition, ids)
    holds = pl.select(condition.holds(pl.lit(values)).alias("x"))["x"]
    side = np.where(holds.fill_null(False).to_numpy(), IN, OUT)
    side = np.where(values.is_null().to_numpy(), NEITHER, side).astype(np.int8)
    for which, lacks in ((IN, condition.text), (OUT, condition.complement)):
        if not (side == which).any():
            least, most = str(values.min()), str(values.max())
            raise DataRefused(
                f"no row has {name} {lacks}"
                + ("" if values.null_count() == len(values) else f": they have {least} to {most}"),
                where=f"column {counts.name!r}",
                remedy="move the limit, or name another column",
            )
    said = pl.when(holds).then(pl.lit(condition.text)).otherwise(pl.lit(condition.complement))
    text = shown.cast(pl.String)
    reason = phrase(f"{name} ", text, " ", said)
    reason = phrase(unknown, when=values.is_null(), otherwise=reason)
    beyond = phrase(f"{name}=", counts.cast(pl.String), when=pl.Series(side == OUT), otherwise=None)
    return side, reason, beyond

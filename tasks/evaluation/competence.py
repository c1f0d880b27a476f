"""Competence: the share of tasks that a model solves well enough, which no easy task can buy for a hard one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.reduce import group_sums
from gradatim.tasks.evaluation.scores import require

SOURCE = "O. Weller, N. Lourie, M. Gardner, M. E. Peters (2020). Learning from task descriptions"


def competence(scores: pl.DataFrame, *, by: str = "task", at: float | Sequence[float] = (0.75, 0.9)) -> pl.DataFrame:
    """Return the share of tasks whose mean score reaches a level.

    Parameters
    ----------
    scores : polars.DataFrame
        One row an example: `by` and score in [0, 1]; e.g. ``e.scores`` of an evaluation by that column. Several runs,
        checkpoints and splits are told apart.
    by : str
        What names the task; rows without one do not count.
    at : float or sequence of float
        Levels in (0, 1].

    Returns
    -------
    polars.DataFrame
        One row a run, checkpoint, split (where there are such columns) and level: level, value, ci_low, ci_high
        (Wilson over tasks), n (tasks).

    Raises
    ------
    UsageError, DataRefused
        A level outside (0, 1], a missing column, scores outside [0, 1], no task.

    Notes
    -----
    A mean is compared after rounding to 1e-9, so that nine of ten reach 0.9.

    Source: O. Weller, N. Lourie, M. Gardner, M. E. Peters (2020). Learning from task descriptions.
    """
    levels = [float(level) for level in ([at] if isinstance(at, int | float) else at)]
    wrong = [level for level in levels if not 0 < level <= 1]
    if wrong or not levels:
        raise UsageError(f"found the level {wrong[0] if wrong else 'none'}", where="at", expected="above 0, at most 1")
    for name in (by, "score"):
        require(scores, name, "scores")
    rows = scores.drop_nulls(by)
    if rows.is_empty():
        raise DataRefused(f"no row has a {by}", where="competence")
    if not rows["score"].is_between(0, 1).fill_null(False).all():
        raise DataRefused("some rows have no score in [0, 1]", where="scores.score", expected="one for every row")
    keys = [name for name in ("run_id", "checkpoint", "seed", "split") if name in rows.columns]
    groups = rows.select(*keys, by).unique().sort(*keys, by).with_row_index(f"{by} number")
    coded = rows.select(*keys, by, "score").join(groups, on=[*keys, by], how="left", nulls_equal=True)
    codes = coded[f"{by} number"].to_numpy().astype(np.int64)
    means = group_sums(codes, coded["score"].to_numpy(), len(groups)) / np.bincount(codes, minlength=len(groups))
    tasks = groups.with_columns(pl.Series("mean", np.round(means, 9)))
    told = []
    for part in tasks.partition_by(keys, maintain_order=True) if keys else [tasks]:
        head = part.select(keys).row(0) if keys else ()
        for level in levels:
            found = wilson(int((part["mean"] >= level).sum()), len(part))
            told.append((*head, level, found.value, found.low, found.high, len(part)))
    numbers = {"level": pl.Float64, "value": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64, "n": pl.Int64}
    return pl.DataFrame(told, schema={**{name: tasks.schema[name] for name in keys}, **numbers}, orient="row")

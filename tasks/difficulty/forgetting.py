"""Forgetting: how often an example that was right becomes wrong again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, cost, finish
from gradatim.tasks.difficulty.dynamics.table import CORRECT, RIGHT, Cells, reduce
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, Window, window
from gradatim.tasks.difficulty.result import Difficulty

SOURCE = (
    "M. Toneva, A. Sordoni, R. Tachet des Combes, A. Trischler, Y. Bengio, G. J. Gordon (2019). An empirical study of "
    "example forgetting during deep neural network learning"
)


class ForgettingConfig(DynamicsConfig):
    """Settings of `forgetting`."""

    count: Literal["presentation", "epoch"] = Field(
        "presentation",
        description="where an example comes several times in an epoch: count every time, or the last one alone",
    )


@register(
    "difficulty",
    "forgetting",
    config=ForgettingConfig,
    needs=(*NEEDS, "dynamics.correct", "dynamics.position?"),
    cost=cost,
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: ForgettingConfig, seed: int = 0) -> Difficulty:
    """Number of times that an example turns from right to wrong; what was never right is hardest.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, correct; run_id where there are several runs; position where an example comes
        more than once in an epoch).
    config : ForgettingConfig
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        raw is the number of transitions from right to the next presentation wrong, averaged over runs; value the same,
        but one more than is possible, floor(E / 2) + 1 for E presentations, for an example that a run never got right
        (flagged). The standard error is over runs.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`; also where the order inside of an epoch is unknown.

    Notes
    -----
    Which epochs were right is kept as bits, so a pass streams. Only where an example comes several times in an epoch
    all rows of the runs are sorted in memory.
    """
    where = "difficulty forgetting"
    chosen = window(tables, config, CORRECT.columns, where)
    seen = {"there": RIGHT.is_not_null(), "right": RIGHT}
    cells = reduce(chosen, CORRECT, tables, where, mark=seen)
    if cells.repeats:
        forgotten, learned, most = _by_position(chosen, config, where)
    else:
        forgotten, learned = _by_epoch(cells)
        most = int(cells.n.max())
    by_run = np.where(learned, forgotten, most // 2 + 1).astype(np.float64)
    value, error = cells.over_runs(by_run)
    raw, _ = cells.over_runs(forgotten.astype(np.float64))
    runs_learned = cells.total(learned.astype(np.int64))
    never, once = runs_learned == 0, (runs_learned > 0) & (runs_learned < cells.runs_of)
    return finish(
        cells,
        config,
        name="forgetting",
        title="forgetting",
        scale="transitions",
        value=value,
        raw=raw,
        error=error if len(chosen.runs) > 1 else None,
        by_run=by_run,
        seed=seed,
        source=SOURCE,
        flags=[(never, "never learned"), (once, "never learned in some runs")],
        notes={
            "never learned": int(never.sum()),
            "learned and never forgotten": int(((raw == 0) & (runs_learned == cells.runs_of)).sum()),
        },
    )


def _by_epoch(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count transitions in the order of epochs from the bits of `reduce`: (M,) counts, and whether ever right."""
    there, right = cells.marks["there"], cells.marks["right"]
    forgotten = np.zeros(len(there), dtype=np.int64)
    was = np.zeros(len(there), dtype=bool)  # right when last seen
    for code in range(len(cells.window.epochs)):
        column, bit = divmod(code, 62)
        present = (there[:, column] >> bit & 1).astype(bool)
        now = (right[:, column] >> bit & 1).astype(bool)
        forgotten += was & present & ~now
        was = np.where(present, now, was)
    return forgotten, (right != 0).any(axis=1)


def _by_position(
    chosen: Window, config: ForgettingConfig, where: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Count transitions in the order of positions; sorts all rows in memory."""
    if "position" not in chosen.rows.collect_schema().names():
        raise UsageError(
            "an example comes more than once in an epoch, and there is no column 'position'",
            where=where,
            expected="the position of each row in the order of training",
            remedy="add the column position, or keep one row an example and epoch",
        )
    cell = ["example_id", "run"]
    rows = chosen.rows.filter(RIGHT.is_not_null()).select(*cell, "code", "position", right=RIGHT)
    rows = rows.sort(*cell, "code", "position", "right")  # the order of rows at one position decides nothing
    if config.count == "epoch":
        rows = rows.group_by(*cell, "code").agg(pl.col("right").last()).sort(*cell, "code")
    before = pl.col("right").shift(1).over(cell)
    found = (
        rows.with_columns(forgotten=before.fill_null(False) & ~pl.col("right"))
        .group_by(cell)
        .agg(pl.col("forgotten").sum().cast(pl.Int64), learned=pl.col("right").any(), n=pl.len())
        .sort(cell)
        .collect()
    )
    return found["forgotten"].to_numpy(), found["learned"].to_numpy(), _most(found["n"])


def _most(n: pl.Series) -> int:
    found: Any = n.max()
    return int(found)

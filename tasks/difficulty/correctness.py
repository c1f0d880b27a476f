"""Correctness: at how many epochs the answer was right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, SWAYAMDIPTA, cost, finish
from gradatim.tasks.difficulty.dynamics.table import CORRECT, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, window
from gradatim.tasks.difficulty.result import Difficulty


class CorrectnessConfig(DynamicsConfig):
    """Settings of `correctness`."""


@register(
    "difficulty",
    "correctness",
    config=CorrectnessConfig,
    needs=(*NEEDS, "dynamics.correct"),
    cost=cost,
    source=SWAYAMDIPTA,
)
def run(tables: Mapping[str, pl.DataFrame], config: CorrectnessConfig, seed: int = 0) -> Difficulty:
    """Share of the epochs at which the model answered wrongly.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, correct; run_id where there are several runs).
    config : CorrectnessConfig
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        raw is the number of right epochs (its mean over runs), value the share of wrong ones, so that examples with
        epochs missing compare with the others.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    where = "difficulty correctness"
    cells = reduce(window(tables, config, CORRECT.columns, where), CORRECT, tables, where)
    share, error = cells.over_runs(cells.mean, standard_error(cells))
    count = cells.total(np.rint(cells.mean * cells.n)) / cells.runs_of
    return finish(
        cells,
        config,
        name="correctness",
        title="correctness",
        scale="share of epochs",
        value=1.0 - share,
        raw=count,
        error=error,
        by_run=1.0 - cells.mean,
        seed=seed,
        source=SWAYAMDIPTA,
    )

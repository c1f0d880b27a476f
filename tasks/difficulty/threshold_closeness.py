"""Threshold closeness: how near the confidence is to a coin's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, SWAYAMDIPTA, cost, finish
from gradatim.tasks.difficulty.dynamics.table import GOLD, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, window
from gradatim.tasks.difficulty.result import Difficulty


class ClosenessConfig(DynamicsConfig):
    """Settings of `threshold_closeness`."""


@register(
    "difficulty",
    "threshold_closeness",
    config=ClosenessConfig,
    needs=(*NEEDS, "dynamics.gold_probability"),
    cost=cost,
    source=SWAYAMDIPTA,
)
def run(tables: Mapping[str, pl.DataFrame], config: ClosenessConfig, seed: int = 0) -> Difficulty:
    """Confidence times one minus confidence: high where the model cannot decide.

    Parameters
    ----------
    tables : mapping
        As for `confidence`.
    config : ClosenessConfig
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value and raw are c (1 - c) of the mean probability c of the right answer, 0 to .25, averaged over runs. Neither
        the surely right nor the surely wrong are hard in this sense. The standard error is over runs, with one run
        |1 - 2c| times that of c over epochs.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    where = "difficulty threshold_closeness"
    cells = reduce(window(tables, config, GOLD.columns, where), GOLD, tables, where)
    by_run = cells.mean * (1.0 - cells.mean)
    closeness, error = cells.over_runs(by_run, np.abs(1.0 - 2.0 * cells.mean) * standard_error(cells))
    return finish(
        cells,
        config,
        name="threshold_closeness",
        title="threshold closeness",
        scale="probability squared",
        value=closeness,
        raw=closeness,
        error=error,
        by_run=by_run,
        seed=seed,
        source=SWAYAMDIPTA,
    )

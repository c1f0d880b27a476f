"""Confidence: the mean probability of the right answer over training."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.data_map import MapConfig, data_map, with_correct
from gradatim.tasks.difficulty.dynamics.result import NEEDS, SWAYAMDIPTA, cost, finish
from gradatim.tasks.difficulty.dynamics.table import GOLD, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import window
from gradatim.tasks.difficulty.result import Difficulty


class ConfidenceConfig(MapConfig):
    """Settings of `confidence`."""


@register(
    "difficulty",
    "confidence",
    config=ConfidenceConfig,
    needs=(*NEEDS, "dynamics.gold_probability", "dynamics.correct?"),
    cost=cost,
    source=SWAYAMDIPTA,
)
def run(tables: Mapping[str, pl.DataFrame], config: ConfidenceConfig, seed: int = 0) -> Difficulty:
    """Mean probability of the right answer over the epochs of training; low is hard.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, gold_probability in [0, 1]; run_id where there are several runs; correct for
        the data map), a frame of any kind.
    config : ConfidenceConfig
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        raw is the confidence, value 1 - confidence. The standard error is over runs where an example has several, else
        over epochs. The picture ``data_map`` and `statistics` show confidence against variability.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.

    Notes
    -----
    Linear in the rows, one streaming pass.
    """
    where = "difficulty confidence"
    chosen = window(tables, config, GOLD.columns, where)
    cells = reduce(chosen, GOLD, tables, where, count=with_correct(chosen))
    confidence, error = cells.over_runs(cells.mean, standard_error(cells))
    return finish(
        cells,
        config,
        name="confidence",
        title="confidence",
        scale="probability",
        value=1.0 - confidence,
        raw=confidence,
        error=error,
        by_run=1.0 - cells.mean,
        seed=seed,
        source=SWAYAMDIPTA,
        **data_map(cells, config, "confidence"),
    )

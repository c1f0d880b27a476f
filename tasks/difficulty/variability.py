"""Variability: how much the probability of the right answer moves during training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.data_map import MapConfig, data_map, with_correct
from gradatim.tasks.difficulty.dynamics.result import NEEDS, SWAYAMDIPTA, cost, finish
from gradatim.tasks.difficulty.dynamics.table import GOLD, reduce
from gradatim.tasks.difficulty.dynamics.window import window
from gradatim.tasks.difficulty.result import Difficulty


class VariabilityConfig(MapConfig):
    """Settings of `variability`."""

    form: Literal["population", "ci"] = Field(
        "population", description="standard deviation over epochs (ddof 0), or widened for few epochs"
    )


@register(
    "difficulty",
    "variability",
    config=VariabilityConfig,
    needs=(*NEEDS, "dynamics.gold_probability", "dynamics.correct?"),
    cost=cost,
    source=SWAYAMDIPTA,
)
def run(tables: Mapping[str, pl.DataFrame], config: VariabilityConfig, seed: int = 0) -> Difficulty:
    """Standard deviation of the probability of the right answer over epochs; high is ambiguous.

    Parameters
    ----------
    tables : mapping
        As for `confidence`.
    config : VariabilityConfig
        ``population``: the square root of the variance v over E epochs (ddof 0). ``ci``: sqrt(v + v² / (E - 1)).
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value and raw are the variability, averaged over runs. An example with one observation has variability 0
        (flagged). The standard error is over runs, so there is none with one run.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    where = "difficulty variability"
    chosen = window(tables, config, GOLD.columns, where)
    cells = reduce(chosen, GOLD, tables, where, count=with_correct(chosen))
    variance = cells.variance
    if config.form == "ci":
        variance = variance + variance**2 / np.maximum(cells.n - 1, 1)
    by_run = np.sqrt(variance)
    variability, error = cells.over_runs(by_run)
    once = cells.total(cells.n) <= cells.runs_of
    return finish(
        cells,
        config,
        name="variability",
        title="variability" if config.form == "population" else "variability, ci form",
        scale="probability",
        value=variability,
        raw=variability,
        error=error if len(chosen.runs) > 1 else None,
        by_run=by_run,
        seed=seed,
        source=SWAYAMDIPTA,
        flags=[(once, "one observation")],
        **data_map(cells, config, "variability"),
    )

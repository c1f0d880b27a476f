"""Margin: how far the right answer leads at the end of training."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, PLEISS, cost, finish
from gradatim.tasks.difficulty.dynamics.table import column, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, at_last_epoch, window
from gradatim.tasks.difficulty.result import Difficulty

MARGIN = column("margin")


class MarginConfig(DynamicsConfig):
    """Settings of `margin`."""


@register("difficulty", "margin", config=MarginConfig, needs=(*NEEDS, "dynamics.margin"), cost=cost, source=PLEISS)
def run(tables: Mapping[str, pl.DataFrame], config: MarginConfig, seed: int = 0) -> Difficulty:
    """Gold logit less the largest other one at the last epoch; low, below all negative, is hard.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, margin in logits; run_id where there are several runs).
    config : MarginConfig
        ``last_epoch`` names another epoch than each run's last. `aum` is the mean over all epochs.
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        raw is the margin, averaged over runs, value its negative. Examples that were not seen at that epoch are
        excluded. The standard error is over runs.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    where = "difficulty margin"
    chosen = at_last_epoch(window(tables, config, MARGIN.columns, where))
    cells = reduce(chosen, MARGIN, tables, where)
    margin, error = cells.over_runs(cells.mean, standard_error(cells))
    ends = sorted(set(chosen.epochs[chosen.last].tolist()))
    return finish(
        cells,
        config,
        name="margin",
        title="margin",
        scale="logits",
        value=-margin,
        raw=margin,
        error=error,
        by_run=-cells.mean,
        seed=seed,
        source=PLEISS,
        notes={"at epoch": ", ".join(map(str, ends))},
    )

"""EL2N: how far the predicted probabilities are from the truth, early in training."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, PAUL, cost, mean_over_training
from gradatim.tasks.difficulty.dynamics.table import ERROR
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig
from gradatim.tasks.difficulty.result import Difficulty


class El2nConfig(DynamicsConfig):
    """Settings of `el2n`."""


@register("difficulty", "el2n", config=El2nConfig, needs=(*NEEDS, "dynamics.error_norm"), cost=cost, source=PAUL)
def run(tables: Mapping[str, pl.DataFrame], config: El2nConfig, seed: int = 0) -> Difficulty:
    """Mean 2-norm of the error (probabilities less one-hot) at an early epoch or a range of epochs.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, error_norm in [0, sqrt 2]; run_id where there are several runs).
    config : El2nConfig
        Name the epochs: ``last_epoch``, or the same number as ``first_epoch`` and ``last_epoch`` for one.
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value and raw are the norm, averaged over epochs, then over runs. With two classes it is sqrt 2 (1 - p).

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    return mean_over_training(
        tables, config, ERROR, seed, name="el2n", title="EL2N", scale="error norm", source=PAUL, several=True
    )

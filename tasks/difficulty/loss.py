"""Loss: the mean loss over training."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, cost, mean_over_training
from gradatim.tasks.difficulty.dynamics.table import column
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig
from gradatim.tasks.difficulty.result import Difficulty

LOSS = column("loss")
SOURCE = "Y. Bengio, J. Louradour, R. Collobert, J. Weston (2009). Curriculum learning"


class LossConfig(DynamicsConfig):
    """Settings of `loss`."""


@register("difficulty", "loss", config=LossConfig, needs=(*NEEDS, "dynamics.loss"), cost=cost, source=SOURCE)
def run(tables: Mapping[str, pl.DataFrame], config: LossConfig, seed: int = 0) -> Difficulty:
    """Mean loss of an example over the epochs of training, in nats.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, loss; run_id where there are several runs).
    config : LossConfig
        ``first_epoch`` and ``last_epoch`` the same for the loss of one epoch, e.g. of a reference model.
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value and raw are the loss, averaged over epochs, then over runs.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`.
    """
    return mean_over_training(tables, config, LOSS, seed, name="loss", title="loss", scale="nats", source=SOURCE)

"""GraNd: the norm of an example's gradient, in closed form for the last layer."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import register
from gradatim.tasks.difficulty.dynamics.result import NEEDS, PAUL, cost, mean_over_training
from gradatim.tasks.difficulty.dynamics.table import Measure
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig
from gradatim.tasks.difficulty.result import Difficulty

GRADIENT = Measure(
    "gradient norm",
    ("error_norm", "hidden_norm"),
    pl.col("error_norm").cast(pl.Float64) * pl.col("hidden_norm").cast(pl.Float64),
    low=0.0,
)


class GrandConfig(DynamicsConfig):
    """Settings of `grand`."""


@register(
    "difficulty",
    "grand",
    config=GrandConfig,
    needs=(*NEEDS, "dynamics.error_norm", "dynamics.hidden_norm?"),
    cost=cost,
    source=PAUL,
)
def run(tables: Mapping[str, pl.DataFrame], config: GrandConfig, seed: int = 0) -> Difficulty:
    """Norm of the loss's gradient at the last layer's weights, early in training.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, error_norm, hidden_norm; run_id where there are several runs).
    config : GrandConfig
        Name the epochs as for `el2n`.
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value and raw are ||p - y|| ||h||, averaged over epochs, then over runs: the gradient of cross-entropy with
        respect to the last layer's weights is the outer product of the error p - y and the layer's input h, without
        the bias. For answers of several tokens it is the product of the two means, not the norm of their gradient.

    Raises
    ------
    UsageError
        If hidden_norm was not recorded, and as `dynamics_window.window`.
    DataRefused
        As `dynamics_table.reduce`.
    """
    where = "difficulty grand"
    frame = tables["dynamics"].lazy()
    found = "hidden_norm" in frame.collect_schema().names()
    if found:
        found = bool(frame.select(pl.col("hidden_norm").is_not_null().any()).collect(engine="streaming").item())
    if not found:
        raise UsageError(
            "the dynamics do not say hidden_norm",
            where=where,
            expected="the 2-norm of the last layer's input in each row, beside error_norm",
            remedy="log it while training, or use el2n, which needs error_norm alone",
        )
    return mean_over_training(
        tables,
        config,
        GRADIENT,
        seed,
        name="grand",
        title="GraNd of the last layer",
        scale="gradient norm",
        source=PAUL,
        several=True,
    )

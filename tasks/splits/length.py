"""Length split: train on short rows, test out of distribution on long ones (or the other way round)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.threshold import SOURCE, ThresholdConfig, by_condition


class LengthConfig(ThresholdConfig):
    """Settings of a length split."""

    column: str = Field("length_input", description="column that counts: length_input, length_output, n_steps, ...")


@register(
    "split",
    "length",
    config=LengthConfig,
    needs=("examples.{column}", "examples.{keep_together}"),
    cost=lambda rows, width: Cost(2e-6 * rows, 350 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: LengthConfig, seed: int) -> Split:
    """Train where a length is within a limit, e.g. ``<= 22``; the longer rows are test_ood."""
    return by_condition(tables, config, seed, method="length", axis="length")

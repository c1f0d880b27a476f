"""Length split: train on short rows, test out of distribution on long ones (or the other way round)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import threshold
from gradatim.tasks.splits.engine import Marks, rule
from gradatim.tasks.splits.threshold import SOURCE, ThresholdConfig


class LengthConfig(ThresholdConfig):
    """Settings of a length split."""

    column: str = Field("length_input", description="column that counts: length_input, length_output, n_steps, ...")


@rule(
    "length",
    config=LengthConfig,
    needs=("examples.{column}",),
    axis="length",
    cost=lambda rows, width: Cost(2e-6 * rows, 350 * rows),
    source=SOURCE,
    revision=2,
)
def mark(examples: pl.DataFrame, config: LengthConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Train where a length is within a limit, e.g. ``<= 22``; the longer rows are test_ood."""
    return threshold.mark(examples, config, seed, tables)

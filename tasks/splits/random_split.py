"""Random split: the baseline that every other is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, Marks, rule
from gradatim.tasks.splits.inputs import phrase

SOURCE = "Stone (1974). Cross-Validatory Choice and Assessment of Statistical Predictions."


class RandomConfig(SplitConfig):
    """Settings of a random split: the shared ones."""


@rule(
    "random",
    config=RandomConfig,
    needs=("examples.example_id",),
    axis="none",
    cost=lambda rows, width: Cost(1.5e-6 * rows, 300 * rows),
    source=SOURCE,
    revision=2,
)
def mark(examples: pl.DataFrame, config: RandomConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Cut all rows at random into train, validation and test; a row's place depends on its id and the seed alone."""
    reason = phrase("random draw").new_from_index(0, len(examples))
    return [Marks(side=np.full(len(examples), IN, np.int8), reason=reason)]

"""Random split: the baseline that every other is compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, Marks, build
from gradatim.tasks.splits.inputs import prepare
from gradatim.tasks.splits.result import Split

SOURCE = "Stone (1974). Cross-Validatory Choice and Assessment of Statistical Predictions."


class RandomConfig(SplitConfig):
    """Settings of a random split: the shared ones."""


@register(
    "split",
    "random",
    config=RandomConfig,
    needs=("examples.example_id", "examples.{keep_together}"),
    cost=lambda rows, width: Cost(1.5e-6 * rows, 300 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: RandomConfig, seed: int) -> Split:
    """Cut all rows at random into train, validation and test; a row's place depends on its id and the seed alone."""
    examples = prepare(tables, config)
    reason = pl.Series("reason", ["random draw"]).new_from_index(0, len(examples))
    marks = Marks(side=np.full(len(examples), IN, np.int8), reason=reason)
    return build(examples, [marks], config, seed, tables, method="random", axis="none", source=SOURCE)

"""Threshold split: train on one side of a condition, test out of distribution on the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import conditions
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import distinct_rows, phrase

SOURCE = (
    "Lake & Baroni (2018). Generalization without Systematicity: On the Compositional Skills of Sequence-to-Sequence "
    "Recurrent Networks."
)


class ThresholdConfig(SplitConfig):
    """Settings of a threshold split."""

    column: str = Field(description="column of numbers or times")
    train: str = Field(description="in distribution where this holds: " + conditions.VALID)
    gap: str | None = Field(None, description="rows where this holds are excluded: a band between the two sides")

    @field_validator("train", "gap")
    @classmethod
    def _parses(cls, text: str | None) -> str | None:
        if text is not None:
            conditions.parse(text)
        return text


@rule(
    "threshold",
    config=ThresholdConfig,
    needs=("examples.{column}",),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(2e-6 * rows, 350 * rows),
    source=SOURCE,
    revision=2,
)
def mark(examples: pl.DataFrame, config: ThresholdConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Train where a condition on a column holds; the complement is test_ood; an optional band between is excluded."""
    column, ids = examples[config.column], examples["example_id"]
    place = None if column.dtype == pl.String else distinct_rows(column.to_frame())  # of texts, an error names the row
    told = f"{config.column} {conditions.parse(config.train).complement}"
    if place is None:
        return [Marks(*_marked(column, ids, config), told)]
    side, reason = _marked(place[0][config.column], ids, config)
    return [Marks(side[place[1].to_numpy()], reason.gather(place[1]), told)]


def _marked(column: pl.Series, ids: pl.Series, config: ThresholdConfig) -> tuple[np.ndarray, pl.Series]:
    """Say of each value on which side it is, and why; `ids` are those of the rows, for errors."""
    condition = conditions.parse(config.train)
    values = conditions.comparable(column, condition, ids)
    inside = pl.select(condition.holds(pl.lit(values)).alias("x"))["x"]
    shown, name = column.cast(pl.String), config.column
    text = pl.when(inside).then(pl.lit(condition.text)).otherwise(pl.lit(condition.complement))
    reason = phrase(f"{name} ", shown, " ", text)
    side = np.where(inside.fill_null(False).to_numpy(), IN, OUT)
    if config.gap is not None:
        band = conditions.parse(config.gap)
        compared = conditions.comparable(column, band, ids)
        in_gap = pl.select(band.holds(pl.lit(compared)).alias("x"))["x"].fill_null(False)
        reason = phrase(f"{name} ", shown, f" is in the gap {config.gap}", when=in_gap, otherwise=reason)
        side = np.where(in_gap.to_numpy(), NEITHER, side)
    unknown = values.is_null()
    side = np.where(unknown.to_numpy(), NEITHER, side).astype(np.int8)
    reason = phrase(f"{name} is null", when=unknown, otherwise=reason)
    return side, reason

"""Train short, test long: several limits of training length, each tested length by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import conditions
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.counted import by_count
from gradatim.tasks.splits.engine import NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered

SOURCE = (
    "Press, Smith & Lewis (2022). Train Short, Test Long: Attention with Linear Biases Enables Input Length "
    "Extrapolation."
)


class TrainShortTestLongConfig(SplitConfig):
    """Settings of length extrapolation."""

    column: str = Field("length_input", description="column of lengths, in any unit")
    train: tuple[int | float, ...] = Field(
        min_length=1, description="the longest rows that are trained on; several are folds"
    )
    lengths: tuple[int | float | str, ...] = Field(
        (), description="lengths that are tested, or conditions such as '33..64', '> 100'; all longer rows by default"
    )

    @field_validator("train", "lengths", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str | int | float) else found

    @field_validator("lengths")
    @classmethod
    def _parses(cls, lengths: tuple[int | float | str, ...]) -> tuple[int | float | str, ...]:
        for one in lengths:
            conditions.parse(slice_of(one))
        return lengths


def slice_of(tested: int | float | str) -> str:
    """Return the condition of a tested slice."""
    return tested if isinstance(tested, str) else f"== {tested}"


@rule(
    "train_short_test_long",
    config=TrainShortTestLongConfig,
    needs=("examples.{column}",),
    axis="length",
    cost=lambda rows, width: Cost(5e-6 * rows, 600 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: TrainShortTestLongConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Train up to a length, a fold for each; held_out names the tested length, or the slice, of each longer row."""
    column, ids, name = examples[config.column], examples["example_id"], config.column
    tested = _slices(column, config, ids) if config.lengths else None
    limits = {f"{name} <= {limit}": limit for limit in sorted(set(config.train))}
    marks, warnings = [], []
    for fold, axis in numbered(list(limits), tables.get("frozen"), config.folds, by="axis"):
        side, reason, held_out = by_count(name, column, column, f"<= {limits[axis]}", ids, f"{name} is null")
        if tested is not None:
            untested = pl.Series(side == OUT) & tested.is_null()
            side = np.where(untested.to_numpy(), NEITHER, side).astype(np.int8)
            reason = phrase(reason, ", and not a length that is tested", when=untested, otherwise=reason)
            held_out = tested.set(pl.Series(side != OUT), None)
            here = set(held_out.drop_nulls().unique())
            empty = [text for text in map(slice_of, config.lengths) if _named(name, text) not in here]
            warnings += [f"{axis}: no row is tested with {name} {text}" for text in empty]
        if not (side == OUT).any():
            raise DataRefused(
                f"no row is longer than {limits[axis]} and tested",
                where=f"split train_short_test_long, column {name!r}",
                remedy="lower 'train', or name other lengths to test",
            )
        marks.append(Marks(side, reason, held_out, fold, axis))
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _named(name: str, text: str) -> str:
    return f"{name}={text.removeprefix('== ')}" if text.startswith("== ") else f"{name} {text}"


def _slices(column: pl.Series, config: TrainShortTestLongConfig, ids: pl.Series) -> pl.Series:
    """Name the first tested slice that each row is in; null where it is in none."""
    found = pl.lit(None, pl.String)
    for text in reversed([slice_of(one) for one in config.lengths]):
        condition = conditions.parse(text)
        values = conditions.comparable(column, condition, ids)
        found = pl.when(condition.holds(pl.lit(values))).then(pl.lit(_named(config.column, text))).otherwise(found)
    return pl.select(found.alias("x"))["x"]

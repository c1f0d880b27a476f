"""Columns of numbers on one scale, and categories as indicators."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Fact
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.embedding.embedder import Embedded, Embedder, Fit, Learned

WHERE = "embedding standardised"
MISSING = "without a number in some column: 0, its mean"
OTHER = "with no or a rare category: no indicator of it"

Floats = NDArray[np.float64]


class StandardisedConfig(Learned):
    """Settings of `standardised`."""

    columns: list[str] = Field(default_factory=list, description="columns of numbers, or of true and false")
    categories: list[str] = Field(default_factory=list, description="columns whose values become indicators, 0 or 1")
    most: int = Field(20, ge=1, le=1000, description="categories of a column that get an indicator: the most frequent")

    @model_validator(mode="after")
    def _some(self) -> StandardisedConfig:
        named = [*self.columns, *self.categories]
        if not named:
            raise ValueError("no column is named; expected columns: [COLUMN, ...] or categories: [COLUMN, ...]")
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise ValueError(f"the column {twice[0]!r} is named twice")
        return self


@register(
    "embedding",
    "standardised",
    config=StandardisedConfig,
    needs=("examples.{columns}", "examples.{categories}"),
    cost=lambda rows, width: Cost(0.1 + 3e-7 * rows * width, 2e8 + 20.0 * rows * width),
    source="I. T. Jolliffe (2002). Principal component analysis.",
    row_wise=True,
)
def standardised(config: StandardisedConfig, seed: int) -> Embedder:
    """Bring columns of numbers to mean 0 and standard deviation 1, and categories to indicators.

    Parameters
    ----------
    config : StandardisedConfig
    seed : int
        Not used.

    Returns
    -------
    Embedder
        Vectors of one number a column of `columns`, then one a category: the most frequent of each column of
        `categories` first. They are not brought to a common length.

    Raises
    ------
    UsageError
        A column is not there, or of another kind.
    DataRefused
        A number is infinite: its id is named; or the fit finds no category at all and there are no columns.

    Notes
    -----
    Mean and standard deviation (of the population, divided by n) are exactly rounded sums: they do not depend on the
    order of rows. A column of one value becomes 0, and so does a missing number (null or NaN): its column's mean.
    """

    def fit(frame: pl.DataFrame) -> Fit:
        scales = [_scale(_numbers(frame, name)) for name in config.columns]
        levels = [_levels(_labels(frame, name), config.most) for name in config.categories]
        if not scales and not any(levels):
            raise DataRefused(
                "the columns hold no category", where=WHERE, expected="a value in some row of " + config.categories[0]
            )
        return {
            "scales": np.array(scales, dtype=np.float64).reshape(len(scales), 3),
            "levels": np.frombuffer(json.dumps(levels).encode(), dtype=np.uint8),
            "rows": np.array(len(frame)),
        }

    def embed(found: Fit, frame: pl.DataFrame) -> Embedded:
        vectors = np.zeros((len(frame), width(found)), dtype=np.float32)
        missing, other = np.zeros(len(frame), dtype=bool), np.zeros(len(frame), dtype=bool)
        for place, name in enumerate(config.columns):
            numbers = _numbers(frame, name)
            mean, deviation, unit = found["scales"][place]
            lacking = np.isnan(numbers)
            if deviation > 0:
                with np.errstate(over="ignore"):  # what float32 cannot hold is refused with its id
                    vectors[:, place] = np.where(lacking, 0.0, (numbers * unit - mean) / deviation)
            missing |= lacking
        at = len(config.columns)
        for name, levels in zip(config.categories, _levels_of(found), strict=True):
            known = pl.DataFrame({"label": levels, "at": range(at, at + len(levels))}, schema_overrides=_LEVEL)
            labels = _labels(frame, name).alias("label").to_frame()
            places = labels.join(known, on="label", how="left", maintain_order="left")["at"]
            there = places.is_not_null().to_numpy()
            vectors[np.flatnonzero(there), places.drop_nulls().to_numpy()] = 1.0
            other |= ~there
            at += len(levels)
        counts = {MISSING: int(missing.sum()), OTHER: int(other.sum())}
        return Embedded(vectors, {what: number for what, number in counts.items() if number})

    def width(found: Fit) -> int:
        return len(config.columns) + sum(map(len, _levels_of(found)))

    def facts(found: Fit) -> tuple[Fact, ...]:
        constant = [name for name, scale in zip(config.columns, found["scales"], strict=True) if not scale[1] > 0]
        told = [Fact("rows fitted on", int(found["rows"])), Fact("columns of numbers", len(config.columns))]
        if constant:
            told.append(Fact("columns of one value", len(constant), note=f"0 for every row: {', '.join(constant[:5])}"))
        if config.categories:
            told.append(Fact("indicators", sum(map(len, _levels_of(found)))))
        return tuple(told)

    return Embedder((*config.columns, *config.categories), fit, embed, width, facts=facts, batch=65_536)


_LEVEL: Mapping[str, type[pl.DataType]] = {"label": pl.String, "at": pl.Int64}


def _scale(numbers: Floats) -> tuple[float, float, float]:
    """Return mean and standard deviation of the numbers that are there, of a column times `unit`, a power of two.

    Times that unit, which rounds nothing, no number exceeds 1, so that no square overflows. (0, 0, 1) for none.
    """
    there = numbers[~np.isnan(numbers)]
    if not len(there):
        return 0.0, 0.0, 1.0
    largest = float(np.abs(there).max())
    unit = math.ldexp(1.0, -min(max(math.frexp(largest)[1], -1000), 1000)) if largest > 0 else 1.0
    scaled = there * unit
    if scaled.min() == scaled.max():
        return float(scaled[0]), 0.0, unit
    mean = math.fsum(scaled.tolist()) / len(scaled)
    return mean, math.sqrt(math.fsum(((scaled - mean) ** 2).tolist()) / len(scaled)), unit


def _numbers(frame: pl.DataFrame, name: str) -> Floats:
    kind = _column(frame, name).dtype
    if not (kind.is_numeric() or kind == pl.Boolean or kind == pl.Null):
        remedy = f"as categories:  categories: [{name}]" if not kind.is_nested() else "name another column"
        raise UsageError(
            f"the column {name!r} holds {kind}", where=WHERE, expected="numbers, or true and false", remedy=remedy
        )
    numbers = frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(infinite.argmax())
        raise DataRefused(
            f"{frame['example_id'][row]!r} has {numbers[row]} in the column {name!r}",
            where=WHERE,
            expected="finite numbers, or nothing where one is not known",
            remedy="mend this row, or leave the column out",
        )
    return np.asarray(numbers, dtype=np.float64)


def _labels(frame: pl.DataFrame, name: str) -> pl.Series:
    kind = _column(frame, name).dtype
    if kind.is_nested() or kind == pl.Binary:
        raise UsageError(f"the column {name!r} holds {kind}", where=WHERE, expected="plain values")
    return frame[name].cast(pl.String)


def _levels(labels: pl.Series, most: int) -> list[str]:
    """Return the most frequent labels; of equally frequent ones those first in order of their bytes."""
    counted = labels.drop_nulls().alias("label").to_frame().group_by("label").len()
    return counted.sort("len", "label", descending=[True, False]).head(most)["label"].to_list()


def _levels_of(found: Fit) -> Sequence[list[str]]:
    levels: list[list[str]] = json.loads(found["levels"].tobytes())
    return levels


def _column(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        known = [column for column in frame.columns if column != "example_id"]
        raise UsageError(
            f"there is no column {name!r}{nearest(name, known)}", where=WHERE, expected="one of " + ", ".join(known)
        )
    return frame[name]

"""Cross-data-set plans: train on one data set, on all but one, or on all, and test on every one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered

SOURCE = (
    "Talmor & Berant (2019). MultiQA: An Empirical Investigation of Generalization and Transfer in Reading "
    "Comprehension."
)
Plan = Literal["single", "leave_one_out", "union"]


class CrossDatasetConfig(SplitConfig):
    """Settings of cross-data-set plans."""

    column: str = Field("dataset", description="column that names the data set or source")
    plans: tuple[Plan, ...] = Field(
        ("single", "leave_one_out", "union"),
        min_length=1,
        description="single: train on one; leave_one_out: on all but one; union: on all. Each is tested on every one",
    )
    min_rows: int = Field(30, ge=1, description="a data set with fewer rows gets no fold of its own")

    @field_validator("plans", mode="before")
    @classmethod
    def _one_or_more_plans(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found


@rule(
    "cross_dataset",
    config=CrossDatasetConfig,
    needs=("examples.{column}",),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(2e-6 * rows * (2 * max(width, 2) + 1), 500 * rows * (2 * max(width, 2) + 1)),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: CrossDatasetConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Make a fold for each training set; a row's cut is the same in all of them, so that test rows are too."""
    column = config.column
    dataset = examples[column].cast(pl.String).alias("dataset")
    sizes = dict(dataset.drop_nulls().value_counts().sort("dataset").iter_rows())
    if len(sizes) < 2:
        raise DataRefused(
            f"the column {column!r} holds {len(sizes)} data sets; to cross them takes two or more",
            where=f"column {column!r}",
            remedy="name another column",
        )
    few = [name for name in sizes if sizes[name] < config.min_rows]
    # label: what is held out; the set that the fold is for; the sets trained on; the axis
    folds: dict[str, tuple[str | None, list[str], str]] = {}
    if "single" in config.plans:
        folds |= {f"{column} other than {name}": (name, [name], f"{column}: {name} alone") for name in sizes}
    if "leave_one_out" in config.plans:
        rest = {name: [other for other in sizes if other != name] for name in sizes}
        folds |= {f"{column}={name}": (name, rest[name], f"{column}: all but {name}") for name in sizes}
    if "union" in config.plans:
        folds[""] = (None, list(sizes), f"{column}: all")
    if len(few) == len(sizes) and "union" not in config.plans:
        raise DataRefused(
            f"no data set has {config.min_rows} rows", where=f"column {column!r}", remedy="lower min_rows"
        )
    marks = []
    # sets without a fold are numbered too, so that min_rows moves no number
    for fold, label in numbered(list(folds), tables.get("frozen"), config.folds):
        name, trained, axis = folds[label]
        if name in few:
            continue
        inside = dataset.is_in(trained).fill_null(False)
        side = np.where(dataset.is_null().to_numpy(), NEITHER, np.where(inside.to_numpy(), IN, OUT)).astype(np.int8)
        reason = phrase(f"{column} ", dataset, " is not trained on")
        reason = phrase(f"{column} ", dataset, " is trained on", when=inside, otherwise=reason)
        reason = phrase(f"{column} is null", when=dataset.is_null(), otherwise=reason)
        marks.append(Marks(side, reason, label or None, fold, axis))
    warnings = [f"{column} {name} has {sizes[name]} rows, fewer than min_rows: no fold of its own" for name in few]
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks

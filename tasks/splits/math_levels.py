"""Easy to hard on MATH: train on problems of the lower levels, test on those of the higher."""

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
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered

SOURCE = (
    "Sun, Yu, Shen, Liu, Yang, Welleck & Gan (2024). Easy-to-Hard Generalization: Scalable Alignment Beyond Human "
    "Supervision."
)


class MathLevelsConfig(SplitConfig):
    """Settings of the easy-to-hard split of MATH."""

    level: str = Field("level", description="column of the level: a number, or a text such as 'Level 3'")
    train: str = Field("<= 3", description="the levels that are trained on; the others are test_ood")
    subject: str | None = Field(None, description="column of the subject: a fold for each, within it alone")

    @field_validator("train")
    @classmethod
    def _parses(cls, text: str) -> str:
        conditions.parse(text)
        return text


@rule(
    "math_levels",
    config=MathLevelsConfig,
    needs=("examples.{level}", "examples.{subject}"),
    axis="level",
    cost=lambda rows, width: Cost(4e-6 * rows, 400 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: MathLevelsConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Train on levels 1 to 3, test on 4 and 5, for all subjects together or for each by itself."""
    column, ids = examples[config.level], examples["example_id"]
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    numbers = _numbers(column, ids) if column.dtype == pl.String else column
    side, reason, held_out = by_count(
        config.level, numbers, numbers, config.train, ids, f"{config.level} is null or not known"
    )
    if config.subject is None:
        return [Marks(side, reason, held_out)]
    subject = examples[config.subject].cast(pl.String)
    names = subject.drop_nulls().unique().sort().to_list()
    marks, warnings = [], []
    for fold, axis in numbered(
        [f"level, {config.subject} {name}" for name in names], tables.get("frozen"), config.folds, by="axis"
    ):
        name = axis.removeprefix(f"level, {config.subject} ")
        here = (subject == name).fill_null(False)
        own = np.where(here.to_numpy(), side, NEITHER).astype(np.int8)
        if not ((own == IN).any() and (own == OUT).any()):
            warnings.append(f"{config.subject} {name} has levels on one side of {config.train} alone: no fold")
            continue
        other = phrase(f"{config.subject} ", subject, f" is not {name}")
        told = phrase(reason, when=here, otherwise=other)
        told = phrase(f"{config.subject} is null", when=subject.is_null(), otherwise=told)
        marks.append(Marks(own, told, held_out, fold, axis))
    if not marks:
        raise DataRefused(
            f"no {config.subject} has levels on both sides of {config.train}",
            where="split math_levels",
            remedy="move the limit, or leave 'subject' out",
        )
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _numbers(column: pl.Series, ids: pl.Series) -> pl.Series:
    """Read ``3``, ``Level 3``; ``Level ?``, as MATH has it, is not known. Anything else is refused."""
    text = column.str.strip_chars()
    number = text.str.extract(r"^(?i:level)?\s*(\d{1,9})$").cast(pl.Int64)
    bad = (number.is_null() & text.is_not_null() & ~text.str.contains(r"^(?i:level)?\s*\??$")).arg_true()
    if len(bad):
        place = int(bad[0])
        raise DataRefused(
            f"the row {ids[place]!r} has the level {column[place]!r}",
            where=f"column {column.name!r}",
            expected="a number, or a text such as 'Level 3' ('Level ?' where it is not known)",
        )
    return number

"""Steps of GSM8K: train on problems of few steps, test on those of more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import conditions
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.counted import by_count
from gradatim.tasks.splits.engine import Marks, rule

SOURCE = (
    "Cobbe, Kosaraju, Bavarian, Chen, Jun, Kaiser, Plappert, Tworek, Hilton, Nakano, Hesse & Schulman (2021). Training "
    "Verifiers to Solve Math Word Problems."
)


class Gsm8kStepsConfig(SplitConfig):
    """Settings of a split by steps."""

    train: str = Field(description="the steps of the rows that are trained on, e.g. '<= 4'")
    answer: str | None = Field(None, description="column of the worked answer; output by default")
    count: Literal["lines", "calculations"] = Field(
        "lines", description="lines before the one that starts with ####, or calculations marked <<...>>"
    )
    steps: str | None = Field(None, description="a column of the number of steps, in place of an answer")

    @field_validator("train")
    @classmethod
    def _parses(cls, text: str) -> str:
        conditions.parse(text)
        return text

    @property
    def column(self) -> str:
        """The column that is read."""
        return self.steps or self.answer or "output"


@rule(
    "gsm8k_steps",
    config=Gsm8kStepsConfig,
    needs=("examples.{column}",),
    axis="steps",
    cost=lambda rows, width: Cost(4e-6 * rows, 350 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: Gsm8kStepsConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Train on rows whose answer takes few steps; those of more are test_ood, each number of steps named."""
    column, ids = examples[config.column], examples["example_id"]
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if config.steps is not None:
        counts, unknown = column, f"{config.steps} is null"
    elif column.dtype == pl.String:
        counts, unknown = _steps(column, config.count), f"{config.column} shows no {config.count}"
    else:
        raise UsageError(
            f"the column {config.column!r} holds {column.dtype}",
            where="split gsm8k_steps",
            expected="worked answers, or a column of numbers as 'steps'",
        )
    name = config.steps or "steps"
    return [Marks(*by_count(name, counts, counts, config.train, ids, unknown))]


def _steps(answers: pl.Series, count: Literal["lines", "calculations"]) -> pl.Series:
    """Count the steps of worked answers; null where there are none."""
    if count == "calculations":
        found = answers.str.count_matches(r"<<[^<>]*>>").cast(pl.Int64)
    else:
        worked = answers.str.replace(r"(?s)(^|\n)[ \t]*####.*$", "")
        found = worked.str.count_matches(r"(?m)^.*\S.*$").cast(pl.Int64)
    return found.set(found == 0, None)

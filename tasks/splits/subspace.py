"""Subspace: train where an expression over columns holds, test out of distribution where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import expressions
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.expression_frames import condition
from gradatim.tasks.splits.inputs import distinct_rows

SOURCE = "Abbe, Bengio, Lotfi & Rizk (2023). Generalization on the Unseen, Logic Reasoning and Degree Curriculum."
_LONG, _VALUE = 80, 40


class SubspaceConfig(SplitConfig):
    """Settings of a subspace."""

    lists: ClassVar[bool] = True
    train: str = Field(description="in distribution where this holds: " + expressions.VALID)

    @field_validator("train")
    @classmethod
    def _parses(cls, text: str) -> str:
        try:
            names = expressions.columns(expressions.parse(text))
        except UsageError as error:
            parts = (
                error.what,
                error.expected and f"expected  {error.expected}",
                error.remedy and f"do  {error.remedy}",
            )
            raise ValueError("\n  ".join(filter(None, parts))) from None
        if not names:
            raise ValueError(f"the expression {text!r} names no column")
        return text

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expression reads."""
        return expressions.columns(expressions.parse(self.train))

    def place_of(self, column: str) -> str:
        """Point at a column in the expression."""
        at = expressions.place_of(expressions.parse(self.train), column)
        return "" if at is None else "\n  ".join(["", *expressions.pointed(self.train, at).split("\n")])


@rule(
    "subspace",
    config=SubspaceConfig,
    needs=("examples.{columns}",),
    axis=lambda config: ", ".join(config.columns),
    cost=lambda rows, width: Cost(3e-6 * rows, 450 * rows),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: SubspaceConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Train where an expression over columns is true; where it is false is test_ood, where it is null neither."""
    node = expressions.parse(config.train)
    frame = examples.select(config.columns)
    holds = condition(node, config.train, frame.schema)
    text = " ".join(config.train.split())
    shown = text if len(text) <= _LONG else "the expression"
    values, sides, nulls = _told(frame, node), holds.alias("holds"), _nulls(frame)
    told = [
        sides,
        pl.when(holds).then(pl.concat_str([values, pl.lit(f": {shown} holds")]))
        .when(~holds).then(pl.concat_str([values, pl.lit(f": {shown} does not hold")]))
        .otherwise(nulls).alias("reason"),
    ]  # fmt: skip
    place = distinct_rows(frame)
    marked = frame.select(told) if place is None else place[0].select(told).select(pl.all().gather(place[1]))
    verdict = marked["holds"]
    if len(verdict) != len(examples):  # nothing but literals settles it
        verdict = verdict.new_from_index(0, len(examples))
    side = np.where(verdict.fill_null(False).to_numpy(), IN, OUT)
    side = np.where(verdict.is_null().to_numpy(), NEITHER, side).astype(np.int8)
    return [Marks(side, marked["reason"], f"not ({text})" if len(text) <= 5 * _LONG else f"not ({text[: 5 * _LONG]}…)")]


def _told(frame: pl.DataFrame, node: expressions.Node) -> pl.Expr:
    """Name the values that were looked at, shortened: ``n_steps=9, len(input)=35``."""
    counted = expressions.only_counted(node)
    parts: list[pl.Expr] = []
    for name, kind in frame.schema.items():
        listed = isinstance(kind, pl.List | pl.Array)
        if listed or name in counted:
            sized = pl.col(name).list.len() if isinstance(kind, pl.List) else pl.lit(getattr(kind, "size", None))
            value = (sized if listed else pl.col(name).cast(pl.String).str.len_chars()).cast(pl.String)
            label = f"len({name})="
        else:
            value, label = pl.col(name).cast(pl.String), f"{name}="
            if kind == pl.String:
                cut = value.str.slice(0, _VALUE)
                value = pl.when(value.str.len_chars() > _VALUE).then(pl.concat_str([cut, pl.lit("…")])).otherwise(value)
        parts += [pl.lit(f"{', ' if parts else ''}{label}"), value.fill_null("null")]
    return pl.concat_str(parts)


def _nulls(frame: pl.DataFrame) -> pl.Expr:
    """Say which values a row lacks, else that none can be computed."""
    parts = []
    for name, kind in frame.schema.items():
        missing = pl.col(name).is_null()
        if kind.is_float():
            missing |= pl.col(name).is_nan().fill_null(True)
        parts.append(pl.when(missing).then(pl.lit(f"{name} is null")))
    said = pl.concat_str(parts, separator="; ", ignore_nulls=True)
    return pl.when(said == "").then(pl.lit("the expression has no value: a division by zero")).otherwise(said)

"""A column that the user brings: a level, a rating, a judge's score, a simulator's result."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError, nearest
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty, method_name
from gradatim.tasks.difficulty.rows import example_column, row_wise

SHOWN = 12


class ColumnConfig(Config):
    """Settings of `column`."""

    column: str = Field(min_length=1, description="column of the examples: a number, or text with an order")
    higher_is_harder: bool = Field(True, description="false where a higher number, or a later word, is easier")
    order: tuple[str, ...] = Field((), description="for text: its values, lowest first, e.g. [Low, Medium, High]")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")

    @field_validator("order")
    @classmethod
    def _different(cls, found: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(found)) != len(found):
            raise ValueError("a value stands twice in the order")
        return found


@register(
    "difficulty",
    "column",
    config=ColumnConfig,
    needs=("examples.{column}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 1e-6 * rows, bytes=5e7 + 250.0 * rows),
    source="the user's own",
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: ColumnConfig, seed: int = 0) -> Difficulty:
    """A column of yours: a number, or ordered words such as Low, Medium, High.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.column`.
    config : ColumnConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        raw is the number, or the place in `order` from 0; value the same, negative where higher is easier. Rows whose
        number is null, NaN or infinite have no difficulty.

    Raises
    ------
    UsageError
        If there is no such column, text comes without an order, a value is not in the order, or the type has none.
    """
    where = f"difficulty column: {config.column}"
    frame = example_column(tables, config.column, where)
    kind = frame.schema["found"]
    text = kind in (pl.String, pl.Categorical) or isinstance(kind, pl.Enum)
    if text and not config.order:
        values = frame["found"].cast(pl.String).drop_nulls().unique().sort()
        raise UsageError(
            f"the column holds text ({_listed(values)})",
            where=where,
            expected="numbers, or an order",
            remedy=f"add  order: [{', '.join(values.head(3))}, ...]  lowest first",
        )
    if config.order and not text:
        raise UsageError(f"an order was given for a column of type {kind}", where=where, remedy="leave order out")
    if text:
        found = frame["found"].cast(pl.String)
        unknown = found.drop_nulls().filter(~found.drop_nulls().is_in(config.order)).unique().sort()
        if len(unknown):
            raise UsageError(
                f"the order lacks {_listed(unknown)}{nearest(unknown[0], config.order)}",
                where=where,
                expected="every value of the column in  order",
                remedy="add it to the order, or make it null in the data",
            )
        number = found.replace_strict(list(config.order), list(range(len(config.order))), return_dtype=pl.Float64)
    elif kind.is_numeric() or kind in (pl.Boolean, pl.Null):
        number = frame["found"].cast(pl.Float64)
    elif kind.is_temporal():
        raise UsageError(f"the column is of type {kind}", where=where, expected="a number", remedy="turn it into one")
    else:
        raise UsageError(f"the column is of type {kind}", where=where, expected="a number or text")
    return row_wise(
        frame.select("example_id").with_columns(number.alias("number")),
        method=method_name("column", _changed(config), {}),
        title=f"column {config.column}",
        scale="place in order" if text else config.column,
        sign=1.0 if config.higher_is_harder else -1.0,
        bins=config.bins,
        lacking=f"no value in {config.column!r}",
        source="",
    )


def _listed(values: pl.Series) -> str:
    shown = ", ".join(repr(v) for v in values.head(SHOWN))
    return shown + (f" and {len(values) - SHOWN} more" if len(values) > SHOWN else "")


def _changed(config: ColumnConfig) -> dict[str, object]:
    settings: dict[str, object] = {"column": config.column}
    if not config.higher_is_harder:
        settings["higher_is_harder"] = "false"
    if config.order:
        settings["order"] = ",".join(config.order)
    return settings

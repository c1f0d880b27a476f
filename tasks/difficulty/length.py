"""Length of a text: the difficulty that is always at hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl
from pydantic import Field

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty, method_name
from gradatim.tasks.difficulty.rows import example_column, row_wise

PATTERNS = {"words": r"\S+", "tokens": r"\w+|[^\w\s]"}
SOURCE = (
    "B. M. Lake, M. Baroni (2018). Generalization without systematicity: on the compositional skills of "
    "sequence-to-sequence recurrent networks"
)


class LengthConfig(Config):
    """Settings of `length`."""

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    unit: Literal["characters", "words", "tokens"] = Field(
        "words", description="code points; runs between white space; or words and single punctuation marks"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different lengths")


@register(
    "difficulty",
    "length",
    config=LengthConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 3e-6 * rows, bytes=5e7 + 250.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: LengthConfig, seed: int = 0) -> Difficulty:
    """Length of the input, the output or another text in characters, words or tokens.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : LengthConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are the length; an empty text has length 0, a null one has no difficulty.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text.
    """
    where = f"difficulty length: of: {config.of}"
    frame = example_column(tables, config.of, where)
    if frame.schema["found"] not in (pl.String, pl.Categorical, pl.Null) and not isinstance(
        frame.schema["found"], pl.Enum
    ):
        raise UsageError(
            f"the column is of type {frame.schema['found']}",
            where=where,
            expected="text",
            remedy=f"for a number write  column: {{column: {config.of}}}",
        )
    text = pl.col("found").cast(pl.String)
    number = text.str.len_chars() if config.unit == "characters" else text.str.count_matches(PATTERNS[config.unit])
    return row_wise(
        frame.select("example_id", number.cast(pl.Float64).alias("number")),
        method=method_name("length", config.model_dump(exclude={"bins"}), LengthConfig().model_dump()),
        title=f"length of {config.of} in {config.unit}",
        scale=config.unit,
        sign=1.0,
        bins=config.bins,
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
    )

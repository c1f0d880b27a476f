"""Length of a text: the difficulty that is always at hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import polars as pl
from pydantic import Field, model_validator

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.lengths import UNITS, Unit, measure, tokens_only, unit_name
from gradatim.tasks.difficulty.text.texts import measured, text_column

SOURCE = (
    "B. M. Lake, M. Baroni (2018). Generalization without systematicity: on the compositional skills of "
    "sequence-to-sequence recurrent networks"
)


class LengthConfig(Config):
    """Settings of `length`."""

    paths: ClassVar[tuple[str, ...]] = ("tokenizer",)

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    unit: Unit = Field("words", description=UNITS)
    tokenizer: str | None = Field(None, description="file of a model's tokenizer (tokenizer.json), for unit tokens")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different lengths")

    @model_validator(mode="after")
    def _agree(self) -> LengthConfig:
        tokens_only(self.unit, self.tokenizer)
        return self


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
    """Length of the input, the output or another text in characters, bytes, words, tokens or sentences.

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
        value and raw are the length, scale its unit; an empty text has length 0, a null one has no difficulty.

    Raises
    ------
    UsageError
        If there is no such column, it holds no text, or the tokenizer's file cannot be used.
    """
    frame = text_column(tables, config.of, f"difficulty length: of: {config.of}")
    unit = unit_name(config.unit, config.tokenizer)
    return measured(
        frame.select(
            "example_id", measure(frame["found"], config.unit, config.tokenizer).cast(pl.Float64).alias("raw")
        ),
        config=config,
        name="length",
        title=f"length of {config.of} in {unit}",
        scale=unit,
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes={"tokenizer": Path(config.tokenizer).name} if config.tokenizer else {},
    )

"""Number of constraints in a text, by a pattern of the user's."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.patterns import checked_pattern
from gradatim.tasks.difficulty.text.texts import measured, text_column


class ConstraintsConfig(Config):
    """Settings of `constraints`."""

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    pattern: str = Field(min_length=1, description="regular expression of what one constraint is, e.g. must|at least")
    ignore_case: bool = Field(True, description="whether Must and must both match")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different numbers")


@register(
    "difficulty",
    "constraints",
    config=ConstraintsConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 3e-6 * rows, bytes=5e7 + 250.0 * rows),
    source="the user's own",
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: ConstraintsConfig, seed: int = 0) -> Difficulty:
    """Matches of a pattern of yours: conditions, instructions, operators, questions.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : ConstraintsConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are the number of matches that do not overlap; 0 for an empty text.

    Raises
    ------
    UsageError
        If there is no such column, it holds no text, or the pattern is invalid or matches the empty text.
    """
    frame = text_column(tables, config.of, f"difficulty constraints: of: {config.of}")
    pattern = checked_pattern(config.pattern, "difficulty constraints: pattern")
    pattern = f"(?i){pattern}" if config.ignore_case else pattern
    number = frame["found"].str.count_matches(pattern).cast(pl.Float64)
    return measured(
        frame.select("example_id", number.alias("raw")),
        config=config,
        name="constraints",
        title=f"constraints {config.pattern} in {config.of}",
        scale="matches",
        lacking=f"no text in {config.of!r}",
        source="",
        notes={"examples without a match": int((number == 0).sum())},
    )

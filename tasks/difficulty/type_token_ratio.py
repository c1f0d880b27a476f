"""Variety of a text's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.texts import TOKEN, WORD, measured, text_column

SOURCE = (
    "W. Johnson (1944). Studies in language behavior: a program of research. Psychological Monographs 56(2); "
    "P. Guiraud (1954). Les caracteres statistiques du vocabulaire"
)
SHORT = 50
"""Words below which a ratio says more of the length than of the variety."""


class TypeTokenRatioConfig(Config):
    """Settings of `type_token_ratio`."""

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    unit: Literal["words", "tokens"] = Field("words", description="words alone, or punctuation marks as well")
    form: Literal["ratio", "root"] = Field(
        "ratio", description="different words / words, or / root of words, which depends less on the length"
    )
    ignore_case: bool = Field(True, description="whether The and the are one word")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "type_token_ratio",
    config=TypeTokenRatioConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 4e-6 * rows, bytes=1e8 + 900.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: TypeTokenRatioConfig, seed: int = 0) -> Difficulty:
    """Different words over words: more different words count as harder.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : TypeTokenRatioConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are V / N in (0, 1], or V / sqrt(N) with ``form: root``; a text without a word has none.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text.
    """
    frame = text_column(tables, config.of, f"difficulty type_token_ratio: of: {config.of}")
    text = pl.col("found").str.to_lowercase() if config.ignore_case else pl.col("found")
    lists = frame.select(
        "example_id", "found", text.str.extract_all(WORD if config.unit == "words" else TOKEN).alias("w")
    )
    counts = lists.select(
        "example_id",
        pl.col("found").is_not_null().alias("there"),
        pl.col("w").list.len().cast(pl.Float64).alias("all"),
        pl.col("w").list.n_unique().cast(pl.Float64).alias("different"),
    )
    size = pl.col("all").sqrt() if config.form == "root" else pl.col("all")
    found = counts.select(
        "example_id",
        pl.when(pl.col("all") > 0).then(pl.col("different") / size).alias("raw"),
        pl.when(pl.col("there")).then(pl.lit(f"no word in {config.of!r}")).alias("reason"),
    )
    middle = counts.filter(pl.col("all") > 0)["all"].median()
    short = isinstance(middle, float) and middle < SHORT and config.form == "ratio"
    return measured(
        found,
        config=config,
        name="type_token_ratio",
        title=f"type_token_ratio of {config.of}",
        scale="different words / words" if config.form == "ratio" else "different words / root of words",
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes={"median words": middle} if isinstance(middle, float) else {},
        warnings=[
            f"half of the texts have fewer than {SHORT} words: the ratio falls with the length of a text, and says "
            "more of that than of variety (form: root depends on it less)"
        ]
        if short
        else [],
    )

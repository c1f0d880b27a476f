"""Flesch-Kincaid grade of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.lengths import clean, count_sentences
from gradatim.tasks.difficulty.text.syllables import count_syllables
from gradatim.tasks.difficulty.text.texts import measured, number_words, text_column

SOURCE = (
    "J. P. Kincaid, R. P. Fishburne, R. L. Rogers, B. S. Chissom (1975). Derivation of new readability formulas for "
    "Navy enlisted personnel"
)
SHORT = 30
"""Words below which one long word moves the grade by half a school year or more."""


class ReadabilityConfig(Config):
    """Settings of `readability`."""

    paths: ClassVar[tuple[str, ...]] = ("pronunciations",)

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    language: str = Field("en_US", description="language of the hyphenation patterns that count syllables")
    pronunciations: str | None = Field(
        None, description="file of a CMU pronouncing dictionary, whose words' syllables are taken from there"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "readability",
    config=ReadabilityConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.5 + 7e-6 * rows, bytes=2e8 + 900.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: ReadabilityConfig, seed: int = 0) -> Difficulty:
    """Flesch-Kincaid grade: the school year that an English text is written for.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : ReadabilityConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are .39 words / sentences + 11.8 syllables / words - 15.59, in school years, from -3.4 on; a text
        without a word has none.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text; for an unknown language, a file that is no pronouncing
        dictionary, or a missing package.

    Notes
    -----
    Words and sentences are those of textstat. Each different word's syllables are counted once.
    """
    frame = text_column(tables, config.of, f"difficulty readability: of: {config.of}")
    there = frame.drop_nulls("found")
    # lower case after cleaning: the contractions that keep their apostrophe are lower-case ones
    words = number_words(clean(there["found"]).str.to_lowercase(), r"\S+")
    syllables = np.zeros(words.size)
    syllables[words.numbers] = count_syllables(words.words, config.language, config.pronunciations)
    sentences = count_sentences(there["found"]).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        raw = 0.39 * (words.count / sentences) + 11.8 * (words.sums(syllables) / words.count) - 15.59
    found = there.select("example_id").with_columns(
        pl.Series("raw", np.where(words.count > 0, raw, np.nan)),
        pl.lit(f"no word in {config.of!r}").alias("reason"),
    )
    middle = float(np.median(words.count[words.count > 0])) if words.count.any() else 0.0
    return measured(
        frame.select("example_id").join(found, on="example_id", how="left", maintain_order="left"),
        config=config,
        name="readability",
        title=f"readability of {config.of} by Flesch-Kincaid grade",
        scale="school years",
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes={
            "median words": middle,
            "different words": len(words.numbers),
            "syllables by": "hyphenation" if config.pronunciations is None else "pronouncing dictionary, hyphenation",
        },
        warnings=[
            f"half of the texts have fewer than {SHORT} words: one long word moves the grade of such a text by half a "
            "school year or more"
        ]
        if 0 < middle < SHORT
        else [],
    )

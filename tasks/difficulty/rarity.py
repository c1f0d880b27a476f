"""Rarity of a text's words in the data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.texts import TOKEN, WORD, measured, number_words, text_column

SOURCE = (
    "E. A. Platanios, O. Stretcu, G. Neubig, B. Poczos, T. M. Mitchell (2019). Competence-based curriculum learning "
    "for neural machine translation"
)


class RarityConfig(Config):
    """Settings of `rarity`."""

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    unit: Literal["words", "tokens"] = Field("words", description="words alone, or punctuation marks as well")
    over: Literal["mean", "sum"] = Field("mean", description="a word on average, or all words of the text together")
    smoothing: float = Field(0.0, ge=0, le=1000, description="added to each word's count; 0 takes the plain share")
    ignore_case: bool = Field(True, description="whether The and the are one word")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "rarity",
    config=RarityConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 5e-6 * rows, bytes=2e8 + 500.0 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: RarityConfig, seed: int = 0) -> Difficulty:
    """Negative log probability of a text's words, by their share in the whole column.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : RarityConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are -log p in nats, averaged (or summed) over the words of the text, repeated words counted each
        time. p = (count + smoothing) / (all words + smoothing x different words), counts over all rows of the column.
        A text without a word has sum 0, and no mean: it has no difficulty then.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text.
    DataRefused
        If no text has a word.

    Notes
    -----
    Another row changes every value. Sums run in the order of the text, so the order of rows changes no bit.
    """
    where = f"difficulty rarity: of: {config.of}"
    frame = text_column(tables, config.of, where)
    there = frame.drop_nulls("found")
    texts = there["found"].str.to_lowercase() if config.ignore_case else there["found"]
    words = number_words(texts, WORD if config.unit == "words" else TOKEN)
    if not len(words.codes):
        raise DataRefused(f"no text has {_one(config.unit)}", where=where, expected="at least one")
    count = np.bincount(words.codes, minlength=words.size).astype(np.float64)
    total, different = float(len(words.codes)), len(words.numbers)
    with np.errstate(divide="ignore"):  # numbers that stand for no word
        nats = -np.log((count + config.smoothing) / (total + config.smoothing * different))
    raw = words.sums(nats)
    if config.over == "mean":
        with np.errstate(invalid="ignore"):
            raw = np.where(words.count > 0, raw / words.count, np.nan)
    found = there.select("example_id").with_columns(
        pl.Series("raw", raw), pl.lit(f"no word in {config.of!r}").alias("reason")
    )
    return measured(
        frame.select("example_id").join(found, on="example_id", how="left", maintain_order="left"),
        config=config,
        name="rarity",
        title=f"rarity of {config.of}",
        scale="nats" if config.over == "sum" else f"nats a {config.unit[:-1]}",
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes={
            config.unit: len(words.codes),
            f"different {config.unit}": different,
            f"{config.unit} that stand once": int((count == 1).sum()),
        },
    )


def _one(unit: str) -> str:
    return "a word" if unit == "words" else "a word or punctuation mark"

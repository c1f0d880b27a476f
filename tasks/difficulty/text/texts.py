"""What the text measures share: the column, what a word is, words as numbers, and the result of a number a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.format import number
from gradatim.tasks.core.ranks import distinct
from gradatim.tasks.core.registry import Config
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.rows import example_column

WORD = r"\w+(?:['’-]\w+)*"
"""Letters, digits and underscores, with apostrophes and hyphens inside."""
TOKEN = r"\w+|[^\w\s]"
"""A run of letters, digits and underscores, or one punctuation mark or symbol."""
CHUNK = 200_000
"""Texts whose words are held as text at once."""


@dataclass(frozen=True)
class Words:
    """The words of N texts as numbers.

    Attributes
    ----------
    count : (N,) int64
        Words of each text; 0 for an empty one.
    codes : (sum of count,) uint32
        Each word's number, text after text, in the order of the text. Which word gets which number is not fixed.
    size : int
        One more than the largest number.
    numbers, words : (V,) int64, and Series of String
        The different words and their numbers.
    """

    count: np.ndarray
    codes: np.ndarray
    size: int
    numbers: np.ndarray
    words: pl.Series

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield slices of texts with each of their words' text (from 0 in the slice) and number."""
        ends = np.concatenate([[0], np.cumsum(self.count)])
        for start in range(0, len(self.count), CHUNK):
            part = slice(start, min(start + CHUNK, len(self.count)))
            text = np.repeat(np.arange(part.stop - start), self.count[part])
            yield part, text, self.codes[ends[start] : ends[part.stop]]

    def sums(self, weight: np.ndarray) -> np.ndarray:
        """Add a weight a word, (size,), over each text: (N,) float64, in the order of the text on every machine."""
        total = np.zeros(len(self.count))
        for part, text, codes in self.blocks():
            total[part] = np.bincount(text, weights=weight[codes], minlength=part.stop - part.start)
        return total


def number_words(texts: pl.Series, pattern: str) -> Words:
    """Cut texts (String, without nulls) into the matches of a pattern and number these.

    O(characters); 4 bytes a word, and the words themselves for `CHUNK` texts at a time.
    """
    own = pl.Categorical(pl.Categories.random())  # freed with the words, unlike the global ones
    counts, codes, seen = [], [], []
    for start in range(0, len(texts), CHUNK):
        lists = texts.slice(start, CHUNK).str.extract_all(pattern)
        counts.append(lists.list.len().to_numpy())
        words = lists.explode().drop_nulls().cast(own)
        codes.append(words.to_physical().cast(pl.UInt32).to_numpy())
        seen.append(words.unique())
    different = pl.concat(seen).unique() if seen else pl.Series([], dtype=own)
    numbers = different.to_physical().cast(pl.Int64).to_numpy()
    return Words(
        np.concatenate([np.zeros(0, dtype=np.int64), *counts]).astype(np.int64),
        np.concatenate([np.zeros(0, dtype=np.uint32), *codes]),
        int(numbers.max(initial=-1)) + 1,
        numbers,
        different.cast(pl.String),
    )


def text_column(tables: Mapping[str, pl.DataFrame], name: str, where: str) -> pl.DataFrame:
    """Return example_id and the text `name` as ``found`` (String), sorted by id.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text.
    """
    frame = example_column(tables, name, where)
    if not is_text(frame.schema["found"]):
        raise UsageError(
            f"the column is of type {frame.schema['found']}",
            where=where,
            expected="text",
            remedy=f"for a number write  column: {{column: {name}}}",
        )
    return frame.with_columns(pl.col("found").cast(pl.String))


def is_text(kind: pl.DataType) -> bool:
    """Whether a column's values are text, or all of them null."""
    return kind in (pl.String, pl.Categorical, pl.Null) or isinstance(kind, pl.Enum)


def measured(
    frame: pl.DataFrame,
    *,
    config: Config,
    name: str,
    title: str,
    scale: str,
    lacking: str,
    source: str,
    notes: Mapping[str, Cell] | None = None,
    warnings: Sequence[str] = (),
) -> Difficulty:
    """Build the `Difficulty` of one number a text; raises `DataRefused`, with the reasons, where no text has one.

    Parameters
    ----------
    frame : polars.DataFrame
        example_id and raw (Float64); optionally value (raw by default), n (1), standard_error and reason. Rows whose
        raw is null, NaN or infinite have no difficulty: they are excluded with their reason, by default `lacking`.
    config : Config
        Settings; those that differ from the defaults become part of the method's name, files by their name.
    """
    optional = {
        "value": pl.col("raw"),
        "n": pl.lit(1),
        "standard_error": pl.lit(None, pl.Float64),
        "reason": pl.lit(None, pl.String),
    }
    frame = frame.with_columns(expr.alias(key) for key, expr in optional.items() if key not in frame.columns)
    usable = frame.filter(pl.col("raw").is_finite())  # null is not true either
    gone = frame.filter(~pl.col("raw").is_finite().fill_null(False)).sort("example_id")
    if gone.height and not usable.height:
        reasons = (
            gone["reason"]
            .fill_null(lacking)
            .value_counts(sort=True, name="n")
            .sort("n", "reason", descending=[True, False])
        )
        raise DataRefused(
            "no example has a difficulty: "
            + "; ".join(f"{n:,} x {reason}" for reason, n in reasons.head(3).iter_rows()),
            where=f"difficulty {title}",
            expected="at least one",
        )
    value = usable["value"].cast(pl.Float64).to_numpy()
    notices = list(warnings)
    if len(value) > 1 and distinct(value) == 1:
        notices.append(f"every text has the same value, {number(float(value[0]))}: it tells no examples apart")
    error = usable["standard_error"]
    return build(
        method=method_name(name, _named(config), _defaults(config)),
        title=title,
        ids=usable["example_id"].to_list(),
        value=value + 0.0,
        raw=usable["raw"].cast(pl.Float64).to_numpy(),
        scale=scale,
        n=usable["n"].cast(pl.Int64).to_numpy(),
        error=error.to_numpy() if error.null_count() < len(error) else None,
        bins=getattr(config, "bins", None),
        warnings=notices,
        excluded=gone.select("example_id", pl.col("reason").fill_null(lacking)),
        notes=dict(notes or {}),
        source=source,
    )


def _named(config: Config) -> dict[str, Any]:
    settings = config.model_dump(exclude={"bins"})
    return {k: Path(v).name if k in config.paths and v else v for k, v in settings.items()}


def _defaults(config: Config) -> dict[str, Any]:
    return {key: field.default for key, field in type(config).model_fields.items()}

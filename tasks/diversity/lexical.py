"""What the measures of words share: the texts and subsets to measure, samples in an order of hashes, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.frames import conform, polars_schema
from gradatim.tasks.core.ngrams import PATTERNS
from gradatim.tasks.core.registry import Config
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity

Unit = Literal["words", "tokens", "letters", "characters"]


class LexicalConfig(Config):
    """Settings that the lexical measures share."""

    column: str = Field("input", description="column of examples: the text")
    by: str = Field("", description="column of examples: measure each of its values as well")


class WordsConfig(LexicalConfig):
    """Settings of measures that count words."""

    unit: Unit = Field("words", description="what a word is: words, tokens, letters or characters")
    ignore_case: bool = Field(True, description="count words in lower case")


def texts(tables: Mapping[str, pl.DataFrame], config: LexicalConfig, where: str) -> pl.DataFrame:
    """Return example_id, text and by of the rows that have a text, sorted by id.

    Raises
    ------
    UsageError
        If a column is not there or holds no text.
    DataRefused
        If no row has a text.
    """
    examples = tables["examples"]
    for name in filter(None, (config.column, config.by)):
        if name not in examples.columns:
            raise UsageError(
                f"examples has no column {name!r}{nearest(name, examples.columns)}",
                where=where,
                expected=", ".join(examples.columns),
            )
    kind = examples.schema[config.column]
    if kind not in (pl.String, pl.Categorical, pl.Null) and not isinstance(kind, pl.Enum):
        raise UsageError(f"column {config.column!r} holds {kind}", where=where, expected="text")
    by = pl.col(config.by).cast(pl.String) if config.by else pl.lit(None, pl.String)
    rows = examples.select(pl.col("example_id").cast(pl.String), text=pl.col(config.column).cast(pl.String), by=by)
    known = rows.drop_nulls("text").sort("example_id")
    if not known["text"].str.contains(PATTERNS[getattr(config, "unit", "characters")]).any():
        raise DataRefused(
            f"column {config.column!r} has no text in any of {len(rows):,} rows",
            where=where,
            expected="at least one text with a word",
            remedy="name another column, or drop this measure",
        )
    return known


def subsets(rows: pl.DataFrame, by: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the name and the rows of all, then of each value of `by` in order of name; rows stay in order of id."""
    yield "all", rows
    if by:
        for part in rows.drop_nulls("by").sort("by", "example_id").partition_by("by", maintain_order=True):
            yield f"{by}={part['by'][0]}", part


def hash_order(rows: pl.DataFrame, seed: int, purpose: str) -> pl.DataFrame:
    """Put rows in an order that depends on their ids and the seed alone, so that a new row moves no other."""
    bits = pl.Series("bits", random_bits(rows["example_id"], seed, purpose), dtype=pl.UInt64)
    return rows.with_columns(bits).sort("bits", "example_id")


def result(
    method: str,
    config: LexicalConfig,
    statistics: Sequence[Statistic],
    *,
    main: str,
    source: str,
    left_out: int,
    values: pl.DataFrame | None = None,
    warnings: Sequence[str] = (),
) -> Diversity:
    """Build the result; `values` are example_id and value of single rows, `left_out` the rows without a text."""
    parameters = config.model_dump(mode="json")
    gone = [f"{left_out:,} rows have no {config.column} and were left out"] if left_out else []
    table = pl.DataFrame(schema=polars_schema("diversity"))
    if values is not None:
        table = conform(
            values.select(
                "example_id",
                "value",
                method=pl.lit(method),
                cluster=pl.lit(None, pl.Int64),
                nearest_id=pl.lit(None, pl.String),
                nearest_similarity=pl.lit(None, pl.Float64),
            ),
            "diversity",
        )
    return Diversity(
        method=method if config.column == "input" else f"{method}({config.column})",
        statistics=statistics_table(statistics, parameters),
        table=table,
        main=main,
        parameters=parameters,
        source=source,
        warnings=(*gone, *warnings),
    )

"""Which rows are evaluation and which are training, and the vectors of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.embeddings import Vectors, vectors_of

_WHERE = "diversity contamination"


def sides(
    examples: pl.DataFrame, column: str, marked: str, by: str, *, values: Sequence[str], train: Sequence[str]
) -> pl.DataFrame:
    """Return example_id, text, by, and which rows are evaluation and train; neither where the column says so.

    Raises `UsageError` where there is no such column or no text, `DataRefused` where a side has no row.
    """
    for name in filter(None, (column, marked, by)):
        if name not in examples.columns:
            raise UsageError(
                f"examples has no column {name!r}{nearest(name, examples.columns)}",
                where=_WHERE,
                expected=", ".join(examples.columns),
            )
    if examples.schema[column] not in (pl.String, pl.Categorical, pl.Null):
        raise UsageError(f"column {column!r} holds {examples.schema[column]}", where=_WHERE, expected="text")
    said = examples[marked]
    if said.dtype == pl.Boolean:
        evaluation, training = said, ~said
    else:
        text = said.cast(pl.String)
        evaluation = text.is_in(list(values))
        wanted = list(train) or (["train"] if (text == "train").any() else [])
        training = text.is_in(wanted) if wanted else ~evaluation
    training = training & ~evaluation.fill_null(False)
    for side, rows in (("evaluation", evaluation), ("training", training)):
        if not rows.any():
            held = said.drop_nulls().unique().cast(pl.String).sort()
            # a column of texts, named by mistake, is not shown
            named = ", ".join(held) if 0 < len(held) <= 8 else f"{len(held):,} different values"
            raise DataRefused(
                f"column {marked!r} marks no row as {side}; it holds {named}",
                where=_WHERE,
                expected="rows on both sides",
                remedy="name the values: values: [test], train: [train]",
            )
    return examples.select(
        pl.col("example_id").cast(pl.String),
        pl.col(column).cast(pl.String).alias("text"),
        (pl.col(by).cast(pl.String) if by else pl.lit("")).alias("by"),
        evaluation.fill_null(False).alias("evaluation"),
        training.fill_null(False).alias("train"),
    )


def vectors_of_sides(
    tables: Mapping[str, pl.DataFrame], features: str, evaluation: pl.DataFrame, train: pl.DataFrame
) -> tuple[Vectors, Vectors, int]:
    """Vectors of both sides, and how many rows of them have none."""
    found = vectors_of(tables, features, _WHERE)
    sides = []
    for rows in (evaluation, train):
        mine = found.ids.is_in(rows["example_id"].implode())
        sides.append(Vectors(found.ids.filter(mine), found.matrix[mine.to_numpy()], found.lacking))
    return sides[0], sides[1], len(evaluation) + len(train) - len(sides[0].ids) - len(sides[1].ids)

"""Who solved what: long tables and wide matrices to the tables `responses` and `respondents`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Responses
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.columns import created_at
from gradatim.tasks.ingest.lm_eval import check_lm_eval, read_lm_eval
from gradatim.tasks.ingest.reading import ReadOptions, read_shard, rejects_table, shard_schema, source_schema
from gradatim.tasks.ingest.settle import Responded, settle
from gradatim.tasks.ingest.sources import shards


def read_responses(
    responses: Responses,
    *,
    base: str | Path = ".",
    examples: pl.DataFrame | None = None,
    joined: float = 0.98,
) -> Responded:
    """Read responses of any format, lm-evaluation-harness logs included.

    Parameters
    ----------
    responses : Responses
        A long table (a row a response), or a wide one: where the column of examples or that of scores is missing, each
        further column is an example (rows are respondents) or a respondent (rows are examples). Empty cells of a wide
        table are no responses; its cells, counted line by line, are the `source_row`.
    base : str or Path
    examples : polars.DataFrame, optional
        Column `example_id`, and `input` for ``join: input``. Without it nothing is joined.
    joined : float
        Smallest share of responses that must match an example.

    Raises
    ------
    UsageError
        A column, metric or filter that is not there, answered with those that are.
    DataRefused
        Fewer joined than asked, or no response at all.
    """
    if responses.format == "lm-eval":
        return read_lm_eval(
            responses.source,
            metric=responses.metric,
            filter=responses.filter,
            join=responses.join,
            base=base,
            examples=examples,
            joined=joined,
        )
    found = shards(responses.source, base, responses.format)
    options = ReadOptions(text_columns=frozenset({responses.respondent, responses.example}))
    schema = source_schema({shard.uri: shard_schema(shard, options) for shard in found})
    wide = wide_column(responses, schema)
    width = max(1, len(schema) - 1) if wide else 1
    options = ReadOptions(text_columns=options.text_columns, schema=schema)
    frames, rejects = [], []
    for shard in found:
        for batch in read_shard(shard, options):
            bad = pl.DataFrame(pl.from_arrow(rejects_table(shard.uri, batch.rejects)))
            rejects.append(bad.with_columns(pl.col("source_row") * width))
            frame = _long(batch.table, responses, wide)
            rows = pl.Series("source_row", batch.rows, dtype=pl.Int64).gather(frame["place"])
            # a cell of a wide table is a row of its own, counted line by line
            cells = frame.with_columns(source_row=rows * width + frame["cell"], source_uri=pl.lit(shard.uri))
            frames.append(cells.drop("place", "cell"))
    return settle(pl.concat(frames), pl.concat(rejects), examples, joined, where=responses.source)


def check_responses(responses: Responses, *, base: str | Path = ".", inputs: bool = True) -> None:
    """Try what `read_responses` would read: the columns of all files and the beginning of the first; lm-eval: all logs.

    Parameters
    ----------
    responses : Responses
    base : str or Path
    inputs : bool
        Whether the examples have an input, for ``join: input``.

    Raises
    ------
    UsageError, DataRefused
        As `read_responses`, but for the join with the examples.
    """
    if responses.format == "lm-eval":
        asked = {key: getattr(responses, key) for key in ("metric", "filter", "join")}
        return check_lm_eval(responses.source, base=base, inputs=inputs, **asked)
    found = shards(responses.source, base, responses.format)
    options = ReadOptions(text_columns=frozenset({responses.respondent, responses.example}))
    schema = source_schema({shard.uri: shard_schema(shard, options) for shard in found})
    wide = wide_column(responses, schema)
    options = ReadOptions(text_columns=options.text_columns, schema=schema)
    batch = next((b for shard in found for b in read_shard(shard, options) if len(b.rows)), None)
    if batch is None:
        raise DataRefused("there is no response in the whole source", where=responses.source)
    cells = _long(batch.table, responses, wide)
    cells = cells.with_columns(source_row=pl.col("place").cast(pl.Int64), source_uri=pl.lit("")).drop("place", "cell")
    settle(cells, pl.DataFrame(pl.from_arrow(rejects_table("", batch.rejects))), None, 0.0, where=responses.source)


def wide_column(responses: Responses, schema: pa.Schema) -> str | None:
    """Name the one id column of a wide table, or None for a long one; raise for columns that are not there."""
    names = schema.names
    if not names:
        raise DataRefused("there is no response in the whole source", where=responses.source)
    here = {key: getattr(responses, key) in names for key in ("respondent", "example", "score")}
    chosen = responses.model_fields_set
    if here["respondent"] and not here["example"] and not here["score"] and not {"example", "score"} & chosen:
        return responses.respondent
    if here["example"] and not here["respondent"] and not here["score"] and not {"respondent", "score"} & chosen:
        return responses.example
    optional = ("attempt", "family", "attempted_at", "period")
    for key in ("respondent", "example", "score", *(k for k in optional if getattr(responses, k))):
        column = getattr(responses, key)
        if column not in names:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, names)}",
                where=f"responses.{key}: {responses.source}",
                expected="one of " + ", ".join(names[:50]),
                remedy=f"name it: {key}: COLUMN",
            )
    return None


def _long(table: pa.Table, responses: Responses, wide: str | None) -> pl.DataFrame:
    """A row a response: place in the batch, cell in the row, who, what, the score as text, and the rest."""
    count = len(table)
    if wide:
        others = [name for name in table.schema.names if name != wide]
        cells = pl.DataFrame(
            {
                "place": np.tile(np.arange(count, dtype=np.uint32), len(others)),
                "cell": np.repeat(np.arange(len(others)), count),
                "one": pl.Series(pl.from_arrow(text(table[wide]))).gather(np.tile(np.arange(count), len(others))),
                "other": pl.Series(others, dtype=pl.String).gather(np.repeat(np.arange(len(others)), count)),
                "score": pl.concat([_scores(table[name]) for name in others])
                if others
                else pl.Series([], dtype=pl.String),
            }
        ).drop_nulls("score")
        swapped = wide == responses.example
        cells = cells.rename(
            {"one": "example" if swapped else "respondent", "other": "respondent" if swapped else "example"}
        )
    else:
        cells = pl.DataFrame(
            {
                "place": np.arange(count, dtype=np.uint32),
                "cell": np.zeros(count, dtype=np.int64),
                "respondent": pl.from_arrow(text(table[responses.respondent])),
                "example": pl.from_arrow(text(table[responses.example])),
                "score": _scores(table[responses.score]),
            }
        )
    extra: Mapping[str, pl.Series] = {
        "family": _text_of(table, responses.family),
        "attempt": _text_of(table, responses.attempt),
        "period": _text_of(table, responses.period),
    }
    times = pl.Series([None] * count, dtype=pl.Datetime("us", "UTC"))
    bad_time = pl.Series([False] * count, dtype=pl.Boolean)
    if responses.attempted_at:
        read, reasons = created_at(table[responses.attempted_at])
        times, bad_time = pl.Series(pl.from_arrow(read)), pl.Series(reasons != "", dtype=pl.Boolean)
    return cells.with_columns(
        *[series.gather(cells["place"]).alias(name) for name, series in extra.items()],
        times.gather(cells["place"]).alias("attempted_at"),
        bad_time.gather(cells["place"]).alias("bad_time"),
        pl.lit(0, pl.Int64).alias("order"),
        pl.lit(responses.attempt is not None).alias("has_attempt"),
        pl.lit(responses.period is not None).alias("has_period"),
    )


def _text_of(table: pa.Table, column: str | None) -> pl.Series:
    if column is None:
        return pl.Series([None] * len(table), dtype=pl.String)
    return pl.Series(pl.from_arrow(text(table[column]))).cast(pl.String)


def _scores(column: pa.ChunkedArray) -> pl.Series:
    """Scores as text: one form for true/false, integers, numbers and what is none of them."""
    return pl.Series("score", pl.from_arrow(text(column))).cast(pl.String)

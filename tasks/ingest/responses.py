"""Who solved what: long tables and wide matrices to the tables `responses` and `respondents`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from gradatim.schemas.errors import DataRefused, GradatimError, UsageError, nearest
from gradatim.schemas.recipe import Responses
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.columns import created_at
from gradatim.tasks.ingest.identity import REJECTS
from gradatim.tasks.ingest.reading import ReadOptions, read_shard, rejects_table, shard_schema, shorten, source_schema
from gradatim.tasks.ingest.sources import shards

RESPONSES = {
    "respondent_id": pl.String,
    "example_id": pl.String,
    "attempt": pl.Int32,
    "score": pl.Float64,
    "attempted_at": pl.Datetime("us", "UTC"),
    "period": pl.Int64,
}


@dataclass(frozen=True)
class Responded:
    """A record of who solved what.

    Attributes
    ----------
    responses : polars.DataFrame
        The table `responses`, sorted by its key.
    respondents : polars.DataFrame
        The table `respondents`; ability and its error are null.
    rejects : polars.DataFrame
        The table `rejects`.
    unjoined : polars.DataFrame
        Columns `example` (as the responses name it) and `n` (responses), of those that match no example.
    rows_in : int
        ``len(responses) + len(rejects) + redelivered + unjoined["n"].sum()``.
    redelivered : int
        Rows that said the same again.
    """

    responses: pl.DataFrame
    respondents: pl.DataFrame
    rejects: pl.DataFrame
    unjoined: pl.DataFrame
    rows_in: int
    redelivered: int

    def __post_init__(self) -> None:
        total = len(self.responses) + len(self.rejects) + self.redelivered + int(self.unjoined["n"].sum())
        if total != self.rows_in:
            raise GradatimError(f"rows do not add up: {self.rows_in:,} in, {total:,} out")

    @property
    def joined(self) -> float:
        """Share of the usable responses that match an example."""
        missed = int(self.unjoined["n"].sum())
        return len(self.responses) / max(1, len(self.responses) + missed)

    def __str__(self) -> str:
        return (
            f"{len(self.responses):,} responses of {len(self.respondents):,} respondents to "
            f"{self.responses['example_id'].n_unique():,} examples; {self.joined:.1%} joined, "
            f"{len(self.rejects):,} rejected"
        )


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
        from gradatim.tasks.ingest.lm_eval import read_lm_eval

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
    wide = _wide(responses, schema)
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


def _wide(responses: Responses, schema: pa.Schema) -> str | None:
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


def settle(
    found: pl.DataFrame, rejects: pl.DataFrame, examples: pl.DataFrame | None, joined: float, *, where: str
) -> Responded:
    """Check, number and join responses that were read.

    Parameters
    ----------
    found : polars.DataFrame
        Columns order (of the file in time, 0 where unknown), source_uri, source_row, respondent, example, score (text:
        a number, true or false), attempt and period (text), attempted_at, bad_time, has_attempt, has_period, family.
    rejects : polars.DataFrame
        What could not be read.
    """
    value = pl.col("score").str.to_lowercase().replace({"true": "1", "false": "0"}).cast(pl.Float64, strict=False)
    blank = {c: pl.col(c).str.strip_chars().fill_null("") == "" for c in ("respondent", "example")}
    number = {c: pl.col(c).cast(pl.Int64, strict=False) for c in ("attempt", "period")}
    checks = [
        (blank["respondent"], "the respondent is empty", "respondent"),
        (blank["example"], "the example is empty", "example"),
        (value.is_null() | value.is_nan(), "the score is no number and not true or false", "score"),
        ((value < 0) | (value > 1), "the score is outside [0, 1]", "score"),
        (
            pl.col("has_attempt") & (number["attempt"].is_null() | (number["attempt"] < 0)),
            "the attempt is no number from 0",
            "attempt",
        ),
        (
            pl.col("has_period") & number["period"].is_null() & pl.col("period").is_not_null(),
            "the period is no integer",
            "period",
        ),
        (pl.col("bad_time"), "no time", "attempted_at"),
    ]
    why = pl.coalesce([pl.when(test).then(pl.lit(reason)) for test, reason, _ in checks])
    at = pl.coalesce([pl.when(test).then(pl.lit(column)) for test, _, column in checks])
    judged = found.with_columns(reason=why, column=at, value=value)
    bad = judged.filter(pl.col("reason").is_not_null())
    good = judged.filter(pl.col("reason").is_null()).with_columns(**number)
    unjoined = pl.DataFrame(schema={"example": pl.String, "n": pl.Int64})
    rows_in = len(found) + len(rejects)
    if examples is not None:
        good, unjoined = _join(good, examples["example_id"], joined, where)
    good, conflicts, redelivered = _numbered(good)
    if good.is_empty():
        raise DataRefused(
            "there is no usable response",
            where=where,
            expected="rows with a respondent, an example and a score in [0, 1]",
            remedy=f"{len(bad) + len(rejects):,} rows were rejected"
            + (f", first: {bad['reason'][0]}" if len(bad) else ""),
        )
    table = good.select(
        pl.col("respondent").alias("respondent_id"),
        pl.col("example").alias("example_id"),
        pl.col("attempt").cast(pl.Int32),
        pl.col("value").alias("score"),
        "attempted_at",
        "period",
    )
    ours = pl.concat([_reject_rows(bad), _reject_rows(conflicts)])
    return Responded(
        responses=table.sort("respondent_id", "example_id", "attempt"),
        respondents=_respondents(good, where),
        rejects=pl.concat([rejects.select(*[pl.col(name).cast(dtype) for name, dtype in REJECTS.items()]), ours]).sort(
            "source_uri", "source_row"
        ),
        unjoined=unjoined,
        rows_in=rows_in,
        redelivered=redelivered,
    )


def _reject_rows(rows: pl.DataFrame) -> pl.DataFrame:
    picked = pl.coalesce(
        [
            pl.when(pl.col("column") == c).then(pl.col(c).cast(pl.String))
            for c in ("respondent", "example", "score", "attempt", "period")
        ]
    )
    shown = rows.select(picked).to_series()
    return rows.select("source_uri", pl.col("source_row").cast(pl.Int64), "reason", "column").with_columns(
        pl.Series("value", [None if v is None else shorten(v) for v in shown], dtype=pl.String)
    )


def _join(good: pl.DataFrame, ids: pl.Series, joined: float, where: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    known = good["example"].is_in(ids.implode())
    missed = good.filter(~known).group_by("example").agg(n=pl.len().cast(pl.Int64)).sort("example")
    share = int(known.sum()) / max(1, len(known))
    if len(good) and share < joined:
        some = ", ".join(repr(shorten(i)) for i in missed["example"][:5]) + (", …" if len(missed) > 5 else "")
        ours = ", ".join(repr(shorten(i)) for i in ids.sort()[:3])
        raise DataRefused(
            f"{share:.1%} of the responses match an example; {len(missed):,} names match none: {some}",
            where=where,
            expected=f"at least {joined:.0%}; the examples are called {ours}, …",
            remedy="name the column that holds the example's id (join, example), or lower checks.joined",
        )
    return good.filter(known), missed


def _numbered(good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Number attempts in the order of (order, source_uri, source_row) where no column does; judge what comes twice."""
    pair = ["respondent", "example"]
    good = good.sort("respondent", "example", "order", "source_uri", "source_row")
    given = good.filter("has_attempt")
    counted = good.filter(~pl.col("has_attempt")).with_columns(
        attempt=pl.int_range(pl.len(), dtype=pl.Int64).over(pair)
    )
    key = [*pair, "attempt"]
    distinct = pl.struct("value", "attempted_at", "period").n_unique().over(key)
    given = given.with_columns(distinct=distinct, place=pl.int_range(pl.len()).over(key))
    conflicts = given.filter(pl.col("distinct") > 1).with_columns(
        reason=pl.lit("the attempt comes with different results"),
        column=pl.lit("attempt"),
        attempt=pl.col("attempt").cast(pl.String),
    )
    sound = given.filter(pl.col("distinct") == 1)
    once = sound.filter(pl.col("place") == 0)
    return pl.concat([once.drop("distinct", "place"), counted]), conflicts, len(sound) - len(once)


def _respondents(good: pl.DataFrame, where: str) -> pl.DataFrame:
    people = good.group_by("respondent").agg(
        families=pl.col("family").drop_nulls().unique().sort(), n=pl.len().cast(pl.Int64)
    )
    torn = people.filter(pl.col("families").list.len() > 1).sort("respondent")
    if len(torn):
        name, families = torn["respondent"][0], torn["families"][0].to_list()
        raise DataRefused(
            f"the respondent {name!r} has the families {', '.join(families)}", where=where, expected="one each"
        )
    return people.select(
        pl.col("respondent").alias("respondent_id"),
        pl.col("families").list.first().alias("family"),
        pl.lit(None, pl.Float64).alias("ability"),
        pl.lit(None, pl.Float64).alias("standard_error"),
        "n",
    ).sort("respondent_id")

"""Responses that were read, settled: checked, numbered, joined to their examples."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gradatim.schemas.errors import DataRefused, GradatimError
from gradatim.tasks.core import format as fmt
from gradatim.tasks.ingest.identity import REJECTS
from gradatim.tasks.ingest.reading import shorten


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
            f"{self.responses['example_id'].n_unique():,} examples; {fmt.share(self.joined)} joined, "
            f"{len(self.rejects):,} rejected"
        )


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

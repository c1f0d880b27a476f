"""One id, one row: duplicates over all parts, and what changed since the version before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from gradatim.schemas.hashing import random_bits
from gradatim.tasks.ingest.reading import shorten

KEYS = ("example_id", "content_hash", "source_uri", "source_row")
"""The narrow columns on which duplicates are decided."""

BUCKET = 4_000_000
"""Rows with a doubtful id that are looked at together."""

REJECTS = {
    "source_uri": pl.String,
    "source_row": pl.Int64,
    "reason": pl.String,
    "column": pl.String,
    "value": pl.String,
}


@dataclass(frozen=True)
class Resolution:
    """What becomes of rows whose id stands more than once.

    Attributes
    ----------
    drop : list of numpy.ndarray, int64
        For each part the positions of the rows that do not stay, sorted.
    rejects : polars.DataFrame
        Rows of the table `rejects`: ids with different contents.
    redelivered : int
        Rows that were equal to one that stays.
    """

    drop: list[np.ndarray]
    rejects: pl.DataFrame
    redelivered: int


def resolve_duplicates(
    parts: Sequence[pl.DataFrame | pl.LazyFrame],
    on_conflict: Literal["first", "last", "reject"] = "reject",
    column: str | None = None,
) -> Resolution:
    """Decide which row of an id stays, over all parts.

    Rows of one id and one content are one row delivered again: the first by (source_uri, source_row) stays. With
    different contents, `on_conflict` says whether the first or the last stays or none. The result does not depend on
    the order of parts or rows.

    Parameters
    ----------
    parts : sequence of polars.DataFrame or LazyFrame
        With the columns `KEYS`; each is read once, and again where it has doubtful ids.
    on_conflict : "first", "last" or "reject"
    column : str, optional
        Name of the id column, for the rejects.

    Notes
    -----
    Memory: 8 bytes a row, and the key columns of at most `BUCKET` doubtful rows at a time.
    """
    hashes = [random_bits(_ids(part), 0, "ingest.duplicates") for part in parts]
    doubtful = _repeated(hashes)
    drop: list[list[np.ndarray]] = [[] for _ in parts]
    rejects: list[pl.DataFrame] = []
    redelivered = 0
    found = [np.flatnonzero(_member(h, doubtful)) for h in hashes]
    buckets = max(1, -(-sum(map(len, found)) // BUCKET))
    for bucket in range(buckets):
        rows = []
        for place, (part, positions) in enumerate(zip(parts, found, strict=True)):
            chosen = positions[hashes[place][positions] % np.uint64(buckets) == bucket]
            if len(chosen):
                taken = part.lazy().select(KEYS).collect()[chosen]
                rows.append(
                    taken.with_columns(part=pl.lit(place, pl.Int64), position=pl.Series(chosen, dtype=pl.Int64))
                )
        if not rows:
            continue
        judged = _judge(pl.concat(rows), on_conflict)
        for place, positions in judged.filter("dropped").group_by("part").agg("position").iter_rows():
            drop[place].append(np.array(positions, dtype=np.int64))
        redelivered += judged.filter("redelivered").height
        rejects.append(_reasons(judged.filter(pl.col("dropped") & ~pl.col("redelivered")), on_conflict, column))
    return Resolution(
        [np.sort(np.concatenate(d)) if d else np.zeros(0, np.int64) for d in drop],
        pl.concat([pl.DataFrame(schema=REJECTS), *rejects]).sort("source_uri", "source_row"),
        redelivered,
    )


def _ids(part: pl.DataFrame | pl.LazyFrame) -> pl.Series:
    return part.lazy().select("example_id").collect().to_series()


def _repeated(hashes: list[np.ndarray]) -> np.ndarray:
    whole = np.concatenate(hashes) if hashes else np.zeros(0, np.uint64)
    whole.sort()
    return np.unique(whole[1:][whole[1:] == whole[:-1]])


def _member(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    if not len(among):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(among[np.minimum(np.searchsorted(among, values), len(among) - 1)] == values)


def _judge(rows: pl.DataFrame, on_conflict: str) -> pl.DataFrame:
    rows = rows.sort("example_id", "source_uri", "source_row", "part", "position")
    by_id = "example_id"
    contents = pl.col("content_hash").n_unique().over(by_id)
    size = pl.len().over(by_id)
    place = pl.int_range(pl.len()).over(by_id)
    last = (contents > 1) & (on_conflict == "last")
    winner = pl.when(last).then(size - 1).otherwise(0)
    won = (
        pl.when(last)
        .then(pl.col("content_hash").last().over(by_id))
        .otherwise(pl.col("content_hash").first().over(by_id))
    )
    none = (contents > 1) & (on_conflict == "reject")
    return rows.with_columns(
        contents=contents,
        dropped=none | (place != winner),
        redelivered=~none & (place != winner) & (pl.col("content_hash") == won),
    )


def _reasons(rows: pl.DataFrame, on_conflict: str, column: str | None) -> pl.DataFrame:
    kept = {"first": "; the first stays", "last": "; the last stays", "reject": ""}[on_conflict]
    return rows.select(
        "source_uri",
        "source_row",
        reason=pl.format("the id comes with {} different contents" + kept, "contents"),
        column=pl.lit(column, pl.String),
        value=pl.Series("value", [shorten(i) for i in rows["example_id"]], dtype=pl.String),
    )


@dataclass(frozen=True)
class Comparison:
    """Two versions of one set of examples.

    Attributes
    ----------
    new, same, changed, vanished : int
        Ids.
    states : polars.DataFrame
        Columns `example_id` and `state` (one of those four words), sorted by id.
    """

    new: int
    same: int
    changed: int
    vanished: int
    states: pl.DataFrame


def compare_versions(previous: pl.DataFrame | None, current: pl.DataFrame) -> Comparison:
    """Call each id new, same, changed or vanished.

    Parameters
    ----------
    previous : polars.DataFrame or None
        Columns `example_id` and `content_hash` of the version before; None where there is none.
    current : polars.DataFrame
        The same columns now; ids are unique.
    """
    columns = ["example_id", "content_hash"]
    before = current.select(columns).clear() if previous is None else previous.select(columns)
    joined = before.join(current.select(columns), on="example_id", how="full", coalesce=True, suffix="_now")
    old, now = pl.col("content_hash"), pl.col("content_hash_now")
    state = (
        pl.when(old.is_null())
        .then(pl.lit("new"))
        .when(now.is_null())
        .then(pl.lit("vanished"))
        .when(old == now)
        .then(pl.lit("same"))
        .otherwise(pl.lit("changed"))
    )
    states = joined.select("example_id", state.alias("state")).sort("example_id")
    counts = dict(states.group_by("state").len().iter_rows())
    return Comparison(
        new=counts.get("new", 0),
        same=counts.get("same", 0),
        changed=counts.get("changed", 0),
        vanished=counts.get("vanished", 0),
        states=states,
    )

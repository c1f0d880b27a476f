"""Numbers about a whole set or a subset of it, as rows of the table `statistics`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from gradatim.schemas.hashing import value_hash
from gradatim.schemas.tables import spec
from gradatim.tasks.core.frames import polars_schema


class Statistic(NamedTuple):
    """One number about one subset, or about a subset beside another, the `reference`.

    `low` and `high` are None where there is no interval.
    """

    subset: str
    metric: str
    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    reference: str = ""


def statistics_table(rows: Sequence[Statistic], parameters: dict[str, Any]) -> pl.DataFrame:
    """Return rows in the schema of the table `statistics`, sorted by its key; not finite values become null."""
    digest, text = value_hash(parameters), json.dumps(parameters, sort_keys=True)
    records = [
        (row.subset, row.reference, row.metric, digest, row.value, row.low, row.high, row.n, text) for row in rows
    ]
    frame = pl.DataFrame(records, schema=polars_schema("statistics"), orient="row")
    numbers = pl.col("value", "ci_low", "ci_high")
    frame = frame.with_columns(pl.when(numbers.is_finite()).then(numbers).name.keep())
    return frame.sort(spec("statistics").key)


def of_step(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Add a step's name to the parameters of its statistics, so that two steps of equal settings keep rows apart."""
    texts = frame["parameters"].unique().to_list()
    named = [json.dumps({**json.loads(text), "step": name}, sort_keys=True) for text in texts]
    digests = [value_hash(json.loads(text)) for text in named]
    found = frame.with_columns(
        pl.col("parameters").replace_strict(texts, digests, return_dtype=pl.String).alias("parameters_hash"),
        pl.col("parameters").replace_strict(texts, named, return_dtype=pl.String),
    )
    return found.sort(spec("statistics").key)

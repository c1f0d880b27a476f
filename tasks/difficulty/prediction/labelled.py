"""Known difficulties of some examples, from which the others' are predicted, and how well a prediction does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.difficulty.rows import example_column

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """Known difficulties.

    Attributes
    ----------
    table : polars.DataFrame
        example_id (unique, sorted), value (finite, higher is harder), standard_error and flag, null where unknown.
    scale, name : str
        Unit of value, and what it is, for people.
    sign : float
        -1 where a column's higher number is easier, so that raw = sign * value.
    """

    table: pl.DataFrame
    scale: str
    name: str
    sign: float = 1.0


def labels_of(
    tables: Mapping[str, pl.DataFrame], of: str | None, column: str | None, higher_is_harder: bool, where: str
) -> Labels:
    """Find the known difficulties: those of an earlier step, or a column of numbers of the examples.

    Raises
    ------
    UsageError
        There is no such step or column, or it holds no numbers.
    DataRefused
        An example stands twice, or none has a value.
    """
    if of is not None:
        labels = _of_step(tables, of, where)
    else:
        assert column is not None
        labels = _of_column(tables, column, higher_is_harder, where)
    twice = labels.table["example_id"].is_duplicated()
    if twice.any():
        raise DataRefused(
            f"the example {labels.table['example_id'].filter(twice)[0]!r} has two values of {labels.name}",
            where=where,
            expected="one value an example",
        )
    if not len(labels.table):
        raise DataRefused(
            f"no example has a value of {labels.name}",
            where=where,
            expected="some examples whose difficulty is known, from which the others' is predicted",
        )
    return labels


def _of_step(tables: Mapping[str, pl.DataFrame], of: str, where: str) -> Labels:
    if "difficulty" not in tables:
        raise UsageError(
            f"there is no difficulty {of!r} to learn from",
            where=where,
            remedy="name an earlier step of the section, or give difficulties=[...]",
        )
    table = tables["difficulty"]
    known = sorted(table["method"].unique().to_list())
    if of not in known:
        raise UsageError(
            f"there is no difficulty {of!r}{nearest(of, known)}", where=where, expected="one of " + ", ".join(known)
        )
    found = table.filter(pl.col("method") == of)
    for name, kind in (("standard_error", pl.Float64), ("flag", pl.String), ("scale", pl.String)):
        if name not in found.columns:
            found = found.with_columns(pl.lit(None, kind).alias(name))
    found = _usable(found)
    scale = found["scale"].drop_nulls()
    return Labels(found.drop("scale"), scale[0] if len(scale) else of, of)


def _of_column(tables: Mapping[str, pl.DataFrame], column: str, higher_is_harder: bool, where: str) -> Labels:
    if "examples" not in tables:
        raise UsageError(f"there are no examples with a column {column!r}", where=where, remedy="give examples=...")
    found = example_column(tables, column, where)
    kind = found.schema["found"]
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise UsageError(
            f"the column {column!r} is of type {kind}",
            where=where,
            expected="a number",
            remedy=f"for words with an order write  - column: {{column: {column}, order: [...]}}  before,"
            "  and  of: column  here",
        )
    sign = 1.0 if higher_is_harder else -1.0
    value = (pl.col("found").cast(pl.Float64) * sign + 0.0).alias("value")
    nothing = (pl.lit(None, pl.Float64).alias("standard_error"), pl.lit(None, pl.String).alias("flag"))
    frame = found.select("example_id", value, *nothing, pl.lit(column).alias("scale"))
    return Labels(_usable(frame).drop("scale"), column, column, sign)


def _usable(found: pl.DataFrame) -> pl.DataFrame:
    wanted = found.select(
        pl.col("example_id").cast(pl.String),
        pl.col("value").cast(pl.Float64),
        pl.col("standard_error").cast(pl.Float64).fill_nan(None),
        pl.col("flag"),
        pl.col("scale"),
    )
    return wanted.filter(pl.col("value").is_finite()).sort("example_id")


def families(tables: Mapping[str, pl.DataFrame], ids: pl.Series) -> pl.Series:
    """Return what must stay together when some examples are held out: the group where there is one, else the id."""
    examples = tables.get("examples")
    if examples is None or "group" not in examples.columns:
        return ids
    groups = examples.select(pl.col("example_id").cast(pl.String), pl.col("group").cast(pl.String))
    joined = pl.DataFrame({"example_id": ids}).join(groups, on="example_id", how="left", maintain_order="left")
    # a prefix keeps a group that is called like an example's id apart from that example
    return joined.select(
        pl.when(pl.col("group").is_null()).then(pl.col("example_id")).otherwise("group\x1f" + pl.col("group"))
    ).to_series()


def folds_of(together: pl.Series, folds: int, seed: int, purpose: str) -> NDArray[np.int64]:
    """Give each row a fold by the hash of its family; with few families each is a fold of its own."""
    different = together.unique().sort()
    if len(different) <= max(2 * folds, 20):
        return together.cast(pl.Enum(different)).to_physical().to_numpy().astype(np.int64)
    return (uniform(together, seed, purpose) * folds).astype(np.int64)


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation, ties averaged, rounded to 1e-9; NaN where one of both is constant."""
    from scipy.stats import rankdata

    return pearson(rankdata(np.round(a, 9)), rankdata(np.round(b, 9)))


def pearson(a: Floats, b: Floats) -> float:
    """Correlation, rounded to 1e-9; NaN where one of both is constant or there are fewer than two rows."""
    if len(a) < 2:
        return math.nan
    a, b = a - ordered_sum(a) / len(a), b - ordered_sum(b) / len(b)
    spread = math.sqrt(ordered_sum(a * a)) * math.sqrt(ordered_sum(b * b))
    return round(ordered_sum(a * b) / spread, 9) + 0.0 if spread > 1e-12 else math.nan


def mean_square(residual: Floats) -> float:
    """Mean of squares, the same for any order of rows; NaN without rows."""
    return ordered_sum(residual * residual) / len(residual) if len(residual) else math.nan


def conformal(score: Floats, level: float = 0.95) -> tuple[float, float]:
    """Return the quantile of held-out scores that a new one does not exceed with probability `level`, and the level.

    With n scores it is the ceil((n + 1) level)-th smallest. Below 19 scores of 95 % there is none, and the largest one
    is returned with its own level, n / (n + 1).

    Source: J. Lei et al. (2018). Distribution-free predictive inference for regression.
    """
    n = len(score)
    rank = math.ceil((n + 1) * level - 1e-9)
    return float(np.sort(score)[min(rank, n) - 1]), min(level, n / (n + 1))

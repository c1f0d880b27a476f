"""Probabilities of the options of multiple-choice questions: checked, and mapped back from shown places to options."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest

KEY = ("example_id", "respondent_id", "order")
COLUMNS = ("respondent_id", "example_id", "order", "permutation", "probabilities", "gold")
TOLERANCE = 1e-3
"""By how much the probabilities of a row may exceed one."""
BLOCK = 250_000
"""Rows whose probabilities stand in memory as numbers at once."""


def checked(frame: pl.DataFrame, *, exclude: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Check a table of options.

    Parameters
    ----------
    frame : polars.DataFrame
        respondent_id, example_id and probabilities (list of numbers, one a shown place); optionally order (0),
        permutation (the option shown at each place; as they come) and gold (the right option, from 0).
    exclude : bool
        Leave rows out that cannot be used, instead of an error.

    Returns
    -------
    good : polars.DataFrame
        The columns of the table, sorted by example, respondent and order, with ``options`` (how many) and ``mass`` (sum
        of the probabilities as given); `gold` filled from the example's other rows.
    bad : polars.DataFrame
        example_id and reason of the rows left out.

    Raises
    ------
    UsageError
        If a column is missing or of a wrong type.
    DataRefused
        An id is null; a row comes twice; without `exclude`, probabilities are missing, negative, not finite, all zero
        or add up to more than one, a permutation is none, or gold is no option; with and without it, an example has
        different numbers of options or two right ones. Names the row.
    """
    frame = _typed(frame)
    for column in ("respondent_id", "example_id"):
        if empty := frame[column].null_count():
            raise DataRefused(f"{empty} of {len(frame)} rows have no {column}", where="options", expected="an id")
    twice = frame.filter(frame.select(KEY).is_duplicated()).sort(KEY)
    if len(twice):
        raise DataRefused(
            f"{len(twice)} rows share respondent, example and order with another",
            where=_where(twice),
            expected="one row an order that was shown",
            remedy="number the orders in the column order, or drop repeated rows",
        )
    frame = frame.sort(KEY).with_columns(
        pl.col("probabilities").list.len().fill_null(0).cast(pl.Int64).alias("options"),
        pl.col("probabilities").list.sum().alias("mass"),
    )
    judged = frame.with_columns(pl.coalesce(pl.when(test).then(text) for test, text in _rules()).alias("reason"))
    wrong = judged.filter(pl.col("reason").is_not_null())
    if len(wrong) and not exclude:
        raise DataRefused(
            f"{wrong['reason'][0]} ({len(wrong)} of {len(frame)} rows cannot be used)",
            where=_where(wrong),
            expected=_expected(wrong["reason"][0]),
            remedy="mend these rows, or write  invalid: exclude  to leave them out",
        )
    good = judged.filter(pl.col("reason").is_null()).drop("reason")
    _consistent(good, "options", "numbers of options")
    _consistent(good.drop_nulls("gold"), "gold", "right options")
    good = good.with_columns(pl.col("gold").drop_nulls().first().over("example_id"))
    outside = good.filter(pl.col("gold") >= pl.col("options"))
    if len(outside):
        raise DataRefused(f"gold is option {outside['gold'][0]}, which there is not", where=_where(outside))
    return good, wrong.select("example_id", "reason")


def canonical(frame: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, np.ndarray]]:
    """Yield rows of one number K of options, all of an example together, with their probabilities by option.

    Yields
    ------
    polars.DataFrame of m rows, (m, K) float64
        Each row of the array adds up to one. It depends on which option has which probability alone, to the bit, not on
        the place where an option was shown.
    """
    for (options,), alike in frame.group_by("options", maintain_order=True):
        starts = np.flatnonzero(alike["example_id"].ne_missing(alike["example_id"].shift()))
        after = np.searchsorted(starts, np.arange(0, len(alike), BLOCK))
        cuts = np.unique([*starts[after[after < len(starts)]], len(alike)])
        for start, stop in pairwise(cuts):
            part = alike.slice(start, stop - start)
            shown = part["probabilities"].explode().to_numpy().reshape(-1, int(options))
            place = part["permutation"].explode().to_numpy().reshape(shown.shape)
            found = np.empty(shown.shape)
            np.put_along_axis(found, place, shown, axis=1)
            yield part, found / found.sum(axis=1, keepdims=True)


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    for column in ("respondent_id", "example_id", "probabilities"):
        if column not in frame.columns:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, frame.columns)}",
                where="options",
                expected=", ".join(COLUMNS),
                remedy="name your columns in the recipe's section 'options', or rename them",
            )
    kind = frame.schema["probabilities"]
    inner = kind.inner if isinstance(kind, pl.List | pl.Array) else None
    if inner is None or not inner.is_numeric():
        raise UsageError(f"the probabilities are of type {kind}", where="options", expected="a list of numbers")
    if "order" not in frame.columns:
        frame = frame.with_columns(order=pl.lit(0))
    if "gold" not in frame.columns:
        frame = frame.with_columns(gold=pl.lit(None))
    if "permutation" not in frame.columns:
        frame = frame.with_columns(permutation=pl.lit(None))
    for column, kind in (("gold", frame.schema["gold"]), ("order", frame.schema["order"])):
        if not (kind.is_numeric() or kind == pl.Null):
            raise UsageError(
                f"{column} is of type {kind}",
                where="options",
                expected="an option from 0" if column == "gold" else "whole numbers",
                remedy="read the files by gd.read_options, which understands letters" if column == "gold" else "",
            )
        _whole(frame, column, pl.col(column).cast(pl.Float64).fill_nan(None))
    kind = frame.schema["permutation"]
    inner = kind.inner if isinstance(kind, pl.List | pl.Array) else kind
    if not (inner == pl.Null or (kind != inner and inner is not None and inner.is_numeric())):
        raise UsageError(
            f"the permutation is of type {kind}",
            where="options",
            expected="a list of whole numbers: the option at each shown place, from 0",
            remedy="read the files by gd.read_options, which understands letters and text",
        )
    if inner.is_float():
        _whole(frame, "permutation", pl.col("permutation").cast(pl.List(pl.Float64)).explode())
    frame = frame.select(
        pl.col("respondent_id", "example_id").cast(pl.String),
        _nan_is_null(frame, "order").cast(pl.Int64).fill_null(0),
        pl.col("permutation").cast(pl.List(pl.Int64)),
        pl.col("probabilities").cast(pl.List(pl.Float64)),
        _nan_is_null(frame, "gold").cast(pl.Int64),
    )
    asis = pl.int_ranges(0, pl.col("probabilities").list.len().fill_null(0).cast(pl.Int64))
    return frame.with_columns(pl.col("permutation").fill_null(asis))


def _nan_is_null(frame: pl.DataFrame, column: str) -> pl.Expr:
    """Take a column of numbers; pandas writes what is missing among whole numbers as NaN."""
    return pl.col(column).fill_nan(None) if frame.schema[column].is_float() else pl.col(column)


def _whole(frame: pl.DataFrame, column: str, numbers: pl.Expr) -> None:
    """Refuse numbers between whole ones: a cast would cut them off."""
    found = frame.select(numbers.alias("number")).to_series()
    wrong = found.filter(found != found.floor())
    if len(wrong):
        raise DataRefused(
            f"{len(wrong):,} numbers of the column {column!r} are not whole, first {wrong[0]:g}",
            where="options",
            expected="whole numbers from 0",
        )


def _rules() -> list[tuple[pl.Expr, pl.Expr]]:
    """What makes a row unusable, and how that is said."""
    chances = pl.col("probabilities")
    sorted_places = pl.col("permutation").list.eval(pl.element().fill_null(-1).sort())
    worst = chances.list.eval(pl.element().is_finite().fill_null(False) & (pl.element().fill_null(-1.0) >= 0))
    return [
        (pl.col("options") == 0, pl.lit("there are no probabilities")),
        (pl.col("options") == 1, pl.lit("there is one option only")),
        (~worst.list.all(), pl.lit("a probability is negative, null or not finite")),
        (
            pl.col("mass") > 1 + TOLERANCE,
            pl.format("the probabilities add up to {}", pl.col("mass").round(4)),
        ),
        (pl.col("mass") <= 0, pl.lit("all probabilities are zero")),
        (
            sorted_places.ne_missing(pl.int_ranges(0, pl.col("options"))),
            pl.lit("the permutation does not name each option from 0 once"),
        ),
        (
            (pl.col("gold") < 0) | (pl.col("gold") >= pl.col("options")),
            pl.format("gold is option {}, which there is not", "gold"),
        ),
    ]


def _expected(reason: str) -> str:
    if "permutation" in reason:
        return "the option at each shown place, each of them once, from 0:  [1, 0, 2]"
    if "gold" in reason:
        return "the right option before permutation, counted from 0 (not from 1)"
    return "a probability of at least 0 for each of two or more options, adding up to at most 1"


def _consistent(frame: pl.DataFrame, column: str, words: str) -> None:
    torn = frame.group_by("example_id").agg(pl.col(column).unique().sort()).filter(pl.col(column).list.len() > 1)
    if len(torn):
        example, found = torn.sort("example_id").row(0)
        raise DataRefused(
            f"{len(torn):,} example{'s have' if len(torn) > 1 else ' has'} different {words}, the first "
            f"{' and '.join(map(str, found[:3]))}",
            where=f"options: example {example!r}",
            expected="one, before permutation, whoever answers in whatever order",
        )


def _where(rows: pl.DataFrame) -> str:
    example, respondent, order = rows.select(KEY).row(0)
    return f"options: respondent {respondent!r}, example {example!r}, order {order}"

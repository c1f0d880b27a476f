"""Which rows of the table `dynamics` count: the runs and the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Config

Whole = NDArray[np.int64]


def _listed(found: Any) -> Any:
    return (found,) if isinstance(found, str) else found


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""Names; one may stand by itself."""


class DynamicsConfig(Config):
    """Settings of every measure of training dynamics."""

    runs: Names = Field((), description="training runs that count, by run_id; all of them by default")
    first_epoch: int | None = Field(None, description="first epoch that counts, to leave a burn-in out")
    last_epoch: int | None = Field(None, description="last epoch that counts")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")
    splits: int = Field(5, ge=0, le=100, description="random halves of the runs behind the reliability")

    @model_validator(mode="after")
    def _in_order(self) -> DynamicsConfig:
        if self.first_epoch is not None and self.last_epoch is not None and self.first_epoch > self.last_epoch:
            raise ValueError(f"first_epoch {self.first_epoch} comes after last_epoch {self.last_epoch}")
        if len(set(self.runs)) != len(self.runs):
            raise ValueError("a run is named twice")
        return self


@dataclass(frozen=True)
class Window:
    """The rows that count.

    Attributes
    ----------
    rows : polars.LazyFrame
        example_id (String), run (UInt32: place in `runs`), `code` (Int64: place of the epoch in `epochs`), and the
        table's columns.
    runs : tuple of str
        Those with a row, in order of name.
    epochs : numpy.ndarray, shape (epochs,), int64
        Different epochs of all runs, ascending.
    expected : numpy.ndarray, shape (runs,), int64
        Different epochs of each run.
    last : numpy.ndarray, shape (runs,), int64
        Place in `epochs` of each run's last one.
    cells : int
        About how many pairs of a run and an example there are: rows over epochs.
    without_epoch : int
        Rows that name no epoch: left out.
    idle : tuple of str
        Runs without a row in the range of epochs: they do not count.
    others : polars.LazyFrame or None
        example_id of all rows, where some of them do not count.
    """

    rows: pl.LazyFrame
    runs: tuple[str, ...]
    epochs: Whole
    expected: Whole
    last: Whole
    cells: int
    without_epoch: int
    idle: tuple[str, ...] = ()
    others: pl.LazyFrame | None = None


def window(tables: Mapping[str, Any], config: DynamicsConfig, columns: Sequence[str], where: str) -> Window:
    """Choose the runs and epochs that count; streams once over two columns.

    Raises
    ------
    UsageError
        If a column, a run or the range of epochs is not there, or a column holds no numbers.
    DataRefused
        If there is no row, a row names no example or run, or an epoch is no whole number.
    """
    rows: pl.LazyFrame = tables["dynamics"].lazy()
    names = rows.collect_schema().names()
    for name in ("example_id", "epoch", *columns):
        if name not in names:
            raise UsageError(
                f"the dynamics have no column {name!r}{nearest(name, names)}",
                where=where,
                expected="one of " + ", ".join(names),
                remedy=f"log {name} while training" if name in columns else f"name it in the section dynamics: {name}",
            )
    check_numbers(rows, ("epoch", *columns), where)
    if "run_id" not in names:
        rows = rows.with_columns(run_id=pl.lit("run"))
    rows = rows.with_columns(
        pl.col("example_id", "run_id").cast(pl.String), pl.col("epoch").cast(pl.Float64).fill_nan(None)
    )
    nameless = pl.col("example_id").is_null().sum()
    seen = (
        rows.group_by("run_id", "epoch")
        .agg(pl.len(), nameless=nameless)
        .sort("run_id", "epoch")
        .collect(engine="streaming")
    )
    if seen.is_empty():
        raise DataRefused("the dynamics have no row", where=where, expected="a row an example and epoch")
    _judge(seen, where)
    seen = seen.with_columns(pl.col("epoch").cast(pl.Int64))
    rows = rows.with_columns(pl.col("epoch").cast(pl.Int64))
    known = seen["run_id"].drop_nulls().unique().sort().to_list()
    for name in config.runs:
        if name not in known:
            raise UsageError(
                f"there is no run {name!r}{nearest(name, known)}",
                where=f"{where}: runs",
                expected="one of " + ", ".join(known[:20]),
            )
    asked = tuple(sorted(config.runs)) or tuple(known)
    inside = pl.col("run_id").is_in(asked)
    first = config.first_epoch if config.first_epoch is not None else -(2**62)
    last = config.last_epoch if config.last_epoch is not None else 2**62
    inside = inside & pl.col("epoch").is_between(first, last)
    chosen = seen.filter(inside)
    without = int(seen.filter(pl.col("run_id").is_in(asked) & pl.col("epoch").is_null())["len"].sum())
    if chosen.is_empty():
        there = seen.filter(pl.col("run_id").is_in(asked))["epoch"].drop_nulls().sort()
        raise UsageError(
            "no row of these runs lies in this range of epochs",
            where=f"{where}: first_epoch, last_epoch",
            expected=f"epochs from {there[0]} to {there[-1]}" if len(there) else "rows that name their epoch",
        )
    here = chosen["run_id"].unique().to_list()
    runs = tuple(name for name in asked if name in here)
    if config.runs and len(runs) < len(asked):
        idle = next(name for name in asked if name not in here)
        raise UsageError(
            f"the run {idle!r} has no row in this range of epochs",
            where=f"{where}: first_epoch, last_epoch",
            expected="runs that have one",
            remedy="leave it out of  runs",
        )
    epochs = chosen["epoch"].unique().sort()
    place = {name: number for number, name in enumerate(runs)}
    run = np.array([place[name] for name in chosen["run_id"]], dtype=np.int64)
    different: Whole = epochs.to_numpy().astype(np.int64)
    code = np.searchsorted(different, chosen["epoch"].to_numpy())
    end = np.full(len(runs), -1, dtype=np.int64)
    np.maximum.at(end, run, code)
    return Window(
        rows=rows.filter(inside).with_columns(run=_run(runs), code=_code(epochs)),
        runs=runs,
        epochs=different,
        expected=np.bincount(run, minlength=len(runs)).astype(np.int64),
        last=end,
        cells=int(np.ceil((np.bincount(run, chosen["len"].to_numpy()) / np.bincount(run)).sum())),
        without_epoch=without,
        idle=tuple(name for name in asked if name not in here),
        others=rows.select("example_id") if int(chosen["len"].sum()) < int(seen["len"].sum()) else None,
    )


def check_numbers(rows: pl.LazyFrame, columns: Sequence[str], where: str) -> None:
    """Raise `UsageError` if one of these columns, where it is there, holds something else than numbers or truths."""
    schema = rows.collect_schema()
    for name in columns:
        kind = schema.get(name, pl.Null())
        if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
            raise UsageError(
                f"the column {name!r} is of type {kind}",
                where=where,
                expected="whole numbers" if name in ("epoch", "position") else "numbers",
                remedy=f"cast it, e.g. pl.col({name!r}).cast(pl.Float64), or name another column",
            )


def _judge(seen: pl.DataFrame, where: str) -> None:
    """Refuse rows that name no run or no example, and epochs between whole numbers."""
    total = int(seen["len"].sum())
    for what, lacking in (
        ("run", int(seen.filter(pl.col("run_id").is_null())["len"].sum())),
        ("example", int(seen["nameless"].sum())),
    ):
        if lacking:
            raise DataRefused(
                f"{lacking:,} of {total:,} rows have no {what}_id",
                where=where,
                expected=f"the {what} of each row",
                remedy="name it, or leave these rows out",
            )
    check_whole(seen["epoch"], "epoch", where)


def check_whole(found: pl.Series, name: str, where: str) -> None:
    """Raise `DataRefused` if a number is not whole, or beyond the 2^53 up to which float64 tells them apart."""
    if not found.dtype.is_numeric():
        return
    numbers = found.cast(pl.Float64).fill_nan(None)
    broken = numbers.filter((numbers != numbers.floor()) | (numbers.abs() > 2.0**53))
    if len(broken):
        raise DataRefused(
            f"the {name} {broken[0]:g} is no whole number" + (" that a table holds" if broken[0] % 1 == 0 else ""),
            where=where,
            expected="the number of the pass over the training set" if name == "epoch" else "the place in training",
            remedy="round down to whole epochs; where an example comes within an epoch is told by position"
            if name == "epoch"
            else "number the rows in the order of training",
        )


def _run(runs: Sequence[str]) -> pl.Expr:
    if len(runs) == 1:
        return pl.lit(0, pl.UInt32)
    return pl.col("run_id").replace_strict(list(runs), list(range(len(runs))), return_dtype=pl.UInt32)


def _code(epochs: pl.Series) -> pl.Expr:
    low, high = int(epochs[0]), int(epochs[-1])
    if high - low + 1 == len(epochs):
        return pl.col("epoch") - low
    return pl.col("epoch").replace_strict(epochs, pl.Series(range(len(epochs))), return_dtype=pl.Int64)


def at_last_epoch(chosen: Window) -> Window:
    """Keep each run's last epoch only."""
    ends = dict(enumerate(chosen.last.tolist()))
    last = pl.col("run").replace_strict(list(ends), list(ends.values()), return_dtype=pl.Int64)
    return replace(
        chosen,
        rows=chosen.rows.filter(pl.col("code") == last),
        expected=np.minimum(chosen.expected, 1),
        others=chosen.others if chosen.others is not None else chosen.rows.select("example_id"),
    )


def first_reason(reasons: Sequence[tuple[pl.LazyFrame, str]], measured: pl.Series) -> pl.DataFrame:
    """List the examples of some frames that are not among `measured`, each with the first reason that holds.

    Returns
    -------
    polars.DataFrame
        example_id, reason; unique and sorted by id.
    """
    known = pl.DataFrame({"example_id": measured})
    told = [
        frame.select(pl.col("example_id").cast(pl.String).unique())
        .collect(engine="streaming")
        .join(known, on="example_id", how="anti")
        .with_columns(place=pl.lit(place), reason=pl.lit(reason))
        for place, (frame, reason) in enumerate(reasons)
    ]
    return (
        pl.concat(told)
        .sort("example_id", "place")
        .unique("example_id", keep="first", maintain_order=True)
        .drop("place")
    )

"""What the measures of training dynamics share: one exact, streaming reduction of the table `dynamics`.

A *cell* is what one run says of one example: how many observations, their mean and variance, which epochs. Sums are
sums of whole numbers: each value is first rounded to a multiple of 2^-40 (probabilities, norms of at most sqrt 2) or
2^-32 (losses, logits, norms). So neither the order of rows nor the number of threads changes a bit, a constant value
has variance 0, and a mean differs from the exact one by less than 5e-13 or 2e-10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.difficulty.dynamics.window import Whole, Window, first_reason

Floats = NDArray[np.float64]

LARGEST = 65_536.0
"""Losses, margins and norms beyond this are taken for no number: 2^16 keeps every sum exact."""

MOST = 40_000
"""Most observations of a cell, for the same reason."""

TOLERANCE = 1e-5
"""How far beyond its bounds a float32 may stray; it is then moved to the bound."""

PASS = 1_000_000
"""Cells that are added up at once; more take several passes over the rows, so that memory stays near a gigabyte."""

_BITS = 62  # epochs in one column of marks


@dataclass(frozen=True)
class Measure:
    """A number of each row: `columns` of the table that `value` is made of, and the bounds that it must keep.

    Values beyond `LARGEST`, where there is no upper bound, are left out like those that are not finite. A `truth` is 0
    or 1.
    """

    name: str
    columns: tuple[str, ...]
    value: pl.Expr
    low: float | None = None
    high: float | None = None
    truth: bool = False

    @property
    def bits(self) -> int:
        """Binary places that are kept."""
        return 32 if self.high is None else 40


def column(name: str, low: float | None = None, high: float | None = None) -> Measure:
    """Take a column of the table as it is."""
    return Measure(name, (name,), pl.col(name).cast(pl.Float64), low, high)


GOLD = column("gold_probability", 0.0, 1.0)
CORRECT = Measure("correct", ("correct",), pl.col("correct").cast(pl.Float64), 0.0, 1.0, truth=True)
RIGHT = pl.when(pl.col("correct").cast(pl.Float64).is_finite()).then(pl.col("correct").cast(pl.Float64) > 0.5)
"""Whether a row was right, null where that is unknown."""
ERROR = column("error_norm", 0.0, 2.0**0.5)


@dataclass(frozen=True)
class Cells:
    """What each run says of each example, sorted by (example, run); M cells, N examples.

    Attributes
    ----------
    ids : polars.Series of String, length N
        Examples with an observation, sorted.
    item, run : numpy.ndarray, shape (M,), int64
        Place in `ids` and in `window.runs`.
    n, lost, missing : numpy.ndarray, shape (M,), int64
        Observations; rows whose value is null, not finite or too large; epochs of the run without a row.
    mean, variance : numpy.ndarray, shape (M,), float64
        Of the observations; the variance is that of the population (ddof 0).
    rows_lost : int
        Rows that `lost` counts, those of examples without an observation included.
    repeats : int
        Rows beyond one an example and epoch.
    marks : mapping of str to numpy.ndarray, shape (M, columns), int64
        Further whole numbers, see `reduce`.
    excluded : polars.DataFrame
        example_id, reason: examples without an observation.
    """

    window: Window
    ids: pl.Series
    item: Whole
    run: Whole
    n: Whole
    lost: Whole
    missing: Whole
    mean: Floats
    variance: Floats
    rows_lost: int
    repeats: int
    excluded: pl.DataFrame
    marks: Mapping[str, Whole] = field(default_factory=dict)

    @cached_property
    def runs_of(self) -> Whole:
        """Runs that say something of each example: shape (N,)."""
        return np.bincount(self.item, minlength=len(self.ids)).astype(np.int64)

    def total(self, values: NDArray[Any]) -> Floats:
        """Sum over an example's cells, in order of run: (M,) to (N,)."""
        return np.bincount(self.item, values, len(self.ids)).astype(np.float64)

    def over_runs(self, values: Floats, within: Floats | None = None) -> tuple[Floats, Floats]:
        """Average a cell's number over an example's runs.

        Parameters
        ----------
        values, within : numpy.ndarray, shape (M,)
            The number and, where there is one, its standard error inside of the run.

        Returns
        -------
        mean, error : numpy.ndarray, shape (N,), float64
            Standard error over runs where there are two or more, `within` where there is one; NaN where there is none.
        """
        runs = self.runs_of
        mean = self.total(values) / runs
        spread = self.total((values - mean[self.item]) ** 2)
        alone = self.total(within) if within is not None else np.full(len(runs), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = np.where(runs > 1, np.sqrt(spread / (runs - 1) / runs), alone)
        return mean, error

    def of_runs(self, values: Floats, members: NDArray[np.int64]) -> Floats:
        """Average a cell's number over some runs: (N,), NaN where none of them saw the example."""
        inside = np.isin(self.run, members)
        seen = np.bincount(self.item[inside], minlength=len(self.ids))
        with np.errstate(invalid="ignore"):
            return np.bincount(self.item[inside], values[inside], len(self.ids)) / seen


def standard_error(cells: Cells) -> Floats:
    """Standard error of each cell's mean over its observations, (M,); NaN where there is one.

    Epochs follow one another, so this is the spread that they show, not that of another training run.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(cells.n > 1, np.sqrt(cells.variance / (cells.n - 1)), np.nan)


def reduce(
    chosen: Window,
    measure: Measure,
    tables: Mapping[str, Any],
    where: str,
    *,
    count: Mapping[str, pl.Expr] | None = None,
    mark: Mapping[str, pl.Expr] | None = None,
) -> Cells:
    """Reduce the rows of a window to cells.

    Parameters
    ----------
    chosen : Window
    measure : Measure
    tables : mapping
        Where ``examples`` are at hand, those without a row are listed in `excluded`.
    where : str
        For errors.
    count : mapping of str to expression, optional
        Truths to count among a cell's observations: ``marks[name]`` of shape (M, 1).
    mark : mapping of str to expression, optional
        Truths of which it is noted at which epochs they hold: ``marks[name]`` of shape (M, columns), 62 epochs a
        column, epoch `code` being bit ``code % 62`` of column ``code // 62``.

    Raises
    ------
    DataRefused
        If no row has a value, a value breaks the bounds, or a cell has more than `MOST` observations.

    Notes
    -----
    One streaming pass for each `PASS` cells. Memory: about a kilobyte a cell of one pass, 100 bytes for each other.
    """
    value = measure.value
    usable = value.is_finite() & (value.abs() <= LARGEST)
    strays = pl.lit(False)
    if measure.low is not None:
        inside = value >= measure.low - TOLERANCE
        if measure.high is not None:
            inside = inside & (value <= measure.high + TOLERANCE)
        if measure.truth:
            inside = value.is_in([0.0, 1.0])
        strays = value.is_finite() & ~inside
        value, usable = value.clip(measure.low, measure.high), usable & inside
    usable = usable.fill_null(False)
    fixed = pl.when(usable).then(value * 2.0**measure.bits).round().cast(pl.Int64)
    wide = fixed.cast(pl.Int128)
    columns = -(-len(chosen.epochs) // _BITS)
    seen = {f"epochs {i}": _bits(pl.lit(True), i) for i in range(columns)}
    marked = {f"{name} {i}": _bits(truth, i) for name, truth in (mark or {}).items() for i in range(columns)}
    n, total = pl.col("n").cast(pl.Int128), pl.col("total").cast(pl.Int128)
    groups = [
        part.group_by("example_id", "run")
        .agg(
            rows=pl.len().cast(pl.Int64),
            n=usable.sum().cast(pl.Int64),
            strays=strays.sum(),
            total=fixed.sum(),
            squares=(wide * wide).sum(),
            **{name: (truth.fill_null(False) & usable).sum().cast(pl.Int64) for name, truth in (count or {}).items()},
            **seen,
            **marked,
        )
        .with_columns(
            spread=(n * pl.col("squares") - total * total).cast(pl.Float64),
            epochs=pl.sum_horizontal([pl.col(name).bitwise_count_ones().cast(pl.Int64) for name in seen]),
        )
        .drop("squares", *seen)
        .collect(engine="streaming")
        for part in _parts(chosen)
    ]
    found = pl.concat(groups).sort("example_id", "run")
    _judge(found, measure, where)
    full = found.filter(pl.col("n") > 0)
    arrays = {name: full[name].to_numpy() for name in full.columns if name != "example_id"}
    runs, n_, scale = arrays["run"].astype(np.int64), arrays["n"], 2.0**measure.bits
    marks = {name: arrays[name][:, None] for name in (count or {})}
    marks |= {name: np.stack([arrays[f"{name} {i}"] for i in range(columns)], axis=1) for name in (mark or {})}
    return Cells(
        window=chosen,
        ids=full["example_id"].unique(maintain_order=True),
        item=full["example_id"].rle_id().to_numpy().astype(np.int64),
        run=runs,
        n=n_,
        lost=arrays["rows"] - n_,
        missing=chosen.expected[runs] - arrays["epochs"],
        mean=arrays["total"] / n_ / scale,
        variance=arrays["spread"] / n_.astype(np.float64) ** 2 / scale**2,
        rows_lost=int((found["rows"] - found["n"]).sum()),
        repeats=int((found["rows"] - found["epochs"]).sum()),
        excluded=_excluded(found, full["example_id"], measure, tables, chosen.others),
        marks=marks,
    )


def _parts(chosen: Window) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts, whole cells each; the cut leaves no trace in the result."""
    parts = -(-chosen.cells // PASS)
    if parts < 2:
        yield chosen.rows
        return
    for part in range(parts):
        yield chosen.rows.filter(pl.col("example_id").hash(0) % parts == part)


def _bits(truth: pl.Expr, part: int) -> pl.Expr:
    """Mark the epochs (of one column of marks) at which a truth holds."""
    place = pl.col("code") - part * _BITS
    here = truth.fill_null(False) & place.is_between(0, _BITS - 1)
    power = pl.lit(2, pl.Int64).pow(place.clip(0, _BITS - 1))
    return pl.when(here).then(power).otherwise(pl.lit(0, pl.Int64)).bitwise_or()


def _judge(found: pl.DataFrame, measure: Measure, where: str) -> None:
    strays = found.filter(pl.col("strays") > 0)
    if len(strays):
        n = int(strays["strays"].sum())
        bounds = f"from {measure.low:g}" + ("" if measure.high is None else f" to {measure.high:.6g}")
        raise DataRefused(
            f"{measure.name} is out of bounds in {n:,} row{'s' if n > 1 else ''}, first of the example "
            f"{strays['example_id'][0]!r}",
            where=where,
            expected="0 or 1, true or false" if measure.truth else bounds,
            remedy="name the right column in the section dynamics"
            + (" (are these logits?)" if measure.name == "gold_probability" else ""),
        )
    if not int(found["n"].sum()):
        raise DataRefused(
            f"no row has a finite {measure.name}",
            where=where,
            expected=f"numbers in {', '.join(measure.columns)}",
            remedy=f"log {' and '.join(measure.columns)} while training, or name the right column",
        )
    if int(found["n"].max()) > MOST:  # type: ignore[arg-type]
        crowded = found.filter(pl.col("n") > MOST)["example_id"][0]
        raise DataRefused(
            f"the example {crowded!r} has more than {MOST:,} rows in one run", where=where, expected="a row an epoch"
        )


def _excluded(
    found: pl.DataFrame, ids: pl.Series, measure: Measure, tables: Mapping[str, Any], others: pl.LazyFrame | None
) -> pl.DataFrame:
    reasons = [(found.filter(pl.col("n") == 0).lazy(), f"no finite {measure.name}")]
    if others is not None:
        reasons.append((others, "no row in the runs and epochs that count"))
    if "examples" in tables:
        reasons.append((tables["examples"].lazy(), "no row in the dynamics"))
    return first_reason(reasons, ids)

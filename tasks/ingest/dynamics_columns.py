"""Columns of training dynamics, checked: whoever reads a wrong value is told its file and row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Dynamics
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.dynamics_figures import (
    SUM_TOLERANCE,
    Figures,
    all_finite,
    from_logits,
    from_probabilities,
    sums,
)
from gradatim.tasks.ingest.reading import Batch, shorten
from gradatim.tasks.ingest.sources import Shard

BOUNDS = {
    "gold_probability": (0.0, 1.0),
    "correct": (0.0, 1.0),
    "error_norm": (0.0, 2.0**0.5),
    "hidden_norm": (0.0, np.inf),
    "alignment": (-1.0, 1.0),
}
TOLERANCE = 1e-5
"""How far beyond its bounds a number may stray, as float32 does; it is then moved to the bound."""

_NUMBER = r"(?:null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_LIST = rf"^\[\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*\]$"


class Columns:
    """Reads columns of one batch and names the row where something is wrong."""

    def __init__(self, batch: Batch, shard: Shard, settings: Dynamics) -> None:
        self.table, self.rows, self.shard, self.settings = batch.table, batch.rows, shard, settings

    def refused(self, wrong: NDArray[np.bool_], what: str, expected: str) -> DataRefused:
        """Build the error of the first wrong row."""
        row = self.rows[int(np.argmax(wrong))].as_py()
        return DataRefused(what, where=f"{self.shard.uri}: row {row}", expected=expected)

    def no_column(self, column: str, key: str) -> UsageError:
        """Build the error of a column that is not there."""
        names = self.table.schema.names
        return UsageError(
            f"there is no column {column!r}{nearest(column, names)}",
            where=f"dynamics.{key}: {self.shard.uri}",
            expected="one of " + ", ".join(names[:50]),
            remedy=f"name it: {key}: COLUMN",
        )

    def column(self, name: str, key: str) -> pa.ChunkedArray:
        """Return a column of the batch."""
        if name not in self.table.schema.names:
            raise self.no_column(name, key)
        return self.table[name]

    def text(self, name: str, key: str) -> pl.Series:
        """Return a column of names; none may be null or blank."""
        found = pl.Series(pl.from_arrow(text(self.column(name, key)))).cast(pl.String)
        blank = found.str.strip_chars().fill_null("") == ""
        if blank.any():
            what = "null" if found.null_count() else "empty"
            raise self.refused(blank.to_numpy(), f"the column {name!r} is {what}", f"the {key} of each row")
        return found

    def numbers(self, name: str, key: str) -> NDArray[np.float64]:
        """Return a column as float64, NaN for null; text must be numbers, or true and false."""
        found = pl.Series(pl.from_arrow(self.column(name, key)))
        if found.dtype == pl.String:
            low = found.str.strip_chars().str.to_lowercase()
            plain = low.replace_strict({"true": "1", "false": "0", "": None}, default=low, return_dtype=pl.String)
            number = plain.cast(pl.Float64, strict=False)
            wrong = (plain.is_not_null() & number.is_null()).to_numpy()
            if wrong.any():
                raise self.refused(wrong, f"the column {name!r} holds {found.filter(pl.Series(wrong))[0]!r}", "numbers")
            found = number
        if not (found.dtype.is_numeric() or found.dtype in (pl.Boolean, pl.Null)):
            raise UsageError(
                f"the column {name!r} is of type {found.dtype}",
                where=f"dynamics.{key}: {self.shard.uri}",
                expected="numbers",
            )
        return found.cast(pl.Float64).fill_null(float("nan")).to_numpy()

    def whole(self, name: str, key: str) -> NDArray[np.int64]:
        """Return a column of whole numbers from 0, as many as the table's column holds; none may be null."""
        found = self.numbers(name, key)
        most = 2**31 - 1 if key == "epoch" else 2**53
        wrong = ~(np.isfinite(found) & (found >= 0) & (found == np.floor(found)) & (found <= most))
        if wrong.any():
            raise self.refused(wrong, f"the {key} is {_told(found, wrong)}", f"a whole number from 0 to {most:,}")
        return found.astype(np.int64)

    def figure(self, name: str, key: str) -> NDArray[np.float64]:
        """Return a given figure within its bounds, NaN where it is not finite."""
        return self.bounded(self.numbers(name, key), key)

    def bounded(self, found: NDArray[np.float64], key: str) -> NDArray[np.float64]:
        """Return a figure within its bounds, NaN where it is not finite or no float32 holds it."""
        found = np.where(np.abs(found) <= np.finfo(np.float32).max, found, np.nan)
        if key not in BOUNDS:
            return found
        low, high = BOUNDS[key]
        wrong = (found < low - TOLERANCE) | (found > high + TOLERANCE)
        if key == "correct":
            wrong |= np.isfinite(found) & (found != 0) & (found != 1)
        if wrong.any():
            expected = "0 or 1, true or false" if key == "correct" else f"from {low:g} to {high:.6g}"
            raise self.refused(wrong, f"{key} is {_told(found, wrong)}", expected)
        return np.clip(found, low, high)

    def derived(self) -> Figures | None:
        """Compute the figures of logits or probabilities, where there are such."""
        settings = self.settings
        if settings.logits and settings.probabilities:
            raise UsageError("both logits and probabilities are named", where="dynamics", remedy="name one of them")
        name, key = (settings.logits, "logits") if settings.logits else (settings.probabilities, "probabilities")
        if not name:
            return None
        if not settings.gold:
            raise UsageError(
                f"the {key} need the right class", where="dynamics", remedy="name its column: gold: COLUMN"
            )
        values, lengths, absent = self.lists(name, key)
        gold = self.numbers(settings.gold, "gold")
        few = (lengths < 2) & ~absent
        if few.any():
            what = f"a list of {lengths[int(np.argmax(few))]} {key}"
            raise self.refused(few, what, "at least two classes; one logit z of two classes is written [0, z]")
        wrong = ~absent & ~((gold >= 0) & (gold == np.floor(gold)) & (gold < lengths))
        if wrong.any():
            at = int(np.argmax(wrong))
            told = _told(gold, wrong)
            what = f"the right class is {told}" + ("" if told == "missing" else f" of {lengths[at]} classes")
            raise self.refused(wrong, what, "a whole number from 0, below the number of classes")
        classes = np.where(absent, 0, gold).astype(np.int64)
        if key == "logits":
            return from_logits(values, lengths, classes)
        total, finite = sums(values, lengths), all_finite(values, lengths)
        negative = np.append(values < -TOLERANCE, False)
        below = np.add.reduceat(negative.astype(np.int64), np.concatenate([[0], np.cumsum(lengths)[:-1]])) > 0
        off = finite & ~absent & ((np.abs(total - 1) > SUM_TOLERANCE) | (below & (lengths > 0)))
        if off.any():
            at = int(np.argmax(off))
            what = f"{key} that sum to {total[at]:g}" if not below[at] else "a probability below 0"
            raise self.refused(off, what, f"numbers from 0 to 1 that sum to 1 within {SUM_TOLERANCE:g}")
        return from_probabilities(values, lengths, classes)

    def lists(self, name: str, key: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return a column of lists end to end, each row's length, and which rows have no list."""
        found = pl.Series(pl.from_arrow(self.column(name, key)))
        if found.dtype == pl.String:  # CSV
            found = self.parsed(found, name)
        if isinstance(found.dtype, pl.Array):
            found = found.arr.to_list()
        inner = found.dtype.inner if isinstance(found.dtype, pl.List) else None
        if inner is None or not (inner.is_numeric() or inner == pl.Null):
            raise UsageError(
                f"the column {name!r} holds no lists of numbers",
                where=f"dynamics.{key}: {self.shard.uri}",
                expected="a list of numbers in each row, one a class",
            )
        absent = found.is_null().to_numpy()
        lengths = found.list.len().fill_null(0).to_numpy().astype(np.int64)
        flat = found.filter(~found.is_null() & (found.list.len() > 0)).list.explode()
        return flat.cast(pl.Float64).fill_null(float("nan")).to_numpy(), lengths, absent

    def parsed(self, cells: pl.Series, name: str) -> pl.Series:
        """Read texts such as ``[1.5, -0.2]`` as lists; what is not finite, as Python writes it, becomes null."""
        plain = cells.str.replace_all(r"(?i)-?\b(?:nan|inf(?:inity)?)\b", "null").str.strip_chars()
        plain = plain.to_frame("cell").select(pl.when(pl.col("cell") != "").then(pl.col("cell"))).to_series()
        wrong = plain.is_not_null() & ~plain.str.contains(_LIST)
        if wrong.any():
            at = wrong.to_numpy()
            what = f"the column {name!r} holds {shorten(repr(cells.filter(wrong)[0]))}"
            raise self.refused(at, what, "a list of numbers, such as [1.5, -0.2], one a class")
        try:
            return plain.str.json_decode(pl.List(pl.Float64))
        except pl.exceptions.ComputeError as error:  # a number beyond float64
            raise UsageError(
                f"the column {name!r} holds no lists of numbers: {str(error).splitlines()[0]}",
                where=f"dynamics: {self.shard.uri}",
                expected="a list of numbers in each row, one a class",
            ) from None


def _told(found: NDArray[np.float64], wrong: NDArray[np.bool_]) -> str:
    value = float(found[int(np.argmax(wrong))])
    return "missing" if np.isnan(value) else f"{value:g}"

"""Moments and spans of a time column: times in UTC as whole microseconds, or numbers that rise with time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError

_START = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
VALID_SPAN = "a number of s, min, h, d or w, like '30d', for a column of times; a plain number for one of numbers"


@dataclass(frozen=True)
class Moments:
    """A column on one axis.

    Attributes
    ----------
    name : str
    value : numpy.ndarray of int64 or float64, (rows,)
        Microseconds since 1970 in UTC, or the numbers; 0 where not known.
    known : numpy.ndarray of bool, (rows,)
    shown : polars.Series of String, (rows,)
        What a reason says of a row.
    times : bool
        Whether these are times.
    """

    name: str
    value: np.ndarray
    known: np.ndarray
    shown: pl.Series
    times: bool

    def write(self, value: float) -> str:
        """Write a value of the axis so that `read` gives it back."""
        return (_START + int(value) * _TICK).isoformat() if self.times else repr(value)

    def read(self, text: str) -> int | float:
        """Read a moment; raises `UsageError` where it is not of the column's kind."""
        if self.times:
            moment = as_moment(text)
            if moment is not None:
                return (moment - _START) // _TICK
        else:
            number = _number(text)
            if number is not None:
                return number
        kind = "times" if self.times else "numbers"
        raise UsageError(f"found {text!r}", where=f"column {self.name!r}", expected=f"one of its {kind}")

    def span(self, text: str) -> int | float:
        """Read a span of time, in the axis' unit; raises `UsageError`."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h|d|w)?", text.strip())
        if found and self.times and found[2]:
            try:
                return timedelta(**{_UNITS[found[2]]: float(found[1])}) // _TICK
            except OverflowError:
                raise UsageError(f"found {text!r}", where="gap", expected="less than a million years") from None
        if found and not self.times and not found[2]:
            return float(found[1]) if "." in found[1] else int(found[1])
        raise UsageError(f"found {text!r}", where="gap", expected=VALID_SPAN)


def moments(column: pl.Series, ids: pl.Series) -> Moments:
    """Put a column of dates, times, ISO texts or numbers (also written as texts) on one axis.

    A time without a zone, and a date, are taken for UTC; times of several zones are compared as instants.

    Raises
    ------
    DataRefused
        For a text that is no time, a time without a zone among ones with, another type, or no value at all.
    """
    kind, name = column.dtype, column.name
    if kind == pl.String:
        numbers = column.cast(pl.Float64, strict=False)
        numeric = numbers.null_count() == column.null_count()
        parsed = _finite(numbers) if numeric else _parsed(column, ids)
    elif kind == pl.Date:
        parsed = column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    elif isinstance(kind, pl.Datetime):
        parsed = column if kind.time_zone else column.dt.replace_time_zone("UTC")
    elif kind.is_integer():
        parsed = column.cast(pl.Int64, strict=False)
        if parsed.null_count() > column.null_count():  # beyond 64 bits with a sign
            parsed = column.cast(pl.Float64)
    elif kind.is_numeric():
        parsed = _finite(column.cast(pl.Float64))
    elif kind == pl.Null:
        parsed = column.cast(pl.Int64)
    else:
        raise DataRefused(
            f"the column {name!r} holds {kind}", where=f"column {name!r}", expected="dates, times or numbers"
        )
    known = parsed.is_not_null()
    if not known.any():
        raise DataRefused(f"no row has a value of {name!r}", where=f"column {name!r}", remedy="name another column")
    times = parsed.dtype.is_temporal()
    axis = parsed.dt.convert_time_zone("UTC").dt.cast_time_unit("us").dt.epoch("us") if times else parsed
    shown = parsed.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.f") if times else column.cast(pl.String)
    return Moments(name, axis.fill_null(0).to_numpy(), known.to_numpy(), shown, times)


def _finite(numbers: pl.Series) -> pl.Series:
    return numbers.set(~numbers.is_finite(), None)


def _parsed(column: pl.Series, ids: pl.Series) -> pl.Series:
    """Read ISO texts as times in UTC."""
    parsed = column.str.to_datetime(time_zone="UTC", strict=False)
    zoned = column.str.contains(r":.*(?:[zZ]|[+-]\d{2}:?\d{2})\s*$")
    if zoned.any() and not zoned.drop_nulls().all():
        row = int((~zoned).fill_null(False).arg_true()[0])
        raise DataRefused(
            f"some times have a zone and some have none, first {column[row]!r} of the row {ids[row]!r}",
            where=f"column {column.name!r}",
            expected="a zone for each, or for none",
            remedy="add the zone in the source, e.g. 'Z' for UTC",
        )
    bad = (parsed.is_null() & column.is_not_null()).arg_true()
    if len(bad):
        row = int(bad[0])
        raise DataRefused(
            f"{column[row]!r} of the row {ids[row]!r} is no time",
            where=f"column {column.name!r}",
            expected="ISO times like 2024-07-01 or 2024-07-01T12:00:00Z, or numbers",
            remedy="mend it in the source, or name another column",
        )
    return parsed


def share_before(value: np.ndarray, share: float) -> int | float | None:
    """Find the moment before which the earliest `share` of the values lie; None where all are equal.

    Equal values go to the later side, all of them; where those are the earliest there are, to the earlier one.
    """
    ordered = np.sort(value)
    if not len(ordered) or ordered[0] == ordered[-1]:
        return None
    boundary = ordered[min(math.floor(share * len(ordered) + 1e-9), len(ordered) - 1)]
    if boundary == ordered[0]:
        boundary = ordered[np.searchsorted(ordered, ordered[0], side="right")]
    return boundary.item()  # type: ignore[no-any-return]


def as_moment(text: str) -> datetime | None:
    """Read an ISO date or time, UTC where it has no zone; None where it is neither."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None

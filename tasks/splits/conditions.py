"""Conditions on one column, as a recipe writes them: ``<= 6``, ``< 2024-07-01``, ``3..6``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from gradatim.schemas.errors import DataRefused

Value = int | float | datetime

_COMPLEMENT = {"<=": ">", "<": ">=", ">=": "<", ">": "<=", "==": "!=", "!=": "=="}
_ONE_SIDED = re.compile(r"\s*(<=|>=|==|!=|<|>|=)\s*(\S.*?)\s*")
_RANGE = re.compile(r"\s*(\S.*?)\s*\.\.\s*(\S.*?)\s*")
VALID = "a condition like '<= 6', '< 10', '>= 3', '> 0.5', '== 4', '3..6' (both ends in) or '< 2024-07-01'"


@dataclass(frozen=True)
class Condition:
    """A comparison with one value, or membership of a closed range.

    Attributes
    ----------
    op : str
        One of <=, <, >=, >, ==, !=, or ``..`` for a range.
    low, high : int, float or datetime (UTC)
        The value compared with (both equal), or the two ends of the range.
    text : str
        What follows a value that satisfies it in a reason: ``<= 6``, ``in 3..6``.
    complement : str
        What follows a value that does not: ``> 6``, ``not in 3..6``.
    """

    op: str
    low: Value
    high: Value
    text: str
    complement: str

    def holds(self, values: pl.Expr) -> pl.Expr:
        """Build the expression that is true where `values` (prepared by `comparable`) satisfy the condition."""
        low, high = pl.lit(self.low), pl.lit(self.high)
        if self.op == "..":
            return (values >= low) & (values <= high)
        comparisons = {
            "<=": values <= low, "<": values < low, ">=": values >= low,
            ">": values > low, "==": values == low, "!=": values != low,
        }  # fmt: skip
        return comparisons[self.op]


def parse(text: str) -> Condition:
    """Read a condition; raises ValueError that says what is valid.

    A date without a time is its first instant, in UTC: ``<= 2024-06-30`` leaves that day's later hours out.
    """
    if match := _ONE_SIDED.fullmatch(text):
        op = "==" if match[1] == "=" else match[1]
        value = _value(match[2], text)
        return Condition(op, value, value, f"{op} {match[2]}", f"{_COMPLEMENT[op]} {match[2]}")
    if match := _RANGE.fullmatch(text):
        low, high = _value(match[1], text), _value(match[2], text)
        if isinstance(low, datetime) != isinstance(high, datetime):
            raise ValueError(f"found {text!r}: one end is a number, the other a date")
        if low > high:  # type: ignore[operator]
            raise ValueError(f"found {text!r}: the range is empty, its first end is above its second")
        span = f"{match[1]}..{match[2]}"
        return Condition("..", low, high, f"in {span}", f"not in {span}")
    raise ValueError(f"found {text!r}; valid is {VALID}")


def _value(word: str, text: str) -> Value:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        number = float(word)
    except ValueError:
        pass
    else:
        if math.isfinite(number):
            return number
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(f"found {text!r}: {word!r} is neither a number nor an ISO date; valid is {VALID}") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def comparable(column: pl.Series, condition: Condition, ids: pl.Series) -> pl.Series:
    """Return the column as numbers or UTC times, as the condition needs; NaN becomes null.

    Raises
    ------
    DataRefused
        Where the column holds something that the condition cannot be compared with; names column and first row.
    """
    wants_time = isinstance(condition.low, datetime)
    kind = column.dtype
    if kind == pl.String:
        cast = column.str.to_datetime(time_zone="UTC", strict=False) if wants_time else _numbers(column)
        bad = (cast.is_null() & column.is_not_null()).arg_true()
        if len(bad):
            raise _mismatch(column, condition, f"the row {ids[int(bad[0])]!r} holds other text")
        return cast
    if kind.is_decimal() and not wants_time:
        return column.cast(pl.Float64)
    if kind.is_numeric() and not wants_time:
        return column.fill_nan(None) if kind.is_float() else column
    if kind == pl.Date and wants_time:
        return column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    if isinstance(kind, pl.Datetime) and wants_time:
        zoned = column if kind.time_zone else column.dt.replace_time_zone("UTC")
        return zoned.dt.convert_time_zone("UTC")
    if kind == pl.Null:
        return column
    raise _mismatch(column, condition, f"the column's type is {kind}")


def _numbers(column: pl.Series) -> pl.Series:
    whole = column.cast(pl.Int64, strict=False)
    return whole if whole.null_count() == column.null_count() else column.cast(pl.Float64, strict=False).fill_nan(None)


def _mismatch(column: pl.Series, condition: Condition, found: str) -> DataRefused:
    kind = "times" if isinstance(condition.low, datetime) else "numbers"
    return DataRefused(
        f"the condition {condition.text!r} compares with {kind}, but {found}",
        where=f"column {column.name!r}",
        expected=f"a column of {kind}",
        remedy="name another column, or mend it in the source",
    )

"""Counts of a column's values by environment that parts of a table merge into, in memory that does not grow with rows.

A number is held as the 64 bits of its float, made to sort as the numbers do and cut to as many leading bits as leave at
most `MOST_CELLS` different ones. How many those are depends on the union of all values alone, so parts merge to the
same counts in any order and grouping, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError

MOST_CELLS = 65_536
"""Different numbers that are kept apart, and cells that more of them are gathered in."""
MOST_CATEGORIES = 100_000
"""Different categories up to which a column is compared."""
MISSING, INFINITE = "missing", "infinite"
Kind = Literal["number", "category", "too many"]
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Counts:
    """How often each value stands in each environment.

    Attributes
    ----------
    kind : "number", "category" or "too many"
        The last one: more than 100,000 categories, which are no longer counted.
    level : int
        Trailing bits of a number's key that were cut; 0: every different number is kept apart.
    cells : polars.DataFrame
        environment (Int32), cell (UInt64 or String; null for a missing value), rows (Int64); sorted.
    """

    kind: Kind
    level: int
    cells: pl.DataFrame


def partial(column: pl.Series, environment: pl.Series, level: int = 0) -> Counts:
    """Count a part of a column.

    Parameters
    ----------
    column : polars.Series, length n
        Numbers, dates and times (in seconds; dates in days) count as numbers; texts, truth values and nested values as
        categories. NaN is a missing value.
    environment : polars.Series of Int32, length n
        Numbers of environments; rows below 0 are left out.
    level : int
        Level of an earlier part of this column: cutting to it at once is faster and changes nothing after the merge.

    Notes
    -----
    O(n) with n the rows of the part; at most 65,536 cells an environment are kept.
    """
    frame = pl.DataFrame({"environment": environment, "cell": column})
    if environment.min() is not None and environment.min() < 0:  # type: ignore[operator]
        frame = frame.filter(pl.col("environment") >= 0)
    if is_number(column.dtype):
        value = frame.select(as_number(pl.col("cell"), column.dtype).cast(pl.Float64)).to_series()
        return _fit(_grouped_numbers(frame["environment"], value, level), level)
    if column.dtype.is_nested():
        nested = frame["cell"]
        text = frame.select(pl.struct("cell").struct.json_encode()).to_series().set(nested.is_null(), None)
        frame = frame.with_columns(text.alias("cell"))
    return _categories(_grouped(frame.with_columns(pl.col("cell").cast(pl.String))))


def merge(parts: Sequence[Counts]) -> Counts:
    """Merge the counts of parts; any order and grouping gives the same ones."""
    kinds = {part.kind for part in parts}
    if not parts or ("number" in kinds and len(kinds) > 1):
        raise UsageError(f"parts of {sorted(kinds)}", expected="one part or more of one column")
    if "number" in kinds:
        level = max(part.level for part in parts)
        return _fit(_grouped(pl.concat([_cut(part.cells, part.level, level) for part in parts])), level)
    if "too many" in kinds:
        return _too_many()
    return _categories(_grouped(pl.concat([part.cells for part in parts])))


def values_of(keys: NDArray[np.uint64], level: int) -> NDArray[np.float64]:
    """Return the number that each cell of a level stands for: the middle of its keys, the number itself at level 0."""
    middle = (keys << np.uint64(level)) + np.uint64((1 << level) >> 1)
    bits = np.where(middle & _SIGN, middle ^ _SIGN, ~middle)
    return bits.view(np.float64)


def is_number(kind: pl.DataType) -> bool:
    """Say whether a column of this type is compared as numbers."""
    return kind.is_numeric() or kind.is_temporal()


def as_number(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Return numbers as they are, dates as days and times as seconds."""
    if not kind.is_temporal() or kind == pl.Date:
        return column.to_physical() if kind.is_temporal() else column
    unit = getattr(kind, "time_unit", "ns")
    return column.to_physical() / {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]


def _grouped_numbers(environment: pl.Series, value: pl.Series, level: int) -> pl.DataFrame:
    """Count keys: unsigned integers that sort as the floats do; -0 and 0 are one, NaN and null are missing."""
    bits = (value.to_numpy() + 0.0).view(np.uint64)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN) >> np.uint64(level)
    cell = pl.Series(keys).set(value.is_null() | value.is_nan(), None)
    return _grouped(pl.DataFrame({"environment": environment, "cell": cell}))


def _grouped(frame: pl.DataFrame) -> pl.DataFrame:
    rows = pl.col("rows").sum() if "rows" in frame.columns else pl.len()
    return frame.group_by("environment", "cell").agg(rows.cast(pl.Int64).alias("rows")).sort("environment", "cell")


def _cut(cells: pl.DataFrame, level: int, to: int) -> pl.DataFrame:
    if to == level:
        return cells
    return cells.with_columns(pl.col("cell") // pl.lit(1 << (to - level), dtype=pl.UInt64))


def _fit(cells: pl.DataFrame, level: int) -> Counts:
    """Cut keys until at most `MOST_CELLS` different ones are left."""
    keys = cells["cell"].drop_nulls().unique().sort().to_numpy()
    more = 0
    while len(keys) > MOST_CELLS:
        more += 1
        keys = keys >> np.uint64(1)
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    return Counts("number", level + more, _grouped(_cut(cells, level, level + more)) if more else cells)


def _categories(cells: pl.DataFrame) -> Counts:
    if cells["cell"].n_unique() - int(cells["cell"].has_nulls()) > MOST_CATEGORIES:
        return _too_many()
    return Counts("category", 0, cells)


def _too_many() -> Counts:
    schema = {"environment": pl.Int32, "cell": pl.String, "rows": pl.Int64}
    return Counts("too many", 0, pl.DataFrame(schema=schema))

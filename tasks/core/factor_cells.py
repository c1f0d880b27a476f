"""Cells of factor combinations: which values of r factors occur together, which never do, and what is nearest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest

WHERE = "factors"
MOST_SETS = 5_000
"""Sets of r factors that are looked at; more are refused."""
MOST_JOINED = 16
"""Factors up to which differences are counted."""

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Factors:
    """Values of factors as numbers.

    Attributes
    ----------
    names : tuple of str
    levels : tuple of polars.Series
        Values of each factor that occur, as text, in the order of their numbers where all are numbers.
    codes : numpy.ndarray, shape (rows, factors), int64
        Place of each row's value among the levels; -1 where there is none.
    """

    names: tuple[str, ...]
    levels: tuple[pl.Series, ...]
    codes: Codes


@dataclass(frozen=True)
class Cells:
    """The cells of one set of factors: their `factors` (places), number `possible`, those seen with their counts."""

    factors: tuple[int, ...]
    possible: int
    seen: Codes
    counts: Codes


def read_factors(examples: pl.DataFrame, columns: Sequence[str]) -> Factors:
    """Read factors from columns, or from a column of named factors (a map of texts).

    Raises `UsageError` for a column that there is not, `DataRefused` where no factor has a value.
    """
    series: dict[str, pl.Series] = {}
    for column in columns:
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where=WHERE,
                expected=", ".join(examples.columns),
                remedy="name the factors' columns: factors: [shape, colour]",
            )
        series.update(named_factors(examples, column))
    series = {name: values for name, values in series.items() if values.null_count() < len(values)}
    if not series:
        raise DataRefused(
            f"none of {len(examples):,} rows has a value of {', '.join(columns)}",
            where=WHERE,
            expected="at least one row with factors",
            remedy="name other columns, or drop this measure",
        )
    names = tuple(sorted(series))
    levels = tuple(_in_order(series[name].drop_nulls().unique()) for name in names)
    codes = np.stack(
        [
            series[name]
            .replace_strict(level, np.arange(len(level)), default=-1, return_dtype=pl.Int64)
            .fill_null(-1)
            .to_numpy()
            for name, level in zip(names, levels, strict=True)
        ],
        axis=1,
    )
    return Factors(names, levels, codes.astype(np.int64))


def _in_order(values: pl.Series) -> pl.Series:
    """Sort different texts: 2 before 10 where all are numbers."""
    number = values.cast(pl.Float64, strict=False)
    if number.null_count():
        return values.sort()
    return pl.DataFrame({"text": values, "number": number}).sort("number", "text")["text"]


def count_cells(found: Factors, r: int, rows: NDArray[np.bool_] | None = None) -> Iterator[Cells]:
    """Count the cells of each set of r factors: whole numbers, so that counts of parts add to those of the whole.

    Parameters
    ----------
    found : Factors
    r : int
        At most the number of factors.
    rows : numpy.ndarray of bool, optional
        Rows that count. A row without a value of one of the factors is in none of its cells.

    Raises
    ------
    UsageError
        For more than `MOST_SETS` sets, or more possible cells of one set than 2^62.
    """
    sets = comb(len(found.names), r)
    if sets > MOST_SETS:
        raise UsageError(
            f"{len(found.names)} factors have {sets:,} sets of {r}", where=WHERE, expected=f"at most {MOST_SETS:,}",
            remedy="name fewer factors, or smaller ways",
        )  # fmt: skip
    for chosen in combinations(range(len(found.names)), r):
        sizes = [len(found.levels[f]) for f in chosen]
        possible = int(np.prod([float(size) for size in sizes]))
        if possible > 2**62:
            raise UsageError(
                f"the factors {', '.join(found.names[f] for f in chosen)} have {possible:.1e} cells", where=WHERE,
                expected="fewer than 2^62", remedy="leave out factors with a value of its own for each row",
            )  # fmt: skip
        part = found.codes[:, chosen] if rows is None else found.codes[rows][:, chosen]
        part = part[(part >= 0).all(axis=1)]
        seen, counts = np.unique(cell_numbers(part, sizes), return_counts=True)
        yield Cells(chosen, possible, seen, counts.astype(np.int64))


def missing_cells(found: Factors, cells: Cells, limit: int) -> list[tuple[str, ...]]:
    """Name the first `limit` cells of a set of factors that no row has, in the order of values.

    Looks at no more than `limit` cells beyond those seen, however many are possible.
    """
    end = min(cells.possible, limit + len(cells.seen))
    lacking = np.setdiff1d(np.arange(end), cells.seen[cells.seen < end], assume_unique=True)[:limit]
    names = []
    for factor in reversed(cells.factors):
        level = found.levels[factor]
        names.append([str(value) for value in level.gather(lacking % len(level)).to_list()])
        lacking = lacking // len(level)
    return list(zip(*reversed(names), strict=True))


def fewest_differences(train: Codes, other: Codes) -> Codes:
    """Return, for each row of `other`, in how many factors the nearest row of `train` differs (Hamming distance).

    Parameters
    ----------
    train, other : numpy.ndarray of int, shapes (n, m) and (k, m)

    Returns
    -------
    numpy.ndarray, shape (k,), int64
        From 0 to m. Two rows without a value agree in it.

    Notes
    -----
    Joins on each set of m - h factors for h = 0, 1, ... until every row has met one, so it is linear in the rows; at
    most 2^m joins, fewest where rows are near.
    """
    width = train.shape[1]
    if width > MOST_JOINED:
        raise UsageError(
            f"{width} factors", where=WHERE, expected=f"at most {MOST_JOINED} where nearest is asked for",
            remedy="name fewer factors",
        )  # fmt: skip
    known, ours = (pl.DataFrame(part, schema=[f"f{i}" for i in range(width)]).unique() for part in (train, other))
    answers = []
    for h in range(width):
        if ours.is_empty():
            break
        met = pl.repeat(False, len(ours), eager=True)
        for chosen in combinations(ours.columns, width - h):
            some = known.select(chosen).unique().with_columns(met=pl.lit(True))
            met |= ours.join(some, on=list(chosen), how="left", maintain_order="left")["met"].fill_null(False)
        answers.append(ours.filter(met).with_columns(h=pl.lit(h, pl.Int64)))
        ours = ours.filter(~met)
    answers.append(ours.with_columns(h=pl.lit(width, pl.Int64)))
    rows = pl.DataFrame(other, schema=[f"f{i}" for i in range(width)])
    joined = rows.join(pl.concat(answers), on=rows.columns, how="left", maintain_order="left")
    return joined["h"].to_numpy().astype(np.int64)


def named_factors(examples: pl.DataFrame, column: str) -> dict[str, pl.Series]:
    """Return a column as factors: a map or struct gives one of each of its names."""
    values = examples[column]
    if isinstance(values.dtype, pl.Struct):
        return {
            name: part.cast(pl.String) for name, part in zip(values.struct.fields, values.struct.unnest(), strict=True)
        }
    if values.dtype.is_nested():
        try:
            pairs = values.cast(pl.List(pl.Struct({"key": pl.String, "value": pl.String})))
        except pl.exceptions.PolarsError:
            raise UsageError(
                f"column {column!r} holds {values.dtype}",
                where=WHERE,
                expected="single values, or named factors (a map)",
            ) from None
        long = (
            pl.DataFrame({"row": np.arange(len(values)), "pair": pairs}).drop_nulls().explode("pair").drop_nulls("pair")
        )
        long = long.filter(pl.col("pair").struct.field("key").is_not_null()).unnest("pair")
        if long.is_empty():
            return {}
        wide = long.group_by("row", "key").agg(pl.col("value").first()).pivot("key", index="row", values="value")
        wide = pl.DataFrame({"row": np.arange(len(values))}).join(wide, on="row", how="left", maintain_order="left")
        return {name: wide[name] for name in wide.columns if name != "row"}
    return {column: values.cast(pl.String)}


def cell_numbers(codes: Codes, sizes: Sequence[int]) -> Codes:
    """Number the cells of rows whose codes are known, the last factor running fastest."""
    cell = np.zeros(len(codes), dtype=np.int64)
    for i, size in enumerate(sizes):
        cell = cell * size + codes[:, i]
    return cell

"""Values of columns as numbers, their names in ``held_out``, and what a released split says about them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.tables import SPLITS

_PLAIN = re.compile(r'[^\s",;=](?:[^",;=]*[^\s",;=])?')
INSIDE, OUTSIDE = ("train", "validation", "test"), ("test_ood", "validation_ood")


@dataclass(frozen=True)
class Coded:
    """A column as numbers.

    Attributes
    ----------
    levels : polars.Series of String
        Values that occur, sorted.
    codes : numpy.ndarray of int64, (rows,)
        Place of each row's value among the levels; -1 where there is none.
    """

    levels: pl.Series
    codes: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Rows of each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))


def coded(column: pl.Series) -> Coded:
    """Number the values of a column of single values as texts; null and NaN are none."""
    text = as_text(column)
    levels = text.drop_nulls().unique().sort()
    if levels.is_empty():
        return Coded(levels, np.full(len(text), -1, np.int64))
    codes = text.cast(pl.Enum(levels)).to_physical().cast(pl.Int64).fill_null(-1)
    return Coded(levels, codes.to_numpy())


def as_text(column: pl.Series) -> pl.Series:
    """Return a column's values as texts; NaN is null."""
    return (column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String)


def spelt(value: str | int | float | bool, column: pl.Series) -> str:
    """Spell a value of a recipe as `as_text` spells those of the column: ``3`` of a column of decimals is ``3.0``."""
    kind = column.dtype
    if isinstance(value, bool):
        return str(value).lower()
    try:
        if kind.is_float():
            return str(pl.Series([float(value)], dtype=pl.Float64).cast(kind).cast(pl.String)[0])
        if isinstance(value, float) and value.is_integer() and kind.is_integer():
            return str(int(value))
    except ValueError:
        pass
    return str(value)


def quoted(text: str) -> str:
    """Put a name in quotes where it holds a sign that parts names in ``held_out``."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False).replace(";", "\\u003b")


def assignments(names: Sequence[str], values: Sequence[pl.Series]) -> pl.Series:
    """Name cells: ``colour=red, shape=square``, one for each row of `values` (texts without nulls)."""
    shown = []
    for column in values:
        levels = column.unique().sort()
        spelled = pl.Series([quoted(level) for level in levels], dtype=pl.String)
        shown.append(column if spelled.equals(levels) else column.replace_strict(levels, spelled))
    parts: list[pl.Expr] = []
    for place, (name, column) in enumerate(zip(names, shown, strict=True)):
        parts += [pl.lit(f"{', ' if place else ''}{quoted(name)}="), pl.lit(column)]
    return pl.select(pl.concat_str(parts).alias("cell"))["cell"]


def pieces(held_out: pl.Series) -> set[str]:
    """Return the names that stand in a column ``held_out``; several in one row are parted by ``; ``."""
    return {piece for text in held_out.drop_nulls().unique() for piece in text.split("; ")}


def values_of(piece: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """Read a name that `assignments` wrote for these columns; None for another one."""
    value = r'("(?:[^"\\]|\\.)*"|[^",;=]+)'
    found = re.fullmatch(", ".join(re.escape(quoted(name)) + "=" + value for name in names), piece)
    if found is None:
        return None
    return tuple(json.loads(text) if text.startswith('"') else text for text in found.groups())


@dataclass(frozen=True)
class Standing:
    """What a released split says.

    Attributes
    ----------
    held : set of str
        Names in its ``held_out``.
    inside : numpy.ndarray of bool, (rows of examples,)
        Rows that it has in train, validation or test.
    used : numpy.ndarray of bool, (rows of examples,)
        Rows that it has anywhere but among the excluded.
    """

    held: set[str]
    inside: np.ndarray
    used: np.ndarray


def standing(ids: pl.Series, tables: Mapping[str, pl.DataFrame], seed: int) -> Standing | None:
    """Read a released split of one seed, all its folds; None where there is none, or where it lacks ``held_out``."""
    frozen = tables.get("frozen")
    if frozen is None or "held_out" not in frozen.columns:
        return None
    if "strategy" in frozen.columns:
        frozen = frozen.filter(~pl.col("strategy").str.contains(r"\.(random|matched)$"))
    if "seed" in frozen.columns:
        frozen = frozen.filter(pl.col("seed") == seed)
    if frozen.is_empty():
        return None

    def members(splits: Sequence[str]) -> np.ndarray:
        known = frozen.filter(pl.col("split").is_in(list(splits)))["example_id"].unique()
        return ids.is_in(known.implode()).to_numpy()

    used = members([name for name in SPLITS if name != "excluded"])
    return Standing(pieces(frozen["held_out"]), members(INSIDE), used)


def frozen_tests(
    ids: pl.Series, tables: Mapping[str, pl.DataFrame], seed: int, fold: int, folds: int
) -> list[np.ndarray]:
    """Say which rows a release holds in test, which no rule can put into train any more.

    Parameters
    ----------
    ids : polars.Series of String, (rows,)
    tables : mapping of str to polars.DataFrame
        Those of the strategy; `frozen` is the released split.
    seed, fold : int
        Of `Marks`.
    folds : int
        Cuts of the in-distribution rows within the fold.

    Returns
    -------
    list of numpy.ndarray of bool, (rows,)
        One a cut.
    """
    frozen = tables.get("frozen")
    if frozen is None:
        return [np.zeros(len(ids), np.bool_)] * folds
    if "strategy" in frozen.columns:
        frozen = frozen.filter(~pl.col("strategy").str.contains(r"\.(random|matched)$"))
    if "seed" in frozen.columns:
        frozen = frozen.filter(pl.col("seed") == seed)
    tests = frozen.filter(pl.col("split") == "test")
    found = []
    for turn in range(folds):
        here = tests.filter(pl.col("fold") == fold * folds + turn) if "fold" in tests.columns else tests
        found.append(ids.is_in(here["example_id"].unique().implode()).to_numpy())
    return found

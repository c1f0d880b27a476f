"""The vectors of a table `features_NAME` as a matrix, with what is wrong with them said by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import EMBEDDING

ROWS = 8192
"""Rows that are looked at together."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of examples.

    Attributes
    ----------
    ids : polars.Series of str, length N
        Unique, sorted by their UTF-8 bytes.
    matrix : numpy.ndarray, shape (N, d), float32
        Finite.
    lacking : polars.Series of str
        Ids whose vector is null.
    """

    ids: pl.Series
    matrix: NDArray[np.float32]
    lacking: pl.Series


def vectors_of(tables: Any, name: str, where: str) -> Vectors:
    """Take the vectors of the table ``features_{name}``.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        The table has example_id and embedding: an array or a list of numbers, of one width.
    name : str
    where : str
        Who asks, for errors.

    Raises
    ------
    UsageError
        There is no such table, or it holds no vectors.
    DataRefused
        An id is null or stands twice, widths differ, or a vector holds NaN or infinity; the first such id is named.
    """
    table = f"features_{name}"
    if table not in tables:
        known = [found.removeprefix("features_") for found in tables if found.startswith("features_")]
        raise UsageError(
            f"there are no features {name!r}{nearest(name, known)}",
            where=where,
            expected="one of " + ", ".join(sorted(known)) if known else "a table of example_id and embedding",
            remedy=f"add features: {{{name}: {{from: FILE}}}} to the recipe, or give features={{{name!r}: ...}}",
        )
    frame = tables[table].select(pl.col("example_id").cast(pl.String), pl.col(EMBEDDING))
    where = f"{where}: features {name}"
    kind = frame.schema[EMBEDDING]
    if not isinstance(kind, pl.Array | pl.List) or not kind.inner.is_numeric():
        raise UsageError(f"the column {EMBEDDING!r} holds {kind}", where=where, expected="lists or arrays of numbers")
    if frame["example_id"].null_count():
        raise DataRefused("a row has no example_id", where=where, expected="an id for each vector")
    if not frame["example_id"].is_sorted():
        frame = frame.sort("example_id")
    ids = frame["example_id"]
    twice = (ids == ids.shift(1)).fill_null(False)
    if twice.any():
        raise DataRefused(
            f"the id {ids.filter(twice)[0]!r} stands twice", where=where, expected="one vector an example"
        )
    lacking = frame.filter(pl.col(EMBEDDING).is_null())["example_id"]
    frame = frame.drop_nulls(EMBEDDING)
    return Vectors(frame["example_id"], _matrix(frame, where), lacking)


def features_at_hand(tables: Any, where: str) -> list[str]:
    """Name the features tables that there are, sorted: what a notebook hands over needs no name in the settings.

    Raises `UsageError` where there is none.
    """
    known = sorted(found.removeprefix("features_") for found in tables if found.startswith("features_"))
    if not known:
        raise UsageError(
            "there are no features",
            where=where,
            expected="vectors of the examples",
            remedy="name those of the recipe: features: NAME; or give features={NAME: ...} in a notebook",
        )
    return known


def finite(matrix: NDArray[Any], ids: pl.Series | None, where: str) -> None:
    """Refuse NaN and infinity; the error names the first row at fault, by its id where there is one."""
    for start in range(0, len(matrix), ROWS):
        good = np.isfinite(matrix[start : start + ROWS]).all(axis=1)
        if not good.all():
            row = start + int(np.argmin(good))
            raise DataRefused(
                f"the vector of {f'row {row}' if ids is None else repr(ids[row])} holds NaN or infinity",
                where=where,
                expected="finite numbers",
                remedy="make this vector again, or leave the row out",
            )


def _matrix(frame: pl.DataFrame, where: str) -> NDArray[np.float32]:
    column, ids = frame[EMBEDDING], frame["example_id"]
    if isinstance(column.dtype, pl.List):
        widths = column.list.len()
        if widths.n_unique() > 1:
            row = int((widths != widths[0]).arg_max() or 0)
            raise DataRefused(
                f"the vector of {ids[row]!r} has {widths[row]} numbers, that of {ids[0]!r} has {widths[0]}",
                where=where,
                expected="one width for all rows",
            )
        column = column.list.to_array(int(widths[0]) if len(widths) else 1)
    width = column.dtype.size  # type: ignore[attr-defined]
    if width == 0:
        raise DataRefused("the vectors have no numbers", where=where, expected="at least one dimension")
    column = column.cast(pl.Array(pl.Float32, width))
    within = column.explode() if len(column) else pl.Series([], dtype=pl.Float32)
    if within.null_count():
        row = int(within.is_null().arg_max() or 0) // width
        raise DataRefused(f"the vector of {ids[row]!r} holds a null", where=where, expected="finite numbers")
    matrix = np.ascontiguousarray(within.to_numpy().reshape(len(column), width), dtype=np.float32)
    finite(matrix, ids, where)
    return matrix

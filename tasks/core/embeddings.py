"""The vectors of a table `features_NAME` as a matrix, with what is wrong with them said by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.row_numbers import twice
from gradatim.tasks.core.vector_rows import SLICE, AnyVectors, VectorRows

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

    Notes
    -----
    Vectors of float32 without nulls that stand in the order of ids are not copied; others are, on disk where they are
    many. `placed_rows` copies none.
    """
    ids, rows, lacking = placed_rows(tables, name, where)
    return Vectors(ids, rows.whole(), lacking)


def placed_rows(tables: Any, name: str, where: str) -> tuple[pl.Series, VectorRows, pl.Series]:
    """Find the vectors of the table ``features_{name}`` in the order of ids; arguments and errors as of `vectors_of`.

    Returns
    -------
    ids : polars.Series of str, length N
        Unique, sorted by their UTF-8 bytes.
    rows : VectorRows, shape (N, d), float32
        Finite. What the table holds is not copied, but for lists and other numbers than float32.
    lacking : polars.Series of str
        Ids whose vector is null.
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
    names, column = tables[table]["example_id"].cast(pl.String), tables[table][EMBEDDING]
    where = f"{where}: features {name}"
    kind = column.dtype
    if not isinstance(kind, pl.Array | pl.List) or kind.inner is None or not kind.inner.is_numeric():
        raise UsageError(f"the column {EMBEDDING!r} holds {kind}", where=where, expected="lists or arrays of numbers")
    if names.null_count():
        raise DataRefused("a row has no example_id", where=where, expected="an id for each vector")
    place = None
    if not names.is_sorted():
        place = names.arg_sort().to_numpy().astype(np.int64)
        names = names.gather(place)
    again = twice(names)
    if again is not None:
        raise DataRefused(f"the id {again!r} stands twice", where=where, expected="one vector an example")
    lacking = names.head(0)
    if column.null_count():
        held = column.is_not_null().to_numpy()
        place = np.arange(len(names)) if place is None else place
        stays = held[place]
        lacking, names, place = names.filter(~pl.Series(stays)), names.filter(pl.Series(stays)), place[stays]
    rows = VectorRows(_source(column, names, place, where), place)
    finite(rows, names, where)
    return names, rows, lacking


def numbers(column: pl.Series) -> NDArray[Any]:
    """Return a column of arrays as one matrix, float32 or float64, without a copy where it is that in one piece.

    What is null in a vector is NaN; a vector that is null holds nothing that counts.
    """
    if column.dtype.inner not in (pl.Float32, pl.Float64):  # type: ignore[attr-defined]
        column = column.cast(pl.Array(pl.Float64, column.dtype.size))  # type: ignore[attr-defined]
    held = column.rechunk().to_arrow()
    width = held.type.list_size
    flat = held.values.slice(held.offset * width, len(held) * width)
    if flat.null_count and not _lacking(held):  # only of vectors that are null: the numbers behind do not matter
        flat = pa.Array.from_buffers(flat.type, len(flat), [None, flat.buffers()[1]], offset=flat.offset)
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(held), width)


def _lacking(vectors: Any) -> bool:
    """Whether a number is null in a vector that is not."""
    parts = (vectors.slice(start, SLICE) for start in range(0, len(vectors), SLICE))
    return bool(vectors.values.null_count) and any(part.flatten().null_count for part in parts)


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


def finite(matrix: AnyVectors, ids: pl.Series | None, where: str) -> None:
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


def _source(column: pl.Series, ids: pl.Series, place: NDArray[np.int64] | None, where: str) -> NDArray[np.float32]:
    """Return a column as a matrix; errors name the first id at fault in the order of `ids`, which stand at `place`."""
    if isinstance(column.dtype, pl.List):
        widths = column.list.len() if place is None else column.list.len().gather(place)
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
    if _lacking(column.rechunk().to_arrow()):
        lacks = column.arr.eval(pl.element().is_null()).arr.any().fill_null(False)
        named = ids[int((lacks if place is None else lacks.gather(place)).arg_max() or 0)]
        raise DataRefused(f"the vector of {named!r} holds a null", where=where, expected="finite numbers")
    return numbers(column)

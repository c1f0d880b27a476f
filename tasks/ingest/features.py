"""A user's vectors: Parquet, Arrow IPC, CSV, JSON Lines, .npy and .npz to a table of example_id and embedding."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Features
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.registry import get
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.numpy_files import NUMPY, numpy_vectors
from gradatim.tasks.ingest.reading import Batch, ReadOptions
from gradatim.tasks.ingest.sources import ENDINGS, Shard, shards, source_files, source_uri

Part = tuple[pl.Series, NDArray[np.float32], NDArray[np.int64]]
"""Ids, vectors and the row of each in its file."""


def read_features(settings: Features, *, base: str | Path = ".") -> pl.DataFrame:
    """Read vectors.

    Parameters
    ----------
    settings : Features
        `columns` names one column of lists or arrays of numbers, or several columns of numbers, where ``dim_*`` stands
        for all that begin so, in the file's order. Of an .npz it names the array (the only matrix where it does not
        occur). `ids` says which example each row of an .npy or .npz is; see `numpy_files.numpy_vectors`.
    base : str or Path
        Where relative paths start.

    Returns
    -------
    polars.DataFrame
        example_id (unique, sorted) and embedding, ``Array(Float32, d)``, finite.

    Raises
    ------
    UsageError
        No such file, column or array, or the column holds no vectors.
    DataRefused
        A file cannot be read; a row without an id or vector, with another width, NaN, infinity or a number too large
        for float32; an id twice. File and row (from 0) are named.

    Notes
    -----
    Memory: twice the vectors. Pickled arrays are never loaded.
    """
    parts: list[Part] = []
    origins: list[str] = []
    for shard in feature_shards(settings, base):
        found = numpy_vectors(shard, settings, base) if shard.format == "npy" else _columnar(shard, settings)
        for part in found:
            if parts and part[1].shape[1] != parts[0][1].shape[1]:
                raise DataRefused(
                    f"the vectors have {part[1].shape[1]} numbers, those of {origins[0]} have {parts[0][1].shape[1]}",
                    where=f"{shard.uri}: row {part[2][0] if len(part[2]) else 0}",
                    expected="one width for all rows",
                )
            parts.append(part)
            origins.append(shard.uri)
            _finite(part, shard)
    if not sum(len(ids) for ids, _, _ in parts):
        raise DataRefused("there is no vector in the whole source", where=settings.source, expected="at least one row")
    ids = pl.concat([part[0] for part in parts])
    rows = np.concatenate([part[2] for part in parts])
    files = np.repeat(np.arange(len(parts)), [len(part[2]) for part in parts])
    order = _order(ids, rows, files, origins)
    matrix = np.concatenate([part[1] for part in parts])
    parts.clear()
    width = matrix.shape[1]
    vectors = pl.Series(EMBEDDING, matrix[order], dtype=pl.Array(pl.Float32, width))
    return pl.DataFrame({"example_id": ids.gather(order), EMBEDDING: vectors})


def check_features(settings: Features, *, base: str | Path = ".") -> None:
    """Try what `read_features` would read: the first file's beginning; NumPy files whole, with their ids."""
    for shard in feature_shards(settings, base):
        found = numpy_vectors(shard, settings, base) if shard.format == "npy" else _columnar(shard, settings)
        first = next(iter(found), None)
        if first is not None:
            return _finite(first, shard)
    raise DataRefused("there is no vector in the whole source", where=settings.source, expected="at least one row")


def feature_shards(settings: Features, base: str | Path) -> list[Shard]:
    """List the files of vectors in the order of their names; NumPy's have the format ``npy``."""
    if settings.format not in (None, "npy"):
        return shards(settings.source, base, settings.format)
    endings = ENDINGS | dict.fromkeys(NUMPY, "npy")
    found = []
    for path in source_files(settings.source, base, endings if settings.format is None else None):
        kind = settings.format or endings.get(Path(path.name.lower().removesuffix(".gz")).suffix)
        if kind is None:
            raise UsageError(
                f"the ending {path.suffix!r} does not say the format",
                where=str(path),
                expected="one of " + ", ".join(endings),
                remedy="name the format: format: parquet | arrow | csv | jsonl | npy",
            )
        found.append(Shard(source_uri(path, base), path, kind, path.stat().st_size, ""))
    if not found:
        raise UsageError(
            "there is no file of vectors here",
            where=settings.source,
            expected="files that end in " + ", ".join(endings),
        )
    return sorted(found, key=lambda shard: shard.uri)


def _columnar(shard: Shard, settings: Features) -> Iterator[Part]:
    options = ReadOptions(text_columns=frozenset({settings.example}))
    for batch in get("reader", shard.format).run(shard, options):
        if batch.rejects:
            first = batch.rejects[0]
            raise DataRefused(f"the row cannot be read: {first.reason}", where=f"{shard.uri}: row {first.row}")
        if len(batch.rows):
            yield _batch(batch, shard, settings)


def _batch(batch: Batch, shard: Shard, settings: Features) -> Part:
    names, rows = batch.table.schema.names, np.asarray(batch.rows, dtype=np.int64)
    if settings.example not in names:
        raise UsageError(
            f"there is no column {settings.example!r}{nearest(settings.example, names)}",
            where=f"features: {shard.uri}",
            expected="a column with the example's id; there are " + ", ".join(names[:20]),
            remedy="name it: example: COLUMN",
        )
    ids = pl.Series("example_id", pl.from_arrow(text(batch.table[settings.example]))).cast(pl.String)
    columns = _columns(settings, names, shard)
    kinds = [batch.table[name].type for name in columns]
    if len(columns) == 1 and _is_list(kinds[0]):
        return ids, _lists(batch.table[columns[0]], rows, f"{shard.uri}: column {columns[0]!r}"), rows
    for name, kind in zip(columns, kinds, strict=True):
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise UsageError(
                f"the column {name!r} holds {kind}",
                where=f"features: {shard.uri}",
                expected="one column of lists of numbers, or columns of numbers",
            )
    for name in columns:
        _no_null(batch.table[name], rows, f"{shard.uri}: column {name!r}")
    return ids, _float32(np.column_stack([np.asarray(batch.table[name].cast(pa.float64())) for name in columns])), rows


def _columns(settings: Features, names: list[str], shard: Shard) -> list[str]:
    found: list[str] = []
    if not settings.columns:
        raise UsageError("no column is named", where="features.columns", expected="one or more, or leave the key out")
    for wanted in settings.columns:
        here = [name for name in names if fnmatchcase(name, wanted)] if "*" in wanted else [wanted]
        here = [name for name in here if name in names and name != settings.example]
        if not here:
            raise UsageError(
                f"there is no column {wanted!r}{nearest(wanted, names)}",
                where=f"features: {shard.uri}",
                expected="one or more of " + ", ".join(name for name in names[:20] if name != settings.example),
                remedy="name it: columns: COLUMN, or columns: 'dim_*' for all that begin so",
            )
        found += here
    return list(dict.fromkeys(found))


def _is_list(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(listed or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _lists(column: pa.ChunkedArray, rows: NDArray[np.int64], where: str) -> NDArray[np.float32]:
    inner = column.type.value_type
    if not (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
        raise UsageError(f"the lists hold {inner}", where=f"features: {where}", expected="lists of numbers")
    _no_null(column, rows, where)
    widths = np.asarray(pc.list_value_length(column), dtype=np.int64)
    other = np.flatnonzero(widths != widths[0])
    if len(other):
        raise DataRefused(
            f"the vector has {widths[other[0]]} numbers, that of row {rows[0]} has {widths[0]}",
            where=f"{where}: row {rows[other[0]]}",
            expected="one width for all rows",
        )
    if widths[0] == 0:
        raise DataRefused("the vector is empty", where=f"{where}: row {rows[0]}", expected="at least one number")
    flat = pc.list_flatten(column)
    _no_null(flat, np.repeat(rows, widths[0]), where)
    return _float32(np.asarray(flat).reshape(len(rows), -1))


def _no_null(column: pa.ChunkedArray, rows: NDArray[np.int64], where: str) -> None:
    if column.null_count:
        place = int(np.argmax(np.asarray(pc.is_null(column))))
        raise DataRefused(
            "there is no number" if not _is_list(column.type) else "there is no vector",
            where=f"{where}: row {rows[place]}",
            expected="a whole vector",
            remedy="leave this row out, or make its vector",
        )


def _float32(numbers: NDArray[np.generic]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # infinity is refused with its row
        return np.ascontiguousarray(numbers, dtype=np.float32)


def _finite(part: Part, shard: Shard) -> None:
    ids, matrix, rows = part
    blank = ids.str.strip_chars().fill_null("") == ""
    if blank.any():
        row = rows[int(blank.arg_max() or 0)]
        raise DataRefused("the row has no id", where=f"{shard.uri}: row {row}", expected="an id for each vector")
    good = np.isfinite(matrix).all(axis=1)
    if not good.all():
        place = int(np.argmin(good))
        raise DataRefused(
            f"the vector of {ids[place]!r} holds NaN, infinity or a number too large for float32",
            where=f"{shard.uri}: row {rows[place]}",
            expected="finite numbers",
            remedy="leave this row out, or make its vector again",
        )


def _order(ids: pl.Series, rows: NDArray[np.int64], files: NDArray[np.int64], origins: list[str]) -> NDArray[np.int64]:
    """Return the order of ids; an id that stands twice is refused with both places."""
    order = ids.arg_sort().to_numpy().astype(np.int64)
    placed = ids.gather(order)
    twice = (placed == placed.shift(1)).fill_null(False)
    if twice.any():
        at = int(twice.arg_max() or 0)
        first, second = sorted((int(order[at - 1]), int(order[at])))
        raise DataRefused(
            f"the id {placed[at]!r} stands twice, first in {origins[files[first]]}: row {rows[first]}",
            where=f"{origins[files[second]]}: row {rows[second]}",
            expected="one vector an example",
        )
    return order

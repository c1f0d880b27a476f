"""Columns that are more than text: factors, trees, times."""

from __future__ import annotations

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import FACTORS, TREE
from gradatim.tasks.core import trees
from gradatim.tasks.ingest.arrow_types import TIME, json_text, text

MILLISECONDS_FROM = 100_000_000_000
"""Whole numbers from here on count milliseconds since 1970, smaller ones seconds (this one would be the year 5138)."""


def factors(given: pa.Table, columns: list[str]) -> pa.Array:
    """Gather columns into the map `factors`: names sorted, values as text, nulls left out.

    One column that is itself a map, a struct, or text with a JSON object is taken for the map.
    """
    if len(columns) == 1:
        only = _single(given[columns[0]])
        if pa.types.is_map(only.type):
            return _from_entries([None if v is None else dict(v) for v in only.to_pylist()])
        if pa.types.is_struct(only.type):
            names = sorted(field.name for field in only.type)
            flat = dict(zip([field.name for field in only.type], only.flatten(), strict=True))
            return _interleave(names, [_single(text(flat[name])) for name in names], pc.is_valid(only))
        if pa.types.is_string(only.type) and (entries := _json_objects(only)) is not None:
            return _from_entries(entries)
    names = sorted(columns)
    return _interleave(names, [_single(text(given[name])) for name in names], pa.array(np.ones(len(given), dtype=bool)))


def _single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _json_objects(column: pa.Array) -> list[dict[str, object] | None] | None:
    if not pc.all(pc.starts_with(column.drop_null(), "{")).as_py() or column.null_count == len(column):
        return None
    try:
        found = [None if v is None else orjson.loads(v) for v in column.to_pylist()]
    except orjson.JSONDecodeError:
        return None
    return found if all(v is None or isinstance(v, dict) for v in found) else None


def _from_entries(rows: list[dict[str, object] | None]) -> pa.Array:
    return pa.array(
        [
            None if row is None else [(str(key), json_text(row[key])) for key in sorted(row) if row[key] is not None]
            for row in rows
        ],
        FACTORS,
    )


def _interleave(names: list[str], values: list[pa.Array], valid: pa.Array) -> pa.Array:
    """Lay columns out row by row as map entries, without a loop over rows."""
    rows, width = len(valid), len(names)
    present = np.stack([np.asarray(pc.is_valid(v)) for v in values], axis=1) & np.asarray(valid)[:, None]
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32)
    row, column = np.nonzero(present)
    keys = pa.array(names, pa.string()).take(pa.array(column))
    # column-major concatenation: value (row, column) stands at column * rows + row
    joined = pa.concat_arrays(values) if width else pa.array([], pa.string())
    items = joined.take(pa.array(column * rows + row))
    mapped = pa.MapArray.from_arrays(pa.array(offsets), keys, items)
    return mapped if pc.all(valid).as_py() in (True, None) else pc.if_else(valid, mapped, pa.scalar(None, FACTORS))


def structure(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """Read trees from node lists, brackets or JSON lists.

    Returns
    -------
    trees : pyarrow.Array of `TREE`
        Null where the value is null or wrong.
    reasons : numpy.ndarray of str
        What is wrong, an empty string where nothing is.
    """
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        names = [field.name for field in kind.value_type]
        if not {"parent", "label"} <= set(names):
            raise UsageError(
                f"the nodes have the fields {', '.join(names)}",
                where="examples.structure",
                expected="parent (position, -1 for the root) and label; node where the order is another",
            )
        series = pl.Series(pl.from_arrow(_single(column)))
        problems = trees.problems(series)
        tidy = trees.flatten(series).to_series((problems.is_null() & series.is_not_null()).to_numpy())
    elif pa.types.is_nested(kind):  # a nested list of words alone
        values = [None if v is None else json_text(v) for v in column.to_pylist()]
        tidy, problems = trees.parse(pl.Series(values, dtype=pl.String))
    else:
        tidy, problems = trees.parse(pl.Series(pl.from_arrow(_single(text(column)))))
    reasons = problems.fill_null("").to_numpy().astype(object)
    reasons[reasons != ""] = "no tree: " + reasons[reasons != ""]
    return tidy.to_arrow().cast(TREE), reasons


def created_at(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """Read times: ISO 8601 text, dates, or seconds or milliseconds since 1970; without a zone they count as UTC.

    Returns
    -------
    times : pyarrow.Array of timestamp[us, UTC]
    reasons : numpy.ndarray of str
        "no time" where a value cannot be read, an empty string elsewhere.
    """
    column = _single(column)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = column.cast(TIME, safe=False)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        scale = pc.if_else(pc.less(pc.abs(column), MILLISECONDS_FROM), 1e6, 1e3)
        micro = pc.round(pc.multiply(column.cast(pa.float64()), scale))
        sane = pc.less(pc.abs(micro), 2.5e17)  # the year 9892
        times = pc.if_else(sane, micro, pa.scalar(None, pa.float64())).cast(pa.int64()).cast(TIME)
    else:
        series = pl.Series(pl.from_arrow(text(column))).str.strip_chars()
        frame = pl.DataFrame({"t": series}).with_columns(zone=pl.col("t").str.contains(r"(Z|[+-]\d\d:?\d\d)$"))
        plain = pl.col("t").str.replace(r"(Z|[+-]\d\d:?\d\d)$", "").str.replace("T", " ")
        day = plain.str.contains(r"^\d{4}-\d\d-\d\d$")
        clock = pl.when(day).then(plain + " 00:00:00").otherwise(plain)
        read = clock.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
        short = clock.str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_unit="us")
        sign = pl.col("t").str.extract(r"([+-])\d\d:?\d\d$").replace_strict({"+": 1, "-": -1}, default=0)
        hours = pl.col("t").str.extract(r"[+-](\d\d):?\d\d$").cast(pl.Int64).fill_null(0)
        minutes = pl.col("t").str.extract(r"[+-]\d\d:?(\d\d)$").cast(pl.Int64).fill_null(0)
        offset = pl.when(pl.col("zone") & ~day).then(sign * (hours * 60 + minutes)).otherwise(0)
        local = pl.coalesce(read, short) - pl.duration(minutes=offset)
        times = frame.select(local.dt.replace_time_zone("UTC")).to_series().to_arrow().cast(TIME)
    wrong = np.asarray(pc.and_(pc.is_valid(column), pc.is_null(times)))
    return times, np.where(wrong, "no time", "").astype(object)

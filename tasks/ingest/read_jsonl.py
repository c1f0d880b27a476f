"""JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.ingest.arrow_types import json_text
from gradatim.tasks.ingest.reading import MAX_COLUMNS, Batch, ReaderConfig, ReadOptions, Reject, shorten
from gradatim.tasks.ingest.sources import Shard, utf8_chunks

MAX_LINE = 64 << 20
"""Bytes of the longest line."""


@register(
    "reader",
    "jsonl",
    config=ReaderConfig,
    cost=lambda rows, width: Cost(seconds=rows * (1e-6 + width * 1.1e-6), bytes=300e6),
    source="RFC 8259: The JavaScript Object Notation (JSON) Data Interchange Format",
    row_wise=True,
)
def read_jsonl(shard: Shard, options: ReadOptions) -> Iterator[Batch]:
    """JSON Lines: one object a line, plain or gzipped.

    JSON is read strictly: NaN and Infinity, half of a surrogate pair, bytes that are no UTF-8, nesting beyond 1,024
    levels and what is no object make a line a reject. Of a key that stands twice the last value counts. A column whose
    values have several types is text: strings as they are, others as JSON. Integers beyond 64 bits are text, digit by
    digit. Blank lines are no rows.
    """
    for objects, lines, rows, rejects in json_objects(shard, options.encoding):
        yield Batch(_table(objects, lines, options, shard), pa.array(rows, pa.int64()), rejects)


def json_objects(
    shard: Shard, encoding: str, *, lenient: bool = False
) -> Iterator[tuple[list[dict[str, Any]], list[bytes], Sequence[int], list[Reject]]]:
    """Yield, chunk by chunk, the objects of a JSON Lines file, their lines, their rows, and the rejected lines.

    `lenient` lets NaN and Infinity pass, as Python's own writer writes them.
    """
    position = 0
    for found in _lines(shard, encoding):
        lines = [line for line in found if line and not line.isspace()]
        rejects: list[Reject] = []
        rows: Sequence[int] = range(position, position + len(lines))
        try:
            objects = list(map(orjson.loads, lines))
        except orjson.JSONDecodeError:
            objects = []
        if set(map(type, objects)) != {dict}:
            objects, rows, rejects = _one_by_one(lines, position, shard, lenient)
        kept = [lines[row - position] for row in rows] if rejects else lines
        position += len(lines)
        yield objects, kept, rows, rejects


def _one_by_one(
    lines: list[bytes], position: int, shard: Shard, lenient: bool
) -> tuple[list[dict[str, Any]], list[int], list[Reject]]:
    """Parse lines of which some are no objects: the objects, their rows, the rejects."""
    objects: list[dict[str, Any]] = []
    rows: list[int] = []
    rejects: list[Reject] = []
    for row, line in enumerate(lines, position):
        try:
            found = _parsed(line, lenient)
        except orjson.JSONDecodeError as error:
            if row == 0 and line.strip() in (b"[", b"[{"):
                raise _array(shard) from None
            rejects.append(Reject(row, f"not JSON: {error.msg} (column {error.colno})", None, shorten(line)))
            continue
        if isinstance(found, dict):
            objects.append(found)
            rows.append(row)
        elif row == 0 and isinstance(found, list) and found and isinstance(found[0], dict):
            raise _array(shard)
        else:
            rejects.append(Reject(row, "the line is no JSON object", None, shorten(line)))
    return objects, rows, rejects


def _parsed(line: bytes, lenient: bool) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        if lenient and (b"NaN" in line or b"Infinity" in line):
            try:
                return json.loads(line)
            except (ValueError, RecursionError):
                pass
        raise


def _array(shard: Shard) -> DataRefused:
    return DataRefused(
        "this is one JSON array, not JSON Lines",
        where=shard.uri,
        expected="one object a line",
        remedy=f"jq -c '.[]' {shard.path.name} > {shard.path.stem}.jsonl",
    )


def _lines(shard: Shard, encoding: str) -> Iterator[list[bytes]]:
    rest = b""
    for chunk in utf8_chunks(shard.path, encoding, shard.uri, check=False):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE:
            raise DataRefused(f"a line is longer than {MAX_LINE >> 20} MiB", where=shard.uri, expected="JSON Lines")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _table(objects: list[dict[str, Any]], lines: list[bytes], options: ReadOptions, shard: Shard) -> pa.Table:
    names = list(dict.fromkeys(chain.from_iterable(objects)))
    if len(names) > MAX_COLUMNS:
        raise DataRefused(f"{len(names):,} different keys", where=shard.uri, expected=f"at most {MAX_COLUMNS:,}")
    schema = options.schema
    columns: dict[str, pa.Array] = {}
    for name in names if schema is None else [n for n in schema.names if n in names]:
        values = list(map(dict.get, objects, repeat(name)))
        kind = None if schema is None else schema.field(name).type
        columns[name] = _exact(name, values, lines) if kind is None else _as(name, values, lines, kind)
    return pa.table(columns)


def _exact(name: str, values: list[Any], lines: list[bytes]) -> pa.Array:
    """Make an array of the narrowest type that holds every value exactly, else text."""
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return _texts(name, values, lines)
    if pa.types.is_floating(column.type) and pc.any(pc.greater_equal(pc.abs(column), 2.0**63)).as_py():
        exact = _reparsed(name, values, lines)
        whole = any(isinstance(e, int) for v, e in zip(values, exact, strict=True) if isinstance(v, float))
        return _texts(name, values, lines) if whole else column
    if pa.types.is_uint64(column.type) or _has_empty_struct(column.type):
        return _texts(name, values, lines)
    return column


def _reparsed(name: str, values: list[Any], lines: list[bytes]) -> list[Any]:
    """Values anew where the fast parser turned an integer beyond 64 bits into a float."""
    return [
        json.loads(line).get(name) if isinstance(value, float) and abs(value) >= 2.0**63 else value
        for value, line in zip(values, lines, strict=True)
    ]


def _texts(name: str, values: list[Any], lines: list[bytes]) -> pa.Array:
    exact = _reparsed(name, values, lines)
    return pa.array([None if v is None else json_text(v) for v in exact], pa.string())


def _as(name: str, values: list[Any], lines: list[bytes], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return _texts(name, values, lines)
    try:
        return pa.array(values, kind) if pa.types.is_nested(kind) else pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _texts(name, values, lines)


def _has_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(field.type) for field in kind)
    return pa.types.is_list(kind) and _has_empty_struct(kind.value_type)

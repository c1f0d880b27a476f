"""How types meet: which type holds two shards' columns, which types a table can hold, and how values get there.

The rule, from narrow to wide: null, integer (8 to 64 bits), number, text. True and false, dates and times meet others
as text; dates meet times as times; lists and structs meet their like part by part. A nested column never meets a plain
one, except inside one JSON Lines file, where both become JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from gradatim.schemas.errors import DataRefused

TIME = pa.timestamp("us", tz="UTC")


def widen(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds both, or None where there is none."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_nested(left) or pa.types.is_nested(right):
        return _widen_nested(left, right)
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return max(left, right, key=lambda kind: kind.bit_width)
    if _is_exact(left) and _is_exact(right):
        scale = max(kind.scale for kind in (left, right) if pa.types.is_decimal(kind))
        return pa.decimal128(38, scale)
    if _is_number(left) and _is_number(right):
        return pa.float64()
    if _is_time(left) and _is_time(right):
        return TIME
    if pa.types.is_binary(left) or pa.types.is_binary(right):
        return None
    return pa.string()


def _widen_nested(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_list(left) and pa.types.is_list(right):
        inner = _widen_inner(left.value_type, right.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_map(left) and pa.types.is_map(right):
        key, item = _widen_inner(left.key_type, right.key_type), _widen_inner(left.item_type, right.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        types = {field.name: field.type for field in left}
        for field in right:
            inner = _widen_inner(types[field.name], field.type) if field.name in types else field.type
            if inner is None:
                return None
            types[field.name] = inner
        return pa.struct(list(types.items()))
    return None


def _widen_inner(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Widen inside a nested type, where only numbers may change theirs."""
    wide = widen(left, right)
    became_text = wide is not None and pa.types.is_string(wide) and not (_textual(left) and _textual(right))
    return None if became_text else wide


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_null(kind))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def storable(kind: pa.DataType, *, where: str = "") -> pa.DataType:
    """Return the type in which a table holds a column of type `kind` without loss.

    Unsigned integers take the next wider signed type (64 bits: a decimal), times count microseconds in UTC, large and
    view layouts become plain ones, dictionaries their values, a column of nulls text.

    Raises
    ------
    DataRefused
        For intervals, unions and other types that no table holds.
    """
    match kind:
        case _ if isinstance(kind, pa.BaseExtensionType):
            return storable(kind.storage_type, where=where)
        case _ if pa.types.is_dictionary(kind):
            return storable(kind.value_type, where=where)
        case _ if pa.types.is_unsigned_integer(kind):
            return {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}[kind.bit_width]
        case _ if pa.types.is_float16(kind):
            return pa.float32()
        case _ if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return kind
        case _ if pa.types.is_decimal(kind):
            return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.string()
        case _ if pa.types.is_timestamp(kind):
            return TIME
        case _ if pa.types.is_date(kind):
            return pa.date32()
        case _ if pa.types.is_duration(kind):
            return pa.int64()
        case _ if pa.types.is_time(kind) or pa.types.is_null(kind):
            return pa.string()
        case _ if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return pa.string()
        case _ if pa.types.is_struct(kind):
            if kind.num_fields == 0:
                return pa.string()
            return pa.struct([(field.name, storable(field.type, where=where)) for field in kind])
        case _ if pa.types.is_map(kind):
            return pa.map_(storable(kind.key_type, where=where), storable(kind.item_type, where=where))
    if _any(kind, "is_binary", "is_large_binary", "is_fixed_size_binary", "is_binary_view"):
        return pa.binary()
    if _any(kind, "is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view"):
        return pa.list_(storable(kind.value_type, where=where))
    raise DataRefused(f"a column of type {kind} cannot be held in a table", where=where, remedy="drop or convert it")


def _any(kind: pa.DataType, *tests: str) -> bool:
    return any(getattr(pa.types, test)(kind) for test in tests)


def unify(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Find the one schema that holds every shard's rows; a column that a shard lacks is null there.

    Parameters
    ----------
    schemas : iterable of (uri, schema)
        Columns stand in the order of their first appearance, shards sorted by uri.

    Raises
    ------
    DataRefused
        Two types that do not meet, naming both files and the column.
    """
    types: dict[str, tuple[pa.DataType, str]] = {}
    for uri, schema in sorted(schemas, key=lambda pair: pair[0]):
        for field in schema:
            kind, first = types.get(field.name, (pa.null(), uri))
            wide = widen(kind, field.type)
            if wide is None:
                raise DataRefused(
                    f"the column {field.name!r} is {kind} in {first} and {field.type} here",
                    where=uri,
                    expected="one type in all files; integers widen to numbers and numbers to text",
                    remedy="rename or convert the column in one of them",
                )
            types[field.name] = (wide, first if not pa.types.is_null(kind) else uri)
    return pa.schema([(name, kind) for name, (kind, _) in types.items()])


def conform(table: pa.Table, schema: pa.Schema, rows: int, *, where: str) -> pa.Table:
    """Give a table of `rows` rows the columns and types of `schema`; NaN in a number column becomes null."""
    columns = []
    for field in schema:
        if field.name not in table.schema.names:
            columns.append(pa.nulls(rows, field.type))
            continue
        try:
            columns.append(without_nan(cast(table[field.name], field.type)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataRefused(
                f"the column {field.name!r} does not become {field.type}: {str(error)[:200]}", where=where
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


def cast(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast without loss, but for times finer than a microsecond."""
    if isinstance(column.type, pa.BaseExtensionType):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        column = pa.chunked_array([chunk.storage for chunk in chunks], column.type.storage_type)
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if pa.types.is_string_view(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(kind):
        return text(column)
    return column.cast(kind, safe=not pa.types.is_timestamp(kind))


def _decoded(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    # the library decodes no dictionary of string views
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    kind = storable(column.type.value_type)
    return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in chunks], kind)


def without_nan(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Turn NaN into null: a number that is none is no value."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pc.is_nan(column)
    return pc.if_else(nan, pa.scalar(None, column.type), column) if pc.any(nan).as_py() else column


def text(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Write values as text, one way only: whole numbers without a point, true and false, ISO times, nested as JSON.

    Bytes are the UTF-8 that they hold, as writers without a text type leave it; bytes that are none count in hex.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        whole = pc.and_(pc.equal(column, pc.trunc(column)), pc.less(pc.abs(column), 2.0**53))
        integers = pc.if_else(whole, column, pa.scalar(None, kind)).cast(pa.int64())
        return pc.coalesce(integers.cast(pa.string()), column.cast(pa.float64()).cast(pa.string()))
    if pa.types.is_binary(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([None if v is None else _decoded_text(v) for v in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if v is None else json_text(v) for v in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _decoded_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()


def json_text(value: object) -> str:
    """Write a value as JSON with sorted keys; a string stays as it is, a whole number has no point."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str).decode()

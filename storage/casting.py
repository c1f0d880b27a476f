"""Bring what a step produced into the form in which its table is stored.

Two rules. *Storable*: every Arrow type has one form that Delta and Parquet readers share (strings and lists lose their
``large``, dictionaries their index, unsigned integers get the next signed width, times become text). *Widening only*:
a column may arrive narrower than the table has it and is cast; one that arrives wider, renamed or of another kind is
refused by name, with what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import TableSpec

Frame: TypeAlias = pl.DataFrame | pa.Table | pa.RecordBatch

_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


@dataclass(frozen=True)
class Changes:
    """What the user says about columns that differ from the table's: the lines that an error asks to add.

    Attributes
    ----------
    renamed : mapping
        New name to the name under which the table has the column.
    dropped : collection of str
        Columns of the table that the data no longer has, on purpose: null in the new rows.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()


def storable(kind: pa.DataType) -> pa.DataType | None:
    """Return the stored form of an Arrow type; None for the null type, whose column is left out."""
    types = pa.types
    if types.is_null(kind):
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return storable(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return storable(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_time(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_binary_view(kind):
        return pa.binary()
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if types.is_float16(kind):
        return pa.float32()
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if types.is_duration(kind):
        return pa.int64()
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.string()
    if types.is_map(kind):
        return pa.map_(_inner(kind.key_type), _inner(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(child.name, _inner(child.type)) for child in kind])
    if _is_list(kind):
        return pa.list_(_inner(kind.value_type))
    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_floating(kind):
        return kind
    raise UsageError(f"columns of type {kind} cannot be stored", remedy="convert the column to text or numbers first")


def widest(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the stored type that holds both without loss of kind; None where there is none."""
    if first == second:
        return first
    types = pa.types
    if first in _INTEGERS and second in _INTEGERS:
        return max(first, second, key=_INTEGERS.index)
    numbers = [kind for kind in (first, second) if kind in _INTEGERS or types.is_floating(kind)]
    if len(numbers) == 2:
        return pa.float64()  # integers beyond 2^53 are refused when cast
    if types.is_decimal(first) or types.is_decimal(second):
        decimals = [kind if types.is_decimal(kind) else pa.decimal128(19, 0) for kind in (first, second)]
        whole = max(kind.precision - kind.scale for kind in decimals)
        scale = max(kind.scale for kind in decimals)
        exact = all(types.is_decimal(kind) or kind in _INTEGERS for kind in (first, second))
        return pa.decimal128(whole + scale, scale) if exact and whole + scale <= 38 else None
    if types.is_list(first) and types.is_list(second):
        value = widest(first.value_type, second.value_type)
        return pa.list_(value) if value is not None else None
    if types.is_map(first) and types.is_map(second):
        key, item = widest(first.key_type, second.key_type), widest(first.item_type, second.item_type)
        return pa.map_(key, item) if key is not None and item is not None else None
    if types.is_struct(first) and types.is_struct(second):
        names = [child.name for child in first]
        if sorted(names) != sorted(child.name for child in second):
            return None
        inner = {name: widest(first.field(name).type, second.field(name).type) for name in names}
        return None if None in inner.values() else pa.struct(list(inner.items()))
    return None


def stored_schema(spec: TableSpec) -> pa.Schema:
    """Return a table's contract as it stands in its files: fixed-size lists become lists, as Delta has them."""
    return pa.schema([f.with_type(storable(f.type)) for f in spec.schema], metadata=spec.schema.metadata)


def conform(
    frame: Frame, spec: TableSpec, current: pa.Schema | None = None, changes: Changes | None = None
) -> pa.Table:
    """Cast a frame to the stored form of its table.

    Parameters
    ----------
    frame : polars.DataFrame, pyarrow.Table or pyarrow.RecordBatch
    spec : TableSpec
        The contract. Its missing columns become null, but for the key; further columns stay only in `open` tables.
    current : pyarrow.Schema, optional
        Columns that the table has now; payload columns are widened to it.
    changes : Changes, optional

    Returns
    -------
    pyarrow.Table
        The contract's columns in their order, then the payload in the order in which it came.

    Raises
    ------
    DataRefused
        Where a column is missing, unknown, wider than the table has it, or of another kind.
    """
    changes = changes or Changes()
    table = _arrow(frame)
    if changes.renamed:
        table = table.rename_columns([changes.renamed.get(name, name) for name in table.column_names])
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise DataRefused(f"the column {twice[0]!r} stands twice", where=f"table {spec.name}", expected="unique names")
    columns: dict[str, Any] = {}
    fields: list[pa.Field] = []
    for field_ in stored_schema(spec):
        fields.append(field_.with_nullable(True))
        if field_.name in table.column_names:
            columns[field_.name] = _cast(table.column(field_.name), field_.type, f"{spec.name}.{field_.name}")
            _check_width(columns[field_.name], spec.schema.field(field_.name).type, f"{spec.name}.{field_.name}")
        elif field_.name in spec.key:
            near = nearest(field_.name, table.column_names)
            raise DataRefused(
                f"the key column {field_.name!r} is missing{near}",
                where=f"table {spec.name}",
                expected="the columns " + ", ".join(spec.key),
                remedy=f"found {', '.join(table.column_names) or 'no columns'}; name one of them {field_.name!r}",
            )
        else:
            columns[field_.name] = pa.nulls(len(table), field_.type)
    for name in table.column_names:
        if name in columns:
            continue
        if not spec.open:
            raise DataRefused(
                f"the column {name!r} does not belong here{nearest(name, spec.schema.names)}",
                where=f"table {spec.name}",
                expected="columns " + ", ".join(spec.schema.names),
                remedy="rename it or leave it out",
            )
        kind = storable(table.schema.field(name).type)
        if kind is None:
            continue
        if current is not None and name in current.names:
            kind = _payload_type(spec, name, current.field(name).type, kind)
        columns[name] = _cast(table.column(name), kind, f"{spec.name}.{name}", exact=False)
        fields.append(pa.field(name, kind))
    return pa.table(columns, schema=pa.schema(fields, metadata=spec.schema.metadata))


def _check_width(column: pa.Array, kind: pa.DataType, where: str) -> None:
    if pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(column)
        wrong = lengths.filter(pc.not_equal(lengths, kind.list_size))
        if len(wrong):
            raise DataRefused(f"found {wrong[0]} numbers instead of {kind.list_size}", where=where, expected=str(kind))


def _payload_type(spec: TableSpec, name: str, has: pa.DataType, comes: pa.DataType) -> pa.DataType:
    wide = widest(has, comes)
    if wide is None:
        raise DataRefused(
            f"the column {name!r} came as {comes}, but the table has it as {has}",
            where=f"table {spec.name}",
            expected=f"{has}, or a type that widens to it",
            remedy=f"cast it to {has}, or keep it as another column:  renamed: {{{name}: {name}_2}}   "
            f"dropped: [{name}]",
        )
    return wide


def _arrow(frame: Frame) -> pa.Table:
    if isinstance(frame, pl.DataFrame):
        return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame


def _inner(kind: pa.DataType) -> pa.DataType:
    return storable(kind) or pa.string()  # a nested column of nulls alone


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _cast(column: pa.ChunkedArray, target: pa.DataType, where: str, exact: bool = True) -> pa.Array:
    """Cast a column to its stored type; with `exact` any loss of kind is an error that names the column."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps several chunks where one would overflow
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    found = storable(array.type)
    if exact and found is not None and not _widens(found, target):
        raise DataRefused(
            f"found {array.type}, which is not {target} and does not widen to it",
            where=where,
            expected=str(target),
            remedy=f"cast the column to {target} before it is published",
        )
    try:
        return _convert(array, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataRefused(f"a value does not fit: {error}", where=where, expected=str(target)) from None


def _widens(found: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_map(target) and pa.types.is_list(found):  # Polars before it had maps
        pair = found.value_type
        return bool(pa.types.is_struct(pair)) and pair.num_fields == 2 and _widens(pair.field(1).type, target.item_type)
    return bool(widest(found, target) == target or pa.types.is_null(found))


def _convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    kind = array.type
    if kind == target:
        return array
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(len(array), target)
    if types.is_dictionary(kind):
        return _convert(array.dictionary_decode(), target)
    if types.is_run_end_encoded(kind):
        return _convert(pc.run_end_decode(array), target)
    if isinstance(array, pa.ExtensionArray):
        return _convert(array.storage, target)
    if types.is_duration(kind):
        return pc.cast(pc.cast(array, pa.duration("us"), safe=False), pa.int64())
    if types.is_timestamp(kind):
        return pc.cast(array, target, safe=False)  # nanoseconds are cut to microseconds, the finest that Delta has
    if types.is_map(target) or types.is_list(target):
        return _convert_list(array, target)
    if types.is_struct(target):
        children = dict(zip([child.name for child in kind], array.flatten(), strict=True))
        inner = [_convert(children[child.name], child.type) for child in target]
        if not inner:
            return pc.cast(array, target)
        return pa.StructArray.from_arrays(inner, fields=list(target), mask=pc.is_null(array))
    return pc.cast(array, target)


def _convert_list(array: pa.Array, target: pa.DataType) -> pa.Array:
    # not by a cast between kinds of lists: Arrow 26 breaks nested ones that are slices
    array = _as_list(array)
    valid = pc.is_valid(array)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    if array.null_count:
        offsets = pc.if_else(pa.concat_arrays([valid, pa.array([True])]), offsets, pa.scalar(None, pa.int32()))
    flat = array.flatten()
    if pa.types.is_map(target):
        keys, items = (flat.field(0), flat.field(1)) if flat.offset == 0 else flat.flatten()
        return pa.MapArray.from_arrays(
            offsets, _convert(keys, target.key_type), _convert(items, target.item_type), type=target
        )
    return pa.ListArray.from_arrays(offsets, _convert(flat, target.value_type), type=target)


def _as_list(array: pa.Array) -> pa.Array:
    """View a map as a list of its key-value pairs."""
    if not pa.types.is_map(array.type):
        return array
    pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    offsets = array.offsets
    plain = pa.ListArray.from_arrays(offsets, pairs)
    if not array.null_count:
        return plain
    holed = pc.if_else(pa.concat_arrays([pc.is_valid(array), pa.array([True])]), offsets, pa.scalar(None, pa.int32()))
    return pa.ListArray.from_arrays(holed, pairs)

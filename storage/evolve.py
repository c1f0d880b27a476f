"""How a table's columns may change from one version to the next.

A column that comes is null in the rows that stay; one whose type grows is cast in all parts; one that goes while
another comes looks like a new name and is refused until the user says which it is; any other change of type is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.tables import TableSpec
from gradatim.storage.casting import Changes, stored_schema, widest


def initial_schema(spec: TableSpec) -> pa.Schema:
    """Return the stored schema, with the width of fixed-size lists noted: Delta knows lists only."""
    return note_widths(stored_schema(spec), spec)


def note_widths(schema: pa.Schema, spec: TableSpec) -> pa.Schema:
    """Note the width of the contract's fixed-size lists, which may be another one than that of the former version."""
    for field in spec.schema:
        i = schema.get_field_index(field.name)
        if i >= 0 and pa.types.is_fixed_size_list(field.type):
            noted = {**(schema.field(i).metadata or {}), b"gradatim.width": str(field.type.list_size).encode()}
            schema = schema.set(i, schema.field(i).with_metadata(noted))
    return schema


def unify(
    spec: TableSpec, schema: pa.Schema, parts: Sequence[tuple[pa.Schema, int]], changes: Changes, *, first: bool
) -> pa.Schema:
    """Join the columns of new parts to those of a table.

    Parameters
    ----------
    spec : TableSpec
    schema : pyarrow.Schema
        Columns that the table has, or its contract's where this is its first version.
    parts : sequence of (pyarrow.Schema, int)
        Columns and rows of each new part.
    changes : Changes
    first : bool
        Whether this is the first version.

    Returns
    -------
    pyarrow.Schema
        Columns of the new version: those that the table has, in their order, then those that come.

    Raises
    ------
    DataRefused
        Where a column seems renamed, or comes in a type that does not widen.
    """
    before = list(schema.names)
    for found, _ in parts:
        for field in found:
            place = schema.get_field_index(field.name)
            if place < 0:
                schema = schema.append(field.with_nullable(True))
            elif (has := schema.field(place).type) != field.type:
                wide = widest(has, field.type)
                if wide is None:
                    raise DataRefused(
                        f"the column {field.name!r} comes as {field.type} and as {has}",
                        where=f"table {spec.name}",
                        expected="one type a column",
                        remedy="cast it in one of the files",
                    )
                schema = schema.set(place, schema.field(place).with_type(wide))
    arrived = {name for found, rows in parts if rows for name in found.names}
    gone = [name for name in before if name not in arrived | set(changes.dropped) | set(spec.schema.names)]
    came = [name for name in schema.names if name not in before]
    if arrived and gone and came and not first:
        raise DataRefused(
            f"the column {gone[0]!r} is gone, and {came[0]!r} is new",
            where=f"table {spec.name}",
            expected="the columns " + ", ".join(before),
            remedy=f"say which it is:  renamed: {{{came[0]}: {gone[0]}}}   or   dropped: [{gone[0]}]",
        )
    return schema


def differs(found: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a part's column has another type than the version's."""
    return any(field.type != schema.field(field.name).type for field in found)


def retype(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a part's columns to the version's types; raises `DataRefused` for an integer that no float64 holds."""
    for i, field in enumerate(table.schema):
        target = schema.field(field.name).type
        if field.type != target:
            try:
                wide = table.column(i).cast(target)
            except pa.ArrowInvalid as error:
                raise DataRefused(
                    f"a value does not fit into {target}: {error}",
                    where=f"column {field.name}",
                    remedy="write the column as text in all files",
                ) from None
            table = table.set_column(i, field.with_type(target), wide)
    return table

"""Casting: every type has one stored form; only widening is silent."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import content_hash
from gradatim.schemas.tables import features_spec, spec
from gradatim.storage.casting import Changes, conform, storable, stored_schema, widest

from .conftest import examples

_path = Path(__file__).parents[1] / "schemas" / "test_hashing.py"
_module_spec = importlib.util.spec_from_file_location("hash_vectors", _path)
assert _module_spec is not None
assert _module_spec.loader is not None
vectors = importlib.util.module_from_spec(_module_spec)
sys.modules["hash_vectors"] = vectors
_module_spec.loader.exec_module(vectors)


def _payload(column: pa.Array, **more: Any) -> pa.Table:
    rows = examples(0, len(column)).to_arrow()
    return conform(rows.append_column("x", column), spec("examples"), **more)


@settings(max_examples=150, deadline=None)
@given(vectors.tables())
def test_any_payload_is_stored_with_the_same_values(table: pa.Table) -> None:
    rows = examples(0, len(table)).to_arrow()
    for name in table.column_names:
        rows = rows.append_column(name, table.column(name))
    stored = conform(rows, spec("examples"))
    stored.validate(full=True)
    for name in table.column_names:
        if pa.types.is_null(table.schema.field(name).type):
            assert name not in stored.column_names
            continue
        assert stored.schema.field(name).type == storable(table.schema.field(name).type)
        if "uint64" in str(table.schema.field(name).type):
            continue  # becomes a decimal: compared below
        assert content_hash(stored.select([name])) == content_hash(table.select([name]))


@pytest.mark.parametrize("name", sorted(vectors.VECTORS))
def test_every_arrow_type_has_a_stored_form(name: str) -> None:
    column = vectors.VECTORS[name]
    stored = _payload(column)
    if name == "null":
        assert "x" not in stored.column_names
        return
    found = stored.column("x").to_pylist()
    expected = column.to_pylist()
    if name in ("time32", "time64"):
        assert found[0].startswith("01:02:03")
    elif name == "duration":
        assert found == [1_000_000, -86_400_000_000, None]
    elif name == "timestamp_ns":
        assert found == [dt.datetime(2026, 1, 2, 3, 4, 5, 678901), None]
    elif name == "uint64":
        assert found == [decimal.Decimal(v) if v is not None else None for v in expected]
    elif name == "decimal256":
        assert found == ["1.500", "100.000", None]
    else:
        assert repr(found) == repr(expected)


def test_unsigned_64_bit_keeps_huge_integers() -> None:
    assert [int(v) for v in _payload(pa.array([2**64 - 1, 0], pa.uint64())).column("x").to_pylist()] == [2**64 - 1, 0]


def test_a_union_is_refused_by_name() -> None:
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    )
    with pytest.raises(Exception, match="cannot be stored"):
        _payload(union)


def test_polars_frames_take_large_strings_maps_and_lists_of_pairs() -> None:
    frame = examples(0, 2)
    as_pairs = frame.with_columns(factors=pl.Series([[{"key": "op", "value": "+"}], None]))
    stored = conform(as_pairs, spec("examples"))
    assert stored.schema.field("factors").type == pa.map_(pa.string(), pa.string())
    assert stored.column("factors").to_pylist() == [[("op", "+")], None]
    assert stored.schema.field("input").type == pa.string()
    again = conform(pl.DataFrame(pl.from_arrow(stored)), spec("examples"))
    assert again.equals(stored)


def test_missing_columns_become_null_and_the_order_is_the_contracts() -> None:
    stored = conform(examples(0, 1).select(pl.all().reverse()), spec("examples"))
    assert stored.column_names[: len(spec("examples").schema.names)] == spec("examples").schema.names
    assert stored.column("domain").null_count == 1


def test_a_missing_or_renamed_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(DataRefused, match=r"key column 'example_id' is missing \(did you mean 'exampleid'"):
        conform(examples(0, 1).rename({"example_id": "exampleid"}), spec("examples"))


def test_a_column_that_does_not_belong_is_refused_with_the_nearest_name() -> None:
    frame = pl.DataFrame({"example_id": ["a"], "method": ["irt"], "valeu": [1.0]})
    with pytest.raises(DataRefused, match=r"'valeu' does not belong here \(did you mean 'value'"):
        conform(frame, spec("difficulty"))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("bin", pl.Series([1], dtype=pl.Int64)),
        ("bin", pl.Series([1], dtype=pl.UInt32)),
        ("value", pl.Series(["1.0"])),
        ("flag", pl.Series([1])),
        ("bin", pl.Series([1.0])),
    ],
)
def test_a_narrowing_cast_is_refused_and_the_cast_to_write_is_named(column: str, values: pl.Series) -> None:
    frame = pl.DataFrame({"example_id": ["a"], "method": ["irt"]}).with_columns(values.alias(column))
    with pytest.raises(DataRefused, match=f"difficulty.{column}") as caught:
        conform(frame, spec("difficulty"))
    assert f"cast the column to {spec('difficulty').schema.field(column).type}" in str(caught.value)


def test_widening_casts_are_silent() -> None:
    frame = pl.DataFrame(
        {"example_id": ["a"], "method": ["irt"]},
    ).with_columns(value=pl.lit(1.5, pl.Float32), bin=pl.lit(3, pl.Int8), n=pl.lit(4, pl.UInt32), raw=pl.lit(None))
    stored = conform(frame, spec("difficulty"))
    assert stored.select(["value", "bin", "n", "raw"]).to_pylist() == [{"value": 1.5, "bin": 3, "n": 4, "raw": None}]
    assert stored.schema.field("n").type == pa.int64()


def test_embeddings_are_stored_as_lists_and_another_width_is_seen() -> None:
    features = features_spec("words", 2)
    good = pl.DataFrame(
        {"example_id": ["a"], "embedding": [[1.0, 2.0]]}, schema_overrides={"embedding": pl.Array(pl.Float32, 2)}
    )
    assert conform(good, features).schema.field("embedding").type == pa.list_(pa.float32())
    wide = pl.DataFrame(
        {"example_id": ["a"], "embedding": [[1.0]]}, schema_overrides={"embedding": pl.Array(pl.Float32, 1)}
    )
    with pytest.raises(DataRefused, match="1 numbers instead of 2"):
        conform(wide, features)


def test_renamed_and_dropped_columns_follow_the_users_word() -> None:
    table = conform(examples(0, 1, new=5), spec("examples"), changes=Changes(renamed={"new": "old"}))
    assert table.column("old").to_pylist() == [5]
    assert "new" not in table.column_names


def test_a_column_that_stands_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["example_id", "example_id"])
    with pytest.raises(DataRefused, match="stands twice"):
        conform(table, spec("examples"))


def test_payload_widens_to_the_tables_type_and_is_refused_where_it_cannot() -> None:
    current = stored_schema(spec("examples")).append(pa.field("x", pa.float64()))
    assert _payload(pa.array([1], pa.int64()), current=current).schema.field("x").type == pa.float64()
    with pytest.raises(DataRefused, match="came as string, but the table has it as double") as caught:
        _payload(pa.array(["a"]), current=current)
    assert "renamed: {x: x_2}" in str(caught.value)
    with pytest.raises(DataRefused, match="does not fit"):
        _payload(pa.array([2**60 + 1]), current=current)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.decimal128(10, 4), pa.decimal128(10, 2), pa.decimal128(12, 4)),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16())]), pa.struct([("a", pa.int16())])),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), None),
        (pa.string(), pa.int64(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.float64(), pa.decimal128(10, 2), None),
    ],
)
def test_widest_is_symmetric(first: pa.DataType, second: pa.DataType, expected: pa.DataType | None) -> None:
    assert widest(first, second) == expected
    assert widest(second, first) == expected


def test_a_naive_date_and_numpy_columns_are_stored() -> None:
    stored = _payload(pa.array(np.array(["2026-01-01"], "datetime64[ns]")))
    assert stored.column("x").to_pylist() == [dt.datetime(2026, 1, 1)]

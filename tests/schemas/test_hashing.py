"""Hashes: golden vectors for every Arrow type, a reference encoder in plain Python, and the laws."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.hashing import (
    add_hashes,
    content_hash,
    hash_sum,
    normalise,
    random_bits,
    row_hash_hex,
    row_hashes,
    uniform,
    value_hash,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "hash_vectors.json").read_text(encoding="utf-8"))

_utc = dt.UTC
_when = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)

VECTORS: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "bool": pa.array([True, False, None]),
    **{
        f"int{bits}": pa.array([0, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), None], getattr(pa, f"int{bits}")())
        for bits in (8, 16, 32, 64)
    },
    **{f"uint{bits}": pa.array([0, 1, 2**bits - 1, None], getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)},
    "float16": pa.array(np.array([1.5, -0.0, np.inf], np.float16)),
    "float32": pa.array([1.5, -0.0, math.inf, math.nan, None], pa.float32()),
    "float64": pa.array([0.1, 0.0, -math.inf, math.nan, 5e-324, None]),
    "string": pa.array(["", "a", "é", "\U0001f600", "a\x00b", None]),
    "large_string": pa.array(["", "a", None], pa.large_string()),
    "string_view": pa.array(["", "a", "longer than twelve bytes", None], pa.string_view()),
    "binary": pa.array([b"", b"\xff\x00", None]),
    "large_binary": pa.array([b"", b"\xff\x00", None], pa.large_binary()),
    "binary_view": pa.array([b"", b"\xff\x00 and more than twelve", None], pa.binary_view()),
    "fixed_size_binary": pa.array([b"abc", None], pa.binary(3)),
    "date32": pa.array([dt.date(1970, 1, 1), dt.date(1969, 12, 31), None]),
    "date64": pa.array([dt.date(1970, 1, 1), dt.date(2026, 1, 2), None], pa.date64()),
    **{f"timestamp_{unit}": pa.array([_when.replace(microsecond=0), None], pa.timestamp(unit)) for unit in ("s", "ms")},
    "timestamp_us": pa.array([_when, None], pa.timestamp("us")),
    "timestamp_ns": pa.array([_when, None], pa.timestamp("ns")),
    "timestamp_utc": pa.array([_when.replace(tzinfo=_utc), None], pa.timestamp("us", "UTC")),
    "time32": pa.array([dt.time(1, 2, 3), None], pa.time32("s")),
    "time64": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
    "duration": pa.array([dt.timedelta(seconds=1), dt.timedelta(days=-1), None], pa.duration("ms")),
    "decimal128": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.01"), None], pa.decimal128(10, 2)),
    "decimal256": pa.array([decimal.Decimal("1.5"), decimal.Decimal("100"), None], pa.decimal256(50, 3)),
    "dictionary": pa.array(["a", "b", "a", None]).dictionary_encode(),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    "list": pa.array([[1, 2], [], [None], None], pa.list_(pa.int32())),
    "large_list": pa.array([["a"], [], None], pa.large_list(pa.string())),
    "fixed_size_list": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float32(), 2)),
    "list_view": pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
    "map": pa.array([[("k", "v"), ("l", None)], [], None], pa.map_(pa.string(), pa.string())),
    "tree": pa.array([[{"node": 0, "parent": -1, "label": "S"}, {"node": 1, "parent": 0, "label": "a"}], None]),
}


def _column_hashes(column: pa.Array) -> list[str]:
    return row_hash_hex(pa.table({"x": column})).to_pylist()


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_golden_vector_of_every_arrow_type(name: str) -> None:
    assert _column_hashes(VECTORS[name]) == GOLDEN["types"][name]


def test_golden_file_and_vectors_name_the_same_types() -> None:
    assert sorted(GOLDEN["types"]) == sorted(VECTORS)


def test_golden_settings_ids_and_random_numbers() -> None:
    found = {
        "settings": value_hash({"b": [1, 2.5, None, True], "a": "é"}),
        "uniform": uniform(["q1", "q2", "é"], 7, "split").tolist(),
        "bits": [int(b) for b in random_bits(["q1"], 0, "")],
        "table": content_hash(pa.table({"id": ["a", "b"], "x": [1, 2]})),
    }
    assert found == GOLDEN["others"]


# --- the documented encoding, once more, a value at a time


def _encode(kind: pa.DataType, value: Any) -> bytes:
    types = pa.types
    if value is None:
        return b"0"
    if types.is_boolean(kind):
        return b"b" + struct.pack("<q", value)
    if types.is_integer(kind):
        return b"u" + struct.pack("<Q", value) if value >= 2**63 else b"i" + struct.pack("<q", value)
    if types.is_floating(kind):
        return b"f" + struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    if types.is_timestamp(kind):
        since = value.replace(tzinfo=_utc) - dt.datetime(1970, 1, 1, tzinfo=_utc)
        return b"t" + struct.pack("<q", since // dt.timedelta(microseconds=1))
    if types.is_date(kind):
        return b"d" + struct.pack("<q", (value - dt.date(1970, 1, 1)).days)
    if types.is_string(kind) or types.is_large_string(kind):
        return b"s" + _sized(value.encode())
    if types.is_binary(kind) or types.is_fixed_size_binary(kind):
        return b"y" + _sized(value)
    if types.is_struct(kind):
        return b"{" + _sized(_cells([(f.name, f.type, value[f.name]) for f in kind]))
    if types.is_map(kind):
        pairs = [_cells([("key", kind.key_type, k), ("value", kind.item_type, v)]) for k, v in value]
        return b"l" + _sized(b"".join(b"{" + _sized(pair) for pair in pairs))
    return b"l" + _sized(b"".join(_encode(kind.value_type, element) for element in value))


def _sized(content: bytes) -> bytes:
    return struct.pack("<q", len(content)) + content


def _cells(cells: list[tuple[str, pa.DataType, Any]]) -> bytes:
    named = [(name.encode(), kind, value) for name, kind, value in sorted(cells, key=lambda c: c[0])]
    return b"".join(struct.pack("<I", len(n)) + n + _encode(k, v) for n, k, v in named if v is not None)


def _reference(table: pa.Table) -> list[str]:
    return [
        xxhash.xxh3_128_hexdigest(_cells([(f.name, f.type, row[f.name]) for f in table.schema]))
        for row in table.to_pylist()
    ]


_scalars: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.date32(), st.dates()),
    (
        pa.timestamp("us", "UTC"),
        st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1)).map(lambda d: d.replace(tzinfo=_utc)),
    ),
    (pa.string(), st.text(max_size=6)),
    (pa.large_string(), st.text(max_size=6)),
    (pa.binary(), st.binary(max_size=6)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.null(), st.none()),
]
_kinds = st.recursive(
    st.sampled_from([kind for kind, _ in _scalars]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.tuples(inner, st.integers(1, 3)).map(lambda p: pa.list_(*p)),
        st.lists(inner, min_size=1, max_size=3).map(lambda ks: pa.struct([(f"f{i}", k) for i, k in enumerate(ks)])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=4,
)


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_struct(kind):
        found: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: _values(f.type) for f in kind})
    elif types.is_map(kind):
        found = st.dictionaries(st.text(max_size=3), _values(kind.item_type), max_size=3).map(lambda d: list(d.items()))
    elif types.is_fixed_size_list(kind):
        found = st.lists(_values(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    elif types.is_nested(kind):
        found = st.lists(_values(kind.value_type), max_size=3)
    else:
        found = next(values for scalar, values in _scalars if scalar == kind)
    return st.none() | found


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of any types, with nulls, empty and all-null columns."""
    rows = draw(st.integers(0, 6))
    kinds = draw(st.lists(_kinds, min_size=1, max_size=3))
    columns = {
        f"c{i}": pa.array(draw(st.lists(_values(kind), min_size=rows, max_size=rows)), kind)
        for i, kind in enumerate(kinds)
    }
    return pa.table(columns)


@settings(max_examples=250, deadline=None)
@given(tables(), st.data())
def test_any_slice_of_any_table_is_hashed_as_the_reference_says(table: pa.Table, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(table)))
    piece = table.slice(start, data.draw(st.integers(0, len(table) - start)))
    assert row_hash_hex(piece).to_pylist() == _reference(piece)
    assert row_hash_hex(table).to_pylist()[start : start + len(piece)] == _reference(piece)


@settings(max_examples=60, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_order_of_rows_and_columns_and_the_cut_into_parts_do_not_matter(table: pa.Table, random: Any) -> None:
    whole = content_hash(table)
    order = list(range(len(table)))
    random.shuffle(order)
    names = list(table.column_names)
    random.shuffle(names)
    assert (
        content_hash(pa.Table.from_pylist([table.to_pylist()[i] for i in order], table.schema).select(names)) == whole
    )
    cut = random.randint(0, len(table))
    assert add_hashes([content_hash(table.slice(0, cut)), content_hash(table.slice(cut))]) == whole
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert content_hash(chunked) == whole


@settings(max_examples=60, deadline=None)
@given(tables())
def test_a_column_of_nulls_does_not_matter(table: pa.Table) -> None:
    assert content_hash(table.append_column("zzz", pa.nulls(len(table), pa.string()))) == content_hash(table)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.array([1, -2, None], pa.int8()), pa.int64()),
        (pa.array([1, 2, None], pa.uint32()), pa.int64()),
        (pa.array([1, 2, None], pa.uint64()), pa.int64()),
        (pa.array([1.5, math.nan, None], pa.float32()), pa.float64()),
        (pa.array(["a", None]), pa.large_string()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array([dt.time(1), None], pa.time32("s")), pa.time64("us")),
        (pa.array([dt.timedelta(1), None], pa.duration("s")), pa.duration("us")),
        (pa.array([decimal.Decimal("1.5"), None], pa.decimal128(4, 1)), pa.decimal128(20, 6)),
        (pa.array([decimal.Decimal("0.0"), decimal.Decimal("100")], pa.decimal128(4, 1)), pa.decimal128(20, 3)),
    ],
)
def test_to_widen_a_type_does_not_change_a_hash(narrow: pa.Array, wide: pa.DataType) -> None:
    assert _column_hashes(narrow) == _column_hashes(narrow.cast(wide))


@settings(max_examples=200, deadline=None)
@given(tables())
def test_distinct_rows_have_distinct_hashes(table: pa.Table) -> None:
    encoded = {_cells([(f.name, f.type, row[f.name]) for f in table.schema]) for row in table.to_pylist()}
    assert len(set(row_hash_hex(table).to_pylist())) == len(encoded)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": ["xy"], "b": ["z"]}, {"a": ["x"], "b": ["yz"]}),
        ({"a": [None], "b": ["x"]}, {"a": ["x"], "b": [None]}),
        ({"a": [""]}, {"a": [None]}),
        ({"a": ["1"]}, {"a": [1]}),
        ({"a": [1]}, {"a": [1.0]}),
        ({"a": [True]}, {"a": [1]}),
        ({"a": [[]]}, {"a": [[None]]}),
        ({"a": [[[1], []]]}, {"a": [[[], [1]]]}),
        ({"a": [["a", "b"]]}, {"a": [["ab"]]}),
        ({"a": [{"x": 1, "y": None}]}, {"a": [{"x": None, "y": 1}]}),
        ({"a": pa.array([1], pa.duration("s"))}, {"a": pa.array([1], pa.duration("ms"))}),
        ({"ab": ["x"]}, {"a": ["x"]}),
    ],
)
def test_values_that_look_alike_differ(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert content_hash(pa.table(left)) != content_hash(pa.table(right))


def test_a_slice_of_a_column_of_lists_does_not_cost_the_whole_column() -> None:
    lists = pa.table({"x": pa.array([list(range(20))] * 20_000)})
    pieces = [lists.slice(start, 100) for start in range(0, 20_000, 100)]
    import time

    start = time.perf_counter()
    whole = content_hash(lists)
    once = time.perf_counter() - start
    start = time.perf_counter()
    assert add_hashes([content_hash(piece) for piece in pieces]) == whole
    # 200 times the whole column would be 200 times as slow; a call's own overhead is some milliseconds
    assert time.perf_counter() - start < 20 * once + 2.0


def test_no_rows_and_no_columns_hash_to_zero_and_to_the_empty_row() -> None:
    assert content_hash(pa.table({"x": pa.array([], pa.string())})) == "0" * 32
    assert row_hashes(pa.table({"x": pa.array([], pa.string())})).shape == (0, 2)
    assert _column_hashes(pa.nulls(1)) == [xxhash.xxh3_128_hexdigest(b"")]


def test_the_sum_is_modulo_two_to_the_128th_and_exact() -> None:
    largest = np.full((3, 2), 2**64 - 1, np.uint64)
    assert hash_sum(largest) == (3 * (2**128 - 1)) % 2**128
    assert add_hashes(["f" * 32, "0" * 31 + "1"]) == "0" * 32


def test_only_the_named_columns_count() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert (row_hashes(table, ["a"]) == row_hashes(table.select(["a"]))).all()


def test_settings_hash_ignores_the_order_of_keys_and_refuses_nan() -> None:
    assert value_hash({"a": 1, "b": 2}) == value_hash({"b": 2, "a": 1})
    assert value_hash([1]) != value_hash([1.5])
    with pytest.raises(ValueError, match="not JSON compliant"):
        value_hash(math.nan)


def test_texts_are_normalised_for_identity() -> None:
    assert normalise("  cafe\u0301\n\t x ") == "café x"


def test_random_numbers_depend_on_id_seed_and_purpose_alone() -> None:
    ids = [f"q{i}" for i in range(10_000)]
    first = uniform(ids, 0, "a")
    assert (uniform(ids[::-1], 0, "a") == first[::-1]).all()
    assert (first >= 0).all()
    assert (first < 1).all()
    assert abs(first.mean() - 0.5) < 0.01
    assert np.isclose(first.std(), math.sqrt(1 / 12), atol=0.005)
    for other in (uniform(ids, 1, "a"), uniform(ids, 0, "b")):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05

"""Readers: good rows with their numbers, bad ones as rejects, and whole files that cannot be read."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import plugins
from gradatim.tasks.ingest.examples import Ingested
from gradatim.tasks.ingest.reading import Reject
from gradatim.tasks.ingest.sources import shards

Read = Callable[..., tuple[pa.Table, list[int], list[Reject]]]


def test_the_four_formats_are_plug_ins() -> None:
    assert set(plugins("reader")) == {"arrow", "csv", "jsonl", "parquet"}


# --- CSV


def test_csv_with_bom_crlf_quotes_and_newlines_inside_them(read: Read) -> None:
    table, rows, rejects = read("a.csv", b'\xef\xbb\xbfid,text\r\n1,"a, ""b""\r\nc"\r\n2,d\r\n')
    assert table.to_pylist() == [{"id": 1, "text": 'a, "b"\r\nc'}, {"id": 2, "text": "d"}]
    assert (rows, rejects) == ([0, 1], [])


def test_csv_tells_an_empty_text_from_no_value(read: Read) -> None:
    table, _, _ = read("a.csv", b'a,b\n"",1\n,2\n')
    assert table["a"].to_pylist() == ["", None]


def test_csv_types_keep_what_is_no_number(read: Read) -> None:
    content = b"zip,phone,n,x,ok,big,mixed,none\n007,+4412,1,1.5,True,9223372036854775808,1,\n010,+33,-2,2,FALSE,1,a,\n"
    table, _, _ = read("a.csv", content)
    assert table.to_pylist()[0] == {
        "zip": "007",
        "phone": "+4412",
        "n": 1,
        "x": 1.5,
        "ok": True,
        "big": "9223372036854775808",
        "mixed": "1",
        "none": None,
    }


def test_csv_nan_is_null_among_numbers_and_a_word_among_words(read: Read) -> None:
    table, _, _ = read("a.csv", b"x,n,w\nNaN,NA,NA\n1.5,3,b\n")
    assert table.to_pylist() == [{"x": None, "n": None, "w": "NA"}, {"x": 1.5, "n": 3, "w": "b"}]


def test_csv_text_columns_stay_as_they_stand(read: Read) -> None:
    table, _, _ = read("a.csv", b"id,x\n1.50,1.50\n2,2\n", text_columns=frozenset({"id"}))
    assert table.to_pylist() == [{"id": "1.50", "x": 1.5}, {"id": "2", "x": 2.0}]


def test_csv_ragged_rows_are_rejected_with_their_number_and_the_others_keep_theirs(read: Read) -> None:
    table, rows, rejects = read("a.csv", b"a,b\n1,2\n3\n\n4,5,6\n7,8\n")
    assert table["a"].to_pylist() == [1, 7]
    assert rows == [0, 3]
    assert [(r.row, r.reason, r.value) for r in rejects] == [
        (1, "1 fields, the header has 2", "3"),
        (2, "3 fields, the header has 2", "4,5,6"),
    ]


def test_csv_row_numbers_hold_over_many_blocks(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.ingest.read_csv.BLOCK", 256)
    lines = [f"{i},x" if i % 7 else f"{i}" for i in range(500)]
    table, rows, rejects = read("a.csv", ("n,w\n" + "\n".join(lines)).encode())
    assert table["n"].to_pylist() == rows == [i for i in range(500) if i % 7]
    assert [r.row for r in rejects] == [i for i in range(500) if i % 7 == 0]


def test_csv_quote_that_never_closes_is_refused(read: Read) -> None:
    with pytest.raises(DataRefused, match="never closed"):
        read("a.csv", b'a,b\n1,"x\n2,y\n3,z\n')


def test_csv_in_another_encoding_names_the_byte(read: Read) -> None:
    content = "a,b\n1,é\n".encode("latin-1")
    with pytest.raises(DataRefused, match="offset 6") as error:
        read("a.csv", content)
    assert "encoding" in error.value.remedy
    assert read("a.csv", content, encoding="latin-1")[0]["b"].to_pylist() == ["é"]
    assert read("a.csv", "a\nb\n".encode("utf-16"), encoding="utf-16")[0].to_pylist() == [{"a": "b"}]


def test_a_byte_offset_counts_over_chunks(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.ingest.sources.CHUNK", 7)
    good = "a,b\n" + "1,éé\n" * 20
    assert read("a.csv", good.encode())[0]["b"].to_pylist() == ["éé"] * 20
    with pytest.raises(DataRefused, match=f"offset {len(good.encode())} "):
        read("a.csv", good.encode() + b"\xff,1\n")


def test_an_unknown_encoding_is_wrong_use(read: Read) -> None:
    with pytest.raises(UsageError, match="utf-99"):
        read("a.csv", b"a\n1\n", encoding="utf-99")


def test_csv_without_rows_or_bytes_has_no_rows(read: Read) -> None:
    assert len(read("a.csv", b"")[0]) == 0
    table, rows, rejects = read("b.csv", b"a,b\n")
    assert (table.schema.names, rows, rejects) == (["a", "b"], [], [])


def test_csv_two_columns_of_one_name_are_refused_and_one_without_name_gets_one(read: Read) -> None:
    with pytest.raises(DataRefused, match="two columns are called 'a'"):
        read("a.csv", b"a,a\n1,2\n")
    assert read("b.csv", b",a\n0,2\n")[0].schema.names == ["column_1", "a"]


def test_a_header_may_hold_quotes_commas_and_line_breaks(read: Read) -> None:
    table, rows, rejects = read("a.csv", b'"a ""x""","b, c","d\ne"\n1,2,3\n4\n5,6,7\n')
    assert table.to_pylist() == [{'a "x"': 1, "b, c": 2, "d\ne": 3}, {'a "x"': 5, "b, c": 6, "d\ne": 7}]
    assert (rows, [r.row for r in rejects]) == ([0, 2], [1])


def test_tsv_and_gzip(read: Read) -> None:
    assert read("a.tsv.gz", gzip.compress(b"a\tb\n1\tx,y\n"))[0].to_pylist() == [{"a": 1, "b": "x,y"}]
    with pytest.raises(DataRefused, match="gzip"):
        read("b.csv.gz", gzip.compress(b"a\n" + b"1\n" * 1000)[:-6])


# --- JSON Lines


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": Infinity}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}", "not JSON"),
        (b"[1]", "the line is no JSON object"),
        (b"1", "the line is no JSON object"),
        (b'{"a": 1}{"a": 2}', "not JSON"),
        (b'{"a": 1},{"a": 2}', "not JSON"),
        (b'{"a": 1', "not JSON"),
    ],
)
def test_json_is_read_strictly_line_by_line(read: Read, line: bytes, reason: str) -> None:
    table, rows, rejects = read("a.jsonl", b'{"a": 1}\n\n' + line + b'\r\n{"a": 3}')
    assert table["a"].to_pylist() == [1, 3]
    assert rows == [0, 2]
    assert [r.row for r in rejects] == [1]
    assert rejects[0].reason.startswith(reason)
    assert len(rejects[0].value or "") <= 120


def test_json_bom_crlf_missing_keys_and_the_last_of_two_keys(read: Read) -> None:
    table, _, _ = read("a.jsonl", b'\xef\xbb\xbf{"a": 1, "a": 2}\r\n{"b": "x"}\r\n{}\r\n')
    assert table.to_pylist() == [{"a": 2, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


def test_json_mixed_types_become_text_and_big_integers_keep_their_digits(read: Read) -> None:
    rows = [
        b'{"m": 1, "big": 36893488147419103232, "n": 1, "f": 1e300}',
        b'{"m": "x", "big": 5, "n": 2.5, "f": 2}',
        b'{"m": [1, {"b": 1, "a": 2.0}], "big": null, "n": null, "f": null}',
        b'{"m": true, "big": 36893488147419103233, "n": 3, "f": 1}',
    ]
    table, _, _ = read("a.jsonl", b"\n".join(rows))
    assert table["m"].to_pylist() == ["1", "x", '[1,{"a":2.0,"b":1}]', "true"]
    assert table["big"].to_pylist() == ["36893488147419103232", "5", None, "36893488147419103233"]
    assert table["n"].to_pylist() == [1.0, 2.5, None, 3.0]
    assert table["f"].to_pylist() == [1e300, 2.0, None, 1.0]


def test_json_types_settle_over_batches(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.ingest.sources.CHUNK", 64)
    found = [{"n": i, "s": {"k": i}, "w": "a"} for i in range(20)] + [{"n": 0.5, "s": {"k": 1, "l": "z"}, "w": 7}]
    table, rows, _ = read("a.jsonl", "\n".join(map(json.dumps, found)).encode())
    assert rows == list(range(21))
    assert table["n"].to_pylist() == [*map(float, range(20)), 0.5]
    assert table["s"].to_pylist()[-2:] == [{"k": 19, "l": None}, {"k": 1, "l": "z"}]
    assert table["w"].to_pylist()[-1] == "7"


def test_one_json_array_is_answered_with_the_remedy(read: Read) -> None:
    for content in (b'[{"a": 1}, {"a": 2}]', b'[\n  {"a": 1}\n]'):
        with pytest.raises(DataRefused, match="one JSON array") as error:
            read("a.json", content)
        assert "jq" in error.value.remedy


def test_empty_objects_and_lists_can_be_held(read: Read) -> None:
    table, _, _ = read("a.jsonl", b'{"a": {}, "b": []}\n{"a": {}, "b": []}\n')
    assert table.to_pylist() == [{"a": "{}", "b": []}] * 2


def test_keys_that_are_values_are_refused(read: Read) -> None:
    lines = b"\n".join(b'{"k%d": 1}' % i for i in range(2500))
    with pytest.raises(DataRefused, match="different keys"):
        read("a.jsonl", lines)


# --- Parquet and Arrow


FRAME = pl.DataFrame(
    {"id": ["a", "b"], "x": [1.5, float("nan")], "n": [1, None], "l": [[1], []], "c": ["u", "u"]}
).cast({"c": pl.Categorical})


def _bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", _bytes(FRAME.write_parquet)),
        ("a.arrow", _bytes(FRAME.write_ipc)),
        ("a.feather", _bytes(FRAME.write_ipc)),
        ("a.ipc", _bytes(FRAME.write_ipc_stream)),
    ],
)
def test_parquet_and_arrow_values_arrive_nan_as_null(read: Read, name: str, content: bytes) -> None:
    table, rows, _ = read(name, content)
    assert rows == [0, 1]
    assert table.to_pylist() == [
        {"id": "a", "x": 1.5, "n": 1, "l": [1], "c": "u"},
        {"id": "b", "x": None, "n": None, "l": [], "c": "u"},
    ]
    for cut in (len(content) // 2, len(content) - 10, 3):
        with pytest.raises(DataRefused, match="truncated") as error:
            read(name, content[:cut])
        assert name in str(error.value)


def test_types_that_a_table_cannot_hold_become_ones_it_can(read: Read) -> None:
    table = pa.table(
        {
            "u": pa.array([2**64 - 1], pa.uint64()),
            "t": pa.array([1_000_000_001], pa.timestamp("ns")),
            "h": pa.array([1.5], pa.float16()),
            "f": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "b": pa.array([b"x"], pa.binary(1)),
            "z": pa.nulls(1),
        }
    )
    found, _, _ = read("a.arrow", _bytes(lambda buffer: pyarrow.feather.write_feather(table, buffer)))
    assert [str(kind) for kind in found.schema.types] == [
        "decimal128(20, 0)",
        "timestamp[us, tz=UTC]",
        "float",
        "list<item: float>",
        "binary",
        "string",
    ]
    assert int(found["u"][0].as_py()) == 2**64 - 1


def test_bytes_count_as_the_text_that_they_hold(ingest: Callable[..., Ingested]) -> None:
    frame = pl.DataFrame({"id": [b"q1", b"q2", b"\xff\x00"], "input": ["take é".encode(), None, b"\xfe"]})
    found = ingest({"a.parquet": frame}, id="id", input="input").table
    assert found.select("example_id", "input").rows() == [("0xff00", "0xfe"), ("q1", "take é"), ("q2", None)]


# --- sources


def test_folders_and_globs_are_listed_in_one_order_and_hidden_files_left_out(tmp_path: Path) -> None:
    for name in ("b/2.csv", "a/1.jsonl", "a/.hidden.csv", "_tmp/3.csv", "readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    assert [s.uri for s in shards(".", tmp_path)] == ["a/1.jsonl", "b/2.csv"]
    assert [s.uri for s in shards("*/*.csv", tmp_path)] == ["_tmp/3.csv", "b/2.csv"]
    assert [s.uri for s in shards(tmp_path / "b", tmp_path)] == ["b/2.csv"]


def test_a_shard_hash_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a\n1\n")
    (tmp_path / "b.csv").write_bytes(b"a\n1\n")
    (tmp_path / "c.csv").write_bytes(b"a\n2\n")
    first, second, third = shards(".", tmp_path)
    assert first.content_hash == second.content_hash != third.content_hash
    assert (first.size, len(first.content_hash)) == (4, 32)


def test_what_is_not_there_is_answered_with_the_nearest(tmp_path: Path, read_path: Read) -> None:
    (tmp_path / "items.jsonl").write_text("{}")
    with pytest.raises(UsageError, match=r"items\.jsonl"):
        shards("itmes.jsonl", tmp_path)
    (tmp_path / "items.dat").write_text("a\n1\n")
    with pytest.raises(UsageError, match=r"\.dat"):
        shards("items.dat", tmp_path)
    assert read_path(tmp_path / "items.dat", format="csv")[0].to_pylist() == [{"a": 1}]
    with pytest.raises(UsageError, match="address s3"):
        shards("s3://bucket/key", tmp_path)
    with pytest.raises(UsageError, match="no data file"):
        shards("*.parquet", tmp_path)

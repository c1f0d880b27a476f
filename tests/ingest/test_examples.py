"""From files to the table `examples`: mapping, identity, conservation, invariance, errors."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, GradatimError, UsageError
from gradatim.schemas.recipe import Examples
from gradatim.schemas.tables import TABLES
from gradatim.tasks.ingest.examples import (
    IngestCounts,
    Ingested,
    examples_schema,
    map_shard,
    read_examples,
    read_options,
)
from gradatim.tasks.ingest.finish import contract_dtypes
from gradatim.tasks.ingest.reading import shard_schema
from gradatim.tasks.ingest.sources import shards

Ingest = Callable[..., Ingested]
QA: dict[str, Any] = {"id": "id", "input": "question", "output": "answer"}


def lines(*rows: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, rows))


def test_columns_are_mapped_and_the_payload_kept(ingest: Ingest) -> None:
    row = {
        "id": 7,
        "question": "How  many\tare left?",
        "answer": "3 of 4",
        "n_steps": 2,
        "kind": "count",
        "weight": 0.5,
        "parse": ["a", ["b", "c"]],
        "when": "2024-05-01T10:00:00+02:00",
        "site": 12,
    }
    found = ingest(
        {"items.jsonl": lines(row)},
        **QA,
        structure="parse",
        created_at="when",
        domain="site",
        factors=["n_steps", "kind", "weight"],
    )
    (mapped,) = found.table.to_dicts()
    assert found.table.columns[: len(contract_dtypes())] == TABLES["examples"].schema.names
    assert {k: mapped[k] for k in ("example_id", "source_uri", "source_row", "input", "output", "domain")} == {
        "example_id": "7",
        "source_uri": "items.jsonl",
        "source_row": 0,
        "input": "How  many\tare left?",
        "output": "3 of 4",
        "domain": "12",
    }
    assert (mapped["length_input"], mapped["length_output"], mapped["length_unit"]) == (4, 3, "words")
    assert list(mapped["factors"].items()) == [("kind", "count"), ("n_steps", "2"), ("weight", "0.5")]
    assert [(n["node"], n["parent"], n["label"]) for n in mapped["structure"]] == [
        (0, -1, "a"),
        (1, 0, "b"),
        (2, 1, "c"),
    ]
    assert mapped["created_at"] == datetime.datetime(2024, 5, 1, 8, tzinfo=datetime.UTC)
    assert {k: mapped[k] for k in ("id", "question", "n_steps", "weight", "site")} == {
        k: row[k] for k in ("id", "question", "n_steps", "weight", "site")
    }


def test_the_arrow_table_has_the_contract_s_types(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines({"id": 1, "question": "q", "answer": "a", "f": 1, "t": "(a b)"}))
    section = Examples.model_validate({"from": "a.jsonl", **QA, "factors": ["f"], "structure": "t"})
    (shard,) = shards("a.jsonl", tmp_path)
    schema = examples_schema({shard.uri: shard_schema(shard, read_options(section))}, section)
    (part,) = map_shard(shard, section, schema)
    contract = TABLES["examples"].schema
    assert [part.table.schema.field(f.name).type for f in contract] == [f.type for f in contract]
    assert part.table.schema.metadata == contract.metadata
    assert part.table.column("factors").to_pylist() == [[("f", "1")]]
    part.table.validate(full=True)


def test_parts_are_cut_by_rows_and_sorted_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.ingest.sources.CHUNK", 2_000)
    rows = [{"id": f"{i * 7919 % 1000:03}", "question": "q", "answer": "a"} for i in range(1000)]
    (tmp_path / "a.jsonl").write_text(lines(*rows) + "\n[1]\n")
    section = Examples.model_validate({"from": "a.jsonl", **QA})
    (shard,) = shards("a.jsonl", tmp_path)
    schema = examples_schema({shard.uri: shard_schema(shard, read_options(section))}, section)
    parts = list(map_shard(shard, section, schema, part_rows=300))
    assert [p.index for p in parts] == list(range(len(parts)))
    assert len(parts) >= 3
    assert sum(p.rows_in for p in parts) == 1001
    for p in parts:
        ids = p.table.column("example_id").to_pylist()
        assert ids == sorted(ids)
        assert p.rows_in == len(p.table) + len(p.rejects)
    assert sorted(r for p in parts for r in p.table.column("source_row").to_pylist()) == list(range(1000))


def test_a_column_with_a_contract_name_fills_it_unless_another_is_mapped(ingest: Ingest) -> None:
    row = {"id": 1, "question": "q", "answer": "a", "group": "own", "level": 3, "template": "t", "content_hash": "mine"}
    (mapped,) = ingest({"a.jsonl": lines(row)}, **QA, group="template").table.to_dicts()
    assert mapped["group"] == "t"
    assert mapped["given_group"] == "own"
    assert (mapped["level"], mapped["given_level"]) == ("3", 3)
    assert mapped["template"] == "t"
    assert "given_template" not in mapped
    assert mapped["given_content_hash"] == "mine"
    assert len(mapped["content_hash"]) == 32


def test_names_that_differ_in_case_alone_get_a_number(ingest: Ingest) -> None:
    table = ingest(
        {"a.jsonl": lines({"id": 1, "question": "q", "answer": "a", "Input": "x", "n": 1, "N": 2})}, **QA
    ).table
    assert table.select("given_Input", "n", "N_2").row(0) == ("x", 1, 2)


def test_characters_are_counted_on_request(ingest: Ingest) -> None:
    table = ingest({"a.jsonl": lines({"id": 1, "question": "é a", "answer": None})}, **QA, unit="characters").table
    assert table.select("length_input", "length_output", "length_unit").row(0) == (3, None, "characters")


# --- identity


def test_without_an_id_the_normalised_input_is_hashed_and_nothing_else(ingest: Ingest) -> None:
    rows = [
        {"question": "What is  1?", "answer": "1", "n": 1},
        {"question": " What is 1?\n", "answer": "2", "n": 5},
        {"question": "Else?", "answer": "1", "n": 1},
        {"question": "  ", "answer": "1", "n": 1},
    ]
    found = ingest({"a.jsonl": lines(*rows)}, input="question", output="answer", on_conflict="first")
    assert len(found.table) == 2
    assert found.rejects["reason"].to_list() == [
        "the id comes with 2 different contents; the first stays",
        "the id is empty",
    ]
    again = ingest({"b.csv": "question,answer\nElse?,9\n"}, "b.csv", input="question", output="answer")
    assert again.table["example_id"][0] in found.table["example_id"].to_list()
    named = ingest({"c.csv": "q,a\nElse?,9\n"}, "c.csv", input="q", output="a")
    assert named.table["example_id"].to_list() == again.table["example_id"].to_list()


def test_identity_columns_of_choice_make_the_id(ingest: Ingest) -> None:
    rows = [{"q": "a", "lang": "en", "n": 1}, {"q": "a", "lang": "fr", "n": 1}, {"q": "a", "lang": None, "n": 1}]
    found = ingest({"a.jsonl": lines(*rows)}, input="q", identity=["q", "lang"])
    assert found.table["example_id"].n_unique() == 3


def test_numbers_as_ids_are_one_text_in_every_format(ingest: Ingest) -> None:
    frame = pl.DataFrame({"id": [1.0, 2.0], "question": ["a", "b"], "answer": ["c", "d"]})
    for name, content in {
        "a.parquet": frame,
        "b.parquet": frame.cast({"id": pl.Int32}),
        "c.jsonl": frame.cast({"id": pl.Int64}).write_ndjson(),
        "d.csv": frame.cast({"id": pl.Int64}).write_csv(),
    }.items():
        assert ingest({name: content}, name, **QA).table["example_id"].to_list() == ["1", "2"], name


def test_big_ids_and_leading_zeros_keep_their_digits(ingest: Ingest) -> None:
    rows = '{"id": 36893488147419103232, "question": "a"}\n{"id": 36893488147419103233, "question": "b", "answer": "x"}'
    assert ingest({"a.jsonl": rows}, **QA).table["example_id"].to_list() == [
        "36893488147419103232",
        "36893488147419103233",
    ]
    found = ingest({"b.csv": "id,question,answer\n007,a,1.50\n7,b,2\n"}, "b.csv", **QA).table
    assert found.select("example_id", "output").rows() == [("007", "1.50"), ("7", "2")]


def test_null_and_empty_ids_are_rejected_equal_rows_collapse_and_conflicts_follow_the_rule(ingest: Ingest) -> None:
    rows = [
        {"id": "a", "question": "1", "answer": "x"},
        {"id": "a", "question": "1", "answer": "x"},
        {"id": None, "question": "2", "answer": "x"},
        {"id": " ", "question": "2", "answer": "x"},
        {"id": "b", "question": "1", "answer": "x"},
        {"id": "b", "question": "1", "answer": "y"},
    ]
    expected = {"reject": ({"a"}, None, 4), "first": ({"a", "b"}, "x", 3), "last": ({"a", "b"}, "y", 3)}
    for rule, (ids, answer, rejected) in expected.items():
        found = ingest({"a.jsonl": lines(*rows)}, **QA, on_conflict=rule)
        assert set(found.table["example_id"]) == ids
        assert found.counts.redelivered == 1
        assert found.counts.rejected == len(found.rejects) == rejected
        if answer:
            assert found.table.filter(pl.col("example_id") == "b")["output"].to_list() == [answer]


def test_the_content_hash_sees_all_that_was_given_and_no_place(ingest: Ingest) -> None:
    row = {"id": "a", "question": "1", "answer": "x", "n": 1}
    one = ingest({"a.jsonl": lines(row)}, "a.jsonl", **QA).table
    moved = ingest({"b.jsonl": "\n[]\n" + lines(row)}, "b.jsonl", **QA).table
    assert one["content_hash"].to_list() == moved["content_hash"].to_list()
    assert moved["source_row"].to_list() == [1]
    for changed in ({"n": 2}, {"answer": "y"}, {"extra": True}):
        other = ingest({"c.jsonl": lines(row | changed)}, "c.jsonl", **QA).table
        assert other["content_hash"].to_list() != one["content_hash"].to_list()
    wider = ingest({"d.jsonl": lines(row | {"n": 1.0, "new": None})}, "d.jsonl", **QA).table
    assert wider["content_hash"].to_list() == one["content_hash"].to_list()


def test_rows_are_new_same_changed_or_vanished_against_the_version_before(ingest: Ingest, tmp_path: Path) -> None:
    first = ingest({"a.jsonl": lines(*({"id": i, "question": "q", "answer": "a"} for i in range(4)))}, **QA)
    (tmp_path / "a.jsonl").write_text(
        lines(*({"id": i, "question": "q", "answer": "b" if i == 2 else "a"} for i in range(1, 6)))
    )
    section = Examples.model_validate({"from": "a.jsonl"} | QA)
    second = read_examples(section, base=tmp_path, previous=first.table)
    counts = second.counts
    assert (counts.new, counts.same, counts.changed, counts.vanished) == (2, 2, 1, 1)
    assert str(counts) == "rows in 5 = 2 same + 2 new + 1 changed + 0 re-delivered + 0 rejected; 1 vanished"


# --- laws

VALUES = {
    "id": st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "d"])),
    "question": st.one_of(st.none(), st.text('ab \n",é', max_size=6)),
    "answer": st.one_of(st.none(), st.text("xy", max_size=2)),
    "n": st.one_of(st.none(), st.integers(-5, 5)),
}
TABLE = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=12)
QUIET = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUIET
@given(st.lists(TABLE, min_size=1, max_size=3), st.sampled_from(["first", "last", "reject"]), st.booleans())
def test_no_row_is_lost(tmp_path_factory: pytest.TempPathFactory, tables: list[Any], rule: str, by_id: bool) -> None:
    folder = tmp_path_factory.mktemp("shards")
    for place, rows in enumerate(tables):
        (folder / f"{place}.jsonl").write_text(lines(*rows) + "\nnot json\n")
    section: dict[str, Any] = {"from": ".", "input": "question", "on_conflict": rule}
    found = read_examples(Examples.model_validate(section | ({"id": "id"} if by_id else {})), base=folder)
    sent = sum(len(rows) + 1 for rows in tables)
    assert found.counts.rows_in == sent
    assert len(found.table) + len(found.rejects) + found.counts.redelivered == sent
    assert found.table["example_id"].is_unique().all()
    places = pl.concat([f.select("source_uri", "source_row") for f in (found.table, found.rejects)])
    assert places.is_unique().all()


@QUIET
@given(TABLE, st.sampled_from(["first", "last", "reject"]), st.integers(0, 1000))
def test_the_cut_into_shards_and_their_order_change_no_content(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], rule: str, seed: int
) -> None:
    # one content an id, so that the place of a row decides nothing
    unique = list({str(row["id"]): row for row in rows}.values())
    shuffled = random.Random(seed).sample(unique, len(unique))
    results = []
    for part, size in ((unique, 100), (shuffled, 2), (shuffled + unique, 3)):
        folder = tmp_path_factory.mktemp("shards")
        for i in range(0, len(part), size):
            (folder / f"{i:03}.jsonl").write_text(lines(*part[i : i + size]))
        section = Examples.model_validate({"from": ".", "id": "id", "input": "question", "on_conflict": rule})
        table = read_examples(section, base=folder).table
        results.append(table.select("example_id", "input", "content_hash", "length_input"))
    assert results[0].equals(results[1])
    assert results[0].equals(results[2])


@QUIET
@given(
    st.lists(
        st.tuples(
            st.text("ab c\",\n'é日", min_size=1, max_size=5),
            st.one_of(st.none(), st.text('ab ",\n', max_size=5)),
            st.integers(-(2**63), 2**63 - 1),
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_every_format_gives_the_same_content_hashes(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("formats")
    frame = pl.DataFrame(
        rows, schema={"q": pl.String, "a": pl.String, "n": pl.Int64, "x": pl.Float64, "ok": pl.Boolean}, orient="row"
    )
    frame = frame.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    # text columns of the payload would be typed by a CSV: these two are mapped, so they stay
    frame.write_csv(folder / "a.csv", quote_style="non_numeric")
    frame.write_ndjson(folder / "a.jsonl")
    frame.write_parquet(folder / "a.parquet")
    frame.write_ipc(folder / "a.arrow")
    hashes = []
    for name in ("a.parquet", "a.jsonl", "a.csv", "a.arrow"):
        section = Examples.model_validate({"from": name, "id": "id", "input": "q", "output": "a"})
        found = read_examples(section, base=folder)
        hashes.append(found.table.select("example_id", "input", "output", "content_hash").rows())
    assert hashes[1:] == hashes[:1] * 3


def test_conservation_is_asserted() -> None:
    with pytest.raises(GradatimError, match="add up"):
        IngestCounts(rows_in=3, published=1, rejected=1, redelivered=0, new=1)
    with pytest.raises(GradatimError, match="add up"):
        IngestCounts(rows_in=2, published=1, rejected=1, redelivered=0, new=0)


# --- shards that differ


def test_a_column_that_a_shard_lacks_is_null_there(ingest: Ingest) -> None:
    files = {"a.jsonl": lines({"id": 1, "question": "q", "answer": "a"}), "b.csv": "id,question,answer,n\n2,q,a,5\n"}
    table = ingest(files, **QA).table
    assert table.select("example_id", "n").rows() == [("1", None), ("2", 5)]


def test_types_widen_from_integer_to_number_to_text(ingest: Ingest) -> None:
    files = {
        "a.csv": "id,question,answer,n,m\n1,q,a,1,1\n",
        "b.csv": "id,question,answer,n,m\n2,q,a,1.5,x\n",
        "c.csv": "id,question,answer,n,m\n3,q,a,,\n",
    }
    table = ingest(files, **QA).table
    assert table.select("n", "m").rows() == [(1.0, "1"), (1.5, "x"), (None, None)]


def test_widening_by_a_new_shard_changes_no_old_row(ingest: Ingest) -> None:
    old = {"a.csv": "id,question,answer,n\n1,q,a,1\n"}
    before = ingest(old, **QA).table
    after = ingest(old | {"b.csv": "id,question,answer,n\n2,q,a,x\n"}, **QA).table
    assert before["content_hash"][0] == after.filter(pl.col("example_id") == "1")["content_hash"][0]


def test_types_that_do_not_meet_are_refused_naming_both_files(ingest: Ingest) -> None:
    files = {
        "a.jsonl": lines({"id": 1, "question": "q", "answer": "a", "v": [1]}),
        "b.csv": "id,question,answer,v\n2,q,a,5\n",
    }
    with pytest.raises(DataRefused, match=r"'v' is list<.*> in a\.jsonl") as error:
        ingest(files, **QA)
    assert str(error.value).startswith("b.csv")


def test_an_empty_csv_column_takes_the_nested_type_of_another_shard(ingest: Ingest) -> None:
    files = {"a.jsonl": lines({"id": 1, "question": "q", "v": [1]}), "b.csv": "id,question,v\n2,q,\n"}
    assert ingest(files, id="id", input="question").table["v"].to_list() == [[1], None]


def test_unsigned_and_signed_ids_meet_without_loss(ingest: Ingest) -> None:
    big = 2**63 + 1
    files = {
        "a.parquet": pl.DataFrame({"id": pl.Series([big], dtype=pl.UInt64), "q": ["x"]}),
        "b.parquet": pl.DataFrame({"id": pl.Series([-5], dtype=pl.Int64), "q": ["y"]}),
    }
    assert set(ingest(files, id="id", input="q").table["example_id"]) == {str(big), "-5"}


def test_integers_that_a_number_cannot_hold_are_refused_not_rounded(ingest: Ingest) -> None:
    files = {
        "a.parquet": pl.DataFrame({"id": ["1"], "n": [2**53 + 1]}),
        "b.parquet": pl.DataFrame({"id": ["2"], "n": [0.5]}),
    }
    with pytest.raises(DataRefused, match=r"a\.parquet: the column 'n' does not become double"):
        ingest(files, id="id")


def test_long_rows_make_parts_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.ingest.examples.PART_BYTES", 50_000)
    monkeypatch.setattr("gradatim.tasks.ingest.sources.CHUNK", 10_000)
    (tmp_path / "a.jsonl").write_text(lines(*({"id": i, "question": "x" * 1000} for i in range(100))))
    section = Examples.model_validate({"from": "a.jsonl", "id": "id", "input": "question"})
    (shard,) = shards("a.jsonl", tmp_path)
    schema = examples_schema({shard.uri: shard_schema(shard, read_options(section))}, section)
    sizes = [p.rows_in for p in map_shard(shard, section, schema)]
    assert sum(sizes) == 100
    assert max(sizes) < 50


def test_an_empty_shard_is_fine_and_an_empty_source_is_refused(ingest: Ingest) -> None:
    files = {"a.csv": "id,question,answer\n1,q,a\n", "b.csv": "", "c.jsonl": "", "d.csv": "id,question,answer\n"}
    assert ingest(files, **QA).counts.rows_in == 1
    for name in ("b.csv", "c.jsonl", "d.csv"):
        with pytest.raises(DataRefused, match="no row in the whole source"):
            ingest({}, name, **QA)


def test_a_source_of_which_no_line_can_be_read_says_what_a_line_should_be(ingest: Ingest) -> None:
    with pytest.raises(DataRefused, match="that can be read") as error:
        ingest({"a.jsonl": '{"id": 1, "question": "q", "score": NaN}\n'}, id="id", input="question")
    assert "write null" in error.value.remedy


# --- wrong use


def test_a_missing_column_is_answered_with_the_nearest_and_those_there_are(ingest: Ingest) -> None:
    with pytest.raises(UsageError, match=r"'qestion'.*did you mean 'question'") as error:
        ingest({"a.csv": "id,question,answer\n1,q,a\n"}, id="id", input="qestion")
    assert "id, question, answer" in error.value.expected
    assert "examples.input" in error.value.where


def test_rows_that_nothing_identifies_are_refused(ingest: Ingest) -> None:
    with pytest.raises(UsageError, match="nothing says what identifies"):
        ingest({"a.csv": "x,y\n1,2\n"})


def test_bad_trees_and_times_are_rejected_row_by_row(ingest: Ingest) -> None:
    rows = [
        {"id": 1, "question": "q", "t": "(a (b))", "at": "2024-01-02"},
        {"id": 2, "question": "q", "t": "(a (b)", "at": "2024-01-02 03:04:05.678"},
        {"id": 3, "question": "q", "t": None, "at": "yesterday"},
        {"id": 4, "question": "q", "t": "(c)", "at": None},
        {"id": 5, "question": "q", "t": "(c)", "at": "2024-02-30"},
    ]
    found = ingest({"a.jsonl": lines(*rows)}, id="id", input="question", structure="t", created_at="at")
    assert found.rejects.select("source_row", "reason", "column", "value").rows() == [
        (1, "no tree: brackets that do not match", "t", "(a (b)"),
        (2, "no time", "at", "yesterday"),
        (4, "no time", "at", "2024-02-30"),
    ]
    assert found.table["example_id"].to_list() == ["1", "4"]


def test_trees_as_node_lists_are_checked_and_put_in_order(ingest: Ingest) -> None:
    good = [{"node": 1, "parent": 0, "label": "b"}, {"node": 0, "parent": -1, "label": "a"}]
    bad = [{"node": 0, "parent": 1, "label": "b"}, {"node": 1, "parent": 0, "label": "a"}]
    found = ingest(
        {"a.jsonl": lines({"id": 1, "q": "x", "t": good}, {"id": 2, "q": "x", "t": bad})},
        id="id",
        input="q",
        structure="t",
    )
    assert [n["label"] for n in found.table["structure"][0]] == ["a", "b"]
    assert found.rejects["reason"].to_list() == ["no tree: no root"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1_700_000_000, "2023-11-14T22:13:20+00:00"),
        (1_700_000_000_000, "2023-11-14T22:13:20+00:00"),
        ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05+00:00"),
        ("2024-01-02T03:04:05.250-0530", "2024-01-02T08:34:05.250000+00:00"),
        ("2024-01-02 03:04", "2024-01-02T03:04:00+00:00"),
        ("2024-01-02", "2024-01-02T00:00:00+00:00"),
    ],
)
def test_times_are_read_as_utc(ingest: Ingest, value: object, expected: str) -> None:
    table = ingest({"a.jsonl": lines({"id": 1, "q": "x", "at": value})}, id="id", input="q", created_at="at").table
    assert table["created_at"][0].isoformat() == expected


@pytest.mark.parametrize("form", ["struct", "text", "map"])
def test_factors_may_be_one_map_column(ingest: Ingest, form: str) -> None:
    expected = [[("a", "1"), ("b", "x")], [("b", "y")]]
    name = "a.parquet" if form == "map" else "a.jsonl"
    values: list[Any] = [{"b": "x", "a": 1}, {"b": "y", "a": None}]
    content: Any = lines(
        *({"id": i, "q": "x", "f": json.dumps(v) if form == "text" else v} for i, v in enumerate(values))
    )
    if form == "map":
        maps = pa.array([[("b", "x"), ("a", "1")], [("b", "y")]], pa.map_(pa.string(), pa.string()))
        buffer = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table({"id": [0, 1], "q": ["x", "x"], "f": maps}), buffer)
        content = buffer.getvalue().to_pybytes()
    table = ingest({name: content}, name, id="id", input="q", factors=["f"]).table
    assert [list(row.items()) for row in table["factors"]] == expected


def test_a_procedural_set_comes_through_the_same_door() -> None:
    section = Examples.model_validate({"generate": {"modular_arithmetic": {"p": 5}}})
    found = read_examples(section)
    assert found.counts.rows_in == found.counts.new == len(found.table) == 25 + 25 + 20
    assert found.table["example_id"].is_sorted()

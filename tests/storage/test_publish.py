"""Publishing: what readers see, what is used again, what a refusal leaves behind, how columns may change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.expectations import Expectation, suite
from gradatim.schemas.hashing import content_hash
from gradatim.schemas.tables import features_spec, spec
from gradatim.storage.casting import Changes, conform
from gradatim.storage.lineage import lineage
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset

from .conftest import examples, made, never, want


def _ids(dataset: Dataset, reference: str = "examples") -> list[str]:
    return sorted(dataset.scan(reference).select("example_id").collect().to_series().to_list())


def _files(dataset: Dataset, table: str = "examples") -> dict[str, int]:
    folder = Path(dataset.store.uri(dataset.log(table).key))
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_every_reader_sees_the_same_rows(dataset: Dataset) -> None:
    rows = examples(0, 10, factors=[{"op": "+"}] * 10, level=[None, "easy"] * 5, weight=[1.5] * 10)
    rows = rows.with_columns(
        factors=pl.Series([[{"key": "op", "value": "+"}]] * 10),
        structure=pl.Series(
            [[{"node": 0, "parent": -1, "label": "S"}]] * 10,
            dtype=pl.List(pl.Struct({"node": pl.Int32, "parent": pl.Int32, "label": pl.String})),
        ),
    )
    published = dataset.publish("examples", [want("a", rows.head(4)), want("b", rows.tail(6).reverse())])
    assert (published.rows, published.version, published.reference) == (10, 0, "examples@0")
    expected = conform(rows, spec("examples"))
    assert published.content_hash == content_hash(expected) == dataset.content_hash("examples@0")

    mine = dataset.scan("examples").collect()
    assert mine["example_id"].to_list() == rows["example_id"].to_list()  # each part is sorted
    assert content_hash(conform(mine, spec("examples"))) == published.content_hash
    delta = DeltaTable(dataset.log("examples").uri)
    assert sorted(delta.file_uris()) == sorted(dataset.paths("examples@0"))
    through_delta = pl.scan_delta(dataset.log("examples").uri).collect()
    assert content_hash(conform(through_delta, spec("examples"))) == published.content_hash
    through_arrow = pq.read_table(dataset.paths("examples")[0])
    assert through_arrow.schema.field("example_id").metadata[b"description"].startswith(b"the example")
    found = duckdb.sql(
        "select count(*), sum(weight), min(structure[1].label), min(factors['op']) "
        f"from read_parquet({dataset.paths('examples')})"
    ).fetchall()[0]
    assert found == (10, 15.0, "S", "+")


def test_unchanged_parts_are_listed_again_and_not_touched(dataset: Dataset) -> None:
    first = dataset.publish("examples", [want("a", examples(0, 5)), want("b", examples(5, 9))])
    before = _files(dataset)
    second = dataset.publish("examples", [never("a"), want("c", examples(20, 22))])
    assert set(second.reused_parts) == {first.new_parts[0]}
    assert len(second.new_parts) == 1
    after = _files(dataset)
    assert {name: after[name] for name in before} == before
    assert _ids(dataset) == _ids(dataset, "examples@1") == [f"e{i:06d}" for i in [0, 1, 2, 3, 4, 20, 21]]
    assert len(_ids(dataset, "examples@0")) == 9
    log = (Path(dataset.log("examples").uri) / "_delta_log" / f"{1:020d}.json").read_text()
    assert log.count('"add"') == 1
    assert log.count('"remove"') == 1
    assert len(DeltaTable(dataset.log("examples").uri).file_uris()) == 2


def test_what_is_already_there_makes_no_version(dataset: Dataset) -> None:
    first = dataset.publish("examples", [want("a", examples(0, 5)), want("b", examples(5, 9))])
    again = dataset.publish("examples", [never("b"), never("a")])
    assert again.reused
    assert (again.version, again.content_hash, again.rows) == (first.version, first.content_hash, 9)
    assert [v.number for v in dataset.versions("examples")] == [0]


def test_a_result_of_an_older_version_comes_back_without_work(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 5))])
    dataset.publish("examples", [want("b", examples(5, 9))])
    assert dataset.fingerprints("examples") == {made("b")}
    assert dataset.fingerprints("examples", older=True) == {made("a"), made("b")}
    back = dataset.publish("examples", [never("a")])
    assert (back.version, back.new_parts) == (2, ())
    assert _ids(dataset) == _ids(dataset, "examples@0")
    uri = dataset.log("examples").uri
    assert pl.scan_delta(uri).select("example_id").collect().height == 5
    assert pl.scan_delta(uri, version=1).select("example_id").collect().height == 4


def test_a_result_whose_file_is_gone_is_computed_again_or_refused(dataset: Dataset) -> None:
    first = dataset.publish("examples", [want("a", examples(0, 5)), want("b", examples(5, 9))])
    dataset.publish("examples", [never("a")])
    Path(dataset.log("examples").uri, first.new_parts[1]).unlink()
    again = dataset.publish("examples", [never("a"), want("b", examples(5, 9))])
    assert len(again.new_parts) == 1
    whole = Path(dataset.paths("examples")[0])
    whole.write_bytes(whole.read_bytes()[:-10])
    with pytest.raises(DataRefused, match="is damaged"):
        dataset.publish("examples", [never("a"), want("c", examples(30, 31))])
    with pytest.raises(DataRefused, match="cannot be read"):
        dataset.verify("examples")


def test_verify_finds_changed_bytes(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 5))])
    dataset.verify("examples@0")
    path = dataset.paths("examples")[0]
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(DataRefused, match="does not hold what was published"):
        dataset.verify("examples@0")


def test_each_method_of_a_shared_table_is_reused_on_its_own(with_examples: Callable[[int], Dataset]) -> None:
    dataset = with_examples(4)

    def scores(method: str, shift: float) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "example_id": [f"e{i:06d}" for i in range(4)],
                "method": [method] * 4,
                "value": [shift + i for i in range(4)],
                "scale": ["logit"] * 4,
                "percentile": [0.25, 0.5, 0.75, 1.0],
            }
        ).with_columns(bin=pl.lit(0, pl.Int32))

    dataset.publish(
        "difficulty", [want("irt", scores("irt", 0), group="irt"), want("len", scores("length", 0), group="length")]
    )
    second = dataset.publish("difficulty", [want("irt2", scores("irt", 1), group="irt"), never("len", group="length")])
    assert (len(second.new_parts), len(second.reused_parts)) == (1, 1)
    third = dataset.publish("difficulty", [want("irt3", scores("irt", 2), group="irt")], keep_others=True)
    frame = dataset.scan("difficulty").collect()
    assert frame.filter(pl.col("method") == "irt")["value"].to_list() == [2, 3, 4, 5]
    assert frame.filter(pl.col("method") == "length").height == 4
    assert third.rows == 8
    fourth = dataset.publish("difficulty", [never("irt3", group="irt")])
    assert fourth.rows == 4


def test_a_result_without_rows_is_remembered(with_examples: Callable[[int], Dataset]) -> None:
    dataset = with_examples(1)
    first = dataset.publish("rejects", [want("none")])
    assert (first.rows, len(first.new_parts)) == (0, 1)
    assert dataset.publish("rejects", [never("none")]).reused
    assert dataset.scan("rejects").collect().shape == (0, 5)
    assert dataset.publish("rejects", []).rows == 0
    assert pl.scan_delta(dataset.log("rejects").uri).collect().height == 0


def test_two_results_with_one_fingerprint_are_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="one fingerprint"):
        dataset.publish("examples", [want("a"), want("a")])


def test_an_error_in_a_step_leaves_nothing(dataset: Dataset) -> None:
    def fails() -> object:
        yield examples(0, 5)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dataset.publish("examples", [want("a", examples(10, 12)), Wanted(made("b"), fails)], part_rows=2)  # type: ignore[arg-type]
    assert dataset.tables() == []
    assert _files(dataset) == {}
    assert list(Path(dataset.store.uri("arith/_staging")).iterdir()) == []


def test_the_cut_into_parts_depends_on_the_rows_alone(dataset: Dataset) -> None:
    rows = examples(0, 25)
    batches = [rows.slice(i, 3) for i in range(0, 25, 3)]
    one = dataset.publish("examples", [want("a", rows)], part_rows=10)
    two = dataset.publish("examples", [want("b", *batches)], part_rows=10)
    assert [p.content_hash for p in dataset.parts(one.reference)] == [
        p.content_hash for p in dataset.parts(two.reference)
    ]
    assert [p.rows for p in dataset.parts("examples")] == [10, 10, 5]
    assert (dataset.parts("examples")[0].first, dataset.parts("examples")[0].last) == (("e000000",), ("e000009",))


def test_an_ordered_stream_that_is_not_sorted_is_refused(dataset: Dataset) -> None:
    with pytest.raises(DataRefused, match="not sorted"):
        dataset.publish("examples", [want("a", examples(0, 5).reverse(), ordered=True)])
    with pytest.raises(DataRefused, match="not sorted"):
        dataset.publish("examples", [want("a", examples(5, 10), examples(0, 5), ordered=True)], part_rows=5)
    assert dataset.tables() == []


# --- a refusal


def test_a_refusal_keeps_the_former_version_and_fills_the_quarantine(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 5))])
    bad = examples(10, 60, output=[""] * 30 + ["x"] * 20)
    with pytest.raises(DataRefused, match=r"output_not_empty: 30 of 50 \(60.000%; limit 0.000%\)") as caught:
        dataset.publish("examples", [never("a"), want("b", bad)])
    assert caught.value.exit_code == 3
    assert dataset.log("examples").latest().number == 0  # type: ignore[union-attr]
    assert _ids(dataset) == [f"e{i:06d}" for i in range(5)]
    assert len(_files(dataset)) == 1
    (folder,) = Path(dataset.store.uri("arith/_quarantine/examples")).iterdir()
    assert str(folder) in str(caught.value)
    rows = pl.read_parquet(folder / "rows-*.parquet")
    assert sorted(rows["example_id"]) == [f"e{i:06d}" for i in range(10, 40)]
    assert set(rows["expectation"]) == {"output_not_empty"}
    (part,) = folder.glob("part-*.parquet")
    assert pq.read_table(part).num_rows == 50
    reasons = json.loads((folder / "audit.json").read_text())
    outcome = next(o for o in reasons["report"]["outcomes"] if o["name"] == "output_not_empty")
    assert (outcome["failed"], outcome["holds"], len(outcome["sample"])) == (30, False, 20)
    (validated,) = reasons["great_expectations"]
    assert validated["success"] is False
    assert "what is" not in json.dumps(reasons)  # what users wrote stays in the Parquet files


def test_rows_that_an_expectation_rejects_are_left_out_and_counted(dataset: Dataset) -> None:
    rows = examples(0, 100, output=["", "x"] * 2 + ["x"] * 96)
    checks = suite("examples").severities(output_not_empty="reject_rows").tolerate(output_not_empty=0.05)
    published = dataset.publish("examples", [want("a", rows)], suite=checks, part_rows=40)
    assert (published.rows, published.rejected, published.audit["output_not_empty"].failed) == (98, 2, 2)  # type: ignore[index]
    assert published.audit is not None
    assert "2 rejected" in str(published.audit)
    assert "e000000" not in _ids(dataset)
    kept = rows.filter(pl.col("output") != "")
    assert published.content_hash == content_hash(conform(kept, spec("examples")))
    offending = pl.read_parquet(f"{published.audit.offending}/rows-*.parquet")
    assert sorted(offending["example_id"]) == ["e000000", "e000002"]
    strict = checks.tolerate(output_not_empty=0.01)
    with pytest.raises(DataRefused, match="output_not_empty: 2 of 100"):
        dataset.publish("examples", [want("b", rows)], suite=strict)


def test_a_warning_publishes_and_is_recorded(dataset: Dataset) -> None:
    checks = suite("examples").severities(output_not_empty="warn")
    published = dataset.publish("examples", [want("a", examples(0, 2, output=""))], suite=checks)
    assert published.audit is not None
    assert [o.name for o in published.audit.warnings] == ["output_not_empty"]
    assert dataset.metadata("examples")["warnings"] == ["output_not_empty"]
    assert "warns" in str(published.audit)


def test_only_new_parts_are_validated_row_by_row(dataset: Dataset) -> None:
    lax = suite("examples").severities(output_not_empty="warn")
    dataset.publish("examples", [want("a", examples(0, 2, output=""))], suite=lax)
    published = dataset.publish("examples", [never("a"), want("b", examples(5, 8))])
    assert published.audit is not None
    assert (published.audit.rows, published.audit.checked) == (5, 3)


def test_a_null_key_is_refused(dataset: Dataset) -> None:
    rows = examples(0, 3).with_columns(example_id=pl.Series(["a", None, "b"]))
    with pytest.raises(DataRefused, match="example_id_not_null: 1 of 3"):
        dataset.publish("examples", [want("a", rows)])
    assert dataset.tables() == []


# --- how columns may change


def test_a_column_that_comes_is_null_in_old_rows(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 2))])
    published = dataset.publish("examples", [never("a"), want("b", examples(2, 4, steps=[3, 4]))])
    frame = dataset.scan("examples").collect().sort("example_id")
    assert frame["steps"].to_list() == [None, None, 3, 4]
    assert "steps" not in dataset.scan("examples@0").collect_schema().names()
    delta = pl.scan_delta(dataset.log("examples").uri).collect().sort("example_id")
    assert delta["steps"].to_list() == [None, None, 3, 4]
    assert [v.number for v in dataset.versions("examples")] == [published.version, 0]
    found = duckdb.sql(f"select sum(steps) from read_parquet({dataset.paths('examples')}, union_by_name=true)")
    assert found.fetchall() == [(7,)]
    dataset.publish("examples", [never("a"), never("b"), want("c", examples(4, 5))])
    assert dataset.scan("examples").collect().sort("example_id")["steps"].to_list() == [None, None, 3, 4, None]


def test_a_column_that_grows_is_cast_in_all_parts(dataset: Dataset) -> None:
    narrow = examples(0, 2, steps=[1, 2]).with_columns(pl.col("steps").cast(pl.Int32))
    first = dataset.publish("examples", [want("a", narrow), want("z", examples(9, 10))])
    second = dataset.publish("examples", [never("a"), want("b", examples(2, 4, steps=[3, 2**40])), never("z")])
    frame = dataset.scan("examples").collect().sort("example_id")
    assert frame["steps"].to_list() == [1, 2, 3, 2**40, None]
    assert frame["steps"].dtype == pl.Int64
    assert dataset.scan("examples@0").collect().sort("example_id")["steps"].to_list() == [1, 2, None]
    delta = pl.scan_delta(dataset.log("examples").uri).collect().sort("example_id")
    assert delta["steps"].to_list() == [1, 2, 3, 2**40, None]
    # the content of the old rows is the same, and the fingerprints still hold
    parts = {part.fingerprint: part.content_hash for part in dataset.parts(second.reference)}
    assert parts.items() >= {p.fingerprint: p.content_hash for p in dataset.parts(first.reference)}.items()
    third = dataset.publish("examples", [never("a"), never("b"), never("z"), want("c", examples(7, 8, steps=[1.5]))])
    assert dataset.scan("examples").collect().sort("example_id")["steps"].to_list() == [
        1.0,
        2.0,
        3.0,
        2.0**40,
        1.5,
        None,
    ]
    back = dataset.publish("examples", [never("a"), never("c")])
    assert dataset.scan("examples").collect().sort("example_id")["steps"].to_list() == [1.0, 2.0, 1.5]
    for version in (first, second, third, back):
        dataset.verify(version.reference)
        assert len(_ids(dataset, version.reference)) == version.rows


def test_shards_of_one_draft_may_differ_in_columns_and_width(dataset: Dataset) -> None:
    shards = [
        examples(0, 2, a=[1, 2]).with_columns(pl.col("a").cast(pl.Int8)),
        examples(2, 3, b="x"),
        examples(3, 4, a=9.5),
    ]
    dataset.publish("examples", [want(str(i), shard) for i, shard in enumerate(shards)])
    frame = dataset.scan("examples").collect().sort("example_id")
    assert frame["a"].to_list() == [1.0, 2.0, None, 9.5]
    assert frame["b"].to_list() == [None, None, "x", None]


def test_batches_of_one_result_may_differ_in_columns(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 2, a=[1, 2]), examples(2, 3, b="x"))])
    assert dataset.scan("examples").collect().sort("example_id")["b"].to_list() == [None, None, "x"]


def test_a_renamed_column_is_refused_with_the_line_to_add(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 2, n_steps=1))])
    with pytest.raises(DataRefused, match="'n_steps' is gone, and 'steps' is new") as caught:
        dataset.publish("examples", [never("a"), want("b", examples(2, 3, steps=2))])
    assert "renamed: {steps: n_steps}" in str(caught.value)
    assert "dropped: [n_steps]" in str(caught.value)
    renamed = Changes(renamed={"steps": "n_steps"})
    dataset.publish("examples", [never("a"), want("b", examples(2, 3, steps=2))], changes=renamed)
    assert dataset.scan("examples").collect()["n_steps"].to_list() == [1, 1, 2]
    dropped = Changes(dropped=["n_steps"])
    dataset.publish("examples", [never("a"), want("c", examples(5, 6, other=3))], changes=dropped)
    assert dataset.scan("examples").collect().sort("example_id")["other"].to_list() == [None, None, 3]


def test_a_narrowed_kind_is_refused_with_the_line_to_add(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 2, steps=1))])
    with pytest.raises(DataRefused, match="'steps' came as string, but the table has it as int64") as caught:
        dataset.publish("examples", [never("a"), want("b", examples(2, 3, steps="two"))])
    assert "renamed: {steps: steps_2}   dropped: [steps]" in str(caught.value)
    advised = Changes(renamed={"steps": "steps_2"}, dropped=["steps"])
    dataset.publish("examples", [never("a"), want("b", examples(2, 3, steps="two"))], changes=advised)
    assert dataset.scan("examples").select("steps", "steps_2").collect().rows() == [(1, None), (1, None), (None, "two")]


def test_embeddings_come_back_as_arrays(with_examples: Callable[[int], Dataset]) -> None:
    dataset = with_examples(2)
    rows = pl.DataFrame(
        {"example_id": ["e000001", "e000000"], "embedding": [[1.0, 2.0], [3.0, 4.0]]},
        schema_overrides={"embedding": pl.Array(pl.Float32, 2)},
    )
    dataset.publish(features_spec("words", 2), [want("f", rows)])
    frame = dataset.scan("features_words").collect()
    assert frame.schema["embedding"] == pl.Array(pl.Float32, 2)
    assert frame["embedding"].to_list() == [[3.0, 4.0], [1.0, 2.0]]


# --- what is known of a version


def test_references_metadata_and_lineage(with_examples: Callable[[int], Dataset]) -> None:
    dataset = with_examples(3)
    rows = pl.DataFrame(
        {"respondent_id": ["m"] * 3, "example_id": [f"e{i:06d}" for i in range(3)], "score": [0.0, 1.0, 1.0]}
    )
    rows = rows.with_columns(attempt=pl.lit(0, pl.Int32))
    published = dataset.publish(
        "responses", [want("r", rows)], parents=["examples@0"], metadata={"recipe": "abc", "seed": 7}
    )
    recorded = dataset.metadata(published.reference)
    assert (recorded["recipe"], recorded["seed"], recorded["parents"]) == ("abc", 7, ["examples@0"])
    assert set(recorded["packages"]) == {"gradatim", "polars", "pyarrow", "deltalake", "great-expectations"}
    tree = lineage(dataset, "responses")
    assert [v.reference for v in tree.walk()] == ["responses@0", "examples@0"]
    assert "examples@0  3 rows" in str(tree)
    assert dataset.tables() == ["examples", "responses"]
    assert Path(dataset.runs_path("r1")).is_dir()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("exampels", "did you mean 'examples'"),
        ("examples@7", r"there is no version examples@7"),
        ("examples@x", "names no version"),
        ("examples@-1", "names no version"),
        ("splits", "has no version yet"),
        ("examples@current", "there is no release yet"),
        ("../examples", "there is no table"),
        ("features_../x", "there is no table"),
    ],
)
def test_a_wrong_reference_is_explained(with_examples: Callable[[int], Dataset], reference: str, message: str) -> None:
    dataset = with_examples(1)
    with pytest.raises(UsageError, match=message):
        dataset.version(reference)


def test_a_version_written_by_another_tool_is_refused(dataset: Dataset) -> None:
    dataset.publish("examples", [want("a", examples(0, 2))])
    DeltaTable(dataset.log("examples").uri).delete()
    with pytest.raises(UsageError, match="written by another tool"):
        dataset.publish("examples", [never("a"), want("b", examples(2, 3))])


def test_the_log_outlives_deltas_checkpoints_and_cleanup(dataset: Dataset) -> None:
    dataset.publish("examples", [want("0", examples(0, 1))])
    dataset.publish("examples", [want("1", examples(1, 2))])
    delta = DeltaTable(dataset.log("examples").uri)
    delta.create_checkpoint()
    delta.cleanup_metadata()
    assert delta.vacuum(dry_run=False) == []
    dataset.publish("examples", [never("0")])
    assert [v.number for v in dataset.versions("examples")] == [2, 1, 0]
    assert _ids(dataset, "examples@1") == ["e000001"]


def test_a_fingerprint_depends_on_all_that_it_names() -> None:
    base = fingerprint("irt", 1, "s", ["a", "b"])
    others = [
        fingerprint("irt2", 1, "s", ["a", "b"]),
        fingerprint("irt", 2, "s", ["a", "b"]),
        fingerprint("irt", 1, "t", ["a", "b"]),
        fingerprint("irt", 1, "s", ["b", "a"]),
        fingerprint("irt", 1, "s", ["ab"]),
    ]
    assert len({base, *others}) == 6
    assert base == fingerprint("irt", 1, "s", ("a", "b")) == "64cc831057357d046a694fe36ceee410"


def test_the_suite_of_a_user_is_used(dataset: Dataset) -> None:
    checks = suite("examples").extend(Expectation("short", "matches", "input", {"pattern": "^.{0,5}$"}))
    with pytest.raises(DataRefused, match="short: 2 of 2"):
        dataset.publish("examples", [want("a", examples(0, 2))], suite=checks)
    with pytest.raises(UsageError, match="did you mean 'output_not_empty'"):
        checks.tolerate(output_not_emty=0.1)


def test_arrow_batches_are_taken_as_they_are(dataset: Dataset) -> None:
    batches = pa.Table.to_batches(examples(0, 5).to_arrow(), max_chunksize=2)
    assert dataset.publish("examples", [want("a", *batches)]).rows == 5

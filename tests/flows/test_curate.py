"""The flow `curate` on small files: what it publishes, what it reuses, what it refuses, what it keeps frozen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from small_recipe import RECIPE, items, write_jsonl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset

pytestmark = pytest.mark.usefixtures("prefect")


def run(recipe: Path, **parameters: Any) -> dict[str, Any]:
    from gradatim.flows.curate import curate

    return dict(curate(str(recipe), **parameters))


def dataset(recipe: Path) -> Dataset:
    return Store.open(recipe.parent / "store").dataset("small")


def test_one_recipe_gives_every_table_and_a_second_run_changes_nothing(small: Callable[..., Path]) -> None:
    recipe = small()
    first = run(recipe)
    assert set(first["tables"]) == {
        "examples", "rejects", "responses", "respondents", "difficulty", "item_parameters", "statistics", "diversity",
        "pairs", "signatures", "splits", "certificate", "curriculum",
    }  # fmt: skip
    store = dataset(recipe)
    assert store.scan("examples").select(pl.len()).collect().item() == 400
    assert store.scan("difficulty").group_by("method").len().sort("method").collect().rows() == [
        ("irt", 400),
        ("length", 400),
    ]
    splits = store.scan("splits").filter(pl.col("strategy") == "length").collect()
    assert len(splits) == 400
    steps = splits.join(store.scan("examples").select("example_id", "n_steps").collect(), on="example_id")
    assert steps.filter(pl.col("split") == "train")["n_steps"].max() == 6
    assert steps.filter(pl.col("split") == "test_ood")["n_steps"].min() == 7
    assert set(store.scan("certificate").filter(pl.col("holds").is_not_null()).collect()["holds"]) == {True}
    arms = store.scan("curriculum").collect()
    assert arms["arm"].unique().sort().to_list() == ["anti", "curriculum", "random", "shuffled"]
    same = [arm["example_id"].sort().to_list() for arm in arms.partition_by("arm")]
    assert all(ids == same[0] for ids in same)
    abilities = store.scan("respondents").collect()
    assert abilities["ability"].null_count() == 0
    page = Path(first["report"]).read_text(encoding="utf-8")
    assert "split length" in page
    assert not re.search(r"<(script|link|img)[^>]+https?://", page)

    second = run(recipe)
    assert second["tables"] == first["tables"]
    reused = {summary["step"] for summary in second["summaries"] if summary["reused"]}
    assert {"ingest", "responses", "difficulty irt", "difficulty length", "split length", "curriculum"} <= reused


def test_any_parquet_reader_opens_what_was_published(small: Callable[..., Path]) -> None:
    recipe = small()
    run(recipe)
    files = dataset(recipe).paths("splits")
    counted = duckdb.sql(f"select split, count(*) from read_parquet({files}) group by 1 order by 1").fetchall()
    assert {split for split, _ in counted} >= {"train", "test", "test_ood"}


def test_a_new_shard_is_mapped_alone_and_released_test_rows_stay(small: Callable[..., Path]) -> None:
    recipe = small()
    first = run(recipe, release=True)
    assert first["release"] == 1
    store = dataset(recipe)
    before = store.scan("splits").filter(pl.col("strategy") == "length").collect()
    old_parts = {part.name for part in store.parts("examples")}
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", items(400, 500))
    changed = items(0, 200)
    changed[0]["n_steps"] = 9 if changed[0]["n_steps"] <= 6 else 1
    write_jsonl(recipe.parent / "items" / "part-0.jsonl", changed)
    second = run(recipe, release=True)
    assert second["release"] == 2
    assert len(old_parts & {part.name for part in store.parts("examples")}) == 1  # part-1 stands as it was
    counts = {fact["name"]: fact["value"] for fact in second["summaries"][0]["facts"]}
    assert (counts["new"], counts["changed"], counts["published"]) == (100, 1, 500)
    rows = store.scan("examples").filter(pl.col("example_id") == "q0000").collect().row(0, named=True)
    assert (rows["first_version"], rows["changed_version"]) == (0, store.version("examples").number)
    after = store.scan("splits").filter(pl.col("strategy") == "length").collect()
    both = before.join(after, on="example_id", suffix="_after")
    tested = both.filter(pl.col("split").is_in(["test", "test_ood"]))
    assert (tested["split"] == tested["split_after"]).all()
    # nobody else moved either: rows are drawn by their ids
    others = both.filter(~pl.col("split").is_in(["test", "test_ood"]) & (pl.col("example_id") != "q0000"))
    assert (others["split"] == others["split_after"]).all()
    assert run(recipe, release=True)["release"] == 2  # nothing new, no release


def test_a_changed_section_recomputes_its_own_result_and_a_dropped_one_leaves(small: Callable[..., Path]) -> None:
    recipe = small()
    run(recipe)
    store = dataset(recipe)
    irt = {part.name for part in store.parts("difficulty") if part.group == "irt"}
    text = recipe.read_text().replace("  - length\ndiv", "  - length: {of: output}\n  - pass_rate\ndiv")
    recipe.write_text(text)
    run(recipe)
    parts = store.parts("difficulty")
    assert {part.group for part in parts} == {"irt", "length", "pass_rate"}
    assert {part.name for part in parts if part.group == "irt"} == irt
    recipe.write_text(text.replace("  - pass_rate\n", ""))
    run(recipe)
    assert {part.group for part in store.parts("difficulty")} == {"irt", "length"}


def test_an_empty_output_refuses_the_version_and_the_former_one_stays(small: Callable[..., Path]) -> None:
    recipe = small()
    run(recipe)
    store = dataset(recipe)
    before = store.version("examples")
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", [*items(400, 420, answer=""), *items(420, 620)])
    with pytest.raises(DataRefused, match="output_not_empty") as error:
        run(recipe)
    assert error.value.exit_code == 3
    assert "checks: {output_not_empty: 1%}" in str(error.value)
    assert store.version("examples").number == before.number
    quarantine = next(iter((recipe.parent / "store" / "small" / "_quarantine" / "examples").iterdir()))
    assert str(quarantine) in str(error.value)
    offending = pl.concat([pl.read_parquet(file) for file in sorted(quarantine.glob("rows-*.parquet"))])
    assert len(offending) == 20
    text = recipe.read_text()
    recipe.write_text(text + "checks: {output_not_empty: 10%}\n")
    assert run(recipe)["tables"]["examples"] > before.number


def test_duplicates_over_shards_are_collapsed_or_rejected_and_counted(small: Callable[..., Path]) -> None:
    recipe = small()
    twice = items(0, 3)
    twice[1]["answer"] = "another"
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", [*twice, *items(400, 410)])
    result = run(recipe)
    counts = {fact["name"]: fact["value"] for fact in result["summaries"][0]["facts"]}
    assert (counts["rows in"], counts["re-delivered"], counts["rejected"]) == (413, 2, 2)
    assert counts["published"] == 409
    rejects = dataset(recipe).scan("rejects").collect()
    assert set(rejects["source_uri"]) == {"items/part-0.jsonl", "items/part-2.jsonl"}


def test_too_many_rejects_refuse_with_the_rows(small: Callable[..., Path]) -> None:
    recipe = small()
    (recipe.parent / "items" / "part-2.jsonl").write_text("{broken\n" * 50, encoding="utf-8")
    with pytest.raises(DataRefused, match=r"50 of 450 rows are rejected \(11") as error:
        run(recipe)
    rejects = re.search(r"see (\S+\.parquet)", str(error.value))
    assert rejects is not None
    assert len(pl.read_parquet(rejects[1])) == 50


def test_a_split_that_breaks_a_promise_is_not_published(
    small: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradatim.tasks.splits import result

    recipe = small()
    named = result.Split.named

    def swapped(self: result.Split, name: str) -> result.Split:
        split = named(self, name)
        longest = split.main.filter(pl.col("split") == "test_ood")["example_id"][0]
        moved = pl.when((pl.col("example_id") == longest) & (pl.col("strategy") == name)).then(pl.lit("train"))
        table = split.table.with_columns(moved.otherwise("split").alias("split"))
        return result.replace(split, table=table)

    monkeypatch.setattr(result.Split, "named", swapped)
    with pytest.raises(DataRefused, match="does not keep its promises"):
        run(recipe)
    assert dataset(recipe).log("splits").latest() is None


def test_fewer_responses_joined_than_asked_is_refused(small: Callable[..., Path]) -> None:
    recipe = small()
    write_jsonl(recipe.parent / "answers.jsonl", [{"who": "a", "what": f"x{i}", "right": 1} for i in range(10)])
    with pytest.raises(DataRefused, match="joined"):
        run(recipe)


def test_a_missing_fold_is_told_with_those_there_are(small: Callable[..., Path]) -> None:
    recipe = small(RECIPE.replace("{by: irt,", "{by: irt, fold: 3,"))
    with pytest.raises(UsageError, match="fold 3") as error:
        run(recipe)
    assert "one of 0" in str(error.value)


def test_a_renamed_column_is_refused_until_the_recipe_says_so(small: Callable[..., Path]) -> None:
    recipe = small(RECIPE.split("responses:")[0] + "splits: [random]\n")
    run(recipe)
    later = [{("grade" if key == "kind" else key): value for key, value in row.items()} for row in items(0, 400)]
    for shard in (0, 1):
        write_jsonl(recipe.parent / "items" / f"part-{shard}.jsonl", later[shard * 200 : shard * 200 + 200])
    text = recipe.read_text().replace("  domain: kind\n", "  domain: grade\n")
    recipe.write_text(text)
    with pytest.raises(DataRefused) as error:
        run(recipe)
    line = "renamed: {grade: kind}"
    assert line in str(error.value)
    recipe.write_text(text.replace("  domain: grade\n", f"  domain: grade\n  {line}\n"))
    run(recipe)
    assert dataset(recipe).scan("examples").select("kind").collect()["kind"].null_count() == 0


def test_two_splits_and_two_difficulties_live_through_rows_that_come_change_and_go(small: Callable[..., Path]) -> None:
    recipe = small(RECIPE.replace("splits:\n", "splits:\n  - random\n"))
    run(recipe, release=True)
    rows = items(0, 190)
    rows[3]["answer"] = "another"
    write_jsonl(recipe.parent / "items" / "part-0.jsonl", rows)
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", items(400, 450))
    recipe.write_text(recipe.read_text() + "checks: {joined: 90%}\n")  # responses to the ten rows that went
    result = run(recipe, release=True)
    counts = {fact["name"]: fact["value"] for fact in result["summaries"][0]["facts"]}
    assert (counts["new"], counts["changed"], counts["vanished"]) == (50, 1, 10)
    store = dataset(recipe)
    ids = set(store.scan("examples").select("example_id").collect()["example_id"])
    for strategy in ("random", "length"):
        assert set(store.scan("splits").filter(pl.col("strategy") == strategy).collect()["example_id"]) == ids
    assert set(store.scan("difficulty").filter(pl.col("method") == "length").collect()["example_id"]) == ids


def test_abilities_stay_when_only_the_reading_of_responses_changes(small: Callable[..., Path]) -> None:
    recipe = small()
    run(recipe)
    recipe.write_text(recipe.read_text() + "checks: {joined: 50%}\n")
    run(recipe)
    assert dataset(recipe).scan("respondents").collect()["ability"].null_count() == 0

"""Vectors that the flow makes: checked, planned, made after the examples and before the difficulties that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_recipe import items, write_jsonl

from gradatim.flows.first_steps import check_recipe
from gradatim.flows.job import Job
from gradatim.flows.plan import plan_recipe
from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import dump_recipe, load_recipe, parse_recipe
from gradatim.storage.store import Store

RECIPE = """\
dataset: many
examples: {from: items/, id: id, input: question, output: answer}
features:
  words: {by: {hashed_tfidf: {width: 8}}}
  size: {by: {standardised: {columns: [n_steps], categories: [kind]}}}
difficulty:
  - column: {column: n_steps}
  - knn: {of: column, features: words}
"""


def planned(recipe: Path) -> dict[str, tuple[Any, ...]]:
    return {row[0]: tuple(row[1:3]) for row in plan_recipe(str(recipe), None, None).tables[0].rows}


@pytest.mark.usefixtures("prefect")
def test_vectors_are_checked_planned_made_read_and_kept_over_nights(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate

    recipe = small(RECIPE, rows=60)
    told = check_recipe(str(recipe), None, None)
    assert {("embedding", "words", "hashed_tfidf", "stable"), ("embedding", "size", "standardised", "stable")} <= set(
        told.tables[0].rows
    )
    assert planned(recipe)["features_words"] == ("new", 120)
    first = curate(str(recipe), release=True)
    steps = [summary["step"] for summary in first["summaries"]]
    assert steps.index("ingest") < steps.index("features words") < steps.index("difficulty knn")
    store = Store.open(recipe.parent / "store").dataset("many")
    assert store.read_release(1).tables.keys() >= {"features_words", "features_size"}
    before = store.scan("features_words").collect()
    assert before.schema["embedding"] == pl.Array(pl.Float32, 8)
    assert planned(recipe)["features_words"] == ("stands", 120)
    write_jsonl(recipe.parent / "items" / "part-2.jsonl", items(120, 150))
    second = curate(str(recipe), release=True)
    facts = [
        {fact["name"]: fact["value"] for fact in summary["facts"]}
        for summary in second["summaries"]
        if summary["step"].startswith("features")
    ]
    assert [(f["rows"], f["embedded now"], f["fitted on"]) for f in facts] == [(150, 30, "examples@0")] * 2
    after = store.scan("features_words").collect()
    assert after.join(before, on="example_id", how="semi").sort("example_id").equals(before.sort("example_id"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("by: {hashed_tfidf: {width: 8}}", "by: hashed_tfdf", r"features\.words\.by.*'hashed_tfdf'.*'hashed_tfidf'"),
        ("width: 8", "widht: 8", "unknown key 'widht'.*'width'"),
        ("{width: 8}}", "{width: 8}}, from: a.npy", "give either 'from' .* or 'by' .*; both"),
        ("by: {hashed_tfidf: {width: 8}}", "columns: [a]", "neither is given"),
        ("{width: 8}}", "{width: 8}}, ids: a.txt", "'ids' says how to read files"),
        ("width: 8", "as: letters", "'as' has no place here.*'letters'"),
        ("width: 8", "column: n_stps", "no column 'n_stps'.*'n_steps'"),
        ("hashed_tfidf: {width: 8}", "static: {path: model}", "no folder 'model'"),
        ("features: words", "features: wrods", "knn needs features_wrods"),
    ],
)
def test_what_cannot_work_is_told_before_anything_runs(
    small: Callable[..., Path], old: str, new: str, words: str
) -> None:
    recipe = small(RECIPE.replace(old, new), rows=5)
    with pytest.raises(UsageError, match=f"(?s){words}"):
        check_recipe(str(recipe), None, None)


def test_a_recipe_with_embedders_is_written_and_read_back(small: Callable[..., Path], tmp_path: Path) -> None:
    recipe = load_recipe(small(RECIPE, rows=5))
    assert "words:\n    by:\n      hashed_tfidf:\n        width: 8\n" in dump_recipe(recipe)
    assert parse_recipe(dump_recipe(recipe)) == recipe
    assert list(recipe.embedded()) == ["words", "size"]
    assert recipe.sources() == []
    (tmp_path / "encoder").mkdir()
    path = small(RECIPE.replace("hashed_tfidf: {width: 8}", "static: {path: encoder}"), rows=5)
    (static, _) = Job.load(str(path)).embedders
    assert (static.name, static.config.path) == ("words", str(tmp_path / "encoder"))  # type: ignore[attr-defined]

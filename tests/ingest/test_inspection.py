"""A look at a file, and the recipe that it suggests."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.recipe import dump_recipe, parse_recipe
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.ingest.examples import read_examples
from gradatim.tasks.ingest.inspection import inspect
from gradatim.tasks.ingest.suggestion import guess_recipe


def items(folder: Path, rows: int = 100) -> Path:
    found = [
        {
            "id": f"q{i}",
            "question": f"What is {i} and so on, in many words?",
            "answer": str(i % 7),
            "n_steps": i % 9 + 1,
            "template": f"t{i % 20}",
            "parse": ["add", [str(i)], ["x"]],
            "note": None if i % 4 else "x",
        }
        for i in range(rows)
    ]
    path = folder / "My items.jsonl"
    path.write_text("\n".join(map(json.dumps, found)))
    return path


def test_columns_are_seen_as_they_are(tmp_path: Path) -> None:
    items(tmp_path)
    look = inspect("My items.jsonl", base=tmp_path)
    assert (look.format, look.files, look.rows_seen, look.complete, look.unreadable) == ("jsonl", 1, 100, True, 0)
    note = look.column("note")
    assert (note.null_share, note.distinct, note.unique) == (0.75, 1, False)
    assert look.column("id").unique
    assert look.column("n_steps").type == "int64"
    assert look.column("question").words == 9.0


def test_roles_are_guessed_with_a_reason(tmp_path: Path) -> None:
    items(tmp_path)
    look = inspect("My items.jsonl", base=tmp_path)
    roles = ("id", "input", "output", "group", "structure", "steps", "template", "domain")
    assert [look.best(role) for role in roles] == [
        "id",
        "question",
        "answer",
        "template",
        "parse",
        "n_steps",
        "template",
        None,
    ]
    assert all(guess.reason for guess in look.guesses)


def test_a_column_called_id_with_double_values_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,key\n1,a b c d,x\n1,e f g h,y\n")
    look = inspect("a.csv", base=tmp_path)
    assert look.best("id") == "key"
    assert look.best("input") == "text"


def test_the_suggested_recipe_checks_and_reads_its_file(tmp_path: Path) -> None:
    items(tmp_path)
    recipe = guess_recipe(inspect("My items.jsonl", base=tmp_path))
    assert recipe.dataset == "my-items"
    assert (recipe.examples.id, recipe.examples.input, recipe.examples.group) == ("id", "question", "template")
    assert parse_recipe(dump_recipe(recipe)) == recipe
    found = read_examples(recipe.examples, base=tmp_path)
    assert found.counts.new == 100
    for area, steps in (("difficulty", recipe.difficulty), ("split", recipe.splits)):
        for step in steps:
            resolve(area, step)
    # each template has every number of steps: kept whole, it would leave no row in distribution
    assert recipe.splits[0].settings == {"column": "n_steps", "train": "<= 7", "keep_together": []}
    assert [step.method for step in recipe.splits] == ["length", "group"]
    assert recipe.curriculum is not None


def test_groups_that_lie_on_one_side_of_the_cut_are_kept_whole(tmp_path: Path) -> None:
    rows = [{"id": f"q{i}", "question": f"{i} a b c", "n_steps": i % 20, "template": f"t{i % 20}"} for i in range(100)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = guess_recipe(inspect("a.jsonl", base=tmp_path))
    assert recipe.splits[0].settings == {"column": "n_steps", "train": "<= 16"}


def test_without_id_or_text_all_columns_identify_a_row(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1.5, 2.5, 2.5], "b": [1, 1, 2]}).write_csv(tmp_path / "n.csv")
    recipe = guess_recipe(inspect("n.csv", base=tmp_path))
    assert recipe.examples.identity == ["a", "b"]
    assert [step.method for step in recipe.splits] == ["random"]
    assert read_examples(recipe.examples, base=tmp_path).counts.new == 3


def test_many_respondents_suggest_irt_and_few_a_pass_rate(tmp_path: Path) -> None:
    items(tmp_path)
    for people, method in ((9, "irt"), (3, "pass_rate")):
        rows = [(f"m{r}", f"q{i}", (i + r) % 2) for r in range(people) for i in range(100)]
        pl.DataFrame(rows, schema=["model", "item_id", "correct"], orient="row").write_csv(tmp_path / "r.csv")
        recipe = guess_recipe(inspect("My items.jsonl", base=tmp_path), "r.csv", base=tmp_path)
        assert recipe.responses is not None
        assert (recipe.responses.respondent, recipe.responses.example, recipe.responses.score) == (
            "model",
            "item_id",
            "correct",
        )
        assert recipe.difficulty[0].method == method


def test_harness_logs_are_recognised_with_metric_filter_and_join(tmp_path: Path) -> None:
    items(tmp_path)
    for model in range(9):
        folder = tmp_path / "logs" / f"m{model}"
        folder.mkdir(parents=True)
        lines = [
            {"doc_id": i, "doc": {"id": f"q{i}"}, "filter": f, "metrics": ["exact_match"], "exact_match": 1.0}
            for f in ("strict-match", "flexible-extract")
            for i in range(3)
        ]
        (folder / "samples_t_2026-01-02T03-04-05.678.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipe = guess_recipe(inspect("My items.jsonl", base=tmp_path), "logs", base=tmp_path)
    assert recipe.responses is not None
    assert recipe.responses.format == "lm-eval"
    assert (recipe.responses.metric, recipe.responses.filter, recipe.responses.join) == (
        "exact_match",
        "flexible-extract",
        "doc.id",
    )
    assert recipe.difficulty[0].method == "irt"


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n")
    with pytest.raises(DataRefused, match="no readable row"):
        inspect("a.csv", base=tmp_path)


def test_a_file_without_a_header_is_told_from_one(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(("a long sentence of many words " * 4 + "\tx\n") * 3)
    with pytest.raises(DataRefused, match="looks like data"):
        inspect("a.tsv", base=tmp_path)


def test_real_tables_are_read_as_a_person_would(data: Path) -> None:
    swe = inspect(data / "agentbench" / "swebench_verified_items.csv")
    assert swe.rows_seen == 500
    gsm = inspect(data / "gsm8k")
    assert (gsm.best("input"), gsm.rows_seen > 1000) == ("question", True)

"""The command line: exit codes, JSON, and the way from a file to a checked and planned recipe."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_recipe import items, write_jsonl

import gradatim
from gradatim.flows import cli
from gradatim.flows.job import Job
from gradatim.flows.plan import plan_responses
from gradatim.schemas.summary import Fact, Summary

COMMANDS = (
    *("init", "check", "plan", "run", "curate", "methods", "log", "show", "paths", "train", "audit", "evaluate"),
    "serve",
)


@pytest.fixture
def type_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Type a command in an empty folder; returns its exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def type_one(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gradatim", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return type_one


def test_help_shows_every_command_and_each_has_an_example(type_in: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = type_in("--help")
    assert code == 0
    for command in COMMANDS:
        assert f"  {command} " in out
        code, text, _ = type_in(command, "--help")
        assert code == 0
        assert f"Example: gradatim {command}" in " ".join(text.split())


@pytest.mark.parametrize("words", [["nonsense"], ["show"], ["run", "x.yaml", "--nothing"], ["run", "absent.yaml"]])
def test_wrong_use_exits_with_2_and_says_so(type_in: Callable[..., tuple[int, str, str]], words: list[str]) -> None:
    code, out, err = type_in(*words)
    assert code == 2
    assert err.strip()
    assert not out


def test_errors_come_as_json_where_json_is_asked_for(type_in: Callable[..., tuple[int, str, str]]) -> None:
    Path("recipe.yaml").write_text("dataset: x\nexmples: {from: a.csv}\n")
    code, out, _ = type_in("check", "recipe.yaml", "--json")
    assert code == 2
    error = json.loads(out)["error"]
    assert error["kind"] == "wrong use"
    assert "did you mean 'examples'" in error["what"]
    assert "recipe.yaml" in error["where"]


def test_a_crash_exits_with_1(type_in: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    from gradatim.flows import looking

    def broken(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(looking, "log_of", broken)
    code, _, err = type_in("log")
    assert code == 1
    assert "crashed: ZeroDivisionError: surprise" in err


def test_init_check_and_plan_lead_from_a_file_to_a_recipe(type_in: Callable[..., tuple[int, str, str]]) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 300))
    code, out, _ = type_in("init", "items.jsonl")
    assert code == 0
    assert "gradatim run recipe.yaml" in out
    text = Path("recipe.yaml").read_text()
    assert "id: id" in text
    assert "input: question" in text
    assert "column: n_steps" in text
    code, _, err = type_in("init", "items.jsonl")
    assert code == 2
    assert "--force" in err
    code, out, _ = type_in("check", "recipe.yaml")
    assert code == 0
    assert "create-if-absent holds" in out
    code, out, _ = type_in("plan", "recipe.yaml", "--json")
    assert code == 0
    planned = json.loads(out)
    assert planned["extra"]["rows"] == pytest.approx(300, rel=0.05)
    steps = {row[0]: row[1] for row in planned["tables"][0]["rows"]}
    assert steps["ingest"] == "new"
    assert any(step.startswith("split ") for step in steps)


def test_check_names_a_column_that_is_not_there(type_in: Callable[..., tuple[int, str, str]]) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 30))
    Path("recipe.yaml").write_text(
        "dataset: x\nexamples: {from: items.jsonl, id: id, input: question}\n"
        "splits:\n  - length: {column: n_step, train: '<= 6'}\n"
    )
    code, _, err = type_in("check", "recipe.yaml")
    assert code == 2
    assert "did you mean 'n_steps'" in err
    assert "splits[0].length" in err


HEAD = "dataset: x\nexamples: {from: items.jsonl, id: id, input: question}\ndifficulty: [pass_rate]\nsplits: [random]\n"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("from: answers.jsonl, respondent: who, example: what, score: rigth", "did you mean 'right'"),
        ("from: answers.jsonl, respondent: who, example: what, score: note", "no usable response"),
        ("from: answers.jsonl, respondent: who, example: what, score: right, family: kin", "no column 'kin'"),
        ("from: logs, format: lm-eval", "more than one filter"),
        ("from: logs, format: lm-eval, filter: strict", "no filter 'strict'"),
        ("from: logs, format: lm-eval, filter: strict-match, metric: exact", "did you mean 'exact_match'"),
        ("from: logs, format: lm-eval, filter: strict-match, join: doc.idd", "did you mean 'doc.id'"),
    ],
)
def test_check_looks_into_the_responses(type_in: Callable[..., tuple[int, str, str]], section: str, said: str) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 30))
    write_answers()
    write_logs(Path("logs"))
    Path("recipe.yaml").write_text(HEAD + "responses: {" + section + "}\n")
    code, out, err = type_in("check", "recipe.yaml")
    assert code in (2, 3), out
    assert said in err


@pytest.mark.parametrize(
    "section",
    [
        "from: answers.jsonl, respondent: who, example: what, score: right",
        "from: wide.csv, respondent: who",
        "from: logs, format: lm-eval, filter: strict-match",
        "from: logs, format: lm-eval, filter: flexible-extract, metric: exact_match, join: input",
    ],
)
def test_check_passes_responses_that_can_be_read(type_in: Callable[..., tuple[int, str, str]], section: str) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 30))
    write_answers()
    write_logs(Path("logs"))
    Path("wide.csv").write_text("who,q0000,q0001\nm1,1,0\nm2,,1\n")
    Path("recipe.yaml").write_text(HEAD + "responses: {" + section + "}\n")
    code, out, err = type_in("check", "recipe.yaml")
    assert (code, err) == (0, "")
    assert "columns and scores looked at" in out


def write_answers() -> None:
    rows = [{"who": f"m{w}", "what": f"q{i:04d}", "right": i % 2, "note": "good"} for w in range(2) for i in range(30)]
    write_jsonl(Path("answers.jsonl"), rows)


def write_logs(folder: Path, models: int = 3, rows: int = 30) -> None:
    """Sample logs with two filters."""
    for model in range(models):
        lines = [
            {
                "doc_id": i,
                "doc": {"id": row["id"], "question": row["question"]},
                "filter": name,
                "metrics": ["exact_match"],
                "exact_match": float((i + model) % 2),
            }
            for name in ("strict-match", "flexible-extract")
            for i, row in enumerate(items(0, rows))
        ]
        write_jsonl(folder / f"m{model}" / "samples_t_2026-01-02T03-04-05.678.jsonl", lines)


def test_a_plan_counts_the_lines_and_models_of_sample_logs(type_in: Callable[..., tuple[int, str, str]]) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 30))
    write_logs(Path("logs"), models=4, rows=30)
    Path("recipe.yaml").write_text(HEAD + "responses: {from: logs, format: lm-eval, filter: strict-match}\n")
    assert plan_responses(Job.load("recipe.yaml")) == (120, 4)


@pytest.mark.parametrize(
    ("file", "answers", "said", "recipe_runs"),
    [
        ("a,b\n1.5,1\n2.5,1\n2.5,2\n", "", "no input, no level, no responses", False),
        ("id,question\nq1,what is this\nq2,what is that\n", "model,item_id\nm,q1\n", "no column 'score'", False),
        ("id,question\nq1,what is this\nq2,what is that\n", "model,verdict\nm,good\n", "no usable", False),
        ("id,question\nq1,what is this\nq2,what is that\n", "model,item_id,score\nm,q1,1\n", "", True),
        ("a,level\n1.5,1\n2.5,1\n2.5,2\n3.5,2\n", "", "", True),
    ],
)
def test_init_says_what_its_recipe_lacks(
    type_in: Callable[..., tuple[int, str, str]], file: str, answers: str, said: str, recipe_runs: bool
) -> None:
    Path("items.csv").write_text(file)
    Path("answers.csv").write_text(answers)
    code, out, _ = type_in("init", "items.csv", "--json", *(["--responses", "answers.csv"] if answers else []))
    assert code == 0
    found = json.loads(out)
    assert bool(found["warnings"]) is not recipe_runs
    assert said in " ".join(found["warnings"])
    assert ("gradatim run recipe.yaml" in found["next"]) is recipe_runs
    code, _, err = type_in("check", "recipe.yaml")
    assert (code == 0) is recipe_runs
    assert said in err


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    cli.emit(
        Summary("x", "y", facts=(Fact("a", math.nan), Fact("b", 1.5)), extra={"c": [math.inf, (-math.inf, 2)]}), True
    )
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [fact["value"] for fact in found["facts"]] == [None, 1.5]
    assert found["extra"] == {"c": [None, [None, 2]]}


def test_the_version_is_told(type_in: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = type_in("--version")
    assert (code, out.strip(), err) == (0, gradatim.__version__, "")


def test_methods_are_listed_whole_with_the_columns_that_each_must_have(
    type_in: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, _ = type_in("methods", "difficulty")
    assert code == 0
    assert "unobserved_structures" in out
    assert "gold_probability" in out
    assert "rows." not in out


def test_methods_for_a_file_come_recommended_first(type_in: Callable[..., tuple[int, str, str]]) -> None:
    write_jsonl(Path("items.jsonl"), items(0, 60))
    code, out, _ = type_in("methods", "--for", "items.jsonl", "--json")
    assert code == 0
    tables = {table["title"]: table["rows"] for table in json.loads(out)["tables"]}
    assert next(row[1] for row in tables["split"]) == "length"
    assert tables["split"][0][0] == "recommended"
    names = [row[1] for row in tables["difficulty"]]
    assert "length" in names
    assert "irt" not in names  # there are no responses
    needs = {row[1]: row[3] for row in tables["diversity"]}
    assert needs["near_duplicates"] == "examples: {column} or features"
    assert "embedding_shift" not in needs  # there is no domain
    assert needs["distinct_n"] == "examples: {column}"  # by is left out where nobody names it
    code, out, _ = type_in("methods", "splits")
    assert code == 2


def test_looking_at_a_store_that_is_not_there_does_not_make_one(
    type_in: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = type_in("log", "--store", "nowhere")
    assert code == 2
    assert "there is no store here" in err
    assert not Path("nowhere").exists()

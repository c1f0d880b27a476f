"""The command line: exit codes, JSON, and the way from a file to a checked and planned recipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_recipe import items, write_jsonl

from gradatim.flows import cli

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
    code, out, _ = type_in("methods", "splits")
    assert code == 2


def test_looking_at_a_store_that_is_not_there_does_not_make_one(
    type_in: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = type_in("log", "--store", "nowhere")
    assert code == 2
    assert "there is no store here" in err
    assert not Path("nowhere").exists()

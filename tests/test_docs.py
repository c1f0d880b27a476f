"""The documentation is true: its examples run, its recipes parse, its commands exist; it builds without a warning."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import example_data
import pytest

import gradatim
from gradatim.schemas.recipe import Recipe, load_recipe, parse_recipe
from gradatim.schemas.tables import TABLES
from gradatim.tasks.core import registry

ROOT = Path(__file__).parents[1]
GUIDE = [page for folder in ("", "difficulty", "diversity", "splits") for page in (ROOT / "docs" / folder).glob("*.md")]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(GUIDE)]
BLOCK = re.compile(
    r"^(?P<fence>`{3,}|:{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ ]*$|^<!-- python\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
SECTIONS = {"difficulty": "difficulty", "diversity": "diversity", "splits": "split"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `language` is python for a hidden one too."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    source, found = page.read_text(encoding="utf-8"), []
    for match in BLOCK.finditer(source):
        group = "body" if match["hidden"] is None else "hidden"
        language = "python" if group == "hidden" else (match["info"].split() or [""])[0]
        found.append(Block(page, source.count("\n", 0, match.start(group)), language, match[group]))
    return found


def select(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def name(value: object) -> str:
    if isinstance(value, Block):
        return f"{value.page.relative_to(ROOT)}:{value.line}"
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else ""


@pytest.fixture
def registry_as_it_was() -> Iterator[None]:
    """An example may register a plug-in; the tests after it do not see it."""
    for area in registry.AREAS:
        registry.plugins(area)
    kept = dict(registry._plugins)
    yield
    registry._plugins.clear()
    registry._plugins.update(kept)


@pytest.mark.usefixtures("registry_as_it_was")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.language in ("python", "pycon") for b in blocks(p))], ids=name
)
def test_the_examples_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example_data.write(tmp_path)
    namespace: dict[str, Any] = {"__name__": f"example_{page.stem}"}
    for block in blocks(page):
        if block.language == "python":
            # empty lines before the code let a traceback point at the line of the page
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
        elif block.language == "pycon":
            example = doctest.DocTestParser().get_doctest(block.text, namespace, name(block), str(page), block.line)
            complaints: list[str] = []
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
            runner.run(example, out=complaints.append, clear_globs=False)
            assert complaints == []
            namespace.update(example.globs)


def check_methods(recipe: Recipe, where: str) -> None:
    """Every method that a recipe names exists and takes its settings."""
    steps = [(area, step) for section, area in SECTIONS.items() for step in getattr(recipe, section)]
    steps += [("embedding", step) for step in recipe.embedded().values()]
    if recipe.examples.generate:
        steps.append(("dataset", recipe.examples.generate))
    if recipe.curriculum:
        steps.append(("pacing", recipe.curriculum.pacing))
    if recipe.train and ":" not in recipe.train.model.method:
        steps.append(("model", recipe.train.model))
    for area, step in steps:
        registry.resolve(area, step, where=where)


@pytest.mark.parametrize("block", [b for b in select("yaml") if b.text.startswith("dataset:")], ids=name)
def test_a_whole_recipe_on_a_page_is_a_recipe_that_would_run(block: Block) -> None:
    check_methods(parse_recipe(block.text, where=name(block)), name(block))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.y*ml")), ids=name)
def test_a_recipe_among_the_examples_is_a_recipe_that_would_run(path: Path) -> None:
    check_methods(load_recipe(path), str(path))


def shown_commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands of a page's shell blocks, and those in code spans."""
    lines = []
    for block in blocks(page):
        if block.language in ("sh", "bash", "console"):
            lines += block.text.replace("\\\n", " ").splitlines()
    lines += re.findall(r"(?<!`)`((?:gradatim|make) [^`\n]+)`(?!`)", BLOCK.sub("", page.read_text(encoding="utf-8")))
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words and words[0] in ("gradatim", "make"):
            yield words


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_command_on_a_page_exists_and_has_the_options_it_is_shown_with(page: Path) -> None:
    makefile, options = (ROOT / "Makefile").read_text(encoding="utf-8"), cli_options()
    for command in shown_commands(page):
        if command[0] == "make":
            assert all("=" in word or f"\n{word}:" in makefile for word in command[1:]), command
        elif command[1] not in ("--help", "--version"):
            assert command[1] in options, f"gradatim has no command {command[1]!r}: {command}"
            unknown = {word.split("=")[0] for word in command[2:] if word.startswith("-")} - options[command[1]]
            assert unknown == set(), command


def cli_options() -> dict[str, set[str]]:
    """Return each command of the command line with its options."""
    import typer

    from gradatim.flows.cli import app

    group = typer.main.get_command(app)
    return {
        verb: {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
        | {"--help"}
        for verb, command in group.commands.items()  # type: ignore[attr-defined]
    }


def test_the_pages_have_examples_to_run() -> None:
    # an expression that matches nothing would let all of the above pass
    assert len(select("python")) >= 8
    assert len([b for b in select("yaml") if b.text.startswith("dataset:")]) >= 1
    assert len([command for page in PAGES for command in shown_commands(page)]) >= 15
    source = "a\n<!-- python\nx = 1\n-->\n````text\n```python\nnot run\n```\n````\n```python\nassert x\n```\n"
    assert [BLOCK.sub("", source)] == ["a\n\n\n\n"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built with warnings as errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "-d", str(out / "trees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, check=False, timeout=240
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "WARNING" in line or "rror" in line]
    assert (done.returncode, complaints) == (0, [])
    return out / "html"


def test_the_documentation_builds_without_a_warning(site: Path) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / f"{page.stem}.html").is_file()


def test_the_reference_shows_every_key_of_a_recipe_every_table_and_every_method(site: Path) -> None:
    recipe, tables, methods = (
        (site / page).read_text(encoding="utf-8")
        for page in ("recipe.html", "reference/tables.html", "reference/methods.html")
    )
    for definition in [Recipe.model_json_schema(), *Recipe.model_json_schema()["$defs"].values()]:
        for key, field in definition["properties"].items():
            assert f">{key}</span>" in recipe, key
            assert field["description"].split(";")[0].split("'")[0].split("`")[0] in recipe, key
    for table in TABLES:
        assert f'id="{table.replace("_", "-")}"' in tables
    for area in registry.AREAS:
        for plugin in registry.plugins(area).values():
            assert f">{plugin.name}</span>" in methods, plugin.name


def test_the_reference_shows_every_public_function(site: Path) -> None:
    page = (site / "reference/api.html").read_text(encoding="utf-8")
    for function in gradatim.__all__:
        assert f'id="gradatim.{function}"' in page, function
        assert getattr(gradatim, function).__doc__

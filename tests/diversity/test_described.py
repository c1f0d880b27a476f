"""Every measure and embedder is described, shown in an example, reached in every way, and drawn in the report."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from every_measure import EMBEDDERS, healthy, measured, vectors_of

import gradatim as gd
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import plugins, resolve

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted((DOCS / "diversity").glob("*.md"))}
OVERVIEW = (DOCS / "diversity.md").read_text(encoding="utf-8")
TERMS = ("Use when", "Do not use when", "Needs", "Fails how", "Formula", "Cost", "Cite")
NAMES = [(area, name) for area in ("diversity", "embedding") for name in sorted(plugins(area))]
PICTURES = {
    "coverage": "map",
    "near_duplicates": "similarity",
    "contamination": "similarity",
    "factor_coverage": "grid",
    "column_shift": "columns",
}
"""Where people would rather look than read: a map by domain, histograms of similarity, a grid of coverage, bars."""


def section(name: str) -> str:
    """Return the section of a method: from its heading, which ends in its name, to the next heading or example."""
    found = [
        (page, match) for page in PAGES.values() for match in re.finditer(rf"^## [^\n]*: `{name}`$", page, re.MULTILINE)
    ]
    assert len(found) == 1, f"{name} has {len(found)} sections in docs/diversity: write '## What it is: `{name}`'"
    page, match = found[0]
    return re.split(r"^(?:## |```)", page[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(("area", "name"), NAMES)
def test_a_method_has_its_section_with_every_term(area: str, name: str) -> None:
    text = section(name)
    for term in TERMS:
        told = re.search(rf"^{term}\n: (?P<told>.+?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        assert told is not None, f"docs of {name} lack the term {term!r}"
        assert len(told["told"].strip()) > 10, f"docs of {name} say nothing under {term!r}"
    if area == "diversity":
        assert f"`{name}`" in OVERVIEW or f"`{name}`" in PAGES["shift"].split("```")[0]


@pytest.mark.parametrize(("area", "name"), NAMES)
def test_a_method_is_shown_in_a_recipe_and_its_page_runs_an_example(area: str, name: str) -> None:
    page = next(text for text in PAGES.values() if re.search(rf"^## [^\n]*: `{name}`$", text, re.MULTILINE))
    recipes = "".join(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    shown = rf"^ *- \{{?{name}\b" if area == "diversity" else rf"by: *(\{{ *)?{name}\b"
    assert re.search(shown, recipes, re.MULTILINE), f"no recipe on the page of {name} shows it"
    runs = "".join(re.findall(r"^(?:```python|<!-- python)\n(.*?)^(?:```|-->)", page, re.MULTILINE | re.DOTALL))
    assert f"gd.{'diversity' if area == 'diversity' else 'embed'}(" in runs
    assert len(plugins(area)[name].summary) > 20
    assert plugins(area)[name].source


@pytest.mark.parametrize("name", sorted(plugins("diversity")))
def test_a_measure_is_reached_from_a_recipe_and_a_notebook_and_drawn_in_the_report(name: str) -> None:
    plugin, _ = resolve("diversity", Step(name=name, method=name, settings={}))
    assert plugin.name == name
    frame = healthy()
    reads = any(need.startswith("features_") for need in plugin.needs)
    found = measured(name, frame, vectors_of(frame) if reads and name not in PICTURES else None)
    summary = found.summary()
    assert summary.charts, f"{name} draws nothing"
    assert all(chart.caption and chart.spec for chart in summary.charts)
    assert summary.tables
    assert summary.sources == (plugin.source,) or plugin.source.split(" (")[0] in summary.sources[0]
    assert found.plot() is not None
    assert found.cite()
    if name in PICTURES:
        assert found.plot(PICTURES[name]) is not None


@pytest.mark.parametrize("name", sorted(EMBEDDERS))
def test_an_embedder_is_reached_from_a_recipe_and_a_notebook(name: str) -> None:
    found = gd.embed(healthy(), name, **EMBEDDERS[name])
    assert resolve("embedding", Step(name="x", method=name, settings=EMBEDDERS[name]))[0].name == name
    assert found.summary().sources == (found.cite(),)
    assert found.table["example_id"].to_list() == healthy()["example_id"].to_list()
    assert isinstance(found.table.schema["embedding"], pl.Array)

"""Summaries as artifacts."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.summary import Fact, Summary, SummaryChart, SummaryTable
from gradatim.tasks.reporting import markdown
from gradatim.tasks.reporting.markdown import render_markdown

GOLDEN = """\
## split length

**train 4,480 · test 560 · test_ood 812 · near-duplicates across: 0**

*Reused: nothing that this step depends on has changed.*

> **Read with care:** The longest bin has 12 rows.

| | | |
| :-- | --: | :-- |
| shift AUC | **.94** | random control .50 |
| zero-shot gap | **-.18** | difficulty-matched -.03 |
| held out | **13.9 %** |  |

**Certificate**

| check | value | holds |
| :-- | --: | :-- |
| disjoint | 0 | yes |

*All hold.*

![Rows by split: Long items are held out.](PNG)

*Long items are held out.*

**Next**

- `gradatim why q17`
- Add longer items.

**Sources**

- Some Author (2020). A title.

Everything: `runs/report.html`
"""


def test_every_field_stands_in_the_artifact_and_no_private_row(summaries: tuple[Summary, ...]) -> None:
    shown = render_markdown(summaries[1], link="runs/report.html")
    (uri,) = re.findall(r"\(data:image/png;base64,([^)]*)\)", shown)
    png = base64.b64decode(uri, validate=True)
    assert png.startswith(b"\x89PNG")
    assert len(png) > 5_000
    assert shown.replace(f"data:image/png;base64,{uri}", "PNG") == GOLDEN
    assert "secret" not in shown


def test_a_table_is_cut_at_200_rows_with_a_link_to_the_rest() -> None:
    table = SummaryTable("Ids", ("id",), tuple((f"id{i}x",) for i in range(5000)))
    shown = render_markdown(Summary("s", "h", tables=(table,)), link="rows.parquet")
    assert shown.count("| id") == 201
    assert "id199x" in shown
    assert "The first 200 of 5,000 rows; all: `rows.parquet`" in shown


def test_what_does_not_fit_is_named_and_the_rest_stays(summaries: tuple[Summary, ...]) -> None:
    wide = tuple(f"column {i}" for i in range(40))
    tables = tuple(
        SummaryTable(f"T{i}", wide, tuple(tuple("é<&|" * 60 for _ in wide) for _ in range(300))) for i in range(8)
    )
    summary = Summary(
        "s",
        "the result",
        facts=tuple(Fact("&" * 500, "<" * 500, note="*" * 500) for _ in range(3000)),
        tables=tables,
        charts=summaries[1].charts,
        warnings=("<" * 10_000,) * 2000,
    )
    shown = render_markdown(summary)
    assert len(shown.encode("utf-8")) <= markdown.LIMIT
    assert "**the result**" in shown
    assert "Too large to stand here: warnings" in shown


def test_a_chart_that_cannot_be_drawn_is_named_with_the_reason() -> None:
    shown = render_markdown(Summary("s", "h", charts=(SummaryChart("Odd", {"mark": "nothing"}, "c"),)))
    assert "*Odd could not be drawn: this is no chart" in shown


def test_an_empty_table_and_missing_numbers_are_fine() -> None:
    tables = (SummaryTable("E", ("a",), ()), SummaryTable("N", ("a", "b"), ((float("nan"), None), (1.5,))))
    shown = render_markdown(Summary("s", "h", facts=(Fact("x", float("nan")), Fact("y", None, "s")), tables=tables))
    assert "*No rows.*" in shown
    assert "| – | – |\n| 1.5 | – |" in shown
    assert "nan" not in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("[x](javascript:alert(1))", "\\[x\\](javascript:alert(1))"),
        ("![x](u)", "\\!\\[x\\](u)"),
        ("a|b\n# c", "a\\|b \\# c"),
        ("`code` *b* _i_ test_ood", "\\`code\\` \\*b\\* \\_i\\_ test_ood"),
        ("&lt;", "&amp;lt;"),
        ("\ud800\x1b", "\ufffd\ufffd"),
    ],
)
def test_markdown_and_html_in_a_text_are_shown_as_they_are(text: str, expected: str) -> None:
    assert markdown.escape(text, 100) == expected


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(codec=None), max_size=200))
def test_no_text_makes_a_new_line_a_tag_or_a_table_cell(text: str) -> None:
    table = SummaryTable(text, (text, text), ((text, 1), (text, None)))
    summary = Summary(text, text, (Fact(text, text, text, text),), (table,), (), (text,), (text,), (text,))
    plain = Summary("a", "a", (Fact("a", "a", "a", "a"),), (SummaryTable("a", ("a", "a"), (("a", 1), ("a", None))),))
    shown = render_markdown(summary)
    shown.encode("utf-8")
    expected = render_markdown(Summary(**{**vars(plain), "warnings": ("a",), "next": ("a",), "sources": ("a",)}))
    assert len(shown.split("\n")) == len(expected.split("\n"))
    code_free = re.sub(r"(`+).*?\1", "", shown)
    assert "<" not in code_free
    for line, model in zip(shown.split("\n"), expected.split("\n"), strict=True):
        if model.startswith("|"):
            assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == model.count("|")

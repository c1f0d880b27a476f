"""The self-contained page."""

from __future__ import annotations

import re
import struct
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.summary import Fact, Summary, SummaryChart, SummaryTable
from gradatim.tasks.core import charts
from gradatim.tasks.reporting import figures
from gradatim.tasks.reporting.report import Report, package_versions, render_html

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Collects tags, ids, links and visible text, and checks that what opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def test_every_field_of_summary_and_report_appears(report: Report) -> None:
    page = Page(render_html(replace(report, local=True)))
    step = report.summaries[1]
    # a new field must be shown, or named here as what it is: free for machines
    assert {f.name for f in fields(Summary)} == {
        *("step", "headline", "facts", "tables", "charts", "warnings", "next", "sources", "reused", "extra")
    }
    expected = [
        *(step.step, " ".join(step.headline.split()), *step.warnings, *step.next, *step.sources, "reused"),
        *("shift AUC .94 random control .50", "zero-shot gap -.18", "held out 13.9 %"),
        *("Certificate check value holds disjoint 0 yes All hold.", "a secret text", "Rows by split"),
        *("Long items are held out.", report.title, report.dataset, "2026-11-29 03:10 UTC", *report.headline),
        *("dataset: items seed: 0", "release 4200", "recipe hash 8e1f02bc", "examples 3 5,852", "polars 2.1.0"),
        " ".join(report.commands),
    ]
    for text in expected:
        assert text in page.text


def test_private_tables_stand_only_in_local_reports(report: Report) -> None:
    shown = render_html(report)
    assert "secret" not in shown
    assert "q17" in shown  # the advice names the id, which is no text of the data
    assert "1 table with text of the data is not part of this report." in Page(shown).text
    assert "Holds text of the data; local report only." in Page(render_html(replace(report, local=True))).text


def test_the_page_loads_nothing_and_runs_nothing(report: Report) -> None:
    shown = render_html(report)
    page = Page(shown)
    assert "http:" not in shown
    assert "https:" not in shown
    assert "@import" not in shown
    assert not {"script", "link", "iframe", "object", "embed", "base", "form", "image", "use"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert all(value.startswith("#") for value in page.values("href"))
    assert not page.values("src")
    assert all(match.startswith("#") for match in re.findall(r"url\((.*?)\)", shown))
    assert "default-src 'none'" in shown


def test_links_and_labels_lead_to_ids_and_each_id_is_there_once(report: Report) -> None:
    twice = replace(report, summaries=report.summaries + report.summaries)
    page = Page(render_html(twice))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {value.removeprefix("#") for value in page.values("href")} <= set(ids)
    assert set(page.values("aria-labelledby")) <= set(ids)
    assert set(re.findall(r"url\(#(.*?)\)", render_html(twice))) <= set(ids)


def test_the_page_has_headings_captions_and_texts_for_its_pictures(report: Report) -> None:
    page = Page(render_html(report))
    assert page.tags.count("h1") == 1
    assert page.tags.count("h2") == len(report.summaries) + 1
    assert page.tags.count("caption") == page.tags.count("table") == 3
    assert "Rows by split: Long items are held out." in page.values("aria-label")
    assert ("html", "lang", "en") in page.attributes


def test_the_same_report_gives_the_same_bytes_and_time_is_shown_in_utc(report: Report) -> None:
    assert render_html(report) == render_html(report)
    east = replace(report, created=datetime(2026, 11, 29, 5, 10, tzinfo=timezone(timedelta(hours=2))))
    assert render_html(east) == render_html(report)


def test_a_report_of_nothing_is_a_page(report: Report) -> None:
    page = Page(render_html(Report("t", "d", report.created)))
    assert "No step has run." in page.text


def test_empty_tables_missing_numbers_and_short_rows_are_set(report: Report) -> None:
    tables = (
        SummaryTable("Empty", ("a", "b"), ()),
        SummaryTable("Bare", (), ()),
        SummaryTable("Odd", ("a", "b"), ((float("nan"), None), (float("inf"),), (0.5, "x"))),
    )
    summary = Summary("s", "h", facts=(Fact("n", float("nan")), Fact("m", None, "s")), tables=tables)
    page = Page(render_html(replace(report, summaries=(summary,))))
    assert "Empty a b No rows." in page.text
    assert "a b – – ∞ – .5 x" in page.text
    assert "nan" not in page.text.split()


def test_a_long_table_is_cut_at_500_rows_and_scrolls(report: Report) -> None:
    table = SummaryTable("Long", ("i",), tuple((i,) for i in range(2345)))
    page = Page(render_html(replace(report, summaries=(Summary("s", "h", tables=(table,)),))))
    assert "The first 500 of 2,345 rows. The table scrolls." in page.text
    assert page.tags.count("td") == 500 + 1 + 3


def test_a_broken_chart_is_named_and_costs_nothing_else(report: Report) -> None:
    broken = SummaryChart("Odd <b>", {"mark": "nothing"}, "What it would show.")
    page = Page(render_html(replace(report, summaries=(Summary("s", "h", charts=(broken,)),))))
    assert "The chart “Odd <b>” could not be drawn: this is no chart" in page.text
    assert "What it would show." in page.text


def test_a_drawing_of_many_points_becomes_a_picture(report: Report) -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=6000), "y": rng.normal(size=6000)})
    cloud = charts.chart(charts.points(frame, x="x", y="y", title="Cloud"), "Round.")
    page = Page(render_html(replace(report, summaries=(Summary("s", "h", charts=(cloud,)),))))
    (source,) = page.values("src")
    assert source.startswith("data:image/png;base64,")
    assert page.values("alt") == ["Cloud: Round."]
    assert len(source) < 1_000_000


def test_a_picture_is_a_png_of_the_size_of_its_chart(report: Report) -> None:
    import base64

    figure = figures.picture(report.summaries[1].charts[0])
    png = base64.b64decode(figure.uri.removeprefix("data:image/png;base64,"), validate=True)
    assert struct.unpack(">II", png[16:24]) > (700, 300)


def test_foreign_parts_of_a_drawing_are_dropped_and_its_ids_are_its_own() -> None:
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="a()">'
        '<script>a()</script><defs><clipPath id="c0"><rect/></clipPath></defs><foreignObject/><style>x</style>'
        '<g clip-path="url(#c0)" style="x"><a xlink:href="javascript:a()"><path d="M0 0"/></a>'
        '<path fill="url(http://x/y)" stroke="red" onclick="a()"/><text>&lt;b&gt; x</text></g></svg>'
    )
    assert figures.tidy(svg, "f1") == (
        '<svg><defs><clipPath id="f1-c0"><rect /></clipPath></defs>'
        '<g clip-path="url(#f1-c0)"><path stroke="red" /><text>&lt;b&gt; x</text></g></svg>'
    )


@pytest.fixture(scope="module")
def tags(report: Report) -> list[str]:
    return Page(render_html(_filled(report, "a"))).tags


def _filled(report: Report, text: str) -> Report:
    """Put one text everywhere where a text can stand."""
    table = SummaryTable(text, (text, text), ((text, 1), (text, None)), text, True)
    summary = Summary(text, text, (Fact(text, text, text, "n" + text),), (table,), (), (text,), ("x" + text,), (text,))
    everywhere = {
        "title": text,
        "dataset": text,
        "headline": (text,),
        "summaries": (summary,),
        "recipe_yaml": "r" + text,
    }
    more = {"provenance": ((text, text),), "versions": table, "packages": ((text, text),), "commands": ("c" + text,)}
    return replace(report, local=True, **everywhere, **more)  # type: ignore[arg-type]


HOSTILE = st.one_of(
    st.text(st.characters(codec=None), max_size=80),
    st.lists(st.sampled_from("<>\"'&`{}/=-!%#\ud800\x00\u202e ab"), max_size=40).map("".join),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "</style><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "{{ 7 * 7 }}{% raw %}",
            "</pre></section></main>",
            "]]><!--",
            "\ud800\udfff\x00\x1b[31m",
        ]
    ),
)


@settings(max_examples=80, deadline=None)
@given(text=HOSTILE)
def test_no_text_adds_a_tag_or_cannot_be_stored(text: str, report: Report, tags: list[str]) -> None:
    shown = render_html(_filled(report, text))
    shown.encode("utf-8")
    page = Page(shown)
    assert page.tags == tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "\x00" not in shown
    assert "\x1b" not in shown


def test_a_huge_text_is_cut(report: Report) -> None:
    assert len(render_html(_filled(report, "x" * 2_000_000))) < 4_000_000


def test_versions_name_what_is_installed() -> None:
    versions = dict(package_versions())
    assert versions["polars"] == pl.__version__
    assert {"python", "numpy", "pyarrow"} <= set(versions)

"""A summary survives JSON: what a flow's task hands over is what the report shows."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.summary import Fact, Summary, SummaryChart, SummaryTable

text = st.text(max_size=20)
cells = text | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
tables = st.integers(0, 3).flatmap(
    lambda width: st.builds(
        SummaryTable,
        title=text,
        columns=st.tuples(*[text] * width),
        rows=st.lists(st.tuples(*[cells] * width), max_size=3).map(tuple),
        note=text,
        private=st.booleans(),
    )
)
charts = st.builds(SummaryChart, title=text, spec=st.dictionaries(text, text | st.lists(st.integers())), caption=text)
lines = st.lists(text, max_size=3).map(tuple)
summaries = st.builds(
    Summary,
    step=text,
    headline=text,
    facts=st.lists(st.builds(Fact, name=text, value=cells, unit=text, note=text), max_size=3).map(tuple),
    tables=st.lists(tables, max_size=2).map(tuple),
    charts=st.lists(charts, max_size=2).map(tuple),
    warnings=lines,
    next=lines,
    sources=lines,
    reused=st.booleans(),
    extra=st.dictionaries(text, st.integers() | st.lists(text), max_size=2),
)


@settings(max_examples=50, deadline=None)
@given(summaries)
def test_a_summary_comes_back_from_json_as_it_went(summary: Summary) -> None:
    again = Summary.from_dict(json.loads(json.dumps(summary.to_dict())))
    assert again == summary
    assert all(type(row) is tuple for table in again.tables for row in table.rows)


def test_every_field_is_in_the_dict() -> None:
    # a field added to the class but forgotten in from_dict would be lost without this
    everything = {field.name for field in dataclasses.fields(Summary)}
    assert Summary("a", "b").to_dict().keys() == everything
    marked = Summary(
        "step", "head", (Fact("f", 1),), (SummaryTable("t", ("c",), ((1,),)),), (SummaryChart("c", {"a": 1}, "s"),),
        ("w",), ("n",), ("s",), True, {"k": 1},
    )  # fmt: skip
    again = Summary.from_dict(marked.to_dict())
    assert [name for name in everything if getattr(again, name) != getattr(marked, name)] == []


def test_a_summary_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Summary("a", "b").headline = "c"  # type: ignore[misc]

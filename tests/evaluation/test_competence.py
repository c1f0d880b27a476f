"""Competence by task, and the worst of groups made of several columns."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.evaluation.competence import competence


def test_nine_of_ten_reach_ninety_percent_and_a_large_task_counts_once() -> None:
    scores = pl.DataFrame(
        {
            "task": ["a"] * 10 + ["b"] * 4 + ["c"] * 500 + [None],
            "score": [0.1] * 5 + [1.0] * 3 + [0.75, 0.75] + [1.0, 1.0, 1.0, 0.0] + [1.0] * 450 + [0.0] * 50 + [1.0],
        }
    )
    found = competence(scores, at=[0.5, 0.75, 0.9, 1.0])
    assert found["value"].to_list() == [1.0, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]
    assert found["n"].to_list() == [3] * 4
    expected = wilson(2, 3)
    assert found.select("ci_low", "ci_high").row(1) == (expected.low, expected.high)


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=60),
    st.sampled_from([0.25, 0.5, 0.75, 0.9, 1.0]),
)
def test_it_is_that_of_brute_force_and_falls_with_the_level(rows: list[tuple[str, float]], level: float) -> None:
    scores = pl.DataFrame(rows, schema=["task", "score"], orient="row")
    by: dict[str, list[float]] = {}
    for task, score in rows:
        by.setdefault(task, []).append(score)
    expected = sum(sum(its) / len(its) >= level - 1e-9 for its in by.values()) / len(by)
    assert competence(scores, at=level)["value"].to_list() == [pytest.approx(expected)]
    falling = competence(scores[::-1], at=[0.1, level, 1.0])["value"]
    assert falling.is_sorted(descending=True)


def study() -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    number = pl.int_range(800, eager=True)
    ids = pl.Series("example_id", [f"e{i:03d}" for i in range(800)])
    known = pl.DataFrame(
        {
            "example_id": ids,
            "task": (number % 8).cast(pl.String),
            "identity": ["yes" if i % 2 else None if i % 40 == 0 else "no" for i in number],
            "label": ["toxic" if i % 3 else "fine" for i in number],
        }
    )
    splits = pl.DataFrame(
        {"example_id": ids, "split": ["test" if i % 2 == (i // 8) % 2 else "test_ood" for i in number]}
    )
    wrong = [i % 2 == 1 and i % 3 == 0 and i % 4 == 1 for i in number]
    answers = pl.DataFrame({"run_id": "m", "example_id": ids, "score": [0.0 if w else 1.0 for w in wrong]})
    return splits, answers, known


def test_of_an_evaluation_it_is_told_for_each_split() -> None:
    splits, answers, known = study()
    found = gd.evaluate(splits, answers, examples=known, axes=["task"], resamples=50)
    table = gd.competence(found, at=0.9)
    assert table["split"].to_list() == ["test", "test_ood"]
    joined = answers.join(splits, on="example_id").join(known, on="example_id")
    for split, value in table.select("split", "value").iter_rows():
        means = joined.filter(split=split).group_by("task").agg(pl.col("score").mean())["score"]
        assert value == pytest.approx((means >= 0.9 - 1e-9).mean())
    assert 0 < table["value"][0] < 1


def test_the_worst_group_may_be_a_combination_of_columns() -> None:
    splits, answers, known = study()
    found = gd.evaluate(splits, answers, examples=known, axes=["identity x label", "label"], resamples=50)
    worst = found.table.filter(axis="worst_identity x label", run_id="m")
    assert set(worst["slice"]) == {"test/yes, fine", "test_ood/yes, fine"}
    joined = answers.join(splits, on="example_id").join(known, on="example_id")
    for slice_, value, n in worst.select("slice", "value", "n").iter_rows():
        group = joined.filter(split=slice_.split("/")[0], identity="yes", label="fine")
        assert (value, n) == (pytest.approx(group["score"].mean()), len(group))
    counted = found.table.filter(axis="identity x label")["n"].sum()
    assert counted == known["identity"].is_not_null().sum()
    assert found.matrix("identity x label").table.height == 8
    with pytest.raises(UsageError, match="no column 'colour'"):
        gd.evaluate(splits, answers, examples=known, axes=["colour x label"])


def test_what_cannot_be_counted_is_refused() -> None:
    rows = pl.DataFrame({"task": ["a"], "score": [0.5]})
    for level in (0, 1.5, [], [0.5, -1]):
        with pytest.raises(UsageError, match="level"):
            competence(rows, at=level)
    with pytest.raises(UsageError, match="no column 'tasks'"):
        competence(rows, by="tasks")
    with pytest.raises(DataRefused, match="no row has a task"):
        competence(rows.with_columns(task=pl.lit(None, pl.String)))
    for score in (1.5, float("nan"), None):
        with pytest.raises(DataRefused, match="no score in"):
            competence(rows.with_columns(score=pl.lit(score, pl.Float64)))

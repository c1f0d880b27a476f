"""Rank correlations between difficulties."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.agreement import agreement


def table(**values: list[float | None]) -> pl.DataFrame:
    frames = [
        pl.DataFrame({"example_id": [f"q{i}" for i in range(len(found))], "value": found}, strict=False).with_columns(
            pl.lit(name).alias("method"), pl.col("value").cast(pl.Float64)
        )
        for name, found in values.items()
    ]
    return pl.concat(frames).with_columns((pl.col("value").rank() / pl.len()).over("method").alias("percentile"))


def test_it_is_spearmans_with_ties_in_any_row_order() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 9, 200).astype(float), rng.normal(size=200)
    frame = table(b=right.tolist(), a=left.tolist())
    found = agreement(frame).pairs
    assert found.select("left", "right", "n").rows() == [("a", "b", 200)]
    assert found["spearman"][0] == pytest.approx(spearmanr(left, right).statistic)
    assert agreement(frame.sample(fraction=1.0, shuffle=True, seed=1)).pairs.equals(found)


def test_only_examples_that_both_know_count_and_pairs_come_in_order() -> None:
    found = agreement(table(c=[1.0, 2.0, 3.0, 4.0], a=[4.0, 3.0, 2.0], b=[1.0, None, 3.0, 9.0])).pairs
    assert found.select("left", "right", "n").rows() == [("a", "b", 2), ("a", "c", 3), ("b", "c", 3)]
    assert found["spearman"].to_list() == [None, -1.0, 1.0]


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 1.0], [1.0, 2.0]])
def test_a_constant_or_too_few_examples_have_no_correlation(values: list[float]) -> None:
    assert agreement(table(a=values, b=[1.0, 2.0, 3.0, 4.0])).pairs["spearman"].to_list() == [None]


def test_one_method_has_no_pair() -> None:
    found = agreement(table(a=[1.0, 2.0]))
    assert found.pairs.is_empty()
    assert found.disagreements.is_empty()


def test_the_examples_that_the_methods_place_most_differently_come_first() -> None:
    found = agreement(table(a=[1.0, 2.0, 3.0, 4.0], b=[4.0, 2.0, 3.0, 1.0], c=[1.0, 2.0, 3.0, 4.0]), shown=3)
    assert found.disagreements.rows() == [
        ("q0", "a", "b", 0.25, 1.0, 0.75),
        ("q3", "b", "a", 0.25, 1.0, 0.75),
    ]


def test_nearly_unrelated_difficulties_are_a_warning() -> None:
    rng = np.random.default_rng(1)
    found = agreement(table(human=rng.normal(size=500).tolist(), models=rng.normal(size=500).tolist()))
    summary = found.summary()
    assert len(summary.warnings) == 1
    assert "human and models are nearly unrelated" in summary.warnings[0]
    assert "-.09" in summary.tables[0].note
    assert summary.charts[0].caption == "How far the estimators agree."


def test_difficulties_that_run_against_each_other_are_a_warning() -> None:
    rng = np.random.default_rng(2)
    left = rng.normal(size=100)
    warnings = agreement(table(a=left.tolist(), b=(-left).tolist())).summary().warnings
    assert warnings == ("a and b run against each other (-1): what is hard by one is easy by the other",)


def test_of_many_unrelated_pairs_the_first_are_named_and_the_others_counted() -> None:
    rng = np.random.default_rng(3)
    found = agreement(table(**{name: rng.normal(size=2_000).tolist() for name in "abcdefg"}))
    warnings = found.summary().warnings
    assert len(warnings) == 4
    assert warnings[-1] == "of 21 pairs 18 more are nearly unrelated: see the table"


def test_values_that_differ_by_rounding_alone_are_ties() -> None:
    found = agreement(table(a=[1.0, 1.0 + 2e-16, 2.0, 3.0], b=[5.0, 5.0, 6.0, 7.0]))
    assert found.pairs["spearman"][0] == pytest.approx(1.0)


def test_an_example_that_comes_twice_or_a_table_of_something_else_is_refused_with_a_word() -> None:
    frame = table(a=[1.0, 2.0], b=[2.0, 1.0])
    with pytest.raises(DataRefused, match="'a' has the example 'q0' more than once"):
        agreement(pl.concat([frame, frame.head(1)]))
    with pytest.raises(UsageError, match="no column 'method'"):
        agreement(pl.DataFrame({"example_id": ["a"]}))


def test_the_matrix_is_drawn_on_a_scale_from_minus_one_to_one() -> None:
    found = agreement(table(a=[1.0, 2.0, 3.0, 4.0], b=[4.0, 3.0, 1.0, 2.0]))
    encoded = found.plot().to_dict()["layer"][1]["encoding"]
    assert encoded["color"]["scale"]["domain"] == [-1, 0, 1]
    assert encoded["x"]["title"] is None

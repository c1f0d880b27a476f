"""Rank correlations between difficulties."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr

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
    assert found.pairs.is_empty() and found.disagreements.is_empty()


def test_the_examples_that_the_methods_place_most_differently_come_first() -> None:
    found = agreement(table(a=[1.0, 2.0, 3.0, 4.0], b=[4.0, 2.0, 3.0, 1.0], c=[1.0, 2.0, 3.0, 4.0]), shown=3)
    assert found.disagreements.rows() == [
        ("q0", "a", "b", 0.25, 1.0, 0.75),
        ("q3", "b", "a", 0.25, 1.0, 0.75),
        ("q1", "a", "a", 0.5, 0.5, 0.0),
    ]


def test_nearly_unrelated_difficulties_are_a_warning() -> None:
    rng = np.random.default_rng(1)
    found = agreement(table(human=rng.normal(size=500).tolist(), models=rng.normal(size=500).tolist()))
    summary = found.summary()
    assert len(summary.warnings) == 1 and "human and models are nearly unrelated" in summary.warnings[0]
    assert "-.09" in summary.tables[0].note
    assert summary.charts[0].caption == "How far the estimators agree."

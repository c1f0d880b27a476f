"""Rows of the table `statistics`."""

from __future__ import annotations

import math

import polars as pl

from gradatim.tasks.core.statistics import Statistic, of_step, statistics_table


def test_rows_come_sorted_with_hashed_parameters_and_no_number_that_is_none() -> None:
    rows = [Statistic("b", "mean", 1.0, 3, 0.5, 1.5), Statistic("a", "mean", math.inf, 3, math.nan)]
    found = statistics_table(rows, {"of": "x"})
    assert found["subset"].to_list() == ["a", "b"]
    assert found.select("value", "ci_low", "ci_high").rows() == [(None, None, None), (1.0, 0.5, 1.5)]
    assert found["parameters"].unique().to_list() == ['{"of": "x"}']


def test_a_number_about_two_subsets_names_what_it_was_compared_with() -> None:
    found = statistics_table([Statistic("b", "tv", 0.5, 3, reference="a"), Statistic("b", "tv", 0.2, 3)], {})
    assert found.select("subset", "reference", "value").rows() == [("b", "", 0.2), ("b", "a", 0.5)]


def test_two_steps_of_equal_settings_keep_their_rows_apart() -> None:
    found = statistics_table([Statistic("all", "mean", 1.0, 3)], {"of": "x"})
    both = pl.concat([of_step(found, "one"), of_step(found, "two")])
    assert both["parameters_hash"].n_unique() == 2
    assert both["parameters"].to_list() == ['{"of": "x", "step": "one"}', '{"of": "x", "step": "two"}']
    assert of_step(found.clear(), "none").is_empty()

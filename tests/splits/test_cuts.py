"""Folds, strata and balance: what every strategy can be asked for besides shares."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from split_rows import examples, make

from gradatim.schemas.errors import DataRefused


@pytest.mark.parametrize("setting", [{}, {"stratify": "domain"}, {"keep_together": "template"}])
def test_each_row_is_tested_once_in_folds(setting: dict[str, Any]) -> None:
    frame = examples()
    split = make("random", frame, folds=5, controls=False, **setting)
    assert split.main["fold"].unique().sort().to_list() == [0, 1, 2, 3, 4]
    tested = split.main.filter(pl.col("split") == "test")["example_id"]
    assert tested.sort().equals(frame["example_id"].sort().cast(pl.String))
    assert split.certify(frame).holds


def test_folds_of_a_rule_number_each_domain_and_cut_and_never_test_what_is_held_out() -> None:
    split = make("leave_one_domain_out", examples(), folds=3, controls=False)
    assert split.main["fold"].unique().sort().to_list() == list(range(12))
    for _, part in split.main.group_by("held_out"):
        assert part["fold"].n_unique() in (3, 12)
    counted = split.main.filter(pl.col("split") == "test").group_by("example_id").len()
    assert set(counted["len"]) == {3}  # once in the folds of each of the three other domains


def test_strata_have_equal_shares_to_a_row_under_any_rule() -> None:
    frame = examples()
    split = make("length", frame, train="<= 30", stratify="domain", test=0.2, controls=False)
    pool = split.main.filter(pl.col("split").is_in(["train", "validation", "test"]))
    per = pool.join(frame, on="example_id").group_by("domain").agg(pl.len(), test=(pl.col("split") == "test").sum())
    assert ((per["test"] - 0.2 * per["len"]).abs() <= 1).all()


def test_balance_gives_each_fold_the_training_rows_of_the_smallest() -> None:
    frame = examples().filter((pl.col("domain") != "dance") | (pl.int_range(pl.len()) % 3 == 0))
    loose = make("leave_one_domain_out", frame, controls=False).sizes
    split = make("leave_one_domain_out", frame, controls=False, balance=True)
    assert loose["train"].n_unique() > 1
    assert split.sizes["train"].to_list() == [loose["train"].min()] * 4
    assert split.sizes["test"].equals(loose["test"])
    dropped = split.main.filter(pl.col("reason").str.contains("beyond the"))
    assert set(dropped["split"]) == {"excluded"}


def test_folds_of_too_few_rows_are_refused() -> None:
    with pytest.raises(DataRefused, match="would be empty"):
        make("random", examples(3), folds=50)

"""Strategies side by side: means and spreads over seeds and folds."""

from __future__ import annotations

import statistics

import polars as pl
import pytest
from split_rows import difficulty, examples, make

from gradatim.schemas.errors import UsageError
from gradatim.tasks.splits.certificate import certify
from gradatim.tasks.splits.side_by_side import side_by_side


def test_means_and_spreads_are_those_of_the_certificates() -> None:
    frame = examples(600)
    tables = {"examples": frame, "difficulty": difficulty(frame)}
    left = certify(make("length", tables, train="<= 30", seeds=3), frame, tables["difficulty"])
    right = certify(make("leave_one_domain_out", tables), frame, tables["difficulty"])
    found = side_by_side([left.table, right.table])
    assert found.table["strategy"].unique(maintain_order=True).to_list() == ["length", "leave_one_domain_out"]
    row = found.table.filter((pl.col("strategy") == "length") & (pl.col("measure") == "shift AUC")).row(0, named=True)
    values = left.table.filter(pl.col("check") == "shift_auc")["value"].to_list()
    assert len(values) == row["splits"] == 3
    assert row["mean"] == pytest.approx(statistics.mean(values), abs=1e-12)
    assert row["deviation"] == pytest.approx(statistics.stdev(values), abs=1e-12)
    assert (row["smallest"], row["largest"]) == (min(values), max(values))
    controls = left.table.filter(pl.col("check") == "shift_auc")["control_value"].to_list()
    assert row["random_control"] == pytest.approx(statistics.mean(controls), abs=1e-12)
    table = found.summary().tables[0]
    assert table.columns == ("measure", "length", "leave_one_domain_out")
    assert ("seeds x folds", 3, 4) in table.rows
    assert found.plot().to_dict()["mark"]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="no certificate"):
        side_by_side([])
    frame = examples(300)
    one = certify(make("random", frame), frame)
    with pytest.raises(UsageError, match="called 'random'"):
        side_by_side([one.table, one.table])
    with pytest.raises(UsageError, match="no measure 'x'"):
        side_by_side([one.table]).plot("x")

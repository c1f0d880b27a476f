"""Spread over runs, with the hundred BERT runs as fixture."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.tasks.evaluation.seeds import spread, spread_ratio


def test_a_hundred_runs_that_agree_in_distribution_disagree_ten_times_more_out_of_it(data: Path) -> None:
    runs = pl.read_csv(data / "hans_berts" / "berts_100runs_accuracies_clean.csv")
    inside, outside = spread(runs["MNLI dev acc."]), spread(runs["Overall accuracy"])
    assert (inside.n, round(inside.mean, 4), round(inside.sd, 4)) == (100, 0.8434, 0.0024)
    assert (round(inside.min, 4), round(inside.max, 4)) == (0.8367, 0.8477)
    assert (round(outside.mean, 4), round(outside.sd, 4)) == (0.5668, 0.0236)
    assert (round(outside.min, 4), round(outside.max, 4)) == (0.5271, 0.6268)
    # 9.8 from the standard deviations as printed, .0236 / .0024
    assert spread_ratio(runs["MNLI dev acc."], runs["Overall accuracy"]) == pytest.approx(0.0236 / 0.0024, abs=0.12)
    swap = spread(runs["ln_subject/object_swap"])
    assert (round(swap.mean, 4), round(swap.sd, 4), swap.min, swap.max) == (0.1902, 0.1730, 0.0, 0.662)


def test_one_run_has_no_spread_and_none_is_refused() -> None:
    alone = spread([0.5])
    assert alone.mean == 0.5
    assert math.isnan(alone.sd)
    assert math.isnan(spread_ratio([0.5, 0.5], [0.1, 0.2]))
    with pytest.raises(UsageError, match="0 values"):
        spread([])
    with pytest.raises(UsageError, match="1 of them NaN"):
        spread([0.1, float("nan")])

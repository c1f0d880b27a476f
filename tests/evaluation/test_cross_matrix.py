"""Training sets against evaluated sets: every cell, mean and difference by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from split_rows import examples, make

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.intervals import wilson

# of each ten rows, how many a model solves: trained on a, b, or both; evaluated on a, b, c, d
LEVELS = {
    "astronomy": {"astronomy": 9, "biology": 6, "chemistry": 3, "dance": 1},
    "biology": {"astronomy": 4, "biology": 8, "chemistry": 4, "dance": 1},
    "chemistry": {"astronomy": 2, "biology": 2, "chemistry": 7, "dance": 1},
    "dance": {"astronomy": 1, "biology": 1, "chemistry": 1, "dance": 5},
    "all": {"astronomy": 9, "biology": 8, "chemistry": 7, "dance": 5},
    "all but dance": {"astronomy": 9, "biology": 8, "chemistry": 7, "dance": 2},
}


def study(n: int = 2000, seeds: int = 1) -> tuple[Any, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    rows = examples(n).with_columns(dataset="domain")
    split = make("cross_dataset", rows, controls=False, test=0.2, seeds=seeds)
    main = split.main.with_columns(number=pl.col("example_id").str.slice(1).cast(pl.Int64) // 4)
    runs, answers = [], []
    for seed in range(seeds):
        for fold, axis in main.filter(seed=seed).select("fold", "axis").unique().sort("fold").iter_rows():
            name = axis.removeprefix("dataset: ").removesuffix(" alone")
            if name not in LEVELS:
                continue
            block = main.filter((pl.col("fold") == fold) & (pl.col("seed") == seed)).join(rows, on="example_id")
            block = block.filter(pl.col("split").is_in(["test", "test_ood"]))
            run = f"run {seed} {name}"
            runs.append({"run_id": run, "fold": fold, "split_seed": seed})
            level = block["domain"].replace_strict(LEVELS[name])
            score = (block["number"] * 7 % 10 < level).cast(pl.Float64)
            answers.append(block.select(pl.lit(run).alias("run_id"), "example_id").with_columns(score=score))
    return split, pl.concat(answers), pl.DataFrame(runs), rows


def test_every_cell_is_the_mean_on_the_same_test_rows_with_its_interval() -> None:
    split, answers, runs, rows = study()
    found = gd.cross_matrix(split, answers, runs, examples=rows, resamples=200)
    assert found.table["trained"].unique(maintain_order=True).to_list() == [
        "astronomy", "biology", "chemistry", "dance", "all but dance", "all",
    ]  # fmt: skip
    assert len(found.table) == 24
    # by hand: the rows that are test where everything is trained on
    union = int(split.main.filter(pl.col("axis") == "dataset: all")["fold"][0])
    test = split.select(fold=union).main.filter(pl.col("split") == "test").join(rows, on="example_id")
    for trained, levels in LEVELS.items():
        for evaluated, level in levels.items():
            ids = test.filter(pl.col("domain") == evaluated)["example_id"]
            right = sum(int(i[1:]) // 4 * 7 % 10 < level for i in ids)
            cell = found.cell(trained, evaluated)
            expected = wilson(right, len(ids))
            assert (cell.value, cell.low, cell.high, cell.n) == (
                pytest.approx(expected.value), pytest.approx(expected.low), pytest.approx(expected.high), len(ids),
            )  # fmt: skip
    assert found.warnings == ()
    assert found.table.filter(trained="all but dance", seen=False)["evaluated"].to_list() == ["dance"]


def test_relative_means_and_asymmetry_are_those_of_the_cells() -> None:
    split, answers, runs, rows = study()
    found = gd.cross_matrix(split, answers, runs, examples=rows, resamples=200)
    value = {(t, e): v for t, e, v in found.table.select("trained", "evaluated", "value").iter_rows()}
    names = ["astronomy", "biology", "chemistry", "dance"]
    for trained, evaluated, relative in found.table.select("trained", "evaluated", "relative").iter_rows():
        assert relative == pytest.approx(value[trained, evaluated] / value[evaluated, evaluated])
    means = {(side, name): v for side, name, v in found.means.select("side", "name", "value").iter_rows()}
    for name in names:
        others = [other for other in names if other != name]
        assert means["trained", name] == pytest.approx(sum(value[name, other] for other in others) / 3)
        trained = [*others, "all but dance"] if name == "dance" else others
        reached = sum(value[other, name] for other in trained) / len(trained)
        assert means["evaluated", name] == pytest.approx(reached)
    assert means["trained", "all but dance"] == pytest.approx(value["all but dance", "dance"])
    assert ("trained", "all") not in means
    assert (found.means["ci_low"] <= found.means["value"]).all()
    assert (found.means["ci_high"] >= found.means["value"]).all()
    assert len(found.asymmetry) == 6
    for first, second, difference in found.asymmetry.iter_rows():
        assert difference == pytest.approx(value[first, second] - value[second, first])
    assert "dance is hardest to reach" in found.sentence()
    assert found.plot().to_dict()["layer"]
    assert found.summary().tables[2].title == "Asymmetry"
    assert "Talmor" in found.cite()
    contract = spec("evaluation").schema
    assert found.evaluation.to_arrow().cast(contract).num_rows == 24


def test_all_rows_count_where_columns_need_not_be_compared() -> None:
    split, answers, runs, rows = study()
    loose = gd.cross_matrix(split, answers, runs, examples=rows, common=False, resamples=100)
    assert loose.cell("astronomy", "dance").n == 500
    tight = gd.cross_matrix(split, answers, runs, examples=rows, resamples=100)
    assert 60 < tight.cell("astronomy", "dance").n == tight.cell("dance", "dance").n < 140


def test_runs_on_several_seeds_of_the_split_are_pooled_on_the_test_rows_of_each() -> None:
    split, answers, runs, rows = study(seeds=3)
    found = gd.cross_matrix(split, answers, runs, examples=rows, resamples=100)
    test = split.main.filter((pl.col("axis") == "dataset: all") & (pl.col("split") == "test")).join(
        rows, on="example_id"
    )
    assert found.cell("all", "dance").n == len(test.filter(domain="dance"))
    assert "runs x clusters" in found.cell("all", "dance").method
    with pytest.raises(UsageError, match="the splits have 3 seeds"):
        gd.cross_matrix(split, answers, runs.drop("split_seed"), examples=rows)


def test_answers_that_are_missing_are_told_and_neither_order_nor_threads_change_a_number() -> None:
    split, answers, runs, rows = study(800)
    found = gd.cross_matrix(split, answers, runs, examples=rows, resamples=100)
    mixed = gd.cross_matrix(
        split, answers.sample(fraction=1, shuffle=True, seed=2), runs[::-1], examples=rows[::-1], resamples=100
    )
    assert mixed.table.equals(found.table)
    assert mixed.means.equals(found.means)
    union = split.main.filter((pl.col("axis") == "dataset: all") & (pl.col("split") == "test"))["example_id"]
    gone = answers.filter(~((pl.col("run_id") == "run 0 dance") & pl.col("example_id").is_in(union.head(5).implode())))
    less = gd.cross_matrix(split, gone, runs, examples=rows, resamples=100)
    assert less.warnings == (f"5 of {len(union)} test examples were not answered by every run and are left out",)
    only = answers.filter(pl.col("example_id").is_in(union.head(3).implode()) != (pl.col("run_id") == "run 0 dance"))
    with pytest.raises(DataRefused, match="no example was tested for every training set"):
        gd.cross_matrix(split, only, runs, examples=rows)
    with pytest.raises(UsageError, match=r"no column 'datset'.*did you mean 'dataset'"):
        gd.cross_matrix(split, answers, runs, examples=rows, column="datset")


def test_a_training_set_without_any_success_has_no_relative_score_to_divide_by() -> None:
    split, answers, runs, rows = study(800)
    none = answers.with_columns(score=pl.lit(0.0))
    found = gd.cross_matrix(split, none, runs, examples=rows, resamples=50)
    assert found.table["relative"].null_count() == len(found.table)
    assert found.means["value"].to_list() == [0.0] * len(found.means)

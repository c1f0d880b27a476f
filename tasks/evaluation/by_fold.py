"""Scores of runs that were trained on different folds of one strategy, each beside where its example was."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.evaluation.scores import RUN, answered, require

FOLD = ["split_seed", "fold"]


def fold_scores(
    predictions: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame,
    runs: pl.DataFrame,
    column: str,
    *,
    cluster: str | None = None,
    variant: str = "plain",
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Join the predictions of many runs to the fold that each was trained on.

    Parameters
    ----------
    predictions : polars.DataFrame
        Table `predictions` (or `responses`) of all runs.
    splits : polars.DataFrame
        Table `splits` of one strategy, all its folds: seed, fold, example_id, split. Controls are left out.
    examples : polars.DataFrame
        With `column`, and `cluster` or group.
    runs : polars.DataFrame
        One row a run: run_id, fold, and `split_seed` where the splits have several.
    column : str
        What names the domain or data set.
    cluster : str, optional
        As for `evaluate`.

    Returns
    -------
    (scores, folds)
        `scores`: run_id, checkpoint, seed, example_id, score, split_seed, fold, split, value (of the column), code (of
        the cluster) and the other columns of `runs`; rows in no split, or without a value, are left out. `folds`:
        split_seed, fold, split, value: the values that each split of each fold holds.

    Raises
    ------
    UsageError, DataRefused
        A missing column, a run without a fold, a fold that is not there, two strategies, no common example.
    """
    for name in ("run_id", "fold"):
        require(runs, name, "runs")
    for name in ("example_id", "split", "fold"):
        require(splits, name, "splits")
    for name in ("example_id", column, *([cluster] if cluster else [])):
        require(examples, name, "examples")
    places = _places(splits)
    runs = _runs(runs, places)
    answers = answered(predictions, variant)
    strange = answers.join(runs, on="run_id", how="anti")["run_id"]
    if len(strange):
        raise UsageError(
            f"the run {strange.min()!r} has predictions, but is not among the runs",
            where="runs",
            expected="the fold that each run was trained on",
            remedy="add its row, or leave its predictions out",
        )
    if cluster is None and "group" in examples.columns and examples["group"].null_count() < len(examples):
        cluster = "group"
    own = pl.col("example_id").cast(pl.String)
    tied = own if cluster is None else pl.coalesce(pl.lit(f"{cluster}=") + pl.col(cluster).cast(pl.String), own)
    known = examples.select(
        own.alias("example_id"), pl.col(column).cast(pl.String).alias("value"), tied.alias("cluster")
    ).drop_nulls("value")
    scores = (
        answers.join(runs, on="run_id")
        .join(places, on=[*FOLD, "example_id"])
        .join(known, on="example_id")
        .sort(*RUN, "example_id")
        .with_columns(code=pl.col("cluster").rank("dense").cast(pl.Int64) - 1)
    )
    if scores.is_empty():
        raise DataRefused(
            "no predicted example is in the fold of its run",
            where="evaluate",
            expected="the same example_id in predictions, splits and examples",
        )
    folds = places.join(known, on="example_id").select(*FOLD, "split", "value").unique().sort(*FOLD, "split", "value")
    return scores.drop("cluster"), folds


def _places(splits: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the strategy that are in a split."""
    if "strategy" in splits.columns:
        splits = splits.filter(~pl.col("strategy").str.contains(r"\.(random|matched)$"))
        names = splits["strategy"].unique().sort().to_list()
        if len(names) > 1:
            raise UsageError(
                f"the splits are of {', '.join(map(repr, names))}", where="splits", expected="one strategy"
            )
    seed = pl.col("seed").cast(pl.Int64) if "seed" in splits.columns else pl.lit(0, pl.Int64)
    places = splits.select(
        seed.alias("split_seed"), pl.col("fold").cast(pl.Int64), pl.col("example_id").cast(pl.String), "split"
    )
    return places.filter(pl.col("split") != "excluded")


def _runs(runs: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Check that each run has one fold that there is, and give it the splits' seed where that is the only one."""
    there: Sequence[int] = places["split_seed"].unique().sort().to_list()
    if "split_seed" not in runs.columns:
        if len(there) > 1:
            raise UsageError(
                f"the splits have {len(there)} seeds",
                where="runs",
                expected="a column split_seed: the seed of the split that each run was trained on",
            )
        runs = runs.with_columns(split_seed=pl.lit(there[0] if there else 0))
    runs = runs.with_columns(
        pl.col("run_id").cast(pl.String), pl.col("fold").cast(pl.Int64), pl.col("split_seed").cast(pl.Int64)
    )
    twice = runs.filter(pl.col("run_id").is_duplicated())["run_id"]
    if len(twice):
        raise UsageError(
            f"the run {twice[0]!r} has {len(runs.filter(run_id=twice[0]))} rows", where="runs", expected="one"
        )
    lost = runs.join(places.select(FOLD).unique(), on=FOLD, how="anti").sort("run_id")
    if len(lost):
        raise UsageError(
            f"the run {lost['run_id'][0]!r} is of seed {lost['split_seed'][0]} and fold {lost['fold'][0]}",
            where="runs",
            expected="one of the folds " + ", ".join(map(str, places["fold"].unique().sort().to_list()[:20])),
        )
    return runs.drop([name for name in ("checkpoint", "seed") if name in runs.columns])

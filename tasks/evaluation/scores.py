"""From predictions or responses to one score for each run and example, beside its split and slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.core.reduce import group_sums

RUN = ["run_id", "checkpoint", "seed"]
"""What tells runs apart: a model trained from one seed, at one checkpoint."""

_DEFAULTS: dict[str, tuple[object, pl.DataType]] = {
    "checkpoint": (0, pl.Int64()),
    "seed": (0, pl.Int64()),
    "attempt": (0, pl.Int32()),
    "variant": ("plain", pl.String()),
}


@dataclass(frozen=True)
class Scores:
    """Scores by run and example.

    Attributes
    ----------
    frame : polars.DataFrame
        Columns run_id, checkpoint, seed, example_id, score (mean over attempts), split, cluster, code (rank of cluster)
        and the axes asked for; sorted by run and example_id. Rows outside the splits, and of the split excluded, are
        left out.
    strategy : str
        Name of the split strategy.
    metric : str
        exact_match where all scores are 0 or 1, else score.
    clusters : str
        What a cluster is: a column, or example.
    warnings : tuple of str
    """

    frame: pl.DataFrame
    strategy: str
    metric: str
    clusters: str
    warnings: tuple[str, ...]


def scores(
    predictions: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame | None = None,
    difficulty: pl.DataFrame | None = None,
    *,
    axes: Sequence[str] = ("level", "domain"),
    cluster: str | None = None,
    variant: str = "plain",
) -> Scores:
    """Join predictions (or responses) to the split and slices of their examples.

    Parameters
    ----------
    predictions : polars.DataFrame
        Table `predictions` (run_id, example_id, and correct or score), or `responses` (respondent_id, example_id,
        score).
    splits : polars.DataFrame
        Table `splits` of one strategy, seed and fold; only example_id and split are needed.
    examples : polars.DataFrame, optional
        Where axes and clusters come from.
    difficulty : polars.DataFrame, optional
        Table `difficulty` of one method: adds the axis bin.
    axes : sequence of str
        Columns of examples, or several joined by ``" x "``, whose slices are combinations of their values. level and
        domain may be absent, others must be there.
    cluster : str, optional
        Column of examples whose equal values are one cluster; by default group, where it has values, else each example.
    variant : str
        Which variant of the inputs.

    Raises
    ------
    UsageError, DataRefused
        A missing column, several strategies, a score outside [0, 1] or missing, duplicate keys, no common example.
    """
    answers = answered(predictions, variant)
    places, strategy = _places(splits)
    frame = answers.join(places, on="example_id", how="inner", maintain_order="left")
    if frame.is_empty():
        raise DataRefused(
            f"none of {answers['example_id'].n_unique():,} predicted examples is in the splits "
            f"({places.height:,} examples)",
            where="evaluate",
            expected="the same example_id in both",
            remedy="check how the ids were made; a response file can be joined by a field of the document",
        )
    frame, clusters = _slices(frame, examples, axes, cluster)
    warnings = _warnings(answers, places, frame)
    if difficulty is not None:
        frame = _bins(frame, difficulty)
        without = frame.filter(pl.col("bin").is_null() & pl.col("split").is_in(["test", "test_ood"]))
        if len(without):
            warnings.append(f"{without['example_id'].n_unique():,} tested examples have no difficulty, so no bin")
    binary = bool(frame["score"].is_in([0.0, 1.0]).all())
    frame = frame.sort(*RUN, "example_id").with_columns(code=pl.col("cluster").rank("dense").cast(pl.Int64) - 1)
    return Scores(frame, strategy, "exact_match" if binary else "score", clusters, tuple(warnings))


def answered(predictions: pl.DataFrame, variant: str) -> pl.DataFrame:
    """One row a run and example, with its mean score over attempts."""
    if "respondent_id" in predictions.columns and "run_id" not in predictions.columns:
        predictions = predictions.rename({"respondent_id": "run_id"})
    for column in ("run_id", "example_id"):
        require(predictions, column, "predictions")
    given = [column for column in ("score", "correct") if column in predictions.columns]
    if not given:
        require(predictions, "score", "predictions")
    frame = predictions.select(
        pl.col("run_id").cast(pl.String),
        pl.col("example_id").cast(pl.String),
        pl.coalesce(pl.col(column).cast(pl.Float64) for column in given).alias("score"),
        *(
            pl.col(name).cast(kind).fill_null(value) if name in predictions.columns else pl.lit(value, kind).alias(name)
            for name, (value, kind) in _DEFAULTS.items()
        ),
    )
    known = frame["variant"].unique().sort().to_list()
    frame = frame.filter(pl.col("variant") == variant)
    if frame.is_empty():
        raise DataRefused(
            f"there are no predictions of variant {variant!r}{nearest(variant, known)}",
            where="evaluate",
            expected="one of " + ", ".join(known) if known else "at least one prediction",
        )
    bad = frame.filter(~pl.col("score").is_between(0, 1) | pl.col("score").is_null() | pl.col("score").is_nan())
    if len(bad):
        raise DataRefused(
            f"{len(bad):,} of {len(frame):,} predictions have no score in [0, 1], first {bad['score'][0]} "
            f"for example {bad['example_id'][0]}",
            where="predictions.score",
            expected="correct or score for every prediction",
            remedy="count an answer that is missing as 0, or leave its row out",
        )
    key = [*RUN, "example_id"]
    twice = frame.select(pl.struct(*key, "attempt").is_duplicated().sum()).item()
    if twice:
        raise DataRefused(
            f"{twice:,} predictions share run, checkpoint, example and attempt with another",
            where="predictions",
            expected="one row each",
        )
    if not frame["attempt"].eq(frame["attempt"][0]).all():
        codes = frame.select(pl.struct(key).rank("dense") - 1).to_series().to_numpy().astype(np.int64)
        total = group_sums(codes, frame["score"].to_numpy(), int(codes.max()) + 1)
        mean = (total / np.bincount(codes))[codes]
        frame = frame.with_columns(score=pl.Series(mean)).unique(key, maintain_order=True)
    return frame.select(*key, "score")


def _places(splits: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    for column in ("example_id", "split"):
        require(splits, column, "splits")
    axes = [column for column in ("strategy", "seed", "fold") if column in splits.columns]
    found = splits.select(axes).unique().sort(axes) if axes else pl.DataFrame()
    if len(found) > 1:
        raise UsageError(
            f"the splits hold {len(found)} strategies, seeds or folds, first {found.row(0)} and {found.row(1)}",
            where="evaluate",
            expected="one",
            remedy=f"filter the splits by {', '.join(axes)}",
        )
    unknown = splits.filter(~pl.col("split").is_in(SPLITS) | pl.col("split").is_null())
    if len(unknown):
        raise DataRefused(
            f"split {unknown['split'][0]!r}", where="splits.split", expected="one of " + ", ".join(SPLITS)
        )
    if splits["example_id"].is_duplicated().any():
        raise DataRefused("an example is in the splits twice", where="splits.example_id", expected="unique ids")
    places = splits.filter(pl.col("split") != "excluded").select(pl.col("example_id").cast(pl.String), "split")
    return places, str(found["strategy"][0]) if "strategy" in axes and len(found) else ""


def _slices(
    frame: pl.DataFrame, examples: pl.DataFrame | None, axes: Sequence[str], cluster: str | None
) -> tuple[pl.DataFrame, str]:
    """Add axes and clusters from the examples; text columns, sorted as text."""
    if examples is None:
        if cluster:
            raise UsageError(f"cluster {cluster!r} needs the examples", where="evaluate", remedy="pass examples")
        return frame.with_columns(cluster=pl.col("example_id")), "example"
    taken = sorted(set(axes) & {*frame.columns, "cluster", "code", "bin"})
    if taken:
        raise UsageError(f"the axis {taken[0]!r} has a meaning of its own here", where="evaluate", remedy="rename it")
    optional = ("level", "domain")
    made_of = {axis: [axis] if axis in examples.columns else axis.split(" x ") for axis in axes}
    named = [column for axis in axes if axis not in optional for column in made_of[axis]]
    for column in [*named, *([cluster] if cluster else [])]:
        require(examples, column, "examples")
    if cluster is None:
        grouped = "group" in examples.columns and examples["group"].null_count() < len(examples)
        cluster = "group" if grouped else None
    have = {name for name in examples.columns if examples[name].null_count() < len(examples)}
    kept = [axis for axis in axes if have.issuperset(made_of[axis])]
    # of several columns a group is a combination of their values; without one of them a row is in no group
    columns = [
        pl.concat_str(*(pl.col(name).cast(pl.String) for name in made_of[axis]), separator=", ").alias(axis)
        for axis in kept
    ]
    if cluster:  # a value and an id that read alike are two clusters
        columns.append((pl.lit(f"{cluster}=") + pl.col(cluster).cast(pl.String)).alias("cluster"))
    found = examples.select(pl.col("example_id").cast(pl.String), *columns)
    frame = frame.join(found, on="example_id", how="left", maintain_order="left")
    own = pl.col("example_id")
    frame = frame.with_columns(cluster=pl.coalesce("cluster", own) if cluster else own)
    return frame, cluster or "example"


def _bins(frame: pl.DataFrame, difficulty: pl.DataFrame) -> pl.DataFrame:
    for column in ("example_id", "bin"):
        require(difficulty, column, "difficulty")
    if difficulty["example_id"].is_duplicated().any():
        methods = difficulty["method"].unique().sort().to_list() if "method" in difficulty.columns else []
        raise UsageError(
            "the difficulty names examples twice",
            where="evaluate",
            expected="one method",
            remedy=f"filter it by method ({', '.join(methods)})" if len(methods) > 1 else "",
        )
    bins = difficulty.select(pl.col("example_id").cast(pl.String), pl.col("bin").cast(pl.Int32))
    return frame.join(bins, on="example_id", how="left", maintain_order="left")


def _warnings(answers: pl.DataFrame, places: pl.DataFrame, frame: pl.DataFrame) -> list[str]:
    notes = []
    outside = answers["example_id"].n_unique() - frame["example_id"].n_unique()
    if outside:
        notes.append(f"{outside:,} predicted examples are in no split (or excluded) and were left out")
    runs = frame.select(RUN).n_unique()
    for split in ("test", "test_ood"):
        expected = places.filter(pl.col("split") == split).height
        answered = frame.filter(pl.col("split") == split).height
        if answered < expected * runs:
            each = f" in each of {runs} runs" if runs > 1 else ""
            notes.append(
                f"{split}: {answered:,} of {expected * runs:,} predictions are there ({expected:,} examples{each})"
            )
    return notes


def require(frame: pl.DataFrame, column: str, table: str) -> None:
    if column not in frame.columns:
        raise UsageError(
            f"{table} has no column {column!r}{nearest(column, frame.columns)}",
            where="evaluate",
            expected=f"the column {column}; it has " + ", ".join(frame.columns),
            remedy="add it, or rename the column that holds it",
        )

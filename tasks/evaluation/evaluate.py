"""Evaluate an arm in and out of distribution, from its predictions or from responses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.tasks.core.intervals import FEW_CLUSTERS, RESAMPLES, Interval
from gradatim.tasks.evaluation.cells import ID, OOD, Cell, Settings, cells
from gradatim.tasks.evaluation.leave_out import independent
from gradatim.tasks.evaluation.result import Evaluation, evaluation_rows, evaluation_table
from gradatim.tasks.evaluation.scores import RUN, scores
from gradatim.tasks.evaluation.seeds import POOLED, spread

FEW_RUNS = 5
"""Below this number the spread between runs is poorly known."""


def evaluate(
    predictions: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame | None = None,
    difficulty: Any = None,
    *,
    name: str = "the model",
    model: str | None = None,
    respondents: Collection[str] | None = None,
    axes: Sequence[str] = ("level", "domain"),
    cluster: str | None = None,
    variant: str = "plain",
    resamples: int = RESAMPLES,
    seed: int = 0,
    split_version: int = 0,
) -> Evaluation:
    """Score one arm by split, level, domain and difficulty bin, with the gap and intervals.

    Parameters
    ----------
    predictions : polars.DataFrame
        Table `predictions` of one arm: one run, or several that differ in their seed; all checkpoints. Or `responses`
        of one model.
    splits : polars.DataFrame
        Table `splits` of one strategy, seed and fold.
    examples : polars.DataFrame, optional
        For the columns of `axes` and `cluster`.
    difficulty : Difficulty or polars.DataFrame, optional
        Adds the axis bin. If it rests on responses of the evaluated model, it is estimated again without them.
    name : str
        What sentences call the arm, e.g. ``the curriculum arm``.
    model : str, optional
        The model's name among responses and among the difficulty's respondents; by default the run ids.
    respondents : collection of str, optional
        Whose responses a difficulty given as a frame rests on.
    axes : sequence of str
        Columns of examples to slice by; ``"identity x label"`` slices by combinations of the values of both.
    cluster : str, optional
        Column of examples: rows of one value are not independent. By default group where it has values, else
        each example.
    variant : str
        Which variant of the inputs.
    resamples, seed : int
        Of the bootstrap.
    split_version : int
        Recorded in the table.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError, DataRefused
        Several arms or strategies at once; missing columns, scores or common examples; a difficulty that rests on the
        evaluated model and cannot be estimated without it.

    Notes
    -----
    Per run, slices of independent 0/1 scores have Wilson intervals, all others and every gap a cluster bootstrap;
    several runs are pooled with runs x clusters resampling. About 4 s for a million predictions with ten slices.
    """
    predictions = _one_model(predictions, model)
    models = {model} if model else set(_column(predictions, "run_id").unique().to_list())
    safe = independent(difficulty, models, respondents) if difficulty is not None else None
    found = scores(
        predictions,
        splits,
        examples,
        safe.table if safe else None,
        axes=axes,
        cluster=cluster,
        variant=variant,
    )
    settings = Settings(resamples, seed, found.clusters)
    slices = [axis for axis in (*axes, "bin") if axis in found.frame.columns]
    rows = []
    for at in found.frame.partition_by("checkpoint", maintain_order=True):
        runs = at.partition_by(RUN, maintain_order=True)
        _one_arm(runs)
        checkpoint = int(at["checkpoint"][0])
        each = [list(cells([run], slices, found.metric, settings)) for run in runs]
        for run, its in zip(runs, each, strict=True):
            key = {"run_id": run["run_id"][0], "checkpoint": checkpoint, "seed": run["seed"][0]}
            rows += evaluation_rows(its, **key, split_version=split_version)
        if len(runs) > 1:
            pooled = [*cells(runs, slices, found.metric, settings), *_spreads(each)]
            rows += evaluation_rows(
                pooled, run_id=name, checkpoint=checkpoint, seed=POOLED, split_version=split_version
            )
    warnings = list(found.warnings)
    clusters = found.frame.filter(pl.col("split").is_in([ID, OOD]))["cluster"].n_unique()
    if clusters < FEW_CLUSTERS:
        warnings.append(f"only {clusters} clusters of {found.clusters}: the true intervals are wider than shown")
    most = max(at["run_id"].n_unique() for at in found.frame.partition_by("checkpoint"))
    if 1 < most < FEW_RUNS:
        warnings.append(f"only {most} runs: the intervals understate how much runs differ")
    return Evaluation(
        table=evaluation_table(rows),
        scores=found.frame,
        name=name,
        strategy=found.strategy,
        metric=found.metric,
        clusters=found.clusters,
        checkpoint=int(found.frame["checkpoint"].to_numpy().max()),
        difficulty=safe.note if safe else "",
        warnings=tuple(warnings),
    )


def scores_by_split(
    responses: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame | None = None,
    *,
    cluster: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pl.DataFrame:
    """Score models that were not trained on the split (zero-shot): splits and gap of each respondent.

    Parameters
    ----------
    responses : polars.DataFrame
        Table `responses` (or `predictions`) of any number of models.
    splits, examples, cluster, resamples, seed
        As for `evaluate`.

    Returns
    -------
    polars.DataFrame
        Table `evaluation` with the respondent as run_id. A gap here is a difference of difficulty between the two test
        sets, not a failure to generalise.
    """
    found = scores(responses, splits, examples, axes=(), cluster=cluster)
    settings = Settings(resamples, seed, found.clusters)
    rows = []
    for run in found.frame.partition_by(RUN, maintain_order=True):
        run_id, checkpoint, run_seed = run.select(RUN).row(0)
        its = cells([run], (), found.metric, settings)
        rows += evaluation_rows(its, run_id=run_id, checkpoint=checkpoint, seed=run_seed, split_version=0)
    return evaluation_table(rows)


def _one_model(predictions: pl.DataFrame, model: str | None) -> pl.DataFrame:
    if "respondent_id" not in predictions.columns or "run_id" in predictions.columns:
        return predictions
    names = predictions["respondent_id"].cast(pl.String).unique().sort().to_list()
    if model is None and len(names) > 1:
        raise UsageError(
            f"the responses are of {len(names)} models",
            where="evaluate",
            expected="one",
            remedy=f"say model={names[0]!r}, or use scores_by_split for all of them",
        )
    if model is not None and model not in names:
        raise UsageError(
            f"there are no responses of {model!r}{nearest(model, names)}",
            where="evaluate",
            expected=", ".join(names[:10]),
        )
    kept = predictions.filter(pl.col("respondent_id") == model) if model is not None else predictions
    return kept.rename({"respondent_id": "run_id"})


def _column(frame: pl.DataFrame, name: str) -> pl.Series:
    return frame[name].cast(pl.String) if name in frame.columns else pl.Series([], dtype=pl.String)


def _one_arm(runs: Sequence[pl.DataFrame]) -> None:
    seeds = [run["seed"][0] for run in runs]
    for number, seed in enumerate(seeds):
        if seed in seeds[:number]:
            first, second = runs[seeds.index(seed)]["run_id"][0], runs[number]["run_id"][0]
            raise UsageError(
                f"the runs {first!r} and {second!r} have the same seed, {seed}",
                where="evaluate",
                expected="the runs of one arm, which differ in their seed",
                remedy="evaluate each arm on its own (filter by run_id), then compare them",
            )


def _spreads(runs: Sequence[Sequence[Cell]]) -> list[Cell]:
    """Standard deviation, least and largest value over runs of each cell of the axes split and gap."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for its in runs:
        for cell in its:
            if cell.axis in ("split", "gap") and cell.interval.value == cell.interval.value:
                values.setdefault((cell.axis, cell.slice, cell.metric), []).append(cell.interval.value)
    found = []
    for (axis, slice_, metric), numbers in values.items():
        over = spread(numbers)
        for name in ("sd", "min", "max"):
            none = Interval(getattr(over, name), float("nan"), float("nan"), over.n, f"none: over {over.n} runs")
            found.append(Cell(axis, slice_, f"{metric}_{name}", none, over.n))
    return found

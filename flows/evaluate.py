"""The flow `evaluate`: the trained arms in and out of distribution, with intervals, compared pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
from prefect import flow

from gradatim.flows.curate import run_name as flow_run_name
from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.flows.train import ordered_versions
from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Evaluate
from gradatim.storage.tables import Dataset
from gradatim.tasks.evaluation import task as evaluation_tasks
from gradatim.tasks.training.task import Order, run_name


@flow(name="evaluate", flow_run_name=flow_run_name, validate_parameters=False)
@refusal_shown
def evaluate(recipe: str, store: str | None = None, data: str | None = None) -> dict[str, Any]:
    """Evaluate the runs of the recipe's arms and seeds on the very split that they were trained on.

    Parameters
    ----------
    recipe, store, data
        As for `curate`.

    Returns
    -------
    dict
        tables (versions), claims (plain sentences), report, summaries.
    """
    job = Job.load(recipe, store, data)
    dataset = job.place.open()
    versions = ordered_versions(job, dataset)
    runs, missing = _runs(job, dataset, versions)
    versions["predictions"] = dataset.version("predictions").number
    if "responses" in dataset.tables():
        versions["respondents"] = dataset.version("respondents").number
    fold = job.recipe.curriculum.fold if job.recipe.curriculum else 0
    results = evaluation_tasks.run(
        job.place,
        job.recipe.evaluate or Evaluate(),
        runs,
        job.evaluated_split,
        fold,
        job.evaluated_difficulty,
        versions,
    )
    told = [result.summary for result in results]
    if missing:
        told[-1] = replace(told[-1], warnings=(*told[-1].warnings, f"not trained: {', '.join(missing)}"))
    for summary in told:
        show(summary)
    versions |= results[-1].versions
    report = write_report(job, told)
    return {
        "tables": versions,
        "claims": told[-1].extra["sentences"],
        "report": report,
        "summaries": [one.to_dict() for one in told],
    }


def _runs(job: Job, dataset: Dataset, versions: Mapping[str, int]) -> tuple[dict[str, list[str]], list[str]]:
    """Find the finished runs of this very recipe, split and order; and those that are missing.

    A run's name says all that it was made from, so that a run on another version of the split is never taken for one.
    """
    train, curriculum = job.recipe.train, job.recipe.curriculum
    if train is None or curriculum is None:
        raise UsageError("the recipe trains nothing", where=job.file, remedy="add a section 'train'")
    finished: set[str] = set()
    if dataset.log("runs").latest() is not None:
        finished = set(dataset.scan("runs").filter(pl.col("state") == "finished").collect()["run_id"])
    runs: dict[str, list[str]] = {}
    missing = []
    for arm in job.arms:
        order = Order(arm, job.trained_split, curriculum.fold, versions)
        for seed in train.seeds:
            name = run_name(dataset, train, order, seed)
            if name in finished:
                runs.setdefault(arm, []).append(name)
            else:
                missing.append(f"{arm} seed {seed}")
    if not runs:
        raise UsageError(
            "no arm has been trained on the newest order of this recipe",
            where=job.file,
            expected=f"one of the runs {', '.join(missing)}",
            remedy=f"gradatim train {job.file}",
        )
    return runs, missing

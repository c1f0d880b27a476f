"""The flow `evaluate`: the trained arms in and out of distribution, with intervals, compared pair by pair."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from prefect import flow

from gradatim.flows.curate import run_name
from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Evaluate
from gradatim.storage.tables import Dataset
from gradatim.tasks.evaluation import task as evaluation_tasks


@flow(name="evaluate", flow_run_name=run_name, validate_parameters=False)
@refusal_shown
def evaluate(recipe: str, store: str | None = None, data: str | None = None) -> dict[str, Any]:
    """Evaluate the newest run of every arm and seed that the recipe trains.

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
    versions = {table: dataset.version(table).number for table in dataset.tables()}
    if "predictions" not in versions:
        raise UsageError("nothing has been trained yet", where=job.file, remedy=f"gradatim train {recipe}")
    fold = job.recipe.curriculum.fold if job.recipe.curriculum else 0
    results = evaluation_tasks.run(
        job.place,
        job.recipe.evaluate or Evaluate(),
        _runs(job, dataset),
        job.evaluated_split,
        fold,
        job.evaluated_difficulty,
        versions,
    )
    for result in results:
        versions |= result.versions
        show(result.summary)
    told = [result.summary for result in results]
    report = write_report(job, told)
    return {
        "tables": versions,
        "claims": told[-1].extra["sentences"],
        "report": report,
        "summaries": [one.to_dict() for one in told],
    }


def _runs(job: Job, dataset: Dataset) -> dict[str, list[str]]:
    """Find the newest run of each arm and seed: parts of the table `runs` are listed in order of publication."""
    finished = dataset.scan("runs").filter(pl.col("state") == "finished").select("run_id", "config").collect()
    newest: dict[tuple[str, int], str] = {}
    for run_id, config in finished.iter_rows():
        train = json.loads(config)["train"]
        newest[train["arms"][0], train["seeds"][0]] = run_id
    seeds = job.recipe.train.seeds if job.recipe.train else [0]
    runs = {arm: [newest[arm, seed] for seed in seeds if (arm, seed) in newest] for arm in job.arms}
    if not any(runs.values()):
        raise UsageError("no arm of the recipe has been trained", where=job.file, remedy=f"gradatim train {job.file}")
    return {arm: ids for arm, ids in runs.items() if ids}

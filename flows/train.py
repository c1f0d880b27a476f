"""The flow `train`: DeepSpeed runs in exactly the order of the curricula."""

from __future__ import annotations

from typing import Any

from prefect import flow

from gradatim.flows.curate import run_name
from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Summary
from gradatim.storage.tables import Dataset
from gradatim.tasks.training import task as training_tasks


@flow(name="train", flow_run_name=run_name, validate_parameters=False)
@refusal_shown
def train(
    recipe: str,
    store: str | None = None,
    arm: str | None = None,
    data: str | None = None,
    ranks: int | None = None,
) -> dict[str, Any]:
    """Train every arm and seed of a recipe on its newest curriculum, and on what that one was made from.

    Where the recipe releases its tables, this is the curriculum of the newest release; else the newest draft.

    Parameters
    ----------
    recipe, store, data
        As for `curate`.
    arm : str, optional
        Train this arm only.
    ranks : int, optional
        Workers, instead of the recipe's; an interrupted run goes on with another number too.

    Returns
    -------
    dict
        tables (versions), runs (arm to run ids), report, summaries.
    """
    job = Job.load(recipe, store, data)
    if job.recipe.train is None or job.recipe.curriculum is None:
        raise UsageError("the recipe trains nothing", where=job.file, remedy="add a section 'train'")
    if arm is not None and arm not in job.arms:
        raise UsageError(
            f"there is no arm {arm!r}{nearest(arm, job.arms)}", where="--arm", expected=", ".join(job.arms)
        )
    dataset = job.place.open()
    versions = ordered_versions(job, dataset)
    told: list[Summary] = []
    runs: dict[str, list[str]] = {}
    for one in [arm] if arm is not None else job.arms:
        order = training_tasks.Order(one, job.trained_split, job.recipe.curriculum.fold, versions)
        for seed in job.recipe.train.seeds:
            result = training_tasks.run(job.place, job.recipe.train, order, seed, ranks)
            told.append(result.summary)
            show(result.summary)
            runs.setdefault(one, []).append(training_tasks.run_name(dataset, job.recipe.train, order, seed))
            versions = {**versions, **result.versions}
    report = write_report(job, told)
    return {"tables": versions, "runs": runs, "report": report, "summaries": [one.to_dict() for one in told]}


def ordered_versions(job: Job, dataset: Dataset) -> dict[str, int]:
    """Return the version of the curriculum that counts and of the tables that it was made from.

    The newest versions of single tables may not belong together: a run that was refused half-way leaves some behind.
    """
    if dataset.log("curriculum").latest() is None:
        raise UsageError(
            "there is no curriculum yet", where=dataset.store.location, remedy=f"gradatim curate {job.file}"
        )
    released = job.recipe.release and dataset.latest_release() is not None
    curriculum = dataset.version("curriculum@current" if released else "curriculum")
    parents = dict(parent.split("@") for parent in curriculum.metadata["parents"])
    return {"curriculum": curriculum.number, **{table: int(number) for table, number in parents.items()}}

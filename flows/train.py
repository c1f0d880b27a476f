"""The flow `train`: DeepSpeed runs in exactly the order of the curricula."""

from __future__ import annotations

from typing import Any

from prefect import flow

from gradatim.flows.curate import run_name
from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Summary
from gradatim.tasks.training import task as training_tasks

NEEDED = ("examples", "splits", "curriculum")


@flow(name="train", flow_run_name=run_name, validate_parameters=False)
@refusal_shown
def train(
    recipe: str,
    store: str | None = None,
    arm: str | None = None,
    data: str | None = None,
    ranks: int | None = None,
) -> dict[str, Any]:
    """Train every arm and seed of a recipe on the newest versions of its tables.

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
    versions = {}
    for table in NEEDED:
        latest = dataset.log(table).latest()
        if latest is None:
            raise UsageError(
                f"the table {table!r} has no version yet",
                where=dataset.store.location,
                remedy=f"gradatim curate {recipe}",
            )
        versions[table] = latest.number
    told: list[Summary] = []
    runs: dict[str, list[str]] = {}
    for one in [arm] if arm is not None else job.arms:
        for seed in job.recipe.train.seeds:
            result = training_tasks.run(
                job.place, job.recipe.train, one, seed, job.trained_split, job.recipe.curriculum.fold, versions, ranks
            )
            versions |= result.versions
            told.append(result.summary)
            show(result.summary)
            runs.setdefault(one, []).append(str(result.summary.facts[0].value) if result.summary.facts else "")
    report = write_report(job, told)
    return {"tables": versions, "runs": runs, "report": report, "summaries": [one.to_dict() for one in told]}

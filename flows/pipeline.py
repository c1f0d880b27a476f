"""The flow `pipeline`: all that a recipe asks for, from files to the report."""

from __future__ import annotations

from typing import Any

from prefect import flow

from gradatim.flows.curate import curate, run_name
from gradatim.flows.evaluate import evaluate
from gradatim.flows.job import Job
from gradatim.flows.train import train


@flow(name="pipeline", flow_run_name=run_name, validate_parameters=False)
def pipeline(
    recipe: str, store: str | None = None, release: bool | None = None, data: str | None = None
) -> dict[str, Any]:
    """Run `curate`, and where the recipe trains, `train` and `evaluate`.

    Parameters
    ----------
    recipe, store, release, data
        As for `curate`.

    Returns
    -------
    dict
        What the flows returned, merged; `summaries` holds all of them in order.
    """
    job = Job.load(recipe, store, data)
    found = curate(recipe, store, release, data)
    if job.recipe.train is not None:
        for result in (
            train(recipe, store, None, data),
            *((evaluate(recipe, store, data),) if job.recipe.train.launcher != "print" else ()),
        ):
            found = {**found, **result, "summaries": [*found["summaries"], *result["summaries"]]}
    return found

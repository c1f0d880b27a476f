"""The flow `curate`: from files to audited examples, difficulties, diversity, certified splits and a curriculum."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, runtime, task

from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.flows.steps import as_task, take_steps
from gradatim.schemas.errors import GradatimError
from gradatim.schemas.recipe import load_recipe
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.step import RETRIES, Place, StepResult


def run_name() -> str:
    """Name a flow run by its flow, its data set and the day."""
    recipe = str(runtime.flow_run.parameters.get("recipe", ""))
    try:
        what = load_recipe(recipe).dataset
    except GradatimError:  # the flow itself will say what is wrong with it
        what = Path(recipe).stem
    return f"{runtime.flow_run.flow_name}-{what}-{datetime.now(UTC):%Y-%m-%d}"


@flow(name="curate", flow_run_name=run_name, validate_parameters=False)
@refusal_shown
def curate(
    recipe: str, store: str | None = None, release: bool | None = None, data: str | None = None
) -> dict[str, Any]:
    """Ingest, measure, split and order what a recipe names; nothing is published that is not valid.

    Parameters
    ----------
    recipe : str
        Path of the recipe.
    store : str, optional
        Store to use instead of the recipe's.
    release : bool, optional
        Make the tables a release; the recipe says by default.
    data : str, optional
        Folder that the recipe's relative data paths start from.

    Returns
    -------
    dict
        tables (versions), release (number or None), report (path), summaries.
    """
    job = Job.load(recipe, store, data)
    dataset = job.place.open()
    based_on = dataset.latest_release()
    told: list[Summary] = []

    def done(summary: Summary) -> None:
        told.append(summary)
        show(summary)

    versions = take_steps(job, as_task, done)
    number = None
    if release if release is not None else job.recipe.release:
        result = make_release(job.place, versions, based_on.number if based_on else None)
        number = result.versions["release"]
        done(result.summary)
    report = write_report(job, told, fresh=True)
    return {"tables": versions, "release": number, "report": report, "summaries": [one.to_dict() for one in told]}


@task(name="release", task_run_name="release", **RETRIES)
def make_release(place: Place, versions: Mapping[str, int], based_on: int | None) -> StepResult:
    """Make the versions visible together; a release whose tables are those of the newest one is not made again."""
    dataset = place.open()
    newest = dataset.latest_release()
    tables = {name: number for name, number in versions.items() if name != "release"}
    if newest is not None and all(newest.tables.get(name) == number for name, number in tables.items()):
        return StepResult(
            Summary("release", f"release {newest.number} stands: nothing has changed", reused=True),
            {"release": newest.number},
        )
    made = dataset.release(tables, based_on=based_on, metadata=place.metadata())
    rows = tuple(
        (name, number, dataset.version(f"{name}@{number}").rows) for name, number in sorted(made.tables.items())
    )
    return StepResult(
        Summary(
            step="release",
            headline=f"release {made.number}" + (f", based on {based_on}" if based_on is not None else ""),
            facts=(Fact("tables", len(rows)),),
            tables=(SummaryTable("Tables of the release", ("table", "version", "rows"), rows),),
            next=("gradatim log",),
        ),
        {"release": made.number},
    )

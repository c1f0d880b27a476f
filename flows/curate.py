"""The flow `curate`: from files to audited examples, difficulties, diversity, certified splits and a curriculum."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import flow, runtime, task

from gradatim.flows.job import Job
from gradatim.flows.shown import refusal_shown, show, write_report
from gradatim.schemas.errors import GradatimError
from gradatim.schemas.recipe import Step, load_recipe
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.step import RETRIES, Method, Place, StepResult
from gradatim.tasks.curriculum import task as curriculum_tasks
from gradatim.tasks.difficulty import task as difficulty_tasks
from gradatim.tasks.difficulty.choose import default_method
from gradatim.tasks.diversity import task as diversity_tasks
from gradatim.tasks.embedding import task as embedding_tasks
from gradatim.tasks.ingest import task as ingest_tasks
from gradatim.tasks.splits import task as split_tasks

ABLE = ("irt", "glicko2")
"""Difficulties that estimate abilities too, the preferred one first."""


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
    versions: dict[str, int] = {}

    def done(result: StepResult) -> None:
        versions.update(result.versions)
        told.append(result.summary)
        show(result.summary)

    done(_ingest(job))
    if job.recipe.responses is not None:
        done(ingest_tasks.publish_responses(job.place, job.recipe.responses, job.recipe.checks, versions["examples"]))
    for table, section in job.recipe.sources():
        done(ingest_tasks.publish_table(job.place, table, section, job.recipe.checks, versions["examples"]))
    for method in job.embedders:
        done(embedding_tasks.embed(job.place, method, versions))
    versions.update(_trained(job))
    difficulties = job.difficulty or (default_difficulty(job, versions),)
    # abilities have one scale: that of the first difficulty that estimates them
    able = next((one.name for name in ABLE for one in difficulties if one.plugin.name == name), "")
    for method in difficulties:
        done(difficulty_tasks.estimate(job.place, method, versions, abilities=method.name == able))
    derived = [method.name for method in difficulties if method.of]
    settled = difficulty_tasks.settle(job.place, [one.name for one in difficulties], versions, derived=derived)
    versions.update(settled.versions)
    if len(difficulties) > 1:
        done(settled)
    for method in job.diversity:
        done(diversity_tasks.measure(job.place, method, versions))
    if job.diversity or "statistics" in versions:
        versions.update(diversity_tasks.settle(job.place, [method.name for method in job.diversity], versions))
    if job.keeps_alike:
        done(split_tasks.tie(job.place, job.alike, versions))
    matched = job.recipe.curriculum.by if job.recipe.curriculum else difficulties[0].name
    for method in job.splits:
        done(split_tasks.build(job.place, method, matched, versions, job.alike))
    if job.splits:
        versions.update(split_tasks.settle(job.place, [method.name for method in job.splits], versions))
    if job.recipe.curriculum is not None and job.pacing is not None:
        done(curriculum_tasks.order(job.place, job.recipe.curriculum, job.trained_split, job.pacing, versions))
    number = None
    if release if release is not None else job.recipe.release:
        result = make_release(job.place, versions, based_on.number if based_on else None)
        number = result.versions["release"]
        told.append(result.summary)
        show(result.summary)
    report = write_report(job, told, fresh=True)
    return {"tables": versions, "release": number, "report": report, "summaries": [one.to_dict() for one in told]}


def _trained(job: Job) -> dict[str, int]:
    """Find the dynamics of earlier trainings, where a difficulty reads them."""
    wanted = any("dynamics" in method.reads() for method in job.difficulty)
    latest = job.place.open().log("dynamics").latest() if wanted else None
    return {"dynamics": latest.number} if latest is not None else {}


def _ingest(job: Job) -> StepResult:
    place, examples = job.place, job.recipe.examples
    with place.open().store.staging(place.dataset) as scratch:
        if examples.generate is not None:
            mapped, schema = [ingest_tasks.generate(place, examples, str(scratch))], b""
        else:
            found = ingest_tasks.list_shards(place, examples)
            schema = ingest_tasks.read_schema(place, examples, found)
            mapped = [ingest_tasks.map_shard(place, examples, shard, schema, str(scratch)) for shard in found]
        return ingest_tasks.publish_examples(place, examples, job.recipe.checks, mapped, schema, str(scratch))


def default_difficulty(job: Job, versions: Mapping[str, int]) -> Method:
    """Choose the difficulty of a recipe that names none."""
    respondents = 0
    if "respondents" in versions:
        respondents = job.place.open().version(f"respondents@{versions['respondents']}").rows
    return job.method("difficulty", "difficulty", Step(method=default_method(respondents)))


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

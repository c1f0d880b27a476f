"""The steps of a curation in their order: run as Prefect tasks, or as plain functions where nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gradatim.flows.job import Job
from gradatim.schemas.recipe import Step, dump_recipe
from gradatim.schemas.summary import Summary
from gradatim.tasks.core.step import Method, StepResult
from gradatim.tasks.curriculum import task as curriculum_tasks
from gradatim.tasks.difficulty import task as difficulty_tasks
from gradatim.tasks.difficulty.choose import default_method
from gradatim.tasks.diversity import task as diversity_tasks
from gradatim.tasks.embedding import task as embedding_tasks
from gradatim.tasks.ingest import task as ingest_tasks
from gradatim.tasks.splits import task as split_tasks

Call = Callable[..., Any]
"""Runs a task with its arguments."""

ABLE = ("irt", "glicko2")
"""Difficulties that estimate abilities too, the preferred one first."""


def as_task(task: Any, *arguments: Any, **named: Any) -> Any:
    """Run a task as Prefect does: tracked, and tried again where it may help."""
    return task(*arguments, **named)


def as_function(task: Any, *arguments: Any, **named: Any) -> Any:
    """Run a task as the plain function that it is: without a server."""
    return task.fn(*arguments, **named)


def take_steps(job: Job, call: Call, done: Callable[[Summary], None]) -> dict[str, int]:
    """Ingest, measure, split and order what a recipe names.

    Parameters
    ----------
    job : Job
    call : callable
        `as_task` or `as_function`.
    done : callable
        Is told of each step's result.

    Returns
    -------
    dict of str to int
        Version of each table.
    """
    place, recipe = job.place, job.recipe
    versions: dict[str, int] = {}

    def take(task: Any, *arguments: Any, **named: Any) -> StepResult:
        result: StepResult = call(task, place, *arguments, **named)
        versions.update(result.versions)
        return result

    def tell(result: StepResult) -> None:
        versions.update(result.versions)
        done(result.summary)

    keep_recipe(job)
    tell(_ingest(job, call))
    if recipe.responses is not None:
        tell(take(ingest_tasks.publish_responses, recipe.responses, recipe.checks, versions["examples"]))
    for table, section in recipe.sources():
        tell(take(ingest_tasks.publish_table, table, section, recipe.checks, versions["examples"]))
    for method in job.embedders:
        tell(take(embedding_tasks.embed, method, versions))
    versions.update(_trained(job))
    difficulties = job.difficulty or (default_difficulty(job, versions),)
    # abilities have one scale: that of the first difficulty that estimates them
    able = next((one.name for name in ABLE for one in difficulties if one.plugin.name == name), "")
    for method in difficulties:
        tell(take(difficulty_tasks.estimate, method, versions, abilities=method.name == able))
    derived = [method.name for method in difficulties if method.of]
    settled = take(difficulty_tasks.settle, [one.name for one in difficulties], versions, derived=derived)
    if len(difficulties) > 1:
        tell(settled)
    for method in job.diversity:
        tell(take(diversity_tasks.measure, method, versions))
    if job.diversity or "statistics" in versions:
        versions.update(call(diversity_tasks.settle, place, [method.name for method in job.diversity], versions))
    if job.keeps_alike:
        tell(take(split_tasks.tie, job.alike, versions))
    matched = recipe.curriculum.by if recipe.curriculum else difficulties[0].name
    for method in job.splits:
        tell(take(split_tasks.build, method, matched, versions, job.alike))
    if job.splits:
        versions.update(call(split_tasks.settle, place, [method.name for method in job.splits], versions))
    if recipe.curriculum is not None and job.pacing is not None:
        tell(take(curriculum_tasks.order, recipe.curriculum, job.trained_split, job.pacing, versions))
    return versions


def keep_recipe(job: Job) -> None:
    """Keep the recipe under its hash, by which versions name it."""
    dataset = job.place.open()
    key = dataset.store.key(dataset.name, "_recipes", f"{job.place.recipe_hash}.yaml")
    if dataset.store.get(key) is None:
        dataset.store.put(key, dump_recipe(job.recipe).encode())


def _trained(job: Job) -> dict[str, int]:
    """Find the dynamics of earlier trainings, where a difficulty reads them."""
    wanted = any("dynamics" in method.reads() for method in job.difficulty)
    latest = job.place.open().log("dynamics").latest() if wanted else None
    return {"dynamics": latest.number} if latest is not None else {}


def _ingest(job: Job, call: Call) -> StepResult:
    place, examples = job.place, job.recipe.examples
    with place.open().store.staging(place.dataset) as scratch:
        if examples.generate is not None:
            mapped, schema = [call(ingest_tasks.generate, place, examples, str(scratch))], b""
        else:
            found = call(ingest_tasks.list_shards, place, examples)
            schema = call(ingest_tasks.read_schema, place, examples, found)
            mapped = [call(ingest_tasks.map_shard, place, examples, shard, schema, str(scratch)) for shard in found]
        checks = job.recipe.checks
        result: StepResult = call(ingest_tasks.publish_examples, place, examples, checks, mapped, schema, str(scratch))
    return result


def default_difficulty(job: Job, versions: Mapping[str, int]) -> Method:
    """Choose the difficulty of a recipe that names none."""
    respondents = 0
    if "respondents" in versions:
        respondents = job.place.open().version(f"respondents@{versions['respondents']}").rows
    return job.method("difficulty", "difficulty", Step(method=default_method(respondents)))

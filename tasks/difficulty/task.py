"""Prefect tasks of difficulty: one an estimator, then one that says how far they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
from prefect import task

from gradatim.schemas.summary import Fact
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.statistics import of_step
from gradatim.tasks.core.step import (
    RETRIES,
    Method,
    Place,
    StepResult,
    anchored,
    group_parts,
    held,
    keep_only,
    keep_summary,
    kept_summary,
    publish_group,
    scan_columns,
)
from gradatim.tasks.difficulty.agreement import agreement
from gradatim.tasks.difficulty.result import Difficulty

GROUP = "difficulty "
"""How the groups of the table `statistics` begin that difficulties publish."""


@task(name="difficulty", task_run_name="difficulty {method.name}", **RETRIES)
def estimate(place: Place, method: Method, versions: Mapping[str, int], *, abilities: bool) -> StepResult:
    """Estimate one difficulty and publish it, with its item parameters, statistics and, if `abilities`, respondents."""
    dataset = place.open()
    made, parents = named(dataset, place, method, versions)
    summary = kept_summary(dataset, made)
    standing = held(dataset, "difficulty", made, method.name)
    if abilities:
        standing = standing and held(dataset, "respondents", made, "")
    if summary is None or not standing:
        found = _run(dataset, place, method, versions)
        told = found.summary()
        # the step's name says the method already
        headline = told.headline.removeprefix(f"{method.plugin.name} ")
        summary = replace(told, step=f"difficulty {method.name}", headline=headline)
        publish_group(dataset, place, "difficulty", method.name, made, found.table, parents)
        if found.item_parameters is not None:
            publish_group(dataset, place, "item_parameters", method.name, made, found.item_parameters, parents)
        if found.statistics is not None:
            rows = of_step(found.statistics, method.name)
            publish_group(dataset, place, "statistics", GROUP + method.name, made, rows, parents)
        if found.respondents is not None and abilities:
            able = found.respondents
            dataset.publish("respondents", [Wanted(made, lambda: [able])], parents=parents, metadata=place.metadata())
        keep_summary(dataset, made, summary)
    return StepResult(summary, current(dataset))


def named(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the fingerprint of an estimate, and the versions that it is made from.

    Of other difficulties only those count that it reads. What is anchored to the current release counts as on its scale
    already where its inputs are the same; a release that is pinned by number is an input.
    """
    tables = sorted({"examples", *method.reads()} & set(versions))
    parents = [f"{table}@{versions[table]}" for table in tables]
    inputs = [dataset.content_hash(f"{table}@{versions[table]}") for table in tables if table != "difficulty"]
    for name in method.of:
        inputs += group_parts(dataset, f"difficulty@{versions['difficulty']}", name) if "difficulty" in versions else []
    anchor = anchored(dataset, method, "item_parameters")
    if anchor is not None:
        parents.append(anchor)
        if getattr(method.config, "anchor", None) != "current":
            inputs += group_parts(dataset, anchor, method.name)
    return method.fingerprint(place.seed, inputs), list(dict.fromkeys(parents))


def _run(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> Difficulty:
    needs = [*method.needs(), "examples.example_id"]
    if "responses" in method.reads() and "respondents" in versions:
        needs.append("respondents.family")
    if "difficulty" in method.reads():
        needs += [f"difficulty.{column}" for column in ("method", "value", "standard_error", "percentile", "flag")]
    scans = scan_columns(dataset, versions, needs, where=method.where)
    if "difficulty" in scans:
        scans["difficulty"] = scans["difficulty"].filter(pl.col("method").is_in(list(method.of)))
    anchor = anchored(dataset, method, "item_parameters")
    if anchor is not None:
        scans["anchor"] = dataset.scan(anchor).filter(pl.col("method") == method.name)
    # dynamics have a row an example and epoch: they are reduced as they are read
    tables = {name: frame if name == "dynamics" else frame.collect() for name, frame in scans.items()}
    found: Difficulty = method.plugin.run(tables, method.config, place.seed)
    # the recipe's name, by which other sections call it
    name = pl.lit(method.name).alias("method")
    items = found.item_parameters
    return replace(
        found,
        method=method.name,
        table=found.table.with_columns(name),
        item_parameters=None if items is None else items.with_columns(name),
    )


@task(name="settle difficulty", task_run_name="settle difficulty", **RETRIES)
def settle(
    place: Place, names: Sequence[str], versions: Mapping[str, int], *, derived: Sequence[str] = ()
) -> StepResult:
    """Drop estimates that the recipe no longer asks for, and say how far those that it asks for agree.

    `derived` are those that were made from others of them.
    """
    dataset = place.open()
    parents = [f"{table}@{number}" for table, number in versions.items() if table in ("examples", "responses")]
    for table in ("difficulty", "item_parameters"):
        keep_only(dataset, place, table, names, parents)
    keep_only(dataset, place, "statistics", [GROUP + name for name in names], parents, among=GROUP)
    frame = dataset.scan("difficulty").select("example_id", "method", "value", "percentile").collect()
    summary = agreement(frame).summary()
    if derived:
        fact = Fact("made from others", ", ".join(derived), note="they agree with these by construction")
        summary = replace(summary, facts=(*summary.facts, fact))
    return StepResult(summary, current(dataset))


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    found = {}
    for table in ("difficulty", "item_parameters", "respondents", "statistics"):
        latest = dataset.log(table).latest()
        if latest is not None:
            found[table] = latest.number
    return found

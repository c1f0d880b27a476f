"""Prefect tasks of difficulty: one an estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
from prefect import task

from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.format import number
from gradatim.tasks.core.step import (
    RETRIES,
    Method,
    Place,
    StepResult,
    held,
    keep_only,
    keep_summary,
    kept_summary,
    publish_group,
    read_columns,
)
from gradatim.tasks.difficulty.agreement import agreement
from gradatim.tasks.difficulty.result import Difficulty


@task(name="difficulty", task_run_name="difficulty {method.name}", **RETRIES)
def estimate(place: Place, method: Method, versions: Mapping[str, int], *, abilities: bool) -> StepResult:
    """Estimate one difficulty and publish it, its item parameters and, with `abilities`, the respondents' abilities."""
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
        if found.respondents is not None and abilities:
            rows = found.respondents
            dataset.publish("respondents", [Wanted(made, lambda: [rows])], parents=parents, metadata=place.metadata())
        keep_summary(dataset, made, summary)
    return StepResult(summary, current(dataset))


def named(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the fingerprint of an estimate, and the versions that it is made from."""
    tables = sorted({"examples", *(need.split(".")[0] for need in method.needs())} & set(versions))
    parents = [f"{table}@{versions[table]}" for table in tables]
    return method.fingerprint(place.seed, [dataset.content_hash(parent) for parent in parents]), parents


def _run(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> Difficulty:
    needs = [*method.needs(), "examples.example_id"]
    if "responses" in {need.split(".")[0] for need in needs} and "respondents" in versions:
        needs.append("respondents.family")
    tables = read_columns(dataset, versions, needs, where=method.where)
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
def settle(place: Place, names: Sequence[str], versions: Mapping[str, int]) -> StepResult:
    """Drop estimates that the recipe no longer asks for, and say how far those that it asks for agree."""
    dataset = place.open()
    parents = [f"{table}@{number}" for table, number in versions.items() if table in ("examples", "responses")]
    for table in ("difficulty", "item_parameters"):
        keep_only(dataset, place, table, names, parents)
    frame = dataset.scan("difficulty").select("example_id", "method", "value").collect()
    found = agreement(frame)
    rows = tuple(found.iter_rows())
    return StepResult(
        Summary(
            step="difficulty agreement",
            headline=_agree(len(names), [float(value) for value in found["spearman"].drop_nulls()]),
            facts=(Fact("estimators", ", ".join(names)),),
            tables=(
                SummaryTable(
                    "Rank correlation of the estimators",
                    tuple(found.columns),
                    rows,
                    note="Spearman; difficulties that people gave and those that models show can be almost unrelated.",
                ),
            )
            if rows
            else (),
        ),
        current(dataset),
    )


def _agree(count: int, correlations: Sequence[float]) -> str:
    if not correlations:
        return f"{count} estimators, of which no two can be correlated"
    low, high = number(min(correlations), 2), number(max(correlations), 2)
    return f"{count} estimators, rank correlation{f's {low} to {high}' if len(correlations) > 1 else f' {low}'}"


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    found = {}
    for table in ("difficulty", "item_parameters", "respondents"):
        latest = dataset.log(table).latest()
        if latest is not None:
            found[table] = latest.number
    return found

"""Prefect tasks of diversity: one a measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
from prefect import task

from gradatim.storage.tables import Dataset
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
from gradatim.tasks.diversity.result import Diversity

GROUP = "diversity "
"""How the groups of the table `statistics` begin that measures publish."""


@task(name="diversity", task_run_name="diversity {method.name}", **RETRIES)
def measure(place: Place, method: Method, versions: Mapping[str, int]) -> StepResult:
    """Take one measure and publish its statistics, and its values of rows where it has some."""
    dataset = place.open()
    made = named(dataset, place, method, versions)
    summary = kept_summary(dataset, made)
    if summary is None or not held(dataset, "statistics", made, GROUP + method.name):
        tables = read_columns(dataset, versions, [*method.needs(), "examples.example_id"], where=method.where)
        found: Diversity = method.plugin.run(tables, method.config, place.seed)
        summary = replace(found.summary(), step=f"diversity {method.name}")
        parents = [f"examples@{versions['examples']}"]
        publish_group(dataset, place, "statistics", GROUP + method.name, made, found.statistics, parents)
        if len(found.table):
            rows = found.table.with_columns(pl.lit(method.name).alias("method"))
            publish_group(dataset, place, "diversity", method.name, made, rows, parents)
        if found.pairs is not None:
            rows = found.pairs.with_columns(pl.format("{} {}", pl.lit(method.name), "method").alias("method"))
            publish_group(dataset, place, "pairs", method.name, made, rows, parents)
        keep_summary(dataset, made, summary)
    return StepResult(summary, current(dataset))


def named(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> str:
    """Return the fingerprint of a measure."""
    tables = sorted({"examples", *method.reads()} & set(versions))
    return method.fingerprint(place.seed, [dataset.content_hash(f"{table}@{versions[table]}") for table in tables])


@task(name="settle diversity", task_run_name="settle diversity", **RETRIES)
def settle(place: Place, names: Sequence[str], versions: Mapping[str, int]) -> dict[str, int]:
    """Drop measures that the recipe no longer asks for."""
    dataset = place.open()
    parents = [f"examples@{versions['examples']}"]
    keep_only(dataset, place, "statistics", [GROUP + name for name in names], parents, among=GROUP)
    for table in ("diversity", "pairs"):
        keep_only(dataset, place, table, names, parents)
    return current(dataset)


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    latest = {table: dataset.log(table).latest() for table in ("statistics", "diversity", "pairs")}
    return {table: version.number for table, version in latest.items() if version is not None}

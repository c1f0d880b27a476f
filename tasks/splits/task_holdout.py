"""Task hold-out: tasks that training never saw, nor any task of their category or of their source data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.values import pieces

SOURCE = (
    "Wang et al. (2022). Super-NaturalInstructions: Generalization via Declarative Instructions on 1600+ NLP Tasks."
)


class TaskHoldoutConfig(SplitConfig):
    """Settings of a task hold-out."""

    column: str = Field("task", description="column that names the task")
    category: str | None = Field(
        "category", description="column of the task's category, none of which is trained on; null for no such closure"
    )
    source: str | None = Field(
        "source_dataset", description="column of the data set a task is built from; null for no such closure"
    )
    tasks: tuple[str, ...] = Field((), description="tasks to hold out")
    categories: tuple[str, ...] = Field((), description="categories to hold out, with all their tasks")
    fraction: float | None = Field(
        None, gt=0, lt=1, description="share of the categories (of the tasks, without categories) to hold out, drawn"
    )
    closure: Literal["once", "fixed_point"] = Field(
        "once", description="whether tasks linked to tasks left out are left out too, and so on"
    )

    @field_validator("tasks", "categories", mode="before")
    @classmethod
    def _one_or_more_names(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @model_validator(mode="after")
    def _chooses(self) -> TaskHoldoutConfig:
        named = bool(self.tasks or self.categories)
        if named == (self.fraction is not None):
            raise ValueError("say what to hold out: either tasks and categories, or a fraction")
        if self.categories and self.category is None:
            raise ValueError("categories to hold out need the setting 'category', the column that names them")
        return self


@rule(
    "task_holdout",
    config=TaskHoldoutConfig,
    needs=("examples.{column}", "examples.{category}", "examples.{source}"),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(3e-6 * rows, 450 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: TaskHoldoutConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Hold out tasks or categories; other tasks of their category, or of their source data set, leave train."""
    links = _links(examples, config)
    held, warnings = _held_out(links, config, seed, tables.get("frozen"))
    left = _closure(links, held, config)
    known = pl.concat([held, left], how="diagonal")
    if known["task"].n_unique() == links["task"].n_unique():
        raise DataRefused(
            f"no {config.column} is left to train on: {len(held):,} are held out, and {len(left):,} share a category "
            "or a source with them",
            where="split task_holdout",
            remedy="hold out fewer" + (", or set closure: once" if config.closure == "fixed_point" else ""),
        )
    task = examples[config.column].cast(pl.String).alias("task")
    rows = task.to_frame().join(known, on="task", how="left", maintain_order="left")
    is_held, is_left = rows["held_out"].is_not_null(), rows["why"].is_not_null()
    side = np.select([task.is_null() | is_left, is_held], [NEITHER, OUT], IN).astype(np.int8)
    reason = phrase(f"{config.column} ", task, " is not held out")
    reason = phrase(
        rows["held_out"].str.replace("=", " ", literal=True), " is held out", when=is_held, otherwise=reason
    )
    reason = phrase(rows["why"], when=is_left, otherwise=reason)
    reason = phrase(f"{config.column} is null", when=task.is_null(), otherwise=reason)
    if len(left):
        warnings.append(
            f"{len(left):,} tasks ({int(is_left.sum()):,} rows) share a category or a source with held-out ones and "
            "are in no split"
        )
    return [Marks(side, reason, rows["held_out"], warnings=tuple(warnings))]


def _links(examples: pl.DataFrame, config: TaskHoldoutConfig) -> pl.DataFrame:
    """List each task's categories and sources once: task, category, source, sorted; what is not asked for is null."""
    columns = {"task": config.column, "category": config.category, "source": config.source}
    named = [
        (pl.lit(None, pl.String) if column is None else pl.col(column).cast(pl.String)).alias(name)
        for name, column in columns.items()
    ]
    links = examples.select(named).drop_nulls("task").unique().sort("task", "category", "source")
    if links["task"].n_unique() < 2:
        raise DataRefused(
            f"the column {config.column!r} holds {links['task'].n_unique()} tasks; to hold one out takes two or more",
            where="split task_holdout",
            remedy="name another column",
        )
    return links


def _held_out(
    links: pl.DataFrame, config: TaskHoldoutConfig, seed: int, frozen: pl.DataFrame | None
) -> tuple[pl.DataFrame, list[str]]:
    """Choose the held-out tasks: task, and held_out, what they are held out by; with warnings."""
    known = {name: links[name].drop_nulls().unique().sort().to_list() for name in ("task", "category", "source")}
    warnings = [
        f"{number:,} tasks have no {column}: it cannot keep them apart"
        for name, column in (("category", config.category), ("source", config.source))
        if column and (number := links["task"].n_unique() - links.drop_nulls(name)["task"].n_unique())
    ]
    chosen = {"task": set(config.tasks), "category": set(config.categories)}
    for name, values in chosen.items():
        for value in sorted(values - set(known[name])):
            raise UsageError(
                f"there is no {name} {value!r}{nearest(value, known[name])}",
                where=f"column {config.column if name == 'task' else config.category!r}",
                expected=", ".join(known[name][:20]),
            )
    released = _released(frozen, config, seed, known)
    if config.fraction is not None:
        unit = "category" if config.category else "task"
        draw = uniform(known[unit], seed, f"split task_holdout {unit}")
        chosen[unit] = {value for value, u in zip(known[unit], draw.tolist(), strict=True) if u < config.fraction}
        if not chosen[unit] and not any(released.values()):
            enough = np.ceil(draw.min() * 1000) / 1000 if len(draw) else 1.0
            raise DataRefused(
                f"a fraction of {config.fraction:g} holds out none of {len(draw):,}",
                where="split task_holdout",
                remedy=f"raise fraction above {enough:g}, take another seed, or name what to hold out"
                if enough < 1
                else "name the tasks to hold out",
            )
    for name, values in released.items():
        new = sorted(values - chosen[name])
        if new:
            warnings.append(
                f"held out since a release holds them out: {', '.join(new[:5])}" + (" ..." * (len(new) > 5))
            )
        chosen[name] |= values
    by_task = links.filter(pl.col("task").is_in(sorted(chosen["task"]))).select(
        "task", (pl.lit(f"{config.column}=") + pl.col("task")).alias("held_out")
    )
    by_category = links.filter(pl.col("category").is_in(sorted(chosen["category"]))).select(
        "task", (pl.lit(f"{config.category}=") + pl.col("category")).alias("held_out")
    )
    held = pl.concat([by_task, by_category]).unique("task", keep="first", maintain_order=True)
    return held.sort("task"), warnings


def _released(
    frozen: pl.DataFrame | None, config: TaskHoldoutConfig, seed: int, known: Mapping[str, Iterable[str]]
) -> dict[str, set[str]]:
    """Read from a released split what it holds out, as far as it is still there."""
    if frozen is None or "held_out" not in frozen.columns:
        return {}
    if "seed" in frozen.columns:
        frozen = frozen.filter(pl.col("seed") == seed)
    # in a composed split several rules' words stand in one row
    labels = set(frozen["held_out"].drop_nulls().unique().to_list()) | pieces(frozen["held_out"])
    columns = {"task": config.column, "category": config.category}
    return {name: {value for value in known[name] if f"{column}={value}" in labels} for name, column in columns.items()}


def _closure(links: pl.DataFrame, held: pl.DataFrame, config: TaskHoldoutConfig) -> pl.DataFrame:
    """List the tasks that share a category or a source with held-out ones: task, why.

    With ``closure: fixed_point`` also those that share one with the tasks found, until no more are.
    """
    titles = {"category": str(config.category), "source": str(config.source)}
    edges = pl.concat(
        [links.select("task", pl.lit(kind).alias("kind"), pl.col(kind).alias("value")) for kind in titles]
    )
    edges = edges.drop_nulls("value").unique()
    frontier, found = held["task"], pl.DataFrame(schema={"task": pl.String, "why": pl.String})
    words = " with the held-out task "
    while len(frontier):
        reached = edges.filter(pl.col("task").is_in(frontier.implode()))
        through = reached.group_by("kind", "value").agg(pl.col("task").min().alias("by"))
        done = pl.concat([held["task"], found["task"]])
        title = pl.col("kind").replace_strict(titles)
        parts = [f"{config.column} ", pl.col("task"), " shares ", title, " ", pl.col("value"), words, pl.col("by")]
        new = (
            edges.filter(~pl.col("task").is_in(done.implode()))
            .join(through, on=["kind", "value"])
            .sort("task", "kind", "value", "by")
            .unique("task", keep="first", maintain_order=True)
            .select("task", pl.concat_str([p if isinstance(p, pl.Expr) else pl.lit(p) for p in parts]).alias("why"))
        )
        found = pl.concat([found, new])
        frontier = new["task"] if config.closure == "fixed_point" else new["task"].clear()
        words = " with a task left out, "
    return found

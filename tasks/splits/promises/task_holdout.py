"""No task, category or source data set of a held-out task is trained on."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the values that stand on both sides; with a fixed point, also the training tasks that chains reach."""
    inside, outside = by_rule(rows)
    task = str(settings["column"])
    columns = [str(settings[name]) for name in ("category", "source") if settings[name]]
    trained = set(rows.filter(inside)[task].cast(pl.String).drop_nulls())
    tested = set(rows.filter(outside)[task].cast(pl.String).drop_nulls())
    held = tested | set(settings["tasks"])
    checks = [zero(f"constraint:{task}s trained on and held out", len(trained & held), len(held))]
    values: dict[str, dict[str, set[str]]] = {}
    for column in columns:
        pairs = rows.select(pl.col(task).cast(pl.String), pl.col(column).cast(pl.String)).drop_nulls().unique()
        of: dict[str, set[str]] = {}
        for name, value in pairs.rows():
            of.setdefault(name, set()).add(value)
        values[column] = of
        both = _all(of, trained) & _all(of, tested)
        name = f"constraint:{column} values of held-out {task}s that are trained on"
        checks.append(zero(name, len(both), len(_all(of, tested))))
    checks.append(_named(settings, rows.filter(outside), values))
    if settings["closure"] == "fixed_point":
        reached = set(tested)
        before = -1
        while before < len(reached):
            before = len(reached)
            for of in values.values():
                shared = _all(of, reached)
                reached |= {name for name, its in of.items() if its & shared}
        checks.append(zero(f"constraint:trained {task}s linked to held-out ones", len(trained & reached), len(trained)))
    return checks


def _named(settings: dict[str, Any], tested: pl.DataFrame, values: dict[str, dict[str, set[str]]]) -> Check:
    """Count the rows of test_ood whose task, and whose task's categories, are not what the row says is held out."""
    task, category = str(settings["column"]), settings["category"]
    strange = 0
    pairs = tested.select(pl.col(task).cast(pl.String), "held_out").group_by(pl.all()).len()
    for name, told, count in pairs.iter_rows():
        categories = values[str(category)].get(name, set()) if category else set()
        labels = [f"{task}={name}", *(f"{category}={value}" for value in categories)]
        strange += 0 if told is not None and any(label in told for label in labels) else count
    return zero(f"constraint:test_ood rows whose {task} is not held out", strange, len(tested))


def _all(of: dict[str, set[str]], names: set[str]) -> set[str]:
    found: set[str] = set()
    return found.union(*(of.get(name, set()) for name in names))

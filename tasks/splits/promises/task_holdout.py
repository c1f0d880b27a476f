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
    checks = [zero(f"constraint:{task}s trained on and held out", len(trained & tested), len(tested))]
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


def _all(of: dict[str, set[str]], names: set[str]) -> set[str]:
    found: set[str] = set()
    return found.union(*(of.get(name, set()) for name in names))

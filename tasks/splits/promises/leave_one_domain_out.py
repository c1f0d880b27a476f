"""No in-distribution row is of a held-out domain, and no row of test_ood is of another."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare each row's domain with those that are held out: one, or two."""
    column = str(settings["column"])
    domain = rows[column].cast(pl.String)
    told = rows["held_out"].drop_nulls()
    names = _named(told[0], column, set(domain.drop_nulls())) if len(told) else []
    inside, outside = by_rule(rows)
    held = domain.is_in(names)
    inner = int((inside & held.fill_null(True)).sum())
    outer = int((outside & ~held.fill_null(False)).sum())
    return [
        zero(f"constraint:in-distribution rows of the held-out {column}", inner, int(inside.sum())),
        zero(f"constraint:test_ood rows of another {column}", outer, int(outside.sum())),
    ]


def _named(label: str, column: str, known: set[str]) -> list[str]:
    """Return the domains that a label names; names may hold any sign, so it is held against those that there are."""
    first = label.removeprefix(f"{column}=")
    if first in known:
        return [first]
    for name in known:
        if first.startswith(f"{name}; {column}="):
            second = first.removeprefix(f"{name}; {column}=")
            if second in known:
                return [name, second]
    return [first]  # of a domain that has left the data

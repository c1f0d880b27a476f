"""No in-distribution row is of the held-out domain, and no row of test_ood is of another."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare each row's domain with the one that is held out."""
    column = str(settings["column"])
    held_out = rows["held_out"].drop_nulls()
    name = held_out[0].removeprefix(f"{column}=") if len(held_out) else None
    domain = rows[column].cast(pl.String)
    inside, outside = by_rule(rows)
    inner = int((inside & (domain == name).fill_null(True)).sum())
    outer = int((outside & (domain != name).fill_null(True)).sum())
    return [
        zero(f"constraint:in-distribution rows of the held-out {column}", inner, int(inside.sum())),
        zero(f"constraint:test_ood rows of another {column}", outer, int(outside.sum())),
    ]

"""A random draw holds nothing out."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import OUT, Check, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the rows that are called out of distribution."""
    return [zero("constraint:rows out of distribution", int(rows["split"].is_in(OUT).sum()), len(rows))]

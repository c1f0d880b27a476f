"""Each row in a split has an entity, and none is out of distribution; that none crosses is checked of all splits."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises import random


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the rows without an entity that are not excluded."""
    column = str(settings["column"])
    used = rows["split"] != "excluded"
    lacking = int((used & rows[column].is_null()).sum())
    return [*random.promises(settings, rows), zero(f"constraint:rows without a {column}", lacking, int(used.sum()))]

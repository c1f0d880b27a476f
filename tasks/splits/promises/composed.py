"""A row is out of distribution exactly where any, or all, of the rules say so, each recomputed by its own promise."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.constraints import IN as IN_SPLITS
from gradatim.tasks.splits.constraints import OUT as OUT_SPLITS
from gradatim.tasks.splits.constraints import PROMISES, Check
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Join the sides that the rules' own promises compute; a rule without sides is checked where all must agree."""
    word = "any" if settings["any"] else "all"
    known = _sides(settings, rows)
    checks = []
    if all(side is not None for _, _, side in known):
        checks += compared(sides(settings, rows), rows, f"{word} of its rules")
    for place, (name, module, side) in enumerate(known):
        # any: every in-distribution row keeps each rule; all: every row of test_ood breaks each rule
        splits = IN_SPLITS if word == "any" else OUT_SPLITS
        if side is None:
            part = rows.with_columns(
                pl.when(pl.col("split").is_in(splits)).then("split").otherwise(pl.lit("excluded")).alias("split")
            )
            checks += [
                Check(f"{check.check} ({name}, {place + 1})", check.value, check.bound, check.holds, check.n)
                for check in module(part)
            ]
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    each = np.stack([side for _, _, side in _sides(settings, rows) if side is not None])
    out = (each == OUT).any(axis=0) if settings["any"] else (each == OUT).all(axis=0)
    return np.where((each == NEITHER).any(axis=0), NEITHER, np.where(out, OUT, IN)).astype(np.int8)


def _sides(settings: dict[str, Any], rows: pl.DataFrame) -> list[tuple[str, Any, np.ndarray | None]]:
    found: list[tuple[str, Any, np.ndarray | None]] = []
    for step in settings["any"] or settings["all"]:
        plugin = get("split", step["method"])
        own = configure(plugin, step["settings"]).model_dump(mode="json")
        name = f"{PROMISES}.{plugin.name}"
        if importlib.util.find_spec(name) is None:
            found.append((plugin.name, lambda part: [], None))
            continue
        module = importlib.import_module(name)
        side = module.sides(own, rows) if hasattr(module, "sides") else None
        found.append((plugin.name, lambda part, module=module, own=own: module.promises(own, part), side))
    return found

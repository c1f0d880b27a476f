"""Rows to split, and a split made by its plug-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.result import Split


def make(method: str, tables: Any, seed: int = 0, **setting: Any) -> Split:
    plugin = get("split", method)
    given_tables = {"examples": tables} if isinstance(tables, pl.DataFrame) else tables
    return plugin.run(given_tables, configure(plugin, setting), seed)


def examples(n: int = 1200) -> pl.DataFrame:
    number = np.arange(n)
    return pl.DataFrame(
        {
            "example_id": [f"q{i:05d}" for i in number],
            "domain": [("astronomy", "biology", "chemistry", "dance")[i % 4] for i in number],
            "template": [f"t{(i * 7919) % 211}" for i in number],
            "n_steps": (number * 31) % 12 + 1,
            "length_input": (number * 17) % 40 + 1,
            "input": [f"take {i} steps" for i in number],
        }
    )


def difficulty(frame: pl.DataFrame, bins: int = 5) -> pl.DataFrame:
    value = frame["length_input"].cast(pl.Float64)
    cell = ((value - 1) * bins / value.max()).cast(pl.Int32)
    return pl.DataFrame({"example_id": frame["example_id"], "value": value, "bin": cell}).with_columns(
        method=pl.lit("length")
    )

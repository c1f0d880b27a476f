"""What promises about sides have in common: a rule's own side of each row against where the row is."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero

IN, OUT, NEITHER = 0, 1, 2


def compared(side: np.ndarray, rows: pl.DataFrame, what: str) -> list[Check]:
    """Count rows on the wrong side: `side` is 0 in, 1 out, 2 neither."""
    inside, outside = (mask.to_numpy() for mask in by_rule(rows))
    return [
        zero(f"constraint:in-distribution rows of {what}", int((inside & (side != IN)).sum()), int(inside.sum())),
        zero(f"constraint:test_ood rows not of {what}", int((outside & (side != OUT)).sum()), int(outside.sum())),
    ]


def named_cells(rows: pl.DataFrame) -> list[dict[str, str]]:
    """Read the values and combinations that ``held_out`` names: ``colour=red, shape=square; tag=a``."""
    token = r'\s*("(?:[^"\\]|\\.)*"|[^",;=]+?)\s*'
    pair = re.compile(f"{token}={token}(?:, |$)")
    cells = []
    for text in {part for held in rows["held_out"].drop_nulls().unique() for part in held.split("; ")}:
        cell, at = {}, 0
        while found := pair.match(text, at):
            name, value = (json.loads(word) if word.startswith('"') else word for word in found.groups())
            cell[name], at = value, found.end()
        if cell and at == len(text):
            cells.append(cell)
    return cells


def texts(column: pl.Series) -> pl.Series:
    """Return single values as texts; NaN is null."""
    if column.dtype.is_float():
        column = column.set(column.is_nan().fill_null(False), None)
    return column.cast(pl.String)

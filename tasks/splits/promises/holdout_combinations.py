"""No in-distribution row has a held-out combination, each of test_ood has one, and train keeps every single value."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._sides import NEITHER, compared, named_cells, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Check the sides of rows, and count the training rows of each value."""
    columns, least = settings["columns"], settings["keep_values"]
    side = sides(settings, rows)
    checks = compared(side, rows, "a held-out combination")
    trained = (rows["split"] == "train").to_numpy()
    for name in columns:
        counted = pl.DataFrame({"value": texts(rows[name]), "trained": trained}).filter(pl.Series(side != NEITHER))
        per = counted.group_by("value").agg(pl.col("trained").sum())
        lacking = int((per["trained"] < least).sum())
        checks.append(zero(f"constraint:values of {name} with fewer than {least} training rows", lacking, len(per)))
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    columns = settings["columns"]
    r = settings["r"] or len(columns)
    known = pl.DataFrame({name: texts(rows[name]) for name in columns})
    if settings["cells"]:
        cells = [{name: _spelt(value, rows[name]) for name, value in cell.items()} for cell in settings["cells"]]
    else:
        cells = [cell for cell in named_cells(rows) if len(cell) == r and set(cell) <= set(columns)]
    out = np.zeros(len(rows), np.bool_)
    for names in {tuple(sorted(cell)) for cell in cells}:
        some = pl.DataFrame(
            [cell for cell in cells if tuple(sorted(cell)) == names], schema=dict.fromkeys(names, pl.String)
        )
        met = known.join(some.unique().with_columns(met=True), on=list(names), how="left", maintain_order="left")["met"]
        out |= met.fill_null(False).to_numpy()
    unknown = known.select(pl.any_horizontal(pl.all().is_null())).to_series().to_numpy()
    return np.where(unknown, NEITHER, out.astype(np.int8))


def _spelt(value: Any, column: pl.Series) -> str:
    """Find the text that the column has for a value of the settings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and column.dtype.is_numeric():
        same = column.filter(column.cast(pl.Float64) == float(value))
        if len(same):
            return str(same.head(1).cast(pl.String)[0])
    return str(value)

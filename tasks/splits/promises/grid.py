"""Each value of the first column is trained on in exactly k combinations, the others as evenly as can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._sides import NEITHER, compared, named_cells, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the combinations of each value among training rows, and those seen on both sides."""
    columns, k = settings["columns"], settings["k"]
    checks = compared(sides(settings, rows), rows, "a combination outside the grid")
    used = pl.DataFrame({name: texts(rows[name]) for name in columns}).with_columns(rows["split"])
    used = used.filter(pl.col("split") != "excluded")
    cells = used.filter(pl.col("split") == "train").select(columns).unique()
    sizes = [used[name].n_unique() for name in columns]
    possible = int(np.prod([float(size) for size in sizes]))
    for place, (name, size) in enumerate(zip(columns, sizes, strict=True)):
        asked = k * sizes[0] / size if len(columns) == 2 else k * size ** (len(columns) - 2)
        per = used.select(name).unique().join(cells.group_by(name).len("n"), on=name, how="left")["n"].fill_null(0)
        low, high = int(np.floor(asked)), int(np.ceil(asked))
        wrong = (per > high) | (per < low) if settings["complete"] else per > high
        bound = f"{low}" if low == high else f"{low} or {high}"
        what = "training combinations" if settings["complete"] else "training combinations at most"
        checks.append(zero(f"constraint:values of {name} without {bound} {what}", int(wrong.sum()), len(per)))
        if place == 0:
            checks.append(Check("grid_coverage", len(cells) / possible, None, None, possible))
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    columns = settings["columns"]
    known = pl.DataFrame({name: texts(rows[name]) for name in columns})
    cells = [cell for cell in named_cells(rows) if list(cell) == list(columns)]
    some = pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String)).unique().with_columns(met=True)
    met = known.join(some, on=list(columns), how="left", maintain_order="left")["met"].fill_null(False)
    unknown = known.select(pl.any_horizontal(pl.all().is_null())).to_series().to_numpy()
    return np.where(unknown, NEITHER, met.to_numpy().astype(np.int8))

"""No in-distribution row has a held-out value, and every row of test_ood has one."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises._sides import NEITHER, compared, named_cells, texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Look for the values that the settings name, or that ``held_out`` says were drawn."""
    checks = compared(sides(settings, rows), rows, f"a held-out {settings['column']}")
    if settings["fraction"] is not None:
        single = rows[settings["column"]]
        single = single.explode() if single.dtype.is_nested() else single
        values = single.drop_nulls().n_unique()
        drawn = len({cell[settings["column"]] for cell in named_cells(rows) if list(cell) == [settings["column"]]})
        checks.append(Check(f"held_out_values:{settings['column']}", float(drawn), None, None, values))
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    name = settings["column"]
    column = rows[name]
    several = column.dtype.is_nested()
    single = (column.explode() if several else column).unique().drop_nulls()
    if settings["values"]:
        held = [value for value, text in zip(single, texts(single), strict=True)
                if text is not None and any(_is(text, wanted) for wanted in settings["values"])]  # fmt: skip
    else:
        drawn = {cell[name] for cell in named_cells(rows) if list(cell) == [name]}
        held = [value for value, text in zip(single, texts(single), strict=True) if text in drawn]
    among = pl.Series(held, dtype=single.dtype).implode()
    if several:
        lists = column.cast(pl.List(single.dtype))
        hit = lists.list.eval(pl.element().is_in(among)).list.any()
        unknown = column.is_null()
    else:
        hit, unknown = column.is_in(among), texts(column).is_null()
    return np.where(unknown.to_numpy(), NEITHER, hit.fill_null(False).to_numpy().astype(np.int8))


def _is(text: str, wanted: Any) -> bool:
    """Compare as texts, and numbers as numbers."""
    if isinstance(wanted, bool):
        return text == ("true" if wanted else "false")
    try:
        return text == str(wanted) or (not isinstance(wanted, str) and float(text) == float(wanted))
    except ValueError:
        return False

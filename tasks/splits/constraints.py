"""A second opinion on each strategy's promise, recomputed from raw columns by code that the builders do not use."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

import polars as pl

from gradatim.tasks.splits.frozen import KEPT

PROMISES = "gradatim.tasks.splits.promises"
IN = ["train", "validation", "test"]
OUT = ["test_ood", "validation_ood"]


@dataclass(frozen=True)
class Check:
    """One promise: its name, the value found, what was asked and whether it holds."""

    check: str
    value: float
    bound: str | None
    holds: bool | None
    n: int


def zero(check: str, value: int, n: int) -> Check:
    """A count that must be 0."""
    return Check(check, float(value), "= 0", value == 0, n)


def constraint(method: str, settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Check a strategy's own promise.

    The function ``promises(settings, rows)`` of the module `promises`.METHOD does it.

    Parameters
    ----------
    method : str
    settings : dict
    rows : polars.DataFrame
        One (seed, fold): example_id, seed, fold, split, axis, held_out, component, reason, and the columns of examples
        that the strategy names.

    Returns
    -------
    list of Check
        Empty for strategies that promise nothing but shares.
    """
    module = f"{PROMISES}.{method}"
    if importlib.util.find_spec(module) is None:
        return []
    checks: list[Check] = importlib.import_module(module).promises(settings, rows)
    return checks


def by_rule(rows: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Say which rows the rule put in and out of the distribution: without those that only a release holds there.

    Returns
    -------
    (polars.Series of Boolean, polars.Series of Boolean)
        Rows of train, validation and test; rows of test_ood and validation_ood.
    """
    kept = rows["reason"].str.starts_with(KEPT).fill_null(False)
    inside = rows["split"].is_in(IN) & ~(kept & (rows["split"] == "test"))
    return inside, rows["split"].is_in(OUT) & ~kept


def groups_across(rows: pl.DataFrame, column: str, *, merge_tests: bool) -> Check:
    """Count the values of a column that stand in more than one split; `merge_tests` takes test and test_ood as one."""
    used = rows.filter((pl.col("split") != "excluded") & pl.col(column).is_not_null())
    place = pl.col("split").replace("test_ood", "test") if merge_tests else pl.col("split")
    per_group = used.group_by(column).agg(place.n_unique().alias("places"))
    return zero(f"groups_across:{column}", int((per_group["places"] > 1).sum()), len(per_group))

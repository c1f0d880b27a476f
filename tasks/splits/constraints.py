"""A second opinion on each strategy's promise, recomputed from the raw column by code that the builders do not use."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.frozen import KEPT

_IN = ["train", "validation", "test"]
_OUT = ["test_ood", "validation_ood"]
_SIGNS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("<=", operator.le), (">=", operator.ge), ("==", operator.eq), ("!=", operator.ne),
    ("<", operator.lt), (">", operator.gt), ("=", operator.eq),
]  # fmt: skip


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

    Parameters
    ----------
    method : str
    settings : dict
    rows : polars.DataFrame
        One (seed, fold): split, held_out, reason and the raw column that the settings name.

    Returns
    -------
    list of Check
        Empty for strategies that promise nothing but shares.
    """
    column = settings.get("column")
    if method in ("threshold", "length"):
        return _threshold(str(column), str(settings["train"]), rows)
    if method == "leave_one_domain_out":
        return _domain(str(column), rows)
    if method == "stratified" and column:
        return _strata(str(column), settings, rows)
    return []


def groups_across(rows: pl.DataFrame, column: str, *, merge_tests: bool) -> Check:
    """Count the values of a column that stand in more than one split; `merge_tests` takes test and test_ood as one."""
    used = rows.filter((pl.col("split") != "excluded") & pl.col(column).is_not_null())
    place = pl.col("split").replace("test_ood", "test") if merge_tests else pl.col("split")
    per_group = used.group_by(column).agg(place.n_unique().alias("places"))
    return zero(f"groups_across:{column}", int((per_group["places"] > 1).sum()), len(per_group))


def _threshold(column: str, text: str, rows: pl.DataFrame) -> list[Check]:
    satisfied, numbers = _satisfied(rows[column], text)
    split = rows["split"]
    kept = rows["reason"].str.starts_with(KEPT).fill_null(False).to_numpy()
    fit = split.is_in(["train", "validation"]).to_numpy()
    test = split.is_in(["test"]).to_numpy() & ~kept
    out = split.is_in(_OUT).to_numpy() & ~kept
    checks = [
        zero(f"constraint:train rows not {column} {text}", int((fit & ~satisfied).sum()), int(fit.sum())),
        zero(f"constraint:test rows not {column} {text}", int((test & ~satisfied).sum()), int(test.sum())),
        zero(f"constraint:test_ood rows {column} {text}", int((out & satisfied).sum()), int(out.sum())),
    ]
    sign = next((sign for sign, _ in _SIGNS if text.strip().startswith(sign)), "")
    train = numbers[split.is_in(["train"]).to_numpy()]
    if sign[:1] in ("<", ">") and len(train) and not np.isnan(train).any() and rows[column].dtype.is_numeric():
        extreme = float(train.max() if sign[0] == "<" else train.min())
        name = f"constraint:{'max' if sign[0] == '<' else 'min'} {column} in train"
        holds = bool(dict(_SIGNS)[sign](extreme, float(text.strip().removeprefix(sign))))
        checks.append(Check(name, extreme, text.strip(), holds, len(train)))
    return checks


def _satisfied(column: pl.Series, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return which values satisfy the condition (null never does) and the values as float64."""
    temporal = column.dtype.is_temporal()
    try:
        float(text.strip(" <>=!").split("..")[0])
        reads_time = False
    except ValueError:
        reads_time = True
    if reads_time and not temporal:
        column = column.str.to_datetime(time_zone="UTC", strict=False)
    if reads_time:
        exact: pl.Series = column.cast(pl.Datetime("us", time_zone=getattr(column.dtype, "time_zone", None))).dt.epoch(
            "us"
        )
    else:
        exact = column if column.dtype.is_integer() else column.cast(pl.Float64, strict=False)
    known = exact.is_not_null().to_numpy()
    values = exact.fill_null(0).to_numpy()

    def read(word: str) -> float | int:
        if reads_time:
            moment = datetime.fromisoformat(word.strip())
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
        return int(word) if word.strip().lstrip("+-").isdigit() else float(word)

    if ".." in text:
        low, high = text.split("..")
        inside = (values >= read(low)) & (values <= read(high))
    else:
        sign, compare = next((sign, compare) for sign, compare in _SIGNS if text.strip().startswith(sign))
        inside = compare(values, read(text.strip().removeprefix(sign)))
    return np.asarray(inside, bool) & known, np.where(known, values.astype(np.float64), np.nan)


def _domain(column: str, rows: pl.DataFrame) -> list[Check]:
    held_out = rows["held_out"].drop_nulls()
    name = held_out[0].removeprefix(f"{column}=") if len(held_out) else None
    domain = rows[column].cast(pl.String)
    kept = rows["reason"].str.starts_with(KEPT).fill_null(False)
    inside = rows["split"].is_in(_IN) & ~(kept & (rows["split"] == "test"))
    outside = rows["split"].is_in(_OUT) & ~kept
    inner = int((inside & (domain == name).fill_null(True)).sum())
    outer = int((outside & (domain != name).fill_null(True)).sum())
    return [
        zero(f"constraint:in-distribution rows of the held-out {column}", inner, int(inside.sum())),
        zero(f"constraint:test_ood rows of another {column}", outer, int(outside.sum())),
    ]


def _strata(column: str, settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    used = rows.filter(pl.col("split") != "excluded")
    per = used.group_by(pl.col(column).cast(pl.String)).agg(
        pl.len().alias("rows"), (pl.col("split") == "test").sum().alias("test")
    )
    worst = float((per["test"].cast(pl.Float64) - settings["test"] * per["rows"]).abs().max() or 0.0)
    free = rows["component"].null_count() == len(rows) and not rows["reason"].str.starts_with(KEPT).any()
    name = f"constraint:largest error of a stratum's test rows ({column})"
    return [Check(name, worst, "<= 1", worst <= 1, len(per)) if free else Check(name, worst, None, None, len(per))]

"""Train and test satisfy the condition, test_ood does not, and the largest value in train is within it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import OUT, Check, zero
from gradatim.tasks.splits.frozen import KEPT

_SIGNS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("<=", operator.le), (">=", operator.ge), ("==", operator.eq), ("!=", operator.ne),
    ("<", operator.lt), (">", operator.gt), ("=", operator.eq),
]  # fmt: skip


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Check the rule ``settings["column"]`` ``settings["train"]`` row by row; the gap and null break it."""
    column, text = str(settings["column"]), str(settings["train"])
    numbers, side = _satisfied(rows[column], text)[1], sides(settings, rows)
    split = rows["split"]
    kept = rows["reason"].str.starts_with(KEPT).fill_null(False).to_numpy()
    fit = split.is_in(["train", "validation"]).to_numpy()
    test = split.is_in(["test"]).to_numpy() & ~kept
    out = split.is_in(OUT).to_numpy() & ~kept
    checks = [
        zero(f"constraint:train rows not {column} {text}", int((fit & (side != 0)).sum()), int(fit.sum())),
        zero(f"constraint:test rows not {column} {text}", int((test & (side != 0)).sum()), int(test.sum())),
        zero(f"constraint:test_ood rows {column} {text}", int((out & (side != 1)).sum()), int(out.sum())),
    ]
    sign = next((sign for sign, _ in _SIGNS if text.strip().startswith(sign)), "")
    train = numbers[split.is_in(["train"]).to_numpy()]
    if sign[:1] in ("<", ">") and len(train) and not np.isnan(train).any() and rows[column].dtype.is_numeric():
        extreme = float(train.max() if sign[0] == "<" else train.min())
        name = f"constraint:{'max' if sign[0] == '<' else 'min'} {column} in train"
        holds = bool(dict(_SIGNS)[sign](extreme, float(text.strip().removeprefix(sign))))
        checks.append(Check(name, extreme, text.strip(), holds, len(train)))
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    column = rows[str(settings["column"])]
    satisfied, numbers = _satisfied(column, str(settings["train"]))
    neither = np.isnan(numbers)
    if settings.get("gap"):
        neither |= _satisfied(column, str(settings["gap"]))[0]
    return np.where(neither, 2, np.where(satisfied, 0, 1)).astype(np.int8)


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

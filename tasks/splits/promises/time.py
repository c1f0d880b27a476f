"""No in-distribution row is as late as an out-of-distribution row, and validation is earlier than test."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero
from gradatim.tasks.splits.promises._sides import NEITHER

_UNITS = {"min": "minutes", "s": "seconds", "h": "hours", "d": "days", "w": "weeks"}


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the rows that look ahead, by the raw column."""
    column = str(settings["column"])
    at = _times(rows[column])
    inside, outside = by_rule(rows)
    tested = outside & (rows["split"] == "test_ood")
    watched = outside & (rows["split"] == "validation_ood")
    first, last = at.filter(outside).min(), at.filter(inside).max()
    ahead = int((inside & (at >= first).fill_null(True)).sum()) if outside.any() else 0
    checks = [zero(f"constraint:in-distribution rows as late as {column} of test_ood", ahead, int(inside.sum()))]
    start, end = _window(rows["held_out"], column, at)
    if start is not None:
        beyond = (at < start) | (at >= end) if end is not None else at < start
        wrong = int(((inside & (at >= start)) | (outside & beyond)).fill_null(True).sum())
    else:
        wrong = int(outside.sum())  # none of them says from when on
    checks.append(zero(f"constraint:rows on the other side of the {column} named", wrong, len(rows)))
    unknown = int(((inside | outside) & at.is_null()).sum())
    checks.append(zero(f"constraint:rows without a {column}", unknown, int((inside | outside).sum())))
    if watched.any():
        early = int((tested & (at <= at.filter(watched).max()).fill_null(True)).sum())
        checks.append(zero("constraint:test_ood rows as early as validation_ood", early, int(tested.sum())))
    if settings["gap"] and inside.any():
        near = int((outside & (at - last < _span(str(settings["gap"]), at)).fill_null(True)).sum())
        checks.append(zero(f"constraint:test_ood rows within {settings['gap']} of training", near, int(outside.sum())))
    return checks


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray | None:
    """Say on which side each row is: 0 in, 1 out, 2 neither; None where no row tells of a boundary."""
    at = _times(rows[str(settings["column"])])
    start, end = _window(rows["held_out"], str(settings["column"]), at)
    if start is None:
        return None
    opens = start + _span(str(settings["gap"]), at) if settings["gap"] else start
    waiting = (at >= start) & (at < opens)
    late = at >= end if end is not None else at.is_null()
    neither = (at.is_null() | waiting | late).fill_null(True)
    return np.where(neither.to_numpy(), NEITHER, (at >= start).fill_null(False).to_numpy()).astype(np.int8)


def _times(at: pl.Series) -> pl.Series:
    """Return times in UTC, and numbers as they are."""
    if at.dtype == pl.String:
        number = at.cast(pl.Float64, strict=False)
        numeric = number.null_count() == at.null_count()
        at = number if numeric else at.str.to_datetime(time_zone="UTC", strict=False)
    elif at.dtype.is_temporal():
        zone = getattr(at.dtype, "time_zone", None)
        at = at.cast(pl.Datetime("us", zone))
        at = at.dt.convert_time_zone("UTC") if zone else at.dt.replace_time_zone("UTC")
    return at


def _window(held_out: pl.Series, column: str, at: pl.Series) -> tuple[Any, Any]:
    """Read the two ends of what is held out from the words for it, beside which those of other rules may stand."""
    pattern = rf"(?:^|; ){re.escape(column)} >= ([^\s;,]+)(?:, < ([^\s;,]+))?(?:;|$)"
    for text in held_out.drop_nulls().unique().sort():
        if found := re.search(pattern, text):
            return tuple(None if end is None else _moment(end, at) for end in found.groups())  # type: ignore[return-value]
    return None, None


def _moment(text: str, at: pl.Series) -> Any:
    if not at.dtype.is_temporal():
        return float(text)
    moment = datetime.fromisoformat(text)
    return pl.Series([moment.astimezone(UTC)], dtype=at.dtype)


def _span(text: str, at: pl.Series) -> Any:
    if not at.dtype.is_temporal():
        return float(text)
    unit = next(unit for unit in _UNITS if text.strip().endswith(unit))
    return timedelta(**{_UNITS[unit]: float(text.strip().removesuffix(unit))})

"""No in-distribution row is as late as an out-of-distribution row, and validation is earlier than test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero

_UNITS = {"min": "minutes", "s": "seconds", "h": "hours", "d": "days", "w": "weeks"}


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the rows that look ahead, by the raw column."""
    column = str(settings["column"])
    at = rows[column]
    if at.dtype == pl.String:
        number = at.cast(pl.Float64, strict=False)
        numeric = number.null_count() == at.null_count()
        at = number if numeric else at.str.to_datetime(time_zone="UTC", strict=False)
    elif at.dtype.is_temporal():
        zone = getattr(at.dtype, "time_zone", None)
        at = at.cast(pl.Datetime("us", zone))
        at = at.dt.convert_time_zone("UTC") if zone else at.dt.replace_time_zone("UTC")
    inside, outside = by_rule(rows)
    tested = outside & (rows["split"] == "test_ood")
    watched = outside & (rows["split"] == "validation_ood")
    first, last = at.filter(outside).min(), at.filter(inside).max()
    ahead = int((inside & (at >= first).fill_null(True)).sum()) if outside.any() else 0
    checks = [zero(f"constraint:in-distribution rows as late as {column} of test_ood", ahead, int(inside.sum()))]
    told = rows["held_out"].drop_nulls()
    if len(told):
        start = _moment(told[0].removeprefix(f"{column} >= ").split(";")[0].split(",")[0], at)
        wrong = int(((inside & (at >= start)) | (outside & (at < start))).fill_null(True).sum())
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

"""What the house's charts share: the look, and a frame's rows as a chart may embed them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.tasks.core import format as fmt

POINTS = 5_000
"""Most points that a chart embeds; beyond, every k-th in sorted order."""
CATEGORIES = 60
"""Most categories on one axis; beyond, the first ones."""
SERIES = 12
"""Most series in one chart; beyond, the first ones."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5A5A5A", "#8C6D1F")
INK, MUTED, GRID = "#1f2328", "#59636e", "#e6e8eb"
WIDTH, HEIGHT = 560, 260
FONT = "Arial, Helvetica, sans-serif"


def theme() -> dict[str, Any]:
    """Return the house's Vega-Lite configuration."""
    return {
        "background": "#ffffff",
        "font": FONT,
        "padding": 6,
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT, "discreteWidth": WIDTH},
        "title": {
            "anchor": "start",
            "frame": "group",
            "fontSize": 14,
            "fontWeight": 600,
            "color": INK,
            "offset": 12,
            "subtitleColor": MUTED,
            "subtitleFontSize": 11,
        },
        "axis": {
            "labelColor": MUTED,
            "titleColor": INK,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": GRID,
            "domainColor": "#9aa3ad",
            "tickColor": "#9aa3ad",
            "labelLimit": 220,
            "tickSize": 4,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": INK,
            "titleColor": MUTED,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelLimit": 220,
            "orient": "top",
            "direction": "horizontal",
            "columns": 4,
        },
        "range": {"category": list(PALETTE)},
        "bar": {"color": PALETTE[0]},
        "line": {"color": PALETTE[0], "strokeWidth": 2},
        "point": {"color": PALETTE[0], "size": 42},
    }


def clean(value: Any) -> Any:
    """Return plain JSON: one-line texts without control characters or lone surrogates, no NaN or infinity."""
    if isinstance(value, str):
        return fmt.line(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pick(frame: pl.DataFrame, fields: dict[str, str | None]) -> pl.DataFrame:
    """Return the named columns under neutral names, in JSON's types."""
    named = {field: column for field, column in fields.items() if column is not None}
    for column in named.values():
        if column not in frame.columns:
            message = f"the chart's frame has no column {column!r}{nearest(column, frame.columns)}"
            raise UsageError(message, expected=", ".join(frame.columns))
    return frame.select(_plain(pl.col(column), frame.schema[column]).alias(field) for field, column in named.items())


def _plain(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_numeric() or kind == pl.Boolean or kind == pl.Null:
        if kind.is_float() or kind.is_decimal():
            real = column.cast(pl.Float64)
            return pl.when(real.is_finite()).then(real)
        return column
    if kind in (pl.Date, pl.Datetime):
        return column.cast(pl.Datetime("ms")).dt.epoch("ms")  # a text without a zone would be read as local time
    if kind == pl.Duration:
        return column.dt.total_microseconds() / 1e6
    return column.cast(pl.String, strict=False)


def rows(data: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain JSON; whole numbers become real ones, since JavaScript has none beyond 2^53."""
    wide = [name for name, kind in data.schema.items() if kind.is_integer()]
    return clean(data.with_columns(pl.col(wide).cast(pl.Float64) if wide else []).to_dicts())  # type: ignore[no-any-return]


def first(data: pl.DataFrame, field: str, limit: int) -> tuple[pl.DataFrame, str]:
    """Keep the rows of the first `limit` categories of `field`, and say so."""
    categories = data[field].unique(maintain_order=True)
    if len(categories) <= limit:
        return data, ""
    kept = data.filter(pl.col(field).is_in(categories.head(limit).implode(), nulls_equal=True))
    return kept, f"the first {limit} of {len(categories):,} categories shown"


def thin(data: pl.DataFrame) -> pl.DataFrame:
    """Keep at most `POINTS` rows: evenly spaced ones in sorted order, so that the rows' order does not matter."""
    if len(data) <= POINTS:
        return data
    order = data.sort(data.columns, nulls_last=True)
    picks = np.unique(np.linspace(0, len(order) - 1, POINTS).round().astype(np.int64))
    return order[picks]


def labelled(data: pl.DataFrame, field: str) -> tuple[pl.DataFrame, list[str]]:
    """Replace a field's values by short texts, different for different values; return these in the rows' order."""
    values = data[field].unique(maintain_order=True)
    texts: dict[str, None] = {}
    for value in values.to_list():
        text = "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
        text = short = fmt.line(text, 60)
        again = 2
        while text in texts:
            text, again = f"{short} ({again})", again + 1
        texts[text] = None
    names = pl.DataFrame({field: values, "label": list(texts)}, schema={field: values.dtype, "label": pl.String})
    joined = data.join(names, on=field, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(pl.col("label").alias(field)).drop("label"), list(texts)


def require_unique(data: pl.DataFrame, fields: list[str]) -> None:
    """Refuse two rows for one bar or cell: one would hide the other, or their sum would be drawn."""
    if data.select(fields).is_duplicated().any():
        raise UsageError(
            "the chart's frame has more than one row for the same bar or cell",
            expected="one row for each combination of its categories",
            remedy="aggregate the frame first",
        )


def axis_format(column: pl.Series) -> dict[str, str]:
    """Return the number format of an axis: 20M for very large amounts, else what the ticks need."""
    largest = column.cast(pl.Float64, strict=False).abs().max() if column.dtype.is_numeric() else None
    return {"format": "~s"} if isinstance(largest, float) and largest >= 1e7 else {}


def no_data(data: pl.DataFrame) -> str:
    """Say that an empty chart is empty because nothing was there."""
    return "" if len(data) else "no data"


def heading(name: str) -> str:
    """Return a column's name as an axis shows it."""
    return name.replace("_", " ")

"""The house's charts: histogram, bars, lines, points and heatmap, as Altair charts of one look.

Colours are those of Okabe and Ito (2008), told apart with any colour vision; series also differ in shape or dash, so
that a grey print reads. Every chart carries its own few values, in a fixed order, under neutral field names: a column
called ``a.b[0]:x`` is data here, never an expression. Altair and vl-convert are imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import SummaryChart
from numpy.typing import ArrayLike

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


def histogram(values: ArrayLike | pl.Series, *, title: str, x: str, bins: int = 30) -> Any:
    """Draw the distribution of `values` (N numbers; missing ones are left out and counted in the subtitle).

    `x` names the axis. The counts are made here, so a chart of a million values embeds `bins` rows.
    """
    import altair as alt

    array = values.cast(pl.Float64, strict=False).to_numpy() if isinstance(values, pl.Series) else values
    numbers = np.asarray(array, dtype=np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    edges = np.linspace(0.0, 1.0, 2)
    if finite.size:
        edges = np.histogram_bin_edges(finite, bins=max(1, min(bins, np.unique(finite).size)))
    counts, edges = np.histogram(finite, bins=edges)
    rows = [
        {"x": float(low), "x2": float(high), "y": int(n)}
        for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    left_out = numbers.size - finite.size
    note = f"n = {finite.size:,}" + (f", {left_out:,} missing left out" if left_out else "")
    base = alt.Chart(_data(rows if finite.size else [])).mark_bar(binSpacing=1)
    encoded = base.encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=8)),
        x2="x2:Q",
        y=alt.Y("y:Q", title="count", axis=alt.Axis(tickCount=5, format=",~f")),
    )
    return _finish(encoded, title, note)


def bars(
    frame: pl.DataFrame,
    *,
    x: str,
    y: str,
    color: str | None = None,
    title: str,
    low: str | None = None,
    high: str | None = None,
) -> Any:
    """Draw one bar a row of `frame`, categories `x` in the frame's order, side by side by `color`.

    `low` and `high` name the ends of intervals. Many or long categories lie horizontally.
    """
    import altair as alt

    data, notes = _pick(frame, {"x": x, "y": y, "color": color, "low": low, "high": high})
    data, note = _first(data, "x", CATEGORIES)
    data = data.with_columns(pl.col("x").map_elements(_label, return_dtype=pl.String, skip_nulls=False))
    labels = data["x"].unique(maintain_order=True).to_list()
    lying = len(labels) > 16 or sum(map(len, labels)) > 90 or max(map(len, labels), default=0) > 18
    width = alt.Step(max(8, 22 // max(1, data["color"].n_unique()))) if lying and color else alt.Step(20)
    axis = alt.Axis(labelAngle=0, ticks=False, domain=True)
    category = (alt.Y if lying else alt.X)("x:N", title=_title(x), sort=labels, axis=axis)
    axis = alt.Axis(tickCount=5, grid=True, domain=False, format=_format(data["y"]))
    amount = (alt.X if lying else alt.Y)("y:Q", title=_title(y), axis=axis)
    channels: dict[str, Any] = {"y": category, "x": amount} if lying else {"x": category, "y": amount}
    hue: dict[str, Any] = {}
    if color:
        data = data.with_columns(pl.col("color").map_elements(_label, return_dtype=pl.String, skip_nulls=False))
        series = data["color"].unique(maintain_order=True).to_list()
        hue["color"] = alt.Color("color:N", title=_title(color), sort=series, scale=_colors(series))
        offset = alt.YOffset("color:N", sort=series) if lying else alt.XOffset("color:N", sort=series)
        channels["yOffset" if lying else "xOffset"] = offset
    base = alt.Chart(_data(_rows(data)))
    drawn = base.mark_bar().encode(**channels, **hue)
    if low and high:
        ends = (alt.X("low:Q"), alt.X2("high:Q")) if lying else (alt.Y("low:Q"), alt.Y2("high:Q"))
        drawn += base.mark_rule(color=INK, strokeWidth=1.2).encode(
            **{**channels, ("x" if lying else "y"): ends[0], ("x2" if lying else "y2"): ends[1]}
        )
    drawn = drawn.properties(height=width) if lying else drawn
    return _finish(drawn, title, *notes, note)


def lines(
    frame: pl.DataFrame,
    *,
    x: str,
    y: str,
    color: str | None = None,
    title: str,
    low: str | None = None,
    high: str | None = None,
) -> Any:
    """Draw `y` over `x`, one line a value of `color`, with a band from `low` to `high` where both are named."""
    return _curve(frame, x, y, color, title, low, high, line=True)


def points(
    frame: pl.DataFrame,
    *,
    x: str,
    y: str,
    color: str | None = None,
    title: str,
    low: str | None = None,
    high: str | None = None,
) -> Any:
    """Draw one point a row, told apart by `color` and shape, with a bar from `low` to `high` where both are named."""
    return _curve(frame, x, y, color, title, low, high, line=False)


def heatmap(frame: pl.DataFrame, *, x: str, y: str, value: str, title: str) -> Any:
    """Draw `value` as the shade of the cell (`x`, `y`), categories in the frame's order, numbers in small grids."""
    import altair as alt

    data, notes = _pick(frame, {"x": x, "y": y, "value": value})
    data, note_x = _first(data, "x", CATEGORIES)
    data, note_y = _first(data, "y", CATEGORIES)
    data = data.with_columns(
        pl.col("x", "y").map_elements(_label, return_dtype=pl.String, skip_nulls=False),
        pl.col("value").cast(pl.Float64, strict=False),
    )
    columns, rows = (data[name].unique(maintain_order=True).to_list() for name in ("x", "y"))
    finite = data["value"].drop_nulls().drop_nans()
    bottom, top = (float(finite.min() or 0), float(finite.max() or 0)) if len(finite) else (0.0, 0.0)  # type: ignore[arg-type]
    scale = alt.Scale(scheme="blues", domain=[bottom, top if top > bottom else bottom + 1])
    step = max(14, min(58, WIDTH // max(1, len(columns))))
    angle = 0 if max(map(len, columns), default=0) * 6.5 < step else -40
    base = alt.Chart(_data(_rows(data))).encode(
        x=alt.X("x:N", title=_title(x), sort=columns, axis=alt.Axis(labelAngle=angle, ticks=False, domain=False)),
        y=alt.Y("y:N", title=_title(y), sort=rows, axis=alt.Axis(ticks=False)),
    )
    shade = alt.Color("value:Q", title=_title(value), scale=scale, legend=alt.Legend(gradientLength=180))
    drawn = base.mark_rect(stroke="white").encode(color=shade)
    if len(data) <= 150 and step >= 30:
        dark = f"datum.value > {(bottom + 0.55 * (top - bottom))!r}"
        ink = alt.condition(dark, alt.value("white"), alt.value(INK))
        drawn += base.mark_text(fontSize=10).encode(text=alt.Text("value:Q", format=".3~g"), color=ink)
    return _finish(drawn.properties(width=alt.Step(step), height=alt.Step(26)), title, *notes, note_x, note_y)


def chart(drawn: Any, caption: str) -> SummaryChart:
    """Turn an Altair chart into a part of a summary, with the sentence that it shows."""
    spec = drawn.to_dict()
    heading = spec.get("title", "")
    text = heading.get("text", "") if isinstance(heading, dict) else heading
    return SummaryChart(" ".join(text) if isinstance(text, list) else str(text), spec, caption)


def to_png(spec: dict[str, Any], *, scale: float = 1.5) -> bytes:
    """Draw a Vega-Lite specification as a PNG, without a network."""
    import vl_convert

    png: bytes = vl_convert.vegalite_to_png(clean(spec), scale=scale, allowed_base_urls=[])
    return png


def to_svg(spec: dict[str, Any]) -> str:
    """Draw a Vega-Lite specification as SVG text, without a network."""
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(clean(spec), allowed_base_urls=[])
    return svg


def clean(value: Any) -> Any:
    """Return plain JSON: no control characters, lone surrogates, NaN or infinities, anywhere."""
    if isinstance(value, str):
        return "".join(
            c if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\x7f\ufffe\uffff" else "\ufffd" for c in value
        )
    if isinstance(value, dict):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _curve(
    frame: pl.DataFrame, x: str, y: str, color: str | None, title: str, low: str | None, high: str | None, *, line: bool
) -> Any:
    import altair as alt

    data, notes = _pick(frame, {"x": x, "y": y, "color": color, "low": low, "high": high})
    hue: dict[str, Any] = {}
    if color:
        data, note = _first(data, "color", SERIES)
        notes.append(note)
        data = data.with_columns(pl.col("color").map_elements(_label, return_dtype=pl.String, skip_nulls=False))
        series = data["color"].unique(maintain_order=True).to_list()
        hue["color"] = alt.Color("color:N", title=_title(color), sort=series, scale=_colors(series))
        second = {"strokeDash": alt.StrokeDash} if line else {"shape": alt.Shape}
        hue |= {name: channel("color:N", title=_title(color), sort=series) for name, channel in second.items()}
    kept = data.drop_nulls(["x", "y"])
    if line:
        kept = kept.sort("x", maintain_order=True)
    data = _thin(kept)
    if len(data) < len(kept):
        notes.append(f"{len(data):,} of {len(kept):,} points shown")
    kind = _kind(data["x"])
    across = alt.X(f"x:{kind}", title=_title(x), sort=None if kind == "N" else alt.Undefined)
    if kind == "Q":
        across = alt.X("x:Q", title=_title(x), scale=alt.Scale(zero=False), axis=alt.Axis(format=_format(data["x"])))
    elif kind == "N":
        across = alt.X("x:N", title=_title(x), sort=None, axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(zero=False)
    axis = alt.Axis(tickCount=6, format=_format(data["y"]))
    up = alt.Y("y:Q", title=_title(y), scale=scale, axis=axis)
    base = alt.Chart(_data(_rows(data)))
    flat = {name: channel for name, channel in hue.items() if name == "color"}
    layers = []
    if low and high:
        band = base.mark_area(opacity=0.16) if line else base.mark_rule(strokeWidth=1.2, opacity=0.7)
        layers.append(band.encode(x=across, y=alt.Y("low:Q", title=_title(y), scale=scale), y2="high:Q", **flat))
    if not line:
        layers.append(
            base.mark_point(filled=True, opacity=0.75 if len(data) < 500 else 0.35).encode(x=across, y=up, **hue)
        )
    else:
        layers.append(base.mark_line().encode(x=across, y=up, **hue))
        if len(data) <= 60:
            layers.append(base.mark_point(filled=True).encode(x=across, y=up, **flat))
    return _finish(alt.layer(*layers) if len(layers) > 1 else layers[0], title, *notes)


def _pick(frame: pl.DataFrame, fields: dict[str, str | None]) -> tuple[pl.DataFrame, list[str]]:
    """Return the named columns under neutral names, in JSON's types."""
    named = {field: column for field, column in fields.items() if column is not None}
    for column in named.values():
        if column not in frame.columns:
            message = f"the chart's frame has no column {column!r}{nearest(column, frame.columns)}"
            raise UsageError(message, expected=", ".join(frame.columns))
    picked = frame.select(_plain(pl.col(column), frame.schema[column]).alias(field) for field, column in named.items())
    return picked, []


def _plain(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if kind.is_numeric() or kind == pl.Boolean or kind == pl.Null:
        if kind.is_float() or kind.is_decimal():
            real = column.cast(pl.Float64)
            return pl.when(real.is_finite()).then(real)
        return column
    if kind.is_temporal() and kind != pl.Duration:
        return column.dt.to_string("iso")
    if kind == pl.Duration:
        return column.dt.total_microseconds() / 1e6
    return column.cast(pl.String, strict=False)


def _rows(data: pl.DataFrame) -> list[dict[str, Any]]:
    # beyond 2^53 JavaScript has no whole numbers
    wide = [name for name, kind in data.schema.items() if kind.is_integer()]
    return clean(data.with_columns(pl.col(wide).cast(pl.Float64) if wide else []).to_dicts())  # type: ignore[no-any-return]


def _data(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.InlineData(values=rows)


def _first(data: pl.DataFrame, field: str, limit: int) -> tuple[pl.DataFrame, str]:
    """Keep the rows of the first `limit` categories of `field`, and say so."""
    categories = data[field].unique(maintain_order=True)
    if len(categories) <= limit:
        return data, ""
    kept = data.filter(pl.col(field).is_in(categories.head(limit).implode(), nulls_equal=True))
    return kept, f"the first {limit} of {len(categories):,} categories shown"


def _thin(data: pl.DataFrame) -> pl.DataFrame:
    """Keep at most `POINTS` rows: evenly spaced ones in sorted order, so that the rows' order does not matter."""
    if len(data) <= POINTS:
        return data
    order = data.sort(data.columns, nulls_last=True)
    picks = np.unique(np.linspace(0, len(order) - 1, POINTS).round().astype(np.int64))
    return order[picks]


def _label(value: Any) -> str:
    text = "–" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _kind(column: pl.Series) -> str:
    return "Q" if column.dtype.is_numeric() else "N"


def _format(column: pl.Series) -> str:
    """Return the number format of an axis: separators for amounts, plain digits for fractions."""
    largest = column.cast(pl.Float64, strict=False).abs().max() if column.dtype.is_numeric() else None
    return (
        ",~f"
        if isinstance(largest, float) and 1e3 <= largest < 1e7
        else "~s"
        if isinstance(largest, float) and largest >= 1e7
        else "~g"
    )


def _title(name: str) -> str:
    return name.replace("_", " ")


def _colors(series: Sequence[str]) -> Any:
    import altair as alt

    return alt.Scale(domain=list(series), range=[PALETTE[i % len(PALETTE)] for i in range(len(series))])


def _finish(drawn: Any, title: str, *notes: str) -> Any:
    """Give a chart its title, its notes and the house's look."""
    import altair as alt

    notes = tuple(note for note in notes if note)
    heading = alt.TitleParams(clean(title), subtitle="; ".join(notes)) if notes else alt.TitleParams(clean(title))
    return drawn.properties(title=heading).configure(**theme())

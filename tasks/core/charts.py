"""The house's charts: histogram, bars, lines, points and heatmap, as Altair charts of one look.

Colours are those of Okabe and Ito (2008), told apart with any colour vision; series also differ in shape or dash, so
that a grey print reads. Every chart carries its own few values, in a fixed order, under neutral field names: a column
called ``a.b[0]:x`` is data here, never an expression. Altair and vl-convert are imported on first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import SummaryChart
from gradatim.tasks.core import chart_parts as parts
from gradatim.tasks.core import format as fmt

MOST_STEPS = 100_000
"""Even steps from the least value to the greatest up to which a histogram's bars follow them."""


def histogram(values: ArrayLike | pl.Series, *, title: str, x: str, bins: int = 30) -> Any:
    """Draw the distribution of `values` (N numbers; missing ones are left out and counted in the subtitle).

    `x` names the axis. The counts are made here, so a chart of a million values embeds `bins` rows. Where all values
    stand on even steps, as counts and shares of ten do, each bar holds as many steps, one if there are few.
    """
    import altair as alt

    array = values.cast(pl.Float64, strict=False).to_numpy() if isinstance(values, pl.Series) else values
    numbers = np.asarray(array, dtype=np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(finite, bins=_edges(finite, bins))
    rows = [
        {"x": float(low), "x2": float(high), "y": int(n), "y2": 0}
        for low, high, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    left_out = numbers.size - finite.size
    note = f"n = {finite.size:,}" + (f", {left_out:,} missing left out" if left_out else "")
    base = alt.Chart(_data(rows if finite.size else [])).mark_bar(binSpacing=1)
    encoded = base.encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=8)),
        x2="x2:Q",
        y2="y2:Q",
        y=alt.Y("y:Q", title="count", axis=alt.Axis(tickCount=5, format=",~f", tickMinStep=1)),
    )
    return _finish(encoded, title, note)


def _edges(finite: np.ndarray, bins: int) -> np.ndarray:
    """Return the ends of a histogram's bars, ascending."""
    if not finite.size:
        return np.array([0.0, 1.0])
    different = np.unique(finite)
    low, high = float(different[0]), float(different[-1])
    largest = max(abs(low), abs(high))
    if high / 2 - low / 2 <= 1e-9 * largest:  # one value, but for rounding
        middle = low / 2 + high / 2
        pad = max(0.5, 1e-3 * largest) if middle == round(middle) else 0.05 * largest
        return np.array([middle - 3 * pad, middle - pad, middle + pad, middle + 3 * pad])
    if not np.isfinite(high - low):
        return np.array([low, 0.0, high])
    step = float(np.diff(different).min())
    if (high - low) / step < MOST_STEPS:
        place = (different - low) / step
        if np.abs(place - place.round()).max() < 1e-6:
            together = -(-(round(place[-1]) + 1) // bins)  # steps in a bar: as many in each
            many = -(-(round(place[-1]) + 1) // together)
            return np.asarray(low + step * (np.arange(many + 1) * together - 0.5))
    return np.linspace(low, high, max(1, min(bins, different.size)) + 1)


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

    data = parts.pick(frame, {"x": x, "y": y, "color": color, "low": low, "high": high})
    parts.require_unique(data, ["x", "color"] if color else ["x"])
    data, note = parts.first(data, "x", parts.CATEGORIES)
    data, labels = parts.labelled(data, "x")
    notes = [parts.no_data(data), note]
    lying = len(labels) > 16 or sum(map(len, labels)) > 90 or max(map(len, labels), default=0) > 18
    axis = alt.Axis(labelAngle=0, ticks=False, domain=True, labelLimit=260)
    scale = alt.Scale(paddingInner=0.25, paddingOuter=0.15)
    # beside long labels there is no room for a title on its side, and they say what they are
    named = None if lying else parts.heading(x)
    category = (alt.Y if lying else alt.X)("x:N", title=named, sort=labels, axis=axis, scale=scale)
    axis = alt.Axis(tickCount=5, grid=True, domain=False, **parts.axis_format(data["y"]))
    amount = (alt.X if lying else alt.Y)("y:Q", title=parts.heading(y), axis=axis)
    channels: dict[str, Any] = {"y": category, "x": amount} if lying else {"x": category, "y": amount}
    hue: dict[str, Any] = {}
    if color:
        data, note = parts.first(data, "color", parts.SERIES)
        data, series = parts.labelled(data, "color")
        notes.append(note)
        hue["color"] = alt.Color("color:N", title=parts.heading(color), sort=series, scale=_colors(series))
        offset = alt.YOffset("color:N", sort=series) if lying else alt.XOffset("color:N", sort=series)
        channels["yOffset" if lying else "xOffset"] = offset
    base = alt.Chart(_data(parts.rows(data)))
    drawn = base.mark_bar().encode(**channels, **hue)
    if low and high:
        ends = (alt.X("low:Q"), alt.X2("high:Q")) if lying else (alt.Y("low:Q"), alt.Y2("high:Q"))
        drawn += base.mark_rule(color=parts.INK, strokeWidth=1.2).encode(
            **{**channels, ("x" if lying else "y"): ends[0], ("x2" if lying else "y2"): ends[1]}
        )
    if lying:
        drawn = drawn.properties(height=alt.Step(max(8, 22 // max(1, data["color"].n_unique())) if color else 20))
    return _finish(drawn, title, *notes)


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
    return _curve(frame, x, y, color, title, low, high, joined=True)


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
    return _curve(frame, x, y, color, title, low, high, joined=False)


def heatmap(frame: pl.DataFrame, *, x: str, y: str, value: str, title: str, correlations: bool = False) -> Any:
    """Draw `value` as the shade of the cell (`x`, `y`), categories in the frame's order, numbers in small grids.

    Of `correlations` 0 is white, 1 blue and -1 orange, whatever values there are, numbers have two decimals, and the
    axes, which list the same things, no title.
    """
    import altair as alt

    data = parts.pick(frame, {"x": x, "y": y, "value": value})
    parts.require_unique(data, ["x", "y"])
    data, note_x = parts.first(data, "x", parts.CATEGORIES)
    data, note_y = parts.first(data, "y", parts.CATEGORIES)
    data, columns = parts.labelled(data, "x")
    data, rows = parts.labelled(data, "y")
    data = data.with_columns(pl.col("value").cast(pl.Float64, strict=False))
    finite = data["value"].drop_nulls().drop_nans()
    bottom, top = (float(finite.min() or 0), float(finite.max() or 0)) if len(finite) else (0.0, 0.0)  # type: ignore[arg-type]
    scale = alt.Scale(scheme="blues", domain=[bottom, top if top > bottom else bottom + 1])
    titles: list[str | None] = [parts.heading(x), parts.heading(y)]
    labels = fmt.column(data["value"].to_list())
    if correlations:
        scale = alt.Scale(domain=[-1, 0, 1], range=["#D55E00", "#FFFFFF", "#0072B2"], interpolate="lab")
        titles = [None, None]
        labels = [_correlation(number) for number in data["value"].to_list()]
    step = max(14, min(58, parts.WIDTH // max(1, len(columns))))
    angle = 0 if max(map(len, columns), default=0) * 6.5 < step else -40
    cells = [{**row, "label": text} for row, text in zip(parts.rows(data), labels, strict=True)]
    base = alt.Chart(_data(cells)).encode(
        x=alt.X("x:N", title=titles[0], sort=columns, axis=alt.Axis(labelAngle=angle, ticks=False, domain=False)),
        y=alt.Y("y:N", title=titles[1], sort=rows, axis=alt.Axis(ticks=False)),
    )
    written = len(data) <= 150 and step >= 30
    legend = None if written else alt.Legend(gradientLength=180)
    drawn = base.mark_rect(stroke="white").encode(
        color=alt.Color("value:Q", title=parts.heading(value), scale=scale, legend=legend)
    )
    if correlations:  # white says nought, so what is missing stays grey
        drawn = base.mark_rect(stroke="white", color=parts.GRID) + drawn
    if written:
        dark = f"datum.value > {(bottom + 0.55 * (top - bottom))!r}"
        if correlations:
            dark = "isValid(datum.value) && abs(datum.value) > 0.7"
        ink = alt.condition(dark, alt.value("white"), alt.value(parts.INK))
        drawn += base.mark_text(fontSize=10).encode(text="label:N", color=ink)
    return _finish(
        drawn.properties(width=alt.Step(step), height=alt.Step(26)), title, parts.no_data(data), note_x, note_y
    )


def _correlation(number: float | None) -> str:
    if number is None or not np.isfinite(number):
        return fmt.column([None])[0]
    text = f"{abs(number):.2f}".removeprefix("0")
    return f"-{text}" if number < 0 and float(text) else text


def chart(drawn: Any, caption: str) -> SummaryChart:
    """Turn an Altair chart into a part of a summary, with the sentence that it shows."""
    spec = drawn.to_dict(validate=False)  # a check against the schema takes longer than the chart: tests make it
    heading = spec.get("title", "")
    text = heading.get("text", "") if isinstance(heading, dict) else heading
    return SummaryChart(" ".join(text) if isinstance(text, list) else str(text), spec, caption)


def to_png(spec: dict[str, Any], *, scale: float = 1.5) -> bytes:
    """Draw a Vega-Lite specification as a PNG, `scale` times its size in pixels, without a network."""
    return svg_to_png(to_svg(spec), scale=scale)


def svg_to_png(svg: str, *, scale: float = 1.5) -> bytes:
    """Turn what `to_svg` gave into a PNG."""
    import vl_convert

    png: bytes = vl_convert.svg_to_png(svg, scale=scale)
    return png


def to_svg(spec: dict[str, Any]) -> str:
    """Draw a Vega-Lite specification as SVG text, without a network; costs 0.1 to 0.3 s, the first one 1 s more.

    Raises `UsageError` where the specification loads something or is none.
    """
    import vl_convert

    try:
        svg: str = vl_convert.vegalite_to_svg(parts.clean(spec), allowed_base_urls=[])
    except ValueError as error:
        raise UsageError(f"this is no chart that can be drawn: {fmt.line(error, 300)}") from None
    if "<image" in svg:  # its address would be fetched where the drawing is shown
        raise UsageError("a chart may not load pictures", remedy="leave out marks of type image")
    return svg


def _curve(
    frame: pl.DataFrame,
    x: str,
    y: str,
    color: str | None,
    title: str,
    low: str | None,
    high: str | None,
    *,
    joined: bool,
) -> Any:
    import altair as alt

    data = parts.pick(frame, {"x": x, "y": y, "color": color, "low": low, "high": high})
    hue: dict[str, Any] = {}
    notes = [parts.no_data(data)]
    if color:
        data, note = parts.first(data, "color", parts.SERIES)
        notes.append(note)
        data, series = parts.labelled(data, "color")
        legend = alt.Legend(symbolOpacity=1, **({"symbolType": "stroke"} if joined else {}))
        hue["color"] = alt.Color(
            "color:N", title=parts.heading(color), sort=series, scale=_colors(series), legend=legend
        )
        second = {"strokeDash": alt.StrokeDash} if joined else {"shape": alt.Shape}
        for name, channel in second.items():
            hue[name] = channel("color:N", title=parts.heading(color), sort=series, scale=alt.Scale(domain=series))
    kept = data.drop_nulls(["x", "y"])
    if joined and kept["x"].dtype != pl.String:
        kept = kept.sort("x", maintain_order=True)
    data = parts.thin(kept)
    if len(data) < len(kept):
        notes.append(f"{len(data):,} of {len(kept):,} points shown")
    if frame.schema[x] in (pl.Date, pl.Datetime):
        across = alt.X("x:T", title=parts.heading(x), scale=alt.Scale(type="utc"))
    elif data["x"].dtype.is_numeric():
        scale = alt.Scale(zero=False, padding=8, nice=False)
        whole = {"tickMinStep": 1} if data["x"].dtype.is_integer() else {}
        across = alt.X(
            "x:Q", title=parts.heading(x), scale=scale, axis=alt.Axis(**whole, **parts.axis_format(data["x"]))
        )
    else:
        across = alt.X("x:N", title=parts.heading(x), sort=None, axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(zero=False)
    axis = alt.Axis(tickCount=6, **parts.axis_format(data["y"]))
    up = alt.Y("y:Q", title=parts.heading(y), scale=scale, axis=axis)
    base = alt.Chart(_data(parts.rows(data)))
    flat = {name: channel for name, channel in hue.items() if name == "color"}
    layers = []
    if low and high:
        band = base.mark_area(opacity=0.16) if joined else base.mark_rule(strokeWidth=1.2, opacity=0.7)
        layers.append(band.encode(x=across, y=alt.Y("low:Q", title=parts.heading(y), scale=scale), y2="high:Q", **flat))
    if not joined:
        layers.append(
            base.mark_point(filled=True, opacity=0.75 if len(data) < 500 else 0.35).encode(x=across, y=up, **hue)
        )
    else:
        layers.append(base.mark_line().encode(x=across, y=up, **hue))
        if len(data) <= 60:
            layers.append(base.mark_point(filled=True).encode(x=across, y=up, **flat))
    return _finish(alt.layer(*layers) if len(layers) > 1 else layers[0], title, *notes)


def _data(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.InlineData(values=rows)


def _colors(series: Sequence[str]) -> Any:
    import altair as alt

    return alt.Scale(domain=list(series), range=[parts.PALETTE[i % len(parts.PALETTE)] for i in range(len(series))])


def _finish(drawn: Any, title: str, *notes: str) -> Any:
    """Give a chart its title, its notes and the house's look."""
    import altair as alt

    notes = tuple(note for note in notes if note)
    text = alt.TitleParams(parts.clean(title), **({"subtitle": "; ".join(notes)} if notes else {}))
    return drawn.properties(title=text).configure(**parts.theme())

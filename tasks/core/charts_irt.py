"""Pictures of item response models: curves with observed shares, abilities beside difficulties, information, trust.

Every function takes few, already aggregated rows, so that a picture of a million items stays small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from gradatim.tasks.core import chart_parts as parts

DASHES = [[1, 0], [7, 3], [2, 2], [8, 2, 2, 2], [4, 4], [12, 3], [1, 4], [6, 2, 1, 2]]


def curves(lines: pl.DataFrame, points: pl.DataFrame, *, title: str, y: str, note: str = "") -> Any:
    """Draw a line an item over ability, with observed shares and their 95 % intervals where there are some.

    Parameters
    ----------
    lines : polars.DataFrame
        item (text), theta, value.
    points : polars.DataFrame
        item, theta, value, low, high; may be empty.
    title, y, note : str
        Heading, name of the vertical axis, subtitle.
    """
    import altair as alt

    lines, names = parts.labelled(lines, "item")
    texts = dict(zip(lines["item"].unique(maintain_order=True), names, strict=True))
    scale = alt.Scale(domain=names, range=[parts.PALETTE[i % len(parts.PALETTE)] for i in range(len(names))])
    dash = alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in range(len(names))])
    legend = alt.Legend(symbolType="stroke", symbolSize=300, columns=3, labelLimit=180)
    across = alt.X(
        "theta:Q", title="ability (logit)", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=8)
    )
    up = alt.Y("value:Q", title=y, axis=alt.Axis(tickCount=6))
    color = alt.Color("item:N", title=None, sort=names, scale=scale, legend=legend)
    base = alt.Chart(alt.InlineData(values=parts.rows(lines)))
    stroke = alt.StrokeDash("item:N", title=None, sort=names, scale=dash, legend=legend)
    layers = [base.mark_line(clip=True).encode(x=across, y=up, color=color, strokeDash=stroke)]
    if len(points):
        seen = points.with_columns(pl.col("item").replace(texts))
        marks = alt.Chart(alt.InlineData(values=parts.rows(seen)))
        plain = alt.Color("item:N", sort=names, scale=scale, legend=None)
        layers.append(
            marks.mark_rule(opacity=0.45, clip=True).encode(x=across, y=alt.Y("low:Q"), y2="high:Q", color=plain)
        )
        layers.append(marks.mark_point(filled=True, opacity=0.9, clip=True).encode(x=across, y=up, color=plain))
    return _finish(alt.layer(*layers), title, note)


def facing(left: pl.DataFrame, right: pl.DataFrame, *, title: str, names: tuple[str, str], y: str, note: str) -> Any:
    """Draw two distributions on one upright axis, back to back: a Wright map.

    Parameters
    ----------
    left, right : polars.DataFrame
        low, high (ends of a cell on the axis) and share (of its own side), one row a cell.
    names : (str, str)
        What lies left and right.
    y : str
        Name of the common axis.
    """
    import altair as alt

    both = pl.concat(
        [
            left.select("low", "high", end=-pl.col("share"), side=pl.lit(names[0])),
            right.select("low", "high", end="share", side=pl.lit(names[1])),
        ]
    ).with_columns(zero=pl.lit(0.0))
    most = float(both["end"].abs().max() or 1.0) * 1.08  # type: ignore[arg-type]
    scale = alt.Scale(domain=list(names), range=[parts.PALETTE[1], parts.PALETTE[0]])
    across = alt.X(
        "zero:Q",
        title="share",
        scale=alt.Scale(domain=[-most, most], nice=False),
        axis=alt.Axis(labelExpr="format(abs(datum.value), '.0%')", tickCount=8),
    )
    bars = (
        alt.Chart(alt.InlineData(values=parts.rows(both)))
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            y=alt.Y("low:Q", title=y, scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=8)),
            y2="high:Q",
            x=across,
            x2="end:Q",
            color=alt.Color("side:N", title=None, sort=list(names), scale=scale),
        )
    )
    middle = alt.Chart(alt.InlineData(values=[{"zero": 0.0}])).mark_rule(color=parts.MUTED).encode(x=across)
    return _finish(alt.layer(bars, middle).properties(height=340), title, note)


def information(frame: pl.DataFrame, *, title: str, note: str) -> Any:
    """Draw test information over ability, and the standard error of an ability on a second axis.

    `frame`: theta, information, standard_error.
    """
    import altair as alt

    base = alt.Chart(alt.InlineData(values=parts.rows(frame)))
    axis = alt.Axis(tickCount=8)
    across = alt.X("theta:Q", title="ability (logit)", scale=alt.Scale(zero=False, nice=False), axis=axis)
    blue, red = parts.PALETTE[0], parts.PALETTE[1]
    heap = base.mark_area(opacity=0.16, color=blue).encode(x=across, y=alt.Y("information:Q"))
    line = base.mark_line(color=blue).encode(
        x=across,
        y=alt.Y("information:Q", title="test information", axis=alt.Axis(titleColor=blue, tickCount=6)),
    )
    error = base.mark_line(color=red, strokeDash=[7, 3]).encode(
        x=across,
        y=alt.Y(
            "standard_error:Q",
            title="standard error of ability",
            axis=alt.Axis(titleColor=red, tickCount=6, grid=False),
        ),
    )
    return _finish(alt.layer(alt.layer(heap, line), error).resolve_scale(y="independent"), title, note)


def growth(
    points: pl.DataFrame, line: pl.DataFrame, marks: Sequence[tuple[float, str]], *, title: str, note: str
) -> Any:
    """Draw how a number between 0 and 1 grows with the respondents: measured points, a predicted line, levels.

    Parameters
    ----------
    points : polars.DataFrame
        respondents, value, low, high.
    line : polars.DataFrame
        respondents, value.
    marks : sequence of (float, str)
        Levels and their labels.
    """
    import altair as alt

    width = alt.Scale(type="log", nice=False, padding=12)
    counts = sorted({int(c) for c in points["respondents"].to_list()} | {int(line["respondents"].max() or 1)})  # type: ignore[arg-type]
    across = alt.X(
        "respondents:Q",
        title="respondents",
        scale=width,
        axis=alt.Axis(values=counts, format=",d", labelOverlap=True),
    )
    height = alt.Scale(domain=[0, 1])
    up = alt.Y("value:Q", title="reliability", scale=height, axis=alt.Axis(tickCount=6))
    drawn = alt.Chart(alt.InlineData(values=parts.rows(line))).mark_line().encode(x=across, y=up)
    seen = alt.Chart(alt.InlineData(values=parts.rows(points)))
    red = parts.PALETTE[1]
    spread = seen.mark_rule(color=red, opacity=0.6).encode(x=across, y=alt.Y("low:Q", scale=height), y2="high:Q")
    dots = seen.mark_point(filled=True, color=red, size=55).encode(x=across, y=up)
    layers = [drawn, spread, dots]
    if marks:
        levels = [{"value": level, "label": label} for level, label in marks]
        data = alt.Chart(alt.InlineData(values=levels))
        y = alt.Y("value:Q", scale=height)
        layers.insert(0, data.mark_rule(color=parts.MUTED, strokeDash=[2, 3], opacity=0.7).encode(y=y))
        layers.insert(
            1,
            data.mark_text(align="left", baseline="bottom", dx=3, dy=-1, fontSize=10, color=parts.MUTED).encode(
                y=y, x=alt.value(0), text="label:N"
            ),
        )
    return _finish(alt.layer(*layers), title, note)


def against(frame: pl.DataFrame, *, title: str, x: str, y: str, note: str) -> Any:
    """Draw points beside the diagonal, told apart by `kind`: `frame` holds x, y (both numbers) and kind (text)."""
    import altair as alt

    kinds = sorted(frame["kind"].unique().to_list(), reverse=True)
    ends = pl.concat([frame["x"], frame["y"]])
    low, high = float(ends.min() or 0.0), float(ends.max() or 1.0)  # type: ignore[arg-type]
    pad = 0.04 * (high - low or 1.0)
    scale = alt.Scale(domain=[low - pad, high + pad], nice=False)
    across, up = alt.X("x:Q", title=x, scale=scale), alt.Y("y:Q", title=y, scale=scale)
    shapes = alt.Scale(domain=kinds, range=["circle", "diamond", "cross", "square"][: len(kinds)])
    colors = alt.Scale(domain=kinds, range=list(parts.PALETTE[: len(kinds)]))
    shown = parts.thin(frame)
    dots = (
        alt.Chart(alt.InlineData(values=parts.rows(shown)))
        .mark_point(filled=True, opacity=0.75 if len(shown) < 500 else 0.35)
        .encode(
            x=across,
            y=up,
            color=alt.Color("kind:N", title=None, sort=kinds, scale=colors),
            shape=alt.Shape("kind:N", title=None, sort=kinds, scale=shapes),
        )
    )
    both = [{"x": low - pad, "y": low - pad}, {"x": high + pad, "y": high + pad}]
    diagonal = (
        alt.Chart(alt.InlineData(values=both))
        .mark_line(color=parts.MUTED, strokeDash=[4, 3], strokeWidth=1)
        .encode(x=across, y=up)
    )
    return _finish(alt.layer(diagonal, dots).properties(width=360, height=360), title, note)


def _finish(drawn: Any, title: str, note: str) -> Any:
    import altair as alt

    text = alt.TitleParams(parts.clean(title), **({"subtitle": parts.clean(note)} if note else {}))
    return drawn.properties(title=text).configure(**parts.theme())

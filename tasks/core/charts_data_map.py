"""The picture of a data map: cells in place of points, so that a million examples stay a few hundred marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core import chart_parts as parts
from gradatim.tasks.core import format as fmt

COLUMNS, ROWS = 26, 26
"""Cells across variability (0 to .5) and up confidence (0 to 1); every second row is shifted by half a cell."""


def map_cells(
    confidence: NDArray[np.float64], variability: NDArray[np.float64], right: NDArray[np.float64] | None
) -> pl.DataFrame:
    """Count examples in cells of a honeycomb.

    Parameters
    ----------
    confidence, variability : numpy.ndarray, shape (n,)
        In [0, 1] and [0, 1/2].
    right : numpy.ndarray, shape (n,), optional
        Share of right epochs.

    Returns
    -------
    polars.DataFrame
        x, y (middle of the cell), n, right (mean share of right epochs, null where unknown), by y, x.
    """
    row = np.clip((confidence * ROWS).astype(np.int64), 0, ROWS - 1)
    shift = 0.5 * (row % 2)
    column = np.clip(np.floor(variability * 2 * COLUMNS - shift).astype(np.int64), -1, COLUMNS - 1)
    code = row * (COLUMNS + 1) + column + 1
    size = ROWS * (COLUMNS + 1)
    n = np.bincount(code, minlength=size)
    used = np.flatnonzero(n)
    frame = pl.DataFrame({"row": used // (COLUMNS + 1), "column": used % (COLUMNS + 1) - 1, "n": n[used]})
    x = (pl.col("column") + 0.5 + 0.5 * (pl.col("row") % 2)).clip(0, COLUMNS) / (2 * COLUMNS)
    y = (pl.col("row") + 0.5) / ROWS
    if right is None:
        share = pl.Series("right", [None] * len(used), dtype=pl.Float64)
    else:
        share = pl.Series("right", np.bincount(code, right, size)[used] / n[used])
    return frame.select(x=x, y=y, n="n").with_columns(share)


def draw_map(cells: pl.DataFrame, cuts: Mapping[str, float], share: float) -> Any:
    """Draw what `map_cells` counted, with the cut-offs `hard`, `easy` (confidence) and `ambiguous` (variability)."""
    import altair as alt

    total = int(cells["n"].sum())
    data = cells.with_columns(kind=_kind(pl.col("right")), right=pl.col("right").round(4))
    known = data["right"].null_count() < len(data)
    kinds = [k for k in KINDS if k in data["kind"].to_list()]
    ticks = [[0, 0.1, 0.2, 0.3, 0.4, 0.5], [0, 0.2, 0.4, 0.6, 0.8, 1]]
    spans = [alt.Scale(domain=[-0.01, 0.51], nice=False), alt.Scale(domain=[0, 1], nice=False)]
    across = alt.X("x:Q", title="variability", scale=spans[0], axis=alt.Axis(values=ticks[0]))
    up = alt.Y("y:Q", title="confidence", scale=spans[1], axis=alt.Axis(values=ticks[1]))
    size = alt.Size("n:Q", title="examples", scale=alt.Scale(type="log", range=[22, 260]), legend=_amounts(data["n"]))
    marks: dict[str, Any] = {"x": across, "y": up, "size": size}
    if known:
        ramp = alt.Scale(domain=[0, 0.5, 1], range=["#D55E00", "#C9C9C9", "#0072B2"])
        legend = alt.Legend(gradientLength=110, format=".0%")
        marks["color"] = alt.Color("right:Q", title="right epochs", scale=ramp, legend=legend)
        shapes = [SHAPES[k] for k in kinds]
        marks["shape"] = alt.Shape("kind:N", title="mostly", sort=kinds, scale=alt.Scale(domain=kinds, range=shapes))
    base = alt.Chart(alt.InlineData(values=parts.rows(data))).mark_point(filled=True, opacity=0.9)
    layers = [base.encode(**marks), *(_line(name, value) for name, value in cuts.items())]
    title = alt.TitleParams(
        "Data map", subtitle=f"n = {total:,}; lines: the {fmt.share(share)} hardest, most ambiguous, easiest"
    )
    return alt.layer(*layers).properties(title=title, height=360).configure(**parts.theme())


KINDS = ("right", "mixed", "wrong", "unknown")
SHAPES = {"right": "circle", "mixed": "square", "wrong": "triangle-up", "unknown": "circle"}


def _kind(right: pl.Expr) -> pl.Expr:
    kind = pl.when(right > 2 / 3).then(pl.lit("right")).when(right < 1 / 3).then(pl.lit("wrong"))
    return kind.when(right.is_null()).then(pl.lit("unknown")).otherwise(pl.lit("mixed"))


def _amounts(n: pl.Series) -> Any:
    """A legend of powers of ten up to the largest cell, and of that."""
    import altair as alt

    largest = int(n.max() or 1)  # type: ignore[arg-type]
    shown = [10**k for k in range(len(str(largest))) if 10**k <= largest / 2 or k == 0]
    return alt.Legend(values=sorted({*shown, largest}), format=",~f", symbolFillColor=parts.MUTED)


def _line(name: str, value: float) -> Any:
    """A cut-off: the region's name stands on its side of the line."""
    import altair as alt

    lying = name != "ambiguous"
    rows = [{"at": value, "text": f"{name}: {'confidence' if lying else 'variability'} "
             f"{'≤' if name == 'hard' else '≥'} {fmt.number(value)}"}]  # fmt: skip
    base = alt.Chart(alt.InlineData(values=rows))
    rule = base.mark_rule(strokeDash=[4, 3], color=parts.INK, strokeWidth=1)
    text: dict[str, Any] = {"text": "text:N"}
    if lying:
        below = name == "hard"
        words = base.mark_text(align="right", dx=-4, dy=10 if below else -6, fontSize=11, color=parts.INK)
        return rule.encode(y="at:Q") + words.encode(y="at:Q", x=alt.value(parts.WIDTH), **text)
    words = base.mark_text(align="left", dx=4, fontSize=11, color=parts.INK)
    return rule.encode(x="at:Q") + words.encode(x="at:Q", y=alt.value(350), **text)

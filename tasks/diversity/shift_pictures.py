"""Pictures of comparisons: one number of every two environments, as a grid where there are more than one."""

from __future__ import annotations

from typing import Any

import polars as pl


def pairs_picture(statistics: pl.DataFrame, metric: str, title: str) -> Any:
    """Draw one metric of each comparison: a grid for several, bars (with intervals, where there are) for few.

    Returns an Altair chart.
    """
    from gradatim.tasks.core import charts

    rows = statistics.filter((pl.col("metric") == metric) & (pl.col("reference") != "")).drop_nulls("value")
    whole = rows.filter(~pl.col("subset").str.contains(" & ", literal=True))
    named = [pl.col(side).str.replace(r"^(not )?[^=]*=", "${1}").alias(side) for side in ("subset", "reference")]
    short = whole.with_columns(named)
    if short.select(pl.struct("subset", "reference").n_unique()).item() == len(short) and len(short) > 3:
        turned = short.select("subset", "reference", "value")
        mirrored = turned.select(pl.col("reference").alias("subset"), pl.col("subset").alias("reference"), "value")
        if not short["reference"].str.starts_with("not ").any() and short["reference"].n_unique() > 1:
            square = pl.concat([turned, mirrored])
            itself = square.select("subset", reference="subset", value=pl.lit(None, pl.Float64)).unique()
            square = pl.concat([square, itself]).unique(["subset", "reference"], keep="first", maintain_order=True)
            square = square.sort("subset", "reference").rename({"subset": "environment", "reference": "compared with"})
            return charts.heatmap(square, x="compared with", y="environment", value="value", title=title)
    shown = rows.with_columns(
        pl.format("{} / {}", "subset", pl.col("reference").str.replace(r" & .*$", "")).alias("comparison")
    )
    ends = {"low": "ci_low", "high": "ci_high"} if shown["ci_low"].null_count() < len(shown) else {}
    return charts.bars(shown, x="comparison", y="value", title=title, **ends)


def plane_picture(statistics: pl.DataFrame, x: str, y: str, title: str) -> Any:
    """Draw each comparison, or each subset, as a point of two metrics.

    Returns an Altair chart.
    """
    from gradatim.tasks.core import charts

    rows = statistics.filter(pl.col("metric").is_in([x, y]) & (pl.col("subset") != "all")).drop_nulls("value")
    wide = rows.pivot(on="metric", index=["subset", "reference"], values="value", on_columns=[x, y]).drop_nulls()
    both = pl.format("{} / {}", "subset", "reference")
    named = pl.when(pl.col("reference") == "").then("subset").otherwise(both)
    shown = wide.with_columns(named.alias("comparison"))
    color = "comparison" if len(shown) <= 8 else None
    return charts.points(shown, x=x, y=y, color=color, title=title)

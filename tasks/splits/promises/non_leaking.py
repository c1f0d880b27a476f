"""No cluster is on two sides of the cut, sizes and strata are within their tolerances."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero

_CLUSTER = r"(?s)cluster (.*) \((\d+) rows\) is (?:held out|in distribution)(, as released)?"


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Read each row's cluster from its reason, and count clusters on two sides, rows lost, and rows too few.

    Sizes have no bound where a release holds rows in place or the settings let sizes overflow.
    """
    inside, outside = by_rule(rows)
    named = rows.select(
        "split",
        pl.col("reason").str.extract(_CLUSTER, 1).alias("cluster"),
        pl.col("reason").str.extract(_CLUSTER, 2).cast(pl.Int64).alias("said"),
        pl.col("reason").str.extract(_CLUSTER, 3).is_not_null().alias("released"),
        place=pl.when(outside).then("split").when(inside).then(pl.lit("in distribution")),
        stratum=pl.col(settings["stratify"]).cast(pl.String).fill_null("null") if settings["stratify"] else pl.lit(""),
    ).drop_nulls("cluster")
    clusters = named.group_by("cluster").agg(
        pl.col("place").drop_nulls().n_unique().alias("places"), pl.len().alias("rows"), pl.col("said").first()
    )
    free = settings["oversize"] != "overflow" and not named["released"].any()
    checks = [zero("constraint:clusters on two sides of the cut", int((clusters["places"] > 1).sum()), len(clusters))]
    if not rows["reason"].str.contains("holds a released|kept from the released").any():
        other = int((clusters["rows"] != clusters["said"]).sum())
        checks.append(zero("constraint:clusters of other sizes than said", other, len(clusters)))
    out = settings["fraction"] * settings["validation_ood"]
    shares = {
        "in distribution": 1 - settings["fraction"],
        "test_ood": settings["fraction"] - out,
        **({"validation_ood": out} if out else {}),
    }
    # a row that is excluded beside others counts where its cluster is
    side = pl.col("split").replace(dict.fromkeys(["train", "validation", "test", "excluded"], "in distribution"))
    sized = named.with_columns(side=side)
    checks.append(_least(sized, shares, settings["epsilon"], "rows", free))
    if settings["stratify"]:
        checks.append(_least(sized, shares, settings["delta"], f"rows of a {settings['stratify']}", free, by="stratum"))
    return checks


def _least(
    rows: pl.DataFrame, shares: dict[str, float], tolerance: float, what: str, free: bool, by: str | None = None
) -> Check:
    """Find the split (and stratum) with the smallest part of the rows that it should have."""
    parts = [rows] if by is None else rows.partition_by(by)
    worst, holds = math.inf, True
    for part in parts:
        for name, share in shares.items():
            found, asked = int((part["side"] == name).sum()), share * len(part)
            worst = min(worst, found / asked)
            holds &= found >= math.floor(round(asked * (1 - tolerance), 6))
    name = f"constraint:smallest part of the {what} asked for"
    bound = f">= {1 - tolerance:g}, to a row"
    return Check(name, worst, bound if free else None, holds if free else None, len(rows))

"""The common items of two calibrations: which can be used for a link, and which moved alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.difficulty.item_response.curves import Curves

Z, STEEPEST = 3.0, 29.9
"""Robust z beyond which an item has drifted; slopes at the bound of the fit."""


def check(new: pl.DataFrame, old: pl.DataFrame) -> None:
    """Refuse frames that lack a column or hold an example twice."""
    for name, frame in (("new", new), ("old", old)):
        for column in ("example_id", "discrimination", "location"):
            if column not in frame.columns:
                raise UsageError(
                    f"the {name} calibration has no column {column!r}", where="link", expected="a table item_parameters"
                )
        if frame["example_id"].n_unique() < len(frame):
            raise UsageError(
                f"an example stands twice in the {name} calibration",
                where="link",
                expected="one row an example",
                remedy="filter the table by its column method",
            )


def common_items(new: pl.DataFrame, old: pl.DataFrame, leave: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
    """Join the two calibrations, sorted by id, and say of each common item why it cannot be used, or null."""
    frames = []
    for frame in (new, old):
        numbers = ["discrimination", "location", *(c for c in ("location_error",) if c in frame.columns)]
        kept = frame.select(
            pl.col("example_id").cast(pl.String),
            *(pl.col(c).cast(pl.Float64) for c in numbers),
            *(
                (pl.col(c).cast(pl.Float64).fill_null(end) if c in frame.columns else pl.lit(end)).alias(c)
                for c, end in (("lower", 0.0), ("upper", 1.0))
            ),
            (pl.col("flag").is_not_null() if "flag" in frame.columns else pl.lit(False)).alias("flagged"),
            (
                pl.col("fit").is_null() & pl.col("fit").is_not_null().any() if "fit" in frame.columns else pl.lit(False)
            ).alias("unfitted"),
        )
        missing = [pl.lit(None, dtype=pl.Float64).alias("location_error")] if "location_error" not in numbers else []
        frames.append(kept.with_columns(*missing))
    both = frames[1].join(frames[0], on="example_id", suffix="_new").sort("example_id")
    either = [pl.col(c) | pl.col(c + "_new") for c in ("flagged", "unfitted")]
    columns = [c + end for c in ("discrimination", "location", "lower", "upper") for end in ("", "_new")]
    finite = pl.all_horizontal(pl.col(c).is_not_null() & pl.col(c).is_finite() for c in columns)
    slopes = [pl.col("discrimination"), pl.col("discrimination_new")]
    reason = (
        pl.when(~finite)
        .then(pl.lit("without finite parameters"))
        .when(pl.col("example_id").is_in(list(leave)))
        .then(pl.lit("left out by request"))
        .when(pl.any_horizontal(c <= 0 for c in slopes))
        .then(pl.lit("with negative discrimination"))
        .when(pl.any_horizontal(c >= STEEPEST for c in slopes))
        .then(pl.lit("with discrimination at its bound"))
        .when(either[0])
        .then(pl.lit("flagged"))
        .when(either[1])
        .then(pl.lit("placed without a fit"))
    )
    return both, both.select(reason.alias("reason"))["reason"]


def curves_of(both: pl.DataFrame, end: str) -> Curves:
    """Return the curves of one of the two calibrations, told by the end of its columns' names."""
    a, b, g, u = (both[c + end].to_numpy() for c in ("discrimination", "location", "lower", "upper"))
    return Curves(a, -a * b, g, u)


def robust_z(difference: np.ndarray, use: np.ndarray) -> np.ndarray:
    """Distance of (J,) differences from their median over .74 of their interquartile range, both over the rows `use`.

    .74 IQR is the standard deviation of a normal distribution. A range below 1e-6 logits counts as that.
    """
    low, middle, high = np.quantile(difference[use], [0.25, 0.5, 0.75])
    found: np.ndarray = (difference - middle) / max(0.74 * (high - low), 1e-6)
    return found


def drifted_items(
    both: pl.DataFrame,
    mine: Curves,
    theirs: Curves,
    usable: np.ndarray,
    fixed: bool,
    slope_of: Callable[[np.ndarray], float],
) -> np.ndarray:
    """Items that moved alone: the slope comes from the median ratio of discriminations, then from the others' line."""
    nothing = np.zeros(len(both), dtype=bool)
    b_new, b_old = both["location_new"].to_numpy(), both["location"].to_numpy()
    if usable.sum() < 4:  # a quartile of three says nothing
        return nothing
    errors = [np.nan_to_num(both[c].cast(pl.Float64).to_numpy()) for c in ("location_error", "location_error_new")]
    slope = 1.0 if fixed else float(np.exp(np.median(np.log(mine.a[usable] / theirs.a[usable]))))
    found, seen = nothing, set[bytes]()
    for _ in range(10):
        difference = b_old - slope * b_new
        z = robust_z(difference, usable)
        spread = np.sqrt(errors[0] ** 2 + (slope * errors[1]) ** 2)
        moved = np.abs(difference - np.median(difference[usable])) > Z * spread
        found = usable & (np.abs(z) > Z) & moved
        if found.tobytes() in seen or (usable & ~found).sum() < 4:
            break
        seen.add(found.tobytes())
        slope = slope_of(usable & ~found)
    return found if (usable & ~found).sum() >= 2 else nothing

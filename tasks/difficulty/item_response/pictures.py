"""Pictures of an IRT calibration: item curves with what was observed, a Wright map, information, trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.picture import Picture
from gradatim.tasks.difficulty.item_response.curves import Curves, information_of, probability, total_information
from gradatim.tasks.difficulty.reliability import MAX_BINS, least_reliability

GROUPS, CELLS, NODES, SAMPLE = 8, 40, 81, 20_000
"""Ability groups of observed shares; cells of a Wright map; points of a curve; most items behind test information."""


def irt_pictures(
    item_parameters: pl.DataFrame,
    respondents: pl.DataFrame,
    *,
    scores: Callable[[np.ndarray], np.ndarray] | None = None,
    reliability: pl.DataFrame | None = None,
    overall: float | None = None,
    influence: Callable[[], pl.DataFrame] | None = None,
    chosen: Sequence[str] | None = None,
) -> dict[str, Picture]:
    """Return the pictures of a calibration by name: curves, wright, information, and reliability where measured.

    Parameters
    ----------
    item_parameters, respondents : polars.DataFrame
        The tables of these names.
    scores : callable, optional
        Takes row numbers (m,) of `item_parameters`, returns scores (n, m) of the respondents in the order of
        `respondents`, NaN where not attempted. Called here once, for the chosen items alone.
    reliability : polars.DataFrame, optional
        What `reliability.growth` gives.
    overall : float, optional
        Reliability with all respondents, for the predicted line.
    influence : callable, optional
        Returns what `leave_out.leave_out_all` gives, for the picture influence. Called when that is drawn.
    chosen : sequence of str, optional
        Items whose curves are drawn; by default `spread`.

    Returns
    -------
    dict of Picture
        What they draw is a few hundred numbers, however many items there are.
    """
    rows = spread(item_parameters) if chosen is None else _numbers(item_parameters, chosen)
    few = item_parameters[rows]
    points = None
    if scores is not None and len(rows):
        points = shares(few["example_id"].to_list(), scores(rows), respondents["ability"].to_numpy())
    pictures = {
        "curves": Picture(
            "Chance of a right response by ability, with the shares observed in groups of like ability.",
            partial(draw_curves, few, points),
        ),
        "wright": Picture(
            "Respondents and examples on one scale: are there examples where the respondents are?",
            partial(draw_wright, item_parameters, respondents),
        ),
        "information": Picture(
            "Where on the scale the examples tell abilities apart, and how precisely.",
            partial(draw_information, item_parameters),
        ),
        "item_information": Picture(
            "Where on the scale some of the examples tell abilities apart.", partial(draw_item_information, few)
        ),
    }
    if reliability is not None and len(reliability):
        pictures["reliability"] = Picture(
            "How reliable the difficulties are with fewer respondents, and how many bins that supports.",
            partial(draw_reliability, reliability, overall),
        )
    if influence is not None:
        pictures["influence"] = Picture(
            "How far the difficulties would move apart without each of the most influential respondents or families.",
            lambda: draw_influence(influence()),
        )
    return pictures


def spread(item_parameters: pl.DataFrame, count: int = 5) -> np.ndarray:
    """Row numbers of a spread of items: `count` from easy to hard, and the one that fits worst.

    The easy and hard ends are the 5th and 95th percentile of location. Items with no fit where others have one (all
    right, none right) are not chosen. Ties by id.
    """
    table = item_parameters.with_row_index("row")
    if "fit" in table.columns and table["fit"].is_not_null().any():
        table = table.filter(pl.col("fit").is_not_null())
    table = table.filter(pl.col("location").is_finite()).sort("location", "example_id")
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    at = np.unique(np.round(np.linspace(0.05, 0.95, count) * (len(table) - 1)).astype(np.int64))
    rows = table["row"].to_numpy()[at].astype(np.int64)
    if "fit" in table.columns and table["fit"].is_not_null().any():
        misfit = (pl.col("fit").clip(1e-6).log().abs()).round(9)
        worst = int(table.sort(misfit, "example_id", descending=[True, False])["row"][0])
        rows = rows if worst in rows else np.append(rows, worst)
    return rows


def shares(names: Sequence[str], scores: np.ndarray, ability: np.ndarray) -> pl.DataFrame:
    """Mean scores of items in up to 8 equal groups of ability, with 95 % Wilson intervals.

    Parameters
    ----------
    names : sequence of str, length m
    scores : numpy.ndarray, shape (n, m)
        NaN where not attempted.
    ability : numpy.ndarray, shape (n,)

    Returns
    -------
    polars.DataFrame
        item, theta (mean ability of the group), value, low, high, n.
    """
    rows = []
    for name, column in zip(names, scores.T, strict=True):
        seen = np.flatnonzero(np.isfinite(column) & np.isfinite(ability))
        order = seen[np.argsort(ability[seen], kind="stable")]
        groups = max(1, min(GROUPS, len(order) // 5))
        for part in np.array_split(order, groups):
            if not len(part):
                continue
            n, p = len(part), float(column[part].mean())
            z2 = 1.959964**2
            centre = (p + z2 / (2 * n)) / (1 + z2 / n)
            half = np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2))) / (1 + z2 / n)
            rows.append((name, float(ability[part].mean()), p, max(0.0, centre - half), min(1.0, centre + half), n))
    columns = ("theta", "value", "low", "high")
    schema = {"item": pl.String, **dict.fromkeys(columns, pl.Float64), "n": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def draw_curves(few: pl.DataFrame, points: pl.DataFrame | None) -> Any:
    """Draw the item characteristic curves of a few items, with `shares`."""
    from gradatim.tasks.core import charts_irt

    theta = _range(few, points)
    p = probability(*_parameters(few), theta)
    note = "points: shares in groups of like ability, with 95 % intervals" if points is not None else ""
    empty = pl.DataFrame(schema=dict.fromkeys(("item", "theta", "value", "low", "high"), pl.Float64))
    lines = _lines(few, theta, p)
    if points is not None and len(points):  # side by side, so that intervals do not hide each other
        place = {name: k for k, name in enumerate(few["example_id"].to_list())}
        step = 0.004 * (theta[-1] - theta[0])
        number = pl.col("item").replace_strict(place, return_dtype=pl.Float64)
        points = points.with_columns(pl.col("theta") + step * (number - (len(few) - 1) / 2)).drop("n")
    return charts_irt.curves(
        lines, empty if points is None else points, title="Item curves", y="chance of a right response", note=note
    )


def draw_item_information(few: pl.DataFrame) -> Any:
    """Draw the information of a few items."""
    from gradatim.tasks.core import charts_irt

    theta = _range(few, None)
    a, b, g, u = _parameters(few)
    empty = pl.DataFrame(schema=dict.fromkeys(("item", "theta", "value", "low", "high"), pl.Float64))
    lines = _lines(few, theta, information_of(Curves(a, -a * b, g, u), theta))
    return charts_irt.curves(lines, empty, title="Item information", y="information", note="")


def draw_wright(item_parameters: pl.DataFrame, respondents: pl.DataFrame) -> Any:
    """Draw abilities and locations on one axis; what lies beyond three spreads of the rest is in the outermost cell."""
    from gradatim.tasks.core import charts_irt

    b = item_parameters["location"].drop_nulls().to_numpy()
    theta = respondents["ability"].drop_nulls().to_numpy()
    b, theta = b[np.isfinite(b)], theta[np.isfinite(theta)]
    ends = [v for values in (b, theta) if len(values) for v in _fence(values)]
    low, high = (min(ends), max(ends)) if ends else (-3.0, 3.0)
    high = high if high > low else low + 1.0
    cells = int(np.clip(2 * np.sqrt(max(len(b), len(theta))), 8, CELLS))
    edges = np.linspace(low, high, cells + 1)
    sides = []
    for values in (theta, b):
        counts = np.histogram(np.clip(values, low, high), bins=edges)[0]
        sides.append(
            pl.DataFrame({"low": edges[:-1], "high": edges[1:], "share": counts / max(len(values), 1)}).filter(
                pl.col("share") > 0
            )
        )
    beyond = int((b < low).sum() + (b > high).sum())
    note = f"{len(theta):,} respondents, {len(b):,} examples" + (
        f"; {beyond:,} far ones drawn at the ends" if beyond else ""
    )
    return charts_irt.facing(
        sides[0], sides[1], title="Wright map", names=("respondents", "examples"), y="logit", note=note
    )


def draw_information(item_parameters: pl.DataFrame) -> Any:
    """Draw test information; above 20,000 items that of an even sample by location, scaled up."""
    from gradatim.tasks.core import charts_irt

    table = item_parameters.filter(pl.col("location").is_finite() & pl.col("discrimination").is_finite())
    table = table.sort("location", "example_id")
    size = len(table)
    if size > SAMPLE:
        table = table[np.unique(np.round(np.linspace(0, size - 1, SAMPLE)).astype(np.int64))]
    theta = np.linspace(-4.0, 4.0, NODES)
    if size:
        low, high = table["location"].quantile(0.02), table["location"].quantile(0.98)
        theta = np.linspace(min(-4.0, float(low or 0.0)), max(4.0, float(high or 0.0)), NODES)
    a, b, g, u = _parameters(table)
    total = total_information(Curves(a, -a * b, g, u), theta) * (size / max(len(table), 1))
    frame = pl.DataFrame({"theta": theta, "information": total, "standard_error": 1 / np.sqrt(1 + total)})
    note = f"{size:,} examples" + ("" if size <= SAMPLE else f", from an even sample of {len(table):,}")
    return charts_irt.information(frame, title="Test information", note=note + "; errors with a N(0, 1) prior")


def draw_reliability(measured: pl.DataFrame, overall: float | None) -> Any:
    """Draw reliability against respondents: measured, predicted by Spearman and Brown, and what bins need."""
    from gradatim.tasks.core import charts_irt
    from gradatim.tasks.difficulty.reliability import spearman_brown

    most = int(measured["respondents"].max() or 1)  # type: ignore[arg-type]
    anchor = measured.filter(pl.col("respondents") == most).row(0, named=True)
    known = anchor["reliability"] if overall is None else overall
    counts = np.unique(np.round(np.geomspace(2, max(2 * most, 4), 40)).astype(np.int64))
    line = pl.DataFrame({"respondents": counts, "value": [spearman_brown(known, c / most) for c in counts]})
    points = measured.rename({"reliability": "value"})
    marks = [(least_reliability(k), f"{k} bins") for k in (2, 4, 6, MAX_BINS)]
    note = "points: measured on random subsets; line: Spearman-Brown; dotted: what bins need"
    return charts_irt.growth(points, line, marks, title="Reliability against respondents", note=note)


def draw_influence(frame: pl.DataFrame) -> Any:
    """Draw the 15 largest changes of `leave_out.leave_out_all`, once the scales with and without are linked."""
    from gradatim.tasks.core.charts import bars

    found = frame.drop_nulls("change_linked")
    largest = found.sort("change_linked", "name", descending=[True, False]).head(15)
    shown = largest.select(
        pl.when(pl.col("respondents") > 1)
        .then(pl.format("{} ({} respondents)", "name", "respondents"))
        .otherwise("name")
        .alias("left out"),
        pl.col("change_linked").round(5).alias("change of difficulties, root mean square (logit)"),
    )
    names = shown.columns
    return bars(shown, x=names[0], y=names[1], title=f"Influence: the largest of {len(found):,}")


def link_picture(items: pl.DataFrame, slope: float, intercept: float) -> Any:
    """Draw the common items of a `linking.Link`: old locations against linked new ones."""
    from gradatim.tasks.core import charts_irt

    table = items.filter(pl.col("linked").is_finite() & pl.col("old").is_finite())
    kind = pl.when(pl.col("used")).then(pl.lit("used")).when(pl.col("reason") == "drifted").then(pl.lit("drifted"))
    frame = table.select(x="linked", y="old", kind=kind.otherwise(pl.lit("left out")))
    sign = "+" if intercept >= 0 else "-"
    note = f"old = {slope:.3f} new {sign} {abs(intercept):.3f}; {len(table):,} common examples"
    return charts_irt.against(
        frame, title="Link of two calibrations", x="new, linked (logit)", y="old (logit)", note=note
    )


def linked_pictures(
    before: Mapping[str, Picture], item_parameters: pl.DataFrame | None, respondents: pl.DataFrame | None
) -> dict[str, Picture]:
    """Pictures of a calibration that was moved to another scale: those that depend on the scale, drawn anew."""
    kept = {name: picture for name, picture in before.items() if name == "reliability"}
    if item_parameters is None or respondents is None:
        return kept
    return {**irt_pictures(item_parameters, respondents), **kept}


def _numbers(item_parameters: pl.DataFrame, chosen: Sequence[str]) -> np.ndarray:
    at = dict(zip(item_parameters["example_id"], range(len(item_parameters)), strict=True))
    return np.array([at[name] for name in chosen if name in at], dtype=np.int64)


def _parameters(frame: pl.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    a, b = (frame[c].to_numpy().astype(np.float64) for c in ("discrimination", "location"))
    ends = (("lower", 0.0), ("upper", 1.0))
    g, u = (frame[c].fill_null(end).to_numpy().astype(np.float64) for c, end in ends)
    return a, b, g, u


def _lines(few: pl.DataFrame, theta: np.ndarray, values: np.ndarray) -> pl.DataFrame:
    order = few["location"].arg_sort().to_numpy()
    items = few["example_id"].to_list()
    frames = [
        pl.DataFrame({"item": [items[j]] * len(theta), "theta": theta, "value": np.round(values[j], 5)}) for j in order
    ]
    empty = pl.DataFrame(schema={"item": pl.String, "theta": pl.Float64, "value": pl.Float64})
    return pl.concat([empty, *frames])


def _range(few: pl.DataFrame, points: pl.DataFrame | None) -> np.ndarray:
    """Abilities from -4 to 4, wider where items or respondents are."""
    b = few["location"].to_numpy()
    far = np.concatenate([b[np.isfinite(b)], [] if points is None else points["theta"].to_numpy()])
    low, high = (float(np.clip(far.min(), -8, 0)), float(np.clip(far.max(), 0, 8))) if len(far) else (0.0, 0.0)
    return np.round(np.linspace(min(-4.0, low - 0.5), max(4.0, high + 0.5), NODES), 4)


def _fence(values: np.ndarray) -> tuple[float, float]:
    """Ends of the values, at most three interquartile ranges beyond the quartiles."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = 3 * max(high - low, 1e-9)
    return float(max(values.min(), low - reach)), float(min(values.max(), high + reach))

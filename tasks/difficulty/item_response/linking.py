"""Linking: put a new calibration on the scale of an old one through the items that both hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.linking_curves import Abilities, left_out, minimise
from gradatim.tasks.difficulty.item_response.linking_items import (
    check,
    common_items,
    curves_of,
    drifted_items,
    robust_z,
)
from gradatim.tasks.difficulty.item_response.pictures import link_picture, linked_pictures
from gradatim.tasks.difficulty.result import Difficulty

Method = Literal["mean_sigma", "mean_mean", "stocking_lord", "haebara"]
Line = tuple[float, float, float | None, tuple[float | None, float | None]]
METHODS: tuple[Method, ...] = ("mean_sigma", "mean_mean", "stocking_lord", "haebara")
SOURCES: dict[Method, str] = {
    "mean_sigma": "G. L. Marco (1977). Item characteristic curve solutions to three intractable testing problems",
    "mean_mean": "B. H. Loyd, H. D. Hoover (1980). Vertical equating using the Rasch model",
    "stocking_lord": "M. L. Stocking, F. M. Lord (1983). Developing a common metric in item response theory",
    "haebara": "T. Haebara (1980). Equating logistic ability scales by a weighted least squares method",
}
DRIFT = "H. Huynh, P. Meyer (2010). Use of robust z in detecting unstable items in item response theory models"
FEW, GROUPS = 5, 20
"""Common items below which a link warns, and parts of the jackknife."""


@dataclass(frozen=True)
class Link:
    """The line theta_old = slope theta_new + intercept, and what it rests on.

    Attributes
    ----------
    slope, intercept : float
        A > 0 and B: b* = A b + B, a* = a / A, theta* = A theta + B; errors of b and theta grow by A.
    slope_error, intercept_error : float or None
        Standard errors by a jackknife over common items in at most 20 parts, None with fewer than three. They know of
        the choice of items, not of the respondents that both calibrations rest on.
    method : str
        mean_sigma, mean_mean, stocking_lord or haebara.
    common, used : int
        Items in both calibrations, and those that the line was fitted to.
    rmse : float
        Root mean squared distance of the linked new from the old locations of the used items, logits.
    criterion : float or None
        What the method minimised: the mean squared difference of test characteristic curves (stocking_lord, in items
        squared) or the sum over items of those of their curves (haebara), both scales added.
    correlation : float or None
        Of the used items' locations; None without variance.
    items : polars.DataFrame
        A row a common item: example_id, new, old, linked (locations), difference (old - linked), z (robust), used,
        reason (why not).
    drifted : tuple of str
        Items whose location moved, by robust z; left out of the line unless asked to stay.
    notes : tuple of str
        What to read with care.
    """

    slope: float
    intercept: float
    slope_error: float | None
    intercept_error: float | None
    method: Method
    common: int
    used: int
    rmse: float
    criterion: float | None
    correlation: float | None
    items: pl.DataFrame = field(repr=False)
    drifted: tuple[str, ...]
    notes: tuple[str, ...]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame of the new calibration on the old scale; the frame given stays as it is.

        Columns that are there are moved: location, ability, and value and raw where the scale is logit, by the line;
        location_error and standard_error by the slope; discrimination and its error by one over it. Asymptotes,
        percentiles and bins stay. The link's own error is not added.
        """
        a, b = self.slope, self.intercept
        moved = {
            "location": a * pl.col("location") + b,
            "ability": a * pl.col("ability") + b,
            "location_error": a * pl.col("location_error"),
            "discrimination": pl.col("discrimination") / a,
            "discrimination_error": pl.col("discrimination_error") / a,
        }
        logit = pl.col("scale") == "logit" if "scale" in frame.columns else pl.lit(True)
        for name in ("value", "raw", "low", "high"):
            moved[name] = pl.when(logit).then(a * pl.col(name) + b).otherwise(pl.col(name))
        moved["standard_error"] = pl.when(logit).then(a * pl.col("standard_error")).otherwise(pl.col("standard_error"))
        return frame.with_columns(**{name: moved[name] for name in frame.columns if name in moved})


def link(
    new: pl.DataFrame,
    old: pl.DataFrame,
    method: Method = "mean_sigma",
    *,
    drift: Literal["drop", "keep"] = "drop",
    leave: Sequence[str] = (),
    abilities: Abilities | None = None,
) -> Link:
    """Find the line that puts a new calibration on the scale of an old one.

    Parameters
    ----------
    new, old : polars.DataFrame
        Tables `item_parameters`, one row an example_id: discrimination, location and, where there, lower, upper, their
        errors, fit and flag. Both are read only.
    method : str
        mean_sigma matches mean and standard deviation of the locations, mean_mean the means of locations and
        discriminations; stocking_lord the test characteristic curves and haebara the item characteristic curves in
        least squares over both groups' N(0, 1).
    drift : "drop" or "keep"
        Whether items that moved alone (robust z beyond 3, and by more than three standard errors where these are
        known) are left out of the line. They are listed either way.
    leave : sequence of str
        Items that must not count.
    abilities : Abilities, optional
        Other nodes and weights of the characteristic-curve methods.

    Returns
    -------
    Link

    Raises
    ------
    DataRefused
        With fewer than two usable common items, or locations that leave the slope undetermined.
    UsageError
        For an unknown method, a missing column, or an id that stands twice.

    Notes
    -----
    Not used: items with a flag, without a fit where others have one (all right or none right: their places rest on a
    convention), with negative discrimination or one at its bound, or a number that is not finite. Where all usable
    items of both calibrations have one and the same discrimination the models fix the slope, and it is 1. O(J log J),
    and O(41 J) a step of the characteristic-curve methods.

    Source: M. J. Kolen, R. L. Brennan (2014). Test equating, scaling, and linking; H. Huynh, P. Meyer (2010). Use of
    robust z in detecting unstable items in item response theory models.
    """
    if method not in METHODS:
        raise UsageError(f"there is no linking method {method!r}", where="link: method", expected=", ".join(METHODS))
    if drift not in ("drop", "keep"):
        raise UsageError(f"there is no choice {drift!r}", where="link: drift", expected="drop or keep")
    check(new, old)
    both, reasons = common_items(new, old, leave)
    usable = reasons.is_null().to_numpy()
    if usable.sum() < 2:
        why = reasons.drop_nulls().value_counts(sort=True).rows()
        raise DataRefused(
            f"{int(usable.sum())} of {len(both)} common items can be used"
            + "".join(f"; {count} {reason}" for reason, count in why[:3]),
            where="link",
            expected="2 or more items in both calibrations, 10 or more to trust the line",
            remedy="let some of the new respondents answer examples of the old calibration, or the other way round",
        )
    mine, theirs = curves_of(both, "_new"), curves_of(both, "")
    b_new, b_old = both["location_new"].to_numpy(), both["location"].to_numpy()
    slopes = np.concatenate([mine.a[usable], theirs.a[usable]])
    fixed = bool(np.ptp(slopes) <= 1e-9 * abs(slopes[0]))
    fit = partial(_line, method, mine, theirs, fixed=fixed, abilities=abilities or Abilities.normal())
    drifted = drifted_items(both, mine, theirs, usable, fixed, lambda use: fit(use)[0])
    used = usable & ~drifted if drift == "drop" and (usable & ~drifted).sum() >= 2 else usable
    slope, intercept, criterion, errors = fit(used)
    difference = b_old - slope * b_new - intercept
    together = np.ptp(b_new[used]) > 1e-12 and np.ptp(b_old[used]) > 1e-12
    correlation = float(np.corrcoef(b_new[used], b_old[used])[0, 1]) if together else None
    items = pl.DataFrame(
        {
            "example_id": both["example_id"],
            "new": b_new,
            "old": b_old,
            "linked": slope * b_new + intercept,
            "difference": difference,
            "z": robust_z(difference, usable),
            "used": used,
            "reason": reasons,
        }
    ).with_columns(reason=pl.when(pl.Series(drifted)).then(pl.lit("drifted")).otherwise("reason"))
    return Link(
        slope=slope,
        intercept=intercept,
        slope_error=errors[0],
        intercept_error=errors[1],
        method=method,
        common=len(both),
        used=int(used.sum()),
        rmse=float(np.sqrt(np.mean(difference[used] ** 2))),
        criterion=criterion,
        correlation=correlation,
        items=items,
        drifted=tuple(both["example_id"].filter(pl.Series(drifted))),
        notes=_notes(len(both), usable, used, drifted, drift, fixed, correlation),
    )


def linked(
    new: Difficulty,
    old: Difficulty,
    method: Method = "mean_sigma",
    *,
    drift: Literal["drop", "keep"] = "drop",
    bins: Literal["new", "old"] = "new",
) -> Difficulty:
    """Return `new` on the scale of `old`, with a note of the line; neither is changed.

    Order, percentiles and, by default, bins stay those of `new`, since the line rises. ``bins="old"`` cuts instead at
    the edges of `old`, halfway between its neighbouring bins, so that bin k means the same difficulty in both; bins
    may then be of unequal size or empty. `leave_out` of the result leaves out, then links again.

    Raises
    ------
    UsageError
        If one of them has no item parameters in logits, or as `link`.
    DataRefused
        As `link`.
    """
    found = link(_items(new), _items(old), method, drift=drift)
    table = found.apply(new.table)
    if bins == "old":
        table = table.with_columns(pl.Series("bin", _by_edges(old.table, table["value"].to_numpy()), dtype=pl.Int32))
    again = partial(_again, new, old, method, drift, bins) if new.refit is not None else None
    items = None if new.item_parameters is None else found.apply(new.item_parameters)
    people = None if new.respondents is None else found.apply(new.respondents)
    picture = Picture(
        "Common examples on the old scale: where the line fits and which of them moved.",
        partial(link_picture, found.items, found.slope, found.intercept),
    )
    return replace(
        new,
        table=table,
        item_parameters=items,
        respondents=people,
        intervals=None if new.intervals is None else found.apply(new.intervals),
        notes={**moved_notes(new.notes, found), **described(found, old.title)},
        warnings=(*new.warnings, *found.notes),
        pictures={**linked_pictures(new.pictures, items, people), "link": picture},
        source=" ".join(part for part in (new.source, SOURCES[method] + ".", DRIFT + ".") if part),
        refit=again,
    )


def described(found: Link, title: str = "") -> dict[str, str | int | float]:
    """Say in a few named facts what a link is, for the notes of a `Difficulty`."""
    error = "" if found.slope_error is None else f" (errors {found.slope_error:.3f}, {found.intercept_error:.3f})"
    facts: dict[str, str | int | float] = {
        "linked to": f"{title + ', ' if title else ''}{found.method}",
        "line": f"{found.slope:.4f} x {'+' if found.intercept >= 0 else '-'} {abs(found.intercept):.4f}{error}",
        "common items, used": f"{found.common}, {found.used}",
        "distance after linking, root mean square": round(found.rmse, 4),
    }
    if found.drifted:
        facts["common items that drifted"] = len(found.drifted)
    return facts


def moved_notes(notes: Mapping[str, Cell], line: Link) -> dict[str, Cell]:
    """Return notes of a calibration with the common discrimination, where one is told, on the old scale."""
    told = notes.get("discrimination")
    return {**notes, **({"discrimination": round(told / line.slope, 4)} if isinstance(told, float) else {})}


def _line(method: Method, mine: Curves, theirs: Curves, use: np.ndarray, *, fixed: bool, abilities: Abilities) -> Line:
    """Slope, intercept, criterion and the jackknife's errors over the items `use`."""
    rows = np.flatnonzero(use)
    new, old = mine.part(rows), theirs.part(rows)
    moments = "mean_mean" if method == "mean_mean" else "mean_sigma"
    groups = min(GROUPS, len(rows))
    number = np.arange(len(rows)) % groups
    if method in ("mean_sigma", "mean_mean"):
        slope, intercept = _moments(moments, new, old, fixed)
        without = np.array([_moments(moments, new, old, fixed, number != k) for k in range(groups)])
        return slope, intercept, None, _jackknife(without, fixed)
    try:
        start = _moments(moments, new, old, fixed)
    except DataRefused:  # locations without spread: the curves may still tell a slope
        start = _moments("mean_mean", new, old, fixed)
    slope, intercept, criterion, sums = minimise(
        method, new, old, start, abilities, free_slope=not fixed, groups=groups
    )
    return slope, intercept, criterion, _jackknife(left_out(sums, slope, intercept, free_slope=not fixed), fixed)


def _moments(method: str, new: Curves, old: Curves, fixed: bool, keep: np.ndarray | None = None) -> tuple[float, float]:
    """Slope and intercept by means and standard deviations, over the items `keep`."""
    new, old = (new, old) if keep is None else (new.part(keep), old.part(keep))
    b_new, b_old = -new.d / new.a, -old.d / old.a
    slope = 1.0
    if not fixed and method == "mean_mean":
        slope = float(new.a.mean() / old.a.mean())
    elif not fixed:
        spread, wanted = float(b_new.std()), float(b_old.std())
        if keep is None and min(spread, wanted) < 1e-9:
            raise DataRefused(
                "the common items are all equally hard in one calibration, which leaves the slope undetermined",
                where="link mean_sigma",
                expected="common items of different difficulty",
                remedy="use mean_mean, or more common items",
            )
        slope = wanted / spread if spread > 1e-12 else np.nan
    return slope, float(b_old.mean() - slope * b_new.mean())


def _jackknife(without: np.ndarray, fixed: bool) -> tuple[float | None, float | None]:
    """Standard errors from (G, 2) estimates without each of G parts; None where there are too few."""
    groups = len(without)
    if groups < 3 or not np.isfinite(without).all():
        return None, None
    spread = np.sqrt((groups - 1) / groups * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
    return (0.0 if fixed else float(spread[0])), float(spread[1])


def _notes(
    common: int,
    usable: np.ndarray,
    used: np.ndarray,
    drifted: np.ndarray,
    drift: str,
    fixed: bool,
    correlation: float | None,
) -> tuple[str, ...]:
    notes = []
    if fixed:
        notes.append("the slope of the link is 1: both calibrations have the same fixed discrimination")
    if used.sum() < FEW:
        notes.append(f"the link rests on {int(used.sum())} common items (10 or more are better)")
    if usable.sum() < 0.5 * common:
        notes.append(f"only {int(usable.sum())} of {common} common items could be used for the link")
    if drifted.sum() > 0.2 * usable.sum():
        what = "were left out" if drift == "drop" else "stayed in"
        notes.append(
            f"{int(drifted.sum())} of {int(usable.sum())} common items drifted and {what}: more than a fifth, "
            "which makes it a matter of choice which ones moved"
        )
    if correlation is not None and correlation < 0.8:
        notes.append(f"the two calibrations order the common items differently: correlation {correlation:.2f}")
    return tuple(notes)


def _items(difficulty: Difficulty) -> pl.DataFrame:
    """Item parameters with the flags of the difficulties."""
    if difficulty.item_parameters is None or (difficulty.table["scale"] != "logit").any():
        raise UsageError(
            f"{difficulty.title} has no item parameters in logits",
            where="link",
            expected="the result of irt",
        )
    flags = difficulty.table.select("example_id", "flag")
    return difficulty.item_parameters.join(flags, on="example_id", how="left", maintain_order="left")


def _by_edges(old: pl.DataFrame, values: np.ndarray) -> np.ndarray:
    """Bins of `values` by the edges of the old bins, halfway between neighbours."""
    ends = old.group_by("bin").agg(pl.col("value").min().alias("low"), pl.col("value").max().alias("high")).sort("bin")
    edges = (ends["high"].to_numpy()[:-1] + ends["low"].to_numpy()[1:]) / 2
    return np.searchsorted(edges, values, side="left").astype(np.int32)


def _again(
    new: Difficulty,
    old: Difficulty,
    method: Method,
    drift: Literal["drop", "keep"],
    bins: Literal["new", "old"],
    name: str,
) -> Difficulty:
    return linked(new.leave_out(name), old, method, drift=drift, bins=bins)

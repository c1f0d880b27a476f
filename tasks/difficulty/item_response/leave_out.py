"""Leaving respondents out of a fit: a few steps from the full solution instead of a fit from scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response.cells import Cells
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.fit import IRTFit
from gradatim.tasks.difficulty.item_response.jackknife import BOUNDED, SLOW, Full, Solution, of_items, refit
from gradatim.tasks.difficulty.item_response.joint import SINGLE, JointFit, fit_joint

NEAR = 0.02
"""Sweeps of a joint fit go on until nothing moves by this share of the bound; a location far out moves by more."""


@overload
def leave_out(
    data: np.ndarray | Cells,
    fit: IRTFit,
    rows: Sequence[int] | np.ndarray,
    *,
    bound: float = BOUNDED,
    full: Full | None = None,
    errors: bool = True,
    **settings: Any,
) -> tuple[IRTFit, np.ndarray]: ...
@overload
def leave_out(
    data: np.ndarray | Cells,
    fit: JointFit,
    rows: Sequence[int] | np.ndarray,
    *,
    bound: float = BOUNDED,
    full: Full | None = None,
    errors: bool = True,
    **settings: Any,
) -> tuple[JointFit, np.ndarray]: ...
def leave_out(
    data: np.ndarray | Cells,
    fit: IRTFit | JointFit,
    rows: Sequence[int] | np.ndarray,
    *,
    bound: float = BOUNDED,
    full: Full | None = None,
    errors: bool = True,
    **settings: Any,
) -> tuple[IRTFit | JointFit, np.ndarray]:
    """Return the fit without some respondents, from the fit with them.

    Parameters
    ----------
    data : numpy.ndarray, shape (n, J), or Cells
        What was fitted.
    fit : IRTFit or JointFit
        Of `data`.
    rows : indices of respondents
    bound : float
        Largest distance of a location from that of a refit, logits.
    full : Full, optional
        `Full.of(matrix, fit, **settings)` of a marginal fit, where several are left out in turn.
    errors : bool
        Whether to compute standard errors and infit.
    settings
        Those of `fit_irt` or `fit_joint` that `fit` was made with: model, slope, guessing, priors, choices.

    Returns
    -------
    IRTFit or JointFit
        Of the respondents who stay, in their order, and of the items that one of them answered.
    numpy.ndarray of int64
        These items.

    Raises
    ------
    DataRefused
        As `fit_irt` or `fit_joint` of the respondents who stay.
    UsageError
        If there is no such respondent, or the settings are those of another model than `fit`.

    Notes
    -----
    A marginal fit: two to four passes for one of many respondents, where a fit takes some fifteen, each
    O(n J + (n + J) nodes), plus what standard errors cost; a warm start of the EM algorithm where the observed
    information is out of reach. A joint fit: sweeps from where it stood, some two in three of those from scratch; all
    of them where asymptotes are estimated. In single precision (above 20 million cells) the bound is 1e-3 at best.

    Source: L. A. Jaeckel (1972). The infinitesimal jackknife; R. D. Cook, S. Weisberg (1982). Residuals and influence
    in regression; D. G. Anderson (1965). Iterative procedures for nonlinear integral equations.
    """
    _check(fit, rows, settings)
    if isinstance(fit, JointFit):
        return _sweep_on(data, fit, rows, bound, {**settings, "errors": errors})
    matrix = data.matrix() if isinstance(data, Cells) else np.asarray(data)
    keep = np.setdiff1d(np.arange(len(matrix)), np.asarray(rows, dtype=np.int64))
    some = matrix[keep]
    stay = np.flatnonzero(np.isfinite(some).any(axis=0))
    full = full or Full.of(matrix, fit, **settings)
    near = fit.curves
    if full.inverse is not None:
        found = full.without(rows, bound=bound)
        near = _spread(near, found)
    start = replace(fit, a=near.a, d=near.d, g=near.g, u=near.u)
    tolerance = (0.01 if full.inverse is not None else SLOW) * bound
    return refit(some[:, stay], start, stay, {**settings, "errors": errors, "tolerance": tolerance}), stay


def leave_out_all(
    data: np.ndarray | Cells,
    fit: IRTFit | JointFit,
    groups: Mapping[str, Sequence[int] | np.ndarray],
    examples: Sequence[str],
    *,
    bound: float = BOUNDED,
    **settings: Any,
) -> pl.DataFrame:
    """Say how much the difficulties rest on each respondent, or family of respondents.

    Parameters
    ----------
    data, fit, bound, settings
        As `leave_out`.
    groups : mapping
        Name to indices of respondents, e.g. `groups_of`.
    examples : sequence of str, length J

    Returns
    -------
    polars.DataFrame
        A row a group, by falling change_linked: name, respondents, change_largest and change_rms (of locations that are
        estimated with and without, logits), moved_most (that example), change_linked (root mean square again, once the
        two scales have the same mean and standard deviation: to leave out the best or the worst moves the scale
        itself), rank_correlation (Spearman, with and without), no_longer_told_apart (items that only the group kept
        from being all right or none right). Nulls where a group leaves fewer than two respondents, or nothing to fit.

    Notes
    -----
    Some three passes a group for a marginal fit, a few sweeps for a joint one.
    """
    for members in groups.values():
        _check(fit, members, settings)
    full = None
    if isinstance(fit, IRTFit):
        full = Full.of(data.matrix() if isinstance(data, Cells) else data, fit, times=len(groups), **settings)
    rows = []
    for name, members in groups.items():
        row: dict[str, Any] = {"name": name, "respondents": len(members)}
        try:
            if full is not None:
                found = full.without(members, bound=bound)
            elif isinstance(fit, JointFit):
                joint, stay = _sweep_on(data, fit, members, bound, {**settings, "errors": False})
                inner = np.flatnonzero(joint.extreme == 0)
                found = Solution(_curves_of(joint).part(inner), stay[inner], joint.n_iter)
        except DataRefused:
            rows.append(row)
            continue
        rows.append(row | compared(fit, found, examples))
    frame = pl.DataFrame(rows, schema=INFLUENCE)
    return frame.sort("change_linked", "name", descending=[True, False], nulls_last=True)


def _check(fit: IRTFit | JointFit, rows: Sequence[int] | np.ndarray, settings: Mapping[str, Any]) -> None:
    """Refuse respondents who are not there, and settings that tell another model."""
    at = np.asarray(rows)
    if at.size and (at.dtype.kind not in "iu" or at.min() < 0 or at.max() >= fit.n_respondents):
        raise UsageError(
            f"found respondents {at.min()} to {at.max()}",
            where="leave_out: rows",
            expected=f"whole numbers from 0 to {fit.n_respondents - 1}",
        )
    model, slope = settings.get("model", "1pl"), settings.get("slope", "free")
    slope = slope if isinstance(slope, str) else "given"
    slope = "free" if model == "1pl" and slope == "common" else slope
    told = {"model": (model, fit.model)}
    guessing = settings.get("guessing")
    if (guessing is None or np.ndim(guessing) == 0) and (fit.extreme == 0).any():
        told["guessing"] = ("given" if guessing else fit.guessing.replace("given", "none"), fit.guessing)
    if not fit.slope.startswith("fixed:"):
        told["slope"] = (slope, fit.slope)
    for name, (asked, made) in told.items():
        if asked != made:
            raise UsageError(
                f"the settings tell another {name} than the fit has: {asked!r}, not {made!r}",
                where="leave_out: settings",
                expected="the settings that the fit was made with, as model='2pl'",
            )


def _sweep_on(
    data: np.ndarray | Cells,
    fit: JointFit,
    rows: Sequence[int] | np.ndarray,
    bound: float,
    settings: Mapping[str, Any],
) -> tuple[JointFit, np.ndarray]:
    """Fit the others jointly from where the joint fit of all stood."""
    cells = data if isinstance(data, Cells) else Cells.of(np.asarray(data))
    keep = np.setdiff1d(np.arange(cells.n), np.asarray(rows, dtype=np.int64))
    if len(keep) < 2:
        raise DataRefused(f"{len(keep)} of {cells.n} respondents would stay", where="leave_out", expected="at least 2")
    some, stay = cells.among(keep)
    near = _curves_of(fit).part(stay), fit.abilities[keep], fit.ability_se[keep] ** 2
    curved = fit.guessing == "free" or fit.model == "4pl"
    how = of_items(settings, stay)
    if not curved:
        how |= {"start": near, "tolerance": None if some.size > SINGLE else NEAR * bound}
    return fit_joint(some, **how), stay


def _curves_of(fit: JointFit) -> Curves:
    return Curves(fit.a, fit.d, fit.g, fit.u)


def compared(fit: IRTFit | JointFit, found: Solution, examples: Sequence[str]) -> dict[str, Any]:
    """Compare the locations of a fit with those of a solution without some: fields of `leave_out_all`."""
    after = -found.curves.d / found.curves.a
    before = fit.b[found.inner]
    change = np.abs(after - before)
    lost = int((fit.extreme == 0).sum()) - len(found.inner)
    if not len(change):
        return {"no_longer_told_apart": lost}
    ranks = [pl.Series(np.round(v, 9)).rank().to_numpy() for v in (before, after)]
    varied = len(change) > 1 and all(np.ptp(r) > 0 for r in ranks)
    slope = before.std() / after.std() if varied else 1.0
    apart = (after - after.mean()) * slope - (before - before.mean())
    return {
        "change_largest": float(change.max()),
        "change_rms": float(np.sqrt(np.mean(change**2))),
        "moved_most": examples[int(found.inner[int(change.argmax())])],
        "change_linked": float(np.sqrt(np.mean(apart**2))),
        "rank_correlation": float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if varied else None,
        "no_longer_told_apart": lost,
    }


def groups_of(respondents: Sequence[str], known: pl.DataFrame | None = None) -> dict[str, np.ndarray]:
    """Name each respondent and, where `known` (respondent_id, family) has them, each family of two or more.

    Returns
    -------
    dict of int64 arrays
        Indices among `respondents` by name, respondents first; a family named like a respondent is left to that one.
    """
    found = {name: np.array([row], dtype=np.int64) for row, name in enumerate(respondents)}
    if known is None or "family" not in known.columns:
        return found
    table = known.select(pl.col("respondent_id", "family").cast(pl.String)).unique("respondent_id", keep="first")
    place = pl.DataFrame({"respondent_id": pl.Series(respondents, dtype=pl.String)}).with_row_index("row")
    members = (
        place.join(table.drop_nulls(), on="respondent_id").sort("family", "row").group_by("family", maintain_order=True)
    )
    families = members.agg("row").filter(pl.col("row").list.len() > 1)
    for family, rows in families.iter_rows():
        found.setdefault(family, np.array(rows, dtype=np.int64))
    return found


INFLUENCE = {
    "name": pl.String,
    "respondents": pl.Int64,
    "change_largest": pl.Float64,
    "change_rms": pl.Float64,
    "moved_most": pl.String,
    "change_linked": pl.Float64,
    "rank_correlation": pl.Float64,
    "no_longer_told_apart": pl.Int64,
}


def _spread(curves: Curves, found: Solution) -> Curves:
    """Lay a solution out over all items."""
    values = []
    for name in ("a", "d", "g", "u"):
        value = getattr(curves, name).copy()
        value[found.inner] = getattr(found.curves, name)
        values.append(value)
    return Curves(*values)

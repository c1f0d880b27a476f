"""Leaving respondents out of a marginal fit: a few Newton steps from the full solution instead of a fit from scratch.

At the full solution the score of all respondents is zero, so that of all but some is minus theirs, and one step with
the observed information of all is the infinitesimal jackknife. Further steps use the same matrix, which is wrong by the
information that was left out only; each costs one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.difficulty import information, observed
from gradatim.tasks.difficulty.asymptotes import Asymptotic
from gradatim.tasks.difficulty.curves import Curves
from gradatim.tasks.difficulty.fit import IRTFit, fit_irt
from gradatim.tasks.difficulty.marginal import BOUND, Grid, Objective, Patterns, group_patterns
from gradatim.tasks.difficulty.specify import specify

BOUNDED = 1e-4
"""Largest distance of a location from that of a refit, logits."""
TIGHT = 0.01
"""Steps go on until one is this share of the bound."""
MOST_PARAMETERS, MOST_OPERATIONS = 3000, 2e11
STEPS, MEMORY, LONGEST = 15, 6, 2.0
"""Most steps, those that are mixed, and the longest one of a parameter."""


@dataclass(frozen=True)
class Solution:
    """Items' curves without some respondents.

    Attributes
    ----------
    curves : Curves
        Of the items `inner`.
    inner : (J',) int64
        Items that still tell the others apart.
    steps : int
        Passes over the respondents.
    """

    curves: Curves
    inner: np.ndarray
    steps: int


@dataclass(frozen=True)
class Full:
    """A fit of all respondents, ready to leave some out.

    Attributes
    ----------
    matrix : (n, J)
    fit : IRTFit
        Of `matrix`, with `settings`.
    settings : mapping
        Keywords of `fit_irt`: model, slope, guessing, priors, choices.
    data : Patterns
        Of the items that are not extreme.
    inverse : (P, P) or None
        Inverse of the observed information; None where it is too large, not positive definite, or a parameter stands
        at its end: then a warm start has to do.
    """

    matrix: np.ndarray
    fit: IRTFit
    settings: Mapping[str, Any]
    data: Patterns
    inverse: np.ndarray | None

    @classmethod
    def of(cls, matrix: np.ndarray, fit: IRTFit, **settings: Any) -> Full:
        """Take the observed information at the fit: seconds and 128 MB at most."""
        matrix = np.asarray(matrix)
        inner = np.flatnonzero(fit.extreme == 0)
        data = group_patterns(matrix[:, inner])
        bare = cls(matrix, fit, settings, data, None)
        found = bare._objective(data, len(matrix), inner)
        if found is None:
            return bare
        with one_thread():  # more threads would add in another order
            return replace(bare, inverse=_inverse(*found, fit.grid))

    def without(self, rows: Sequence[int] | np.ndarray, *, bound: float = BOUNDED) -> Solution:
        """Return the items' curves without respondents `rows`, at most `bound` logits from those of a refit.

        Raises
        ------
        DataRefused
            If fewer than two respondents stay.
        """
        keep = np.setdiff1d(np.arange(len(self.matrix)), np.asarray(rows, dtype=np.int64))
        if len(keep) < 2:
            raise DataRefused(
                f"{len(keep)} of {len(self.matrix)} respondents would stay",
                where="leave_out",
                expected="at least 2",
            )
        gone = np.bincount(self.data.index, minlength=len(self.data.weight)) - np.bincount(
            self.data.index[keep], minlength=len(self.data.weight)
        )
        data = replace(self.data, weight=self.data.weight - gone)
        answered = np.bincount(data.group, data.weight, len(data.masks)) @ data.masks.astype(np.float64)
        total = data.y @ data.weight
        stay = (answered > 0) & (total > 1e-9) & (total < answered - 1e-9)
        before = np.flatnonzero(self.fit.extreme == 0)
        inner = before[stay]
        if not len(inner):
            return Solution(self.fit.curves.part(inner), inner, 0)
        model = self._objective(_part(data, stay), len(keep), inner)
        if self.inverse is not None and model is not None:
            objective, x = model
            share = len(self.matrix) / len(keep)  # what is left informs by about so much less
            inverse = share * _conditional(self.inverse, _kept(objective, stay))
            with one_thread():
                first = -_score(*_unguided(objective, x, gone), self.fit.grid) if stay.all() else None
                found = _chord(objective, x, inverse, self.fit.grid, bound, first)
            if found is not None:
                x, steps = found
                return Solution(_curves(objective, x), inner, steps)
        some = self.matrix[np.ix_(keep, inner)]
        warm = _refit(some, self.fit, inner, {**self.settings, "errors": False, "tolerance": 1e-4 * bound})
        return Solution(warm.curves, inner, warm.n_iter)

    def _objective(self, data: Patterns, n: int, inner: np.ndarray) -> tuple[Objective | Asymptotic, np.ndarray] | None:
        """Return the objective of items `inner` and the fit's parameters; None where a refit takes another model."""
        chosen = specify(n, len(self.fit.a), inner, **_specified(self.settings))
        if self.fit.slope.startswith("fixed:"):
            chosen = chosen.with_slope_one(self.fit.slope)
        if chosen.weak != (self.fit.priors == "weak") or not len(inner):
            return None
        curves = self.fit.curves.part(inner)
        if chosen.bare:
            plain = chosen.plain(data)
            return plain, plain.pack(curves.a, curves.d)
        asymptotic = chosen.asymptotic(data, curves)
        return asymptotic, asymptotic.start()


def leave_out(
    matrix: np.ndarray,
    fit: IRTFit,
    rows: Sequence[int] | np.ndarray,
    *,
    bound: float = BOUNDED,
    full: Full | None = None,
    errors: bool = True,
    **settings: Any,
) -> tuple[IRTFit, np.ndarray]:
    """Return the fit without some respondents, from the fit with them.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (n, J)
    fit : IRTFit
        Of `matrix`.
    rows : indices of respondents
    bound : float
        Largest distance of a location from that of a refit, logits.
    full : Full, optional
        `Full.of(matrix, fit, **settings)`, where several are left out in turn.
    errors : bool
        Whether to compute standard errors and infit.
    settings
        Those of `fit_irt` that `fit` was made with: model, slope, guessing, priors, choices.

    Returns
    -------
    IRTFit
        Of the respondents who stay, in their order, and of the items that one of them answered.
    numpy.ndarray of int64
        These items.

    Raises
    ------
    DataRefused
        As `fit_irt` of the respondents who stay.

    Notes
    -----
    Two to four passes for one of many respondents, where a fit takes some fifteen, each O(n J + (n + J) nodes), plus
    what standard errors cost; a warm start of the EM algorithm where the observed information is out of reach.

    Source: L. A. Jaeckel (1972). The infinitesimal jackknife; R. D. Cook, S. Weisberg (1982). Residuals and influence
    in regression; D. G. Anderson (1965). Iterative procedures for nonlinear integral equations.
    """
    matrix = np.asarray(matrix)
    keep = np.setdiff1d(np.arange(len(matrix)), np.asarray(rows, dtype=np.int64))
    some = matrix[keep]
    stay = np.flatnonzero(np.isfinite(some).any(axis=0))
    full = full or Full.of(matrix, fit, **settings)
    near = fit.curves
    if full.inverse is not None:
        found = full.without(rows, bound=bound)
        near = _spread(near, found)
    start = replace(fit, a=near.a, d=near.d, g=near.g, u=near.u)
    tolerance = 0.01 * bound if full.inverse is not None else None
    return _refit(some[:, stay], start, stay, {**settings, "errors": errors, "tolerance": tolerance}), stay


def leave_out_all(
    matrix: np.ndarray,
    fit: IRTFit,
    groups: Mapping[str, Sequence[int] | np.ndarray],
    examples: Sequence[str],
    *,
    bound: float = BOUNDED,
    **settings: Any,
) -> pl.DataFrame:
    """Say how much the difficulties rest on each respondent, or family of respondents.

    Parameters
    ----------
    matrix, fit, bound, settings
        As `leave_out`.
    groups : mapping
        Name to indices of respondents.
    examples : sequence of str, length J

    Returns
    -------
    polars.DataFrame
        A row a group, the most influential first: name, respondents, change_largest and change_rms (of locations that
        are estimated with and without, logits), moved_most (that example), rank_correlation (Spearman, with and
        without), no_longer_told_apart (items that only the group kept from being all right or none right)).
        Nulls where a group leaves fewer than two respondents.

    Notes
    -----
    Some three passes a group.
    """
    full = Full.of(matrix, fit, **settings)
    rows = []
    for name, members in groups.items():
        row: dict[str, Any] = {"name": name, "respondents": len(members)}
        try:
            found = full.without(members, bound=bound)
        except DataRefused:
            rows.append(row)
            continue
        rows.append(row | compared(fit, found, examples))
    frame = pl.DataFrame(rows, schema=INFLUENCE)
    return frame.sort("change_rms", "name", descending=[True, False], nulls_last=True)


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
    "rank_correlation": pl.Float64,
    "no_longer_told_apart": pl.Int64,
}


def compared(fit: IRTFit, found: Solution, examples: Sequence[str]) -> dict[str, Any]:
    """Compare the locations of a fit with those of a solution without some: fields of `leave_out_all`."""
    after = -found.curves.d / found.curves.a
    before = fit.b[found.inner]
    change = np.abs(after - before)
    lost = int((fit.extreme == 0).sum()) - len(found.inner)
    if not len(change):
        return {"no_longer_told_apart": lost}
    ranks = [pl.Series(np.round(v, 9)).rank().to_numpy() for v in (before, after)]
    varied = len(change) > 1 and all(np.ptp(r) > 0 for r in ranks)
    return {
        "change_largest": float(change.max()),
        "change_rms": float(np.sqrt(np.mean(change**2))),
        "moved_most": examples[int(found.inner[int(change.argmax())])],
        "rank_correlation": float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if varied else None,
        "no_longer_told_apart": lost,
    }


def _specified(settings: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"model": "1pl", "slope": "free", "guessing": None, "priors": "auto", "choices": 5}
    return {name: settings.get(name, value) for name, value in defaults.items()}


def _refit(some: np.ndarray, fit: IRTFit, items: np.ndarray, settings: Mapping[str, Any]) -> IRTFit:
    """Fit some respondents' answers to some items with the EM algorithm from where the full fit ended."""
    return fit_irt(some, start=(fit.curves.part(items), fit.grid), **_of_items(settings, items))


def _of_items(settings: Mapping[str, Any], items: np.ndarray) -> dict[str, Any]:
    """Keep of settings that hold a number an item those of some."""
    found = dict(settings)
    for name in ("guessing", "choices"):
        if isinstance(found.get(name), np.ndarray) and found[name].ndim == 1:
            found[name] = np.asarray(found[name])[items]
    return found


def _part(data: Patterns, stay: np.ndarray) -> Patterns:
    """Keep the items `stay`."""
    return data if stay.all() else replace(data, y=data.y[stay], masks=data.masks[:, stay])


def _spread(curves: Curves, found: Solution) -> Curves:
    """Lay a solution out over all items."""
    values = []
    for name in ("a", "d", "g", "u"):
        value = getattr(curves, name).copy()
        value[found.inner] = getattr(found.curves, name)
        values.append(value)
    return Curves(*values)


def _score(objective: Objective | Asymptotic, x: np.ndarray, grid: Grid) -> np.ndarray:
    """Derivative of the penalised marginal log-likelihood, (P,)."""
    if isinstance(objective, Asymptotic):
        e = objective.expect(x, grid)
        return objective.collapse(objective.score(objective.widen(x), e, grid)[0].ravel())
    a, d = objective.unpack(x)
    return information._collapse(objective, objective.derivatives(a, d, objective.expect(x, grid), grid)[0])


def _locations(objective: Objective | Asymptotic, x: np.ndarray) -> np.ndarray:
    curves = _curves(objective, x)
    return np.asarray(-curves.d / curves.a)


def _curves(objective: Objective | Asymptotic, x: np.ndarray) -> Curves:
    return objective.unpack(x) if isinstance(objective, Asymptotic) else Curves.plain(*objective.unpack(x))


def _inverse(objective: Objective | Asymptotic, x: np.ndarray, grid: Grid) -> np.ndarray | None:
    """Invert the observed information; None where it is too large, not positive definite, or a parameter at its end."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    size, data = len(x), objective.data
    if isinstance(objective, Asymptotic):
        low, high = objective.bounds()
        if not observed.is_exact(objective, grid) or (x <= low).any() or (x >= high).any():
            return None
        found = observed.observed(objective, objective.widen(x), objective.expect(x, grid), grid)
    else:
        work = (len(data.masks) * len(grid.nodes) + 4 * len(data.weight)) * size**2
        a, d = objective.unpack(x)
        if size > MOST_PARAMETERS or work > MOST_OPERATIONS or (np.abs(a) >= BOUND).any():
            return None
        e = objective.expect(x, grid)
        found = information._observed(objective, a, d, e, objective.derivatives(a, d, e, grid)[1], grid)
    try:
        inverse: np.ndarray = cho_solve(cho_factor(found, lower=True), np.eye(size))
    except (LinAlgError, ValueError):
        return None
    return inverse


def _unguided(
    objective: Objective | Asymptotic, x: np.ndarray, gone: np.ndarray
) -> tuple[Objective | Asymptotic, np.ndarray]:
    """Return the objective of the respondents who go alone (patterns with counts `gone`), without priors."""
    data, at = objective.data, np.flatnonzero(gone)
    groups, group = np.unique(data.group[at], return_inverse=True)
    some = Patterns(data.y[:, at], data.masks[groups], group, gone[at].astype(np.float64), np.arange(len(at)))
    if isinstance(objective, Asymptotic):
        return replace(objective, data=some, weak_curve=False, weak_asymptotes=False), x
    return replace(objective, data=some, weak_priors=False), x


def _chord(
    objective: Objective | Asymptotic,
    x: np.ndarray,
    inverse: np.ndarray,
    grid: Grid,
    bound: float,
    first: np.ndarray | None,
) -> tuple[np.ndarray, int] | None:
    """Take steps with one and the same matrix, accelerated by Anderson's mixing, until they are short enough.

    A step is the distance to go times the part of the information that the matrix overstates, so it is stopped at a
    hundredth of the bound. `first` is the score at x where it is known. None where steps do not shrink.
    """
    here, best = _locations(objective, x), np.inf
    points: list[np.ndarray] = []
    moves: list[np.ndarray] = []
    for turn in range(1, STEPS + 1):
        score = first if turn == 1 and first is not None else _score(objective, x, grid)
        move = inverse @ score
        if not np.abs(move).max() < LONGEST:
            return None
        points, moves = [*points, x][-MEMORY:], [*moves, move][-MEMORY:]
        near = _locations(objective, x + move)
        moved = float(np.abs(near - here).max())
        if moved <= TIGHT * bound:
            return x + move, turn
        if not moved < 2.0 * best:
            return None
        best = min(best, moved)
        x = x + move
        if len(points) > 1:
            change = np.diff(np.array(moves), axis=0).T
            mix = np.linalg.lstsq(change, move, rcond=1e-10)[0]
            mixed = x - (np.diff(np.array(points), axis=0).T + change) @ mix
            x = mixed if np.abs(mixed - x).max() < LONGEST and objective.inside(mixed) else x
        if not (objective.inside(x) and np.isfinite(objective.prior(x))):
            return None
        here = _locations(objective, x)
    return None


def _kept(objective: Objective | Asymptotic, stay: np.ndarray) -> np.ndarray:
    """Which parameters of the full model are those of the items `stay`, (P,)."""
    kinds = {"2pl": "free", "1pl": "common", "fixed": "given"}
    slope, rows = (
        (str(objective.slope), objective.parts - 1)
        if isinstance(objective, Asymptotic)
        else (kinds[objective.model], 1)
    )
    own = np.tile(stay, rows)
    first = {"free": stay, "common": np.ones(1, dtype=bool), "given": np.zeros(0, dtype=bool)}[slope]
    return np.concatenate([first, own])


def _conditional(inverse: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Inverse of a part of a matrix from the inverse of the whole."""
    if kept.all():
        return inverse
    cross = inverse[np.ix_(kept, ~kept)]
    found: np.ndarray = inverse[np.ix_(kept, kept)] - cross @ np.linalg.solve(inverse[np.ix_(~kept, ~kept)], cross.T)
    return found

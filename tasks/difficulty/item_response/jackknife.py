"""Marginal fits without some respondents, by Newton's steps with the information of all.

At the full solution the score of all respondents is zero, so that of all but some is minus theirs, and one step with
the observed information of all is the infinitesimal jackknife. Further steps use the same matrix, which is wrong by the
information that was left out only; each costs one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.difficulty.item_response import information, observed
from gradatim.tasks.difficulty.item_response.asymptotes import Asymptotic
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.fit import IRTFit, fit_irt
from gradatim.tasks.difficulty.item_response.marginal import BOUND, Grid, Objective, Patterns, group_patterns
from gradatim.tasks.difficulty.item_response.specify import specify

BOUNDED = 1e-4
"""Largest distance of a location from that of a refit, logits."""
TIGHT, SLOW = 0.1, 1e-3
"""Newton's steps go on until one is this share of the bound; those of the EM algorithm, which converge slowly."""
FEW_PARAMETERS, MOST_PARAMETERS, MOST_OPERATIONS, MANY = 700, 3000, 2e11, 10
"""Parameters up to which the information is inverted, for less than `MANY` respondents and for more; and its work."""
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
    def of(cls, matrix: np.ndarray, fit: IRTFit, *, times: int = 1, **settings: Any) -> Full:
        """Invert the observed information at the fit, where that pays off for `times` that some are left out.

        Seconds and some 200 MB at most.
        """
        matrix = np.asarray(matrix)
        inner = np.flatnonzero(fit.extreme == 0)
        data = group_patterns(matrix[:, inner])
        bare = cls(matrix, fit, settings, data, None)
        found = bare._objective(data, len(matrix), inner)
        if found is None:
            return bare
        with one_thread():  # more threads would add in another order
            return replace(
                bare, inverse=_inverse(*found, fit.grid, FEW_PARAMETERS if times < MANY else MOST_PARAMETERS)
            )

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
            inverse = _conditional(self.inverse, _kept(objective, stay))
            with one_thread():
                first = -_score(*_unguided(objective, x, gone), self.fit.grid) if stay.all() else None
                found = _chord(objective, x, inverse, share, self.fit.grid, bound, first)
            if found is not None:
                x, steps = found
                return Solution(_curves(objective, x), inner, steps)
        some = self.matrix[np.ix_(keep, inner)]
        warm = refit(some, self.fit, inner, {**self.settings, "errors": False, "tolerance": SLOW * bound})
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


def refit(some: np.ndarray, fit: IRTFit, items: np.ndarray, settings: Mapping[str, Any]) -> IRTFit:
    """Fit some respondents' answers to some items with the EM algorithm from where the full fit ended."""
    return fit_irt(some, start=(fit.curves.part(items), fit.grid), **of_items(settings, items))


def of_items(settings: Mapping[str, Any], items: np.ndarray) -> dict[str, Any]:
    """Keep of settings that hold a number an item those of some."""
    found = dict(settings)
    for name in ("guessing", "choices"):
        if isinstance(found.get(name), np.ndarray) and found[name].ndim == 1:
            found[name] = np.asarray(found[name])[items]
    return found


def _specified(settings: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {"model": "1pl", "slope": "free", "guessing": None, "priors": "auto", "choices": 5}
    return {name: settings.get(name, value) for name, value in defaults.items()}


def _part(data: Patterns, stay: np.ndarray) -> Patterns:
    """Keep the items `stay`."""
    return data if stay.all() else replace(data, y=data.y[stay], masks=data.masks[:, stay])


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


def _inverse(objective: Objective | Asymptotic, x: np.ndarray, grid: Grid, most: int) -> np.ndarray | None:
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
        if size > most or work > MOST_OPERATIONS or (np.abs(a) >= BOUND).any():
            return None
        e = objective.expect(x, grid)
        found = information._observed(objective, a, d, e, objective.derivatives(a, d, e, grid)[1], grid)
    try:
        inverse: np.ndarray = cho_solve(cho_factor(found, lower=True), np.eye(size))
    except (LinAlgError, ValueError):
        return None
    return inverse if size <= FEW_PARAMETERS else inverse.astype(np.float32)  # it only says where to step


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
    share: float,
    grid: Grid,
    bound: float,
    first: np.ndarray | None,
) -> tuple[np.ndarray, int] | None:
    """Take steps with one and the same matrix (times `share`), mixed by Anderson's rule, until they are short enough.

    A step is the distance to go times the part of the information that the matrix overstates, so it is stopped at a
    hundredth of the bound. `first` is the score at x where it is known. None where steps do not shrink.
    """
    here, best = _locations(objective, x), np.inf
    points: list[np.ndarray] = []
    moves: list[np.ndarray] = []
    for turn in range(1, STEPS + 1):
        score = first if turn == 1 and first is not None else _score(objective, x, grid)
        move = share * np.asarray(inverse @ score.astype(inverse.dtype), dtype=np.float64)
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

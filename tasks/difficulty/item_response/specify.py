"""From the settings of `fit_irt` to a model: what is estimated, what is given, which priors count, where to start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response.asymptotes import Asymptotic
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.marginal import Objective, Patterns, sigma

FEW = 250
"""Below so many respondents the 2PL's weak priors are on by default."""
MAX_CELLS = 2_000_000_000
MODELS = ("1pl", "2pl", "3pl", "4pl")
NEARLY_NONE = 0.02


@dataclass(frozen=True)
class Model:
    """A model of the items that tell respondents apart.

    Attributes
    ----------
    slope : "free", "common" or "given"
    slope_at : float
        The given slope, or where to start.
    lower, upper : bool
        Whether g and u are estimated.
    g : (J',) float64
        The given lower asymptotes, 0 where there is none.
    all_g : (J,) float64
        The same of all items, extreme ones too.
    weak : bool
        Whether weak priors count.
    centre : (J',) float64
        logit(1 / K).
    slope_said, guessing_said : str
        How the fit calls them.
    """

    slope: Literal["free", "common", "given"]
    slope_at: float
    lower: bool
    upper: bool
    g: np.ndarray
    all_g: np.ndarray
    weak: bool
    centre: np.ndarray
    slope_said: str
    guessing_said: str

    @property
    def bare(self) -> bool:
        """Whether every curve runs from 0 to 1."""
        return not (self.lower or self.upper or self.g.any())

    def with_slope_one(self, said: str) -> Model:
        """Return the same with given slopes of 1."""
        return replace(self, slope="given", slope_at=1.0, slope_said=said)

    def plain(self, data: Patterns) -> Objective:
        """Return the objective of the same model without asymptotes."""
        kind = {"free": "2pl", "common": "1pl", "given": "fixed"}[self.slope]
        return Objective(data, kind, np.full(len(self.g), self.slope_at), self.weak and self.slope == "free")

    def asymptotic(self, data: Patterns, at: Curves) -> Asymptotic:
        """Return the objective, to start at some curves."""
        return Asymptotic(data, self.slope, at, self.lower, self.upper, self.weak, self.weak, self.centre)

    def starts(self) -> list[np.ndarray]:
        """Return lower asymptotes (J',) to start from; without priors also nearly none, as there may be two peaks."""
        if not self.lower:
            return [self.g]
        from_prior = sigma(self.centre)
        return [from_prior] if self.weak else [from_prior, np.full(len(self.g), NEARLY_NONE)]


def start_curves(model: Model, plain: Objective, x: np.ndarray, g: np.ndarray) -> Curves:
    """Return curves near those of the plain model at `x` that have lower asymptotes near `g`."""
    a, d = plain.unpack(x)
    if model.weak and model.slope != "given":  # the prior of b allows no slope of 0, nor that of a one below
        a = np.maximum(a, 0.1)
    p = np.clip(plain.score_sums() / plain.answered(), 1e-3, 1 - 1e-3)
    g = np.minimum(g, 0.7 * p) if model.lower else g
    u = np.maximum(1 - 0.5 * sigma(model.centre), p + 0.7 * (1 - p)) if model.upper else np.ones(len(a))
    share = np.clip((p - g) / (u - g), 0.02, 0.98)
    move = np.log(share / (1 - share)) - np.log(p / (1 - p))
    return Curves(np.clip(a, -5.0, 5.0), np.clip(d + move * np.sqrt(1 + a**2 / 2.89), -20.0, 20.0), g, u)


def specify(
    n: int,
    items: int,
    inner: np.ndarray,
    model: str,
    slope: str | float,
    guessing: float | np.ndarray | None,
    priors: str,
    choices: float | np.ndarray,
) -> Model:
    """Resolve the settings of `fit_irt` (checked before) for n respondents and the items `inner` of `items`.

    Raises
    ------
    DataRefused
        If free slopes or asymptotes meet fewer than three items that tell respondents apart.
    """
    lower, upper = model in ("3pl", "4pl") and guessing is None, model == "4pl"
    kind, start, said = _slope(model, slope, len(inner))
    if len(inner) < 3 and (kind == "free" or lower or upper):
        raise DataRefused(
            f"only {len(inner)} of {items} items tell respondents apart, which cannot identify a {model.upper()}",
            where="fit_irt",
            expected="3 or more items that some got right and others wrong",
            remedy="use model 1pl, or pass_rate",
        )
    all_g = np.broadcast_to(np.asarray(0.0 if guessing is None else guessing, dtype=np.float64), (items,)).copy()
    k = np.broadcast_to(np.asarray(choices, dtype=np.float64), (items,))[inner]
    asymptotes = lower or upper or bool(all_g[inner].any())
    weak = priors == "weak" or (priors == "auto" and (asymptotes or (kind == "free" and n < FEW)))
    known = "none" if guessing is None or not all_g.any() else "given"
    return Model(
        slope=kind,
        slope_at=start,
        lower=lower,
        upper=upper,
        g=all_g[inner],
        all_g=all_g,
        weak=weak,
        centre=-np.log(k - 1.0),
        slope_said=said,
        guessing_said="free" if lower else known,
    )


def _slope(model: str, slope: str | float, inner: int) -> tuple[Literal["free", "common", "given"], float, str]:
    """Return the kind of slope, the slope to start from or to hold, and how it is called."""
    if not isinstance(slope, str):
        return "given", float(slope), "given"
    if slope == "fixed":
        return "given", 1.0, "fixed"
    if model != "1pl" and slope == "free":
        return "free", 1.0, "free"
    if inner >= 2:
        return "common", 1.0, "free" if model == "1pl" else "common"
    return "given", 1.0, "fixed: fewer than two items tell respondents apart"


def check(
    matrix: np.ndarray,
    model: str,
    slope: str | float,
    guessing: float | np.ndarray | None,
    priors: str,
    choices: float | np.ndarray,
) -> None:
    """Refuse settings that contradict each other, and data that no model describes; raises as `fit_irt`."""
    check_model(model, slope, priors, "fit_irt")
    if model == "1pl" and priors == "weak" and (guessing is None or not np.any(np.asarray(guessing))):
        raise UsageError("the 1PL has no priors", where="fit_irt: priors", remedy="use model 2pl, or leave priors out")
    if matrix.ndim != 2:
        raise UsageError(f"found an array of shape {matrix.shape}", where="fit_irt", expected="(respondents, items)")
    n, items = matrix.shape
    for name, given, low, high in (("guessing", guessing, 0.0, 0.98), ("choices", choices, 1.001, np.inf)):
        if given is None:
            continue
        value = np.asarray(given, dtype=np.float64)
        if value.shape not in ((), (items,)):
            raise UsageError(
                f"found an array of shape {value.shape}", where=f"fit_irt: {name}", expected=f"a number, or {items}"
            )
        if not ((value >= low) & (value <= high)).all():
            raise UsageError(
                f"{name} holds {value.min():g} to {value.max():g}",
                where=f"fit_irt: {name}",
                expected="chances of at least 0 and below 0.98" if name == "guessing" else "2 choices or more",
            )
    if n < 2 or items < 1:
        raise DataRefused(
            f"{n} respondents and {items} items: a model of who can do what needs several of the first",
            where="fit_irt",
            expected="at least 2 respondents and 1 item",
            remedy="use pass_rate, which needs one",
        )
    if matrix.size > MAX_CELLS:
        raise DataRefused(
            f"{n:,} respondents x {items:,} items are {matrix.size:,} cells",
            where="fit_irt",
            expected=f"at most {MAX_CELLS:,}",
            remedy="use pass_rate, or fit fewer respondents",
        )
    finite = np.isfinite(matrix)
    if (np.isinf(matrix)).any() or (matrix[finite] < 0).any() or (matrix[finite] > 1).any():
        raise DataRefused("a score lies outside of [0, 1]", where="fit_irt", expected="scores in [0, 1] or NaN")
    if not finite.any(axis=0).all():
        column = int(np.flatnonzero(~finite.any(axis=0))[0])
        raise DataRefused(f"item {column} has no response", where="fit_irt", remedy="leave it out")


def scores_for(matrix: np.ndarray, items: int, where: str) -> np.ndarray:
    """Return scores (m, J) for a fit of J items as float64, NaN where missing.

    Raises
    ------
    UsageError
        If the array has not J columns.
    DataRefused
        If a score lies outside of [0, 1].
    """
    scores = np.asarray(matrix, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] != items:
        raise UsageError(
            f"found an array of shape {scores.shape}", where=where, expected=f"(respondents, {items} items of the fit)"
        )
    if not (np.isnan(scores) | ((scores >= 0) & (scores <= 1))).all():
        raise DataRefused("a score lies outside of [0, 1]", where=where, expected="scores in [0, 1] or NaN")
    return scores


def check_model(model: str, slope: str | float, priors: str, where: str) -> None:
    """Refuse a model, slope or priors that there are not, or that do not go together; `where` names the function."""
    if model not in MODELS:
        raise UsageError(f"there is no model {model!r}", where=f"{where}: model", expected=", ".join(MODELS))
    if priors not in ("auto", "none", "weak"):
        raise UsageError(f"there are no priors {priors!r}", where=f"{where}: priors", expected="auto, none or weak")
    if isinstance(slope, str) and slope not in ("free", "common", "fixed"):
        raise UsageError(
            f"there is no slope {slope!r}", where=f"{where}: slope", expected="free, common, fixed or a number"
        )
    if not isinstance(slope, str) and not (np.isfinite(slope) and slope != 0):
        raise UsageError(f"found a slope of {slope}", where=f"{where}: slope", expected="a finite number other than 0")
    if model == "2pl" and slope != "free":
        raise UsageError("a 2PL has one free slope an item", where=f"{where}: slope", remedy="use model 1pl")

"""From responses to a fitted item response model: which estimator, which settings an item, how reliable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.difficulty.item_response.fit import IRTFit, fit_irt
from gradatim.tasks.difficulty.item_response.joint import JointFit, fit_joint
from gradatim.tasks.difficulty.item_response.joint_halves import locations_given
from gradatim.tasks.difficulty.item_response.leave_out import leave_out
from gradatim.tasks.difficulty.reliability import growth, separation, split_half
from gradatim.tasks.difficulty.responses import Responses

Estimator = Literal["auto", "marginal", "joint"]
MANY_ITEMS, MANY_CELLS = 5_000, 2_000_000
"""From so many examples, or so large a matrix, on the joint fit is used: the marginal one then takes some ten times as
long, and the two differ by less than .001 in rank correlation (docs/difficulty/irt.md)."""
FEW_ITEMS, LARGE_CELLS = 200, 20_000_000
"""With fewer examples than this the marginal fit is the quicker one however many respondents there are, and the better
one where abilities are known badly; up to a matrix that takes a gigabyte on the way."""
MOST_CELLS = 400_000_000
"""Largest matrix of a marginal fit: 1.6 GB, and some copies."""
PER_ITEM = ("guessing", "choices")


@dataclass(frozen=True)
class Calibration:
    """Responses, the model fitted to them, and the settings that it was fitted with.

    Attributes
    ----------
    responses : Responses
    fit : IRTFit or JointFit
    settings : dict
        Keywords of `fit_irt` or `fit_joint`.
    why : str
        Why this estimator.
    """

    responses: Responses
    fit: IRTFit | JointFit
    settings: dict[str, Any]
    why: str

    @property
    def joint(self) -> bool:
        """Whether items and abilities were estimated together."""
        return isinstance(self.fit, JointFit)

    def without(self, rows: np.ndarray) -> Calibration:
        """Fit the others, from where this fit stands."""
        fit, stay = leave_out(self.responses.cells, self.fit, rows, **self.settings)
        keep = np.setdiff1d(np.arange(self.responses.cells.n), rows)
        some = self.responses.part(np.arange(self.responses.cells.items), keep)
        return Calibration(some, fit, of_items(self.settings, stay), self.why)


def choose(estimator: Estimator, n: int, items: int) -> tuple[Literal["marginal", "joint"], str]:
    """Choose the estimator for n respondents and J examples, and say why."""
    if estimator != "auto":
        return estimator, "asked for"
    if items >= MANY_ITEMS:
        return "joint", f"{items:,} examples, {MANY_ITEMS:,} or more"
    most = MANY_CELLS if items >= FEW_ITEMS else LARGE_CELLS
    if n * items >= most:
        return "joint", f"{n:,} respondents x {items:,} examples, {most:,} or more"
    if n * items >= MANY_CELLS:
        return "marginal", f"fewer than {FEW_ITEMS:,} examples"
    return "marginal", f"fewer than {MANY_ITEMS:,} examples and {MANY_CELLS:,} respondents x examples"


def calibrate(responses: Responses, estimator: Estimator, settings: dict[str, Any]) -> Calibration:
    """Fit responses by the estimator that is asked for, or fits their size; raises as `fit_irt` and `fit_joint`."""
    cells = responses.cells
    chosen, why = choose(estimator, cells.n, cells.items)
    if chosen == "marginal" and cells.n * cells.items > MOST_CELLS:
        raise DataRefused(
            f"{cells.n:,} respondents x {cells.items:,} examples are too many for a matrix",
            where="difficulty irt: estimator: marginal",
            expected=f"at most {MOST_CELLS:,}",
            remedy="leave estimator out, or set it to joint, which keeps cells sparse",
        )
    fit: IRTFit | JointFit
    fit = fit_irt(responses.matrix, **settings) if chosen == "marginal" else fit_joint(cells, **settings)
    return Calibration(responses, fit, settings, why)


def of_items(settings: dict[str, Any], items: np.ndarray) -> dict[str, Any]:
    """Keep the settings of some items."""
    some = {name: settings[name][items] for name in PER_ITEM if isinstance(settings.get(name), np.ndarray)}
    return {**settings, **some}


def reliability(made: Calibration, seed: int, splits: int) -> tuple[float | None, str, pl.DataFrame | None]:
    """Split-half where there are enough respondents, else from standard errors; its name; and how it grows with them.

    Halves of a joint fit are estimated with the abilities of all, known from many examples. Growth is measured where
    that takes seconds.
    """
    respondents = made.responses.respondents.to_list()
    estimate = _joint_halves(made) if made.joint else _marginal_halves(made)
    try:
        found = split_half(estimate, respondents, seed=seed, splits=splits)
    except DataRefused:  # a half too poor to be fitted
        found = None
    if found is None:
        return separation(made.fit.b, made.fit.se_b), "from standard errors", None
    size = made.responses.cells.n * made.responses.cells.items
    draws = 0 if splits == 0 or size > 2_000_000 else 1 if size > 20_000 else 3
    grown = growth(estimate, respondents, seed=seed, draws=draws, overall=found) if draws else None
    return found, f"split-half, {splits} splits", grown


def _marginal_halves(made: Calibration) -> Callable[[np.ndarray], np.ndarray]:
    matrix, fit = made.responses.matrix, made.fit
    # halves of few respondents cannot estimate a common slope: they take the one of all
    held: dict[str, Any] = {"slope": float(fit.a[0])} if fit.model == "1pl" and len(fit.a) else {}

    def estimate(rows: np.ndarray) -> np.ndarray:
        half = matrix[rows]
        answered = np.flatnonzero(np.isfinite(half).any(axis=0))
        values = np.full(matrix.shape[1], np.nan)
        how = {**of_items(made.settings, answered), **held, "errors": False, "tolerance": 1e-4}
        values[answered] = fit_irt(half[:, answered], **how).b
        return values

    return estimate


def _joint_halves(made: Calibration) -> Callable[[np.ndarray], np.ndarray]:
    cells, fit = made.responses.cells, made.fit
    assert isinstance(fit, JointFit)

    def estimate(rows: np.ndarray) -> np.ndarray:
        half, answered = cells.among(rows)
        values = np.full(cells.items, np.nan)
        values[answered] = locations_given(half, fit.abilities[rows], fit, answered)
        return values

    return estimate


def item_settings(
    examples: pl.Series, guessing: float | str | None, choices: str | None, table: pl.DataFrame | None
) -> dict[str, Any]:
    """Return `guessing` and `choices` of `fit_irt` for examples (J,), from settings and a column of numbers of choices.

    Parameters
    ----------
    examples : polars.Series of String
    guessing : float, "1/K" or None
    choices : str, optional
        Column of `table` that holds the number of choices of each example. Null means an open question: guessed by
        nobody, or with the prior of five choices where guessing is estimated.
    table : polars.DataFrame, optional
        example_id and that column.

    Raises
    ------
    DataRefused
        If a number of choices is no number of 2 or more, or an answered example is not in the table.
    UsageError
        If there is no such column.
    """
    if choices is None:
        return {"guessing": guessing}
    if table is None or choices not in table.columns:
        columns = [] if table is None else table.columns
        raise UsageError(
            f"the examples have no column {choices!r}{nearest(choices, columns)}",
            where="difficulty irt: choices",
            expected="a column with the number of choices of each example",
        )
    known = table.select(pl.col("example_id").cast(pl.String), pl.col(choices).alias("k")).unique("example_id")
    joined = pl.DataFrame({"example_id": examples}).join(known, on="example_id", how="left", maintain_order="left")
    k = joined["k"].cast(pl.Float64, strict=False)
    lost = joined.filter(~pl.col("example_id").is_in(known["example_id"].implode()))
    wrong = joined.filter((k < 2) | k.is_nan() | (k.is_null() & joined["k"].is_not_null()))
    for frame, what in ((lost, "is not among the examples"), (wrong, "has no number of choices of 2 or more")):
        if len(frame):
            raise DataRefused(
                f"{len(frame)} of {len(joined)} answered examples: {frame['example_id'][0]!r} {what}",
                where=f"difficulty irt: choices: {choices}",
                expected="a number of choices, 2 or more, or null where the answer is open",
                remedy="mend the column, or give one number: guessing: 0.25",
            )
    shares = (1.0 / k).fill_null(0.0).to_numpy()
    return {"guessing": shares if guessing == "1/K" else guessing, "choices": k.fill_null(5.0).to_numpy()}

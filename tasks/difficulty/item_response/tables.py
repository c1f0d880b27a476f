"""What a calibration says in tables, flags, notes and warnings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.summary import Cell
from gradatim.tasks.core.frames import conform
from gradatim.tasks.difficulty.item_response.calibration import Calibration
from gradatim.tasks.difficulty.item_response.fit import IRTFit
from gradatim.tasks.difficulty.item_response.marginal import BOUND
from gradatim.tasks.difficulty.item_response.orientation import score_correlations

FEW, FEW_ASYMPTOTIC = 50, 200
"""Respondents below which discriminations, and asymptotes, say little (simulated in docs/difficulty/irt.md)."""
BACKWARDS = "negative discrimination: abler respondents do worse"
WIDE = 10.0
"""Standard error of a location, in logits, from which on it says nothing: abilities lie within some three of 0."""


def flags(made: Calibration) -> np.ndarray:
    """Why an example's parameters should be read with care, (J,) of str or None."""
    fit, cells = made.fit, made.responses.cells
    r = score_correlations(cells, fit.abilities)
    backwards = (fit.extreme == 0) & (r < -1.96 / np.sqrt(cells.answered))
    flag = np.full(cells.items, None, dtype=object)
    flag[fit.se_b > WIDE] = f"hardly any discrimination: the location has an error of more than {WIDE:.0f} logits"
    flag[backwards | (fit.a < 0)] = BACKWARDS
    steep = np.abs(fit.a) >= 0.99 * BOUND
    flag[fit.at_bound & steep] = "separates respondents perfectly: discrimination at its bound"
    flag[fit.at_bound & ~steep] = "fewer are right than guess: location at its bound"
    flag[fit.asymptote_at_bound] = "an asymptote ran to the end of its range"
    flag[fit.extreme > 0] = "all right: placed as if half a response were wrong"
    flag[fit.extreme < 0] = "none right: placed as if half a response were right"
    return flag


def warnings_of(made: Calibration) -> list[str]:
    """What to read with care in the whole calibration."""
    fit, found = made.fit, []
    n = fit.n_respondents
    if fit.guessing == "free" or fit.model == "4pl":
        if n < FEW_ASYMPTOTIC:
            found.append(
                f"a {fit.model} of {n} respondents says little about asymptotes ({FEW_ASYMPTOTIC} or more are better, "
                "or a given guessing)"
            )
    elif fit.model != "1pl" and fit.slope == "free" and n < FEW:
        found.append(f"a {fit.model} of {n} respondents says little about discriminations ({FEW} or more are better)")
    if not fit.converged:
        found.append("the fit did not settle: read its numbers with care")
    if isinstance(fit, IRTFit) and not fit.resolved:
        found.append(f"{fit.nodes} quadrature nodes do not resolve every respondent")
    if fit.slope.startswith("fixed:"):
        found.append(f"slope 1 instead of a free one ({fit.slope[7:]})")
    right, count = made.responses.cells.respondent_totals()
    for hits, word in ((right >= count - 1e-9, "everything right"), (right <= 1e-9, "nothing right")):
        if hits.any():
            found.append(f"{int(hits.sum())} of {n} respondents have {word}: their abilities rest on the prior")
    return found


def notes_of(made: Calibration, reliability: str) -> dict[str, Cell]:
    """Facts of the estimation by name."""
    fit, responses = made.fit, made.responses
    cells = responses.cells
    notes: dict[str, Cell] = {
        "respondents": fit.n_respondents,
        "responses": responses.attempts,
        "not attempted": cells.n * cells.items - cells.size,
        "model": fit.model,
        "estimator": "joint MAP" if made.joint else "marginal ML",
        "estimator chosen because": made.why,
        "slope": fit.slope,
        "guessing": fit.guessing,
        "priors": fit.priors,
        "log-likelihood": round(fit.loglik, 4),
        "parameters": fit.n_parameters,
        "AIC": round(fit.aic, 3),
        "BIC": round(fit.bic, 3),
        "passes": fit.n_iter,
        "converged": fit.converged,
        "standard errors": fit.errors,
        "reliability is": reliability,
    }
    if isinstance(fit, IRTFit):
        notes["quadrature"] = f"{fit.nodes} nodes on ±{fit.limit:g}"
    else:
        notes["log-likelihood is"] = "marginal, by Laplace's approximation"
    if fit.model == "1pl" and len(fit.a):
        notes["discrimination"] = round(float(fit.a[0]), 4)
    if responses.repeated:
        notes["cells with several attempts, averaged"] = responses.repeated
    if responses.fractional:
        notes["fractional cells, counted as that share of a right response"] = responses.fractional
    if responses.missing:
        notes["rows without a score, not attempted"] = responses.missing
    return notes


def item_parameters(parts: Sequence[Calibration], name: str) -> pl.DataFrame:
    """Lay the items of one or several calibrations out as the table of this name."""
    frames = []
    for made in parts:
        fit = made.fit
        columns = {
            "discrimination": fit.a,
            "location": fit.b,
            "lower": fit.g,
            "upper": fit.u,
            "discrimination_error": fit.se_a,
            "location_error": fit.se_b,
            "lower_error": fit.se_g,
            "upper_error": fit.se_u,
            "fit": fit.infit,
        }
        frame = pl.DataFrame({key: pl.Series(value, dtype=pl.Float64).fill_nan(None) for key, value in columns.items()})
        frames.append(frame.with_columns(example_id=made.responses.examples, method=pl.lit(name)))
    return conform(pl.concat(frames), "item_parameters")


def respondent_table(parts: Sequence[Calibration], known: pl.DataFrame | None) -> pl.DataFrame:
    """Lay the respondents of one or several calibrations out as the table `respondents`."""
    frame = pl.concat(
        pl.DataFrame(
            {
                "respondent_id": made.responses.respondents,
                "ability": made.fit.abilities,
                "standard_error": made.fit.ability_se,
                "n": made.responses.cells.respondent_totals()[1],
            }
        )
        for made in parts
    )
    if known is not None and "family" in known.columns:
        family = known.select(pl.col("respondent_id", "family").cast(pl.String)).unique("respondent_id", keep="any")
        frame = frame.join(family, on="respondent_id", how="left")
    else:
        frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("family"))
    return conform(frame, "respondents")

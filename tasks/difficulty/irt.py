"""IRT 1PL and 2PL: difficulty and ability on one scale, right also where respondents saw different examples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.fit import IRTFit, fit_irt
from gradatim.tasks.difficulty.reliability import separation, split_half
from gradatim.tasks.difficulty.responses import Responses, find_parts, to_cells, without
from gradatim.tasks.difficulty.result import Difficulty, build, conform, method_name, unanswered

FEW_RESPONDENTS = 50


class IRTConfig(Config):
    """Settings of `irt`."""

    model: Literal["1pl", "2pl"] = Field("1pl", description="one discrimination for all examples, or one an example")
    slope: Literal["free", "fixed"] = Field(
        "free", description="1pl: estimate the common discrimination, or set it to 1"
    )
    priors: Literal["auto", "none", "weak"] = Field(
        "auto", description="2pl: log a ~ N(0, .5), b ~ N(0, 2); auto is weak below 250 respondents, else none"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")
    splits: int = Field(5, ge=0, le=100, description="random halves behind the reliability; 0 takes standard errors")
    disconnected: Literal["refuse", "flag"] = Field(
        "refuse", description="what to do when parts of the data share neither respondents nor examples"
    )

    @model_validator(mode="after")
    def _agree(self) -> IRTConfig:
        if self.model == "2pl" and self.slope == "fixed":
            raise ValueError("slope: a 2pl has one free slope an example; use model 1pl")
        if self.model == "1pl" and self.priors == "weak":
            raise ValueError("priors: the 1pl has none; use model 2pl, or leave priors out")
        return self


def _cost(rows: int, width: int) -> Cost:
    nodes = float(np.clip(5.4 * rows**0.5, 61, 3841))
    passes = 40 + 10 * 12  # the fit, and ten looser ones of half the respondents
    cells = float(rows) * max(width, 1)
    return Cost(0.5 + passes * (6e-8 * rows * nodes + 6e-9 * cells) + 2e-6 * cells, 2e8 + 60 * cells)


@register(
    "difficulty",
    "irt",
    config=IRTConfig,
    needs=("responses.respondent_id", "responses.example_id", "responses.score"),
    cost=_cost,
    source="R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an "
    "EM algorithm. Psychometrika 46, 443-459",
)
def run(tables: Mapping[str, pl.DataFrame], config: IRTConfig, seed: int = 0) -> Difficulty:
    """Item response theory (1PL, 2PL): from who solved what, also where not everyone tried everything.

    Parameters
    ----------
    tables : mapping
        ``responses`` (respondent_id, example_id, score in [0, 1]); optionally ``respondents`` (respondent_id, family),
        for families, and ``examples`` (example_id), to list those that nobody answered.
    config : IRTConfig
    seed : int
        Seed of the random halves behind the reliability.

    Returns
    -------
    Difficulty
        value is the location b in logits on the scale where abilities are N(0, 1); n counts respondents.

    Raises
    ------
    DataRefused, UsageError
        As `responses.to_cells` and `fit.fit_irt`; also where parts of the data are not connected.
    """
    responses = to_cells(tables["responses"])
    found = find_parts(responses.cells)
    parts, sizes = found.count, found.sizes
    apart = responses.examples[int(np.flatnonzero(found.item)[0])] if parts > 1 else ""
    warnings: list[str] = []
    if parts > 1:
        what = (
            f"the responses fall into {parts} parts that share neither respondents nor examples ({sizes[0]:,} examples "
        )
        what += "in the largest, " + ", ".join(f"{s:,}" for s in sizes[1:4]) + f" in others, e.g. {apart!r})"
        if config.disconnected == "refuse":
            raise DataRefused(
                what,
                where="difficulty irt",
                expected="one connected part: difficulties of parts without a common respondent cannot be compared",
                remedy="drop the small parts, add respondents that answered both, or set disconnected: flag",
            )
        warnings.append(what + "; they are only comparable if their respondents are equally able")
    fit = fit_irt(responses.matrix, config.model, slope=config.slope, priors=config.priors)
    warnings += _warnings(fit, responses)
    value = fit.b
    reliability = _reliability(responses, fit, config, seed)
    seen = np.isfinite(responses.matrix)
    name = method_name("irt", config.model_dump(exclude={"bins", "splits", "disconnected"}), IRTConfig().model_dump())
    return build(
        method=name,
        title=f"irt {config.model}" + (" with slope 1" if config.slope == "fixed" else ""),
        ids=responses.examples,
        value=value,
        raw=fit.b,
        scale="logit",
        error=fit.se_b,
        n=seen.sum(axis=0),
        flag=_flags(fit, responses.matrix),
        bins=config.bins,
        reliability=reliability[0],
        warnings=warnings,
        item_parameters=_item_parameters(fit, responses, name),
        respondents=_respondents(fit, responses, seen, tables.get("respondents")),
        excluded=unanswered(tables, responses.examples),
        notes=_notes(fit, responses, reliability[1]),
        source=run_source(),
        refit=partial(_leave_out, dict(tables), config, seed),
    )


def run_source() -> str:
    """Papers behind this method."""
    return (
        "R. D. Bock, M. Aitkin (1981). Marginal maximum likelihood estimation of item parameters: application of an EM "
        "algorithm. Psychometrika 46, 443-459. T. A. Louis (1982). Finding the observed information matrix when using "
        "the EM algorithm. Journal of the Royal Statistical Society B 44, 226-233."
    )


def _leave_out(tables: Mapping[str, pl.DataFrame], config: IRTConfig, seed: int, name: str) -> Difficulty:
    kept, _ = without(tables["responses"], tables.get("respondents"), name)
    return run({**tables, "responses": kept}, config, seed)


def _reliability(responses: Responses, fit: IRTFit, config: IRTConfig, seed: int) -> tuple[float | None, str]:
    """Split-half where there are enough respondents, else from standard errors; and its name."""
    matrix = responses.matrix

    def estimate(rows: np.ndarray) -> np.ndarray:
        half = matrix[rows]
        answered = np.isfinite(half).any(axis=0)
        values = np.full(matrix.shape[1], np.nan)
        # halves of few respondents cannot estimate a common slope: they take the one of all
        slope: float | Literal["free"] = float(fit.a[0]) if config.model == "1pl" else "free"
        values[answered] = fit_irt(
            half[:, answered], config.model, slope=slope, priors=config.priors, errors=False, tolerance=1e-4
        ).b
        return values

    try:
        found = split_half(estimate, responses.respondents.to_list(), seed=seed, splits=config.splits)
    except DataRefused:  # a half too poor to be fitted
        found = None
    if found is not None:
        return found, f"split-half, {config.splits} splits"
    return separation(fit.b, fit.se_b), "from standard errors"


def _flags(fit: IRTFit, matrix: np.ndarray) -> list[str | None]:
    """Why an example's parameters should be read with care."""
    seen = np.isfinite(matrix)
    n = seen.sum(axis=0)
    theta = np.where(seen, fit.abilities[:, None], 0.0)
    score = np.where(seen, matrix, 0.0)
    mean_theta, mean_score = theta.sum(axis=0) / n, score.sum(axis=0) / n
    covariance = (theta * score).sum(axis=0) / n - mean_theta * mean_score
    spread = np.sqrt(
        np.maximum((theta**2).sum(axis=0) / n - mean_theta**2, 1e-12)
        * np.maximum((score.astype(np.float64) ** 2).sum(axis=0) / n - mean_score**2, 1e-12)
    )
    backwards = (fit.extreme == 0) & (covariance / spread < -1.96 / np.sqrt(n))
    flag = np.full(len(n), None, dtype=object)
    flag[backwards] = "negative discrimination: abler respondents do worse"
    flag[fit.a < 0] = "negative discrimination: abler respondents do worse"
    flag[fit.at_bound] = "separates respondents perfectly: discrimination at its bound"
    flag[fit.extreme > 0] = "all right: placed as if half a response were wrong"
    flag[fit.extreme < 0] = "none right: placed as if half a response were right"
    return list(flag)


def _warnings(fit: IRTFit, responses: Responses) -> list[str]:
    found = []
    if fit.model == "2pl" and fit.n_respondents < FEW_RESPONDENTS:
        found.append(
            f"a 2pl of {fit.n_respondents} respondents says little about discriminations (50 or more are better)"
        )
    if not fit.converged:
        found.append("the fit did not settle: read its numbers with care")
    if not fit.resolved:
        found.append(f"{fit.nodes} quadrature nodes do not resolve every respondent")
    if fit.slope.startswith("fixed:"):
        found.append(f"slope 1 instead of a free one ({fit.slope[7:]})")
    for kind, word in ((1, "everything right"), (-1, "nothing right")):
        hits = np.nanmean(responses.matrix, axis=1) == (1.0 if kind > 0 else 0.0)
        if hits.any():
            found.append(
                f"{int(hits.sum())} of {fit.n_respondents} respondents have {word}: their abilities rest on the prior"
            )
    return found


def _notes(fit: IRTFit, responses: Responses, kind: str) -> dict[str, Cell]:
    notes: dict[str, Cell] = {
        "respondents": fit.n_respondents,
        "responses": responses.attempts,
        "not attempted": int(np.isnan(responses.matrix).sum()),
        "model": fit.model,
        "slope": fit.slope,
        "priors": fit.priors,
        "log-likelihood": round(fit.loglik, 4),
        "parameters": fit.n_parameters,
        "AIC": round(fit.aic, 3),
        "BIC": round(fit.bic, 3),
        "passes": fit.n_iter,
        "converged": fit.converged,
        "quadrature": f"{fit.nodes} nodes on ±{fit.limit:g}",
        "standard errors": fit.errors,
        "reliability is": kind,
    }
    if fit.model == "1pl" and len(fit.a):
        notes["discrimination"] = round(float(fit.a[0]), 4)
    if responses.repeated:
        notes["cells with several attempts, averaged"] = responses.repeated
    if responses.fractional:
        notes["fractional cells, counted as that share of a right response"] = responses.fractional
    if responses.missing:
        notes["rows without a score, not attempted"] = responses.missing
    return notes


def _item_parameters(fit: IRTFit, responses: Responses, name: str) -> pl.DataFrame:
    count = len(fit.b)
    frame = pl.DataFrame(
        {
            "example_id": responses.examples,
            "method": [name] * count,
            "discrimination": fit.a,
            "location": fit.b,
            "lower": fit.g,
            "upper": fit.u,
            "discrimination_error": pl.Series(fit.se_a).fill_nan(None),
            "location_error": pl.Series(fit.se_b).fill_nan(None),
            "lower_error": pl.Series([None] * count, dtype=pl.Float64),
            "upper_error": pl.Series([None] * count, dtype=pl.Float64),
            "fit": pl.Series(fit.infit).fill_nan(None),
        }
    )
    return conform(frame, "item_parameters")


def _respondents(fit: IRTFit, responses: Responses, seen: np.ndarray, known: pl.DataFrame | None) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "respondent_id": responses.respondents,
            "ability": fit.abilities,
            "standard_error": fit.ability_se,
            "n": seen.sum(axis=1),
        }
    )
    if known is not None and "family" in known.columns:
        family = known.select(pl.col("respondent_id", "family").cast(pl.String)).unique("respondent_id", keep="any")
        frame = frame.join(family, on="respondent_id", how="left")
    else:
        frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("family"))
    return conform(frame, "respondents")

"""Pass rate: the share of failed attempts, with an interval."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.reliability import separation, split_half
from gradatim.tasks.difficulty.responses import checked, without
from gradatim.tasks.difficulty.result import Difficulty, build, method_name, unanswered

SOURCE = (
    "L. D. Brown, T. T. Cai, A. DasGupta (2001). Interval estimation for a binomial proportion. "
    "Statistical Science 16, 101-133"
)


class PassRateConfig(Config):
    """Settings of `pass_rate`."""

    interval: Literal["jeffreys", "wilson"] = Field("jeffreys", description="how the 95 % interval is made")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")
    splits: int = Field(5, ge=0, le=100, description="random halves behind the reliability; 0 takes standard errors")


@register(
    "difficulty",
    "pass_rate",
    config=PassRateConfig,
    needs=("responses.respondent_id", "responses.example_id", "responses.score"),
    cost=lambda rows, width: Cost(seconds=0.2 + 1e-6 * rows * max(width, 1), bytes=1e8 + 200.0 * rows * max(width, 1)),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: PassRateConfig, seed: int = 0) -> Difficulty:
    """Share of failed attempts, with interval; fair only where everyone tried everything.

    Parameters
    ----------
    tables : mapping
        ``responses`` (respondent_id, example_id, score in [0, 1]); optionally ``respondents`` (respondent_id, family)
        and ``examples`` (example_id). Each attempt counts once, whoever made it; a fractional score counts as that
        share of a success.
    config : PassRateConfig
    seed : int
        Seed of the random halves behind the reliability.

    Returns
    -------
    Difficulty
        value is 1 - rate, raw the rate, standard_error the standard deviation of the Beta(s + 1/2, n - s + 1/2)
        posterior, which is positive also for none and all; `intervals` those of value.

    Raises
    ------
    DataRefused, UsageError
        As `responses.checked`.

    Notes
    -----
    O(rows log rows).
    """
    frame = checked(tables["responses"])
    scored = frame.drop_nulls("score").sort("example_id", "respondent_id", "score")
    examples, item = codes(scored["example_id"])
    respondents, who = codes(scored["respondent_id"])
    score = scored["score"].to_numpy()
    n = np.bincount(item, minlength=len(examples))
    s = np.bincount(item, score, len(examples))
    rate = s / n
    low, high = (jeffreys if config.interval == "jeffreys" else wilson)(s, n)
    alpha, beta = s + 0.5, n - s + 0.5
    error = np.sqrt(alpha * beta / (n + 1.0) ** 2 / (n + 2.0))

    def estimate(members: np.ndarray) -> np.ndarray:
        inside = np.isin(who, members)
        tried = np.bincount(item[inside], minlength=len(examples))
        with np.errstate(invalid="ignore"):
            return 1.0 - np.bincount(item[inside], score[inside], len(examples)) / tried

    reliability, kind = split_half(estimate, respondents, seed=seed, splits=config.splits), "split-half"
    if reliability is None:
        reliability, kind = separation(1.0 - rate, error), "from standard errors"
    flag = np.full(len(n), None, dtype=object)
    flag[s >= n], flag[s <= 0] = "all right", "none right"
    cells = scored.select("example_id", "respondent_id").n_unique()
    notes: dict[str, Cell] = {
        "respondents": len(respondents),
        "responses": len(scored),
        "not attempted": len(examples) * len(respondents) - cells,
        "mean rate": round(float(score.mean()), 6),
        "mean learnability p(1-p)": round(float((rate * (1 - rate)).mean()), 6),
        "interval": config.interval,
        "reliability is": kind,
    }
    if len(scored) > cells:
        notes["attempts at the same example, each counted"] = len(scored) - cells
    if len(frame) > len(scored):
        notes["rows without a score, not attempted"] = len(frame) - len(scored)
    warnings = []
    if notes["not attempted"]:
        warnings.append(
            "not everyone tried everything: where abler respondents got harder examples, rates mislead and irt does not"
        )
    return build(
        method=method_name("pass_rate", config.model_dump(exclude={"bins", "splits"}), PassRateConfig().model_dump()),
        title="pass_rate",
        ids=examples,
        value=1.0 - rate,
        raw=rate,
        scale="probability",
        error=error,
        n=n,
        flag=list(flag),
        bins=config.bins,
        reliability=reliability,
        warnings=warnings,
        intervals=pl.DataFrame({"example_id": examples, "low": 1.0 - high, "high": 1.0 - low}),
        excluded=unanswered(tables, examples),
        notes=notes,
        source=SOURCE,
        refit=partial(_leave_out, dict(tables), config, seed),
    )


def jeffreys(s: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Equal-tailed interval of the Beta(s + 1/2, n - s + 1/2) posterior, 0 and 1 kept as ends: two (N,) arrays."""
    from scipy.special import betaincinv

    tail, alpha, beta = (1 - level) / 2, s + 0.5, n - s + 0.5
    low = np.where(s <= 0, 0.0, betaincinv(alpha, beta, tail))
    return low, np.where(s >= n, 1.0, betaincinv(alpha, beta, 1 - tail))


def wilson(s: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Score interval: two (N,) arrays. Source: E. B. Wilson (1927). Probable inference, the law of succession."""
    from scipy.special import ndtri

    z2 = float(ndtri(0.5 + level / 2)) ** 2
    p = s / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n**2))) / (1 + z2 / n)
    return np.where(s <= 0, 0.0, centre - half), np.where(s >= n, 1.0, centre + half)


def codes(ids: pl.Series) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the sorted different ids and each row's number among them."""
    unique = ids.unique().sort()
    return tuple(unique), ids.cast(pl.Enum(unique)).to_physical().to_numpy()


def _leave_out(tables: Mapping[str, pl.DataFrame], config: PassRateConfig, seed: int, name: str) -> Difficulty:
    kept, _ = without(tables["responses"], tables.get("respondents"), name)
    return run({**tables, "responses": kept}, config, seed)

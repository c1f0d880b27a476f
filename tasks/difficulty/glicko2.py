"""Glicko-2 of attempts: every attempt is a game between a respondent and an example, and both are rated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.pass_rate import codes
from gradatim.tasks.difficulty.ratings import Ratings, rate
from gradatim.tasks.difficulty.reliability import separation
from gradatim.tasks.difficulty.responses import checked, without
from gradatim.tasks.difficulty.result import Difficulty, build, method_name, unanswered

SOURCE = (
    "M. E. Glickman (2012). Example of the Glicko-2 system. M. E. Glickman (2001). Dynamic paired comparison models "
    "with stochastic variances. Journal of Applied Statistics 28, 673-689"
)
MICROSECONDS = {"h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}
MONDAY = 4 * MICROSECONDS["d"]  # the first Monday after 1970-01-01, a Thursday


class Glicko2Config(Config):
    """Settings of `glicko2`."""

    period: str | None = Field(
        None,
        description="length of a rating period of attempted_at: a number of hours, days or weeks, e.g. 12h, 7d, 2w; "
        "by default the column period of the responses, or one period where there is none",
    )
    tau: float = Field(0.5, ge=0, le=10, description="how fast volatility may change, 0.3 to 1.2; 0 holds it")
    rating: float = Field(1500.0, allow_inf_nan=False, description="rating before the first attempt")
    deviation: float = Field(350.0, gt=0, le=10_000, description="its deviation, which the idle never exceed")
    volatility: float = Field(0.06, ge=0, le=10, description="volatility before the first attempt")
    item_volatility: float | None = Field(
        None, ge=0, le=10, description="the same for examples, where it differs; 0 for examples that never change"
    )
    disconnected: Literal["refuse", "flag"] = Field(
        "flag", description="what to do when parts of the data share neither respondents nor examples"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")

    @field_validator("period")
    @classmethod
    def _readable(cls, found: str | None) -> str | None:
        if found is not None and not re.fullmatch(r"[1-9]\d{0,5}[hdw]", found):
            raise ValueError("a number of hours, days or weeks is wanted, e.g. 12h, 7d or 2w")
        return found


@register(
    "difficulty",
    "glicko2",
    config=Glicko2Config,
    needs=(
        "responses.respondent_id",
        "responses.example_id",
        "responses.score",
        "responses.period?",
        "responses.attempted_at?",
    ),
    cost=lambda rows, width: Cost(seconds=0.3 + 2e-6 * rows * max(width, 1), bytes=1e8 + 300.0 * rows * max(width, 1)),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: Glicko2Config, seed: int = 0) -> Difficulty:
    """Ratings from a log of attempts over time: respondents and examples play each other (Glicko-2).

    Parameters
    ----------
    tables : mapping
        ``responses`` (respondent_id, example_id, score in [0, 1]; optionally period, attempted_at); optionally
        ``respondents`` (respondent_id, family) and ``examples`` (example_id). A score is the respondent's share of the
        game: 1 solved, 0 failed, 0.5 a draw.
    config : Glicko2Config
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value is the example's rating in Glicko points at the end of the last period, standard_error its deviation, n
        its attempts, details its volatility and last period; `respondents` the same of those who tried.

    Raises
    ------
    DataRefused
        As `responses.checked`; where only some attempts have a period or a time; where parts are disconnected and this
        is to be refused.
    UsageError
        Where `period` is set and the responses have no attempted_at.
    """
    frame = checked(tables["responses"])
    when, how = _periods(tables["responses"], config)
    keep = frame["score"].is_not_null().to_numpy()
    scored, when = frame.filter(keep), when[keep]
    respondents, who = codes(scored["respondent_id"])
    examples, item = codes(scored["example_id"])
    part = _parts(who, item, len(respondents), len(examples))
    warnings, apart = _disconnected(part[len(respondents) :], examples, config)
    volatility = np.full(len(respondents) + len(examples), config.volatility)
    if config.item_volatility is not None:
        volatility[len(respondents) :] = config.item_volatility
    found = rate(
        when,
        who,
        item.astype(np.int64) + len(respondents),
        scored["score"].to_numpy(),
        tau=config.tau,
        rating=config.rating,
        deviation=config.deviation,
        volatility=volatility,
    )
    deviation = found.deviation_at(int(when.max()))
    periods = len(np.unique(when))
    if periods == 1 and len(examples) > 1:
        remedy = "give a period or attempted_at, or use irt"
        if "attempted_at" in tables["responses"].columns:
            remedy = f"set a period shorter than {config.period}" if config.period else "set period, e.g. 7d"
        warnings.append(
            "all attempts fall into one period, in which everyone plays the ratings of newcomers: who tried an example "
            f"does not count; {remedy}"
        )
    value, error = found.rating[len(respondents) :], deviation[len(respondents) :]
    reliability = separation(value, error)
    flag: list[str | None] = [None] * len(examples)
    for j in np.flatnonzero(apart):
        flag[j] = "apart from the largest part: its rating rests on the common start"
    return build(
        method=method_name(
            "glicko2", config.model_dump(exclude={"bins", "disconnected"}), Glicko2Config().model_dump()
        ),
        title="glicko2",
        ids=examples,
        value=value,
        raw=value,
        scale="glicko",
        error=error,
        n=found.games[len(respondents) :],
        flag=flag,
        details=_details(found, len(respondents)),
        bins=config.bins,
        reliability=reliability,
        warnings=warnings,
        respondents=_respondents(found, deviation, respondents, tables.get("respondents")),
        intervals=pl.DataFrame({"example_id": examples, "low": value - 1.96 * error, "high": value + 1.96 * error}),
        excluded=unanswered(tables, examples),
        notes=_notes(found, frame, scored, periods, how, len(respondents)),
        source=SOURCE,
        refit=partial(_leave_out, dict(tables), config, seed),
    )


def _periods(responses: pl.DataFrame, config: Glicko2Config) -> tuple[np.ndarray, str]:
    """Return each row's period (int64), and in words where it came from."""
    column = "attempted_at" if config.period else "period"
    if config.period and column not in responses.columns:
        raise UsageError(
            f"period {config.period} needs the time of each attempt",
            where="difficulty glicko2: period",
            expected="a column attempted_at of the responses",
            remedy="name it in the recipe's section 'responses', or leave period out",
        )
    if column not in responses.columns or (not config.period and responses[column].null_count() == len(responses)):
        return np.zeros(len(responses), dtype=np.int64), "one, since the responses have neither"
    found = responses[column]
    if lacking := found.null_count():
        raise DataRefused(
            f"{lacking:,} of {len(found):,} attempts have no {column}",
            where=f"responses: {column}",
            expected="all or none of them",
            remedy="fill it in or drop these rows",
        )
    if config.period is None:
        if not found.dtype.is_integer():
            raise UsageError(
                f"the period is of type {found.dtype}", where="responses: period", expected="whole numbers"
            )
        return found.cast(pl.Int64).to_numpy(), "the column period"
    if not isinstance(found.dtype, pl.Datetime | pl.Date):
        raise UsageError(f"the time is of type {found.dtype}", where="responses: attempted_at", expected="a time stamp")
    width = int(config.period[:-1]) * MICROSECONDS[config.period[-1]]
    start = MONDAY if config.period.endswith("w") else 0
    micros = found.cast(pl.Datetime("us", getattr(found.dtype, "time_zone", None))).dt.timestamp("us").to_numpy()
    return (micros - start) // width, f"{config.period} of attempted_at"


def _parts(who: np.ndarray, item: np.ndarray, respondents: int, examples: int) -> np.ndarray:
    """Number the parts of the graph of respondents, then examples, joined by attempts."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    size = respondents + examples
    edges = (np.ones(len(who), dtype=np.int8), (who.astype(np.int64), item.astype(np.int64) + respondents))
    return np.asarray(connected_components(csr_array(edges, shape=(size, size)), directed=False)[1])


def _disconnected(part: np.ndarray, examples: tuple[str, ...], config: Glicko2Config) -> tuple[list[str], np.ndarray]:
    """Return warnings, and which examples lie outside of the largest part."""
    sizes = np.bincount(part)
    apart = part != sizes.argmax()
    if not apart.any():
        return [], apart
    what = (
        f"the attempts fall into {np.count_nonzero(sizes):,} parts that share neither respondents nor examples "
        f"({sizes.max():,} examples in the largest; {examples[int(np.flatnonzero(apart)[0])]!r} is in another)"
    )
    if config.disconnected == "refuse":
        raise DataRefused(
            what,
            where="difficulty glicko2",
            expected="one connected part: ratings of different parts share only their start",
            remedy="drop the small parts, add attempts that join them, or set disconnected: flag",
        )
    return [what + "; ratings of different parts share only their start"], apart


def _details(found: Ratings, respondents: int) -> list[str]:
    frame = pl.DataFrame(
        {"volatility": found.volatility[respondents:].round(9), "last_period": found.last[respondents:]}
    )
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def _respondents(
    found: Ratings, deviation: np.ndarray, ids: tuple[str, ...], known: pl.DataFrame | None
) -> pl.DataFrame:
    here = slice(0, len(ids))
    frame = pl.DataFrame(
        {
            "respondent_id": ids,
            "ability": found.rating[here],
            "standard_error": deviation[here],
            "n": found.games[here],
        }
    )
    family = pl.DataFrame(schema={"respondent_id": pl.String, "family": pl.String})
    if known is not None and "family" in known.columns:
        family = known.select(pl.col("respondent_id", "family").cast(pl.String)).unique("respondent_id", keep="any")
    return conform(frame.join(family, on="respondent_id", how="left"), "respondents")


def _notes(
    found: Ratings, frame: pl.DataFrame, scored: pl.DataFrame, periods: int, how: str, respondents: int
) -> dict[str, Cell]:
    score = scored["score"]
    notes: dict[str, Cell] = {
        "respondents": respondents,
        "attempts": len(scored),
        "periods": periods,
        "periods are": how,
        "mean attempts at an example": round(len(scored) / max(len(found.players) - respondents, 1), 3),
        "reliability is": "from deviations",
    }
    if fractional := int(((score > 0) & (score < 1)).sum()):
        notes["attempts between right and wrong, such as draws"] = fractional
    if len(frame) > len(scored):
        notes["rows without a score, not attempted"] = len(frame) - len(scored)
    return notes


def _leave_out(tables: Mapping[str, pl.DataFrame], config: Glicko2Config, seed: int, name: str) -> Difficulty:
    kept, _ = without(tables["responses"], tables.get("respondents"), name)
    return run({**tables, "responses": kept}, config, seed)

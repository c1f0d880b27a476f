"""Rollouts of one model: how often it fails, how much there is to learn, and whether a group of rollouts differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty import rollout_measures as measures
from gradatim.tasks.difficulty.levels import LEVELS, clpo_levels, hase_levels
from gradatim.tasks.difficulty.pass_rate import jeffreys, wilson
from gradatim.tasks.difficulty.reliability import separation
from gradatim.tasks.difficulty.responses import checked
from gradatim.tasks.difficulty.result import Difficulty, build, method_name, unanswered
from gradatim.tasks.difficulty.rows import example_column

SOURCE = (
    "L. D. Brown, T. T. Cai, A. DasGupta (2001). Interval estimation for a binomial proportion. M. Chen et al. (2021). "
    "Evaluating large language models trained on code (pass@k). Hard examples are all you need (2025), arXiv 2508.14094"
)


class RolloutsConfig(Config):
    """Settings of `rollouts`."""

    successes: str | None = Field(
        None, min_length=1, description="column of the examples with the number of successful rollouts"
    )
    attempts: str | None = Field(None, min_length=1, description="column of the examples with the number of rollouts")
    samples: int | None = Field(None, ge=1, description="number of rollouts of every example, in place of attempts")
    respondent: str | None = Field(None, description="without successes: the model whose responses are the rollouts")
    threshold: float | None = Field(
        None, gt=0, le=1, description="score from which a response is a success; needed where scores are not 0 or 1"
    )
    measure: Literal["failure", "learnability", "mixed_group", "pass_at_k"] = Field(
        "failure", description="what value is: 1 - p, p(1-p), 1 - p^G - (1-p)^G, or 1 - pass@k"
    )
    group_size: int = Field(8, ge=2, le=100_000, description="G, rollouts of a group")
    k: int = Field(1, ge=1, le=100_000, description="k of pass@k")
    levels: Literal["clpo", "hase"] = Field(
        "clpo", description="how easy, medium and hard are cut: at rates .3 and .7, or at percentiles 30 and 70"
    )
    interval: Literal["jeffreys", "wilson"] = Field("jeffreys", description="how the 95 % interval is made")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")

    @model_validator(mode="after")
    def _agree(self) -> RolloutsConfig:
        if self.successes is None and (self.attempts is not None or self.samples is not None):
            raise ValueError("successes: attempts or samples count nothing without a column of successes")
        if self.successes is not None and (self.attempts is None) == (self.samples is None):
            raise ValueError("attempts: successes need either a column of attempts or a number of samples")
        if self.successes is not None and (self.respondent is not None or self.threshold is not None):
            raise ValueError("respondent: counts in columns have no respondent and no threshold")
        return self


class Counts(NamedTuple):
    """Rollouts of each example: sorted ids, successes and attempts, and what was left out."""

    ids: pl.Series
    s: np.ndarray
    n: np.ndarray
    excluded: pl.DataFrame
    notes: dict[str, Cell]
    warnings: list[str]


@register(
    "difficulty",
    "rollouts",
    config=RolloutsConfig,
    needs=(
        "examples.{successes}",
        "examples.{attempts}",
        "responses.respondent_id?",
        "responses.example_id?",
        "responses.score?",
    ),
    cost=lambda rows, width: Cost(seconds=0.3 + 4e-6 * rows + 3e-7 * rows * width, bytes=1e8 + rows * (500.0 + width)),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: RolloutsConfig, seed: int = 0) -> Difficulty:
    """Pass rate of many rollouts of one model: failure, learnability, chance of a mixed group, pass@k, levels.

    Parameters
    ----------
    tables : mapping
        ``examples`` with the columns that `successes` and `attempts` name, or ``responses`` (respondent_id,
        example_id, score), one row a rollout.
    config : RolloutsConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value is the measure, raw the pass rate (or pass@k), standard_error the measure's standard deviation under the
        posterior Beta(s + 1/2, n - s + 1/2), n the rollouts; details hold all measures and the level; statistics the
        means over all examples and the sizes of levels.

    Raises
    ------
    DataRefused
        If a count is negative or no whole number, successes exceed attempts, or a score is neither 0 nor 1 and there
        is no threshold; where no example has a rollout.
    UsageError
        If there is neither a column of successes nor a response, or no such respondent.

    Notes
    -----
    O(rows log rows).
    """
    counts = _from_columns(tables, config) if config.successes else _from_responses(tables, config)
    if config.measure == "pass_at_k" and (counts.n < config.k).any():
        short = counts.n < config.k
        gone = pl.DataFrame({"example_id": counts.ids.filter(short)}).with_columns(
            reason=pl.lit(f"fewer than {config.k} rollouts")
        )
        counts = counts._replace(
            ids=counts.ids.filter(~short),
            s=counts.s[~short],
            n=counts.n[~short],
            excluded=pl.concat([counts.excluded, gone]),
        )
    s, n = counts.s, counts.n
    if not len(s):
        raise DataRefused("no example has a rollout", where="difficulty rollouts", expected="at least one")
    p = s / n
    values = {
        "failure": 1 - p,
        "learnability": measures.learnability(p),
        "mixed_group": measures.mixed_group(p, config.group_size),
    }
    if config.measure == "pass_at_k":
        values["pass_at_k"] = 1 - measures.pass_at_k(s, n, config.k)
    value = values[config.measure]
    pairs = measures.different(s, n)
    error = measures.posterior_error(pairs.s, pairs.n, config.measure, group=config.group_size, k=config.k)[pairs.row]
    level = (clpo_levels if config.levels == "clpo" else hase_levels)(s, n)
    flag = np.full(len(n), None, dtype=object)
    flag[s == n], flag[s == 0] = "all right", "none right"
    reliability = separation(value, error)
    return build(
        method=method_name("rollouts", config.model_dump(exclude={"bins"}), RolloutsConfig().model_dump()),
        title="rollouts" if config.measure == "failure" else f"rollouts {config.measure}",
        ids=counts.ids.to_list(),
        value=value,
        raw=1 - value if config.measure == "pass_at_k" else p,
        scale="probability" if config.measure != "learnability" else "p(1-p)",
        error=error,
        n=n,
        flag=list(flag),
        details=_details(s, n, values, level),
        bins=config.bins,
        reliability=reliability,
        warnings=[*counts.warnings, *_warnings(config)],
        intervals=_intervals(counts, value, config),
        excluded=counts.excluded.sort("example_id"),
        notes=_notes(counts, values, level, config),
        statistics=_statistics(values, level, len(n), config),
        source=SOURCE,
    )


def _from_columns(tables: Mapping[str, pl.DataFrame], config: RolloutsConfig) -> Counts:
    assert config.successes is not None
    where = "difficulty rollouts"
    frame = example_column(tables, config.successes, f"{where}: successes")
    if config.attempts is not None:
        attempts = example_column(tables, config.attempts, f"{where}: attempts")["found"]
    else:
        attempts = pl.repeat(config.samples, len(frame), dtype=pl.Int64, eager=True)
    columns = {
        "s": _whole(frame["found"], frame["example_id"], config.successes),
        "n": _whole(attempts, frame["example_id"], config.attempts or "samples"),
    }
    frame = frame.select("example_id").with_columns(**columns)
    over = frame.filter(pl.col("s") > pl.col("n"))
    if len(over):
        example, s, n = over.row(0)
        raise DataRefused(
            f"{len(over):,} of {len(frame):,} examples have more successes than rollouts, first {s} of {n}",
            where=f"{where}: example {example!r}",
            expected=f"{config.successes} <= {config.attempts or config.samples}",
        )
    known = frame.drop_nulls().filter(pl.col("n") > 0)
    reason = (
        pl.when(pl.col("s").is_null() | pl.col("n").is_null()).then(pl.lit("no count")).otherwise(pl.lit("no rollout"))
    )
    gone = frame.join(known, on="example_id", how="anti").select("example_id", reason=reason)
    return Counts(known["example_id"], known["s"].to_numpy(), known["n"].to_numpy(), gone, {}, [])


def _whole(column: pl.Series, ids: pl.Series, name: str) -> pl.Series:
    """Return a column as counts; NaN counts as null, true as 1."""
    if not (column.dtype.is_numeric() or column.dtype in (pl.Null, pl.Boolean)):
        raise UsageError(
            f"the column {name!r} is of type {column.dtype}", where="difficulty rollouts", expected="whole numbers"
        )
    numbers = column.cast(pl.Float64).fill_nan(None)
    bad = ~((numbers >= 0) & (numbers <= measures.MOST) & (numbers == numbers.round(0)))
    if bad.any():
        at = int(bad.arg_true()[0])
        raise DataRefused(
            f"{bad.sum():,} of {len(column):,} counts are negative, no whole number or huge, first {numbers[at]:g}",
            where=f"difficulty rollouts: {name}, example {ids[at]!r}",
            expected="whole numbers from 0",
        )
    return numbers.cast(pl.Int64)


def _from_responses(tables: Mapping[str, pl.DataFrame], config: RolloutsConfig) -> Counts:
    if "responses" not in tables:
        raise UsageError(
            "there are neither counts nor responses",
            where="difficulty rollouts",
            expected="a column of successes, or responses",
            remedy="set  successes: COLUMN  and  attempts: COLUMN, or add a section 'responses'",
        )
    responses = tables["responses"]
    if config.respondent is not None:
        known = responses["respondent_id"].cast(pl.String)
        if config.respondent not in known:
            there = known.unique().drop_nulls().sort().to_list()
            raise UsageError(
                f"there is no respondent {config.respondent!r}{nearest(config.respondent, there)}",
                where="difficulty rollouts: respondent",
                expected="one of " + ", ".join(there[:20]),
            )
        responses = responses.filter(known == config.respondent)
    frame = checked(responses)
    scored = frame.drop_nulls("score")
    who = scored["respondent_id"].n_unique()
    between = int(((scored["score"] > 0) & (scored["score"] < 1)).sum())
    if between and config.threshold is None:
        raise DataRefused(
            f"{between:,} of {len(scored):,} scores are neither 0 nor 1",
            where="difficulty rollouts: responses",
            expected="a rollout succeeds or fails",
            remedy="set  threshold: 1  (the score from which it succeeds), or use pass_rate, which takes fractions",
        )
    success = pl.col("score") >= (1.0 if config.threshold is None else config.threshold)
    counted = (
        scored.group_by("example_id").agg(success.sum().cast(pl.Int64).alias("s"), pl.len().cast(pl.Int64).alias("n"))
    ).sort("example_id")
    notes: dict[str, Cell] = {"models": who}
    if between:
        notes[f"scores between 0 and 1, successes from {config.threshold:g}"] = between
    if len(frame) > len(scored):
        notes["rows without a score, no rollout"] = len(frame) - len(scored)
    warnings = []
    if who > 1:
        warnings.append(f"the rollouts are those of {who:,} models together; respondent picks one")
    ids = counted["example_id"]
    excluded = unanswered({**tables, "responses": responses}, ids.to_list())
    return Counts(ids, counted["s"].to_numpy(), counted["n"].to_numpy(), excluded, notes, warnings)


def _warnings(config: RolloutsConfig) -> list[str]:
    if config.measure in ("learnability", "mixed_group"):
        return [f"{config.measure} is highest where there is most to learn, at a rate of one half: it is no difficulty"]
    return []


def _details(s: np.ndarray, n: np.ndarray, values: Mapping[str, np.ndarray], level: np.ndarray) -> list[str]:
    names = pl.Series(LEVELS, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "successes": s,
            "level": names.gather(level),
            "posterior_mean": measures.posterior_mean(s, n).round(6),
            "learnability": values["learnability"].round(6),
            "mixed_group": values["mixed_group"].round(6),
        }
    )
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def _intervals(counts: Counts, value: np.ndarray, config: RolloutsConfig) -> pl.DataFrame:
    """95 % interval of value: that of the rate, carried over, and widened where needed to hold the value itself."""
    pairs = measures.different(counts.s, counts.n)
    low, high = (jeffreys if config.interval == "jeffreys" else wilson)(pairs.s, pairs.n)
    low, high = low[pairs.row], high[pairs.row]
    if config.measure == "failure":
        low, high = 1 - high, 1 - low
    elif config.measure == "learnability":
        low, high = measures.image(low, high, measures.learnability)
    elif config.measure == "mixed_group":
        low, high = measures.image(low, high, lambda p: measures.mixed_group(p, config.group_size))
    else:
        low, high = (1 - high) ** config.k, (1 - low) ** config.k
    return pl.DataFrame({"example_id": counts.ids, "low": np.minimum(low, value), "high": np.maximum(high, value)})


def _notes(
    counts: Counts, values: Mapping[str, np.ndarray], level: np.ndarray, config: RolloutsConfig
) -> dict[str, Cell]:
    n, sizes = counts.n, np.bincount(level, minlength=3)
    cut = {"clpo": "CLPO, at rates .3 and .7", "hase": "Hase, at percentiles 30 and 70 of failure"}[config.levels]
    notes: dict[str, Cell] = {
        "rollouts": int(n.sum()),
        "rollouts of an example": f"{n.min()} to {n.max()}" if n.min() < n.max() else int(n.min()),
        "mean pass rate": round(float(1 - values["failure"].mean()), 6),
        "mean learnability p(1-p)": round(float(values["learnability"].mean()), 6),
        f"mean chance of a mixed group of {config.group_size}": round(float(values["mixed_group"].mean()), 6),
        f"levels ({cut})": ", ".join(f"{name} {size:,}" for name, size in zip(LEVELS, sizes, strict=True)),
        "none right": int((counts.s == 0).sum()),
        "all right": int((counts.s == n).sum()),
        "interval": config.interval,
        "reliability is": "from standard errors",
        **counts.notes,
    }
    if config.measure == "pass_at_k":
        notes[f"mean pass@{config.k}"] = round(float(1 - values["pass_at_k"].mean()), 6)
    return notes


def _statistics(values: Mapping[str, np.ndarray], level: np.ndarray, rows: int, config: RolloutsConfig) -> pl.DataFrame:
    means = {"mean_pass_rate": 1 - values["failure"], "mean_learnability": values["learnability"]}
    means["mean_mixed_group"] = values["mixed_group"]
    if "pass_at_k" in values:
        means["mean_pass_at_k"] = 1 - values["pass_at_k"]
    from gradatim.tasks.core.reduce import ordered_sum

    found = []
    for name, of in means.items():
        mean, spread = ordered_sum(of) / rows, 1.96 * float(np.std(np.sort(of))) / max(rows, 1) ** 0.5
        found.append(Statistic("all", name, mean, rows, mean - spread, mean + spread))
    sizes = np.bincount(level, minlength=3)
    found += [Statistic("all", f"{name}_examples", float(k), rows) for name, k in zip(LEVELS, sizes, strict=True)]
    return statistics_table(found, {"method": "rollouts", "group_size": config.group_size, "levels": config.levels})

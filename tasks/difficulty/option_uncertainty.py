"""How sure models are of multiple-choice questions, and whether the order of the options changes their mind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.options.measures import MEASURES, per_respondent
from gradatim.tasks.difficulty.options.orders import checked
from gradatim.tasks.difficulty.reliability import separation, split_half
from gradatim.tasks.difficulty.responses import without
from gradatim.tasks.difficulty.result import Difficulty, build, method_name, unanswered

SOURCE = (
    "L. Zotos, H. van Rijn, M. Nissim (2024). Can model uncertainty function as a proxy for multiple-choice question "
    "item difficulty?"
)
LITTLE = 0.5
"""Probability on all options together below which a model hardly answered the question."""
COLUMN = {
    "gold": "gold_probability",
    "top": "top_probability",
    "entropy": "entropy",
    "margin": "margin",
    "sensitivity": "order_sensitivity",
}
SCALE = {
    "gold": "probability",
    "top": "probability",
    "entropy": "share of the largest entropy",
    "margin": "probability",
    "sensitivity": "share of orders",
}


class OptionUncertaintyConfig(Config):
    """Settings of `option_uncertainty`."""

    measure: Literal["gold", "top", "entropy", "margin", "sensitivity"] = Field(
        "gold",
        description="1 - probability of the right option, 1 - of the likeliest, entropy, 1 - margin, order sensitivity",
    )
    invalid: Literal["refuse", "exclude"] = Field(
        "refuse", description="rows with impossible probabilities, permutation or gold: an error, or left out"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")
    splits: int = Field(5, ge=0, le=100, description="random halves behind the reliability; 0 takes standard errors")


@register(
    "difficulty",
    "option_uncertainty",
    config=OptionUncertaintyConfig,
    needs=(
        "options.respondent_id",
        "options.example_id",
        "options.order",
        "options.permutation",
        "options.probabilities",
        "options.gold",
        "respondents.family?",
    ),
    cost=lambda rows, width: Cost(seconds=0.3 + 3e-6 * rows * max(width, 1), bytes=1e8 + 600.0 * rows * max(width, 1)),
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: OptionUncertaintyConfig, seed: int = 0) -> Difficulty:
    """Uncertainty of models about multiple-choice questions, over the orders in which options were shown.

    Parameters
    ----------
    tables : mapping
        ``options`` (respondent_id, example_id, order, permutation: the option at each shown place, probabilities: of
        each shown place, gold: the right option before permutation); optionally ``respondents`` (respondent_id, family)
        and ``examples`` (example_id).
    config : OptionUncertaintyConfig
    seed : int
        Seed of the random halves behind the reliability.

    Returns
    -------
    Difficulty
        Probabilities are mapped back to options, divided by their sum, and measured for each respondent over its orders
        (`option_measures.per_respondent`); raw is the mean over respondents, value the same or 1 - raw where much means
        easy. n counts rows. standard_error: over respondents, standard deviation / sqrt(R); of one respondent over its
        orders, by jackknife. `details` has all measures.

    Raises
    ------
    DataRefused
        As `option_orders.checked`; if `measure` needs the right option or several orders, and no example has these.
    UsageError
        If a column is missing or of a wrong type.

    Notes
    -----
    O(cells). 1M rows of four options take about 3 seconds.
    """
    good, bad = checked(tables["options"], exclude=config.invalid == "exclude")
    if not len(good):
        first = f": {bad.sort('example_id', 'reason')['reason'][0]}" if len(bad) else ", since there is none"
        raise DataRefused(f"no row of options can be used{first}", where="options", expected="at least one")
    column = COLUMN[config.measure]
    each = per_respondent(good, column)
    usable = each.filter(pl.col(column).is_not_nan())
    reason = "the right option is not known" if config.measure == "gold" else "shown in one order only"
    if not len(usable):
        raise DataRefused(
            f"no example has the measure {config.measure!r}: {reason}",
            where="difficulty option_uncertainty: measure",
            expected="gold, for  measure: gold" if config.measure == "gold" else "two or more orders a respondent",
            remedy="name the column of the right option, or write  measure: entropy"
            if config.measure == "gold"
            else "show the options in several orders, or write  measure: entropy",
        )
    ids = tuple(usable["example_id"].unique().sort())
    respondents = tuple(usable["respondent_id"].unique().sort())
    item = usable["example_id"].cast(pl.Enum(ids)).to_physical().to_numpy()
    who = usable["respondent_id"].cast(pl.Enum(respondents)).to_physical().to_numpy()
    number = usable[column].to_numpy()
    several = np.bincount(item, minlength=len(ids))
    raw = np.bincount(item, number, len(ids)) / several
    high_is_easy = config.measure in ("gold", "top", "margin")
    value = 1.0 - raw if high_is_easy else raw
    error = _errors(item, number, raw, usable["error"].to_numpy())

    def estimate(members: np.ndarray) -> np.ndarray:
        inside = np.isin(who, members)
        tried = np.bincount(item[inside], minlength=len(ids))
        with np.errstate(invalid="ignore"):
            return np.bincount(item[inside], number[inside], len(ids)) / tried

    reliability, kind = split_half(estimate, respondents, seed=seed, splits=config.splits), "split-half"
    if reliability is None:
        reliability, kind = separation(value, error), "from standard errors"
    facts = _facts(each, ids)
    return build(
        method=method_name(
            "option_uncertainty", config.model_dump(exclude={"bins", "splits"}), OptionUncertaintyConfig().model_dump()
        ),
        title=f"option_uncertainty {config.measure}",
        ids=ids,
        value=value,
        raw=raw,
        scale=SCALE[config.measure],
        error=error,
        n=facts["rows"].to_numpy(),
        flag=_flags(facts, bad),
        details=facts.select(pl.struct(pl.exclude("example_id", "rows")).struct.json_encode()).to_series().to_list(),
        bins=config.bins,
        reliability=reliability,
        warnings=_warnings(each, config),
        excluded=_excluded(tables, each, bad, ids, reason),
        notes={
            **_notes(good, bad, each, respondents),
            "reliability is": kind if reliability is not None else "unknown",
        },
        source=SOURCE,
        refit=partial(_leave_out, dict(tables), config, seed),
    )


def _errors(item: np.ndarray, number: np.ndarray, mean: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Standard error of each mean over respondents, or of the only respondent's number: NaN where there is none."""
    n = np.bincount(item, minlength=len(mean))
    square = np.bincount(item, (number - mean[item]) ** 2, len(mean))
    single = np.full(len(mean), np.nan)
    single[item] = own
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(n > 1, np.sqrt(square / (n - 1) / n), single)


def _facts(each: pl.DataFrame, ids: tuple[str, ...]) -> pl.DataFrame:
    """All measures of the examples `ids`, means over respondents; null where there is none."""
    mine = each.filter(pl.col("example_id").is_in(ids)).fill_nan(None)
    return (
        mine.group_by("example_id", maintain_order=True)  # sorted by respondent: the order of the sums is fixed
        .agg(
            pl.col("options").first(),
            pl.len().cast(pl.Int64).alias("respondents"),
            pl.col("orders").mean().round(2),
            *[pl.col(name).mean().round(6) for name in (*MEASURES, "right", "mass")],
            pl.col("orders").sum().alias("rows"),
        )
        .sort("example_id")
    )


def _flags(facts: pl.DataFrame, bad: pl.DataFrame) -> list[str | None]:
    little = pl.when(pl.col("mass") < LITTLE).then(pl.lit("most of the probability lies outside of the options"))
    left = pl.when(pl.col("example_id").is_in(bad["example_id"].implode())).then(pl.lit("some rows were left out"))
    found = pl.concat_str(little, left, separator="; ", ignore_nulls=True).replace("", None)
    return facts.select(found).to_series().to_list()


def _warnings(each: pl.DataFrame, config: OptionUncertaintyConfig) -> list[str]:
    found = []
    if config.measure != "sensitivity" and not (each["orders"] > 1).any():
        found.append("options were shown in one order: a liking for a place counts as knowledge")
    if config.measure != "gold":
        found.append("this is how unsure the models are, not how wrong: a model can be surely wrong")
    return found


def _notes(good: pl.DataFrame, bad: pl.DataFrame, each: pl.DataFrame, respondents: tuple[str, ...]) -> dict[str, Cell]:
    notes: dict[str, Cell] = {
        "respondents": len(respondents),
        "rows": len(good),
        "orders a respondent": round(float(each["orders"].mean()), 2),  # type: ignore[arg-type]
        "mean probability on the options": round(float(good["mass"].mean()), 4),  # type: ignore[arg-type]
    }
    rescaled = int(((good["mass"] - 1).abs() > 1e-6).sum())
    if rescaled:
        notes["rows that did not add up to one, rescaled"] = rescaled
    for reason, count in bad["reason"].str.replace(r"[-\d.]+", "N").value_counts().sort("reason").iter_rows():
        notes[f"left out: {reason}"] = count
    right = each.filter(pl.col("right").is_not_nan())["right"].mean()
    if right is not None:
        notes["share right"] = round(float(right), 4)  # type: ignore[arg-type]
    return notes


def _excluded(
    tables: Mapping[str, pl.DataFrame], each: pl.DataFrame, bad: pl.DataFrame, ids: tuple[str, ...], reason: str
) -> pl.DataFrame:
    """Examples without a value: without the measure, with bad rows only, or that nobody was shown."""
    measured = each.select("example_id", pl.lit(reason).alias("reason")).unique()
    first = bad.sort("example_id", "reason").unique("example_id", keep="first")
    shown = pl.concat([measured, first.filter(~pl.col("example_id").is_in(measured["example_id"].implode()))])
    silent = unanswered(tables, [*ids, *shown["example_id"]]).with_columns(reason=pl.lit("no option probabilities"))
    return pl.concat([shown.filter(~pl.col("example_id").is_in(list(ids))), silent]).sort("example_id")


def _leave_out(tables: Mapping[str, pl.DataFrame], config: OptionUncertaintyConfig, seed: int, name: str) -> Difficulty:
    kept, _ = without(tables["options"], tables.get("respondents"), name)
    return run({**tables, "options": kept}, config, seed)

"""Agreement of models across domains: do they fail on the same examples, beside how often they are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.intervals import Interval, wilson
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import group_sums, ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.environments import as_text, comparison_table
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import plane_picture

SOURCE = (
    "J. P. Cohen et al. (2020). On the limits of cross-domain generalization in automated X-ray prediction; "
    "J. Cohen (1960). A coefficient of agreement for nominal scales; J. L. Fleiss, J. Cohen, B. S. Everitt (1969). "
    "Large sample standard errors of kappa and weighted kappa"
)
_PAIRS_OF = 30
BLOCK = 8192
"""Examples that are counted together."""


class DomainAgreementConfig(Config):
    """Settings of `domain_agreement`."""

    domain: str = Field("domain", description="column of examples with the domains")
    right_from: float = Field(0.5, gt=0, le=1, description="mean score of an example from which a model is right on it")
    respondents: tuple[str, ...] = Field((), description="models to compare; all, if none is named")


def kappa(both: float, only_first: float, only_second: float, neither: float) -> Interval:
    """Return Cohen's kappa of two raters' yes and no, with its interval from the large-sample error.

    Parameters
    ----------
    both, only_first, only_second, neither : float
        Rows that both said yes to, that one alone did, and that neither did.

    Returns
    -------
    Interval
        1 where they always agree, 0 where as often as chance; NaN where a rater's answers are all the same for both,
        so that chance alone explains all.
    """
    table = np.array([[both, only_first], [only_second, neither]], dtype=np.float64)
    n = table.sum()
    if n <= 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0, "kappa")
    p = table / n
    row, column = p.sum(axis=1), p.sum(axis=0)
    chance = float(row @ column)
    if chance >= 1 - 1e-12:
        return Interval(float("nan"), float("nan"), float("nan"), round(n), "kappa")
    value = (float(np.trace(p)) - chance) / (1 - chance)
    # Fleiss, Cohen and Everitt (1969), equation 13
    diagonal = sum(p[i, i] * (1 - (row[i] + column[i]) * (1 - value)) ** 2 for i in (0, 1))
    others = (1 - value) ** 2 * sum(p[i, 1 - i] * (column[i] + row[1 - i]) ** 2 for i in (0, 1))
    error = np.sqrt(max(0.0, diagonal + others - (value - chance * (1 - value)) ** 2) / n) / (1 - chance)
    half = 1.959963984540054 * float(error)
    return Interval(value, max(-1.0, value - half), min(1.0, value + half), round(n), "kappa")


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.5 + rows * 2e-6, bytes=1e8 + rows * 200)


@register(
    "diversity",
    "domain_agreement",
    config=DomainAgreementConfig,
    needs=("examples.{domain}", "responses.respondent_id", "responses.example_id", "responses.score"),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def domain_agreement(tables: Mapping[str, pl.DataFrame], config: DomainAgreementConfig, seed: int) -> Diversity:
    """Agreement of models in each domain (kappa of who is right where) beside their scores.

    For each domain ``kappa_mean`` over pairs of models, ``score_mean``, each model's ``score`` (the mean of attempts,
    with its interval), and of up to 30 models each pair's ``kappa`` with its interval. Low scores with low agreement
    speak for labels or concepts that differ there, low scores on which the models agree for inputs that differ. `seed`
    is not used.
    """
    where = "diversity domain_agreement"
    examples, responses = tables["examples"], tables["responses"]
    place = pl.DataFrame(
        {"example_id": examples["example_id"].cast(pl.String), "domain": as_text(examples, config.domain, where)}
    ).drop_nulls()
    score = pl.col("score").cast(pl.Float64)
    given = responses.select(pl.col("respondent_id", "example_id").cast(pl.String), score).filter(score.is_finite())
    if config.respondents:
        given = given.filter(pl.col("respondent_id").is_in(config.respondents))
    # sorted inside each group, so that the mean is the same whatever the threads
    answered = given.group_by("respondent_id", "example_id").agg(pl.col("score").sort().mean())
    rows = answered.join(place, on="example_id", how="inner").sort("domain", "example_id", "respondent_id")
    names = rows["respondent_id"].unique().sort().to_list()
    if len(names) < 2:
        raise DataRefused(
            f"{len(names)} models answered examples that have a {config.domain}",
            where=where,
            expected="two models or more",
            remedy="read responses of more models, or name others in respondents",
        )
    statistics: list[Statistic] = []
    for part in [rows, *rows.partition_by("domain", maintain_order=True)]:
        subset = "all" if part is rows else f"{config.domain}={part['domain'][0]}"
        statistics += _of_domain(part, subset, names, config)
    parameters = config.model_dump(mode="json")
    table = statistics_table(statistics, parameters)
    warnings = []
    lost = len(answered) - len(rows)
    if lost:
        warnings.append(f"{lost:,} answers are to examples without a {config.domain} or unknown, and were left out")
    undefined = sum(row.metric == "kappa" and not np.isfinite(row.value or 0) for row in statistics)
    if undefined:
        warnings.append(f"{undefined} pairs have no kappa: both models are always right, or always wrong, there")
    return Diversity(
        method="domain_agreement",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="kappa_mean",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "domains": Picture(
                "Each domain by the models' mean score and by how far they are right on the same examples",
                lambda: plane_picture(table, "score_mean", "kappa_mean", "Agreement beside the score"),
            )
        },
        tables=(comparison_table("Agreement and score of models", table, ("kappa", "score")),),
    )


def _of_domain(part: pl.DataFrame, subset: str, names: list[str], config: DomainAgreementConfig) -> list[Statistic]:
    """Measure one domain: scores of models, kappa of pairs, and the means of both."""
    example = part["example_id"].rank("dense").to_numpy().astype(np.int64) - 1
    model = part["respondent_id"].replace_strict(names, list(range(len(names))), return_dtype=pl.Int64).to_numpy()
    score = part["score"].to_numpy()
    examples = int(example.max()) + 1
    counts = np.bincount(model, minlength=len(names))
    means = group_sums(model, score, len(names)) / np.maximum(counts, 1)
    cells = _cells(model, example, score >= config.right_from, len(names))
    found: list[Statistic] = []
    for i in np.flatnonzero(counts).tolist():
        part_ = wilson(float(np.clip(means[i], 0, 1)) * int(counts[i]), int(counts[i]))
        named = f"respondent={names[i]}"
        found.append(
            Statistic(subset, "score", float(means[i]), int(counts[i]), part_.low, part_.high, reference=named)
        )
    values = []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            four = [float(cell[i, j]) for cell in cells]
            if not sum(four):
                continue
            one = kappa(*four)
            if np.isfinite(one.value):
                values.append(one.value)
            if len(names) <= _PAIRS_OF:
                named = f"respondent={names[i]} / {names[j]}"
                found.append(Statistic(subset, "kappa", one.value, one.n, one.low, one.high, reference=named))
    mean = ordered_sum(values) / len(values) if values else None
    found.append(Statistic(subset, "kappa_mean", mean, examples))
    answered = means[counts > 0]
    found.append(Statistic(subset, "score_mean", ordered_sum(answered) / len(answered), examples))
    return found


def _cells(model: Any, example: Any, right: Any, models: int) -> list[NDArray[np.float64]]:
    """Count, for each two models on the examples that both answered: both right, one alone, the other alone, neither.

    Each array has shape (models, models). Examples are taken in blocks; whole numbers add exactly in any order.
    """
    order = np.argsort(example, kind="stable")
    model, example, right = model[order], example[order], right[order]
    total = [np.zeros((models, models)) for _ in range(4)]
    for start in range(0, int(example[-1]) + 1, BLOCK):
        first, last = np.searchsorted(example, [start, start + BLOCK])
        good, bad = np.zeros((models, BLOCK), dtype=np.float32), np.zeros((models, BLOCK), dtype=np.float32)
        here = slice(first, last)
        good[model[here], example[here] - start] = right[here]
        bad[model[here], example[here] - start] = ~right[here]
        for cell, product in zip(total, (good @ good.T, good @ bad.T, bad @ good.T, bad @ bad.T), strict=True):
            cell += product
    return total

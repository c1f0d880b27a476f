"""Combined: several difficulties in one rank, with the disagreement between them as its error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.format import number
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.agreement import UNRELATED, agreement, doubts
from gradatim.tasks.difficulty.result import Difficulty, build, method_name

SOURCE = (
    "G. Blom (1958). Statistical estimates and transformed beta-variables; K. Pearson (1901). On lines and planes of "
    "closest fit to systems of points in space; L. J. Cronbach (1951). Coefficient alpha and the internal structure of "
    "tests. Psychometrika 16, 297-334"
)
WHERE = "difficulty combined"


class CombinedConfig(Config):
    """Settings of `combined`."""

    of: list[str] = Field(default_factory=list, description="names of earlier difficulties; by default all of them")
    weights: Literal["equal", "component"] | dict[str, Annotated[float, Field(ge=0, le=1e6)]] = Field(
        "equal", description="equal, component (the first principal component's), or a weight a name"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the reliability supports, at most 10")

    @model_validator(mode="after")
    def _positive(self) -> CombinedConfig:
        if isinstance(self.weights, dict) and sum(weight > 0 for weight in self.weights.values()) < 2:
            raise ValueError("weights: two or more should be above zero")
        if twice := sorted({name for name in self.of if self.of.count(name) > 1}):
            raise ValueError(f"of: {twice[0]!r} is named twice")
        return self


@register(
    "difficulty",
    "combined",
    config=CombinedConfig,
    needs=("difficulty.value",),
    cost=lambda rows, width: Cost(seconds=0.3 + 2e-5 * rows, bytes=1e8 + 600.0 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: CombinedConfig, seed: int = 0) -> Difficulty:
    """Several difficulties in one rank: rank-normal scores, weighted; its error is their disagreement.

    Parameters
    ----------
    tables : mapping
        ``difficulty``: example_id, method, value of two or more methods.
    config : CombinedConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value is the weighted mean of the methods' scores (mean 0 and standard deviation 1 each), over those that know
        the example; standard_error that of a mean over methods; `details` each method's score; `reliability` Cronbach's
        standardised alpha. `statistics` hold the weights and every rank correlation.

    Raises
    ------
    DataRefused
        For less than two methods, one that calls all examples equally hard, or methods without a common example.
    UsageError
        For a weight of a method that there is not.

    Notes
    -----
    O(rows log rows) a method, one join a pair. Scores are Phi^-1((rank - 3/8) / (n + 1/4)), ties at their mean rank.
    """
    wide = _wide(tables["difficulty"], config)
    names, ids = wide.columns[1:], wide["example_id"]
    scores = np.column_stack([_rank_normal(wide[name].to_numpy()) for name in names])
    known = np.isfinite(scores)
    correlation = _correlation(scores, known, names)
    weight, warnings = _weights(correlation, names, config)
    share = np.where(known, weight, 0.0)
    total = share.sum(axis=1)
    usable = total > 0
    share[usable] /= total[usable, None]
    filled = np.where(known, scores, 0.0)
    value = (share * filled).sum(axis=1)
    behind = (share > 0).sum(axis=1)
    spread = (share**2 * (filled - value[:, None]) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(behind > 1, np.sqrt(behind / (behind - 1.0) * spread), np.nan)
    agreed = agreement(_long(wide, names))
    counted = [name for name, w in zip(names, weight, strict=True) if w > 0]
    told = ~(pl.col("left").is_in(counted) & pl.col("right").is_in(counted)) & (pl.col("spearman") <= -UNRELATED)
    warnings += doubts(agreed.pairs.filter(~told), "their mean measures neither")
    gone = ids.filter(pl.Series(~usable))
    kept = np.flatnonzero(usable)
    return build(
        method=method_name("combined", config.model_dump(exclude={"bins"}), CombinedConfig().model_dump()),
        title=f"combined of {', '.join(names)}",
        ids=ids.gather(kept).to_list(),
        value=value[kept] + 0.0,
        raw=value[kept] + 0.0,
        scale="rank-normal score",
        error=error[kept],
        n=behind[kept],
        flag=_flags(share[kept] > 0, names, weight),
        details=_details(scores[kept], names),
        bins=config.bins,
        reliability=_alpha(correlation, weight > 0),
        warnings=warnings,
        excluded=pl.DataFrame({"example_id": gone, "reason": pl.repeat("no weight", len(gone), eager=True)}),
        notes={
            "estimators": ", ".join(names),
            "weights": ", ".join(f"{name} {number(float(w), 3)}" for name, w in zip(names, weight, strict=True)),
            "reliability is": "Cronbach's standardised alpha" if (weight > 0).sum() > 1 else "unknown: one is left",
        },
        statistics=_statistics(agreed.pairs, names, weight, known, config),
        pictures={"agreement": Picture("How far the estimators agree.", agreed.plot)},
        source=SOURCE,
    )


def _wide(table: pl.DataFrame, config: CombinedConfig) -> pl.DataFrame:
    """Return example_id and a column of values a method, sorted."""
    have = table["method"].unique().sort().to_list()
    names = sorted(config.of) or have
    asked = list(config.weights) if isinstance(config.weights, dict) else []
    for name in [*names, *asked]:
        if name not in have:
            raise UsageError(
                f"there is no difficulty {name!r}{nearest(name, have)}",
                where=WHERE,
                expected="one of " + ", ".join(have),
            )
    if len(names) < 2:
        raise DataRefused(f"there is only one estimator, {names[0]!r}", where=WHERE, expected="two or more")
    usable = table.filter(pl.col("method").is_in(names) & pl.col("value").is_finite())
    wide = usable.pivot(on="method", index="example_id", values="value", aggregate_function=None)
    wide = wide.select("example_id", *(name for name in names if name in wide.columns)).sort("example_id")
    for name in names:
        if name not in wide.columns or wide[name].drop_nulls().n_unique() < 2:
            raise DataRefused(
                f"{name!r} calls all examples the same",
                where=WHERE,
                expected="estimators that tell examples apart",
                remedy=f"leave {name!r} out:  of: [{', '.join(n for n in names if n != name)}]"
                if len(names) > 2
                else "name others in  of",
            )
    return wide


def _rank_normal(values: np.ndarray) -> np.ndarray:
    """Return normal scores (N,) of mean 0 and standard deviation 1; NaN where there is no value."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    found = np.full(len(values), np.nan)
    known = np.isfinite(values)
    rank = rankdata(np.round(values[known], 9))
    score = ndtri((rank - 0.375) / (len(rank) + 0.25))
    found[known] = (score - score.mean()) / score.std()
    return found


def _correlation(scores: np.ndarray, known: np.ndarray, names: list[str]) -> np.ndarray:
    """Return the matrix of correlations over common examples."""
    matrix = np.eye(len(names))
    for i, j in combinations(range(len(names)), 2):
        both = known[:, i] & known[:, j]
        if both.sum() < 3:
            raise DataRefused(
                f"{names[i]!r} and {names[j]!r} have no example in common, or hardly one",
                where=WHERE,
                expected="estimators of the same examples",
            )
        left, right = scores[both, i], scores[both, j]
        varies = np.ptp(left) > 0 and np.ptp(right) > 0
        matrix[i, j] = matrix[j, i] = float(np.corrcoef(left, right)[0, 1]) if varies else 0.0
    return matrix


def _weights(correlation: np.ndarray, names: list[str], config: CombinedConfig) -> tuple[np.ndarray, list[str]]:
    """Return weights (k,) that sum to one, and warnings."""
    if isinstance(config.weights, dict):
        weight = np.array([config.weights.get(name, 0.0) for name in names])
        return weight / weight.sum(), []
    if config.weights == "equal":
        return np.full(len(names), 1.0 / len(names)), []
    vector = np.linalg.eigh(correlation)[1][:, -1].round(9)
    # the sign of an eigenvector is arbitrary: most estimators point to what is hard
    vector = vector if round(float(vector.sum()), 6) > 0 else -vector
    if round(float(vector.sum()), 6) <= 0:
        raise DataRefused(
            f"{', '.join(name for name, v in zip(names, vector, strict=True) if v > 0)} and the others run against "
            "each other, and neither side outweighs the other",
            where=f"{WHERE}: weights: component",
            expected="estimators of which most agree on what is hard",
            remedy="turn some round at their source (higher_is_harder: false), leave them out of  of, or name weights",
        )
    against = [(name, v) for name, v in zip(names, vector, strict=True) if v < 0]
    warnings = [
        f"{name} is left out: it runs against the others (loading {number(float(loading), 2)})"
        for name, loading in against
    ]
    weight = np.round(np.maximum(vector, 0.0), 12)
    return weight / weight.sum(), warnings


def _alpha(correlation: np.ndarray, used: np.ndarray) -> float | None:
    """Return Cronbach's standardised alpha of the estimators that count, at least 0; None for one alone."""
    k = int(used.sum())
    if k < 2:
        return None
    mean = float(correlation[np.ix_(used, used)][~np.eye(k, dtype=bool)].mean())
    return max(0.0, k * mean / (1 + (k - 1) * mean)) if mean > 0 else 0.0


def _flags(behind: np.ndarray, names: list[str], weight: np.ndarray) -> list[str | None]:
    """Say where an example rests on fewer estimators than there are; few combinations, many rows."""
    patterns, index = np.unique(behind, axis=0, return_inverse=True)
    told: list[str | None] = []
    for pattern in patterns:
        used = [name for name, there in zip(names, pattern, strict=True) if there]
        lacking = [name for name, there, w in zip(names, pattern, weight, strict=True) if not there and w > 0]
        text = f"rests on {used[0]} alone" if len(used) == 1 else f"without {', '.join(lacking)}"
        told.append(text if lacking else None)
    return [told[i] for i in index.ravel()]


def _details(scores: np.ndarray, names: list[str]) -> list[str]:
    """Return each method's score as JSON, a row each."""
    frame = pl.DataFrame({name: np.round(scores[:, i], 6) for i, name in enumerate(names)}, nan_to_null=True)
    return frame.select(pl.struct(pl.all()).struct.json_encode().alias("json"))["json"].to_list()


def _long(wide: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return example_id, method, value, percentile of the methods, as the table `difficulty` has them."""
    long = wide.unpivot(names, index="example_id", variable_name="method").drop_nulls()
    return long.with_columns((pl.col("value").rank() / pl.len()).over("method").alias("percentile"))


def _statistics(
    pairs: pl.DataFrame, names: list[str], weight: np.ndarray, known: np.ndarray, config: CombinedConfig
) -> pl.DataFrame:
    rows = [Statistic("all", f"spearman {a} ~ {b}", r, n) for a, b, r, n in pairs.iter_rows()]
    count = known.sum(axis=0)
    rows += [
        Statistic("all", f"weight {name}", float(w), int(n)) for name, w, n in zip(names, weight, count, strict=True)
    ]
    settings: dict[str, Any] = {
        "method": "combined",
        "of": names,
        "weights": json.loads(config.model_dump_json())["weights"],
    }
    return statistics_table(rows, settings)

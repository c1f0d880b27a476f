"""Hill numbers: the effective number of templates, tasks, factor combinations or any other category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.core.templates import Labels, mask, skeletons
from gradatim.tasks.diversity.result import Diversity

SOURCE = "M. O. Hill (1973). Diversity and evenness: a unifying notation; L. Jost (2006). Entropy and diversity"
Correction = Literal["none", "miller-madow", "chao-shen"]
Template = Literal["none", "mask", "structure"]
_WHERE = "diversity hill"


class HillConfig(Config):
    """Settings of `hill`."""

    column: str = Field("template", description="column of examples whose categories are counted; factors also works")
    by: str = Field("", description="column of examples: measure each of its values as well")
    template: Template = Field("none", description="what a row's category is made from: mask (of a text), structure")
    entities: bool = Field(True, description="template mask: mask names as well as numbers and quoted strings")
    labels: Labels = Field("inner", description="template structure: which labels count: none, inner or all")
    mask: bool = Field(False, description="mask quoted strings and numbers: template mask without entities")
    correction: Correction = Field("none", description="bias correction of the entropy behind D1")

    @model_validator(mode="before")
    @classmethod
    def _column(cls, given: Any) -> Any:
        """Let a template say which column it is made from, where none is named."""
        usual = {"mask": "input", "structure": "structure"}
        if isinstance(given, dict) and "column" not in given and given.get("template") in usual:
            return {**given, "column": usual[given["template"]]}
        return given


def hill_number(counts: ArrayLike, q: float) -> float:
    """Return the Hill number of order q of category counts.

    Parameters
    ----------
    counts : array-like, shape (categories,)
        Non-negative, with a positive sum; zeros are no categories.
    q : float
        Order, 0 or more; 1 is the exponential of Shannon's entropy, infinity the inverse of the largest share.

    Returns
    -------
    float
        From 1 (one category) to the number of categories (all equally frequent); never rises with q.

    Notes
    -----
    ``(sum p^q)^(1/(1-q))``. The order of categories does not change a bit of the result.
    """
    p = _shares(counts)
    if not q >= 0:
        raise UsageError(f"order {q}", expected="q of 0 or more")
    if q == 0:
        return float(len(p))
    if q == 1:
        return float(np.exp(-ordered_sum(p * np.log(p))))
    if np.isinf(q):
        return float(1 / p.max())
    top = p.max()  # scaled by it, large orders do not underflow
    return float(np.exp((q * np.log(top) + np.log(ordered_sum((p / top) ** q))) / (1 - q)))


def hill_numbers(counts: ArrayLike, correction: Correction = "none") -> dict[str, float]:
    """Return Hill numbers of orders 0, 1, 2 and what else describes the counts.

    Parameters
    ----------
    counts : array-like of int, shape (categories,)
    correction : "none", "miller-madow" or "chao-shen"
        Of the entropy behind D1: plain counts of few rows see too little of it. D0 stays the observed number, so that a
        corrected D1 may exceed it.

    Returns
    -------
    dict
        D0, D1, D2, entropy (nats), evenness (D1 / D0), top_share, singletons, coverage (Good and Turing: 1 - f1 / n,
        the estimated share of the source's rows whose category was seen).

    Source: A. Chao, T.-J. Shen (2003). Nonparametric estimation of Shannon's index of diversity when there are unseen
    species; G. A. Miller (1955). Note on the bias of information estimates; I. J. Good (1953). The population
    frequencies of species and the estimation of population parameters.
    """
    p = _shares(counts)
    whole = np.asarray(counts, dtype=np.float64)
    n = float(ordered_sum(whole))
    singletons = int((whole == 1).sum())
    entropy = _entropy(p, n, singletons, correction)
    return {
        "D0": float(len(p)),
        "D1": float(np.exp(entropy)),
        "D2": hill_number(counts, 2),
        "entropy": entropy,
        "evenness": float(np.exp(entropy) / len(p)),
        "top_share": float(p.max()),
        "singletons": float(singletons),
        "coverage": 1 - singletons / n,
    }


def rarefied(counts: ArrayLike, size: int) -> float:
    """Return the number of categories expected among `size` rows drawn without replacement.

    This is how subsets of different sizes are compared. Source: S. H. Hurlbert (1971). The nonconcept of species
    diversity: a critique and alternative parameters.
    """
    from scipy.special import gammaln

    counted = np.asarray(counts, dtype=np.float64)
    counted = counted[counted > 0]
    n = ordered_sum(counted)
    if not 1 <= size <= n:
        raise UsageError(f"{size} rows drawn of {n:.0f}", expected="a size from 1 to the number of rows")
    rest = n - counted
    possible = rest >= size
    log_missed = np.full(len(counted), -np.inf)
    log_missed[possible] = (
        gammaln(rest[possible] + 1) - gammaln(rest[possible] - size + 1) - gammaln(n + 1) + gammaln(n - size + 1)
    )
    return ordered_sum(-np.expm1(log_missed))


def partial(rows: pl.DataFrame) -> pl.DataFrame:
    """Count the rows (columns category and by) of each category in each value of `by`: columns by, category, rows."""
    return rows.group_by("by", "category").agg(pl.len().cast(pl.Int64).alias("rows")).sort("by", "category")


def merge(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up the counts of parts, in any order and grouping."""
    return pl.concat(parts).group_by("by", "category").agg(pl.col("rows").sum()).sort("by", "category")


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.05 + rows * 2.5e-7, bytes=2e7 + rows * 80)


@register(
    "diversity",
    "hill",
    config=HillConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    revision=2,
    source=SOURCE,
)
def hill(tables: Mapping[str, pl.DataFrame], config: HillConfig, seed: int) -> Diversity:
    """Effective number of templates or other categories (Hill numbers D0, D1, D2), overall and by a column.

    Returns the statistics ``hill_D0`` ... of all rows and of each value of `by` (with ``hill_rarefied``, D0 expected at
    the size of the smallest subset), across them ``hill_within_D1``, ``hill_between_D1`` and ``hill_shared``, and for
    each row the share of its category. Rows without a category are left out and counted. `seed` is not used.
    """
    examples = tables["examples"]
    for column in filter(None, (config.column, config.by)):
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where=_WHERE,
                expected=", ".join(examples.columns),
            )
    category = _categories(examples, config)
    by = _text(examples, config.by) if config.by else pl.Series([""] * len(examples), dtype=pl.String)
    rows = pl.DataFrame({"example_id": examples["example_id"], "category": category, "by": by})
    known = rows.drop_nulls("category")
    if known.is_empty():
        raise DataRefused(
            f"column {config.column!r} has no value in any of {len(rows):,} rows",
            where=_WHERE,
            expected="at least one row with a category",
            remedy="name another column, or drop this measure",
        )
    cells = merge([partial(known)])
    counts = cells.group_by("category").agg(pl.col("rows").sum()).sort("category")
    statistics = _statistics("all", counts["rows"].to_numpy(), config.correction)
    groups = cells.drop_nulls("by")
    if config.by:
        smallest = min(groups.group_by("by").agg(pl.col("rows").sum())["rows"].to_list(), default=0)
        for part in groups.partition_by("by", maintain_order=True):
            found, subset = part["rows"].to_numpy(), f"{config.by}={part['by'][0]}"
            statistics += _statistics(subset, found, config.correction)
            statistics.append(Statistic(subset, "hill_rarefied", rarefied(found, smallest), int(found.sum())))
        statistics += _across(groups, config.by)
    parameters = config.model_dump()
    left_out = len(rows) - len(known)
    warnings = [f"{left_out:,} of {len(rows):,} rows have no {config.column} and were left out"] if left_out else []
    coverage = next(row.value for row in statistics if row.metric == "hill_coverage") or 0.0
    if coverage < 0.9:
        warnings.append(
            f"Good-Turing coverage is {fmt.fixed(coverage, 2)}: many categories are still unseen, "
            "and D0 and D1 are too low"
        )
    made = "" if config.template == "none" else f", {config.template}"
    method = "hill" if config.column == "template" and not made else f"hill({config.column}{made})"
    return Diversity(
        method=method,
        statistics=statistics_table(statistics, parameters),
        table=_table(known, counts, method),
        main="hill_D1",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
    )


def _statistics(subset: str, counts: NDArray[np.int64], correction: Correction) -> list[Statistic]:
    n = int(counts.sum())
    share = wilson(float(counts.max()), n)
    return [
        Statistic(subset, f"hill_{name}", value, n, *((share.low, share.high) if name == "top_share" else ()))
        for name, value in hill_numbers(counts, correction).items()
    ]


def _across(groups: pl.DataFrame, by: str) -> list[Statistic]:
    """Part the diversity of all subsets together into that within them and that between them.

    ``hill_within_D1`` is the exponential of the subsets' mean entropy, weighted by rows; ``hill_between_D1``, D1 of all
    over it, is the effective number of subsets: 1 where all have the same shares, at most their number where no
    category stands in two. ``hill_shared`` counts the categories that stand in two subsets or more. Entropies are not
    corrected.

    Source: L. Jost (2007). Partitioning diversity into independent alpha and beta components.
    """
    if groups.is_empty():
        return []
    n = int(groups["rows"].sum())
    pooled = groups.group_by("category").agg(pl.col("rows").sum(), subsets=pl.len()).sort("category")
    entropies = [
        hill_numbers(part["rows"].to_numpy())["entropy"] * (int(part["rows"].sum()) / n)
        for part in groups.partition_by("by", maintain_order=True)
    ]
    within = float(np.exp(ordered_sum(entropies)))
    between = max(1.0, hill_number(pooled["rows"].to_numpy(), 1) / within)
    shared = float((pooled["subsets"] > 1).sum())
    named = {"hill_within_D1": within, "hill_between_D1": between, "hill_shared": shared}
    return [Statistic(f"across {by}", metric, value, n) for metric, value in named.items()]


def _table(known: pl.DataFrame, counts: pl.DataFrame, method: str) -> pl.DataFrame:
    """Share and number (in order of name) of each row's category."""
    numbered = counts.with_row_index("cluster").with_columns(value=pl.col("rows") / len(known))
    joined = known.join(numbered, on="category", how="left").with_columns(
        method=pl.lit(method),
        nearest_id=pl.lit(None, pl.String),
        nearest_similarity=pl.lit(None, pl.Float64),
    )
    schema = polars_schema("diversity")
    return joined.select(pl.col(name).cast(kind) for name, kind in schema.items()).sort("example_id")


def _categories(examples: pl.DataFrame, config: HillConfig) -> pl.Series:
    """Return the category of each row as text; null for none."""
    column = examples[config.column]
    if config.template == "structure":
        return skeletons(column, config.labels, examples["example_id"], where=_WHERE)
    if config.template == "mask" and column.dtype not in (pl.String, pl.Categorical, pl.Null):
        raise UsageError(f"column {config.column!r} holds {column.dtype}", where=_WHERE, expected="text to mask")
    text = _text(examples, config.column)
    if config.template == "mask" or config.mask:
        return mask(text, entities=config.entities and config.template == "mask")
    return text


def _text(examples: pl.DataFrame, column: str) -> pl.Series:
    """Return a column as text, nested ones as JSON; nulls stay null."""
    values = examples[column]
    if values.dtype.is_nested():
        nested = examples.select(pl.struct(pl.col(column)).struct.json_encode())[column]
        return nested.set(values.is_null(), None)
    return values.cast(pl.String)


def _shares(counts: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(counts, dtype=np.float64).ravel()
    if not np.isfinite(values).all() or (values < 0).any() or not (values > 0).any():
        raise UsageError("counts are negative, not finite, or all zero", expected="counts of 0 or more, one above 0")
    positive = values[values > 0]
    return np.asarray(positive / ordered_sum(positive))


def _entropy(p: NDArray[np.float64], n: float, singletons: int, correction: Correction) -> float:
    if correction == "none":
        return max(0.0, -ordered_sum(p * np.log(p)))
    if correction == "miller-madow":
        return max(0.0, -ordered_sum(p * np.log(p))) + (len(p) - 1) / (2 * n)
    if correction != "chao-shen":
        raise UsageError(f"correction {correction!r}", expected="none, miller-madow or chao-shen")
    seen = 1 - min(singletons, n - 1) / n  # where all are singletons, one less keeps the estimate finite
    adjusted = seen * p
    weight = -np.expm1(n * np.log1p(-np.minimum(adjusted, 1 - 1e-16)))
    return max(0.0, -ordered_sum(adjusted * np.log(adjusted) / weight))

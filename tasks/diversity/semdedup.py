"""SemDeDup: how near each row is to one that comes before it in its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.centroids import Clustered, centroid_table, kept_clusters
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.redundancy import bounded_clusters, nearest_earlier_in_groups
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.row_numbers import bits_of, by_code, counts, mapped_over, per_row, slices
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.row_table import row_table
from gradatim.tasks.diversity.vectors import OnVectors, locate, subset_names, text_column

SOURCE = (
    "A. Abbas, K. Tirumala, D. Simig, S. Ganguli, A. S. Morcos (2023). SemDeDup: data-efficient learning at web-scale "
    "through semantic deduplication"
)
WHERE = "diversity semdedup"
ROWS_PER_CLUSTER = 500
MOST_CLUSTERS = 1000
CURVE = np.round(np.concatenate([np.arange(0, 0.1, 0.005), np.arange(0.1, 0.52, 0.02)]), 3)
"""Epsilons of the curve."""


class SemDeDupConfig(Clustered, OnVectors):
    """Settings of `semdedup`."""

    features: str = Field("", description="name of a features table; by default the only one at hand")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    by: str = Field("", description="column of examples: tell the shares of each of its values as well")
    order: Literal["far-first", "near-first", "random"] = Field(
        "far-first", description="which rows of a cluster come first and stay: those far from its centre, near, or any"
    )
    epsilons: tuple[float, ...] = Field(
        (0.01, 0.05, 0.1), description="a row is redundant whose cosine to an earlier one is above 1 - epsilon"
    )
    clusters: int | None = Field(None, ge=1, le=100_000, description="a five-hundredth of the rows, at most 1,000")
    largest: int = Field(20_000, ge=2, description="rows of a cluster beyond which it is cut again")

    @field_validator("epsilons")
    @classmethod
    def _valid(cls, found: tuple[float, ...]) -> tuple[float, ...]:
        if not found or not all(0 <= e < 2 for e in found):
            raise ValueError("epsilons should be one or more numbers from 0 to below 2")
        return tuple(sorted(set(found)))


def redundant(table: pl.DataFrame, epsilon: float) -> pl.Series:
    """Return the ids that an epsilon drops, from the kept scores: nothing is computed again.

    Parameters
    ----------
    table : polars.DataFrame
        ``example_id`` and ``value`` of a result of `semdedup`.
    epsilon : float
        0 or more; a higher one drops a superset.
    """
    if not epsilon >= 0:
        raise UsageError(f"epsilon is {epsilon}", where=WHERE, expected="0 or more")
    return table.filter(pl.col("value") > _bound(epsilon))["example_id"].sort()


@register(
    "diversity",
    "semdedup",
    config=SemDeDupConfig,
    needs=("examples.{column}", "examples.{by}", "features_{features}.embedding"),
    cost=lambda rows, width: Cost(
        seconds=2 + rows * (width or 256) * (1.5e-7 + 2e-11 * max(500, rows / 1000)),
        bytes=3e8 + 1e6 * (width or 256) + rows * 250.0,
    ),
    source=SOURCE,
    maturity="experimental",
    revision=2,
)
def semdedup(tables: Mapping[str, pl.DataFrame], config: SemDeDupConfig, seed: int) -> Diversity:
    """Learned redundancy (SemDeDup): each row's largest cosine to an earlier row of its cluster, for any threshold.

    Each row's value is that cosine (null for the first of a cluster), its nearest_id the row, its cluster the number of
    the k-means cluster; ``semdedup_removed_0.05`` ... are the shares above 1 - epsilon. `redundant(table, epsilon)`
    names the rows for any other epsilon. With `anchor` clusters are those of a release, not cut again.
    Rows without a vector, or with one of zeros, are left out and counted.
    """
    found = locate(tables, config.features, config.column, WHERE)
    by = text_column(found.rows, config.by, WHERE) if config.by else None
    n = len(found.rows)
    kept = kept_clusters(tables, config.anchor, found.matrix, "cosine", WHERE)
    warnings = list(found.warnings)
    if isinstance(kept, str):
        warnings += [kept] if kept else []
        asked = config.clusters or max(1, min(MOST_CLUSTERS, n // ROWS_PER_CLUSTER))
        clusters, cluster, near = bounded_clusters(
            found.matrix, found.ids, asked, largest=config.largest, seed=seed, where=WHERE
        )
    else:
        clusters, cluster, near = kept
    order = _order(found.ids, cluster, len(clusters), near, config.order, seed)
    similarity, index = per_row(n), per_row(n, np.int64)
    value, place = nearest_earlier_in_groups(
        found.matrix.view(order), mapped_over(n, lambda part: cluster[order[part]], np.int64)
    )
    for part in slices(n):
        similarity[order[part]] = value[part]
        index[order[part]] = np.where(place[part] >= 0, order[place[part]], -1)
    size = counts(cluster, len(clusters))
    if size.max() > config.largest and not isinstance(kept, str):
        warnings.append(
            f"a released cluster holds {size.max():,} rows (largest: {config.largest:,}), which takes long to compare: "
            "anchor: null fits and cuts anew"
        )
    statistics = [
        Statistic("all", "semdedup_clusters", float((size > 0).sum()), n),
        Statistic("all", "semdedup_largest_cluster", float(size.max() / n), n),
    ]
    subsets: list[tuple[str, NDArray[np.float64]]] = [("all", similarity)]
    if by is not None:
        subsets += [
            (f"{config.by}={name}", similarity[(by == name).fill_null(False).to_numpy()])
            for name in subset_names(by, WHERE)
        ]
    for subset, scores in subsets:
        for epsilon in config.epsilons:
            removed = int((scores > _bound(epsilon)).sum())
            share = wilson(removed, len(scores))
            metric = f"semdedup_removed_{epsilon:g}"
            statistics.append(Statistic(subset, metric, removed / len(scores), len(scores), share.low, share.high))
    parameters = {**config.model_dump(), "k": len(size), "vectors": found.name, "seed": seed}
    label = config.features or ("" if config.column == "input" else config.column)
    return Diversity(
        method=f"semdedup({label})" if label else "semdedup",
        statistics=statistics_table(statistics, parameters),
        table=row_table("semdedup", found.ids, similarity, cluster, index, lambda part: similarity[part]),
        main=f"semdedup_removed_{config.epsilons[len(config.epsilons) // 2]:g}",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        centroids=centroid_table(clusters, cluster, "semdedup"),
        pictures={
            "removed": Picture(
                "Share of rows that a threshold drops: a steep start is exact repetition, a late rise is shared topic.",
                lambda: _draw_curve(similarity),
            ),
            "similarity": Picture(
                "Largest cosine of each row to an earlier row of its cluster.", lambda: _draw_similarity(similarity)
            ),
        },
    )


def _bound(epsilon: float) -> float:
    return float(np.round(1 - epsilon, 9))


def _order(
    ids: pl.Series, cluster: NDArray[np.int64], k: int, near: NDArray[np.float64], order: str, seed: int
) -> NDArray[Any]:
    """Sort rows by cluster, then by the order wanted, ties by id (the rows stand in order of ids)."""
    by = bits_of(ids, seed, "semdedup/order") if order == "random" else near
    rows, starts = by_code(cluster, k)
    for start, end in pairwise(starts.tolist()):
        some = rows[start:end]
        key = by[some]
        rows[start:end] = some[np.argsort(-key if order == "near-first" else key, kind="stable")]
    return rows


def _draw_curve(similarity: NDArray[np.float64]) -> object:
    from gradatim.tasks.core.charts import lines

    share = [float((similarity > _bound(epsilon)).mean()) for epsilon in CURVE.tolist()]
    frame = pl.DataFrame({"epsilon": CURVE, "share dropped": share})
    return lines(frame, x="epsilon", y="share dropped", title="Rows that a threshold drops")


def _draw_similarity(similarity: NDArray[np.float64]) -> object:
    from gradatim.tasks.core.charts import histogram

    return histogram(similarity, title="Similarity to an earlier row", x="largest cosine to an earlier row")

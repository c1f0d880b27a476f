"""Coverage of embedding space: how far rows are from each other, from a few centres, and from the training rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.centroids import Clustered, centroid_table, kept_clusters
from gradatim.tasks.core.clusters import cluster_sums, k_means, occupancy_entropy
from gradatim.tasks.core.cover import hashed_part, hashed_sample, k_centre, principal_map
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.nearest_by_part import nearest_by_part
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum, sorted_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.row_numbers import by_code, codes_of, counted, numbered, per_row, slices
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.core.vector_rows import SLICE
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.row_table import row_table
from gradatim.tasks.diversity.vectors import Located, OnVectors, locate, text_column

SOURCE = (
    "T. F. Gonzalez (1985). Clustering to minimize the maximum intercluster distance; O. Sener, S. Savarese (2018). "
    "Active learning for convolutional neural networks: a core-set approach; G. L. Nemhauser, L. A. Wolsey, "
    "M. L. Fisher (1978). An analysis of approximations for maximizing submodular set functions"
)
WHERE = "diversity coverage"
POOL = 20_000
"""Rows among which centres are picked."""
PRODUCTS = 2 * 10**9
"""Pairs up to which every row is asked for its nearest, rather than a sample."""
MEASURED = 200
"""Values of `by` that have numbers of their own: the most frequent ones."""
MAPPED = 2_000
"""Rows on the map."""

Floats = NDArray[np.float64]


class CoverageConfig(Clustered, OnVectors):
    """Settings of `coverage`."""

    features: str = Field("", description="name of a features table; by default the only one at hand")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    metric: Literal["cosine", "euclidean"] = Field("cosine", description="distance: 1 - cosine, or Euclidean")
    split: str = Field("split", description="column of examples that says which rows are for training, if there is one")
    train: str = Field("train", description="its value for the training rows; every other value is covered by them")
    by: str = Field("domain", description="column of examples: measure each of its values as well, and colour the map")
    tau: float = Field(0.2, gt=0, description="distance up to which a row counts as covered")
    clusters: int | None = Field(None, ge=1, le=100_000, description="of k-means; √rows by default, at most 1,000")
    centres: int = Field(100, ge=1, le=10_000, description="without training rows: rows picked as k-centre cover")
    queries: int = Field(10_000, ge=1, description="rows asked for their nearest one where there are many")


def remote_clique(total: Floats, squares: Floats, n: Floats) -> Floats:
    """Return the mean squared Euclidean distance of all pairs of each group, from sums alone.

    Parameters
    ----------
    total : numpy.ndarray, shape (groups, d)
        Sum of the rows of each group.
    squares, n : numpy.ndarray, shape (groups,)
        Sum of the squared norms of its rows, and their number.

    Returns
    -------
    numpy.ndarray, shape (groups,)
        NaN for fewer than two rows. Half of it is the mean of 1 - cosine where rows have length 1.
    """
    total = np.asarray(total, dtype=np.float64)
    spread = 2 * (n * squares - np.einsum("gd,gd->g", total, total))
    pairs = np.asarray(n * (n - 1), dtype=np.float64)
    found: Floats = np.divide(np.maximum(spread, 0), pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return found


@register(
    "diversity",
    "coverage",
    config=CoverageConfig,
    needs=("examples.{column}", "examples.{split}?", "examples.{by}?", "features_{features}.embedding"),
    cost=lambda rows, width: Cost(
        seconds=2 + rows * 8e-8 * (width or 256) + min(rows, 10_000) * rows * 2e-11 * (width or 256),
        bytes=3e8 + 1e6 * (width or 256) + rows * 250.0,
    ),
    source=SOURCE,
)
def coverage(tables: Mapping[str, pl.DataFrame], config: CoverageConfig, seed: int) -> Diversity:
    """How well rows cover the space of their vectors: nearest rows, clusters, centres, and test rows by training rows.

    Returns ``coverage_nn_mean`` and ``_p95`` (distance to the nearest other row), ``coverage_mean_distance`` (of all
    pairs), ``coverage_occupancy_entropy`` of k-means clusters, and of centres or training rows ``coverage_radius``,
    ``coverage_facility_location``, ``coverage_chamfer`` and ``coverage_within`` tau. Each row's value is the distance
    to its nearest other row, or of a row that is not for training to its nearest training row.
    With `anchor` clusters are those of a release: a row keeps its cluster, and entropies of nights compare.
    """
    found = locate(tables, config.features, config.column, WHERE, cosine=config.metric == "cosine")
    warnings = list(found.warnings)
    kept = kept_clusters(tables, config.anchor, found.matrix, config.metric, WHERE)
    if isinstance(kept, str):
        warnings += [kept] if kept else []
        asked = config.clusters or min(1000, max(1, round(len(found.rows) ** 0.5)))
        clusters = k_means(found.matrix, asked, ids=found.ids, metric=config.metric, seed=seed, where=WHERE)
        cluster, _ = clusters.assign(found.matrix)
    else:
        clusters, cluster, _ = kept
    statistics = _whole(found, config, cluster, len(clusters), clusters.inertia)
    group = _column(found.rows, config.split, "split")
    if group is not None and not (group == config.train).any():
        if config.split != "split":
            raise DataRefused(
                f"no row with a vector has {config.split} = {config.train!r}",
                where=WHERE,
                expected=", ".join(map(repr, group.drop_nulls().unique().sort().to_list()[:10])),
                remedy="name the training rows' value with train:",
            )
        group = None
    every = numbered(len(found.rows))
    everywhere = _nearest(found, config, every, every, seed)
    statistics += _distances("all", everywhere, "")
    if len(found.rows) == 1:
        warnings.append("there is one row: it has no other to be near to")
    measured = everywhere
    if group is None:
        cover = _centres(found, config, seed)
        left = np.ones(len(found.rows), dtype=bool)
        left[cover] = False
        to_cover = _nearest(found, config, cover, every[left], seed)
        statistics += _covered("all", found, config, cover, to_cover, seed, "")
    else:
        cover = np.flatnonzero((group == config.train).fill_null(False).to_numpy())
        rest = counted(group)["name"].sort().to_list()
        rest.remove(config.train)
        parts = []
        for value in rest:
            rows = np.flatnonzero((group == value).fill_null(False).to_numpy())
            part = _nearest(found, config, cover, rows, seed)
            name, train = f"{config.split}={value}", f"{config.split}={config.train}"
            statistics += [*_distances(name, part, train), *_covered(name, found, config, cover, part, seed, train)]
            parts.append(part)
        if parts:
            measured = _joined(parts)
            statistics += _covered("all", found, config, cover, measured, seed, "")
        else:
            warnings.append(f"all rows have {config.split} = {config.train!r}: there is nothing for them to cover")
    if measured.sampled or everywhere.sampled:
        warnings.append(f"nearest rows were looked for from a sample of {config.queries:,}: radii are lower bounds")
    if len(clusters) < clusters.asked:
        warnings.append(
            f"{len(clusters):,} clusters of {clusters.asked:,} were made: there are not as many different rows"
        )
    within = any(s.subset == "all" and s.metric == "coverage_within" for s in statistics)
    parameters = {**config.model_dump(), "vectors": found.name, "k": len(clusters), "seed": seed}
    label = config.features or ("" if config.column == "input" else config.column)
    domain = _column(found.rows, config.by, "domain")
    if domain is not None and len(counted(domain)) > MEASURED:
        warnings.append(f"the {MEASURED} most frequent values of {config.by} have numbers of their own")
    return Diversity(
        method=f"coverage({label})" if label else "coverage",
        statistics=statistics_table(
            [s for s in statistics if s.value is not None and np.isfinite(s.value)], parameters
        ),
        table=_table(found, measured, cluster, config),
        main="coverage_within" if group is not None and within else "coverage_occupancy_entropy",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        centroids=centroid_table(clusters, cluster, "coverage"),
        pictures={
            "map": Picture(
                "Rows on the first two principal components of their vectors: what lies apart is covered apart.",
                lambda: _draw_map(found, domain if domain is not None else group, config, seed),
            ),
            "distances": Picture(
                "Distance of each row to its nearest other row, or to its nearest training row.",
                lambda: _draw_distances(measured, config, group is not None),
            ),
        },
    )


@dataclass(frozen=True)
class Nearest:
    """Rows that were asked, the nearest row of each (-1 without one) and how far it is; whether they are a sample."""

    rows: NDArray[np.int64]
    index: NDArray[np.int64]
    away: Floats
    sampled: bool


def _whole(
    found: Located, config: CoverageConfig, cluster: NDArray[np.int64], k: int, inertia: float
) -> list[Statistic]:
    """What is said of all rows, and of each value of `by`, from sums and counts."""
    domain = _column(found.rows, config.by, "domain")
    codes, names = per_row(len(found.rows), np.int32), ["all"]
    statistics: list[Statistic] = []
    half = 2 if config.metric == "cosine" else 1
    name = "coverage_mean_distance" if config.metric == "cosine" else "coverage_mean_squared_distance"
    sets = [(codes, names)]
    if domain is not None:
        values = counted(domain)["name"].head(MEASURED).sort()
        sets.append((codes_of(domain, values), [f"{config.by}={value}" for value in values.to_list()]))
    totals, squares = _sums(found, config, [(code, len(labels)) for code, labels in sets])
    for (code, labels), total in zip(sets, totals, strict=True):
        rows, ends = by_code(code, len(labels))
        n = np.diff(ends)
        spread = np.array([sorted_sum(squares[rows[a:b]]) for a, b in pairwise(ends.tolist())])
        clique = remote_clique(total, spread, n.astype(np.float64)) / half
        size = np.zeros((len(labels), k), dtype=np.int64)
        for part in slices(len(code)):
            held = code[part] >= 0
            np.add.at(size, (code[part][held], cluster[part][held]), 1)
        for i, label in enumerate(labels):
            entropy, count = occupancy_entropy(size[i]), int(n[i])
            statistics += [
                Statistic(label, name, float(clique[i]), count),
                Statistic(label, "coverage_occupancy_entropy", entropy, count),
                Statistic(label, "coverage_occupancy_evenness", entropy / np.log(k) if k > 1 else 1.0, count),
                Statistic(label, "coverage_clusters", float((size[i] > 0).sum()), count),
            ]
    statistics.append(Statistic("all", "coverage_inertia", inertia, len(found.rows)))
    return statistics


def _sums(
    found: Located, config: CoverageConfig, groups: list[tuple[NDArray[np.int64], int]]
) -> tuple[list[Floats], Floats]:
    """Sum the rows of each group, of several ways to group them, and the squares of each row, some rows at a time."""
    centre = 0.0 if config.metric == "cosine" else found.matrix.mean()
    totals = [np.zeros((k, found.matrix.shape[1])) for _, k in groups]
    squares = per_row(len(found.rows))
    for part, some in found.matrix.slices(SLICE):
        rows = some.astype(np.float64) - centre
        squares[part] = np.einsum("nd,nd->n", rows, rows)
        for total, (code, k) in zip(totals, groups, strict=True):
            total += cluster_sums(rows, code[part], k)
    return totals, squares


def _centres(found: Located, config: CoverageConfig, seed: int) -> NDArray[np.int64]:
    pool = hashed_sample(found.ids, POOL, seed, "coverage/pool")
    start = hashed_sample(found.ids.gather(pool), 1, seed, "coverage/start")[0]
    picks, _ = k_centre(found.matrix[pool], config.centres, first=int(start), cosine=config.metric == "cosine")
    return np.sort(pool[picks])


def _nearest(
    found: Located, config: CoverageConfig, among: NDArray[np.int64], rows: NDArray[np.int64], seed: int
) -> Nearest:
    """Ask rows, or a hashed sample of them, for their nearest one `among` others."""
    limit = max(config.queries, PRODUCTS // max(1, len(among)))
    picks = hashed_part(found.ids, rows, limit, seed, "coverage/queries")
    if not len(picks):
        return Nearest(picks, picks, np.zeros(0), False)
    index, measure = nearest_by_part(found.matrix, found.ids, among, picks, metric=config.metric, where=WHERE)
    away = 1 - measure if config.metric == "cosine" else measure
    return Nearest(picks, index, np.round(away, 9), len(picks) < len(rows))


def _joined(parts: list[Nearest]) -> Nearest:
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    index, away = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("index", "away"))
    return Nearest(rows[order], index, away, any(part.sampled for part in parts))


def _distances(subset: str, part: Nearest, reference: str) -> list[Statistic]:
    away = part.away[np.isfinite(part.away)]
    mean = ordered_sum(away) / len(away) if len(away) else None
    high = float(np.quantile(away, 0.95)) if len(away) else None
    return [
        Statistic(subset, "coverage_nn_mean", mean, len(away), reference=reference),
        Statistic(subset, "coverage_nn_p95", high, len(away), reference=reference),
    ]


def _covered(
    subset: str,
    found: Located,
    config: CoverageConfig,
    cover: NDArray[np.int64],
    part: Nearest,
    seed: int,
    reference: str,
) -> list[Statistic]:
    """How well `cover` covers the rows that were asked: none left to cover is a radius of nought."""
    away, n = part.away, len(part.away)
    near = similarity(away, config.metric)
    back = _nearest(found, config, part.rows, cover, seed).away if n else np.zeros(0)
    chamfer = (ordered_sum(away) / n + ordered_sum(back) / len(back)) if n else 0.0
    inside = int((away <= config.tau).sum())
    share = wilson(inside, n)
    return [
        Statistic(subset, "coverage_radius", float(away.max(initial=0)), n, reference=reference),
        Statistic(subset, "coverage_facility_location", ordered_sum(near) / n if n else 1.0, n, reference=reference),
        Statistic(subset, "coverage_chamfer", chamfer, n, reference=reference),
        Statistic(subset, "coverage_within", inside / n if n else 1.0, n, share.low, share.high, reference),
    ]


def similarity(away: Floats, metric: str) -> Floats:
    """Turn distances into similarities: 1 - distance under cosine, else 1 / (1 + distance)."""
    found: Floats = 1 - away if metric == "cosine" else 1 / (1 + away)
    return found


def _column(rows: pl.DataFrame, name: str, default: str) -> pl.Series | None:
    """Return a column as text; None where it is the default and not there, or nothing stands in it."""
    if not name or (name == default and name not in rows.columns):
        return None
    found = text_column(rows, name, WHERE)
    return None if found.null_count() == len(found) else found


def _table(found: Located, asked: Nearest, cluster: NDArray[np.int64], config: CoverageConfig) -> pl.DataFrame:
    value, place = per_row(len(found.rows), fill=np.nan), per_row(len(found.rows), np.int64, -1)
    value[asked.rows], place[asked.rows] = asked.away, asked.index
    return row_table("coverage", found.ids, value, cluster, place, lambda part: similarity(value[part], config.metric))


def _draw_map(found: Located, colour: pl.Series | None, config: CoverageConfig, seed: int) -> object:
    from gradatim.tasks.core.charts import points

    picks = hashed_sample(found.ids, MAPPED, seed, "coverage/map")
    places, shares = principal_map(found.matrix[picks])
    x, y = (f"component {i + 1} ({share:.0%} of the variance)" for i, share in enumerate(shares))
    frame = pl.DataFrame({x: places[:, 0], y: places[:, 1]})
    title = f"Map of {len(picks):,} of {len(found.rows):,} rows ({found.name})"
    if colour is None:
        return points(frame, x=x, y=y, title=title)
    by = colour.name
    shown = frame.with_columns(colour.gather(picks).fill_null("(none)").alias(by))
    return points(shown.sort(by, maintain_order=True), x=x, y=y, color=by, title=title)


def _draw_distances(asked: Nearest, config: CoverageConfig, training: bool) -> object:
    from gradatim.tasks.core.charts import histogram

    words = "1 - cosine" if config.metric == "cosine" else "Euclidean distance"
    return histogram(
        asked.away,
        title=f"Distance to the nearest {'training' if training else 'other'} row",
        x=f"{words} to the nearest {'training' if training else 'other'} row",
    )

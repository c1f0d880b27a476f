"""What is packed whole: components of near-duplicates and groups, and clusters of vectors made of whole components."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.clusters import Clusters, cluster_sums, k_means
from gradatim.tasks.core.components import components, cut_giants
from gradatim.tasks.core.embeddings import placed_rows
from gradatim.tasks.core.range_search import cosine_pairs
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.core.vector_rows import VectorRows
from gradatim.tasks.splits.packing_config import WHERE
from gradatim.tasks.splits.together import near_duplicates

AVERAGED = 5_000
"""Most rows for average linkage, which holds a distance of each two."""
STEP = 0.02
"""By how much the threshold rises inside what is too large, at a time."""

Ints = NDArray[np.int64]
Clustering = Callable[[VectorRows, pl.Series, int], tuple[Ints, NDArray[np.float32]]]
"""Clusters unit vectors: (rows, ids, clusters wanted) -> (cluster of each row, centres)."""


@dataclass(frozen=True)
class Located:
    """Vectors of examples.

    Attributes
    ----------
    row : numpy.ndarray, shape (n,), int64
        Rows of the examples that have a vector with a direction, ascending.
    unit : VectorRows, shape (n, d)
        Their vectors, of length 1.
    lack : polars.Series of String, (rows of examples,)
        Why a row has none; null where it has.
    """

    row: Ints
    unit: VectorRows
    lack: pl.Series


def located(tables: Mapping[str, pl.DataFrame], features: str, ids: pl.Series) -> Located:
    """Find the vectors of examples whose ids are sorted; errors as of `placed_rows`, and where no example has one."""
    names, vectors, _ = placed_rows(tables, features, WHERE)
    place = (
        ids.to_frame("id")
        .join(pl.DataFrame({"id": names}).with_row_index("place"), on="id", how="left", maintain_order="left")["place"]
        .cast(pl.Int64)
        .fill_null(-1)
        .to_numpy()
    )
    row = np.flatnonzero(place >= 0)
    found = replace(vectors.view(place[row]), unit=True)
    directed = np.concatenate([np.zeros(0, bool), *(some.any(axis=1) for _, some in found.slices())])
    if not directed.any():
        raise DataRefused(
            f"none of {len(ids):,} examples has a vector with a direction in the features {features!r}", where=WHERE
        )
    lack = pl.Series("lack", [None], dtype=pl.String).new_from_index(0, len(ids))
    lack = lack.scatter(np.flatnonzero(place < 0), f"no vector in the features {features}")
    lack = lack.scatter(row[~directed], f"its vector in the features {features} is zero")
    return Located(row[directed], found.view(directed), lack)


def linked(vectors: Located, ids: pl.Series, threshold: float) -> pl.DataFrame:
    """Return the pairs of rows whose cosine is at least a threshold: single linkage ties them.

    Columns left_id, right_id, similarity. Exact up to `range_search.EXACT_ROWS` vectors.
    """
    names = ids.gather(vectors.row)
    found = cosine_pairs(vectors.unit.whole(), threshold, names)
    return pl.DataFrame(
        {
            "left_id": names.gather(found.pairs[:, 0]),
            "right_id": names.gather(found.pairs[:, 1]),
            "similarity": found.similarity,
        }
    )


def all_pairs(tables: Mapping[str, pl.DataFrame], more: pl.DataFrame | None) -> pl.DataFrame | None:
    """Put together what ties rows: near-duplicates, as pairs or as components by name, and `more` pairs."""
    found = [] if more is None else [more]
    if "components" in tables:
        named = tables["components"].select(pl.col("example_id").cast(pl.String), "component").sort("example_id")
        named = named.with_columns(left_id=pl.col("example_id").first().over("component"), similarity=pl.lit(1.0))
        tied = named.filter(pl.col("left_id") != pl.col("example_id"))
        found.append(tied.select("left_id", pl.col("example_id").alias("right_id"), "similarity"))
    elif "pairs" in tables:
        pairs = near_duplicates(tables["pairs"])
        if "similarity" not in pairs.columns:
            pairs = pairs.with_columns(similarity=pl.lit(None))
        found.append(pairs.select("left_id", "right_id", pl.col("similarity").cast(pl.Float64)))
    return pl.concat(found) if found else None


@dataclass(frozen=True)
class Kept:
    """Pairs after those inside too large components were cut: the pairs that count still, and those that do not."""

    kept: pl.DataFrame
    dropped: pl.DataFrame
    levels: tuple[float, ...]


@dataclass(frozen=True)
class Bounds:
    """What is cut: what has more rows than `largest`, to pieces of no more than `piece`."""

    largest: int
    piece: int


def cut_pairs(pairs: pl.DataFrame, ids: pl.Series, bounds: Bounds) -> Kept:
    """Raise the threshold inside components that are too large until their pieces are not.

    Raises
    ------
    UsageError
        The pairs have no similarity.
    """
    index = ids.to_frame("id").with_row_index("row")
    both = pairs.join(index.rename({"row": "left"}), left_on="left_id", right_on="id")
    both = both.join(index.rename({"row": "right"}), left_on="right_id", right_on="id").sort("left", "right")
    if both["similarity"].null_count():
        raise UsageError(
            "oversize: cut needs to know how similar pairs are",
            where=WHERE,
            expected="pairs with a column 'similarity'",
            remedy="give the table of near_duplicates as it is, or say oversize: overflow",
        )
    ends = both.select("left", "right").to_numpy().astype(np.int64)
    label = components(len(ids), ends)
    inside = np.bincount(label)[label[ends[:, 0]]] > bounds.largest
    kept = ~inside
    levels: tuple[float, ...] = ()
    if inside.any():
        similarity = both["similarity"].to_numpy()[inside]
        share = bounds.piece / len(ids)
        cut = cut_giants(len(ids), ends[inside], similarity, float(similarity.min()), share=share, step=STEP)
        kept[inside] = cut.kept
        levels = tuple(level for _, _, level, _ in cut.steps)
    return Kept(both.filter(kept), both.filter(~kept), levels)


def by_means(seed: int, bounds: Bounds | None) -> Clustering:
    """Cluster by spherical k-means; what is too large is clustered again."""

    def cluster(rows: VectorRows, ids: pl.Series, wanted: int) -> tuple[Ints, NDArray[np.float32]]:
        found = k_means(rows, wanted, ids=ids, seed=seed, where=WHERE)
        label, centres = found.assign(rows)[0], [found.centres]
        size = np.bincount(label, minlength=len(found))
        for number in np.flatnonzero(size > bounds.largest).tolist() if bounds is not None else ():
            there = np.flatnonzero(label == number)
            pieces = math.ceil(2 * len(there) / bounds.piece)  # type: ignore[union-attr]
            cut = k_means(rows.view(there), pieces, ids=ids.gather(there), seed=seed, where=WHERE)
            label[there] = cut.assign(rows.view(there))[0] + sum(map(len, centres))
            centres.append(cut.centres)
        held, label = np.unique(label, return_inverse=True)
        return label.astype(np.int64), np.concatenate(centres)[held]

    return cluster


def by_average(threshold: float, bounds: Bounds | None) -> Clustering:
    """Cluster by average linkage at a cosine; inside what is too large the threshold rises.

    Source: R. R. Sokal, C. D. Michener (1958). A statistical method for evaluating systematic relationships.
    """

    def cluster(rows: VectorRows, ids: pl.Series, wanted: int) -> tuple[Ints, NDArray[np.float32]]:
        if len(rows) > AVERAGED:
            raise UsageError(
                f"average linkage of {len(rows):,} rows",
                where=WHERE,
                expected=f"at most {AVERAGED:,}",
                remedy="say by: kmeans or by: single",
            )
        label = _average(rows[:].astype(np.float64), threshold, bounds)
        total = cluster_sums(rows, label, int(label.max()) + 1)
        length = np.sqrt(np.einsum("kd,kd->k", total, total))
        return label, (total / np.where(length > 0, length, 1)[:, None]).astype(np.float32)

    return cluster


def _average(rows: NDArray[np.float64], threshold: float, bounds: Bounds | None) -> Ints:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(rows) == 1:
        return np.zeros(1, np.int64)
    with one_thread():
        away = np.round(np.clip(1.0 - rows @ rows.T, 0.0, 2.0), 9)
    away = np.minimum(away, away.T)
    np.fill_diagonal(away, 0.0)
    tree = linkage(squareform(away, checks=False), "average")
    label = fcluster(tree, 1 - threshold, "distance").astype(np.int64)
    if bounds is not None:
        giant, level = np.bincount(label)[label] > bounds.largest, threshold
        while level < 1 and (giant & (np.bincount(label)[label] > bounds.piece)).any():
            level = min(1.0, round(level + STEP, 9))
            wide = giant & (np.bincount(label)[label] > bounds.piece)
            label = np.where(wide, label.max() + fcluster(tree, 1 - level, "distance"), label)
            label = np.unique(label, return_inverse=True)[1]
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def clustered(vectors: Located, ids: pl.Series, cluster: Clustering, wanted: int, place: Ints) -> Ints:
    """Number the cluster of each row of the examples, -1 for one without a vector.

    Rows with a place (0 or above, of a released split) are clustered place by place, so that no cluster is in two; one
    without joins the nearest of those clusters. Where none has a place, all rows are clustered at once.
    """
    label = np.full(len(ids), -1, np.int64)
    here = place[vectors.row]
    if (here < 0).all():
        label[vectors.row] = cluster(vectors.unit, ids.gather(vectors.row), wanted)[0]
        return label
    centres: list[NDArray[np.float32]] = []
    for one in np.unique(here[here >= 0]):
        some = np.flatnonzero(here == one)
        share = max(1, round(wanted * len(some) / int((here >= 0).sum())))
        found, middle = cluster(vectors.unit.view(some), ids.gather(vectors.row[some]), share)
        label[vectors.row[some]] = found + sum(map(len, centres))
        centres.append(middle)
    new = np.flatnonzero(here < 0)
    if len(new):
        nearest = Clusters(np.concatenate(centres), "cosine", 0.0, 0, True, 0, wanted)
        label[vectors.row[new]] = nearest.assign(vectors.unit.view(new))[0]
    return label


def whole_clusters(cluster: Ints, code: Ints, rank: Ints) -> Ints:
    """Give each component of rows the cluster of most of its rows, the lowest of equals.

    Parameters
    ----------
    cluster : numpy.ndarray, shape (n,), int64
        -1 for none.
    code : numpy.ndarray, shape (n,), int64
        Component of each row, from 0.
    rank : numpy.ndarray, shape (n,), int64
        Of a component only the rows of the highest rank count.

    Returns
    -------
    numpy.ndarray, shape (n,), int64
        -1 where no row of the component has a cluster.
    """
    held = np.flatnonzero(cluster >= 0)
    highest = np.full(int(code.max()) + 1, -1, np.int64)
    np.maximum.at(highest, code[held], rank[held])
    held = held[rank[held] == highest[code[held]]]
    wide = int(cluster.max()) + 1
    pairs, count = np.unique(code[held] * wide + cluster[held], return_counts=True)
    order = np.lexsort((-pairs, count))  # the last write wins
    home = np.full(len(highest), -1, np.int64)
    home[pairs[order] // wide] = pairs[order] % wide
    return np.asarray(home[code])

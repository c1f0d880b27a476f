"""Centres of clusters as a table, and clusters that keep those of a release: a row then stays in its cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.clusters import Clusters, Metric
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.neighbour_parts import Floats, Ints
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Config
from gradatim.tasks.core.row_numbers import counts
from gradatim.tasks.core.vector_rows import AnyVectors


class Clustered(Config):
    """Settings of a measure that clusters vectors."""

    anchor: Literal["current"] | int | None = Field(
        None,
        description="keep the clusters of a release: current, or its number; by default they are fitted to the rows "
        "that there are",
    )

    @field_validator("anchor", mode="before")
    @classmethod
    def _number(cls, found: Any) -> Any:
        if isinstance(found, bool) or (isinstance(found, int) and found < 1):
            raise ValueError(f"found {found!r}; anchor is 'current', a release's number from 1, or null")
        return found


def centroid_table(clusters: Clusters, cluster: Ints, method: str) -> pl.DataFrame:
    """Return the centres in the schema of the table `centroids`, with the rows that each holds now.

    Parameters
    ----------
    clusters : Clusters
    cluster : numpy.ndarray of int64, shape (N,)
        Cluster of each row; -1 counts for none.
    method : str
        Name of the measure.
    """
    kind = pl.Array(pl.Float32, clusters.centres.shape[1])
    frame = pl.DataFrame(
        {
            "method": pl.repeat(method, len(clusters), eager=True),
            "cluster": np.arange(len(clusters)),
            "centroid": pl.Series(clusters.centres, dtype=kind).arr.to_list(),
            "rows": counts(cluster, len(clusters)),
        }
    )
    return conform(frame, "centroids")


def kept_clusters(
    tables: Mapping[str, pl.DataFrame],
    anchor: str | int | None,
    vectors: AnyVectors,
    metric: Metric,
    where: str,
) -> tuple[Clusters, Ints, Floats] | str:
    """Give rows the clusters of a release.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``anchor``: the released rows of the table `centroids`, numbered from 0.
    anchor : "current", int or None
        The setting; ``current`` need not be there.
    vectors : array or VectorRows, shape (N, d)
    metric, where

    Returns
    -------
    (Clusters, cluster, measure) or str
        As `Clusters.assign` gives them, the inertia that of these rows. Else why clusters are to be fitted: an empty
        string without the setting.

    Raises
    ------
    UsageError
        A release was named by number, and its centres are not at hand.
    DataRefused
        Its centres are of another width, or not of length 1 under cosine.
    """
    if anchor is None:
        return ""
    told = "no release holds clusters of these settings and vectors yet: they were fitted"
    if "anchor" not in tables:
        if anchor == "current":
            return told
        raise UsageError(
            f"there are no centroids of release {anchor} at hand",
            where=f"{where}: anchor",
            expected="a table `anchor`, which a recipe's run takes from the release",
            remedy="in a notebook give an earlier result: anchor=RESULT",
        )
    frame = tables["anchor"].sort("cluster")
    width = vectors.shape[1]
    odd = frame.is_empty() or frame["cluster"].to_list() != list(range(len(frame)))
    if not odd:
        odd = bool((frame["centroid"].list.len() != width).any())
    centres = np.zeros((0, width), dtype=np.float32)
    if not odd:
        centres = frame["centroid"].list.to_array(width).to_numpy().astype(np.float32).reshape(-1, width)
        finite(centres, None, f"{where}: anchor")
        length = np.sqrt(np.einsum("kd,kd->k", centres, centres, dtype=np.float64))
        odd = metric == "cosine" and bool((np.abs(length - 1) > 1e-3).any())
    if odd:
        if anchor == "current":
            return told
        raise DataRefused(
            f"the centroids of release {anchor} are not of these vectors",
            where=f"{where}: anchor",
            expected=f"clusters numbered from 0, of width {width}" + (" and length 1" if metric == "cosine" else ""),
            remedy="name a release of the same features, or fit anew (anchor: null)",
        )
    clusters = Clusters(centres, metric, 0.0, 0, True, len(vectors), len(centres))
    cluster, measure = clusters.assign(vectors)
    held = measure[cluster >= 0]
    away = 2 * (1 - held) if metric == "cosine" else held**2
    return replace(clusters, inertia=ordered_sum(away) / max(1, len(held))), cluster, measure

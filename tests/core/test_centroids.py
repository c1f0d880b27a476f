"""Clusters of a release: kept over nights, fitted where there are none, refused where they are of other vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.centroids import centroid_table, kept_clusters
from gradatim.tasks.core.clusters import k_means
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.registry import configure, get


def night(first: int, rows: int, seed: int) -> pl.DataFrame:
    """Rows around six directions; the ids go on from `first`."""
    random = np.random.default_rng(seed)
    vectors = 4 * np.random.default_rng(0).standard_normal((6, 8))[random.integers(0, 6, rows)]
    vectors = (vectors + random.standard_normal((rows, 8))).astype(np.float32)
    ids = [f"e{first + i:05d}" for i in range(rows)]
    return pl.DataFrame({"example_id": ids, "embedding": pl.Series(vectors, dtype=pl.Array(pl.Float32, 8))})


FIRST, BOTH = night(0, 400, 1), pl.concat([night(0, 400, 1), night(400, 300, 2)])


def run(name: str, table: pl.DataFrame, held: pl.DataFrame | None = None, **settings: Any) -> Any:
    plugin = get("diversity", name)
    tables = {"examples": table.select("example_id"), "features_x": table}
    if held is not None:
        tables["anchor"] = held
    return plugin.run(tables, configure(plugin, {"features": "x", **settings}), 0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("coverage", {"clusters": 12}),
        ("coverage", {"clusters": 12, "metric": "euclidean"}),
        ("semdedup", {"clusters": 12}),
        ("semdedup", {"clusters": 2, "largest": 60}),  # clusters that were cut again
    ],
)
def test_a_row_keeps_its_cluster_the_night_after_and_a_new_one_goes_to_the_nearest(
    name: str, settings: dict[str, Any]
) -> None:
    first = run(name, FIRST, **settings)
    assert first.centroids.schema == polars_schema("centroids")
    assert first.centroids["rows"].sum() == 400
    cluster = first.table.select("example_id", "cluster")
    assert dict(first.centroids.select("cluster", "rows").rows()) == dict(
        cluster.group_by("cluster").len().select("cluster", pl.col("len").cast(pl.Int64)).rows()
    )
    second = run(name, BOTH.sample(fraction=1, shuffle=True, seed=3), first.centroids, **settings, anchor="current")
    kept = second.table.join(cluster, on="example_id", suffix="_before")
    assert (kept["cluster"] == kept["cluster_before"]).all()
    assert second.centroids.select("cluster", "centroid").equals(first.centroids.select("cluster", "centroid"))
    assert second.centroids["rows"].sum() == 700
    anew = run(name, BOTH, **settings).table.join(cluster, on="example_id", suffix="_before")
    assert not (anew["cluster"] == anew["cluster_before"]).all()  # which is why there is an anchor
    same = run(name, FIRST, first.centroids, **settings, anchor=1)
    assert same.table.equals(first.table)


def test_entropies_of_nights_differ_by_the_rows_alone() -> None:
    first = run("coverage", FIRST, clusters=12)
    again = run("coverage", FIRST, first.centroids, anchor="current", clusters=12)
    for metric in ("occupancy_entropy", "occupancy_evenness", "clusters"):
        assert again.value(f"coverage_{metric}") == first.value(f"coverage_{metric}")
    assert again.value("coverage_inertia") == pytest.approx(first.value("coverage_inertia"))  # all rows were fitted
    part = run("coverage", FIRST.head(30), first.centroids, anchor="current")
    assert part.parameters["k"] == 12
    assert part.value("coverage_clusters") < 12
    assert part.centroids["rows"].sum() == 30


def test_without_a_release_clusters_are_fitted_and_it_is_said() -> None:
    plain = run("coverage", FIRST, clusters=5)
    assert not any("release" in warning for warning in plain.warnings)
    narrow = plain.centroids.with_columns(pl.Series("centroid", [[1.0, 0.0]] * 5, dtype=pl.List(pl.Float32)))
    for held in (None, plain.centroids.head(0), narrow):
        found = run("coverage", FIRST, held, clusters=5, anchor="current")
        assert any("no release holds clusters" in warning for warning in found.warnings)
        assert found.table.equals(plain.table)
    with pytest.raises(UsageError, match=r"no centroids of release 3"):
        run("semdedup", FIRST, anchor=3)
    euclidean = run("coverage", FIRST, clusters=5, metric="euclidean").centroids
    with pytest.raises(DataRefused, match=r"(?s)centroids of release 3 are not of these vectors.*width 8 and length 1"):
        run("coverage", FIRST, euclidean, anchor=3)
    with pytest.raises(UsageError, match="anchor is 'current'"):
        configure(get("diversity", "coverage"), {"anchor": 0})


def test_a_released_cluster_that_grew_too_large_is_told() -> None:
    first = run("semdedup", FIRST, clusters=6)
    found = run("semdedup", BOTH, first.centroids, anchor="current", largest=20)
    assert any("a released cluster holds" in warning and "largest: 20" in warning for warning in found.warnings)
    assert len(found.table) == 700


def test_rows_without_a_direction_are_in_no_cluster() -> None:
    vectors = np.array([[1.0, 0], [0, 1], [0, 0]], dtype=np.float32)
    clusters = k_means(vectors, 2)
    cluster, _ = clusters.assign(vectors)
    table = centroid_table(clusters, cluster, "coverage")
    assert table["rows"].to_list() == [1, 1]
    kept = kept_clusters({"anchor": table}, "current", vectors, "cosine", "test")
    assert not isinstance(kept, str)
    assert kept[1].tolist() == cluster.tolist()
    assert kept[0].inertia == pytest.approx(0, abs=1e-9)


def test_a_notebook_hands_over_an_earlier_result() -> None:
    rows = pl.DataFrame({"example_id": FIRST["example_id"], "input": ["a"] * 400})
    first = gd.diversity(rows, "coverage", features={"x": FIRST["embedding"].to_numpy()}, clusters=12)
    later = gd.diversity(rows.head(50), "coverage", features={"x": FIRST["embedding"].to_numpy()[:50]}, anchor=first)
    assert later.table["cluster"].equals(first.table["cluster"].head(50))

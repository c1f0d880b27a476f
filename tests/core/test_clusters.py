"""k-means: known islands, peers, ties, empty clusters, more clusters than rows, and the same result in any order."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.clusters import cluster_sums, k_means, occupancy_entropy


def islands(
    rows: int, groups: int, width: int = 8, seed: int = 0, spread: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    group = np.arange(rows) % groups
    return (np.eye(width)[group] + spread * random.standard_normal((rows, width))).astype(np.float32), group


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_islands_are_found_and_their_entropy_is_the_logarithm_of_their_number(metric: str) -> None:
    rows, group = islands(400, 4)
    found = k_means(rows, 4, metric=metric, seed=3)  # type: ignore[arg-type]
    cluster, _ = found.assign(rows)
    assert len({(int(g), int(c)) for g, c in zip(group, cluster, strict=True)}) == 4
    assert occupancy_entropy(np.bincount(cluster)) == pytest.approx(math.log(4))
    assert found.converged
    if metric == "cosine":
        assert np.linalg.norm(found.centres, axis=1) == pytest.approx(np.ones(4), abs=1e-6)


def test_centres_are_a_fixed_point_of_scikit_learn_and_each_row_is_at_its_nearest() -> None:
    from sklearn.cluster import KMeans

    rows = np.random.default_rng(1).standard_normal((600, 5)).astype(np.float32)
    ours = k_means(rows, 7, metric="euclidean", iterations=300)
    peer = KMeans(7, init=ours.centres, n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(rows)
    best = KMeans(7, n_init=4, random_state=0).fit(rows)
    assert ours.inertia * 600 == pytest.approx(peer.inertia_, rel=0.005)
    assert ours.inertia * 600 < 1.05 * best.inertia_
    labels, away = ours.assign(rows)
    assert ours.inertia == pytest.approx(float((away**2).mean()), rel=1e-6)
    brute = ((rows[:, None, :].astype(float) - ours.centres.astype(float)) ** 2).sum(axis=2)
    assert np.array_equal(labels, brute.argmin(axis=1))


def test_the_inertia_is_level_with_faiss() -> None:
    import faiss

    rows, _ = islands(3000, 30, width=32, spread=0.2)
    ours = k_means(rows, 30, metric="euclidean", seed=0)
    peer = faiss.Kmeans(32, 30, niter=25, seed=1)
    peer.train(rows)
    theirs = float(peer.index.search(rows, 1)[0].mean())
    assert ours.inertia < 1.1 * theirs


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 5), st.sampled_from(["cosine", "euclidean"]))
def test_the_order_of_rows_and_the_threads_do_not_matter(rows: int, k: int, seed: int, metric: str) -> None:
    random = np.random.default_rng(rows * 100 + k)
    points = random.integers(-2, 3, (rows, 3)).astype(np.float32)  # many ties
    points[0] = 1
    ids = np.array([f"id{i:03d}" for i in range(rows)])
    order = random.permutation(rows)
    one = k_means(points, k, ids=list(ids), metric=metric, seed=seed, threads=1)  # type: ignore[arg-type]
    other = k_means(points[order], k, ids=list(ids[order]), metric=metric, seed=seed, threads=2)  # type: ignore[arg-type]
    assert np.array_equal(one.centres, other.centres)
    assert (one.inertia, one.iterations) == (other.inertia, other.iterations)
    cluster, _ = one.assign(points)
    assert np.array_equal(cluster[order], other.assign(points[order])[0])
    assert len(one) <= min(k, len(np.unique(points, axis=0)))
    assert set(np.unique(cluster[cluster >= 0])) == set(range(len(one)))


def test_the_golden_clusters_stay() -> None:
    # another result for the same rows means another revision of every step that clusters
    rows = np.array([(i * i % 7, i % 5, i % 3) for i in range(12)])
    ids = [f"g{i:02d}" for i in range(12)]
    found = k_means(rows, 3, ids=ids, metric="euclidean", seed=7)
    assert found.assign(rows)[0].tolist() == [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 2, 1]
    found = k_means(rows, 3, ids=ids, seed=7)
    assert found.assign(rows)[0].tolist() == [-1, 1, 2, 0, 0, 2, 0, 1, 1, 0, 2, 2]


def test_more_clusters_than_different_rows_become_one_a_row() -> None:
    found = k_means([[1.0, 0], [1, 0], [0, 1]], 10, metric="euclidean")
    assert (len(found), found.asked, found.inertia) == (2, 10, 0)
    assert len(k_means(np.ones((50, 3)), 5)) == 1
    assert len(k_means(np.ones((1, 3)), 5)) == 1


def test_an_empty_cluster_starts_again_at_the_farthest_row() -> None:
    # nine rows in one place but for rounding and three far apart: whatever the starts, each place gets its centre
    near = np.full((9, 2), 1, dtype=np.float32) + np.arange(9, dtype=np.float32)[:, None] * 1e-7
    rows = np.concatenate([near, np.array([[50, 0], [0, 50], [-50, -50]], dtype=np.float32)])
    for seed in range(8):
        found = k_means(rows, 4, metric="euclidean", seed=seed)
        assert len(found) == 4 or found.inertia > 1
        assert not np.isnan(found.centres).any()


def test_opposite_rows_that_cancel_leave_their_centre_in_place() -> None:
    found = k_means([[1.0, 0], [-1.0, 0]], 1)
    assert np.isfinite(found.centres).all()
    assert np.linalg.norm(found.centres[0]) == pytest.approx(1)


def test_a_sample_is_drawn_by_id_and_vectors_of_zeros_get_no_cluster() -> None:
    rows, _ = islands(5000, 4)
    rows[17] = 0
    found = k_means(rows, 4, sample=200)
    assert found.fitted == 200
    cluster, measure = found.assign(rows)
    assert cluster[17] == -1
    assert np.isnan(measure[17])
    assert (np.delete(cluster, 17) >= 0).all()
    again = k_means(rows, 4, sample=200, seed=1)
    assert not np.array_equal(again.centres, found.centres)


def test_sums_of_clusters_are_those_of_numpy_in_any_cut() -> None:
    random = np.random.default_rng(0)
    rows, cluster = random.integers(-9, 9, (1000, 3)), random.integers(-1, 5, 1000)
    expected = np.stack([rows[cluster == c].sum(axis=0) for c in range(5)])
    assert np.array_equal(cluster_sums(rows, cluster, 5), expected)
    halves = cluster_sums(rows[:400], cluster[:400], 5) + cluster_sums(rows[400:], cluster[400:], 5)
    assert np.array_equal(halves, expected)
    assert occupancy_entropy(np.zeros(3)) == 0


def test_bad_input_is_named() -> None:
    with pytest.raises(DataRefused, match="no vectors"):
        k_means(np.zeros((0, 3)), 2)
    with pytest.raises(DataRefused, match="none of 4 vectors has a direction"):
        k_means(np.zeros((4, 3)), 2)
    with pytest.raises(DataRefused, match="'b' holds NaN"):
        k_means([[1.0], [math.nan]], 2, ids=["a", "b"])
    with pytest.raises(UsageError, match="k is 0"):
        k_means(np.ones((4, 3)), 0)
    with pytest.raises(UsageError, match="sample is 0"):
        k_means(np.ones((4, 3)), 1, sample=0)
    with pytest.raises(UsageError, match="ids"):
        k_means(np.ones((2, 3)), 1, ids=pl.Series(["a", "a"]))
    with pytest.raises(UsageError, match="metric"):
        k_means(np.ones((2, 3)), 1, metric="hamming")  # type: ignore[arg-type]

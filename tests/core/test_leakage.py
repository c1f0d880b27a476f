"""The leakage ratio: by clusters, by rows, by drawn pairs, against plain loops."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.leakage import (
    cluster_leakage,
    mean_similarity,
    row_leakage,
    text_similarity,
    vector_similarity,
)


def names(n: int) -> pl.Series:
    return pl.Series("example_id", [f"r{i:05d}" for i in range(n)])


def cosine(one: Any, two: Any) -> float:
    norms = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in two))
    return max(0.0, sum(x * y for x, y in zip(one, two, strict=True)) / norms) if norms else 0.0


def by_loops(vectors: Any, place: list[int]) -> float | None:
    across = whole = 0.0
    for i in range(len(place)):
        for j in range(i):
            if place[i] >= 0 and place[j] >= 0:
                alike = cosine(vectors[i], vectors[j])
                whole += alike
                across += alike if place[i] != place[j] else 0.0
    return across / whole if whole else None


def blobs(n: int, seed: int, clusters: int = 12, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    member = random.integers(0, clusters, n)
    return random.normal(size=(clusters, width))[member] + 0.4 * random.normal(size=(n, width)), member


def test_a_matrix_of_three_clusters_by_hand() -> None:
    similarity = [[9.0, 0.5, 0.2], [0.5, 9.0, 0.1], [0.2, 0.1, 9.0]]  # the diagonal is not looked at
    found = cluster_leakage(similarity, [2, 1, 3], [0, 0, 1])
    assert found.ratio == pytest.approx((2 * 3 * 0.2 + 1 * 3 * 0.1) / (2 * 1 * 0.5 + 2 * 3 * 0.2 + 1 * 3 * 0.1))
    assert (found.low, found.high, found.exact, found.pairs) == (found.ratio, found.ratio, True, 3)
    assert cluster_leakage(similarity, [2, 1, 3], [0, 0, 0]).ratio == 0
    assert cluster_leakage(similarity, [2, 1, 3], [0, 1, 2]).ratio == 1


def test_what_is_in_no_split_neither_leaks_nor_dilutes() -> None:
    similarity = np.full((3, 3), 0.5)
    assert cluster_leakage(similarity, [1, 1, 100], [0, 1, -1]).ratio == 1
    assert cluster_leakage(similarity, [1, 1, 100], [0, 0, -1]).ratio == 0
    assert cluster_leakage(similarity, [1, 1, 100], [0, -1, -1]).ratio is None
    assert cluster_leakage(np.zeros((2, 2)), [1, 1], [0, 1]).ratio is None


@pytest.mark.parametrize(
    ("similarity", "weight", "place"),
    [
        (np.eye(2), [1, 1, 1], [0, 1, 0]), (np.eye(2), [1, 1], [0]), (np.ones((2, 3)), [1, 1], [0, 1]),
        ([[0, 0.2], [0.3, 0]], [1, 1], [0, 1]), ([[0, -0.1], [-0.1, 0]], [1, 1], [0, 1]),
        ([[0, math.nan], [math.nan, 0]], [1, 1], [0, 1]),
    ],
)  # fmt: skip
def test_a_matrix_that_is_none_of_similarities_is_refused(similarity: Any, weight: Any, place: Any) -> None:
    with pytest.raises(UsageError):
        cluster_leakage(similarity, weight, place)


@given(
    rows=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-1, 2)), min_size=2, max_size=25),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_few_rows_are_measured_whole_in_any_order(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    vectors = np.array([row[:2] for row in rows], dtype=np.float64)
    place = [row[2] for row in rows]
    expected = by_loops(vectors.tolist(), place)
    found = row_leakage(place, names(len(rows)), vector_similarity(vectors))
    used = sum(one >= 0 for one in place)
    assert found.exact
    assert found.pairs == used * (used - 1) // 2
    if expected is None:
        assert found.ratio is None
    else:
        assert found.ratio == pytest.approx(expected, abs=1e-7)
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    again = row_leakage(np.array(place)[order], names(len(rows)).gather(order), vector_similarity(vectors[order]))
    assert again == found


def test_drawn_pairs_give_an_interval_that_holds_the_ratio_nineteen_times_in_twenty() -> None:
    vectors, member = blobs(150, 0)
    held = error = 0
    for seed in range(200):
        place = (member % 3 == seed % 3).astype(int) + (seed % 2) * (np.arange(150) % 5 == 0)
        whole = row_leakage(place, names(150), vector_similarity(vectors), pairs=10**6)
        drawn = row_leakage(place, names(150), vector_similarity(vectors), pairs=1_000, seed=seed)
        assert (whole.exact, drawn.exact, drawn.pairs) == (True, False, 1_000)
        assert None not in (whole.ratio, drawn.ratio, drawn.low, drawn.high)
        held += drawn.low <= whole.ratio <= drawn.high  # type: ignore[operator]
        error += drawn.ratio - whole.ratio  # type: ignore[operator, assignment]
    assert 180 <= held <= 199  # binomial at .95: 190, and 3 standard deviations of 3.1
    assert abs(error / 200) < 0.004


def test_the_drawn_ratio_depends_on_ids_and_seed_and_not_on_the_order_of_rows() -> None:
    vectors, member = blobs(700, 1)
    place = np.where(member == 0, -1, member % 3)
    found = row_leakage(place, names(700), vector_similarity(vectors), pairs=2_000)
    order = np.random.default_rng(2).permutation(700)
    mixed = row_leakage(place[order], names(700).gather(order), vector_similarity(vectors[order]), pairs=2_000)
    assert mixed == found
    assert row_leakage(place, names(700), vector_similarity(vectors), pairs=2_000, seed=1) != found


def test_clusters_kept_whole_leak_less_than_the_same_sizes_at_random() -> None:
    vectors, member = blobs(2_000, 3)
    by_cluster = (member < 3).astype(int)
    at_random = np.random.default_rng(0).permutation(by_cluster)
    whole, mixed = (
        row_leakage(place, names(2_000), vector_similarity(vectors), pairs=20_000) for place in (by_cluster, at_random)
    )
    assert whole.high < mixed.low  # type: ignore[operator]


def test_one_split_leaks_nothing_and_rows_alone_in_theirs_leak_all() -> None:
    vectors, _ = blobs(300, 0)
    similar = vector_similarity(np.abs(vectors))
    assert row_leakage(np.zeros(300), names(300), similar, pairs=100).ratio == 0
    assert row_leakage(np.arange(300), names(300), similar, pairs=100).ratio == 1
    assert row_leakage(np.full(300, -1), names(300), similar).ratio is None
    apart = row_leakage(np.arange(300) % 2, names(300), lambda one, two: np.zeros(len(one)), pairs=100)
    assert (apart.ratio, apart.exact) == (None, False)


def test_where_no_parted_pair_that_was_drawn_is_alike_the_interval_still_has_a_width() -> None:
    place = np.arange(600) % 2
    found = row_leakage(place, names(600), lambda one, two: (place[one] == place[two]) * 1.0, pairs=2_000)
    assert found.ratio == 0 == found.low
    assert 0 < found.high < 0.01  # type: ignore[operator]
    found = row_leakage(place, names(600), lambda one, two: (place[one] != place[two]) * 1.0, pairs=2_000)
    assert found.ratio == 1 == found.high
    assert 0.99 < found.low < 1  # type: ignore[operator]


def test_texts_are_compared_by_their_words_and_pairs_of_words() -> None:
    texts = pl.Series(
        ["the red fox", "the red hen", "nothing alike", None, "", "x" * 10_000 + " end", "\U0001f600 \x00"]
    )

    def counts(text: str) -> Counter[str]:
        words = text.split()
        return Counter(words) + Counter(" ".join(pair) for pair in pairwise(words))

    one, two = counts("the red fox"), counts("the red hen")
    expected = sum(one[w] * two[w] for w in one) / math.sqrt(
        sum(v * v for v in one.values()) * sum(v * v for v in two.values())
    )
    found = text_similarity(texts)(np.array([0, 0, 0, 3, 4, 5, 0]), np.array([1, 2, 3, 3, 4, 5, 0]))
    assert found.tolist() == pytest.approx([expected, 0, 0, 0, 0, 1, 1])


def test_mean_similarities_of_clusters_are_those_of_all_their_pairs_of_rows() -> None:
    vectors, _ = blobs(60, 5, clusters=4)
    vectors[7] = 0
    cluster = np.arange(60) % 4
    cluster[11] = -1
    found = mean_similarity(vectors, cluster, 5)
    for i in range(4):
        for j in range(4):
            rows = [(a, b) for a in range(60) for b in range(60) if cluster[a] == i and cluster[b] == j]
            rows = [(a, b) for a, b in rows if 7 not in (a, b)]
            unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None]
            mean = sum(float(unit[a] @ unit[b]) for a, b in rows) / len(rows)
            assert found[i, j] == pytest.approx(max(0.0, mean), abs=1e-6)
    assert (found[4] == 0).all()  # a cluster without a vector is like nothing
    assert (found == found.T).all()


def test_what_cannot_be_measured_is_refused() -> None:
    vectors, _ = blobs(20, 0)
    vectors[3, 1] = math.nan
    with pytest.raises(DataRefused, match="'r00003' holds NaN"):
        row_leakage(np.arange(20) % 2, names(20), vector_similarity(vectors, names(20)))
    with pytest.raises(UsageError, match="19 places and 20 ids"):
        row_leakage(np.zeros(19), names(20), vector_similarity(vectors))
    with pytest.raises(UsageError, match="1 pairs"):
        row_leakage(np.zeros(20), names(20), vector_similarity(vectors), pairs=1)

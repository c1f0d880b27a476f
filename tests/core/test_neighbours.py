"""Nearest neighbours: equal to brute force, ties by id, the same whatever the order of rows or number of threads."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core import neighbours
from gradatim.tasks.core.embeddings import vectors_of
from gradatim.tasks.core.neighbours import NearestNeighbours


def _brute(
    vectors: np.ndarray, queries: np.ndarray, k: int, metric: str, ids: list[str], itself: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Measure everything in float64 and sort by (rounded measure, id)."""
    a, b = queries.astype(np.float64), vectors.astype(np.float64)
    scale = np.ones(len(a))
    if metric == "cosine":
        lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
        away = 1 - np.divide(a @ b.T, lengths, out=np.full(lengths.shape, np.nan), where=lengths > 0)
        away = np.rint(away * 1e9) / 1e9
    else:
        away = np.sqrt(((a[:, None, :] - b) ** 2).sum(axis=2))
        centre = np.unique(b, axis=0).mean(axis=0)
        reach = np.linalg.norm(a - centre, axis=1) + np.linalg.norm(b - centre, axis=1).max()
        scale = 2.0 ** np.ceil(np.log2(np.maximum(reach * 1.001, 2.0**-1000)))
        away = np.rint(away / scale[:, None] * 1e9) / 1e9
    away[np.arange(len(a))[itself >= 0], itself[itself >= 0]] = np.nan
    rank = np.argsort(np.argsort(ids))
    index, measure = np.full((len(a), k), -1), np.full((len(a), k), np.nan)
    for row in range(len(a)):
        order = [j for j in np.lexsort((rank, away[row])) if np.isfinite(away[row, j])][:k]
        index[row, : len(order)] = order
        found = away[row, order]
        measure[row, : len(order)] = 1 - found if metric == "cosine" else found * scale[row]
    return index, measure


@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from(["cosine", "euclidean"]),
    st.sampled_from(["normal", "few values", "a cone", "far away"]),
)
@settings(max_examples=60)
def test_neighbours_are_those_of_brute_force_with_ties_by_id(
    seed: int, count: int, k: int, width: int, metric: str, kind: str
) -> None:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, width)).astype(np.float32)
    if kind == "few values":  # duplicates, zeros and many ties
        vectors = random.integers(-1, 2, (count, width)).astype(np.float32)
    elif kind == "a cone":  # all but equal: float32 cannot tell
        vectors = (1 + 1e-6 * vectors).astype(np.float32)
    elif kind == "far away":
        vectors = (1e4 + vectors).astype(np.float32)
    ids = [f"e{i}" for i in random.permutation(count)]
    queries = np.concatenate([vectors[::2], random.normal(size=(3, width)).astype(np.float32)])
    names = [*ids[::2], "x", "y", "z"]
    itself = np.array([*range(0, count, 2), -1, -1, -1])
    found = NearestNeighbours(vectors, ids, metric=metric).search(queries, k, ids=names)  # type: ignore[arg-type]
    index, measure = _brute(vectors, queries, k, metric, ids, itself)
    assert np.array_equal(found.index, index)
    assert found.measure == pytest.approx(measure, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_larger_search_is_exact_and_the_same_for_any_order_blocks_and_threads(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(900, 24)).astype(np.float32)
    vectors[300:600] = vectors[:300]  # every one of them twice
    vectors[600:690] = vectors[5]  # and one ninety times
    queries = np.concatenate([vectors[:100], random.normal(size=(100, 24)).astype(np.float32)])
    ids = [f"{i:05d}" for i in range(900)]
    two = NearestNeighbours(vectors, ids, metric=metric, threads=2)  # type: ignore[arg-type]
    found = two.search(queries, 20)
    index, measure = _brute(vectors, queries, 20, metric, ids, np.full(200, -1))
    assert np.array_equal(found.index, index)
    assert found.measure == pytest.approx(measure, abs=2e-9)
    assert (np.diff(found.measure, axis=1) * (-1 if metric == "cosine" else 1) >= 0).all()
    monkeypatch.setattr(neighbours, "BLOCK", 77)
    order = random.permutation(900)
    one = NearestNeighbours(vectors[order], [ids[i] for i in order], metric=metric, threads=1)  # type: ignore[arg-type]
    again = one.search(queries[::-1], 20)
    assert np.array_equal(order[again.index][::-1], found.index)
    assert np.array_equal(again.measure[::-1], found.measure)
    assert one.duplicates == 390


def test_vectors_that_float32_cannot_tell_apart_are_measured_against_all() -> None:
    random = np.random.default_rng(0)
    vectors = (1 + 1e-6 * random.normal(size=(1000, 8))).astype(np.float32)
    ids = [f"{i:05d}" for i in range(1000)]
    found = NearestNeighbours(vectors, ids).search(vectors[:40], 10)
    index, measure = _brute(vectors, vectors[:40], 10, "cosine", ids, np.full(40, -1))
    assert np.array_equal(found.index, index)
    assert found.measure == pytest.approx(measure, abs=1e-9)


def test_very_large_and_very_small_numbers_neither_overflow_nor_vanish() -> None:
    near = np.array([[3e38, 0], [0, 2e38], [1e38, 1e38]], dtype=np.float32)
    for metric in ("cosine", "euclidean"):
        for factor in (1.0, 1e-38, 1e-76):
            vectors = (near.astype(np.float64) * factor).astype(np.float32)
            found = NearestNeighbours(vectors, metric=metric).search(vectors, 3)  # type: ignore[arg-type]
            if vectors.all(axis=1)[2]:
                last = [2, 0, 1] if metric == "cosine" else [2, 1, 0]  # equal angles, unequal distances
                assert found.index.tolist() == [[0, 2, 1], [1, 2, 0], last]
    tiny = np.array([[0, 0], [1e-30, 0], [2e-30, 0]], dtype=np.float32)
    far = NearestNeighbours(tiny, metric="euclidean").search(np.array([[3e38, 0]], dtype=np.float32), 3)
    assert sorted(far.index[0]) == [0, 1, 2]
    assert far.measure[0] == pytest.approx([3e38] * 3)


def test_a_vector_of_zeros_has_no_direction_but_a_place() -> None:
    vectors = np.array([[0, 0], [1, 0], [0, 0], [0, 2]], dtype=np.float32)
    near = NearestNeighbours(vectors)
    assert near.directionless.tolist() == [True, False, True, False]
    found = near.search(vectors, 3)
    assert found.index.tolist() == [[-1, -1, -1], [1, 3, -1], [-1, -1, -1], [3, 1, -1]]
    assert np.isnan(found.measure[0]).all()
    by_place = NearestNeighbours(vectors, metric="euclidean")
    assert not by_place.directionless.any()
    assert by_place.search(vectors[:1], 3).index.tolist() == [[0, 2, 1]]
    assert by_place.search(vectors[:1], 3).measure[0] == pytest.approx([0, 0, 1])


def test_none_is_its_own_neighbour_where_ids_are_given_but_its_double_is() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    near = NearestNeighbours(vectors, ["a", "b", "c"])
    assert near.search(vectors, 2, ids=["a", "b", "c"]).index.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert near.search(vectors[:1], 2, ids=["new"]).index.tolist() == [[0, 1]]


def test_no_vectors_no_queries_and_wrong_use_are_answered() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert (NearestNeighbours(np.empty((0, 3))).search(vectors, 2).index == -1).all()
    assert NearestNeighbours(vectors).search(np.empty((0, 3)), 2).index.shape == (0, 2)
    with pytest.raises(DataRefused, match="'b' holds NaN"):
        NearestNeighbours(np.array([[1.0], [np.nan]]), ["a", "b"])
    with pytest.raises(DataRefused, match="row 0 holds NaN"):
        NearestNeighbours(vectors).search(np.full((1, 3), np.inf), 1)
    for wrong in (
        lambda: NearestNeighbours(np.arange(3.0)),
        lambda: NearestNeighbours(vectors, ["a", "a", "b"]),
        lambda: NearestNeighbours(vectors, metric="manhattan"),  # type: ignore[arg-type]
        lambda: NearestNeighbours(vectors).search(np.ones((1, 2)), 1),
        lambda: NearestNeighbours(vectors).search(vectors, 0),
        lambda: NearestNeighbours(vectors).search(vectors, 1, ids=["a", "b", "c"]),
        lambda: NearestNeighbours(vectors, lists_probed=0),
    ):
        with pytest.raises(UsageError):
            wrong()


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_an_inverted_file_may_miss_neighbours_but_measures_those_it_finds_exactly(metric: str) -> None:
    random = np.random.default_rng(2)
    centres = random.normal(size=(20, 16)) * 3
    vectors = (centres[random.integers(0, 20, 2000)] + random.normal(size=(2000, 16))).astype(np.float32)
    exact = NearestNeighbours(vectors, metric=metric).search(vectors[:50], 10)  # type: ignore[arg-type]
    few = NearestNeighbours(vectors, metric=metric, lists_probed=2)  # type: ignore[arg-type]
    every = NearestNeighbours(vectors, metric=metric, lists_probed=10**6)  # type: ignore[arg-type]
    assert np.array_equal(every.search(vectors[:50], 10).index, exact.index)
    assert every.recall(vectors, 10, sample=50) == 1
    assert 0.3 < few.recall(vectors, 10, sample=50) < 1
    found = few.search(vectors[:50], 10)
    index, measure = _brute(vectors, vectors[:50], 2000, metric, [f"{i:05d}" for i in range(2000)], np.full(50, -1))
    known = [dict(zip(i, m, strict=True)) for i, m in zip(index, measure, strict=True)]
    for row in range(50):
        for j, m in zip(found.index[row], found.measure[row], strict=True):
            assert j == -1 or m == pytest.approx(known[row][j], abs=1e-8)


# --- vectors of a table


def test_vectors_of_a_table_come_sorted_by_id_and_lists_and_arrays_are_alike() -> None:
    frame = pl.DataFrame({"example_id": ["b", "a", "c"], "embedding": [[1.0, 2.0], [3.5, 4.0], None]})
    for column in (frame["embedding"], frame["embedding"].cast(pl.Array(pl.Float64, 2))):
        found = vectors_of({"features_x": frame.with_columns(column)}, "x", "knn")
        assert found.ids.to_list() == ["a", "b"]
        assert found.matrix.tolist() == [[3.5, 4], [1, 2]]
        assert found.matrix.dtype == np.float32
        assert found.lacking.to_list() == ["c"]
    none = vectors_of({"features_x": frame.head(0).cast({"embedding": pl.Array(pl.Float32, 2)})}, "x", "knn")
    assert none.matrix.shape == (0, 2)


@pytest.mark.parametrize(
    ("ids", "embedding", "said"),
    [
        (["a", "a"], [[1.0], [2.0]], "'a' stands twice"),
        (["a", None], [[1.0], [2.0]], "no example_id"),
        (["a", "b"], [[1.0], [2.0, 3.0]], "'b' has 2 numbers, that of 'a' has 1"),
        (["a", "b"], [[1.0], [float("nan")]], "'b' holds NaN"),
        (["a", "b"], [[1.0], [1e39]], "'b' holds NaN or inf"),
        (["b", "a"], [[1.0], [None]], "'a' holds a null"),
        (["a", "b"], pl.Series([[], []], dtype=pl.List(pl.Float32)), "no numbers"),
        (["a", "b"], ["x", "y"], "holds String"),
    ],
)
def test_what_is_wrong_with_vectors_is_said_by_id(ids: list[str], embedding: list[object], said: str) -> None:
    frame = pl.DataFrame({"example_id": ids, "embedding": embedding}, strict=False)
    with pytest.raises((DataRefused, UsageError), match=said):
        vectors_of({"features_x": frame}, "x", "knn")
    with pytest.raises(UsageError, match=r"did you mean 'text'"):
        vectors_of({"features_text": frame}, "tex", "knn")

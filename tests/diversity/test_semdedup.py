"""SemDeDup: brute force, exact duplicates, thresholds chosen later, orders, and clusters that are too large."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.redundancy import bounded_clusters, nearest_earlier, nearest_earlier_in_groups
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.semdedup import SemDeDupConfig, redundant, semdedup


def frame(rows: np.ndarray, **columns: object) -> pl.DataFrame:
    ids = [f"e{i:05d}" for i in range(len(rows))]
    return pl.DataFrame({"example_id": ids, "v": np.asarray(rows, dtype=float).tolist(), **columns})


def run(table: pl.DataFrame, seed: int = 0, **set_: object) -> Diversity:
    return semdedup({"examples": table}, SemDeDupConfig.model_validate({"column": "v", **set_}), seed)


def unit(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def brute(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    products = np.where(np.tri(len(rows), k=-1, dtype=bool), rows @ rows.T, -np.inf)
    return products.max(axis=1)


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(2, 4), st.integers(0, 999), st.booleans())
def test_the_nearest_earlier_row_is_that_of_brute_force(n: int, d: int, seed: int, ties: bool) -> None:
    rows = unit(n, d, seed)
    if ties:
        rows = rows[np.random.default_rng(seed).integers(0, max(1, n // 3), n)]
    value, index = nearest_earlier(rows)
    expected = brute(rows)
    assert math.isnan(value[0])
    assert index[0] == -1
    assert value[1:] == pytest.approx(expected[1:], abs=1e-6)
    assert (index[1:] < np.arange(1, n)).all()
    products = (rows @ rows[np.maximum(index, 0)].T).diagonal()
    assert products[1:] == pytest.approx(expected[1:], abs=1e-6)


def test_more_rows_than_a_block_and_groups_on_many_threads_give_the_same() -> None:
    rows = unit(2500, 6)
    value, index = nearest_earlier(rows)
    assert value[1:] == pytest.approx(brute(rows)[1:], abs=1e-6)
    group = np.sort(np.random.default_rng(0).integers(0, 7, 2500))
    value, index = nearest_earlier_in_groups(rows, group)
    for number in range(7):
        part = np.flatnonzero(group == number)
        alone, place = nearest_earlier(rows[part])
        assert np.array_equal(value[part], alone, equal_nan=True)
        assert np.array_equal(index[part], np.where(place >= 0, part[place], -1))
    assert len(nearest_earlier(rows[:0])[0]) == 0


def test_copies_are_found_whatever_the_clusters_and_the_first_stays() -> None:
    rows = unit(200, 8)
    table = frame(np.concatenate([rows, rows[:50] * 3]))  # longer, the same direction
    found = run(table, clusters=10)
    dropped = set(redundant(found.table, 0.001).to_list())
    pairs = [{f"e{i:05d}", f"e{200 + i:05d}"} for i in range(50)]
    assert all(len(pair & dropped) == 1 for pair in pairs)
    assert len(dropped) == 50
    assert found.value("semdedup_removed_0.01") >= 50 / 250
    copies = found.table.filter(pl.col("example_id").is_in(list(dropped)))
    assert all({a, b} in pairs for a, b in copies.select("example_id", "nearest_id").iter_rows())


def test_in_one_cluster_the_scores_are_those_of_brute_force_in_the_order_asked_for() -> None:
    rows = unit(300, 3)
    for order in ("far-first", "near-first", "random"):
        found = run(frame(rows), clusters=1, order=order)
        centre = rows.astype(float).mean(axis=0)
        near = rows @ (centre / np.linalg.norm(centre))
        first = int(
            found.table["example_id"].to_list().index(found.table.filter(pl.col("value").is_null())["example_id"][0])
        )
        if order != "random":
            assert first == int(near.argmin() if order == "far-first" else near.argmax())
            by = np.argsort(near if order == "far-first" else -near, kind="stable")
            assert found.table["value"].to_numpy()[by][1:] == pytest.approx(brute(rows[by])[1:], abs=1e-6)


def test_a_threshold_chosen_later_needs_no_new_run_and_a_higher_one_drops_more() -> None:
    found = run(frame(unit(400, 3)), epsilons=(0.001, 0.02, 0.3))
    dropped = [set(redundant(found.table, e).to_list()) for e in (0.0, 0.001, 0.02, 0.3)]
    assert all(a <= b for a, b in pairwise(dropped))
    for epsilon, ids in zip((0.001, 0.02, 0.3), dropped[1:], strict=True):
        assert found.value(f"semdedup_removed_{epsilon:g}") == len(ids) / 400
        assert run(frame(unit(400, 3)), epsilons=(epsilon,)).value() == len(ids) / 400
    with pytest.raises(UsageError, match="epsilon"):
        redundant(found.table, -1)


def test_the_order_of_rows_changes_nothing_and_the_seed_the_random_order() -> None:
    table = frame(np.random.default_rng(0).integers(-2, 3, (500, 3)) + np.array([3.0, 0, 0]), domain=["a", "b"] * 250)
    one, other = run(table, by="domain"), run(table.sample(fraction=1, shuffle=True, seed=2), by="domain")
    assert one.statistics.equals(other.statistics)
    assert one.table.equals(other.table)
    assert not run(table, order="random").table.equals(run(table, order="random", seed=1).table)
    assert {"domain=a", "domain=b"} < set(one.statistics["subset"])


def test_a_cluster_that_is_too_large_is_cut_again_but_equal_rows_are_not() -> None:
    rows = unit(1000, 5)
    ids = pl.Series([f"e{i:04d}" for i in range(1000)])
    clusters, cluster, near = bounded_clusters(rows, ids, 1, largest=200, seed=0, where="x")
    size = np.bincount(cluster)
    assert size.min() > 0
    assert size.max() <= 200
    assert (near > 0).all()
    assert (clusters.assign(rows)[0] == cluster).all()
    assert len(clusters) == len(size)
    same = np.tile(rows[:1], (1000, 1))
    _, cluster, _ = bounded_clusters(same, ids, 1, largest=200, seed=0, where="x")
    assert np.bincount(cluster).tolist() == [1000]
    found = run(frame(same), largest=200)
    assert found.value("semdedup_removed_0.01") == 999 / 1000


def test_degenerate_and_bad_input() -> None:
    one = run(frame(np.ones((1, 2))))
    assert one.value() == 0
    assert one.table["value"].to_list() == [None]
    assert one.summary().to_dict()
    zeros = run(frame(np.array([[0.0, 0], [1, 0], [-1, 0]])))
    assert any("1 examples have a vector of zeros" in warning for warning in zeros.warnings)
    assert sorted(zeros.table["value"].to_list(), key=str) == [-1.0, None]
    with pytest.raises(DataRefused, match="'e00001' holds NaN"):
        run(frame(np.array([[1.0, 0], [math.nan, 0]])))
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        run(frame(np.eye(2), domain=["a", "b"]), by="domian")
    with pytest.raises(UsageError, match="epsilons"):
        configure(get("diversity", "semdedup"), {"epsilons": [-0.1]})


def test_the_pictures_draw() -> None:
    found = run(frame(unit(100, 3)))
    assert found.plot("removed").to_dict()
    assert found.plot("similarity").to_dict()
    assert "SemDeDup" in found.cite()

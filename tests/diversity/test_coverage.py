"""Coverage: brute force, closed forms, islands, train to test, and what is degenerate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.clusters import cluster_sums
from gradatim.tasks.diversity.coverage import CoverageConfig, coverage, remote_clique
from gradatim.tasks.diversity.result import Diversity


def frame(rows: np.ndarray, **columns: object) -> pl.DataFrame:
    ids = [f"e{i:05d}" for i in range(len(rows))]
    return pl.DataFrame({"example_id": ids, "v": np.asarray(rows, dtype=float).tolist(), **columns})


def run(table: pl.DataFrame, seed: int = 0, **set_: object) -> Diversity:
    return coverage({"examples": table}, CoverageConfig.model_validate({"column": "v", **set_}), seed)


def unit(n: int, d: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_every_number_is_that_of_brute_force(metric: str) -> None:
    rows = unit(120, 4) * (1 if metric == "cosine" else 3)
    split = ["train" if i % 3 else "test" for i in range(120)]
    domain = ["a" if i < 50 else "b" for i in range(120)]
    found = run(frame(rows, split=split, domain=domain), metric=metric, tau=0.1, clusters=5)
    away = 1 - rows @ rows.T if metric == "cosine" else np.linalg.norm(rows[:, None] - rows, axis=2)
    others = away + 1e9 * np.eye(120)
    train, test = (np.array([i for i in range(120) if split[i] == s]) for s in ("train", "test"))
    to_train = away[np.ix_(test, train)]
    near = to_train.min(axis=1)
    similar = 1 - near if metric == "cosine" else 1 / (1 + near)
    expected = {
        "coverage_nn_mean": others.min(axis=1).mean(),
        "coverage_nn_p95": np.quantile(others.min(axis=1), 0.95),
        "coverage_radius": near.max(),
        "coverage_within": (near <= 0.1).mean(),
        "coverage_facility_location": similar.mean(),
        "coverage_chamfer": near.mean() + to_train.min(axis=0).mean(),
    }
    pairs = away[np.triu_indices(120, 1)]
    clique = "coverage_mean_distance" if metric == "cosine" else "coverage_mean_squared_distance"
    expected[clique] = pairs.mean() if metric == "cosine" else (pairs**2).mean()
    for name, value in expected.items():
        assert found.value(name) == pytest.approx(value, abs=2e-6), name
    for name in ("coverage_radius", "coverage_within", "coverage_chamfer"):
        assert found.value(name, "split=test") == found.value(name)
    assert found.value("coverage_nn_mean", "split=test") == pytest.approx(near.mean(), abs=1e-6)
    some = away[:50, :50][np.triu_indices(50, 1)]
    brute = some.mean() if metric == "cosine" else (some**2).mean()
    assert found.value(clique, "domain=a") == pytest.approx(brute, abs=2e-6)
    given = found.table.filter(pl.col("value").is_not_null())
    assert given["example_id"].to_list() == [f"e{i:05d}" for i in test]
    assert given["nearest_id"].to_list() == [f"e{train[j]:05d}" for j in to_train.argmin(axis=1)]
    assert given["nearest_similarity"].to_list() == pytest.approx(similar.tolist(), abs=1e-6)
    assert found.table["cluster"].null_count() == 0
    assert found.main == "coverage_within"
    assert found.table.to_arrow().schema.names == spec("diversity").schema.names


def test_equal_islands_have_the_entropy_of_their_number_and_a_centre_each_covers_them() -> None:
    rows = np.eye(6)[np.arange(600) % 6]
    found = run(frame(rows), clusters=6, centres=6)
    assert found.value("coverage_occupancy_entropy") == pytest.approx(math.log(6))
    assert found.value("coverage_occupancy_evenness") == pytest.approx(1)
    assert found.value("coverage_radius") == pytest.approx(0, abs=1e-6)
    assert found.value("coverage_facility_location") == pytest.approx(1, abs=1e-6)
    assert found.value("coverage_mean_distance") == pytest.approx(500 / 599)
    assert run(frame(rows), clusters=6, centres=5).value("coverage_radius") == pytest.approx(1)


@settings(max_examples=20)
@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 99))
def test_the_mean_of_all_pairs_follows_from_sums_that_merge_in_any_grouping(n: int, d: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, code = random.integers(-5, 6, (n, d)).astype(float), random.integers(0, 3, n)
    cut = int(random.integers(0, n))
    shards = [slice(cut, n), slice(0, cut)]
    total = sum(cluster_sums(rows[s], code[s], 3) for s in shards)
    squares = sum(np.bincount(code[s], (rows[s] ** 2).sum(axis=1), 3) for s in shards)
    count = sum(np.bincount(code[s], minlength=3) for s in shards)
    found = remote_clique(total, squares, count.astype(float))
    for group in range(3):
        part = rows[code == group]
        if len(part) < 2:
            assert math.isnan(found[group])
        else:
            pairs = ((part[:, None] - part) ** 2).sum(axis=2)[np.triu_indices(len(part), 1)]
            assert found[group] == pytest.approx(pairs.mean(), abs=1e-9)


def test_the_order_of_rows_changes_nothing() -> None:
    rows = np.random.default_rng(0).integers(-2, 3, (300, 3)).astype(float)
    rows[:, 0] += 5
    table = frame(
        rows, split=["train" if i % 2 else "test" for i in range(300)], domain=[f"d{i % 3}" for i in range(300)]
    )
    one, other = run(table, queries=20), run(table.sample(fraction=1, shuffle=True, seed=1), queries=20)
    assert one.statistics.equals(other.statistics)
    assert one.table.equals(other.table)


def test_a_training_row_more_never_widens_the_radius() -> None:
    rows = unit(60, 3)
    radii = [
        run(frame(rows, split=["train" if i < k else "test" if i >= 40 else "spare" for i in range(60)])).value(
            "coverage_radius", "split=test"
        )
        for k in (1, 5, 20, 40)
    ]
    assert all(a >= b for a, b in itertools.pairwise(radii))


def test_many_rows_are_asked_from_a_sample_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import gradatim.tasks.diversity.coverage as module

    monkeypatch.setattr(module, "PRODUCTS", 1)
    found = run(frame(unit(500, 4)), queries=50)
    assert any("a sample of 50" in warning for warning in found.warnings)
    assert found.statistics.filter(pl.col("metric") == "coverage_nn_mean")["n"].to_list() == [50]
    assert found.table["value"].null_count() == 450
    whole = run(frame(unit(500, 4)), queries=500)
    kept = found.table.drop_nulls("value")
    assert kept.equals(whole.table.filter(pl.col("example_id").is_in(kept["example_id"].implode())))


def test_one_row_equal_rows_and_rows_of_zeros_have_defined_values() -> None:
    one = run(frame(np.ones((1, 2))))
    assert not {"coverage_nn_mean", "coverage_mean_distance"} & set(one.statistics["metric"])
    assert one.statistics["value"].null_count() == 0
    assert one.value("coverage_radius") == 0
    assert any("one row" in warning for warning in one.warnings)
    assert one.summary().to_dict()
    same = run(frame(np.ones((9, 2))), clusters=3)
    assert same.value("coverage_nn_mean") == pytest.approx(0, abs=1e-6)
    assert same.value("coverage_occupancy_entropy") == 0
    assert any("1 clusters of 3" in warning for warning in same.warnings)
    zeros = run(frame(np.array([[0.0, 0], [1, 0], [0, 1]])))
    assert any("1 examples have a vector of zeros" in warning for warning in zeros.warnings)
    assert len(zeros.table) == 2
    trained = run(frame(np.eye(2), split=["train", "train"]))
    assert any("nothing for them to cover" in warning for warning in trained.warnings)
    assert trained.main == "coverage_occupancy_entropy"


def test_of_very_many_domains_the_most_frequent_have_numbers_of_their_own() -> None:
    domain = ["often"] * 5 + [f"d{i:03d}" for i in range(300)]
    found = run(frame(unit(305, 3), domain=domain))
    assert found.statistics.filter(pl.col("metric") == "coverage_clusters")["subset"].n_unique() == 201
    assert found.value("coverage_mean_distance", "domain=often") > 0
    assert any("the 200 most frequent values of domain" in warning for warning in found.warnings)


def test_bad_input_is_named() -> None:
    with pytest.raises(DataRefused, match="'e00001' holds NaN"):
        run(frame(np.array([[1.0, 0], [math.nan, 0]])))
    with pytest.raises(DataRefused, match="different lengths"):
        run(pl.DataFrame({"example_id": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}))
    with pytest.raises(DataRefused, match="none of 2 examples has a vector that is not zero"):
        run(frame(np.zeros((2, 2))))
    with pytest.raises(UsageError, match="did you mean 'fold'"):
        run(frame(np.eye(2), fold=["a", "b"]), split="folt")
    with pytest.raises(DataRefused, match="no row with a vector has fold = 'train'"):
        run(frame(np.eye(2), fold=["a", "b"]), split="fold")
    with pytest.raises(UsageError, match="no features table 'g'"):
        run(frame(np.eye(2)), features="g")
    texts = pl.DataFrame({"example_id": ["a", "b", "c"], "input": ["one two", "", "x" * 10_000_000]})
    assert len(coverage({"examples": texts}, CoverageConfig(), 0).table) == 2
    with pytest.raises(UnicodeEncodeError):
        pl.Series(["\ud800"])  # no frame can hold a lone surrogate: readers refuse it


def test_pictures_show_the_map_by_domain_and_the_distances() -> None:
    table = frame(unit(80, 3), domain=["left" if i % 2 else "right" for i in range(80)])
    found = run(table)
    drawn = found.plot("map").to_dict()
    assert "left" in str(drawn)
    assert "Map of 80 of 80 rows" in str(drawn)
    assert found.plot("distances").to_dict()
    assert run(frame(unit(5, 3))).plot("map").to_dict()
    assert len(found.summary().charts) == 3

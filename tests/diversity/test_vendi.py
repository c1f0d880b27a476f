"""The Vendi score: published numbers, laws, the dual form and the plug-in."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.reduce import BLOCK, merge, moments
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.spectra import fourier_features, vendi_score, vendi_score_dual, vendi_score_moments
from gradatim.tasks.diversity.vectors import directed, hashed_ngrams, normalised
from gradatim.tasks.diversity.vendi import VendiConfig, vendi

ORDERS = (0.0, 0.5, 1.0, 2.0, math.inf)


def run(frame: pl.DataFrame, seed: int = 0, table: pl.DataFrame | None = None, **settings: object) -> Diversity:
    tables = {"examples": frame} | ({"features_f": table} if table is not None else {})
    return vendi(tables, VendiConfig.model_validate(settings), seed)


def unit(n: int, d: int, seed: int = 0) -> np.ndarray:
    return normalised(np.random.default_rng(seed).standard_normal((n, d)))


def test_the_published_values_come_out() -> None:
    points = np.array([0, 0, 10, 10, 20, 20.0])
    score = vendi_score(np.exp(-np.abs(points[:, None] - points)))
    assert math.floor(score * 1e4) / 1e4 == 2.9999
    kernel = [[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert vendi_score(kernel) == pytest.approx(2.1573, abs=5e-5)
    found = [vendi_score(kernel, q) for q in (0.5, 2.0, math.inf)]
    assert found == pytest.approx([2.420348, 1.948052, 1.578947], abs=1e-6)


@pytest.mark.parametrize("q", ORDERS)
def test_equal_items_count_once_and_orthogonal_ones_fully(q: float) -> None:
    assert vendi_score(np.ones((7, 7)), q) == pytest.approx(1)
    assert vendi_score_dual(np.tile([3.0, 4.0], (7, 1)), q) == pytest.approx(1)
    assert vendi_score(np.eye(7), q) == pytest.approx(7)
    assert vendi_score_dual(5 * np.eye(7), q) == pytest.approx(7)


@pytest.mark.parametrize("q", ORDERS)
@pytest.mark.parametrize(("n", "d"), [(300, 12), (12, 300), (1, 4)])
def test_the_dual_form_equals_the_primal_one(n: int, d: int, q: float) -> None:
    rows = unit(n, d)
    assert vendi_score_dual(rows, q) == pytest.approx(vendi_score(rows @ rows.T, q), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(1, 6), st.integers(0, 1000))
def test_scores_fall_with_the_order_and_stay_between_one_and_the_width(n: int, d: int, seed: int) -> None:
    rows = unit(n, d, seed)
    found = [vendi_score_dual(rows, q) for q in ORDERS]
    assert all(a >= b - 1e-9 for a, b in pairwise(found))
    assert 1 <= found[-1] <= found[0] <= min(n, d) + 1e-9
    order = np.random.default_rng(seed).permutation(n)
    assert vendi_score_dual(rows[order], 1.0) == pytest.approx(found[2], abs=1e-9)
    assert vendi_score_dual(np.tile(rows, (3, 1)), 1.0) == pytest.approx(found[2], abs=1e-9)


def test_parts_merge_to_the_score_of_the_whole() -> None:
    rows = unit(3000, 16)
    parts = [moments([part]) for part in np.array_split(rows, 4)]
    assert vendi_score_moments(merge(parts)) == pytest.approx(vendi_score_dual(rows), abs=1e-9)


def test_shards_merged_in_any_order_of_arrival_give_the_same_bits_and_in_any_grouping_the_same_score() -> None:
    rows = unit(5 * BLOCK, 8).astype(np.float32)
    keyed = [(i, moments([part], prepare=directed)) for i, part in enumerate(np.array_split(rows, 5))]
    whole = vendi_score_moments(moments([rows], prepare=directed))
    for seed in range(3):
        arrived = [keyed[i] for i in np.random.default_rng(seed).permutation(5)]
        merged = merge([partial for _, partial in sorted(arrived, key=lambda shard: shard[0])])
        assert np.array_equal(merged.gram, merge([partial for _, partial in keyed]).gram)
    grouped = merge([merge([p for _, p in keyed[:2]]), merge([p for _, p in keyed[2:]])])
    assert vendi_score_moments(grouped) == pytest.approx(whole, abs=1e-9)
    assert merged.n == grouped.n == 5 * BLOCK


def test_threads_change_no_bit() -> None:
    rows = unit(3 * BLOCK + 5, 16).astype(np.float32)
    one, four = (moments([rows], prepare=directed, threads=threads) for threads in (1, 4))
    assert np.array_equal(one.gram, four.gram)
    assert np.array_equal(one.total, four.total)


def test_random_fourier_features_come_near_the_primal_rbf_kernel_and_nearer_the_more_there_are() -> None:
    rows = np.random.default_rng(0).standard_normal((200, 3))
    kernel = np.exp(-((rows[:, None] - rows) ** 2).sum(axis=2) / (2 * 1.5**2))
    error = {}
    for frequencies in (32, 512):
        drawn = [fourier_features(3, 1.5, frequencies, seed) for seed in range(3)]
        partials = [moments([rows], prepare=waves) for waves in drawn]
        for q in (1.0, 2.0, math.inf):
            found = np.mean([vendi_score_moments(partial, q) for partial in partials])
            error[frequencies, q] = abs(found / vendi_score(kernel, q) - 1)
        assert max(np.abs(w(rows) @ w(rows).T - kernel).max() for w in drawn) < 5 / math.sqrt(2 * frequencies)
    assert all(error[512, q] < 0.04 for q in (1.0, 2.0, math.inf))
    assert sum(error[512, q] for q in (1.0, 2.0)) < sum(error[32, q] for q in (1.0, 2.0))
    assert np.linalg.norm(drawn[0](rows), axis=1) == pytest.approx(np.ones(200))


def test_the_rbf_kernel_is_a_setting_and_its_draws_follow_the_seed() -> None:
    rows = np.concatenate([np.zeros((20, 2)), np.full((20, 2), 100.0)])
    table = pl.DataFrame({"example_id": [f"e{i:02d}" for i in range(40)], "v": rows.tolist()})
    found = run(table, column="v", kernel="rbf", frequencies=128, bandwidth=1.0)
    assert found.value("vendi_q1") == pytest.approx(2, abs=0.05)
    assert not found.warnings[:-1]  # a vector of zeros is a point like any other
    again = run(table, column="v", kernel="rbf", frequencies=128, bandwidth=1.0, seed=1)
    assert again.value("vendi_q1") != found.value("vendi_q1")
    bandwidth = run(table, column="v", kernel="rbf", frequencies=128).parameters["bandwidth"]
    assert bandwidth == pytest.approx(100 * math.sqrt(2), rel=1e-6)
    assert run(table[:1], column="v", kernel="rbf", frequencies=128).value("vendi_q1") == pytest.approx(1)
    with pytest.raises(UsageError, match="bandwidth"):
        fourier_features(3, math.nan, 4, 0)


def test_a_vector_with_nan_is_named_by_its_id_and_features_alone_at_hand_need_no_name() -> None:
    rows = unit(40, 4).astype(np.float32)
    ids = [f"e{i:03d}" for i in range(40)]
    frame = pl.DataFrame({"example_id": ids, "input": ids})
    table = pl.DataFrame({"example_id": ids, "embedding": pl.Series(rows, dtype=pl.Array(pl.Float32, 4))})
    assert run(frame, table=table[::-1]).value("vendi_q2") == pytest.approx(vendi_score_dual(rows, 2), abs=1e-9)
    rows[7, 1] = np.nan
    table = table.with_columns(embedding=pl.Series(rows, dtype=pl.Array(pl.Float32, 4)))
    with pytest.raises(DataRefused, match="'e007' holds NaN"):
        run(frame, table=table, features="f")
    with pytest.raises(DataRefused, match="'e039' stands twice"):
        run(frame, table=pl.concat([table[20:], table[39:]]), features="f")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (np.ones((2, 3)), "shape"),
        (np.ones((0, 0)), "shape"),
        ([[1, 0.5], [0.2, 1]], "symmetric"),
        ([[2, 0.5], [0.5, 1]], "diagonal"),
        ([[1, float("nan")], [float("nan"), 1]], "NaN"),
        ([[1, 0.9, 0], [0.9, 1, 0.9], [0, 0.9, 1]], "negative eigenvalue"),
    ],
)
def test_a_matrix_that_is_no_similarity_is_refused(kernel: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        vendi_score(kernel)  # type: ignore[arg-type]


def test_vectors_of_zeros_or_nan_are_refused_by_the_function() -> None:
    with pytest.raises(UsageError, match="zeros"):
        vendi_score_dual([[0.0, 0.0], [1.0, 0.0]])
    with pytest.raises(DataRefused, match="NaN"):
        vendi_score_dual([[1.0, float("nan")]])
    with pytest.raises(UsageError, match="order"):
        vendi_score_dual([[1.0]], -1)


def test_huge_and_tiny_vectors_keep_their_direction() -> None:
    rows = unit(5, 3)
    assert vendi_score_dual(rows * 1e300) == pytest.approx(vendi_score_dual(rows))
    assert vendi_score_dual(rows * 1e-300) == pytest.approx(vendi_score_dual(rows))


def texts(rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "example_id": [f"e{i:05d}" for i in range(rows)],
            "input": [f"take {'left' if i % 2 else 'right'} word{i % 40} w{i % 7}" for i in range(rows)],
            "domain": ["x" if i % 3 else "y" for i in range(rows)],
        }
    )


def test_texts_are_measured_without_any_model_and_equal_the_primal_kernel() -> None:
    frame = texts(300)
    found = run(frame)
    rows = hashed_ngrams(frame["input"].to_list())
    assert rows.shape == (300, 256)
    assert found.value("vendi_q1") == pytest.approx(vendi_score(rows @ rows.T), abs=1e-6)
    assert found.parameters["width"] == 256
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names


def test_hashed_words_are_the_same_on_any_machine() -> None:
    vector = hashed_ngrams(["jump twice and walk", ""])
    assert {int(i): round(float(v), 6) for i, v in enumerate(vector[0]) if v} == GOLDEN
    assert not vector[1].any()


GOLDEN = {1: 0.377964, 18: -0.377964, 45: -0.377964, 54: -0.377964, 70: 0.377964, 128: 0.377964, 185: -0.377964}


def test_features_and_lists_are_measured_and_rows_without_a_vector_left_out() -> None:
    rows = unit(40, 4).astype(np.float32)
    ids = [f"e{i:03d}" for i in range(40)]
    frame = pl.DataFrame({"example_id": [*ids, "none"]})
    features = pl.DataFrame(
        {"example_id": ids, "embedding": rows}, schema_overrides={"embedding": pl.Array(pl.Float32, 4)}
    )
    found = run(frame, table=features, features="f")
    assert found.value("vendi_q2") == pytest.approx(vendi_score_dual(rows, 2), abs=1e-9)
    assert "1 examples have no vector" in found.warnings[0]
    lists = pl.DataFrame({"example_id": ids, "numbers": rows.astype(float).tolist()})
    assert run(lists, column="numbers").value("vendi_q2") == pytest.approx(found.value("vendi_q2"), abs=1e-6)


def test_shuffled_rows_and_another_cut_into_batches_give_the_same_statistics() -> None:
    frame = texts(BLOCK + 500)
    one = run(frame, by="domain", sample_size=200, samples=5)
    other = run(frame.sample(fraction=1, shuffle=True, seed=5), by="domain", sample_size=200, samples=5)
    assert one.statistics.equals(other.statistics)


def test_subsets_are_compared_by_samples_of_one_size_and_the_seed_draws_them() -> None:
    frame = texts(900)
    found = run(frame, by="domain", sample_size=500)
    sizes = found.statistics.filter(pl.col("metric").str.starts_with("vendi_sample"))["n"].unique().to_list()
    assert sizes == [300]
    assert any("300" in warning for warning in found.warnings)
    low, high = (
        found.statistics.filter((pl.col("metric") == "vendi_sample_q1") & (pl.col("subset") == "all"))
        .select("ci_low", "ci_high")
        .row(0)
    )
    assert low < found.value("vendi_sample_q1") < high < found.value("vendi_q1") * 1.1
    again = run(frame, by="domain", sample_size=500, seed=1)
    assert again.value("vendi_sample_q1") != found.value("vendi_sample_q1")
    assert again.value("vendi_q1") == found.value("vendi_q1")


def test_empty_texts_are_left_out_and_counted_and_only_empty_ones_are_refused() -> None:
    frame = pl.DataFrame({"example_id": ["a", "b", "c", "d"], "input": ["one", "two", "", None]})
    found = run(frame)
    assert found.value("vendi_q1") == pytest.approx(2)
    assert any("1 examples have a vector of zeros" in warning for warning in found.warnings)
    assert any("1 examples have no vector" in warning for warning in found.warnings)
    with pytest.raises(DataRefused, match="none of 1 examples"):
        run(frame[2:3])
    with pytest.raises(DataRefused, match="none of 0 examples"):
        run(frame[:0])


def test_one_row_has_a_score_of_one() -> None:
    assert run(texts(1)).value("vendi_sample_q1") == pytest.approx(1)


def test_wrong_settings_are_errors_that_name_what_is_valid() -> None:
    with pytest.raises(UsageError, match="did you mean 'input'"):
        run(texts(3), column="inputt")
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        run(texts(3), by="domian")
    with pytest.raises(UsageError, match="features table 'g'"):
        run(texts(3), table=texts(1), features="g")
    with pytest.raises(UsageError, match="holds"):
        run(texts(3).with_columns(flag=pl.lit(True)), column="flag")
    with pytest.raises(DataRefused, match="different lengths"):
        run(pl.DataFrame({"example_id": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}), column="v")
    with pytest.raises(UsageError, match="orders"):
        configure(get("diversity", "vendi"), {"orders": [-1.0]})


def test_the_result_explains_itself_also_for_infinite_orders() -> None:
    found = run(texts(50), by="domain", orders=(2.0, math.inf))
    assert found.main == "vendi_q2"
    assert found.value("vendi_qinf") <= found.value()
    assert found.summary().to_dict()["headline"].startswith("vendi_q2")
    assert "Vendi" in found.cite()
    assert found.plot().to_dict()

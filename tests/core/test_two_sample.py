"""Telling two sets apart: golden numbers of the certificate, peers, closed forms and laws."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from gradatim.tasks.core.distances import (
    frechet,
    gaussian_of,
    mean_discrepancy,
    permuted_labels,
    sliced_wasserstein,
    wasserstein_1d,
)
from gradatim.tasks.core.two_sample import auc_interval, folds, proxy_a_distance, tell_apart
from gradatim.tasks.splits.measures.shift import shift_auc


def ids(n: int) -> pl.Series:
    return pl.Series([f"e{i:06d}" for i in range(n)])


def normal(n: int, d: int, seed: int = 0, mean: float = 0.0) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    rows[:, 0] += mean
    return rows


def texts(prefix: str, words: list[str], n: int) -> pl.DataFrame:
    drawn = np.random.default_rng(len(words)).choice(words, (n, 6))
    names = [f"{prefix}{i}" for i in range(n)]
    frame = pl.DataFrame({"example_id": names, "input": [" ".join(row) for row in drawn]})
    return frame.with_columns(component=pl.lit(None, pl.String))


def test_the_certificates_numbers_are_what_they_were_to_the_bit() -> None:
    left, right = texts("a", ["walk", "run", "look", "jump"], 400), texts("b", ["walk", "run", "look", "swim"], 400)
    assert shift_auc(left, right, 0) == 0.9854218750000001
    assert shift_auc(texts("a", ["x"], 1), texts("b", ["y"], 50), 0) is None


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-4, 4)), min_size=4, max_size=40))
def test_the_auc_is_that_of_scikit_learn_with_ties(rows: list[tuple[int, int]]) -> None:
    label, score = np.array([0, 1, *(r[0] for r in rows)]), np.array([1, 0, *(r[1] for r in rows)], dtype=float)
    found = auc_interval(label, score)
    assert found.value == pytest.approx(roc_auc_score(label, score))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_integer_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    label, score, weight = rng.integers(0, 2, 60), rng.integers(0, 6, 60) - 2.5, rng.integers(1, 4, 60)
    again = np.repeat(np.arange(60), weight)
    assert auc_interval(label, score, weight.astype(float)).value == pytest.approx(
        auc_interval(label[again], score[again]).value
    )
    assert proxy_a_distance(label, score, weight.astype(float)).value == pytest.approx(
        proxy_a_distance(label[again], score[again]).value
    )


def test_the_interval_of_the_auc_covers_the_truth_about_as_often_as_it_says() -> None:
    from scipy.stats import norm

    truth = norm.cdf(1 / np.sqrt(2))
    rng, covered = np.random.default_rng(0), 0
    label = np.repeat([0, 1], 80)
    for _ in range(300):
        found = auc_interval(label, rng.standard_normal(160) + label)
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 300 <= 0.98


def test_sets_far_apart_are_told_apart_and_equal_ones_are_not() -> None:
    label, fold = np.repeat([0, 1], 600), folds(ids(1200), 0)
    same = [tell_apart(normal(1200, 5, seed), label, fold) for seed in range(40)]
    covered = [told.auc.low < 0.5 < told.auc.high for told in same if told]
    assert 0.85 <= np.mean(covered) <= 1  # the plain interval covers .83: folds share rows
    assert np.mean([told.auc.value for told in same if told]) == pytest.approx(0.5, abs=0.02)
    assert max(told.proxy_a.value for told in same if told) < 0.25
    far = tell_apart(np.concatenate([normal(600, 5), normal(600, 5, 1, mean=20)]), label, fold)
    assert far is not None
    assert (far.auc.value, far.proxy_a.value) == (1.0, 2.0)
    assert 0.97 < far.auc.low < 1  # no spread, yet not certain


def test_vectors_without_spread_and_sets_smaller_than_the_folds() -> None:
    label, fold = np.repeat([0, 1], 50), folds(ids(100), 0)
    flat = tell_apart(np.full((100, 3), 7.0), label, fold)
    assert flat is not None
    assert (flat.auc.value, flat.proxy_a.value) == (0.5, 0.0)
    one = np.zeros(100, dtype=int)
    one[0] = 1
    assert tell_apart(normal(100, 3), one, fold) is None


def test_discrepancies_are_unbiased_and_see_what_their_kernels_can() -> None:
    label = np.repeat([1, 0], [300, 500])
    shifted = np.concatenate([normal(300, 4, 1, mean=1.0), normal(500, 4, 2)])
    found = mean_discrepancy(shifted, label, ids(800), seed=0)
    assert found is not None
    assert found.linear == pytest.approx(1.0, abs=0.3)
    assert (found.linear_p, found.rbf_p) == (1 / 200, 1 / 200)
    wider = np.concatenate([3 * normal(300, 4, 1), normal(500, 4, 2)])
    spread = mean_discrepancy(wider, label, ids(800), seed=0)
    assert spread is not None
    assert spread.rbf_p == 1 / 200
    assert spread.linear_p > 0.05  # the means are equal
    values = [mean_discrepancy(normal(60, 2, s), label[270:330], ids(60), seed=s, permutations=19) for s in range(60)]
    linear = np.array([v.linear for v in values if v])
    assert abs(linear.mean()) < 3 * linear.std() / np.sqrt(60)
    p = np.array([v.rbf_p for v in values if v])
    assert 0.35 < p.mean() < 0.65


def test_the_gaussian_discrepancy_comes_near_the_kernels_own() -> None:
    rows, label = np.concatenate([normal(200, 3, 1, mean=1.0), normal(200, 3, 2)]), np.repeat([1, 0], 200)
    found = mean_discrepancy(rows, label, ids(400), seed=0, frequencies=4096, permutations=19)
    assert found is not None
    square = ((rows[:, None] - rows) ** 2).sum(axis=2)
    kernel = np.exp(-square / (2 * found.width**2))
    np.fill_diagonal(kernel, 0)
    exact = kernel[:200, :200].sum() / (200 * 199) + kernel[200:, 200:].sum() / (200 * 199)
    exact -= 2 * kernel[:200, 200:].mean()
    assert found.rbf == pytest.approx(exact, abs=0.01)
    assert found.width == pytest.approx(np.median(np.sqrt(square[np.triu_indices(400, 1)])), rel=1e-6)


def test_permutations_draw_as_many_rows_and_depend_on_ids_alone() -> None:
    names = ids(50)
    drawn = permuted_labels(names, 20, 30, 0)
    assert drawn.sum(axis=1).tolist() == [20] * 30
    order = np.random.default_rng(0).permutation(50)
    assert np.array_equal(permuted_labels(names[order], 20, 30, 0), drawn[:, order])
    assert len({row.tobytes() for row in drawn}) == 30


def test_rows_that_are_all_equal_have_no_discrepancy_and_p_one() -> None:
    found = mean_discrepancy(np.full((40, 3), 2.0), np.repeat([1, 0], 20), ids(40), seed=0, permutations=19)
    assert found is not None
    assert found.linear == pytest.approx(0)
    assert (found.linear_p, found.rbf_p) == (1.0, 1.0)
    assert mean_discrepancy(normal(5, 2), np.array([1, 0, 0, 0, 0]), ids(5), seed=0) is None


def test_the_frechet_distance_has_its_closed_forms() -> None:
    left = gaussian_of(normal(4000, 3, 1).astype(np.float32), np.zeros(3))
    moved = gaussian_of((normal(4000, 3, 1) + np.array([3, 4, 0])).astype(np.float32), np.zeros(3))
    assert frechet(left, left) == pytest.approx(0, abs=1e-6)
    assert frechet(left, moved) == pytest.approx(25, rel=1e-5)
    wider = gaussian_of((2 * normal(4000, 3, 1)).astype(np.float32), np.zeros(3))
    trace = np.trace(left.covariance)  # of A and 4A: tr(A) + 4 tr(A) - 2 * 2 tr(A), and the means are near 0
    assert frechet(left, wider) == pytest.approx(trace + (left.mean**2).sum(), rel=1e-4)
    assert frechet(left, wider) == pytest.approx(frechet(wider, left), rel=1e-9)


def test_transport_in_one_dimension_is_scipys_and_of_two_normals_their_means_distance() -> None:
    from scipy.stats import wasserstein_distance

    rng = np.random.default_rng(0)
    left, right = rng.standard_normal(700), rng.standard_normal(300).round(1) + 0.5
    assert wasserstein_1d(left, right) == pytest.approx(wasserstein_distance(left, right), rel=1e-9)
    one, other = normal(20000, 1, 1), normal(20000, 1, 2, mean=1.0)
    assert sliced_wasserstein(one, other) == pytest.approx(1.0, abs=0.03)
    plane = sliced_wasserstein(normal(500, 2, 1), normal(500, 2, 1) + np.array([3, 4]))
    assert plane == pytest.approx(5 * 2 / np.pi, rel=0.1)  # 5 |cos| on average over directions
    assert sliced_wasserstein(one, one) == 0

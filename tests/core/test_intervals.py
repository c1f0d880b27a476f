"""Intervals and tests against published values, exact enumeration and simulation."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.intervals import (
    Interval,
    bootstrap,
    cluster_bootstrap,
    holm,
    jeffreys,
    mcnemar,
    mover,
    paired_cluster_bootstrap,
    wilson,
)


def test_wilson_and_newcombe_give_the_published_digits() -> None:
    # R. G. Newcombe (1998), Statistics in Medicine 17, 857-872 (81/263) and 873-890 (56/70 - 48/80, and 10/10 - 0/10)
    found = wilson(81, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    difference = mover([wilson(56, 70), wilson(48, 80)], [1, -1])
    assert (round(difference.low, 4), round(difference.high, 4)) == (0.0524, 0.3339)
    extreme = mover([wilson(10, 10), wilson(0, 10)], [1, -1])
    assert (round(extreme.low, 4), extreme.high) == (0.6075, 1.0)


def test_jeffreys_is_the_quantile_of_its_posterior() -> None:
    from scipy.stats import beta

    found = jeffreys(7, 20)
    assert (found.low, found.high) == pytest.approx(tuple(beta.ppf([0.025, 0.975], 7.5, 13.5)), abs=1e-10)
    assert jeffreys(0, 20).low == 0.0
    assert jeffreys(20, 20).high == 1.0


@pytest.mark.parametrize("method", [wilson, jeffreys])
def test_proportions_of_none_all_and_nothing_are_defined(method) -> None:
    assert method(0, 10).low == 0.0
    assert 0.1 < method(0, 10).high < 0.4
    assert method(10, 10).high == 1.0
    assert (method(0, 0).low, method(0, 0).high) == (0.0, 1.0)
    assert math.isnan(method(0, 0).value)
    with pytest.raises(UsageError, match="3 successes of 2"):
        method(3, 2)


@given(st.integers(0, 50), st.integers(1, 50))
def test_wilson_is_symmetric_and_holds_its_estimate(successes: int, n: int) -> None:
    successes = min(successes, n)
    one, other = wilson(successes, n), wilson(n - successes, n)
    assert one.low == pytest.approx(1 - other.high, abs=1e-12)
    assert one.low <= one.value <= one.high


def test_wilson_covers_95_percent_by_exact_enumeration() -> None:
    from scipy.stats import binom

    n = 80
    found = [wilson(k, n) for k in range(n + 1)]
    coverage = [
        sum(binom.pmf(k, n, p) for k in range(n + 1) if found[k].low <= p <= found[k].high)
        for p in np.linspace(0.1, 0.9, 161)
    ]
    assert 0.945 < float(np.mean(coverage)) < 0.96


def test_the_cluster_bootstrap_covers_95_percent_where_rows_of_a_cluster_are_alike() -> None:
    rng = np.random.default_rng(5)
    simulations, clusters, hit, naive = 1200, 120, 0, 0
    for number in range(simulations):
        rows = rng.integers(1, 12, clusters)
        right = rng.binomial(rows, rng.beta(1.4, 0.6, clusters)).astype(float)
        found = cluster_bootstrap(right, rows, resamples=400, seed=number)
        hit += found.low <= 0.7 <= found.high
        row_wise = wilson(right.sum(), rows.sum())
        naive += row_wise.low <= 0.7 <= row_wise.high
    assert abs(hit / simulations - 0.95) <= 0.015
    assert naive / simulations < 0.80  # rows taken for independent: far too narrow


def test_the_paired_bootstrap_of_a_difference_of_gaps_covers_95_percent() -> None:
    rng = np.random.default_rng(6)
    simulations, clusters, hit = 1200, 120, 0
    truth = (0.8 - 0.5) - (0.8 - 0.4)
    for number in range(simulations):
        easy = rng.random((clusters, 1))
        ood = rng.integers(0, 2, clusters).astype(bool)
        counts = np.column_stack([~ood, ood]).astype(float) * 4
        arms = [
            ((rng.random((clusters, 4, 2)) * 0.5 + easy[:, None] * 0.5 < _threshold(np.array(p))).sum(axis=1), counts)
            for p in ((0.8, 0.5), (0.8, 0.4))
        ]
        arms = [(right * (counts > 0), counts) for right, counts in arms]
        found = paired_cluster_bootstrap(*arms, resamples=400, seed=number)
        hit += found.low <= truth <= found.high
    assert abs(hit / simulations - 0.95) <= 0.015


def _threshold(p: np.ndarray) -> np.ndarray:
    """Quantile of the mean of two uniform numbers (a triangle)."""
    return np.where(p < 0.5, np.sqrt(p / 2), 1 - np.sqrt((1 - p) / 2))


def test_runs_and_clusters_both_count_in_the_two_way_interval() -> None:
    rng = np.random.default_rng(7)
    simulations, runs, clusters, hit, one_way = 400, 20, 60, 0, 0
    for number in range(simulations):
        p = np.clip(0.6 + 0.1 * rng.standard_normal((runs, 1)) + 0.1 * rng.standard_normal((1, clusters)), 0, 1)
        right = (rng.random((runs, clusters)) < p).astype(float)[:, :, None]
        both = bootstrap([(right, np.ones_like(right))], [1], resamples=300, seed=number)
        hit += both.low <= 0.6 <= both.high
        alone = bootstrap([(right.sum(axis=0), runs * np.ones((clusters, 1)))], [1], resamples=300, seed=number)
        one_way += alone.low <= 0.6 <= alone.high
        assert both.method == "runs x clusters bootstrap"
    assert 0.92 < hit / simulations < 0.98
    assert one_way / simulations < 0.85


def test_the_pairing_makes_a_difference_sharper() -> None:
    rng = np.random.default_rng(8)
    hard = rng.random(300) < 0.5
    first = (hard | (rng.random(300) < 0.1)).astype(float)
    paired = paired_cluster_bootstrap((first, np.ones(300)), (hard.astype(float), np.ones(300)))
    apart = mover([wilson(first.sum(), 300), wilson(hard.sum(), 300)], [1, -1])
    assert paired.value == pytest.approx(apart.value)
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)
    assert paired.p < 0.01


def test_drawing_equal_clusters_together_gives_the_same_spread_as_drawing_them_one_by_one() -> None:
    rng = np.random.default_rng(9)
    scores = (rng.random(2500) < 0.3).astype(float)
    together = cluster_bootstrap(scores, np.ones(2500), resamples=4000)
    apart = cluster_bootstrap(scores + 1e-9 * rng.random(2500), np.ones(2500), resamples=4000)
    exact = 1.96 * math.sqrt(0.3 * 0.7 / 2500)
    assert apart.method.endswith("normal limit")
    for found in (together, apart):
        assert (found.high - found.low) / 2 == pytest.approx(exact, rel=0.06)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another() -> None:
    sums, counts = np.arange(40.0) % 4, np.full(40, 3.0)
    assert cluster_bootstrap(sums, counts, seed=1) == cluster_bootstrap(sums[::-1], counts, seed=1)
    assert cluster_bootstrap(sums, counts, seed=1) != cluster_bootstrap(sums, counts, seed=2)


def test_the_number_of_threads_and_the_order_of_clusters_do_not_change_an_interval() -> None:
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(10)
    sums = rng.random((3000, 2))  # more kinds than are drawn one by one
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(bootstrap([(sums, np.ones_like(sums))], [1, -1]))
    assert found[0] == found[1]
    shuffled = bootstrap([(sums[::-1], np.ones_like(sums))], [1, -1])
    assert (shuffled.low, shuffled.high) == pytest.approx((found[0].low, found[0].high), abs=1e-9)


def test_all_right_all_wrong_one_cluster_and_nothing_have_defined_intervals() -> None:
    wrong = cluster_bootstrap(np.zeros(30), np.ones(30))
    assert (wrong.value, wrong.low, round(wrong.high, 4)) == (0.0, 0.0, round(wilson(0, 30).high, 4))
    right = cluster_bootstrap(np.full(30, 2.0), np.full(30, 2.0))
    assert (right.value, right.high, round(right.low, 4)) == (1.0, 1.0, round(wilson(30, 30).low, 4))
    one = cluster_bootstrap([3.0], [4.0])
    assert one.value == 0.75
    assert one.low < 0.2 < 0.9 < one.high
    assert one.method == "wilson over clusters"
    nothing = cluster_bootstrap([], [])
    assert math.isnan(nothing.value)
    assert nothing.method == "none: no rows"
    loss = cluster_bootstrap([7.0], [2.0])
    assert math.isnan(loss.low)
    assert loss.method.startswith("none")


def test_two_models_that_are_both_always_wrong_do_not_differ_but_may() -> None:
    wrong = (np.zeros(50), np.ones(50))
    found = paired_cluster_bootstrap(wrong, wrong)
    assert found.value == 0.0
    assert found.low < -0.05 < 0.05 < found.high
    assert found.p == 1.0


def test_a_gap_with_an_empty_side_is_not_a_number() -> None:
    sums = np.column_stack([np.ones(5), np.zeros(5)])
    found = bootstrap([(sums, sums)], [1, -1])
    assert math.isnan(found.value)


def test_shapes_that_do_not_fit_are_refused() -> None:
    ones = np.ones((4, 1))
    with pytest.raises(UsageError, match="contrast"):
        bootstrap([(ones, ones)], [1, -1])
    with pytest.raises(UsageError, match="number of clusters"):
        bootstrap([(ones, ones), (ones[:3], ones[:3])], [1, -1])
    with pytest.raises(UsageError, match="shape"):
        bootstrap([(ones, np.ones((5, 1)))], [1])
    with pytest.raises(UsageError, match="no rows has a sum"):
        cluster_bootstrap([1.0], [0.0])
    with pytest.raises(UsageError, match="not finite"):
        cluster_bootstrap([float("nan")], [1.0])
    with pytest.raises(UsageError, match="3 quantities"):
        paired_cluster_bootstrap((np.ones((2, 3)), np.ones((2, 3))), (np.ones((2, 3)), np.ones((2, 3))))


def test_mcnemar_is_the_exact_binomial_test() -> None:
    assert mcnemar(10, 2) == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert mcnemar(2, 10) == mcnemar(10, 2)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert 0 <= mcnemar(0, 5000) < 1e-300
    with pytest.raises(UsageError):
        mcnemar(-1, 2)


def test_holm_gives_its_steps_and_keeps_nan() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = holm([0.02, float("nan"), 0.9])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert holm([]).size == 0


def test_a_million_rows_take_well_under_a_second_after_aggregation() -> None:
    scores = (np.random.default_rng(0).random(1_000_000) < 0.3).astype(float)
    start = time.perf_counter()
    found = cluster_bootstrap(scores, np.ones(1_000_000))
    assert time.perf_counter() - start < 2.0  # 0.2 s on one quiet core
    assert found.low < 0.3 < found.high


def test_an_interval_reads_as_a_sentence() -> None:
    text = repr(Interval(0.5, 0.4, 0.6, 1000, "wilson"))
    assert text == "0.5000 (interval 0.4000 to 0.6000; n 1,000; wilson)"

"""Sums whose result does not depend on order, batches or threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import reduce
from gradatim.tasks.core.reduce import BLOCK, Moments, group_sums, merge, moments, ordered_sum, sorted_sum

numbers = st.lists(st.floats(-1e6, 1e6, allow_nan=False), max_size=60)


@given(numbers, st.randoms(use_true_random=False))
def test_a_sum_does_not_depend_on_the_order_of_rows_and_is_close_to_the_exact_one(values: list[float], random) -> None:
    shuffled = values[:]
    random.shuffle(shuffled)
    assert ordered_sum(values) == ordered_sum(shuffled)
    assert ordered_sum(values) == pytest.approx(math.fsum(values), abs=1e-12 * (1 + sum(map(abs, values))))


def test_a_sum_of_a_million_numbers_is_pairwise_exact_where_a_running_sum_is_not() -> None:
    values = np.full(1_000_000, 0.1)
    assert abs(ordered_sum(values) - 1e5) < 1e-10
    assert abs(float(np.cumsum(values)[-1]) - 1e5) > 1e-7


def test_a_sum_of_nothing_is_zero_and_nan_is_kept() -> None:
    assert ordered_sum([]) == 0.0
    assert math.isnan(ordered_sum([1.0, float("nan")]))


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-10, 10)), max_size=40), st.randoms(use_true_random=False))
def test_group_sums_do_not_depend_on_the_order_of_rows(rows: list[tuple[int, float]], random) -> None:
    shuffled = rows[:]
    random.shuffle(shuffled)
    first, second = (group_sums([g for g, _ in r], [v for _, v in r], 5) for r in (rows, shuffled))
    assert np.array_equal(first, second)
    exact = [math.fsum(v for g, v in rows if g == group) for group in range(5)]
    assert first == pytest.approx(exact, abs=1e-9)


def test_moments_do_not_depend_on_the_cut_into_batches() -> None:
    rows = np.random.default_rng(0).standard_normal((3 * BLOCK + 17, 5))
    whole = moments([rows])
    for cut in (1000, BLOCK, BLOCK + 1):
        parts = moments(rows[i : i + cut] for i in range(0, len(rows), cut))
        assert parts.n == whole.n == len(rows)
        assert np.array_equal(parts.gram, whole.gram)
        assert np.array_equal(parts.total, whole.total)
    assert whole.gram == pytest.approx(rows.T @ rows)
    assert whole.total == pytest.approx(rows.sum(axis=0))


def test_moments_do_not_depend_on_the_number_of_threads() -> None:
    from threadpoolctl import threadpool_limits

    rows = np.random.default_rng(1).standard_normal((2 * BLOCK, 96))
    results = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            results.append(moments([rows]).gram)
    assert np.array_equal(*results)


def test_parts_merge_to_the_whole() -> None:
    rows = np.random.default_rng(2).standard_normal((700, 3))
    parts = [moments([part]) for part in np.array_split(rows, 7)]
    assert merge(parts).gram == pytest.approx(moments([rows]).gram)
    assert merge(parts).n == 700


def test_blocks_merge_as_a_balanced_tree_so_that_errors_stay_small() -> None:
    rows = np.random.default_rng(3).standard_normal((8 * BLOCK, 3))
    blocks = [moments([block]) for block in np.split(rows, 8)]
    assert np.array_equal(moments([rows]).gram, merge(blocks).gram)
    running = blocks[0]
    for block in blocks[1:]:
        running = running + block
    assert not np.array_equal(running.gram, merge(blocks).gram)


def test_widths_that_differ_and_missing_parts_are_refused() -> None:
    with pytest.raises(UsageError, match="widths"):
        moments([np.ones((2, 3)), np.ones((2, 4))])
    with pytest.raises(UsageError, match="cannot be added"):
        _ = Moments(1, np.ones(2), np.ones((2, 2))) + Moments(1, np.ones(3), np.ones((3, 3)))
    with pytest.raises(UsageError, match="no row"):
        moments([])
    with pytest.raises(UsageError, match="no part"):
        merge([])
    with pytest.raises(UsageError, match="dimensions"):
        moments([np.ones(3)])


def test_an_empty_batch_has_moments_of_zero() -> None:
    empty = moments([np.empty((0, 4))])
    assert empty.n == 0
    assert not empty.gram.any()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 63, 64, 65, 200])
def test_sums_of_many_numbers_are_those_of_one_block(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(n).standard_normal(n) * 10.0 ** np.arange(n).clip(max=12)[::-1]
    whole, one = ordered_sum(values), sorted_sum(values)
    assert one == group_sums(np.zeros(n, dtype=np.int64), values, 1)[0]
    monkeypatch.setattr(reduce, "_TOGETHER", 8)
    assert ordered_sum(values) == whole
    assert sorted_sum(values) == one

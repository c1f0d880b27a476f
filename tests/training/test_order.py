"""The sampler's laws: every position once, in its step, whatever the ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.training.loader import keys
from gradatim.tasks.training.order import Plan, World, accumulation, learning_rate, occurrences, positions


@given(
    length=st.integers(1, 300),
    micro=st.integers(1, 7),
    world=st.integers(1, 5),
    accumulate=st.integers(1, 4),
)
def test_all_ranks_together_take_each_position_once_and_in_its_step(
    length: int, micro: int, world: int, accumulate: int
) -> None:
    plan = Plan(length, micro * world * accumulate, micro)
    assert accumulation(plan, world) == accumulate
    taken = []
    for step in range(plan.steps):
        parts = [part for rank in range(world) for part in positions(plan, step, World(rank, world))]
        assert all(len(part) <= micro for part in parts)
        whole = np.sort(np.concatenate(parts))
        assert whole.tolist() == list(range(*plan.span(step)))
        taken += whole.tolist()
    assert taken == list(range(length))
    assert plan.end == length


@given(length=st.integers(1, 200), micro=st.integers(1, 4), world=st.sampled_from([1, 2, 3, 4, 6]))
def test_a_cell_holds_the_same_positions_on_any_number_of_ranks(length: int, micro: int, world: int) -> None:
    plan = Plan(length, 12 * micro, micro)

    def by_cell(size: int) -> dict[tuple[int, int], list[int]]:
        found = (key for rank in range(size) for key in keys(plan, World(rank, size), 0))
        return {(step, cell): part.tolist() for step, cell, part, _ in found}

    assert by_cell(world) == by_cell(1)


def test_the_published_numbers_of_one_step() -> None:
    # step 2 of batches of 8 on two ranks with micro batches of 2: [16, 24) in cells of two, dealt in turn
    plan = Plan(100, 8, 2)
    assert [p.tolist() for p in positions(plan, 2, World(0, 2))] == [[16, 17], [20, 21]]
    assert [p.tolist() for p in positions(plan, 2, World(1, 2))] == [[18, 19], [22, 23]]


def test_the_last_step_is_short_and_loses_nothing() -> None:
    plan = Plan(21, 8, 2)
    assert plan.steps == 3
    assert [p.tolist() for p in positions(plan, 2, World(0, 2))] == [[16, 17], [20]]
    assert [p.tolist() for p in positions(plan, 2, World(1, 2))] == [[18, 19], []]


def test_a_resumed_sampler_yields_the_tail_of_the_whole_one() -> None:
    plan, world = Plan(50, 8, 4), World(1, 2)
    whole = [(s, c, p.tolist()) for s, c, p, _ in keys(plan, world, 0)]
    tail = [(s, c, p.tolist()) for s, c, p, _ in keys(plan, world, plan.step_at(24))]
    assert tail == [key for key in whole if key[0] >= 3]


def test_max_steps_ends_early() -> None:
    plan = Plan(100, 8, 8, max_steps=3)
    assert (plan.steps, plan.end) == (3, 24)
    assert Plan(10, 8, 8, max_steps=30).steps == 2


def test_ranks_that_do_not_fit_are_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="64 is not a multiple of micro_batch x ranks = 16 x 3") as caught:
        accumulation(Plan(1000, 64, 16), 3)
    assert "1, 2, 4" in str(caught.value)


def test_a_position_inside_a_step_is_no_place_to_resume() -> None:
    with pytest.raises(UsageError, match="position 12 lies inside a step of 8"):
        Plan(100, 8, 8).step_at(12)
    assert Plan(21, 8, 8).step_at(21) == 3, "the end of a short last step is the end of the run"


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(UsageError, match="rank 2 of 2"):
        World(2, 2)


@given(st.lists(st.integers(0, 5), max_size=50))
def test_occurrences_count_what_came_before(rows: list[int]) -> None:
    assert occurrences(np.array(rows, dtype=np.int64)).tolist() == [rows[:i].count(row) for i, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 2 / 3, 1 / 3]),
        ("cosine", [0.5, 1, 1, 0.75, 0.25]),
    ],
)
def test_the_learning_rate_rises_then_follows_its_schedule(schedule: str, expected: list[float]) -> None:
    rates = [learning_rate(s, 5, peak=1.0, warmup=0.4, schedule=schedule) for s in range(5)]
    assert rates == pytest.approx(expected)
    assert learning_rate(0, 5, peak=2.0, warmup=0.0, schedule="cosine") == 2.0

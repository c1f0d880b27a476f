"""Components: equal to a plain union-find, cut where they are chains, and growing by name."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.components import GIANT_ROWS, Growth, components, cut_giants, grow

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=14)


def union_find(rows: int, pairs: list[tuple[int, int]]) -> list[int]:
    parent = list(range(rows))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for a, b in pairs:
        one, two = sorted((root(a), root(b)))
        parent[two] = one
    firsts = sorted({root(i) for i in range(rows)})
    return [firsts.index(root(i)) for i in range(rows)]


@given(pairs=PAIRS)
@settings(max_examples=30)
def test_components_are_numbered_by_their_first_row(pairs: list[tuple[int, int]]) -> None:
    assert components(12, np.array(pairs, dtype=np.int64).reshape(-1, 2)).tolist() == union_find(12, pairs)


def test_no_rows_and_no_pairs_are_no_error() -> None:
    assert components(0, []).tolist() == []
    assert components(3, []).tolist() == [0, 1, 2]


def chain(rows: int, alike: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows tied by .8, but for one tie of `alike` inside each pair (0, 1), (2, 3), ..."""
    pairs = np.stack([np.arange(rows - 1), np.arange(1, rows)], axis=1)
    return pairs, np.where(np.arange(rows - 1) % 2 == 0, alike, 0.8)


def test_a_giant_chain_is_cut_by_a_higher_threshold_and_others_are_left_alone() -> None:
    pairs, similarity = chain(2 * GIANT_ROWS, 0.9)
    other = np.array([[2 * GIANT_ROWS, 2 * GIANT_ROWS + 1]])
    cut = cut_giants(2 * GIANT_ROWS + 4, np.concatenate([pairs, other]), np.append(similarity, 0.8), 0.8)
    assert cut.steps == ((0, 2 * GIANT_ROWS, 0.82, 2),)
    assert np.bincount(cut.labels).tolist() == [2] * GIANT_ROWS + [2, 1, 1]
    assert cut.kept.tolist() == [*(similarity > 0.8), True]
    assert cut.thresholds.tolist() == [0.82] * len(pairs) + [0.8]


def test_the_threshold_rises_step_by_step_and_stops_at_one() -> None:
    pairs, similarity = chain(2 * GIANT_ROWS, 1.0)
    similarity[similarity < 1] = 0.93
    assert cut_giants(2 * GIANT_ROWS, pairs, similarity, 0.8, step=0.05).steps[0][2] == 0.95
    copies = cut_giants(2 * GIANT_ROWS, pairs, np.ones(len(pairs)), 0.8)
    assert copies.steps == ((0, 2 * GIANT_ROWS, 1.0, 2 * GIANT_ROWS),)
    assert copies.kept.all()


def test_a_small_set_has_no_giants() -> None:
    pairs, similarity = chain(GIANT_ROWS, 0.9)
    cut = cut_giants(GIANT_ROWS, pairs, similarity, 0.8)
    assert cut.steps == ()
    assert cut.labels.max() == 0


def grown(known: dict[str, str], pairs: list[tuple[str, str]], **settings: object) -> Growth:
    held = pl.DataFrame({"example_id": list(known), "component": list(known.values())}, schema_overrides=STRINGS)
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    return grow(held, pl.DataFrame({"left_id": left, "right_id": right}, schema=ENDS), **settings)  # type: ignore[arg-type]


STRINGS = {"example_id": pl.String, "component": pl.String}
ENDS = {"left_id": pl.String, "right_id": pl.String}


def test_new_rows_take_the_old_name_and_strangers_their_smallest_id() -> None:
    found = grown({"m": "c", "n": "c"}, [("a", "m"), ("x", "y")], new=["z"])
    assert dict(found.components.iter_rows()) == {"a": "c", "m": "c", "n": "c", "x": "x", "y": "x", "z": "z"}
    assert found.merges.is_empty()
    assert found.joined.rows() == [("a", "c", False), ("x", "x", False), ("y", "x", False)]


def test_a_merge_keeps_the_smallest_old_name_and_tells_the_frozen_rows_that_it_touches() -> None:
    known = {"a": "a", "b": "b", "c": "b", "d": "d"}
    found = grown(known, [("new", "c"), ("a", "new")], frozen=["c", "d"])
    assert dict(found.components.iter_rows()) == {"a": "a", "b": "a", "c": "a", "d": "d", "new": "a"}
    assert found.merges.rows() == [("a", "b", ["c"])]
    assert found.joined.rows() == [("new", "a", True)]
    assert grown(known, [("a", "c")]).merges.rows() == [("a", "b", [])]


def test_a_new_row_never_takes_the_name_that_a_row_that_left_gave() -> None:
    found = grown({"b": "a"}, [], new=["a"])
    assert dict(found.components.iter_rows()) == {"a": "a+", "b": "a"}


def test_an_id_of_two_components_is_an_error() -> None:
    held = pl.DataFrame({"example_id": ["a", "a"], "component": ["a", "b"]})
    with pytest.raises(UsageError, match="two components"):
        grow(held, pl.DataFrame(schema=ENDS))


@given(nights=st.lists(PAIRS, min_size=1, max_size=4))
@settings(max_examples=30)
def test_night_by_night_the_components_are_those_of_all_pairs_at_once_and_only_grow(
    nights: list[list[tuple[int, int]]],
) -> None:
    known: dict[str, str] = {}
    every: list[tuple[int, int]] = []
    for number, pairs in enumerate(nights):
        every += pairs
        named = [(f"{a:02d}", f"{b:02d}") for a, b in pairs]
        new = [f"{i:02d}" for i in range(12) if i % len(nights) <= number]
        found = grown(known, named, new=new)
        after = dict(found.components.iter_rows())
        for one in known:
            assert all(after[one] == after[two] for two in known if known[one] == known[two])
        went = set(known.values()) - set(after.values())
        assert went == set(found.merges["absorbed"])
        known = after
    whole = union_find(12, every)
    names = [known[f"{i:02d}"] for i in range(12)]
    assert [whole.index(number) for number in whole] == [names.index(name) for name in names]

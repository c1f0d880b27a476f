"""n-LS beside a walk over each tree."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.local_structures import local_structures
from gradatim.tasks.core.trees import TREE_DTYPE, parse

Parents = list[tuple[int, str]]
Found = Counter[tuple[tuple[str, ...], tuple[str, ...]]]


@st.composite
def small_trees(draw: st.DrawFn, most: int = 8) -> Parents:
    """Trees as (parent, label), parents first or not."""
    size = draw(st.integers(1, most))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))]
    turn = draw(st.permutations(range(size)))
    place = {node: i for i, node in enumerate(turn)}
    labels = [draw(st.sampled_from("abc")) for _ in range(size)]
    return [(-1 if parents[node] < 0 else place[parents[node]], labels[node]) for node in turn]


def column(found: list[Parents | None]) -> pl.Series:
    rows = [
        None if tree is None else [{"node": i, "parent": p, "label": x} for i, (p, x) in enumerate(tree)]
        for tree in found
    ]
    return pl.Series("structure", rows, dtype=TREE_DTYPE)


def walked(tree: Parents, n: int) -> Found:
    """Every node with so many ancestors and so many left siblings, one after the other."""
    found: Found = Counter()
    for node, (parent, label) in enumerate(tree):
        ancestors, above = [], parent
        while above >= 0:
            ancestors.append(tree[above][1])
            above = tree[above][0]
        ancestors.append("<s>")
        siblings = [x for i, (p, x) in enumerate(tree) if p == parent >= 0 and i < node][::-1]
        for a in range(n):
            for b in range(n - a):
                if a + b and a <= len(ancestors) and b <= len(siblings):
                    roles = (*["above"] * a, *["beside"] * b)
                    found[roles, (*ancestors[:a][::-1], *siblings[:b][::-1], label)] += 1
    return found


def ours(trees: pl.Series, n: int) -> list[Found | None]:
    result = local_structures(trees, n)
    indptr, entry = result.expand()
    found: list[Found | None] = []
    for row, tree in enumerate(result.tree):
        mine: Found = Counter()
        for e in entry[indptr[row] : indptr[row + 1]]:
            roles = result.kinds[result.kind[result.code[e]]]
            symbols = result.symbols[result.code[e]]
            assert (symbols[len(roles) :] == -1).all()
            places = tuple("beside" if "sibling" in role else "above" for role in roles[:-1])
            mine[places, tuple(result.labels.gather(symbols[: len(roles)]))] = int(result.count[e])
        found.append(mine if tree >= 0 else None)
    return found


@given(st.lists(st.one_of(st.none(), small_trees()), min_size=1, max_size=5), st.integers(2, 4))
@settings(max_examples=30)
def test_structures_equal_those_of_a_walk_over_each_tree(found: list[Parents | None], n: int) -> None:
    assert ours(column(found), n) == [None if tree is None else walked(tree, n) for tree in found]


@given(st.lists(small_trees(), min_size=1, max_size=5), st.randoms())
@settings(max_examples=20)
def test_codes_and_counts_do_not_depend_on_the_order_of_rows(found: list[Parents], random: object) -> None:
    turned = list(found)
    random.shuffle(turned)  # type: ignore[attr-defined]
    one, other = local_structures(column(found), 3), local_structures(column(turned), 3)
    assert np.array_equal(one.symbols, other.symbols)
    assert np.array_equal(one.kind, other.kind)
    assert np.array_equal(one.totals(), other.totals())
    assert np.array_equal(one.examples(), other.examples())


def test_names_say_the_role_of_each_symbol() -> None:
    trees, _ = parse(pl.Series(["(S (NP they) (VP run))"]))
    assert set(local_structures(trees, 2).names()) == {
        "parent '<s>', child 'S'",
        "parent 'S', child 'NP'",
        "parent 'S', child 'VP'",
        "parent 'NP', child 'they'",
        "parent 'VP', child 'run'",
        "sibling 'NP', child 'VP'",
    }
    three = local_structures(trees, 3)
    assert "grandparent 'S', parent 'VP', child 'run'" in three.names().to_list()
    assert "parent 'S', sibling 'NP', child 'VP'" in three.names().to_list()
    assert three.names(np.array([0])).to_list() == three.names().head(1).to_list()


def test_totals_count_rows_and_occurrences_of_chosen_rows() -> None:
    trees, _ = parse(pl.Series(["(a b b)", "(a b)", "(a b)", None]))
    found = local_structures(trees, 2)
    at = found.names().to_list().index("parent 'a', child 'b'")
    assert (found.totals()[at], found.examples()[at]) == (4, 3)
    chosen = np.array([True, False, True, True])
    assert (found.totals(chosen)[at], found.examples(chosen)[at]) == (3, 2)


def test_a_column_without_trees_has_no_structures_and_n_has_bounds() -> None:
    empty = local_structures(column([None, None]), 2)
    assert (empty.size, len(empty.code), empty.expand()[0].tolist()) == (0, 0, [0, 0, 0])
    for n in (1, 7):
        with pytest.raises(UsageError, match=f"of {n} symbols"):
            local_structures(column([None]), n)

"""Atoms, compounds, their weights and divergence, beside all subsets of the nodes of small trees."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.compounds import atoms, chernoff_divergence, compounds
from gradatim.tasks.core.registry import get
from gradatim.tasks.core.trees import TREE_DTYPE, parse

Parents = list[tuple[int, str]]


@st.composite
def small_trees(draw: st.DrawFn, most: int = 7) -> Parents:
    """Trees as (parent, label), parents first or not."""
    size = draw(st.integers(1, most))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))]
    turn = draw(st.permutations(range(size)))
    place = {node: i for i, node in enumerate(turn)}
    labels = [draw(st.sampled_from("ab")) for _ in range(size)]
    return [(-1 if parents[node] < 0 else place[parents[node]], labels[node]) for node in turn]


def column(found: list[Parents | None]) -> pl.Series:
    rows = [
        None if tree is None else [{"node": i, "parent": p, "label": x} for i, (p, x) in enumerate(tree)]
        for tree in found
    ]
    return pl.Series("structure", rows, dtype=TREE_DTYPE)


def written(tree: Parents, nodes: frozenset[int]) -> str | None:
    """Name the sub-graph of some nodes; None where it is not connected."""
    tops = [node for node in nodes if tree[node][0] not in nodes]
    if len(tops) != 1:
        return None

    def below(node: int) -> str:
        parts = [below(child) for child in sorted(nodes) if tree[child][0] == node]
        return "[" + ",".join([f'"{tree[node][1]}"', *parts]) + "]"

    return below(tops[0])


def parts(tree: Parents, least: int, most: int) -> dict[frozenset[int], str]:
    subsets = [frozenset(s) for size in range(least, most + 1) for s in combinations(range(len(tree)), size)]
    return {s: name for s in subsets if (name := written(tree, s)) is not None}


def slow_weights(found: list[Parents], most: int) -> list[dict[str, Fraction]]:
    """w(G) of each tree by the definition, over all occurrences of the pool and their extensions by one node."""
    all_parts = [parts(tree, 2, most + 1) for tree in found]
    occurrences: Counter[str] = Counter()
    inside: dict[tuple[str, str], int] = defaultdict(int)
    around: list[dict[frozenset[int], set[str]]] = []
    for mine in all_parts:
        outer = {s: {mine[t] for t in mine if len(t) == len(s) + 1 and s < t} for s in mine if len(s) <= most}
        around.append(outer)
        for s, names in outer.items():
            occurrences[mine[s]] += 1
            for name in names:
                inside[mine[s], name] += 1
    weights = []
    for mine, outer in zip(all_parts, around, strict=True):
        best: dict[str, Fraction] = {}
        for s, names in outer.items():
            share = max((Fraction(inside[mine[s], g], occurrences[mine[s]]) for g in names), default=Fraction(0))
            best[mine[s]] = max(best.get(mine[s], Fraction(0)), 1 - share)
        weights.append(best)
    return weights


@given(st.lists(st.one_of(st.none(), small_trees()), min_size=1, max_size=5), st.integers(2, 5))
@settings(max_examples=30)
def test_compounds_are_all_connected_sets_of_nodes(found: list[Parents | None], most: int) -> None:
    result = compounds(column(found), most)
    names, (indptr, entry) = result.names(), result.expand()
    assert names.n_unique() == result.size
    assert [name.count("[") for name in names] == result.nodes.tolist()
    for row, tree in enumerate(found):
        mine = entry[indptr[row] : indptr[row + 1]]
        expected = Counter() if tree is None else Counter(parts(tree, 2, most).values())
        assert dict(zip(names.gather(result.code[mine]), result.count[mine].tolist(), strict=True)) == expected
    labels = atoms(column(found))
    counted = Counter(label for tree in found if tree for _, label in tree)
    assert dict(zip(labels.names(), labels.totals().tolist(), strict=True)) == {
        f'["{k}"]': v for k, v in counted.items()
    }


@given(st.lists(small_trees(6), min_size=1, max_size=5), st.integers(2, 4), st.integers(1, 3))
@settings(max_examples=30)
def test_weights_are_those_of_the_definition_and_equal_trees_count_each(
    found: list[Parents], most: int, copies: int
) -> None:
    pool = found + found[:1] * copies
    result = compounds(column(pool), most, weights=True)
    names, (indptr, entry) = result.names(), result.expand()
    for row, expected in enumerate(slow_weights(pool, most)):
        mine = entry[indptr[row] : indptr[row + 1]]
        ours = dict(zip(names.gather(result.code[mine]), result.weight[mine].tolist(), strict=True))
        assert ours == pytest.approx({name: float(w) for name, w in expected.items()}, abs=1e-12)


def test_a_compound_always_inside_one_larger_one_weighs_nothing_and_a_whole_tree_all() -> None:
    trees, _ = parse(pl.Series(["(a (b c))", "(a (b c))"]))
    result = compounds(trees, 3, weights=True)
    assert dict(zip(result.names().gather(result.code), result.weight, strict=True)) == {
        '["a",["b"]]': 0.0,
        '["b",["c"]]': 0.0,
        '["a",["b",["c"]]]': 1.0,
    }
    # (b c) lies once in (a (b c)) and twice in (d (b c))
    trees, _ = parse(pl.Series(["(a (b c))", "(d (b c))", "(d (b c))"]))
    result = compounds(trees, 2, weights=True)
    at = result.names().to_list().index('["b",["c"]]')
    assert result.weight[result.code == at].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_names_are_trees_that_can_be_read_again() -> None:
    label = 'S -> "V" [1], é\\'
    trees = column([[(-1, label), (0, "x"), (0, "y"), (1, label)]])
    names = compounds(trees, 4).names()
    again, problems = parse(names)
    assert problems.null_count() == len(names)
    assert compounds(again, 4).names().to_list() == names.to_list()


def test_counts_have_the_calculated_divergences() -> None:
    train, test = [3, 1, 0], [1, 1, 2]
    assert chernoff_divergence(train, test, 0.5) == pytest.approx(0.3169872981, abs=5e-11)
    assert chernoff_divergence(train, test, 0.1) == pytest.approx(0.4709692065, abs=5e-11)
    assert chernoff_divergence(test, train, 0.1) != pytest.approx(0.4709692065, abs=0.1)
    assert chernoff_divergence(test, train, 0.5) == pytest.approx(0.3169872981, abs=5e-11)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=20), st.floats(0.01, 0.99))
@settings(max_examples=30)
def test_divergence_lies_in_its_bounds_and_ignores_scale_and_order(
    pairs: list[tuple[float, float]], alpha: float
) -> None:
    p, q = np.array([*pairs, (1.0, 1.0)]).T
    d = chernoff_divergence(p, q, alpha)
    assert 0 <= d <= 1
    assert chernoff_divergence(p[::-1], q[::-1], alpha) == d
    assert chernoff_divergence(8 * p, q / 4, alpha) == pytest.approx(d, abs=1e-12)
    assert chernoff_divergence(p, 3 * p, alpha) == pytest.approx(0, abs=1e-12)
    apart = np.concatenate([p, 0 * p]), np.concatenate([0 * q, q])
    assert chernoff_divergence(*apart, alpha) == 1


@pytest.mark.parametrize(
    ("p", "q", "alpha", "said"),
    [
        ([1], [1], 0.0, "alpha is 0.0"),
        ([1], [1], 1.0, "alpha is 1.0"),
        ([1, 2], [1], 0.5, "shapes"),
        ([1, -1], [1, 1], 0.5, "of p is negative"),
        ([1, 1], [1, float("nan")], 0.5, "of q is negative or not finite"),
        ([0, 0], [1, 1], 0.5, "of p sum to 0"),
        ([], [], 0.5, "of p sum to 0"),
    ],
)
def test_what_is_no_distribution_is_named(p: list[float], q: list[float], alpha: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chernoff_divergence(p, q, alpha)


def test_trees_too_wide_too_deep_or_broken_are_answered() -> None:
    star = [(-1, "a"), *[(0, "b")] * 200]
    with pytest.raises(UsageError, match="201 nodes has 66,0") as caught:
        compounds(column([star]), 5)
    assert "smaller compounds" in str(caught.value)
    path = [(i - 1, "a") for i in range(5_000)]
    assert compounds(column([path]), 3).totals().tolist() == [4_999, 4_998]
    with pytest.raises(DataRefused, match="a cycle"):
        compounds(column([[(-1, "a"), (2, "b"), (1, "c")]]), 3)
    with pytest.raises(UsageError, match="up to 13 nodes"):
        compounds(column([path]), 13)


def test_without_trees_or_with_single_nodes_there_are_no_compounds() -> None:
    for rows in ([None, None], [[(-1, "a")], None]):
        result = compounds(column(rows), 3, weights=True)
        assert (result.size, len(result.code), len(result.names())) == (0, 0, 0)
        assert result.expand()[0].tolist() == [0, 0, 0]
    assert atoms(column([[(-1, "a")], None])).totals().tolist() == [1]


@pytest.mark.data
def test_scan_splits_diverge_in_the_published_order(data: Path) -> None:
    # published with 38 rules, here the 18 of the commands alone: order and nearness can be asked for, not digits
    plugin = get("dataset", "scan")
    scan = next(iter(plugin.run(plugin.config(), 0))).select("input", "structure", "n_words")
    splits = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").rename({"command": "input"})
    frame = scan.join(splits.drop("n_words"), on="input", maintain_order="left")
    assert len(frame) == 20_910
    rules = atoms(frame["structure"])
    assert rules.size == 18
    train = {
        "random": (frame["split_simple"] == "train").to_numpy(),
        "in-length": (frame["n_words"] <= 8).to_numpy(),
        "out-length": (frame["split_length"] == "train").to_numpy(),
    }
    atom = {name: chernoff_divergence(rules.totals(x), rules.totals(~x), 0.5) for name, x in train.items()}
    assert atom["random"] < 0.001
    assert atom["in-length"] == pytest.approx(0.106, abs=0.02)
    assert atom["out-length"] == pytest.approx(0.034, abs=0.02)
    found = compounds(frame["structure"], 9, weights=True)
    far = {
        name: chernoff_divergence(found.totals(x, found.weight), found.totals(~x, found.weight), 0.1)
        for name, x in train.items()
    }
    assert far["random"] == pytest.approx(0.047, abs=0.05)
    assert far["in-length"] == pytest.approx(0.380, abs=0.05)
    assert far["random"] < far["in-length"] < far["out-length"] < 0.437 + 0.05

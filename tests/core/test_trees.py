"""Trees: reading, refusing, measuring."""

import json
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core import trees
from gradatim.tasks.core.distinct_trees import distinct

Nested = tuple[str, list["Nested"]]


def nested() -> st.SearchStrategy[Nested]:
    label = st.text("abcXYZ_0é", min_size=1, max_size=4)
    return st.recursive(
        label.map(lambda x: (x, [])), lambda children: st.tuples(label, st.lists(children, max_size=3)), max_leaves=12
    )


def brackets(tree: Nested) -> str:
    return "(" + " ".join([tree[0], *map(brackets, tree[1])]) + ")"


def as_json(tree: Nested) -> list[object]:
    return [tree[0], *map(as_json, tree[1])]


def nodes(tree: Nested, parent: int = -1, found: list[dict[str, object]] | None = None) -> list[dict[str, object]]:
    found = [] if found is None else found
    here = len(found)
    found.append({"node": here, "parent": parent, "label": tree[0]})
    for child in tree[1]:
        nodes(child, here, found)
    return found


def levels(tree: Nested) -> int:
    return max((1 + levels(child) for child in tree[1]), default=0)


@given(st.lists(nested(), max_size=6))
def test_brackets_json_and_node_lists_agree_with_a_recursive_reading(found: list[Nested]) -> None:
    expected = pl.Series("structure", [nodes(tree) for tree in found], dtype=trees.TREE_DTYPE)
    for write in (brackets, lambda tree: json.dumps(as_json(tree))):
        parsed, problems = trees.parse(pl.Series([write(tree) for tree in found], dtype=pl.String))
        assert problems.null_count() == len(found)
        assert parsed.to_list() == expected.to_list()
    assert trees.problems(expected).null_count() == len(found)
    assert trees.sizes(expected).to_list() == [len(nodes(tree)) for tree in found]
    assert trees.depths(expected).to_list() == [levels(tree) for tree in found]


def test_bare_words_are_leaves_and_white_space_is_free() -> None:
    parsed, _ = trees.parse(pl.Series(["(S\n (NP they)  (VP run))", ' [ "S", "they", 3 ] ', "word"]))
    assert [[(n["parent"], n["label"]) for n in tree] for tree in parsed] == [
        [(-1, "S"), (0, "NP"), (1, "they"), (0, "VP"), (3, "run")],
        [(-1, "S"), (0, "they"), (0, "3")],
        [(-1, "word")],
    ]


def test_json_labels_keep_spaces_brackets_and_escapes() -> None:
    parsed, problems = trees.parse(pl.Series(['["a b", ["[c]"], "\\u00e9\\"(x)"]']))
    assert problems.to_list() == [None]
    assert [n["label"] for n in parsed[0]] == ["a b", "[c]", 'é"(x)']


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no nodes"),
        ("   ", "no nodes"),
        ("(a", "brackets that do not match"),
        ("(a))", "brackets that do not match"),
        (")a(", "brackets that do not match"),
        ("(a) (b)", "2 roots"),
        ("a b c", "3 roots"),
        ("((a) b)", "a bracket without a label"),
        ("[[], 1]", "a bracket without a label"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_reason_and_spares_its_neighbours(text: str, reason: str) -> None:
    parsed, problems = trees.parse(pl.Series(["(a (b))", text, None, "(c)"]))
    assert problems.to_list() == [None, reason, None, None]
    assert [None if t is None else len(t) for t in parsed.to_list()] == [2, None, None, 1]


def tree(*parents: int) -> list[dict[str, object]]:
    return [{"node": i, "parent": p, "label": "x"} for i, p in enumerate(parents)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (tree(-1, 0, 0, 1), None),
        (tree(), "no nodes"),
        (tree(-1, -1), "2 roots"),
        (tree(1, 0), "no root"),
        (tree(-1, 2, 3, 1), "a cycle"),
        (tree(-1, 1), "a cycle"),
        (tree(-1, 5), "a parent that is not there"),
        (tree(-1, -2), "a parent that is not there"),
        ([{"node": 3, "parent": -1, "label": "x"}], "node numbers are not 0 to n-1"),
        ([{"node": 0, "parent": -1, "label": None}], "a node without label"),
        (None, None),
    ],
)
def test_a_node_list_is_checked(found: list[dict[str, object]] | None, reason: str | None) -> None:
    column = pl.Series("structure", [tree(-1, 0), found, tree(-1)], dtype=trees.TREE_DTYPE)
    assert trees.problems(column).to_list() == [None, reason, None]


def test_nodes_in_another_order_are_put_in_theirs() -> None:
    shuffled = pl.Series([[{"node": 1, "parent": 0, "label": "b"}, {"node": 0, "parent": -1, "label": "a"}]])
    assert trees.problems(shuffled).to_list() == [None]
    tidy = trees.flatten(shuffled).to_series()
    assert [n["label"] for n in tidy[0]] == ["a", "b"]


def test_a_path_of_ten_thousand_nodes_has_its_depth() -> None:
    column = pl.Series("structure", [tree(*range(-1, 9_999)), tree(-1)], dtype=trees.TREE_DTYPE)
    assert trees.depths(column).to_list() == [9_999, 0]
    assert trees.problems(column).null_count() == 2


def test_a_column_of_nulls_or_without_rows_stays_one() -> None:
    for column in (pl.Series([None, None], dtype=trees.TREE_DTYPE), pl.Series([], dtype=trees.TREE_DTYPE)):
        assert trees.depths(column).null_count() == len(column)
        assert trees.problems(column).null_count() == len(column)
    parsed, problems = trees.parse(pl.Series([None, None], dtype=pl.String))
    assert parsed.null_count() == problems.null_count() == 2
    assert len(trees.parse(pl.Series([], dtype=pl.String))[0]) == 0


# --- different trees


def labelled(*nodes: tuple[int, str]) -> list[dict[str, object]]:
    return [{"node": i, "parent": p, "label": label} for i, (p, label) in enumerate(nodes)]


@given(st.lists(st.one_of(st.none(), nested()), max_size=8), st.randoms())
def test_rows_share_a_tree_exactly_where_their_node_lists_are_equal(found: list[Nested | None], random: Random) -> None:
    rows = [None if tree is None else nodes(tree) for tree in [*found, *found]]
    random.shuffle(rows)
    d = distinct(pl.Series("structure", rows, dtype=trees.TREE_DTYPE))
    for i, one in enumerate(rows):
        assert (d.tree[i] == -1) == (one is None)
        for j, other in enumerate(rows):
            assert one is None or (d.tree[i] == d.tree[j]) == (one == other)
    stored = d.forest.to_series().to_list()
    assert all(one is None or stored[d.tree[i]] == one for i, one in enumerate(rows))
    assert d.rows().sum() == sum(one is not None for one in rows)
    assert d.labels.gather(d.label).to_list() == d.forest.label.to_list()


def test_left_siblings_and_parents_are_places_among_all_nodes_in_any_numbering() -> None:
    # the second tree numbers a child before its parent
    d = distinct(
        pl.Series(
            [labelled((-1, "a"), (0, "b"), (0, "c"), (1, "d"), (0, "e")), labelled((2, "x"), (2, "y"), (-1, "z"))],
            dtype=trees.TREE_DTYPE,
        )
    )
    assert d.up.tolist() == [-1, 0, 0, 1, 0, 7, 7, -1]
    assert d.left.tolist() == [-1, -1, 1, -1, 2, -1, 5, -1]


def test_labels_are_numbered_by_their_bytes_whatever_the_order_of_rows() -> None:
    one, two = labelled((-1, "b"), (0, "é")), labelled((-1, "a"))
    for rows in ([one, two], [two, one]):
        assert distinct(pl.Series(rows, dtype=trees.TREE_DTYPE)).labels.to_list() == ["a", "b", "é"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (tree(-1, 2, 1), "a cycle"),
        (tree(-1, -1), "2 roots"),
        (tree(1, 0), "no root"),
        (tree(-1, 5), "a parent that is not there"),
        ([{"node": 3, "parent": -1, "label": "x"}], "node numbers are not 0 to n-1"),
        ([{"node": 0, "parent": -1, "label": None}], "a node without label"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_names_of_its_rows(found: list[dict[str, object]], reason: str) -> None:
    column = pl.Series([tree(-1, 0), *[found] * 5, None, []], dtype=trees.TREE_DTYPE)
    ids = pl.Series([f"q{i}" for i in range(8)])
    with pytest.raises(DataRefused, match=f"5 of 8 structures are no trees: {reason}") as caught:
        distinct(column, ids)
    assert "example 'q1', example 'q2', example 'q3' and 2 more" in str(caught.value)
    with pytest.raises(DataRefused, match="row 1, row 2"):
        distinct(column)


def test_nulls_and_empty_lists_are_no_trees_and_a_column_of_words_is_named() -> None:
    column = pl.Series([None, [], tree(-1)], dtype=trees.TREE_DTYPE)
    assert distinct(column).tree.tolist() == [-1, -1, 0]
    assert len(distinct(column.head(2))) == 0
    with pytest.raises(UsageError, match="of type String"):
        distinct(pl.Series(["(a)"]))

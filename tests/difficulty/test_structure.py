"""Difficulty by structure: unobserved local structures, depth, size, rarity of compounds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.compounds import compounds
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.core.trees import TREE_DTYPE, parse
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.structure import easiness, symbol_similarity

Parents = list[tuple[int, str]]
Kinds = dict[tuple[int, int], set[tuple[str, ...]]]
METHODS = ("unobserved_structures", "tree_depth", "tree_size", "compound_rarity")


def _run(method: str, examples: pl.DataFrame, **given_: object) -> Difficulty:
    plugin, config = resolve("difficulty", Step(method=method, settings=given_))
    result = plugin.run({"examples": examples}, config, 0)
    assert isinstance(result, Difficulty)
    return result


def _frame(texts: Sequence[str | None], **columns: Sequence[object]) -> pl.DataFrame:
    """Trees written in brackets."""
    trees, wrong = parse(pl.Series("structure", texts, dtype=pl.String))
    assert wrong.null_count() == len(wrong)
    ids = [f"q{i}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "structure": trees, **columns})


def _values(d: Difficulty) -> dict[str, float]:
    return dict(d.table.select("example_id", "value").iter_rows())


# --- SCAN


def _scan_tree(command: str) -> str:
    """The command as a tree: conjunction, repetition, modifier (D: direction alone, V: none), words."""
    for conjunction in ("and", "after"):
        if f" {conjunction} " in command:
            first, second = command.split(f" {conjunction} ")
            return f"({conjunction} {_clause(first)} {_clause(second)})"
    return f"(C {_clause(command)})"


def _clause(text: str) -> str:
    words = text.split()
    times = words.pop() if words[-1] in ("twice", "thrice") else "once"
    modifier = {1: "V", 2: "D", 3: words[1] if len(words) == 3 else ""}[len(words)]
    return f"({times} ({modifier} {' '.join((words[0], *words[2:]) if len(words) == 3 else words)}))"


@pytest.fixture(scope="module")
def scan(data: Path) -> pl.DataFrame:
    frame = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    trees, wrong = parse(pl.Series("structure", [_scan_tree(c) for c in frame["command"]]))
    assert wrong.null_count() == len(frame) == 20_910
    return frame.with_columns(trees, example_id="command")


@pytest.mark.data
@pytest.mark.parametrize(
    ("split", "two", "three"),
    [
        ("simple", 0, 0),
        ("addprim_turn_left", 0, 0),
        ("addprim_jump", 0.871, 0.958),
        ("template_around_right", 1, 1),
        ("template_jump_around_right", 0, 1),
        ("length", 0, 0.802),
    ],
)
def test_the_public_splits_of_scan_have_the_known_share_of_unobserved_structures(
    scan: pl.DataFrame, split: str, two: float, three: float
) -> None:
    column = f"split_{split}"
    test = scan.filter(pl.col(column) == "test").select("example_id")
    for n, share in ((2, two), (3, three)):
        d = _run("unobserved_structures", scan, n=n, reference=column, score="hard")
        assert round(d.table.join(test, on="example_id")["value"].mean(), 3) == share  # type: ignore[arg-type]
        soft = _run("unobserved_structures", scan, n=n, reference=column)
        assert soft.table.join(d.table, on="example_id").filter(pl.col("value_right") == 0)["value"].max() == 0
        assert soft.table["details"].null_count() == (d.table["value"] == 0).sum()


@pytest.mark.data
def test_the_command_around_right_is_near_to_what_was_seen_and_jump_less_so(scan: pl.DataFrame) -> None:
    d = _run("unobserved_structures", scan, reference="split_template_around_right")
    told = json.loads(d.table.filter(pl.col("example_id") == "jump around right")["details"][0])
    assert told["structures"] == ["parent 'around', child 'right'"]
    # left and right stand beside the same words; of their three parents right lacks only this one
    assert told["easiness"][0] > 0.9
    jump = _run("unobserved_structures", scan, reference="split_addprim_jump")
    values = _values(jump)
    assert values["jump around right"] > values["walk around right"] == 0
    assert "jump" in jump.explain("jump around right")


# --- unobserved structures beside the definition


@st.composite
def small_trees(draw: st.DrawFn, most: int = 6) -> Parents:
    size = draw(st.integers(1, most))
    parents = [-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))]
    return [(parent, draw(st.sampled_from("abcd"))) for parent in parents]


def _columns(found: Sequence[Parents | None]) -> pl.DataFrame:
    rows = [
        None if tree is None else [{"node": i, "parent": p, "label": x} for i, (p, x) in enumerate(tree)]
        for tree in found
    ]
    ids = [f"q{i}" for i in range(len(rows))]
    return pl.DataFrame({"example_id": ids, "structure": pl.Series(rows, dtype=TREE_DTYPE)})


def _structures(tree: Parents, n: int) -> Kinds:
    found: Kinds = {}
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
                    found.setdefault((a, b), set()).add((*ancestors[:a][::-1], *siblings[:b][::-1], label))
    return found


def _similarity(one: str, other: str, seen: Kinds) -> float:
    kinds = []
    for kind in ((1, 0), (0, 1)):
        sides = []
        for side in (0, 1):
            mine, theirs = ({p[1 - side] for p in seen.get(kind, set()) if p[side] == x} for x in (one, other))
            if mine or theirs:
                sides.append(len(mine & theirs) / len(mine | theirs))
        if sides:
            kinds.append(sum(sides) / len(sides))
    return sum(kinds) / len(kinds) if kinds else 0.0


def _slow(found: Sequence[Parents | None], train: Sequence[bool], n: int) -> list[tuple[int, float] | None]:
    """Number of unobserved structures and easiness of each row, by the definition."""
    result: list[tuple[int, float] | None] = []
    for row, tree in enumerate(found):
        if tree is None:
            result.append(None)
            continue
        seen: Kinds = {}
        for other, inside in enumerate(train):
            mine = found[other]
            if inside and other != row and mine is not None:
                for kind, some in _structures(mine, n).items():
                    seen[kind] = seen.get(kind, set()) | some
        symbols = {x for some in seen.values() for s in some for x in s}
        scores = []
        for kind, some in _structures(tree, n).items():
            for s in some - seen.get(kind, set()):
                best = 0.0
                for place, old in enumerate(s):
                    for new in symbols if old in symbols else ():
                        if (*s[:place], new, *s[place + 1 :]) in seen.get(kind, set()):
                            best = max(best, _similarity(old, new, seen))
                scores.append(best)
        result.append((len(scores), min(scores, default=1.0)))
    return result


@given(
    st.lists(st.tuples(st.one_of(st.none(), small_trees(), small_trees(3)), st.booleans()), min_size=2, max_size=6),
    st.integers(2, 3),
    st.booleans(),
)
@settings(max_examples=60)
def test_easiness_is_that_of_the_definition_leaving_each_training_row_out(
    rows: list[tuple[Parents | None, bool]], n: int, everyone: bool
) -> None:
    found = [tree for tree, _ in rows]
    train = [everyone or inside for _, inside in rows]
    frame = _columns(found).with_columns(train=pl.Series(train))
    if not any(inside and tree is not None for tree, inside in zip(found, train, strict=True)):
        return
    given_ = {} if everyone else {"reference": "train"}
    soft = _run("unobserved_structures", frame, n=n, **given_)
    hard = _run("unobserved_structures", frame, n=n, score="hard", **given_)
    expected = {f"q{i}": slow for i, slow in enumerate(_slow(found, train, n)) if slow is not None}
    assert _values(soft) == pytest.approx({key: 1 - easy for key, (_, easy) in expected.items()}, abs=1e-12)
    assert dict(hard.table.select("example_id", "raw").iter_rows()) == {key: k for key, (k, _) in expected.items()}
    for key, told in soft.table.select("example_id", "details").iter_rows():
        number, easy = expected[key]
        assert (told is None) == (number == 0)
        if told:
            facts = json.loads(told)
            assert facts["unobserved"] == number == len(facts["structures"])
            assert facts["easiness"][0] == pytest.approx(easy, abs=1e-6)
            assert [near is None for near in facts["nearest"]] == [score == 0 for score in facts["easiness"]]


def test_a_training_row_is_compared_with_the_others_and_a_test_row_with_all() -> None:
    frame = _frame(["(a b)", "(a c)", "(a b)", "(a c)"], split=["train", "train", "test", "test"])
    d = _run("unobserved_structures", frame, reference="split", score="hard")
    assert _values(d) == {"q0": 1.0, "q1": 1.0, "q2": 0.0, "q3": 0.0}
    assert d.notes["share of training rows with one"] == 1.0
    assert d.notes["share of other rows with one"] == 0.0
    assert _values(_run("unobserved_structures", frame, score="hard")) == dict.fromkeys(_values(d), 0.0)


def test_more_unobserved_structures_than_are_named_are_counted() -> None:
    frame = _frame(["(a b)", "(r " + " ".join(f"x{i}" for i in range(40)) + ")"])
    told = json.loads(_run("unobserved_structures", frame).table["details"][1])
    assert told["unobserved"] == 1 + 40 + 39
    assert len(told["structures"]) == 20


def test_blocks_of_replacements_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    found: list[Parents | None] = [
        [
            (int(random.integers(-1, 0)) if i == 0 else int(random.integers(0, i)), "abcdefgh"[random.integers(8)])
            for i in range(7)
        ]
        for _ in range(30)
    ]
    whole = _run("unobserved_structures", _columns(found), n=3).table
    monkeypatch.setattr(symbol_similarity, "BLOCK", 3)
    assert _run("unobserved_structures", _columns(found), n=3).table.equals(whole)
    monkeypatch.setattr(easiness, "MOST", 5)
    with pytest.raises(UsageError, match="replacements would have to be tried") as caught:
        _run("unobserved_structures", _columns(found), n=3)
    assert "score: hard" in str(caught.value)
    hard = _run("unobserved_structures", _columns(found), n=3, score="hard").table
    assert (hard["value"] > 0).to_list() == whole["details"].is_not_null().to_list()


def test_training_rows_can_be_named_by_truths_words_and_numbers() -> None:
    frame = _frame(
        ["(a b)", "(a b)", "(a c)"],
        truth=[True, True, None],
        word=["fit", "fit", "held"],
        fold=[0, 0, 1],
    )
    expected = {"q0": 0.0, "q1": 0.0, "q2": 1.0}
    for given_ in (
        {"reference": "truth"},
        {"reference": "word", "reference_value": "fit"},
        {"reference": "fold", "reference_value": 0},
    ):
        assert _values(_run("unobserved_structures", frame, score="hard", **given_)) == expected
    for wrong, said in (
        ({"reference": "word"}, "no row holds 'train'"),
        ({"reference": "word", "reference_value": "fti"}, "did you mean 'fit'"),
        ({"reference": "truth", "reference_value": "train"}, "of type Boolean"),
        ({"reference": "word", "reference_value": True}, "of type String"),
        ({"reference": "wrod"}, "did you mean 'word'"),
    ):
        with pytest.raises(UsageError) as caught:
            _run("unobserved_structures", frame, **wrong)
        assert said in str(caught.value)
    with pytest.raises(DataRefused, match="no reference row holds a tree"):
        _run("unobserved_structures", _frame(["(a)", None], word=["test", "train"]), reference="word")


# --- depth and size


@pytest.mark.parametrize("method", ["tree_depth", "tree_size"])
def test_depth_and_size_are_those_of_the_trees(method: str) -> None:
    d = _run(method, _frame(["(a)", "(a (b (c)))", "(a b c d)", None]))
    expected = {"q0": 0, "q1": 2, "q2": 1} if method == "tree_depth" else {"q0": 1, "q1": 3, "q2": 4}
    assert _values(d) == expected
    assert d.table["n"].to_list() == [1, 3, 4]
    assert d.excluded.rows() == [("q3", "no structure")]
    assert d.table["scale"].unique().to_list() == ["levels" if method == "tree_depth" else "nodes"]


# --- rarity of compounds


def _slow_rarity(frame: pl.DataFrame, train: Sequence[bool], over: str, smoothing: float) -> dict[str, float]:
    found = compounds(frame["structure"], 3)
    indptr, entry = found.expand()
    mine = [
        Counter(dict(zip(found.code[entry[a:b]].tolist(), found.count[entry[a:b]].tolist(), strict=True)))
        for a, b in pairwise(indptr)
    ]
    values = {}
    for row, own in enumerate(mine):
        others: Counter[int] = Counter()
        for other, counts in enumerate(mine):
            if train[other] and other != row:
                others.update(counts)
        nats = {g: -math.log((others[g] + smoothing) / (others.total() + smoothing * found.size)) for g in own}
        if own:
            mean = sum(nats[g] * own[g] for g in own) / own.total()
            values[frame["example_id"][row]] = mean if over == "mean" else max(nats.values())
    return values


@given(st.lists(st.tuples(small_trees(), st.booleans()), min_size=1, max_size=6), st.sampled_from(["mean", "max"]))
@settings(max_examples=30)
def test_rarity_is_that_of_the_formula_leaving_each_training_row_out(
    rows: list[tuple[Parents, bool]], over: str
) -> None:
    train = [i == 0 or inside for i, (_, inside) in enumerate(rows)]
    frame = _columns([tree for tree, _ in rows]).with_columns(train=pl.Series(train))
    expected = _slow_rarity(frame, train, over, 0.5)
    if not expected:
        with pytest.raises(DataRefused, match="no tree has two nodes"):
            _run("compound_rarity", frame, over=over, reference="train", smoothing=0.5)
        return
    d = _run("compound_rarity", frame, over=over, reference="train", smoothing=0.5)
    assert _values(d) == pytest.approx(expected, abs=1e-9)
    assert set(d.excluded["example_id"]) == set(frame["example_id"]) - set(expected)
    assert set(d.excluded["reason"]) <= {"a tree of one node: no compound"}


def test_the_rarest_compound_is_named() -> None:
    d = _run("compound_rarity", _frame(["(a b)"] * 9 + ["(a b c)"]), max_size=2, over="max")
    assert d.table["example_id"][d.table["value"].arg_max() or 0] == "q9"
    assert json.loads(d.table["details"][9]) == {"rarest": '["a",["c"]]'}
    assert _values(d)["q9"] == pytest.approx(math.log(9 + 2))  # none of 9 elsewhere, 2 compounds
    assert _values(d)["q0"] == pytest.approx(-math.log((9 + 1) / (10 + 2)))


# --- all of them


@pytest.mark.parametrize("method", METHODS)
def test_rows_without_a_tree_are_excluded_and_text_is_read(method: str) -> None:
    texts = ["(a (b c) d)", '["a", "b"]', None, "", "(a (b c))"]
    frame = pl.DataFrame({"example_id": list("vwxyz"), "parse": texts})
    d = _run(method, frame, of="parse")
    assert d.table["example_id"].to_list() == ["v", "w", "z"]
    assert d.excluded.rows() == [("x", "no structure"), ("y", "a tree without nodes")]
    assert d.method == f"{method} of=parse"
    lists = _frame(["(a (b c) d)", "(a b)", None, None, "(a (b c))"]).with_columns(example_id=frame["example_id"])
    empty = pl.Series([None, None, None, [], None], dtype=TREE_DTYPE)
    lists = lists.with_columns(structure=pl.when(pl.col("example_id") == "y").then(empty).otherwise("structure"))
    same = _run(method, lists)
    assert same.excluded.equals(d.excluded)
    assert same.table.drop("method").equals(d.table.drop("method"))


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_changes_no_bit(method: str) -> None:
    random = np.random.default_rng(1)
    found: list[Parents | None] = [
        [(-1 if i == 0 else int(random.integers(0, i)), "abcde"[random.integers(5)]) for i in range(1 + row % 7)]
        for row in range(60)
    ]
    frame = _columns(found).with_columns(split=pl.Series(["train", "test", "train"] * 20))
    given_ = {"reference": "split"} if method in ("unobserved_structures", "compound_rarity") else {}
    d = _run(method, frame, **given_)
    again = _run(method, frame.sample(fraction=1, shuffle=True, seed=2), **given_)
    assert again.table.equals(d.table)
    assert again.excluded.equals(d.excluded)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_tree_is_refused_with_its_example(method: str) -> None:
    cycle = [{"node": 0, "parent": -1, "label": "a"}, {"node": 1, "parent": 1, "label": "b"}]
    frame = pl.DataFrame({"example_id": ["good", "bad"], "structure": pl.Series([cycle[:1], cycle], dtype=TREE_DTYPE)})
    with pytest.raises(DataRefused, match="a cycle \\(example 'bad'\\)"):
        _run(method, frame)
    text = pl.DataFrame({"example_id": ["good", "bad"], "structure": ["(a b)", "(a (b)"]})
    with pytest.raises(DataRefused, match="brackets that do not match \\(example 'bad'\\)"):
        _run(method, text)
    with pytest.raises(UsageError, match="of type Int64"):
        _run(method, pl.DataFrame({"example_id": ["a"], "structure": [1]}))
    with pytest.raises(UsageError, match="did you mean 'structure'"):
        _run(method, _frame(["(a b)"]), of="structrue")
    for nothing in (
        pl.Series([None, None], dtype=TREE_DTYPE),
        pl.Series([None, None]),
        pl.Series([None, []], dtype=TREE_DTYPE),
    ):
        with pytest.raises(DataRefused, match=r"no row holds a tree|every tree is empty"):
            _run(method, pl.DataFrame({"example_id": ["a", "b"], "structure": nothing}))


@pytest.mark.parametrize("method", METHODS)
def test_one_row_and_equal_rows_are_finite(method: str) -> None:
    for rows in (["(a (b c))"], ["(a (b c))"] * 5):
        d = _run(method, _frame(rows))
        assert d.table["value"].is_finite().all()
        assert d.bins == 1

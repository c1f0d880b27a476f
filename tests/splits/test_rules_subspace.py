"""Expressions over columns: read, checked, and computed as a loop over rows of Python values does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import rules as loops
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits import expressions
from gradatim.tasks.splits.expression_frames import condition
from gradatim.tasks.splits.promises import subspace as promise

ROWS: list[dict[str, Any]] = [
    {"i": i, "x": x, "t": t, "b": b, "l": members, "u": u, "a b.c": i}
    for i, x, t, b, members, u in zip(
        [0, 1, -3, 7, None, 2, 12, 5, 2**60, -1],
        [0.5, float("nan"), None, -2.0, 1e308, 3.0, 0.0, -0.0, 1.5, 2.0],
        ["law", "it's", None, "", "é", "law", "art", "zebra", "Ä", "a"],
        [True, False, None] * 3 + [True],
        [[], ["a"], None, ["a", "b"], [None], [], ["c"], None, ["x"] * 5, []],
        [0, 1, 2, 3, None, 5, 6, 7, 8, 9],
        strict=True,
    )
]
FRAME = pl.DataFrame(
    ROWS,
    schema={
        "i": pl.Int64,
        "x": pl.Float64,
        "t": pl.String,
        "b": pl.Boolean,
        "l": pl.List(pl.String),
        "u": pl.UInt8,
        "a b.c": pl.Int64,
    },
)

numbers = st.recursive(
    st.sampled_from(
        [("column", "i"), ("column", "x"), ("column", "u"), ("column", "a b.c"), ("len", "t"), ("len", "l")]
    )
    | st.tuples(st.just("value"), st.integers(0, 9) | st.sampled_from([0.5, 1e300, 2.25])),
    lambda inner: st.tuples(st.sampled_from("+-*/"), inner, inner),
    max_leaves=5,
)
texts = st.just(("column", "t")) | st.tuples(st.just("value"), st.sampled_from(["law", "it's", "", "é"]))
compares = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
conditions = st.recursive(
    st.just(("column", "b"))
    | st.tuples(compares, numbers, numbers)
    | st.tuples(compares, texts, texts)
    | st.tuples(
        st.just("in"), numbers, st.lists(st.integers(-3, 9) | st.just(0.5), min_size=1, max_size=4), st.booleans()
    )
    | st.tuples(
        st.just("in"), texts, st.lists(st.sampled_from(["law", "it's", ""]), min_size=1, max_size=3), st.booleans()
    )
    | st.tuples(st.just("null"), numbers | texts | st.just(("column", "l")), st.booleans()),
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner),
    max_leaves=6,
)


@given(conditions)
@settings(max_examples=400)
def test_an_expression_has_the_value_that_a_loop_over_rows_gives_and_so_does_the_promise(node: Any) -> None:
    text = loops.written(node)
    expected = [loops.verdict(node, row) for row in ROWS]
    found = FRAME.select(condition(expressions.parse(text), text, FRAME.schema).alias("x"))["x"].to_list()
    if len(found) == 1:
        found *= len(ROWS)
    assert found == expected, text
    sides = promise.sides({"train": text}, FRAME)
    assert [{0: True, 1: False, 2: None}[side] for side in sides] == expected, text


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("n_steps <= 6", lambda r: r["n_steps"] <= 6),
        ("1 < n_steps <= 3 or n_steps > 10", lambda r: 1 < r["n_steps"] <= 3 or r["n_steps"] > 10),
        ("not n_steps < 3 and domain != 'dance'", lambda r: not r["n_steps"] < 3 and r["domain"] != "dance"),
        (
            "n_steps < 3 or n_steps > 5 and domain == 'dance'",
            lambda r: r["n_steps"] < 3 or (r["n_steps"] > 5 and r["domain"] == "dance"),
        ),
        ("n_steps - 2 - 1 * 3 < 2", lambda r: r["n_steps"] - 2 - 3 < 2),
        ("12 / n_steps / 2 >= 1", lambda r: 12 / r["n_steps"] / 2 >= 1),
        ("-n_steps < -6", lambda r: -r["n_steps"] < -6),
        ("(n_steps + length_input) * 2 > 40", lambda r: (r["n_steps"] + r["length_input"]) * 2 > 40),
        ("domain in ['dance', \"biology\"]", lambda r: r["domain"] in ("dance", "biology")),
        ("n_steps not in [1, 2, -3]", lambda r: r["n_steps"] not in (1, 2)),
        ("len(input) < 13", lambda r: len(r["input"]) < 13),
        ("day < 2024-01-09T12:00:00+02:00", lambda r: r["day"] < datetime(2024, 1, 9, 10, tzinfo=UTC)),
        ("day in [2024-01-03, 2024-01-04]", lambda r: r["day"].day in (3, 4)),
        ("`a b` > 3 and\n  `a``c` < 9", lambda r: 3 < r["n_steps"] < 9),
        ("odd == true", lambda r: r["odd"]),
        ("'astronomy' < domain < 'dance'", lambda r: "astronomy" < r["domain"] < "dance"),
    ],
)
def test_rows_are_where_the_same_words_in_python_put_them(text: str, inside: Any) -> None:
    frame = examples(400).with_columns(
        pl.col("n_steps").alias("a b"),
        pl.col("n_steps").alias("a`c"),
        odd=pl.col("n_steps") % 2 == 1,
        day=(pl.datetime(2024, 1, 1) + pl.duration(days=pl.col("n_steps"))).dt.replace_time_zone("UTC"),
    )
    split = make("subspace", frame, train=text, controls=False, test=0.4)
    expected = [row["example_id"] for row in frame.to_dicts() if not inside(row)]
    assert split.ids("test_ood").to_list() == expected
    assert (promise.sides({"train": text}, frame) == 1).sum() == len(expected)


def test_reasons_show_the_values_and_nulls_are_excluded_with_theirs() -> None:
    frame = examples().with_columns(
        n_steps=pl.when(pl.col("example_id") != "q00002").then("n_steps"),
        zero=pl.lit(0.0),
        domain=pl.when(pl.col("example_id") == "q00005").then(pl.lit("x" * 99)).otherwise("domain"),
    )
    split = make("subspace", frame, train="n_steps <= 6 and (domain != 'dance' or len(input) > 90)", controls=False)
    assert split.why("q00002") == "excluded: n_steps is null"
    assert split.why("q00003") == (
        "test_ood: n_steps=10, domain=dance, len(input)=12: "
        "n_steps <= 6 and (domain != 'dance' or len(input) > 90) does not hold"
    )
    assert f"domain={'x' * 40}…, len" in split.why("q00005")
    assert set(split.main["held_out"].drop_nulls()) == {"not (n_steps <= 6 and (domain != 'dance' or len(input) > 90))"}
    divided = make("subspace", frame, train="n_steps < 4 or (n_steps > 7 and n_steps / zero > 1)", controls=False)
    assert divided.why("q00001").startswith("excluded: the expression has no value")
    assert divided.counts["excluded"] == frame["n_steps"].is_between(8, 12).sum() + 1


@pytest.mark.parametrize(
    ("text", "words", "at"),
    [
        ("n_steps < 3 is null", "found 'is'", 12),
        ("1 + not n", "found 'not'", 4),
        ("n_steps = 3", "'=' has no meaning here", 8),
        ("n_steps <", "found the end", 9),
        ("(n_steps < 3", "found the end", 12),
        ("n_steps < 3)", r"found '\)'", 11),
        ("domain == 'law", "the quote ' is not closed", 10),
        ("n_steps == null", "nothing equals null", 11),
        ("n_steps in domain", "found 'domain'", 11),
        ("n_steps in [domain]", "found 'domain'", 12),
        ("n_steps in []", r"found '\]'", 12),
        ("a.b < 3", "'.' has no meaning", 1),
        ("n_steps < 3 AND n_steps > 1", "found 'AND'", 12),
        ("n_steps < 99999999999999999999", "beyond what 64 bits", 10),
        ("day < 2024-13-01", "no such date", 6),
        ("n_steps && b", "'&' has no meaning", 8),
        ("len(3) < 2", "found '3'", 4),
        ("__import__('os')", r"found '\('", 10),
        ("n_steps < 3 ; drop", "';' has no meaning", 12),
        ("\ud800 < 3", "surrogate", 0),
        ("(" * 200 + "n" + ")" * 200, "nested more than 100 deep", 101),
        ("not " * 150 + "b", "nested more than 100", 404),
        ("- " * 150 + "n < 3", "nested more than 100", 202),
        ("n" + " + n" * 600 + " > 3", "more than 500 terms", 2000),
    ],
)
def test_what_cannot_be_read_is_answered_with_the_place(text: str, words: str, at: int) -> None:
    with pytest.raises(UsageError, match=words) as error:
        expressions.parse(text)
    _, caret = error.value.what.split("\n  ")[1:]
    assert caret.strip() == "^"
    start = max(0, at - 40)
    assert len(caret) - 1 == at - start + (1 if start else 0)
    with pytest.raises(UsageError):
        configure(get("split", "subspace"), {"train": text})


def test_a_long_text_is_refused_and_a_long_list_is_not() -> None:
    with pytest.raises(UsageError, match="12,000 signs"):
        expressions.parse(" " * 12_000)
    members = ", ".join(str(n) for n in range(0, 3000, 2))
    frame = examples(400)
    split = make("subspace", frame, train=f"length_input in [{members}]", controls=False)
    assert split.ids("test_ood").equals(frame.filter(pl.col("length_input") % 2 == 1)["example_id"])
    deep = "(" * 95 + "n_steps" + ")" * 95 + " < 3 and " + "(" * 95 + "n_steps < 3" + ")" * 95
    split = make("subspace", frame, train=deep, controls=False, test=0.4)
    assert (promise.sides({"train": deep}, frame) == 1).sum() == split.counts["test_ood"]
    wide = "n_steps < 3 " + "or n_steps == 5 " * 200
    assert make("subspace", frame, train=wide, controls=False).counts["test_ood"] > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n_step < 3", r"no column 'n_step' \(did you mean 'n_steps'\?\)\n  n_step < 3\n  \^"),
        ("n_steps < 'a'", "column 'n_steps' holds numbers and is compared with 'a'"),
        ("domain < 3", "column 'domain' holds texts and is compared with 3"),
        ("n_steps < domain", "column 'n_steps' holds numbers and is compared with column 'domain'"),
        ("n_steps < 2024-01-01", "column 'n_steps' holds numbers"),
        ("tags == 'a'", "'tags' holds lists"),
        ("n_steps in [1, 'a']", "is compared with 'a'"),
        ("n_steps", "should be a condition; column 'n_steps' holds numbers"),
        ("n_steps and odd", "'and' joins conditions; column 'n_steps'"),
        ("not n_steps", "'not' takes a condition"),
        ("len(n_steps) < 2", "len.. counts signs"),
        ("domain + 1 < 2", "arithmetic takes numbers; column 'domain'"),
        ("-domain < 2", "arithmetic takes numbers"),
        ("odd < true", "truths have no order"),
        ("span < 2", "holds Duration"),
    ],
)
def test_kinds_that_do_not_go_together_are_named_with_the_column(text: str, words: str) -> None:
    frame = examples(60).with_columns(
        tags=pl.lit(["a"]), odd=pl.col("n_steps") % 2 == 1, span=pl.duration(days=pl.col("n_steps"))
    )
    with pytest.raises(UsageError, match=words):
        make("subspace", frame, train=text)


def test_the_unseen_half_of_a_cube_is_that_of_the_published_recipe() -> None:
    bits = np.array(np.meshgrid(*[[-1, 1]] * 10)).T.reshape(-1, 10)
    frame = (
        pl.DataFrame(bits, schema=[f"x{i}" for i in range(10)])
        .with_row_index("example_id")
        .cast({"example_id": pl.String})
    )
    half = make("subspace", frame, train="x0 == 1 or x1 == 1", controls=False)
    assert half.counts["test_ood"] == 256
    product = make("subspace", frame, train="x0 * x1 * x2 == 1", controls=False)
    assert product.counts["test_ood"] == 512
    total = " + ".join(f"x{i}" for i in range(10))
    weight = make("subspace", frame, train=f"(10 - ({total})) / 2 <= 6", controls=False)
    assert weight.counts["test_ood"] == 120 + 45 + 10 + 1


def test_an_expression_that_holds_everywhere_is_refused() -> None:
    with pytest.raises(DataRefused, match="test_ood would be empty"):
        make("subspace", examples(60), train="n_steps < 99", test=0.4)
    with pytest.raises(UsageError, match="names no column"):
        configure(get("split", "subspace"), {"train": "1 < 2"})

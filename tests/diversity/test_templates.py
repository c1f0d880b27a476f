"""Templates: what is masked and what is not, skeletons of trees, and the diversity that they give."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import get
from gradatim.tasks.core.templates import mask, skeletons
from gradatim.tasks.core.trees import TREE_DTYPE, parse
from gradatim.tasks.diversity.hill import HillConfig, hill
from gradatim.tasks.diversity.result import Diversity


def run(frame: pl.DataFrame, **options: object) -> Diversity:
    return hill({"examples": frame}, HillConfig.model_validate(options), 0)


def examples(**columns: object) -> pl.DataFrame:
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
    return pl.DataFrame({"example_id": [f"e{i:04d}" for i in range(rows)], **columns})


@pytest.mark.parametrize(
    ("text", "template"),
    [
        ("Then Ann gave Bob 12 apples", "Then <entity> gave <entity> <number> apples"),
        ("On Monday we saw New York, Rome and Oslo.", "On <entity> we saw <entity>, <entity> and <entity>."),
        ("Ann sleeps. Bob sleeps! Who? Me: Carol", "Ann sleeps. Bob sleeps! Who? Me: Carol"),
        ("she met O'Brien and Mary-Jane's dog", "she met <entity> and <entity>'s dog"),
        ("and I think I'm in the EU (Bonn) now", "and I think I'm in the <entity> (<entity>) now"),
        ("first line\nSecond line of Dorset", "first line Second line of <entity>"),
        ("it costs $1,250.75 or -3 \t euros", "it costs $<number> or <number> euros"),
        ("say \"a b\", 'c d', “e”, «f» and don't", "say <quoted>, <quoted>, <quoted>, <quoted> and don't"),
        ("dann sah Émile die Öse", "dann sah <entity> die <entity>"),
        ("", ""),
    ],
)
def test_names_numbers_and_quotations_are_masked_by_the_stated_rule(text: str, template: str) -> None:
    assert mask(pl.Series([text, None])).to_list() == [template, None]


def test_without_entities_names_stay() -> None:
    assert mask(pl.Series(["then Ann has 3"]), entities=False)[0] == "then Ann has <number>"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a", "Bob", "3", '"q"', "it's", "x.", "Oslo,", "(Rome)"]), max_size=12))
def test_a_template_is_its_own_template(pieces: list[str]) -> None:
    once = mask(pl.Series([" ".join(pieces)]))
    assert mask(once).to_list() == once.to_list()


def test_skeletons_keep_the_labels_that_count() -> None:
    texts = pl.Series(["(S (NP they) (VP run))", "(S (NP we) (VP sit))", "(S (VP sit) (NP we))", None, ""])
    assert skeletons(texts).to_list() == ["(S (NP _) (VP _))"] * 2 + ["(S (VP _) (NP _))", None, None]
    assert skeletons(texts, "none").to_list() == ["(_ (_ _) (_ _))"] * 3 + [None, None]
    assert skeletons(texts, "all").to_list() == [*texts.to_list()[:3], None, None]
    assert skeletons(parse(texts)[0]).equals(skeletons(texts))
    assert skeletons(pl.Series(["(a)"])).to_list() == ["_"]


def test_the_numbers_of_nodes_do_not_matter_and_their_order_does() -> None:
    def tree(*nodes: tuple[int, int, str]) -> list[dict[str, object]]:
        return [{"node": n, "parent": p, "label": label} for n, p, label in nodes]

    preorder = tree((0, -1, "S"), (1, 0, "A"), (2, 1, "x"), (3, 0, "B"), (4, 3, "y"))
    levels = tree((0, -1, "S"), (1, 0, "A"), (2, 0, "B"), (3, 1, "z"), (4, 2, "y"))
    assert skeletons(pl.Series([preorder, levels], dtype=TREE_DTYPE)).to_list() == ["(S (A _) (B _))"] * 2


def test_what_is_no_tree_is_refused_with_its_row() -> None:
    with pytest.raises(DataRefused, match="'q2'"):
        skeletons(pl.Series(["(a b)", "(a (b)"]), ids=pl.Series(["q1", "q2"]))
    with pytest.raises(UsageError, match="type"):
        skeletons(pl.Series([1, 2]))
    with pytest.raises(UsageError, match="none, inner or all"):
        skeletons(pl.Series(["(a b)"]), "leaves")  # type: ignore[arg-type]


def test_deep_and_wide_trees_are_written_without_recursion() -> None:
    deep = [{"node": i, "parent": i - 1, "label": "n"} for i in range(5000)]
    wide = [{"node": i, "parent": -1 if i == 0 else 0, "label": "n"} for i in range(5000)]
    found = skeletons(pl.Series([deep, wide], dtype=TREE_DTYPE))
    assert found[0].count("(") == 4999
    assert found[1] == "(n" + " _" * 4999 + ")"


def test_a_template_counts_as_a_category_and_says_which_column_it_is_made_from() -> None:
    frame = examples(
        input=["Then Ann has 3 eggs.", "Then Bob has 17 eggs.", 'Then Bob\'s "hen" left.', None],
        structure=["(S (NP a) (VP b))", "(S (NP c) (VP d))", "(S (VP b))", "(S (NP x) (VP y))"],
    )
    found = run(frame, template="mask")
    assert found.method == "hill(input, mask)"
    assert found.value("hill_D0") == 2
    assert run(frame, template="mask", entities=False).value("hill_D0") == 3
    assert run(frame, column="input", mask=True).value("hill_D0") == 3
    trees = run(frame, template="structure")
    assert trees.method == "hill(structure, structure)"
    assert trees.value("hill_D0") == 2
    assert trees.value("hill_D2") == pytest.approx(1 / (0.75**2 + 0.25**2))
    assert run(frame, template="structure", labels="all").value("hill_D0") == 4
    with pytest.raises(UsageError, match="text to mask"):
        run(frame.with_columns(size=pl.lit(1)), template="mask", column="size")
    with pytest.raises(DataRefused, match="no trees"):
        run(frame.with_columns(structure=pl.lit("(a")), template="structure")
    plugin = get("diversity", "hill")
    assert plugin.columns(HillConfig.model_validate({"template": "structure"})) == ("examples.structure",)
    assert plugin.revision == 2


def across(frame: pl.DataFrame) -> dict[str, float]:
    found = run(frame, by="domain").statistics.filter(pl.col("subset") == "across domain")
    return dict(found.select("metric", "value").iter_rows())


def test_domains_that_share_nothing_count_fully_and_equal_ones_as_one() -> None:
    apart = across(examples(template=[f"{d}{i}" for d in "xyz" for i in range(4)], domain=list("xxxxyyyyzzzz")))
    assert apart["hill_between_D1"] == pytest.approx(3)
    assert apart["hill_within_D1"] == pytest.approx(4)
    assert apart["hill_shared"] == 0
    equal = across(examples(template=list("abcd") * 3, domain=list("xxxxyyyyzzzz")))
    assert (equal["hill_between_D1"], equal["hill_shared"]) == (pytest.approx(1), 4)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), min_size=1, max_size=40))
def test_within_times_between_is_the_whole(rows: list[tuple[str, str]]) -> None:
    frame = examples(template=[t for t, _ in rows], domain=[d for _, d in rows])
    found, whole = across(frame), run(frame).value("hill_D1")
    assert found["hill_within_D1"] * found["hill_between_D1"] == pytest.approx(whole)
    shares = frame["domain"].value_counts()["count"] / len(frame)
    assert 1 <= found["hill_between_D1"] <= math.exp(-sum(p * math.log(p) for p in shares)) + 1e-9


def test_a_column_without_any_subset_says_nothing_across() -> None:
    frame = examples(template=["a", "b"], domain=pl.Series([None, None], dtype=pl.String))
    assert across(frame) == {}
    assert json.loads(run(frame, by="domain").statistics["parameters"][0])["by"] == "domain"

"""Difficulties in a flow that read dynamics, options, vectors and each other; a scale that is kept from a release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_recipe import items, write_jsonl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset

RECIPE = """\
dataset: many
examples: {from: items/, id: id, input: question, output: answer}
responses: {from: answers.jsonl, respondent: who, example: what, score: right}
dynamics: {from: logits.jsonl, example: guid, logits: logits, gold: gold}
options: {from: options.jsonl, respondent: model, example: id, probabilities: [p_a, p_b], gold: gold}
features:
  sentence: {from: vectors.npy, ids: vectors.txt}
difficulty:
  - irt: {splits: 1, anchor: current}
  - confidence
  - option_uncertainty
  - knn: {of: irt, features: sentence}
  - combined: {of: [irt, confidence]}
"""


@pytest.fixture
def many(small: Callable[..., Path]) -> Path:
    """A recipe with every kind of source."""
    recipe = small(RECIPE, shards=2, rows=60)
    folder, rng = recipe.parent, np.random.default_rng(0)
    ids = [f"q{i:04d}" for i in range(120)]
    rows = [
        {"guid": name, "epoch": epoch, "logits": rng.normal(size=3).tolist(), "gold": i % 3}
        for epoch in range(4)
        for i, name in enumerate(ids)
    ]
    write_jsonl(folder / "logits.jsonl", rows)
    p = rng.random(120)
    options = [
        {"id": name, "model": "m", "p_a": float(x), "p_b": float(1 - x), "gold": "AB"[i % 2]}
        for i, (name, x) in enumerate(zip(ids, p, strict=True))
    ]
    write_jsonl(folder / "options.jsonl", options)
    np.save(folder / "vectors.npy", rng.normal(size=(120, 8)).astype(np.float32))
    (folder / "vectors.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
    return recipe


def run(recipe: Path, **parameters: Any) -> dict[str, Any]:
    from gradatim.flows.curate import curate

    return dict(curate(str(recipe), **parameters))


def dataset(recipe: Path) -> Dataset:
    return Store.open(recipe.parent / "store").dataset("many")


@pytest.mark.usefixtures("prefect")
def test_every_source_becomes_a_table_and_only_what_rests_on_a_change_is_made_again(many: Path) -> None:
    first = run(many, release=True)
    assert {"dynamics", "options", "features_sentence", "statistics"} <= set(first["tables"])
    store = dataset(many)
    assert store.scan("difficulty").group_by("method").len().sort("method").collect().rows() == [
        ("combined", 120), ("confidence", 120), ("irt", 120), ("knn", 120), ("option_uncertainty", 120),
    ]  # fmt: skip
    assert store.scan("dynamics").select(pl.len()).collect().item() == 480
    agreement = next(told for told in first["summaries"] if told["step"] == "difficulty agreement")
    assert agreement["charts"], "the matrix of agreement is drawn"

    second = run(many)
    assert [told["step"] for told in second["summaries"] if not told["reused"]] == ["difficulty agreement"]

    text = many.read_text(encoding="utf-8").replace("[irt, confidence]", "[irt, option_uncertainty]")
    many.write_text(text, encoding="utf-8")
    third = run(many)
    made = [told["step"] for told in third["summaries"] if not told["reused"]]
    assert made == ["difficulty combined", "difficulty agreement"]


def answered(prefix: str, ability: float, seed: int) -> list[dict[str, Any]]:
    """Forty respondents of about this ability who answer 120 examples by a 1PL."""
    rng = np.random.default_rng(seed)
    hardness = np.linspace(-2.0, 2.0, 120)
    theta = rng.normal(ability, 1.0, size=(40, 1))
    right = rng.random((40, 120)) < 1 / (1 + np.exp(hardness - theta))
    return [
        {"who": f"{prefix}{w:02d}", "what": f"q{i:04d}", "right": int(right[w, i])}
        for w in range(40)
        for i in range(120)
    ]


@pytest.mark.usefixtures("prefect")
@pytest.mark.parametrize("anchored", [True, False])
def test_a_new_nights_difficulties_stay_on_the_released_scale(many: Path, anchored: bool) -> None:
    text = many.read_text(encoding="utf-8")
    text = text[: text.index("  - confidence")] + text[text.index("store:") :]
    many.write_text(text if anchored else text.replace(", anchor: current", ""), encoding="utf-8")
    old = answered("old", 0.0, 1)
    write_jsonl(many.parent / "answers.jsonl", old)
    run(many, release=True)
    store = dataset(many)
    before = store.scan("difficulty").collect()
    # abler respondents answer the same examples: on a scale of their own, all examples look easier
    write_jsonl(many.parent / "answers.jsonl", old + answered("new", 2.0, 2))
    told = next(told for told in run(many)["summaries"] if told["step"] == "difficulty irt")
    joined = before.join(store.scan("difficulty").collect(), on="example_id")
    shift = float((joined["value_right"] - joined["value"]).median())  # type: ignore[arg-type]
    assert abs(shift) < 0.1 if anchored else shift < -0.5
    assert any("anchor" in str(fact).lower() for fact in told["facts"]) is anchored


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("of: irt, features", "of: itr, features", "'itr'.*'irt'"),
        ("features: sentence", "features: sentense", "features"),
        ("features:\n  sentence: {from: vectors.npy, ids: vectors.txt}\n", "", "sentence"),
        ("  sentence: {from: vectors.npy, ids: vectors.txt}", "  from: vectors.npy", r"words: {from: vectors.npy}"),
        ("logits: logits", "logits: logit", "'logit'.*'logits'"),
        ("[p_a, p_b]", "[p_a, p_c]", "'p_c'"),
        ("vectors.txt", "vector.txt", "vector.txt"),
        ("dynamics: {from: logits.jsonl, example: guid, logits: logits, gold: gold}\n", "", "dynamics"),
        (
            "logits: logits, gold: gold}",
            "loss: gold}",
            r"confidence needs gold_probability, which logits\.jsonl does not",
        ),
    ],
)
def test_check_names_what_a_difficulty_lacks(many: Path, old: str, new: str, words: str) -> None:
    from gradatim.flows.first_steps import check_recipe

    assert check_recipe(str(many), None, None).headline.endswith("every file and column is there")
    text = many.read_text(encoding="utf-8")
    assert old in text
    many.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        check_recipe(str(many), None, None)


def test_the_only_vectors_are_taken_and_several_asked_for(many: Path) -> None:
    from gradatim.flows.job import Job

    text = many.read_text(encoding="utf-8").replace("of: irt, features: sentence", "of: irt")
    many.write_text(text, encoding="utf-8")
    assert Job.load(str(many)).difficulty[3].config.features == "sentence"  # type: ignore[attr-defined]
    many.write_text(text.replace("features:\n", "features:\n  more: {from: more.npy, ids: vectors.txt}\n"))
    with pytest.raises(UsageError, match=r"which vectors.*\n.*more, sentence"):
        Job.load(str(many))


def test_measures_and_strategies_take_the_only_vectors_unless_texts_are_asked_for(many: Path) -> None:
    from gradatim.flows.job import Job

    text = many.read_text(encoding="utf-8")
    measures = """diversity:
  - vendi
  - coverage: {column: question}
  - near_duplicates
  - near_duplicates: {as: meaning, using: embedding}
  - contamination: {evaluation: split}
  - hill: {column: group}
"""
    many.write_text(text.replace("difficulty:\n", measures + "difficulty:\n"), encoding="utf-8")
    taken = [getattr(method.config, "features", None) for method in Job.load(str(many)).diversity]
    assert taken == ["sentence", "", "", "sentence", "sentence", None]
    assert "features_sentence.embedding" in Job.load(str(many)).diversity[0].needs()
    two = many.read_text(encoding="utf-8").replace(
        "features:\n", "features:\n  more: {from: vectors.npy, ids: vectors.txt}\n"
    )
    many.write_text(two.replace("of: irt, features: sentence", "of: irt, features: more"), encoding="utf-8")
    assert Job.load(str(many)).diversity[0].config.features == ""  # type: ignore[attr-defined]


def test_components_of_groups_do_without_vectors_and_what_compares_asks_which(small: Callable[..., Path]) -> None:
    from gradatim.flows.job import Job

    recipe = """
dataset: d
examples: {{from: items/, id: id, input: question, output: answer}}
features: {features}
splits:
  - non_leaking: {{keep_together: kind{more}}}
"""
    two = "{a: {by: hashed_tfidf}, b: {by: hashed_tfidf}}"
    for features, taken in (("{}", ""), ("{a: {by: hashed_tfidf}}", "a"), (two, "")):
        found = Job.load(str(small(recipe.format(features=features, more="")))).splits[0]
        assert found.config.features == taken  # type: ignore[attr-defined]
        assert ("features_a.embedding" in found.needs()) == bool(taken)
    for features, more, words in (
        ("{}", ", margin: 0.9", "needs vectors"), ("{}", ", by: kmeans", "needs vectors"),
        (two, ", by: kmeans", "which vectors"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            _ = Job.load(str(small(recipe.format(features=features, more=more)))).splits


def test_check_says_how_many_rows_of_each_source_find_their_example(many: Path) -> None:
    from gradatim.flows.first_steps import check_recipe

    facts = {fact.name: fact for fact in check_recipe(str(many), None, None).facts}
    joined = {name: facts[f"{name} joined"].value for name in ("responses", "dynamics", "options", "features_sentence")}
    assert set(joined.values()) == {"100 %"}
    assert facts["dynamics joined"].note == "480 of 480 rows, of 120 examples"
    write_jsonl(many.parent / "items" / "part-1.jsonl", items(1000, 1060))
    with pytest.raises(DataRefused, match=r"rows, of 60 examples; without an example e.g. 'q0060'(.|\n)*98 %"):
        check_recipe(str(many), None, None)
    text = many.read_text(encoding="utf-8")
    many.write_text(text + "checks: {joined: 40%}\n" if "checks:" not in text else text, encoding="utf-8")
    facts = {fact.name: fact for fact in check_recipe(str(many), None, None).facts}
    assert facts["options joined"].value == "50 %"
    assert "'q0060', 'q0061', 'q0062'" in facts["options joined"].note


def test_methods_for_a_file_lists_no_method_of_vectors_that_it_lacks(many: Path) -> None:
    from gradatim.flows.first_steps import list_methods

    tables = {
        table.title: [row[1] for row in table.rows]
        for table in list_methods(None, str(many.parent / "items"), None).tables
    }
    assert "knn" not in tables["difficulty"]
    assert {"length", "column"} <= set(tables["difficulty"])
    assert {"vendi", "near_duplicates", "homogenisation"} <= set(tables["diversity"])
    assert "column_shift" not in tables["diversity"]  # it compares domains by default, and there are none
    pl.DataFrame({"id": ["a", "b"], "size": [1.0, 2.5], "domain": ["u", "v"]}).write_csv(many.parent / "numbers.csv")
    told = list_methods("diversity", str(many.parent / "numbers.csv"), None).tables[0]
    assert not {"vendi", "self_bleu"} & {row[1] for row in told.rows}
    assert "column_shift" in {row[1] for row in told.rows}


@pytest.mark.usefixtures("prefect")
def test_rows_of_other_examples_are_counted_and_too_many_refused(many: Path) -> None:
    write_jsonl(many.parent / "items" / "part-1.jsonl", items(1000, 1060))
    with pytest.raises(DataRefused, match=r"50.*%.*q0060"):
        run(many)

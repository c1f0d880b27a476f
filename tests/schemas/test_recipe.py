"""The recipe: what it accepts, what it says when it refuses, and that its text and its model are the same thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gradatim.schemas import recipe as module
from gradatim.schemas import strict_yaml
from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Recipe, Step, dump_recipe, load_recipe, parse_recipe

HEAD = "dataset: arith\nexamples: {from: items.jsonl}\n"
FULL = """\
dataset: arith
store: s3://bucket/prefix
examples: {from: items.jsonl, id: id, input: question, output: answer, factors: kind, group: template}
responses: {from: lm_eval_results/, format: lm-eval, metric: exact_match, filter: flexible-extract, join: doc.id}
difficulty:
  - irt: {model: 2pl, as: irt2}
  - irt
  - length: {of: question, unit: words}
splits:
  - length: {column: n_steps, train: "<= 6"}
curriculum: {by: irt, pacing: {competence: {start: 0.1}}, arms: [curriculum, random]}
train: {model: "mine.models:build", seeds: [0, 1], global_batch: 128, optimizer: {lr: 1e-3, warmup: 5%}}
evaluate: {baseline: random}
checks: {rejects: 1%, joined: 97.5 %}
seed: 3
"""


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_recipe(text, where="recipe.yaml")
    assert caught.value.exit_code == 2
    return caught.value


def test_a_whole_recipe_reads_as_it_is_written() -> None:
    recipe = parse_recipe(FULL)
    assert recipe.examples.source == "items.jsonl"
    assert recipe.examples.factors == ["kind"]
    assert recipe.difficulty[0] == Step(method="irt", name="irt2", settings={"model": "2pl"})
    assert [step.name for step in recipe.difficulty] == ["irt2", "irt", "length"]
    assert recipe.splits[0].settings == {"column": "n_steps", "train": "<= 6"}
    assert recipe.curriculum is not None
    assert recipe.curriculum.pacing.settings == {"start": 0.1}
    assert recipe.train is not None
    assert recipe.train.model.method == "mine.models:build"
    assert (recipe.train.optimizer.lr, recipe.train.optimizer.warmup) == (1e-3, 0.05)
    assert (recipe.checks.rejects, recipe.checks.joined, recipe.seed) == (0.01, 0.975, 3)


def test_a_step_is_named_after_its_method_however_it_is_built() -> None:
    assert Step(method="irt").name == "irt"
    assert (
        Step(method="irt", settings={"model": "2pl"})
        == parse_recipe(HEAD + "difficulty: [irt: {model: 2pl}]").difficulty[0]
    )


@pytest.mark.parametrize(
    ("text", "where", "what", "expected"),
    [
        ("", "recipe.yaml", "the recipe is empty", "'dataset'"),
        ("- a", "recipe.yaml", "found ['a']", "a mapping"),
        ("just words", "recipe.yaml", "found 'just words'", "a mapping"),
        ("datset: a\nexamples: {from: x}", "recipe.yaml: datset", "(did you mean 'dataset'?)", "one of dataset, store"),
        ("dataset: a", "recipe.yaml: examples", "the key 'examples' is missing", "keys here: dataset"),
        ("dataset: A b\nexamples: {from: x}", "recipe.yaml: dataset", "found 'A b'; a name has at most 64", ""),
        ("dataset: ../x\nexamples: {from: x}", "recipe.yaml: dataset", "found '../x'", ""),
        (f"dataset: {'a' * 65}\nexamples: {{from: x}}", "recipe.yaml: dataset", "at most 64", ""),
        ("dataset: 3\nexamples: {from: x}", "recipe.yaml: dataset", "found 3", "text"),
        ("dataset: a\nexamples: x.csv", "recipe.yaml: examples", "found 'x.csv'", "a mapping"),
        ("dataset: a\nexamples: {}", "recipe.yaml: examples", "give either 'from' (files) or 'generate'", ""),
        ("dataset: a\nexamples: {from: x, generate: scan}", "recipe.yaml: examples", "both are given", ""),
        ("dataset: a\nexamples: {from: x, fromat: csv}", "recipe.yaml: examples.fromat", "'format'", "from, generate"),
        ("dataset: a\nexamples: {from: x, format: parket}", "recipe.yaml: examples.format", "'parquet'", "'csv'"),
        ("dataset: a\nexamples: {from: x, id: [a]}", "recipe.yaml: examples.id", "found ['a']", "text"),
        (HEAD + "store: ''", "recipe.yaml: store", "found ''", "at least 1 character"),
        (
            HEAD + "responses: {format: csv}",
            "recipe.yaml: responses.from",
            "the key 'from' is missing",
            "keys here: from",
        ),
        (HEAD + "difficulty: irt", "recipe.yaml: difficulty", "a list of steps is expected", ""),
        (HEAD + "difficulty: {irt: , length: }", "recipe.yaml: difficulty", "keys 'irt', 'length'", ""),
        (HEAD + "difficulty: [3]", "recipe.yaml: difficulty[0]", "found 3", ""),
        (HEAD + "difficulty: [length, {irt: {}, model: 2pl}]", "recipe.yaml: difficulty[1]", "belong indented", ""),
        (HEAD + "difficulty: [{irt: 3}]", "recipe.yaml: difficulty[0]", "settings of 'irt'", ""),
        (HEAD + "difficulty: [{irt: {as: }}]", "recipe.yaml: difficulty[0]", "'as' should name", ""),
        (HEAD + "difficulty: ['']", "recipe.yaml: difficulty[0].method", "found ''", "at least 1 character"),
        (HEAD + "difficulty: [irt, irt]", "recipe.yaml: difficulty", "two steps are called 'irt'", "as: NAME"),
        (HEAD + "splits: [random: {as: a}, group: {as: a}]", "recipe.yaml: splits", "two steps are called 'a'", "as: "),
        (HEAD + "curriculum: {by: irt}", "recipe.yaml: curriculum", "orders the train rows", "a section 'splits'"),
        (HEAD + "splits: [random]\ncurriculum: {by: irt}", "recipe.yaml: curriculum.by", "no 'irt'", "none yet"),
        (
            HEAD + "difficulty: [irt]\nsplits: [random]\ncurriculum: {by: itr}",
            "recipe.yaml: curriculum.by",
            "there is no 'itr' (did you mean 'irt'?)",
            "one of irt",
        ),
        (
            HEAD + "difficulty: [irt]\nsplits: [random]\ncurriculum: {by: irt, split: rnadom}",
            "recipe.yaml: curriculum.split",
            "(did you mean 'random'?)",
            "one of random",
        ),
        (
            HEAD + "difficulty: [irt]\nsplits: [random]\ncurriculum: {by: irt, arms: [curiculum]}",
            "recipe.yaml: curriculum.arms[0]",
            "(did you mean 'curriculum'?)",
            "'shuffled'",
        ),
        (
            HEAD + "difficulty: [irt]\nsplits: [random]\ncurriculum: {by: irt, arms: [anti, anti]}",
            "recipe.yaml: curriculum",
            "found ['anti', 'anti']",
            "",
        ),
        (
            HEAD + "difficulty: [irt]\nsplits: [random]\ncurriculum: {by: irt, arms: []}",
            "recipe.yaml: curriculum",
            "arms should be one or more",
            "",
        ),
        (HEAD + "train: {model: mlp}", "recipe.yaml: train", "training needs an order", "a section 'curriculum'"),
        (HEAD + "train: {model: mlp, global_batch: 10}", "recipe.yaml: train", "global_batch 10 is not a multiple", ""),
        (HEAD + "train: {model: mlp, optimizer: {lr: fast}}", "recipe.yaml: train.optimizer.lr", "'fast'", "a number"),
        (HEAD + "train: {model: mlp, optimizer: {lrr: 1}}", "recipe.yaml: train.optimizer.lrr", "'lr'", "weight_decay"),
        (
            FULL.replace("seeds: [0, 1]", "arms: [anti]"),
            "recipe.yaml: train.arms",
            "there is no 'anti'",
            "one of curriculum, random",
        ),
        (FULL.replace("baseline: random", "baseline: anti"), "recipe.yaml: evaluate.baseline", "'anti'", "random"),
        (FULL.replace("baseline: random", "split: lenght"), "recipe.yaml: evaluate.split", "'length'", "one of"),
        (FULL.replace("baseline: random", "difficulty: itr"), "recipe.yaml: evaluate.difficulty", "'irt'", "irt2"),
        (HEAD + "evaluate: {}", "recipe.yaml: evaluate", "compares the parts of a split", "a section 'splits'"),
        (HEAD + "checks: {rejects: 1.2.3%}", "recipe.yaml: checks.rejects", "found '1.2.3%'", "a number"),
        (HEAD + "checks: {rejects: 101%}", "recipe.yaml: checks.rejects", "found '101%'", "less than or equal to 1"),
        (HEAD + "checks: {rejects: -1}", "recipe.yaml: checks.rejects", "found -1", "greater than or equal to 0"),
        (HEAD + "checks: {rejects: .nan}", "recipe.yaml: checks.rejects", "found nan", "or equal to"),
        (HEAD + "checks: {rejcts: 1%}", "recipe.yaml: checks.rejcts", "(did you mean 'rejects'?)", "joined"),
        (HEAD + "seed: 1.5", "recipe.yaml: seed", "found 1.5", "a whole number"),
        (HEAD + "seed: -1", "recipe.yaml: seed", "found -1", "greater than or equal to 0"),
        (HEAD + f"seed: {2**63}", "recipe.yaml: seed", f"found {2**63}", f"less than {2**63}"),
        (FULL.replace("[0, 1]", "[0, -1]"), "recipe.yaml: train.seeds[1]", "found -1", "greater than or equal to 0"),
        (HEAD + "release: maybe", "recipe.yaml: release", "found 'maybe'", "true or false"),
        (HEAD + "seed: 1\nseed: 2", "recipe.yaml: line 4", "the key 'seed' stands twice, first in line 3", ""),
        (HEAD + "checks: {rejects: 0, rejects: 1}", "recipe.yaml: line 3", "the key 'rejects' stands twice", ""),
        (HEAD + "1: 2", "recipe.yaml: line 3", "the key 1 is not text", "valid YAML"),
        (HEAD + "? [a]\n: 2", "recipe.yaml: line 3", "the key ['a'] is not text", "valid YAML"),
        (HEAD + "store: a: b", "recipe.yaml: line 3", "mapping values are not allowed here", "valid YAML"),
        (HEAD + "store:\n\t- a", "recipe.yaml: line 4", "cannot start any token", "valid YAML"),
        (HEAD + "---\na: 1", "recipe.yaml: line 3", "another document", "valid YAML"),
        (HEAD + "store: \x07", "recipe.yaml", "unacceptable character", "valid YAML"),
        (HEAD + "seed: !!int x", "recipe.yaml", "invalid literal", "valid YAML"),
        (
            HEAD + "store: !!python/object/apply:os.getcwd []",
            "recipe.yaml: line 3",
            "could not determine",
            "valid YAML",
        ),
        (HEAD + "splits: &again [*again]", "recipe.yaml: line 3", "recursive", "valid YAML"),
        (HEAD + "splits: &again {random: *again}", "recipe.yaml: line 3", "recursive", "valid YAML"),
        (HEAD + "splits: " + "[" * 10_000, "recipe.yaml", "nested too deeply", "a few levels"),
    ],
)
def test_a_refusal_says_where_what_and_what_is_valid(text: str, where: str, what: str, expected: str) -> None:
    error = refusal(text)
    assert error.where == where
    assert what in error.what
    assert expected in error.expected


def test_a_number_where_text_belongs_is_told_to_be_quoted() -> None:
    assert "quotes" in refusal("dataset: 3\nexamples: {from: x}").remedy
    assert refusal("dataset: a\nexamples: {from: x, id: [a]}").remedy == ""


def test_a_long_value_is_shortened_in_the_message() -> None:
    error = refusal(HEAD + f"seed: {'x' * 5000}")
    assert len(error.what) < 100


def test_a_missing_file_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(HEAD)
    with pytest.raises(UsageError, match=r"there is no recipe here \(did you mean 'recipe.yaml'\?\)"):
        load_recipe(tmp_path / "recpie.yaml")
    with pytest.raises(UsageError, match="there is no recipe here"):
        load_recipe(tmp_path / "nowhere" / "recipe.yaml")
    with pytest.raises(UsageError, match="this is a folder"):
        load_recipe(tmp_path)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + "sede: 1")
    with pytest.raises(UsageError, match=f"^{path}: sede: unknown key 'sede'"):
        load_recipe(path)


def test_a_bom_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode())
    assert load_recipe(path) == parse_recipe(FULL)
    assert parse_recipe("\ufeff" + FULL) == parse_recipe(FULL)


def test_another_encoding_is_refused_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes("dataset: a # ü".encode("latin-1"))
    with pytest.raises(UsageError, match=r"not UTF-8 \(byte 13\)"):
        load_recipe(path)


def test_plain_words_and_dates_stay_text() -> None:
    recipe = parse_recipe(
        "dataset: a\nexamples: {from: x, id: no, input: on, output: y}\nsplits: [t: {after: 2026-01-01}]"
    )
    assert (recipe.examples.id, recipe.examples.input, recipe.examples.output) == ("no", "on", "y")
    assert recipe.splits[0].settings == {"after": "2026-01-01"}


def test_numbers_are_read_as_people_mean_them() -> None:
    found = strict_yaml.load("[010, 1e-3, .5, +3, -2.5E+2, 0x1f, 0o17, .inf, -.Inf, 12:30, 1_000]", where="")
    assert found == [10, 0.001, 0.5, 3, -250.0, 31, 15, float("inf"), -float("inf"), "12:30", "1_000"]
    assert [type(value) for value in found[:4]] == [int, float, float, int]


# --- laws

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
words = st.text("abcdefghijklmnopqrstuvwxyz_0123456789.-", min_size=1, max_size=10)
odd_words = st.sampled_from(
    ["no", "yes", "on", "null", "~", "1e3", "010", "0x1", "2026-01-01", "true", ".5", "- a", "#", "a: b"]
)
setting_maps = st.dictionaries(
    (words | odd_words).filter(lambda key: key != "as"),
    st.recursive(
        scalars | odd_words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2)
    ),
    max_size=4,
)
steps = st.builds(
    lambda method, name, given: Step(method=method, name=name, settings=given), words, words, setting_maps
)


def step_lists(**limits: int) -> st.SearchStrategy[list[Step]]:
    return st.lists(steps, unique_by=lambda step: step.name, max_size=3, **limits)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    name = draw(st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,63}", fullmatch=True))
    columns = {key: draw(st.none() | words | odd_words) for key in ("id", "input", "output", "domain", "structure")}
    source: dict[str, Any] = draw(st.sampled_from([{"source": "a*.csv"}, {"generate": Step(method="scan")}]))
    data: dict[str, Any] = {
        "dataset": name,
        "examples": {**source, **columns, "factors": draw(st.lists(words, max_size=2))},
        "difficulty": draw(step_lists()),
        "diversity": draw(step_lists()),
        "splits": draw(step_lists()),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "checks": {"rejects": draw(st.floats(0, 1))},
    }
    if data["difficulty"] and data["splits"]:
        arms = draw(st.lists(st.sampled_from(["curriculum", "random", "anti", "shuffled"]), min_size=1, unique=True))
        data["curriculum"] = {"by": data["difficulty"][0].name, "arms": arms, "pacing": draw(steps)}
        ranks, micro, times = draw(st.integers(1, 4)), draw(st.integers(1, 64)), draw(st.integers(1, 4))
        batches = {"ranks": ranks, "micro_batch": micro, "global_batch": ranks * micro * times}
        data["train"] = draw(st.none() | st.just({"model": draw(steps), "arms": arms[:1], **batches}))
        data["evaluate"] = draw(st.none() | st.just({"split": data["splits"][-1].name}))
    return Recipe.model_validate(data)


@settings(max_examples=50, deadline=None)
@given(recipes())
def test_a_dumped_recipe_reads_back_to_an_equal_one(recipe: Recipe) -> None:
    again = parse_recipe(dump_recipe(recipe))
    assert again == recipe
    assert again.section_hash() == recipe.section_hash()
    assert dump_recipe(again) == dump_recipe(recipe)


@settings(deadline=None)
@example("\x85a\x85\x85b ")
@example({"a\r\n\nb": "\u2028\u2029 c\n", "\ufeff": "\ud800\t'\"\x00"})
@given(
    st.recursive(
        scalars | odd_words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | odd_words, inner, max_size=3),
    )
)
def test_dumped_yaml_reads_back_with_the_same_values_and_types(value: Any) -> None:
    assert repr(strict_yaml.load(strict_yaml.dump(value), where="")) == repr(value)


def sections(recipe: Recipe) -> dict[str, list[str]]:
    found = {}
    for name in Recipe.model_fields:
        value = getattr(recipe, name)
        parts = value if isinstance(value, list) else [value]
        found[name] = [part.section_hash() if isinstance(part, BaseModel) else repr(part) for part in parts]
    return found


@pytest.mark.parametrize(
    ("old", "new", "section"),
    [
        ("id: id", "id: key", "examples"),
        ("metric: exact_match", "metric: acc", "responses"),
        ("model: 2pl", "model: 1pl", "difficulty"),
        ("<= 6", "<= 7", "splits"),
        ("start: 0.1", "start: 0.2", "curriculum"),
        ("lr: 1e-3", "lr: 2e-3", "train"),
        ("evaluate: {", "evaluate: {resamples: 500, ", "evaluate"),
        ("rejects: 1%", "rejects: 2%", "checks"),
        ("seed: 3", "seed: 4", "seed"),
        ("s3://bucket", "s3://bucket2", "store"),
    ],
)
def test_a_change_in_one_section_changes_that_section_alone(old: str, new: str, section: str) -> None:
    assert FULL.count(old) == 1
    before, after = sections(parse_recipe(FULL)), sections(parse_recipe(FULL.replace(old, new)))
    assert [name for name in before if before[name] != after[name]] == [section]


def test_a_section_hash_ignores_spelling_and_is_pinned() -> None:
    short, long = parse_recipe(HEAD), parse_recipe(HEAD + "seed: 0\nchecks: {rejects: 0.01, joined: 98%}\nsplits:\n")
    assert short.section_hash() == long.section_hash()
    # a change here makes every published step of every store stale: raise it only on purpose
    assert Step(method="irt", settings={"model": "2pl"}).section_hash() == "5af24e0641244a027865c1600612afc3"


def test_infinity_in_a_setting_hashes() -> None:
    finite, infinite = (parse_recipe(HEAD + f"diversity: [hill: {{orders: [0, {q}]}}]") for q in ("9", ".inf"))
    assert finite.diversity[0].section_hash() != infinite.diversity[0].section_hash()


def test_sections_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_recipe(HEAD).seed = 1  # type: ignore[misc]


def test_every_key_is_described() -> None:
    models = [m for m in vars(module).values() if isinstance(m, type) and issubclass(m, module._Section)]
    assert len(models) == 14
    lacking = [
        f"{m.__name__}.{name}" for m in models for name, field in m.model_fields.items() if not field.description
    ]
    assert lacking == []
    assert [m.__name__ for m in models[1:] if not m.__doc__] == []


def test_no_key_of_a_recipe_asks_for_a_credential() -> None:
    models = [m for m in vars(module).values() if isinstance(m, type) and issubclass(m, module._Section)]
    names = {name for m in models for name in m.model_fields}
    assert not [n for n in names if any(word in n for word in ("password", "secret", "token", "credential", "api_key"))]


@pytest.mark.parametrize(
    ("written", "read"), [("off", None), ("false", None), ("null", None), ("0.7", 0.7), ("1", 1.0)]
)
def test_the_check_of_near_duplicates_is_a_similarity_or_off(written: str, read: float | None) -> None:
    text = f"dataset: a\nexamples: {{from: x}}\nchecks: {{near_duplicates: {written}}}\n"
    recipe = parse_recipe(text)
    assert recipe.checks.near_duplicates == read
    assert parse_recipe(dump_recipe(recipe)) == recipe
    for wrong in ("0", "2", "on", "true"):
        with pytest.raises(UsageError, match=r"checks\.near_duplicates"):
            parse_recipe(text.replace(f": {written}}}", f": {wrong}}}"))

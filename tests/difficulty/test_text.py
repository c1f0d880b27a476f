"""Text measures against exact small examples, published counts, and the packages that do the same a text at a time."""

from __future__ import annotations

import math
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.syllables import read_pronunciations

METHODS = [
    ("length", {}),
    ("rarity", {}),
    ("type_token_ratio", {}),
    ("compression", {}),
    ("readability", {}),
    ("reasoning_steps", {"of": "input"}),
    ("trace_length", {"of": "input"}),
    ("constraints", {"pattern": "[a-z]+ly"}),
]
TEXTS = [
    "The cat sat on the mat.",
    "",
    None,
    "Don't stop; it's well-known!",
    "naïve Ünïcode 世界 e\u0301",
    "one\ntwo\n\n#### 3",
]


def _examples(texts: list[str | None], **more: Any) -> pl.DataFrame:
    ids = [f"q{i:05d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "input": pl.Series(texts, dtype=pl.String), **more})


def _run(method: str, examples: pl.DataFrame, **given_: Any) -> Difficulty:
    plugin, config = resolve("difficulty", Step(method=method, settings=given_))
    result = plugin.run({"examples": examples}, config, 0)
    assert isinstance(result, Difficulty)
    return result


def _raw(method: str, texts: list[str | None], **given_: Any) -> dict[int, float]:
    table = _run(method, _examples(texts), **given_).table
    return {int(i[1:]): value for i, value in table.select("example_id", "raw").iter_rows()}


# --- all of them


@pytest.mark.parametrize(("method", "given_"), METHODS)
def test_rows_without_a_text_are_listed_with_the_reason_and_the_rest_is_finite(
    method: str, given_: dict[str, Any]
) -> None:
    d = _run(method, _examples(TEXTS), **given_)
    assert len(d.table) + len(d.excluded) == len(TEXTS)
    assert dict(d.excluded.iter_rows())["q00002"] in ("no text in 'input'", "no trace in 'input'")
    assert np.isfinite(d.table["value"].to_numpy()).all()
    assert d.table["n"].to_list() == [1] * len(d.table)
    assert d.summary().step.startswith(f"difficulty {method}")


@pytest.mark.parametrize(("method", "given_"), METHODS)
def test_the_order_of_rows_changes_no_bit(method: str, given_: dict[str, Any]) -> None:
    examples = _examples([f"{'word ' * (i % 7)}x{i % 11} really, surely ly{i % 3}" for i in range(500)])
    d = _run(method, examples, **given_)
    again = _run(method, examples.sample(fraction=1, shuffle=True, seed=1), **given_)
    assert again.table.equals(d.table)


@pytest.mark.parametrize(("method", "given_"), METHODS)
def test_a_constant_column_is_one_bin_and_says_so(method: str, given_: dict[str, Any]) -> None:
    d = _run(method, _examples(["the same text, really"] * 30), **given_)
    assert d.bins == 1
    assert any("tells no examples apart" in warning for warning in d.warnings)


@pytest.mark.parametrize(("method", "given_"), METHODS)
def test_no_text_at_all_is_refused_and_another_column_is_named(method: str, given_: dict[str, Any]) -> None:
    with pytest.raises(DataRefused):
        _run(method, _examples([None, None]), **given_)
    with pytest.raises(DataRefused):
        _run(method, _examples([]), **given_)
    with pytest.raises(UsageError, match="no column 'inptu' \\(did you mean 'input'"):
        _run(method, _examples(["a"]), **{**given_, "of": "inptu"})
    with pytest.raises(UsageError, match="type Int64"):
        _run(method, _examples(["a"], number=[1]), **{**given_, "of": "number"})


def test_they_are_stable_and_say_whether_rows_depend_on_each_other() -> None:
    for method, _ in METHODS:
        plugin = plugins("difficulty")[method]
        assert plugin.maturity == "stable"
        assert plugin.row_wise == (method != "rarity")


# --- length


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("characters", [23, 0, 28, 19, 15]),
        ("bytes", [23, 0, 28, 27, 15]),
        ("words", [6, 0, 4, 4, 4]),
        ("tokens", [7, 0, 12, 4, 7]),
        ("sentences", [1, 0, 1, 1, 1]),
    ],
)
def test_a_length_names_its_unit(unit: str, expected: list[float]) -> None:
    d = _run("length", _examples(TEXTS), unit=unit)
    assert d.table["value"].to_list() == expected
    assert set(d.table["scale"]) == {unit}


def test_sentences_of_one_or_two_words_do_not_count() -> None:
    texts = ["Go. Dr. Who came home late. It rained all day!", "No. Yes.", "3.14 is a number. Is it not so?"]
    assert list(_raw("length", texts, unit="sentences").values()) == [2, 1, 2]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=60, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    model.train_from_iterator(["the cat sat on the mat", "the hat", "that cat"], trainer)
    model.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return model


def test_tokens_of_a_file_are_counted_whole_and_without_special_ones(tokenizer: Any, tmp_path: Path) -> None:
    texts = ["the cat sat on the mat", "", "hat" * 40, "that that"]
    expected = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
    tokenizer.enable_truncation(max_length=3)
    tokenizer.enable_padding(length=30)
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    d = _run("length", _examples([*texts, None]), unit="tokens", tokenizer=str(file))
    assert d.table["value"].to_list() == expected
    assert set(d.table["scale"]) == {"model tokens"}
    assert d.excluded["example_id"].to_list() == ["q00004"]
    assert str(tmp_path) not in d.method
    assert plugins("difficulty")["length"].config.paths == ("tokenizer",)


def test_a_tokenizer_that_cannot_be_used_is_an_error_that_says_why(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text('{"no": "tokenizer"}')
    with pytest.raises(UsageError, match="holds no tokenizer"):
        _run("length", _examples(["a"]), unit="tokens", tokenizer=str(tmp_path / "tokenizer.json"))
    with pytest.raises(UsageError, match="folder") as error:
        _run("length", _examples(["a"]), unit="tokens", tokenizer=str(tmp_path))
    assert error.value.remedy.endswith("tokenizer.json")
    with pytest.raises(UsageError, match="no such file"):
        _run("trace_length", _examples(["a"]), of="input", unit="tokens", tokenizer="nowhere.json")
    with pytest.raises(UsageError, match="a tokenizer counts tokens, not words"):
        _run("length", _examples(["a"]), tokenizer="tokenizer.json")


@pytest.mark.parametrize(
    ("package", "method", "given_"),
    [("tokenizers", "length", {"unit": "tokens", "tokenizer": "t.json"}), ("pyphen", "readability", {})],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, method: str, given_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=package) as error:
        _run(method, _examples(["a"]), **given_)
    assert "gradatim[text]" in error.value.remedy


@pytest.mark.data
def test_scan_has_as_many_words_as_published(data: Path) -> None:
    scan = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").with_row_index("example_id")
    examples = scan.select(pl.format("q{}", pl.col("example_id").cast(pl.String).str.zfill(5)).alias("example_id"),
                           input="command", output="actions")  # fmt: skip
    assert _run("length", examples).table["value"].to_list() == scan["n_words"].to_list()
    actions = _run("length", examples, of="output").table["value"]
    assert actions.to_list() == scan["n_actions"].to_list()
    assert (round(float(actions.mean()), 3), actions.min(), actions.max()) == (14.318, 1, 48)  # type: ignore[arg-type]
    rarity = _run("rarity", examples)
    assert rarity.notes["different words"] == 13


# --- rarity


def test_rarity_of_three_texts_by_hand() -> None:
    texts: list[str | None] = ["A a b", "b, c!", ""]  # a 2, b 2, c 1 of 5
    a, b, c = math.log(5 / 2), math.log(5 / 2), math.log(5)
    assert _raw("rarity", texts) == pytest.approx({0: (2 * a + b) / 3, 1: (b + c) / 2})
    assert _raw("rarity", texts, over="sum") == pytest.approx({0: 2 * a + b, 1: b + c, 2: 0.0})
    smooth = _raw("rarity", texts, smoothing=1)
    assert smooth[1] == pytest.approx((math.log(8 / 3) + math.log(8 / 2)) / 2)
    cased = _raw("rarity", texts, ignore_case=False, over="sum")
    assert cased[0] == pytest.approx(2 * math.log(5) + math.log(5 / 2))
    marks = _raw("rarity", texts, unit="tokens", over="sum")  # a b , c ! are 2 2 1 1 1 of 7
    assert marks[1] == pytest.approx(math.log(7 / 2) + 3 * math.log(7))
    assert _run("rarity", _examples(texts)).excluded.rows() == [("q00002", "no word in 'input'")]


@settings(max_examples=25)
@given(st.lists(st.text(alphabet="abcd ,.ß世", max_size=30), min_size=1, max_size=12))
def test_rarity_sums_to_the_entropy_of_the_whole_column(texts: list[str]) -> None:
    words = [word for text in texts for word in text.replace(",", " ").replace(".", " ").split()]
    if not words:
        with pytest.raises(DataRefused):
            _run("rarity", _examples([*texts]))
        return
    shares = np.array(list(Counter(words).values())) / len(words)
    found = _raw("rarity", [*texts], over="sum")
    assert sum(found.values()) == pytest.approx(-len(words) * (shares * np.log(shares)).sum())


# --- type-token ratio


def test_type_token_ratio_of_texts_by_hand() -> None:
    texts: list[str | None] = ["the the The cat", "don't don't", "well-known a b c", "!!", ""]
    assert _raw("type_token_ratio", texts) == {0: 0.5, 1: 0.5, 2: 1.0}
    assert _raw("type_token_ratio", texts, ignore_case=False)[0] == 0.75
    assert _raw("type_token_ratio", texts, form="root") == pytest.approx({0: 1.0, 1: 1 / math.sqrt(2), 2: 2.0})
    assert _raw("type_token_ratio", texts, unit="tokens")[3] == 0.5
    d = _run("type_token_ratio", _examples(texts))
    assert [reason for _, reason in d.excluded.rows()] == ["no word in 'input'"] * 2
    assert any("fewer than 50 words" in warning for warning in d.warnings)


# --- compression


def test_compression_is_zlibs_size_over_the_texts_and_repetition_is_easier() -> None:
    texts: list[str | None] = ["ab" * 500, "".join(chr(97 + i * i * 7919 % 26) for i in range(1000)), "x", "世界" * 9]
    found = _raw("compression", texts)
    for row, text in enumerate(texts):
        assert text is not None
        assert found[row] == len(zlib.compress(text.encode(), 9)) / len(text.encode())
    assert found[0] < found[1]
    assert found[2] > 1
    assert _run("compression", _examples(texts)).notes["zlib"] == zlib.ZLIB_RUNTIME_VERSION
    many = [f"text {i}" * (i % 9) for i in range(45_000)]  # several chunks, in threads
    wide = _raw("compression", [*many], level=1)
    assert all(
        wide[i] == len(zlib.compress(many[i].encode(), 1)) / len(many[i]) for i in range(1, 45_000, 997) if i % 9
    )


# --- readability

TRICKY = [
    "Don't DON'T 'quoted' words' end it's we've. They'll go!",
    'e.g. 3.14 is pi, i.e. a number? Yes. No. "Well-known" facts (really)...',
    "A.B.C. Dr. Who went home",
    "naïve café résumé — über straße ½ cup e\u0301",
    "'' ''t '''s x\x01y 'z a_b 12,000.50 $5",
    "Hello\nworld. This is it",
    "one",
]
DICTIONARY = "FIRE 1 F AY1 ER0\nFIRE 2 F AY1 R\nHOURS 1 AW1 ER0 Z\nREALLY 1 R IH1 L IY0\nIDEA 1 AY0 D IY1 AH0\n"


def test_the_grade_of_six_short_words_is_the_textbooks() -> None:
    assert _raw("readability", ["The cat sat on the mat."])[0] == pytest.approx(0.39 * 6 + 11.8 - 15.59)
    assert _raw("readability", ["Go!"])[0] == pytest.approx(-3.40)  # the lowest there is
    long = _raw("readability", ["Incomprehensibilities characterise institutionalisation. Cats sit on mats."])
    assert long[0] > 15


@pytest.mark.data
def test_grades_are_textstats(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    textstat = pytest.importorskip("textstat")
    nltk = pytest.importorskip("nltk")
    corpus = tmp_path / "corpora" / "cmudict"
    corpus.mkdir(parents=True)
    (corpus / "cmudict").write_text(DICTIONARY)  # textstat would download one
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    problems = pl.read_ndjson(data / "gsm8k" / "test.jsonl")
    texts = [*TRICKY, *problems["question"], *problems["answer"]]
    found = _raw("readability", [*texts, "", "?!"], pronunciations=str(corpus / "cmudict"))
    assert len(found) == len(texts)
    for row, text in enumerate(texts):
        assert found[row] == pytest.approx(textstat.flesch_kincaid_grade(text), abs=1e-9), text


def test_a_pronouncing_dictionary_is_read_in_its_three_forms(tmp_path: Path) -> None:
    forms = [
        DICTIONARY,
        ";;; comment\nFIRE  F AY1 ER0\nFIRE(1)  F AY1 R\nHOURS  AW1 ER0 Z\nREALLY  R IH1 L IY0\nIDEA  AY0 D IY1 AH0\n",
        "fire F AY1 ER0\nfire(2) F AY1 R # place, name\nhours AW1 ER0 Z\nreally R IH1 L IY0\nidea AY0 D IY1 AH0\n",
    ]
    for form in forms:
        (tmp_path / "d").write_text(form)
        assert read_pronunciations(str(tmp_path / "d")) == {"fire": 2, "hours": 2, "really": 2, "idea": 3}
    (tmp_path / "d").write_text("not a dictionary\n")
    with pytest.raises(UsageError, match="stress digit"):
        _run("readability", _examples(["a"]), pronunciations=str(tmp_path / "d"))
    with pytest.raises(UsageError, match="no such file"):
        _run("readability", _examples(["a"]), pronunciations="nowhere")
    with pytest.raises(UsageError, match="hyphenation patterns for 'en_USA' \\(did you mean 'en_US'"):
        _run("readability", _examples(["a"]), language="en_USA")


# --- steps, traces, constraints


def test_steps_are_lines_before_the_mark_that_are_not_blank() -> None:
    texts: list[str | None] = ["a\n\n b \n#### 3\nnot this", "a\r\nb", "", "\n" * 5, "x\0y\nz", "s\n" * 14 + "#### 1"]
    d = _run("reasoning_steps", _examples(texts), of="input")
    assert d.table["raw"].to_list() == [2, 2, 0, 0, 2, 14]
    assert d.table["value"].to_list() == [2, 2, 0, 0, 2, 10]
    assert d.notes["texts with more than 10 steps"] == 1
    assert d.notes["texts without '####'"] == 4
    blank = _run("reasoning_steps", _examples(texts), of="input", count_blank=True)
    assert blank.table["raw"].to_list() == [3, 2, 0, 5, 2, 14]
    steps = _raw("reasoning_steps", ["Step 1: a Step 2: b Step 3: c"], of="input", separator=r"Step \d+:", until=None)
    assert steps == {0: 3}
    assert "all of each" in _run("reasoning_steps", _examples(["a\nb"]), of="input").warnings[0]


@pytest.mark.data
def test_gsm8k_steps_order_what_four_models_solve_as_published(data: Path) -> None:
    answers = pl.read_ndjson(data / "gsm8k" / "test.jsonl").with_row_index("i")
    models = pl.read_parquet(data / "gsm8k" / "test_4models_correct.parquet").select(
        pl.col("item").cast(pl.UInt32).alias("i"), pl.mean_horizontal(pl.selectors.contains("b_")).alias("p")
    )
    examples = answers.select(
        pl.col("i").cast(pl.String).str.zfill(5).alias("example_id"), pl.col("answer").alias("output")
    )
    table = _run("reasoning_steps", examples, count_blank=True).table.with_columns(
        pl.Series("p", models.sort("i")["p"])
    )
    means = table.group_by("value").agg(pl.col("p").mean()).sort("value")
    assert means["value"].to_list() == [2, 3, 4, 5, 6, 7, 8, 9, 10]  # one answer has 11, and counts as 10
    assert means["p"].head(7).round(3).to_list() == [0.607, 0.424, 0.317, 0.198, 0.122, 0.1, 0.075]
    assert table.select(pl.corr("raw", "p", method="spearman")).item() == pytest.approx(-0.47095, abs=1e-5)
    without = _run("reasoning_steps", examples).table
    assert int((without["raw"] != table["raw"]).sum()) == 2  # answers with an empty line between two steps


def test_a_trace_length_is_the_mean_over_rollouts_or_over_the_right_ones() -> None:
    traces = [["a b", "a b c d", None], ["a"], [], None, [None], ["x y z", "x"]]
    marks = [[True, False, True], [True], [], None, [True], [False, False]]
    examples = _examples(["", "", "", "", "", ""], trace=traces, right=marks)
    d = _run("trace_length", examples, of="trace")
    assert d.table.select("example_id", "raw", "n").rows() == [("q00000", 3, 2), ("q00001", 1, 1), ("q00005", 2, 2)]
    assert d.table["standard_error"].to_list() == [1.0, None, 1.0]  # sqrt(2) / sqrt(2)
    assert set(d.excluded["reason"]) == {"no trace in 'trace'"}
    right = _run("trace_length", examples, of="trace", correct="right", unit="characters")
    assert right.table.select("example_id", "raw", "n").rows() == [("q00000", 3, 1), ("q00001", 1, 1)]
    assert dict(right.excluded.iter_rows())["q00005"] == "no trace was right"
    assert right.notes == {"traces": 2, "traces that were wrong, not counted": 3}
    plain = _examples(["a b c", "d", None], ok=[1, 0, 1])
    assert _run("trace_length", plain, of="input", correct="ok").table["raw"].to_list() == [3]


@pytest.mark.parametrize(
    ("marks", "kind", "said"),
    [
        ([[True], [True]], DataRefused, "2 traces come with 1 marks"),
        ([[0.5, 1.0], [1.0]], DataRefused, "1 marks are neither 0 nor 1, first 0.5"),
        ([["yes", "no"], ["no"]], UsageError, "List\\(String\\)"),
        ([None, [True]], DataRefused, "2 traces come with 0 marks"),
    ],
)
def test_marks_of_right_traces_must_fit_the_traces(marks: list[Any], kind: type[Exception], said: str) -> None:
    examples = _examples(["", ""], trace=[["a", "b"], ["c"]], right=marks)
    with pytest.raises(kind, match=said) as error:
        _run("trace_length", examples, of="trace", correct="right")
    if kind is DataRefused:
        assert "q00000" in str(error.value)


def test_constraints_are_matches_of_the_users_pattern() -> None:
    texts: list[str | None] = ["It must be so, and MUST be at least 3.", "no", "", None]
    assert _raw("constraints", texts, pattern="must|at least") == {0: 3, 1: 0, 2: 0}
    assert _raw("constraints", texts, pattern="must|at least", ignore_case=False) == {0: 2, 1: 0, 2: 0}
    assert _run("constraints", _examples(texts), pattern="must").notes["examples without a match"] == 2


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "unclosed group"),
        ("(?=x)", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"\d*", "empty text"),
        (r"\b", "empty text"),
        ("(?m)^", "empty text"),
    ],
)
def test_a_pattern_that_is_none_is_named_with_the_reason(pattern: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        _run("constraints", _examples(["a"]), pattern=pattern)
    assert "constraints: pattern" in str(error.value)
    with pytest.raises(UsageError, match=said):
        _run("reasoning_steps", _examples(["a"]), of="input", separator=pattern)


TEXT_MEASURES = ("length", "rarity", "type_token_ratio", "compression", "readability", "reasoning_steps", "constraints")


@pytest.mark.parametrize("method", [*TEXT_MEASURES, "trace_length"])
def test_examples_without_ids_or_with_one_twice_are_refused_with_the_id(method: str) -> None:
    settings = {"pattern": "a"} if method == "constraints" else {}
    frame = pl.DataFrame({"example_id": ["x", "x"], "input": ["a b", "c"], "output": ["a b", "c"]})
    with pytest.raises(DataRefused, match="the id 'x' stands twice"):
        _run(method, frame, **settings)
    with pytest.raises(DataRefused, match="1 of 2 examples have no id"):
        _run(method, frame.with_columns(example_id=pl.Series(["x", None])), **settings)
    with pytest.raises(UsageError, match="no column 'example_id'"):
        _run(method, frame.drop("example_id"), **settings)


def test_where_no_text_has_a_value_the_reasons_are_counted() -> None:
    traces = pl.DataFrame(
        {"example_id": ["a", "b", "c"], "output": [["x"], ["y"], []], "right": [[False], [False], []]}
    )
    with pytest.raises(DataRefused, match="2 x no trace was right; 1 x no trace in 'output'"):
        _run("trace_length", traces, correct="right")


def test_traces_in_arrays_are_taken_as_lists() -> None:
    lists = pl.DataFrame({"example_id": ["a", "b"], "output": [["a b", "c"], ["d e f", "g"]]})
    arrays = lists.with_columns(pl.col("output").list.to_array(2))
    assert _run("trace_length", arrays).table.equals(_run("trace_length", lists).table)

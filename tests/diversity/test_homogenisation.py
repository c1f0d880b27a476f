"""Homogenisation: every pair by hand and by nltk, the interval, real questions, and bad input."""

from __future__ import annotations

import math
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.ngrams import hash_words
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.homogenisation import bleu_matrix, mean_of_pairs, rouge_l_matrix
from gradatim.tasks.diversity.result import Diversity

corpora = st.lists(st.text(alphabet="abc ", max_size=25), min_size=1, max_size=6)


def run(frame: pl.DataFrame, seed: int = 0, **options: object) -> Diversity:
    plugin = get("diversity", "homogenisation")
    found: Diversity = plugin.run({"examples": frame}, configure(plugin, options), seed)
    return found


def examples(texts: list[str | None], **columns: list[object]) -> pl.DataFrame:
    ids = [f"e{i:05d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "input": pl.Series(texts, dtype=pl.String), **columns})


def subsequence(left: list[str], right: list[str]) -> int:
    """Length of the longest common subsequence, by the table of all beginnings."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def rouge_l(left: str, right: str) -> float:
    a, b = left.split(), right.split()
    common = subsequence(a, b)
    precision, recall = common / max(len(a), 1), common / max(len(b), 1)
    return 2 * precision * recall / (precision + recall) if common else 0.0


def bleu(text: str, reference: str) -> float:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    words = text.split()
    return float(sentence_bleu([reference.split()], words, smoothing_function=SmoothingFunction().method1))


def test_a_worked_example() -> None:
    # common subsequences: police the gunman (3 of 4), the gunman or police killed (2 of 4)
    texts = ["police killed the gunman", "police kill the gunman", "the gunman kill police"]
    found = rouge_l_matrix(hash_words(pl.Series(texts)))
    assert found.tolist() == [[1, 0.75, 0.5], [0.75, 1, 0.5], [0.5, 0.5, 1]]
    assert run(examples(texts)).value("rouge_l") == pytest.approx(1.75 / 3)
    assert run(examples(["a b c d", "a b c d"])).value("bleu") == 1
    assert run(examples(["a b c d", "e f g h"])).value("bleu") == 0


@settings(max_examples=60, deadline=None)
@given(corpora)
def test_every_pair_is_that_of_a_brute_force_and_of_nltk(texts: list[str]) -> None:
    words = hash_words(pl.Series(texts, dtype=pl.String))
    rouge, matrix = rouge_l_matrix(words), bleu_matrix(words)
    for i, j in permutations(range(len(texts)), 2):
        assert rouge[i, j] == pytest.approx(rouge_l(texts[i], texts[j]), abs=1e-12)
        if texts[i].split() and texts[j].split():
            assert matrix[i, j] == pytest.approx(bleu(texts[i], texts[j]), abs=1e-9)


def test_means_and_errors_are_those_of_all_pairs_and_of_leaving_one_text_out() -> None:
    matrix = np.random.default_rng(0).random((9, 9))
    off = ~np.eye(9, dtype=bool)
    mean, error, own = mean_of_pairs(matrix)
    assert mean == pytest.approx(matrix[off].mean())
    without = []
    for i in range(9):
        keep = np.delete(np.arange(9), i)
        without.append(matrix[np.ix_(keep, keep)][~np.eye(8, dtype=bool)].mean())
    assert error == pytest.approx(math.sqrt(8 / 9 * ((np.array(without) - np.mean(without)) ** 2).sum()))
    for i in range(9):
        rest = np.delete(np.arange(9), i)
        assert own[i] == pytest.approx((matrix[i, rest].mean() + matrix[rest, i].mean()) / 2)
    assert math.isnan(mean_of_pairs(np.ones((1, 1)))[0])
    assert mean_of_pairs(np.ones((2, 2)))[:2] == (1.0, pytest.approx(math.nan, nan_ok=True))


def test_the_interval_holds_the_value_of_all_rows_and_does_not_move_with_the_sample(data: Path) -> None:
    questions = pl.read_ndjson(data / "gsm8k" / "test.jsonl")["question"].to_list()
    whole = run(examples(questions), sample=5000)
    assert whole.statistics["n"].to_list() == [len(questions)] * 3
    for metric in ("rouge_l", "bleu"):
        held = 0
        for seed in range(20):
            found = run(examples(questions), seed, sample=100).statistics.filter(pl.col("metric") == metric)
            held += found["ci_low"][0] <= whole.value(metric) <= found["ci_high"][0]
        assert held >= 16  # 95 in 100 to expect
    small, large = (run(examples(questions), sample=size).value("rouge_l") for size in (200, 1200))
    assert small == pytest.approx(large, abs=0.01)


def test_templates_are_more_alike_than_free_questions_in_each_subset() -> None:
    rng = np.random.default_rng(1)
    free = [" ".join(f"w{k}" for k in rng.integers(0, 400, 12)) for _ in range(120)]
    narrow = [f"what is {i} plus {i % 7} in the end of it" for i in range(120)]
    frame = examples([*free, *narrow], domain=["free"] * 120 + ["narrow"] * 120)
    found = run(frame, by="domain")
    for metric in ("rouge_l", "bleu"):
        assert found.value(metric, "domain=narrow") > found.value(metric) > found.value(metric, "domain=free")
    assert found.statistics.filter(pl.col("subset") != "all")["n"].to_list() == [120] * 6
    again = run(frame.sample(fraction=1, shuffle=True, seed=2), by="domain")
    assert again.statistics.equals(found.statistics)
    assert again.table.equals(found.table)
    ends = found.table.sort("value")["example_id"].to_list()
    assert set(ends[-100:]) <= set(frame["example_id"].to_list()[120:])
    assert run(frame, scores=["bleu"]).main == "bleu"
    assert found.summary().charts
    assert "BLEU" in found.cite()


def test_bad_input_has_a_defined_answer() -> None:
    for texts in ([None, None], ["", "  "], []):
        with pytest.raises(DataRefused, match="no text"):
            run(examples(texts))
    alone = run(examples(["one text alone", None, "?!"]))
    assert alone.statistics.filter(pl.col("metric") != "mean_length")["value"].null_count() == 2
    assert {"1 rows have no input and were left out", "1 texts have no word and were left out"} <= set(alone.warnings)
    assert any("no pair: all" in warning for warning in alone.warnings)
    same = run(examples(["all rows are the very same text"] * 30))
    assert (same.value("rouge_l"), same.value("bleu")) == (1, 1)
    assert same.statistics["ci_low"].drop_nulls().to_list() == [1, 1]
    long = run(examples(["word " * 2_100_000, "a short one of other words", "word and word"]))
    assert "of 1 longer texts the first 2,000 words were compared" in long.warnings
    assert long.value("mean_length") == pytest.approx((2_100_000 + 6 + 3) / 3)
    for wrong in ({"scores": []}, {"scores": ["bleu", "bleu"]}, {"sample": 1}, {"longest": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            configure(get("diversity", "homogenisation"), wrong)


def test_without_rapidfuzz_bleu_alone_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rapidfuzz", "rapidfuzz.distance", "rapidfuzz.process"):
        monkeypatch.setitem(sys.modules, name, None)
    frame = examples(["a b c d e", "a b c d f"])
    with pytest.raises(UsageError, match="rapidfuzz"):
        run(frame)
    assert 0 < run(frame, scores=["bleu"]).value() < 1

"""Lexical measures: worked examples, peers, merges of parts, equal sizes, and bad input."""

from __future__ import annotations

import gzip
import math
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.ngrams import hash_words
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity import distinct_n as distinct
from gradatim.tasks.diversity import self_repetition as repetition
from gradatim.tasks.diversity.compression_ratio import compressed_bytes, compression_ratio
from gradatim.tasks.diversity.distinct_n import distinct_n
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.self_bleu import self_bleu, self_bleu_scores
from gradatim.tasks.diversity.self_repetition import self_repetition

MEASURES = ("distinct_n", "compression_ratio", "self_repetition", "self_bleu")
corpora = st.lists(st.text(alphabet="abc ", max_size=25), min_size=1, max_size=8)


def run(name: str, frame: pl.DataFrame, seed: int = 0, **options: object) -> Diversity:
    plugin = get("diversity", name)
    found: Diversity = plugin.run({"examples": frame}, configure(plugin, options), seed)
    return found


def examples(texts: list[str | None], **columns: list[object]) -> pl.DataFrame:
    ids = [f"e{i:05d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "input": pl.Series(texts, dtype=pl.String), **columns})


def corpus(rows: int, words: int, seed: int = 0, length: int = 12) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(f"w{rng.randrange(words)}" for _ in range(rng.randint(3, length))) for _ in range(rows)]


# --- distinct-n


def test_distinct_n_of_a_worked_example() -> None:
    # the cat sat / the cat ran: 4 of 6 words, 3 of 4 pairs, 2 of 2 triples
    found = [distinct_n(["the cat sat", "The cat ran"], n) for n in (1, 2, 3)]
    assert found == [4 / 6, 3 / 4, 1.0]
    assert math.isnan(distinct_n(["the cat"], 3))
    assert distinct_n(["the cat", "The cat"], 1, ignore_case=False) == 3 / 4
    with pytest.raises(UsageError, match="0 words"):
        distinct_n(["a"], 0)


@settings(max_examples=25, deadline=None)
@given(corpora, st.integers(1, 4))
def test_distinct_n_counts_as_a_set_counts(texts: list[str], n: int) -> None:
    grams = [tuple(words[i : i + n]) for words in map(str.split, texts) for i in range(len(words) - n + 1)]
    expected = len(set(grams)) / len(grams) if grams else math.nan
    assert distinct_n(texts, n) == pytest.approx(expected, nan_ok=True)


def test_samples_of_parts_merge_to_that_of_the_whole_in_any_order_and_grouping() -> None:
    frame = examples(corpus(400, 90)).rename({"input": "text"})
    whole = distinct.partial(frame, 500, 3)
    expected = distinct.finish(whole, 500)
    for seed in range(4):
        mixed = frame.sample(fraction=1, shuffle=True, seed=seed)
        parts = [distinct.partial(mixed[a : a + 90], 500, 3) for a in range(0, 400, 90)]
        found = distinct.merge([distinct.merge(parts[3:], 500), distinct.merge(parts[:3], 500)], 500)
        assert found.rows.equals(whole.rows)
        assert (found.words, found.texts) == (whole.words, 400)
        assert distinct.finish(found, 500) == expected
    assert whole.rows["hashes"].list.len().sum() >= 500 > whole.rows["hashes"].list.len()[:-1].sum()


def test_a_sample_of_all_words_is_the_plain_number_and_the_last_text_is_cut_to_the_word() -> None:
    texts = corpus(50, 30)
    found = run("distinct_n", examples(texts))
    for n in (1, 2, 3, 4):
        assert found.value(f"distinct_{n}") == distinct_n(texts, n)
    one = distinct.partial(examples(["a b c a b c"]).rename({"input": "text"}), 4, 0)
    assert distinct.finish(one, 4) == {1: 3 / 4, 2: 1.0, 3: 1.0, 4: 1.0}


def test_subsets_are_compared_at_equal_numbers_of_words() -> None:
    # the same source twice: the larger part alone would look less diverse
    texts = corpus(4400, 100, seed=5)
    frame = examples(texts, domain=["big"] * 4000 + ["small"] * 400)
    found = run("distinct_n", frame, by="domain")
    big, small = found.value("distinct_2", "domain=big"), found.value("distinct_2", "domain=small")
    assert big == pytest.approx(small, rel=0.05)
    assert distinct_n(texts[:4000], 2) < 0.8 * small
    assert found.value("tokens", "domain=big") == found.value("tokens", "domain=small") == found.value("tokens")
    assert any("domain=small has" in warning for warning in found.warnings)
    assert found.value("mean_length") == pytest.approx(np.mean([len(text.split()) for text in texts]))
    fixed = run("distinct_n", frame, by="domain", tokens=1500)
    assert fixed.value("tokens", "domain=big") == 1500
    assert fixed.value("distinct_2") != run("distinct_n", frame, by="domain", tokens=1500, seed=1).value("distinct_2")


# --- compression ratio


def test_the_compression_ratio_is_that_of_gzip() -> None:
    texts = corpus(300, 50)
    whole = "\n".join(texts).encode()
    assert compressed_bytes(texts) == (len(whole), len(gzip.compress(whole, 9)))
    assert compressed_bytes(texts, 1) == (len(whole), len(gzip.compress(whole, 1)))
    assert run("compression_ratio", examples(texts)).value() == len(whole) / len(gzip.compress(whole, 9))
    assert compression_ratio(["a"]) < 1
    assert math.isnan(compression_ratio([]))
    with pytest.raises(UsageError, match="lone surrogate"):
        compression_ratio(["fine", "\ud800"])


def test_repeated_texts_compress_better_and_subsets_are_told_apart() -> None:
    texts = ["the same sentence again and again"] * 400 + corpus(400, 5000)
    found = run("compression_ratio", examples(texts, domain=["same"] * 400 + ["other"] * 400), by="domain")
    assert found.value(subset="domain=same") > 20 > 5 > found.value(subset="domain=other")
    assert found.value("mean_length", "domain=same") == 33


# --- self-repetition


def plain_repetition(texts: list[str], n: int) -> float:
    documents = [{tuple(words[i : i + n]) for i in range(len(words) - n + 1)} for words in map(str.split, texts)]
    holders = Counter(gram for grams in documents for gram in grams)
    return float(np.mean([math.log(1 + sum(holders[gram] - 1 for gram in grams)) for grams in documents]))


def test_self_repetition_of_a_worked_example() -> None:
    # the first two share one 4-gram, the third none: (ln 2 + ln 2 + 0) / 3
    texts = ["we find that the", "now we find that the", "nothing like it here at all"]
    assert self_repetition(texts) == pytest.approx(2 * math.log(2) / 3)
    assert self_repetition(["a b c d a b c d"]) == 0  # within one text is no repetition
    assert math.isnan(self_repetition([]))


@settings(max_examples=25, deadline=None)
@given(corpora, st.integers(1, 4))
def test_self_repetition_follows_its_formula(texts: list[str], n: int) -> None:
    assert self_repetition(texts, n) == pytest.approx(plain_repetition(texts, n), abs=1e-12)


def test_counts_of_parts_merge_to_the_same_integers_and_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = corpus(300, 12)
    whole = hash_words(pl.Series(texts))
    counts = repetition.partial(whole, 3)
    sums = repetition.repeats(whole, counts, 3)
    assert sums.max() > 0
    for at_once in (10, 200, 10**6):
        monkeypatch.setattr(repetition, "AT_ONCE", at_once)
        assert repetition.repeats_within(whole, 3).tolist() == sums.tolist()
    cuts = [texts[:10], texts[10:200], texts[200:]]
    parts = [hash_words(pl.Series(cut)) for cut in cuts[::-1]]
    partials = [repetition.partial(part, 3) for part in parts]
    merged = repetition.merge([repetition.merge(partials[1:]), partials[0]])
    assert merged.equals(counts)
    found = np.concatenate([repetition.repeats(part, merged, 3) for part in parts])
    assert sorted(found.tolist()) == sorted(sums.tolist())
    assert repetition.finish(found) == repetition.finish(sums)


def test_rows_have_their_own_repetition_and_uneven_subsets_are_warned_of() -> None:
    texts = ["one two three four", "one two three four five", "six seven eight nine", None]
    found = run("self_repetition", examples(texts, domain=["x", "x", "y", "y"]), by="domain")
    assert found.table["value"].to_list() == pytest.approx([math.log(2), math.log(2), 0])
    assert found.value(subset="domain=x") == pytest.approx(math.log(2))
    assert any("documents: 1" in warning for warning in found.warnings)
    assert any("1 rows have no input" in warning for warning in found.warnings)
    drawn = run("self_repetition", examples(corpus(50, 5)), documents=20)
    assert drawn.statistics["n"].unique().to_list() == [20]
    assert drawn.table.height == 20


# --- self-BLEU


def test_self_bleu_of_a_worked_example() -> None:
    # first text: 3 of 4 words, 2 of 3 pairs, 1 of 2 triples; no 4-gram, so 0.1 of 1; all lengths are 4
    scores = self_bleu_scores(hash_words(pl.Series(["a b c d", "a b c x"])))
    assert scores.tolist() == pytest.approx([(3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25] * 2)
    assert self_bleu(["a b c d e"] * 3) == pytest.approx(1)
    assert self_bleu(["a b", "c d"]) == 0
    # shorter than its only reference: exp(1 - 5 / 4)
    short = self_bleu_scores(hash_words(pl.Series(["a b c d", "a b c d e"])))[0]
    assert short == pytest.approx(math.exp(1 - 5 / 4))


@settings(max_examples=25, deadline=None)
@given(corpora)
def test_self_bleu_equals_that_of_nltk(texts: list[str]) -> None:
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    words = [text.split() for text in texts if text.split()]
    method = bleu.SmoothingFunction().method1
    expected = [
        bleu.sentence_bleu(words[:i] + words[i + 1 :], words[i], smoothing_function=method)
        if len(words) > 1
        else math.nan
        for i in range(len(words))
    ]
    found = self_bleu_scores(hash_words(pl.Series(texts, dtype=pl.String)))
    assert found[~np.array([not text.split() for text in texts])] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert np.isnan(found[[not text.split() for text in texts]]).all()


def test_self_bleu_is_of_as_many_texts_from_every_subset() -> None:
    frame = examples(corpus(300, 40) + corpus(60, 4000, seed=9), domain=["narrow"] * 300 + ["wide"] * 60)
    found = run("self_bleu", frame, by="domain")
    assert found.value(subset="domain=narrow") > 2 * found.value(subset="domain=wide")
    assert found.statistics["n"].unique().to_list() == [60]
    assert any("60 texts" in warning for warning in found.warnings)
    assert found.table.height == 60
    assert run("self_bleu", frame, seed=1, sample=50).value() != run("self_bleu", frame, sample=50).value()


# --- all of them


@pytest.mark.parametrize("name", MEASURES)
def test_shuffled_rows_change_nothing_and_tables_keep_their_schema(name: str) -> None:
    frame = examples(corpus(200, 30), domain=[f"d{i % 3}" for i in range(200)])
    found = run(name, frame, by="domain")
    again = run(name, frame.sample(fraction=1, shuffle=True, seed=1), by="domain")
    assert again.statistics.equals(found.statistics)
    assert again.table.equals(found.table)
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    assert found.table.to_arrow().schema.names == spec("diversity").schema.names
    assert set(found.statistics["subset"]) == {"all", "domain=d0", "domain=d1", "domain=d2"}
    assert "mean_length" in found.statistics["metric"].to_list()
    assert found.summary().to_dict()["headline"].startswith(found.main)
    assert found.cite()


@pytest.mark.parametrize("name", MEASURES)
def test_a_new_row_moves_no_other_one(name: str) -> None:
    texts = corpus(120, 30)
    before, after = (run(name, examples(rows)).table for rows in (texts, [*texts, "zz yy xx ww vv"]))
    both = before.join(after, on="example_id", how="inner")
    assert both["value"].to_list() == pytest.approx(both["value_right"].to_list())
    assert len(both) == len(before)


@pytest.mark.parametrize("name", MEASURES)
def test_bad_input_has_a_defined_answer(name: str) -> None:
    for texts in ([None, None], ["", "  "], []):
        with pytest.raises(DataRefused, match="no text"):
            run(name, examples(texts))
    with pytest.raises(UsageError, match="did you mean 'input'"):
        run(name, examples(["a"]), column="inputs")
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        run(name, examples(["a"], domain=["x"]), by="domian")
    with pytest.raises(UsageError, match="text"):
        run(name, examples(["a"], size=[1]), column="size")
    one = run(name, examples(["one text of some words alone", None, ""]))
    assert one.statistics["value"].drop_nulls().is_finite().all()
    assert any("1 rows have no input" in warning for warning in one.warnings)
    same = run(name, examples(["all rows are the very same text"] * 30))
    assert math.isfinite(same.value())
    half = run(name, examples(["some words here", ""], domain=["x", "y"]), by="domain")
    assert half.statistics.height >= 4


@pytest.mark.parametrize("name", MEASURES)
def test_a_text_of_ten_megabytes_is_measured(name: str) -> None:
    long = "word " * 2_100_000
    found = run(name, examples([long, "a short one of other words", "word and word"]))
    assert math.isfinite(found.value())


def test_the_measures_agree_on_which_of_two_sets_repeats_itself() -> None:
    frame = examples(corpus(500, 25) + corpus(500, 8000, seed=2), domain=["narrow"] * 500 + ["wide"] * 500)
    found = {name: run(name, frame, by="domain") for name in MEASURES}
    values = {name: (f.value(subset="domain=narrow"), f.value(subset="domain=wide")) for name, f in found.items()}
    assert values["distinct_n"][0] < values["distinct_n"][1]
    assert all(values[name][0] > values[name][1] for name in MEASURES[1:])
    shares = [found["distinct_n"].value(f"distinct_{n}", "domain=narrow") for n in (1, 2, 3, 4)]
    assert all(a <= b for a, b in pairwise(shares))


def test_wrong_settings_name_what_is_valid() -> None:
    for name, wrong in (
        ("distinct_n", {"orders": [0]}),
        ("distinct_n", {"unit": "word"}),
        ("compression_ratio", {"level": 0}),
        ("self_bleu", {"sample": 1}),
        ("self_repetition", {"n": 0}),
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            configure(get("diversity", name), wrong)
    with pytest.raises(DataRefused, match="no text"):
        run("distinct_n", examples(["?!", "..."]), unit="letters")

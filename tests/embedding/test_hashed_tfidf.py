"""Hashed TF-IDF vectors: a peer's numbers, the laws, and texts that are none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from threadpoolctl import threadpool_limits

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.embedding.embedder import choose_sample, from_bytes, to_bytes
from gradatim.tasks.embedding.hashed_tfidf import UNKNOWN, WORD
from gradatim.tasks.embedding.texts import CUT, NO_TEXT

TEXTS = [
    "what is 3 + 4 ?",
    "what is 12 + 5 ?",
    "the Cat sat on the mat , the cat slept",
    "a dog sat on a mat",
    "how many cats are on 3 mats ?",
    "dogs and cats",
    "what is the area of a mat of 3 by 4 ?",
    "the dog slept",
]


def examples(texts: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame(
        {"example_id": [f"q{i:05d}" for i in range(len(texts))], "input": texts}, schema_overrides={"input": pl.String}
    )


def many(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    words = rng.zipf(1.3, size=(count, 12)) % 3000
    return [" ".join(f"w{word}" for word in row) for row in words]


def test_cosines_are_those_of_scikit_learns_tfidf_where_no_direction_is_left_out() -> None:
    peer = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True).fit_transform(TEXTS)
    found = gd.embed(examples(list(TEXTS)), width=32, buckets=2**20, rarest=1)
    assert found.matrix.dtype == np.float32
    assert np.allclose(found.matrix @ found.matrix.T, (peer @ peer.T).toarray(), atol=1e-6)
    facts = {fact.name: fact.value for fact in found.facts}
    assert (facts["directions"], facts["explained"], facts["texts fitted on"]) == (8, 1.0, 8)
    assert facts["word buckets known"] == peer.shape[1]
    assert not found.matrix[:, 8:].any(), "no more directions than texts"


def test_few_directions_hold_as_much_as_the_best_ones_of_the_peer() -> None:
    texts = many(400)
    peer = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit_transform(texts)
    best = (np.linalg.svd(peer.toarray(), compute_uv=False)[:16] ** 2).sum() / 400
    facts = {fact.name: fact.value for fact in gd.embed(examples(list(texts)), width=16, buckets=2**20).facts}
    # random words have no few directions: the hard case of a randomised method
    assert 0.98 * best <= facts["explained"] <= best + 5e-4


def test_texts_about_the_same_are_nearer_than_others() -> None:
    found = gd.embed(examples(list(TEXTS)), width=4, rarest=1).matrix
    near = found @ found.T
    assert near[0, 1] > 0.8 > max(near[0, 2], near[0, 3], near[0, 5])


def test_a_row_without_text_or_known_word_is_zero_and_counted_and_all_others_have_length_one() -> None:
    fitted = gd.embed(examples(list(TEXTS)), width=8, rarest=1)
    rows = [None, "", " \t\n", "zebra quagga", TEXTS[0], "x" * 50 + " cat"]
    found = fitted.embed(examples(rows))
    assert dict(found.counts) == {NO_TEXT: 3, UNKNOWN: 1}
    assert np.allclose(np.linalg.norm(found.matrix, axis=1), [0, 0, 0, 0, 1, 1], atol=1e-6)
    assert np.array_equal(found.matrix[4], fitted.matrix[0])
    assert len(found.summary().warnings) == 2


@settings(max_examples=15)
@given(st.permutations(range(len(TEXTS))), st.integers(1, 5))
def test_neither_the_order_of_rows_nor_the_company_changes_a_bit(order: list[int], size: int) -> None:
    rows = examples(list(TEXTS))
    whole = gd.embed(rows, width=6, rarest=1)
    assert gd.embed(rows[order], width=6, rarest=1).table.equals(whole.table)
    parts = [whole.embed(rows.slice(start, size)).table for start in range(0, len(rows), size)]
    assert pl.concat(parts).equals(whole.table)


def test_threads_change_nothing_and_the_seed_only_the_seventh_digit() -> None:
    rows = examples(list(many(300)))
    with threadpool_limits(1):
        one = gd.embed(rows, width=12)
    with threadpool_limits(4):
        four = gd.embed(rows, width=12)
    assert one.table.equals(four.table)
    whole = gd.embed(examples(list(TEXTS)), width=16, rarest=1, seed=0).matrix
    other = gd.embed(examples(list(TEXTS)), width=16, rarest=1, seed=1).matrix
    assert np.array_equal((whole @ whole.T).round(5), (other @ other.T).round(5))


def test_a_fit_comes_back_from_its_file_and_a_damaged_file_is_named() -> None:
    found = gd.embed(examples(list(TEXTS)), width=6, rarest=1)
    raw = to_bytes(found.fit)
    assert raw == to_bytes(from_bytes(raw, "here"))
    again = found.embedder.embed(from_bytes(raw, "here"), examples(list(TEXTS)))
    assert np.array_equal(again.vectors, found.matrix)
    with pytest.raises(DataRefused, match=r"_fits/x\.npz"):
        from_bytes(raw[: len(raw) // 2], "_fits/x.npz")


@pytest.mark.parametrize("texts", [["one text"], ["a b"] * 5, ["word"] * 60])
def test_one_row_and_equal_rows_have_one_direction(texts: list[str]) -> None:
    found = gd.embed(examples(list(texts)), width=4)
    assert np.allclose(found.matrix, [[1, 0, 0, 0]] * len(texts))


def test_a_text_of_ten_megabytes_is_cut_and_counted() -> None:
    found = gd.embed(examples([*TEXTS, "cat é " * 2_000_000]), width=4, rarest=1, longest=1000)
    assert dict(found.counts) == {CUT: 1}


def test_characters_find_words_where_there_is_no_white_space() -> None:
    texts = ["東京都は日本の首都です", "日本の首都は東京都です", "犬が好きです", "猫が好きです"]
    near = [gd.embed(examples(list(texts)), width=4, rarest=1, parts=parts).matrix for parts in ("words", "characters")]
    words, characters = [float(found[0] @ found[1]) for found in near]
    assert words < 0.01 < 0.3 < characters


def test_texts_without_any_word_are_refused_and_settings_are_checked() -> None:
    with pytest.raises(DataRefused, match=r"no text of the 3 .* has a word"):
        gd.embed(examples(["", None, " "]))
    with pytest.raises(DataRefused, match="no row"):
        gd.embed(examples([]))
    with pytest.raises(UsageError, match=r"no column 'inptu' .did you mean 'input'"):
        gd.embed(examples(list(TEXTS)), column="inptu")
    with pytest.raises(UsageError, match="width 300 should be less than buckets 256"):
        gd.embed(examples(list(TEXTS)), width=300, buckets=256)
    for anchor in (0, True, "newest"):
        with pytest.raises(UsageError, match="anchor"):
            gd.embed(examples(list(TEXTS)), anchor=anchor)
    with pytest.raises(DataRefused, match="stands twice"):
        gd.embed(pl.concat([examples(["a b"]), examples(["a c"])]))
    with pytest.raises(UsageError, match="holds List"):
        gd.embed(pl.DataFrame({"example_id": ["a"], "input": [["x"]]}))


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(0, 70), st.integers(0, 5))
def test_a_new_row_displaces_at_most_one_of_the_sample(rows: int, size: int, seed: int) -> None:
    ids = pl.Series([f"q{i}" for i in range(rows)])
    before, after = (set(choose_sample(found, size, seed)) for found in (ids, pl.concat([ids, pl.Series(["new"])])))
    assert len(before - after) <= 1
    assert len(before) == (min(size, rows) if size else rows)


def test_only_the_sample_is_fitted_on() -> None:
    rows = examples(list(many(300)))
    found = gd.embed(rows, width=4, sample=50)
    assert next(fact.value for fact in found.facts if fact.name == "texts fitted on") == 50
    chosen = choose_sample(rows["example_id"], 50, 0).to_list()
    small = gd.embed(rows.filter(pl.col("example_id").is_in(chosen)), width=4)
    assert np.array_equal(small.fit["directions"], found.fit["directions"])
    assert len(found.table) == 300

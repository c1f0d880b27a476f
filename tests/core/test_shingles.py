"""Shingles: equal to the plain definition, the same for ever, and bounded for what is empty, short or huge."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.hashing import normalise
from gradatim.tasks.core.jaccard import jaccard
from gradatim.tasks.core.shingles import Unit, chunks, digests, distinct, normalised, shingles

WORDS = st.lists(st.sampled_from(["a", "b", "Ab", "ab", "é", "e\u0301", "1", "+", "-", "日本"]), max_size=9)
GOLDEN = ["4c21f8e5db79beee", "042da15d41f99042", "c5c3cd11fd73a2d3"]
TEXTS = st.lists(WORDS.map(" ".join), min_size=1, max_size=6)


def plain(text: str, size: int, unit: str, lowercase: bool = True) -> set[tuple[str, ...]]:
    """The definition, in sets of tuples."""
    text = normalise(text)
    text = text.lower() if lowercase else text
    units = text.split(" ") if unit == "words" else list(text)
    if not text:
        return set()
    return {tuple(units[i : i + size]) for i in range(max(1, len(units) - size + 1))}


def test_the_hashes_are_those_of_the_first_release() -> None:
    # signatures are kept: another hash would make them worthless without a word
    found = shingles(pl.Series(["The quick brown fox jumps over", "1 + 2"]), 5)
    assert found.starts.tolist() == [0, 2, 3]
    assert [f"{value:016x}" for value in found.values] == GOLDEN
    assert digests(pl.Series(["a  b ", "a b", None])).to_list() == [
        "e932d71afddc92588044f8a624582c4c",
        "e932d71afddc92588044f8a624582c4c",
        None,
    ]


@given(
    st.lists(
        st.text(st.characters(codec="utf-8"))
        | st.text(st.sampled_from("ab \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2003e\u0301"))
    )
)
def test_columns_are_normalised_as_single_texts_are(texts: list[str]) -> None:
    column = pl.Series(texts, dtype=pl.String)
    assert normalised(column).to_list() == [normalise(text) for text in texts]
    assert column.to_list() == texts  # what was given is as it was
    assert digests(column).to_list() == [xxhash.xxh3_128_hexdigest(normalise(text).encode()) for text in texts]


@pytest.mark.parametrize("unit", ["words", "characters"])
@given(texts=TEXTS, size=st.integers(1, 4), lowercase=st.booleans())
@settings(max_examples=30)
def test_jaccard_of_hashes_is_that_of_the_sets_themselves(
    unit: Unit, texts: list[str], size: int, lowercase: bool
) -> None:
    pairs = np.array([(i, j) for i in range(len(texts)) for j in range(len(texts))])
    found = jaccard(pl.Series(texts), pairs, size, unit, lowercase=lowercase)
    for (i, j), value in zip(pairs, found, strict=True):
        one, two = (plain(texts[k], size, unit, lowercase) for k in (i, j))
        assert value == (len(one & two) / len(one | two) if one | two else 0)


def test_a_text_of_fewer_words_than_a_shingle_is_one_shingle_and_an_empty_one_none() -> None:
    found = shingles(pl.Series(["two words", "", None, " \t\n", "a b c d e", "two  words"]), 5)
    assert np.diff(found.starts).tolist() == [1, 0, 0, 0, 1, 1]
    assert found.values[0] == found.values[2]
    assert np.diff(shingles(pl.Series(["", None]), 5).starts).tolist() == [0, 0]


def test_signs_and_numbers_are_words_so_that_tasks_stay_apart() -> None:
    found = shingles(pl.Series(["what is 3 + 2", "what is 3 - 2"]), 5)
    assert found.values[0] != found.values[1]


def test_repeated_shingles_count_once_in_a_set() -> None:
    sets = distinct(shingles(pl.Series(["a a a a a a a a", "b"]), 3))
    assert np.diff(sets.starts).tolist() == [1, 1]


def test_chunks_hold_every_row_once_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradatim.tasks.core.shingles.CHUNK", 10)
    texts = pl.Series(["a", "b" * 50, "", None, "cc", "d" * 9, "e"])
    parts = list(chunks(texts))
    assert [row for row, _ in parts] == np.cumsum([0, *(len(part) for _, part in parts[:-1])]).tolist()
    assert pl.concat([part for _, part in parts]).to_list() == texts.to_list()
    assert len(parts) > 3


def test_a_text_of_ten_megabytes_is_cut_whether_it_is_one_word_or_many() -> None:
    many = " ".join(str(i % 100_003) for i in range(1_700_000))
    texts = pl.Series([many, many[:-3] + "end", "x" * 10_000_000, "x" * 9_999_999 + "y"])
    found = jaccard(texts, np.array([[0, 1], [2, 3], [2, 2]]), 5)
    assert 0.999 < found[0] < 1
    assert found[1:].tolist() == [0, 1]

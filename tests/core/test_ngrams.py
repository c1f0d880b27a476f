"""Words and n-grams as hashes: the same anywhere, never across texts, different where the words differ."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import ngrams
from gradatim.tasks.core.ngrams import hash_words, slices

texts = st.lists(st.text(alphabet="ab c\n", max_size=30), min_size=1, max_size=8)


@settings(max_examples=30, deadline=None)
@given(texts, st.integers(1, 4))
def test_ngrams_are_equal_just_where_their_words_are(found: list[str], n: int) -> None:
    words = [text.split() for text in found]
    expected = [(i, tuple(row[k : k + n])) for i, row in enumerate(words) for k in range(len(row) - n + 1)]
    hashed = hash_words(pl.Series(found, dtype=pl.String))
    assert hashed.count.tolist() == [len(row) for row in words]
    text, gram = hashed.ngrams(n)
    assert text.tolist() == [i for i, _ in expected]
    names = dict(zip([gram for _, gram in expected], gram.tolist(), strict=False))
    assert gram.tolist() == [names[gram] for _, gram in expected]
    assert len(set(names.values())) == len(names)


def test_hashes_are_the_same_on_any_machine() -> None:
    assert hash_words(pl.Series(["Jump twice"])).hashes.tolist() == GOLDEN
    assert hash_words(pl.Series(["jump TWICE"])).ngrams(2)[1].tolist() == [GOLDEN_PAIR]
    assert (hash_words(pl.Series(["jump TWICE"]), ignore_case=False).hashes == GOLDEN).tolist() == [True, False]


def test_units_cut_texts_as_they_say() -> None:
    text = pl.Series(["It's 3.5, no?", None, ""])
    counts = {unit: hash_words(text, unit).count.tolist() for unit in ngrams.PATTERNS}
    assert counts == {"words": [3, 0, 0], "tokens": [9, 0, 0], "letters": [5, 0, 0], "characters": [11, 0, 0]}
    with pytest.raises(UsageError, match="no unit 'word'"):
        hash_words(text, "word")
    with pytest.raises(UsageError, match="0 words"):
        hash_words(text).ngrams(0)


def test_scripts_without_spaces_count_each_letter() -> None:
    text = pl.Series(["我们 have 3个 ไทย"])
    assert hash_words(text, "letters").count[0] == 8
    assert hash_words(text, "tokens").ngrams(2)[0].tolist() == [0] * 7
    assert hash_words(text).count[0] == 4


def test_whole_texts_of_one_length_have_the_hash_of_their_ngram() -> None:
    words = hash_words(pl.Series(["a b c", "a b", "a b c d", "x a b"]))
    text, gram = words.wholes(2)
    assert text.tolist() == [1]
    assert gram[0] == words.ngrams(2)[1][0]


def test_the_cut_into_slices_changes_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pl.Series([f"word{i % 11} other{i % 7} é{i}" for i in range(100)] + ["", "x" * 5000])
    whole = hash_words(found)
    monkeypatch.setattr(ngrams, "slices", lambda texts: slices(texts, 7, 100))
    cut = hash_words(found)
    assert np.array_equal(cut.hashes, whole.hashes)
    assert np.array_equal(cut.count, whole.count)
    assert [part.stop - part.start for part in slices(pl.Series(["aaaa", "b", "c", None, "d" * 50, "e"]), 3, 4)] == [
        1,
        3,
        1,
        1,
    ]


GOLDEN = [9752015515539093466, 2125291455061801233]
GOLDEN_PAIR = 420999438008182259

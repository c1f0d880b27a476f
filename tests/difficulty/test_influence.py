"""The TF-IDF pre-filter for influence: scikit-learn's numbers, the best first, ties by id."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty import influence_filter
from gradatim.tasks.difficulty.influence_filter import prefilter

WORDS = [f"{a}{b}" for a in ("ba", "co", "di", "fu", "ge", "hi") for b in ("lan", "mer", "nod", "pex", "rim")]


def _texts(n: int, seed: int = 0) -> pl.DataFrame:
    """Texts of three to twelve words, the first words of the list the more frequent ones."""
    random = np.random.default_rng(seed)
    weight = 1 / np.arange(1, len(WORDS) + 1)
    texts = [" ".join(random.choice(WORDS, random.integers(3, 13), p=weight / weight.sum())) for _ in range(n)]
    return pl.DataFrame({"example_id": [f"d{i:05d}" for i in range(n)], "input": texts})


@pytest.mark.parametrize("vocabulary", ["exact", "hashed"])
def test_similarities_are_those_of_scikit_learn(vocabulary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    monkeypatch.setattr(influence_filter, "CHUNK", 37)
    monkeypatch.setattr(influence_filter, "QUERIES", 2)
    documents, queries = _texts(200), _texts(5, 1)
    vectorizer = TfidfVectorizer().fit(documents["input"])
    expected = (
        vectorizer.transform(queries["input"]) @ vectorizer.transform(documents["input"]).T
    ).toarray()  # fmt: skip
    found = prefilter(documents, queries, top=20, vocabulary=vocabulary)  # type: ignore[arg-type]
    for place, query in enumerate(queries["example_id"]):
        rows = found.table.filter(pl.col("query_id") == query)
        order = np.lexsort((np.arange(200), -np.round(expected[place], 9)))[:20]
        order = order[expected[place][order] > 0]
        assert rows["similarity"].to_numpy() == pytest.approx(expected[place][order], abs=1e-9)
        assert rows["example_id"].to_list() == [f"d{i:05d}" for i in order]
        assert rows["rank"].to_list() == list(range(1, len(order) + 1))
    assert found.ids.to_list() == sorted(set(found.table["example_id"]))
    assert repr(found).endswith("of 200 documents for 5 queries")


def test_a_truth_column_tells_queries_from_documents() -> None:
    both = pl.DataFrame(
        {
            "example_id": ["a", "b", "c", "d", "e"],
            "text": ["red fox", "red fox red fox", "blue whale", "red whale", None],
            "asked": [True, False, False, None, False],
        }
    )
    found = prefilter(both, "asked", text="text")
    assert found.table["query_id"].unique().to_list() == ["a"]
    assert found.table["example_id"].to_list() == ["b", "d"]  # c has no common word
    assert found.table["similarity"][0] == pytest.approx(1)
    assert found.without_words.to_list() == ["e"]
    assert (found.documents, found.queries) == (4, 1)


@given(st.integers(0, 10**6), st.integers(1, 30))
@settings(max_examples=15)
def test_neither_the_order_of_rows_nor_the_limit_changes_who_comes_first(seed: int, top: int) -> None:
    documents, queries = _texts(60, seed), _texts(3, seed + 1)
    whole = prefilter(documents, queries).table
    some = prefilter(documents.sample(fraction=1, shuffle=True, seed=seed), queries.reverse(), top=top).table
    assert some.equals(whole.filter(pl.col("rank") <= top))


def test_equal_documents_are_ranked_by_id() -> None:
    documents = pl.DataFrame({"example_id": ["c", "a", "b"], "input": ["red fox"] * 3})
    found = prefilter(documents, pl.DataFrame({"example_id": ["q"], "input": ["fox"]}), top=2)
    assert found.table["example_id"].to_list() == ["a", "b"]


def test_documents_without_words_give_no_candidate() -> None:
    documents = pl.DataFrame({"example_id": ["a", "b"], "input": ["", "? !"]})
    queries = pl.DataFrame({"example_id": ["q"], "input": ["fox"]})
    for vocabulary in ("exact", "hashed"):
        found = prefilter(documents, queries, vocabulary=vocabulary)  # type: ignore[arg-type]
        assert len(found.table) == 0
        assert set(found.without_words) >= {"a", "b"}


def test_wrong_use_is_named() -> None:
    documents = _texts(3).with_columns(asked=pl.lit(False), number=pl.lit(1))
    for wrong, said in (
        (lambda: prefilter(documents, "askd"), "did you mean 'asked'"),
        (lambda: prefilter(documents, "number"), "type Int32"),
        (lambda: prefilter(documents, "asked", text="number"), "type Int32"),
        (lambda: prefilter(documents, "asked", text="inputs"), "did you mean 'input'"),
        (lambda: prefilter(documents, _texts(1), top=0), "top 0"),
        (lambda: prefilter(documents, _texts(1).drop("input")), "the queries have no column 'input'"),
    ):
        with pytest.raises(UsageError, match=said):
            wrong()
    with pytest.raises(DataRefused, match="no queries"):
        prefilter(documents, "asked")
    with pytest.raises(DataRefused, match="stands twice"):
        prefilter(pl.concat([documents, documents]), _texts(1))

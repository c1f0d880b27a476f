"""The TF-IDF pre-filter for influence functions: which training documents are worth a gradient.

Influence of every document on a query costs a gradient each. Those that share rare words with the query are looked at
first: rank by TF-IDF overlap, keep the best, hand these to an influence package. It is a retrieval, not a difficulty:
its numbers compare a document with a query, and are no property of the document. So it is a function and no plug-in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.neighbour_parts import LOW, NONE, UNIT, Ints

TOP = 10_000
"""Documents kept for a query. Recalled as that of R. Grosse et al. (2023), not checked against the paper."""
EXACT = 200_000
"""Up to so many documents words have columns of their own; beyond, they are hashed."""
HASHED = 2**20
"""Columns of hashed words."""
CHUNK, QUERIES = 16_384, 256
"""Documents and queries that are compared together."""


@dataclass(frozen=True, repr=False)
class Candidates:
    """Training documents to look at.

    Attributes
    ----------
    table : polars.DataFrame
        query_id, rank (from 1), example_id, similarity (cosine of TF-IDF, in (0, 1], rounded to 1e-9); sorted by query
        and rank. Ties are ranked by id. A document without a common word is no candidate.
    documents, queries : int
    without_words : polars.Series of str
        Ids of documents and queries that have none.
    """

    table: pl.DataFrame
    documents: int
    queries: int
    without_words: pl.Series

    @property
    def ids(self) -> pl.Series:
        """Return the candidates of all queries, each once, sorted: the documents to compute influence for."""
        return self.table["example_id"].unique().sort()

    def __repr__(self) -> str:
        return (
            f"candidates for influence: {len(self.ids):,} of {self.documents:,} documents for {self.queries:,} queries"
        )


def prefilter(
    examples: pl.DataFrame,
    queries: str | pl.DataFrame,
    *,
    text: str = "input",
    top: int = TOP,
    vocabulary: Literal["auto", "exact", "hashed"] = "auto",
) -> Candidates:
    """Rank training documents by their TF-IDF overlap with each query.

    Parameters
    ----------
    examples : polars.DataFrame
        example_id (unique) and the column `text`: the training documents.
    queries : str or polars.DataFrame
        Name of a truth column of `examples`, true for the queries (these are then no documents); or a frame with
        example_id and the column `text`.
    text : str
    top : int
        Most documents a query.
    vocabulary : "auto", "exact" or "hashed"
        A column for each word, or 2^20 columns for hashed words, whose memory does not grow with the documents; auto
        hashes beyond 200,000 documents.

    Returns
    -------
    Candidates

    Raises
    ------
    UsageError
        A column is not there or of a wrong type.
    DataRefused
        No document, no query, or an id twice.

    Notes
    -----
    Words are runs of two or more letters or digits in lower case; idf = ln((1 + n) / (1 + df)) + 1 over the documents;
    rows have length 1: scikit-learn's defaults. About 40 s a million short documents, and memory for one block of
    16,384; the exact vocabulary is first counted over all documents at once.

    Source: R. Grosse et al. (2023). Studying large language model generalization with influence functions.
    """
    if top < 1:
        raise UsageError(f"found top {top}", where="prefilter", expected="1 or more")
    documents, asked = _sides(examples, queries, text)
    hashed = vocabulary == "hashed" or (vocabulary == "auto" and len(documents) > EXACT)
    counter = _counter(documents["text"].to_list(), hashed)
    if counter is None:  # no document has a word
        empty = pl.DataFrame(
            schema={"query_id": pl.String, "rank": pl.Int64, "example_id": pl.String, "similarity": pl.Float64}
        )
        everyone = pl.concat([documents["example_id"], asked["example_id"]]).sort()
        return Candidates(empty, len(documents), len(asked), everyone)
    idf, quiet = _idf(documents["text"], counter)
    wanted = _weighted(counter.transform(asked["text"].to_list()), idf)
    quiet_queries = np.diff(wanted.indptr) == 0
    best = _best(documents["text"], counter, idf, wanted, min(top, len(documents)))
    query, place = np.nonzero(best != NONE)
    keys = best[query, place]
    table = pl.DataFrame(
        {
            "query_id": asked["example_id"].gather(query),
            "rank": place + 1,
            "example_id": documents["example_id"].gather(keys & LOW),
            "similarity": 1.0 - (keys >> 32) / UNIT,
        }
    )
    wordless = [documents["example_id"].filter(pl.Series(quiet)), asked["example_id"].filter(pl.Series(quiet_queries))]
    return Candidates(table, len(documents), len(asked), pl.concat(wordless).sort())


def _sides(examples: pl.DataFrame, queries: str | pl.DataFrame, text: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return documents and queries as sorted frames of example_id and text."""
    _texts(examples, text, "examples")
    if isinstance(queries, str):
        if queries not in examples.columns:
            raise UsageError(
                f"the examples have no column {queries!r}{nearest(queries, examples.columns)}",
                where="prefilter: queries",
                expected="a truth column, or a frame of example_id and text",
            )
        if examples.schema[queries] != pl.Boolean:
            raise UsageError(
                f"the column {queries!r} is of type {examples.schema[queries]}",
                where="prefilter: queries",
                expected="true for a query, false for a document",
            )
        mask = examples[queries].fill_null(False)
        examples, queries = examples.filter(~mask), examples.filter(mask)
    _texts(queries, text, "queries")
    sides = []
    for frame, name in ((examples, "documents"), (queries, "queries")):
        wanted = frame.select(
            pl.col("example_id").cast(pl.String), pl.col(text).cast(pl.String).fill_null("").alias("text")
        )
        if not len(wanted):
            raise DataRefused(f"there are no {name}", where="prefilter", expected="at least one")
        if wanted["example_id"].is_duplicated().any() or wanted["example_id"].null_count():
            raise DataRefused(f"an id of the {name} is null or stands twice", where="prefilter", expected="unique ids")
        sides.append(wanted.sort("example_id"))
    return sides[0], sides[1]


def _texts(frame: pl.DataFrame, text: str, name: str) -> None:
    for column in ("example_id", text):
        if column not in frame.columns:
            raise UsageError(
                f"the {name} have no column {column!r}{nearest(column, frame.columns)}",
                where="prefilter",
                expected=", ".join(frame.columns),
            )
    if frame.schema[text] not in (pl.String, pl.Categorical, pl.Null) and not isinstance(frame.schema[text], pl.Enum):
        raise UsageError(f"the column {text!r} is of type {frame.schema[text]}", where="prefilter", expected="text")


def _counter(texts: list[str], hashed: bool) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    if hashed:
        return HashingVectorizer(n_features=HASHED, norm=None, alternate_sign=False)
    try:
        return CountVectorizer().fit(texts)
    except ValueError:  # an empty vocabulary
        return None


def _chunks(texts: pl.Series) -> Iterator[tuple[int, list[str]]]:
    for start in range(0, len(texts), CHUNK):
        yield start, texts.slice(start, CHUNK).to_list()


def _idf(texts: pl.Series, counter: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the weight of each word, and which documents have none."""
    frequency: Any = 0
    quiet = np.zeros(len(texts), dtype=bool)
    for start, part in _chunks(texts):
        counts = counter.transform(part)
        frequency = frequency + np.bincount(counts.indices, minlength=counts.shape[1])
        quiet[start : start + len(part)] = np.diff(counts.indptr) == 0
    return np.log((1 + len(texts)) / (1 + frequency)) + 1, quiet


def _weighted(counts: Any, idf: NDArray[np.float64]) -> Any:
    """Turn counts into TF-IDF rows of length 1; rows without a word stay empty."""
    rows = counts.astype(np.float64).tocsr()
    rows.sort_indices()
    rows.data *= idf[rows.indices]
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    length = np.sqrt(np.bincount(owner, rows.data**2, minlength=rows.shape[0]))
    rows.data /= length[owner]
    return rows


def _best(texts: pl.Series, counter: Any, idf: NDArray[np.float64], wanted: Any, top: int) -> Ints:
    """Return keys (1 - similarity rounded to 1e-9, row) of the `top` best documents of each query, ascending."""
    best = np.full((wanted.shape[0], top), NONE, dtype=np.int64)
    for start, part in _chunks(texts):
        rows = _weighted(counter.transform(part), idf)
        for first in range(0, wanted.shape[0], QUERIES):
            some = slice(first, first + QUERIES)
            similar = (wanted[some] @ rows.T).toarray()
            keys = np.rint((1.0 - np.clip(similar, 0.0, 1.0)) * UNIT).astype(np.int64) << 32
            keys |= np.arange(start, start + len(part))
            keys[similar <= 0] = NONE
            both = np.concatenate([best[some], keys], axis=1)
            best[some] = np.partition(both, top - 1, axis=1)[:, :top]
    best.sort(axis=1)
    return best

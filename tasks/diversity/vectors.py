"""Vectors to measure diversity on: a features table, a column of lists, or hashed words of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import EMBEDDING

HASHED_WIDTH = 256
"""Width of hashed text vectors."""

Floats = NDArray[np.float64]


def hashed_ngrams(texts: list[str], width: int = HASHED_WIDTH) -> Floats:
    """Return unit vectors of counts of words and pairs of neighbouring words, hashed to a fixed width.

    Parameters
    ----------
    texts : list of str
        Words are what stands between white space, in lower case.
    width : int

    Returns
    -------
    numpy.ndarray, shape (len(texts), width), float64
        Signed hashing (MurmurHash3, the same on any machine); a text without words is a row of zeros.

    Notes
    -----
    No model and no download: it sees words, not meaning. About 50,000 short texts a second.

    Source: K. Weinberger et al. (2009). Feature hashing for large scale multitask learning.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    vectorizer = HashingVectorizer(n_features=width, ngram_range=(1, 2), token_pattern=r"\S+", norm="l2")
    return np.asarray(vectorizer.transform(texts).toarray(), dtype=np.float64) if texts else np.empty((0, width))


def vector_source(
    tables: Mapping[str, pl.DataFrame], features: str, column: str
) -> tuple[pl.DataFrame, Callable[[pl.DataFrame], Floats]]:
    """Find the vectors of the examples.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``examples``, and ``features_NAME`` where `features` names one.
    features : str
        Name of a features table, or an empty string.
    column : str
        Column of examples: text (hashed), or lists or arrays of numbers.

    Returns
    -------
    polars.DataFrame
        Sorted by example_id, with the columns of examples and ``vector``; rows without a vector are left out.
    callable
        Turns some of these rows into an array of shape (rows, width), float64, not normalised.
    """
    examples = tables["examples"]
    if features:
        name = f"features_{features}"
        if name not in tables:
            known = [table.removeprefix("features_") for table in tables if table.startswith("features_")]
            raise UsageError(
                f"there is no features table {features!r}{nearest(features, known)}",
                where="diversity vendi",
                expected=", ".join(known) or "a table features_NAME beside examples",
            )
        vectors = tables[name].select("example_id", vector=pl.col(EMBEDDING))
        rows = examples.join(vectors, on="example_id", how="inner")
    else:
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where="diversity vendi",
                expected=", ".join(examples.columns),
            )
        rows = examples.with_columns(vector=pl.col(column))
    rows = rows.drop_nulls("vector").sort("example_id")
    kind = rows.schema["vector"]
    if kind == pl.String:
        return rows, lambda part: hashed_ngrams(part["vector"].to_list())
    if isinstance(kind, (pl.List, pl.Array)) and kind.inner is not None and kind.inner.is_numeric():
        return rows, _numbers
    raise UsageError(
        f"column {column!r} holds {kind}", where="diversity vendi", expected="text, or lists of numbers of one length"
    )


def normalised(vectors: NDArray[Any]) -> Floats:
    """Return rows of length 1; raises `DataRefused` for rows that hold NaN or infinity, keeps rows of zeros."""
    rows = np.asarray(vectors, dtype=np.float64)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise DataRefused(
            f"{int(bad.sum()):,} of {len(rows):,} vectors hold NaN or infinity, first in row {int(bad.argmax())}",
            expected="finite numbers",
            remedy="make these vectors again, or reject these rows",
        )
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    rows = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)  # squares neither over- nor underflow
    length = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit: Floats = rows / np.where(length > 0, length, 1)
    return unit


def _numbers(part: pl.DataFrame) -> Floats:
    column = part["vector"]
    if isinstance(column.dtype, pl.List):
        widths = column.list.len().unique()
        if len(widths) > 1:
            raise DataRefused(
                f"the vectors have different lengths: {sorted(widths.to_list())[:5]}",
                expected="one length for all rows",
            )
        column = column.list.to_array(int(widths[0])) if len(widths) else column.list.to_array(0)
    found: Floats = np.asarray(column.to_numpy(), dtype=np.float64).reshape(len(part), -1)
    return found

"""Vectors to measure diversity on: a features table, a column of lists, or hashed words of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.neighbour_parts import norms_of, scaled

HASHED_WIDTH = 256
"""Width of hashed text vectors."""
SLICE = 65_536
"""Rows whose vectors are read together."""
SUBSETS = 5_000
"""Values of a column up to which each is measured as a subset."""

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
    tables: Mapping[str, pl.DataFrame], features: str, column: str, where: str = "diversity vendi"
) -> tuple[pl.DataFrame, Callable[[pl.DataFrame], NDArray[Any]]]:
    """Find the vectors of the examples.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        ``examples``, and ``features_NAME`` where `features` names one.
    features : str
        Name of a features table, or an empty string: then the only one that there is, or else `column`.
    column : str
        Column of examples: text (hashed), or lists or arrays of numbers.
    where : str
        Who asks, for errors.

    Returns
    -------
    polars.DataFrame
        Sorted by example_id, with the columns of examples and ``vector``; rows without a vector are left out.
    callable
        Turns some of these rows into an array of shape (rows, width), not normalised.
    """
    examples = tables["examples"]
    examples = examples if examples["example_id"].is_sorted() else examples.sort("example_id")
    known = [table.removeprefix("features_") for table in tables if table.startswith("features_")]
    features = features or (known[0] if len(known) == 1 and column in ("", "input") else "")
    if features:
        name = f"features_{features}"
        if name not in tables:
            raise UsageError(
                f"there is no features table {features!r}{nearest(features, known)}",
                where=where,
                expected=", ".join(known) or "a table features_NAME beside examples",
            )
        rows = _with_features(examples, tables[name], f"{where}: features {features}")
    else:
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where=where,
                expected=", ".join(examples.columns),
            )
        rows = examples.with_columns(vector=pl.col(column))
    if rows["vector"].null_count():
        rows = rows.drop_nulls("vector")
    kind = rows.schema["vector"]
    if kind == pl.String:
        return rows, lambda part: hashed_ngrams(part["vector"].to_list())
    if isinstance(kind, (pl.List, pl.Array)) and kind.inner is not None and kind.inner.is_numeric():
        return rows, _numbers
    raise UsageError(f"column {column!r} holds {kind}", where=where, expected="text, or lists of numbers of one length")


@dataclass(frozen=True)
class Located:
    """Examples with their vectors.

    Attributes
    ----------
    rows : polars.DataFrame
        Columns of examples, sorted by example_id.
    matrix : numpy.ndarray, shape (len(rows), d), float32
        Finite; under cosine of length 1.
    warnings : tuple of str
        What was left out.
    name : str
        The features, the column, or "hashed words".
    """

    rows: pl.DataFrame
    matrix: NDArray[np.float32]
    warnings: tuple[str, ...]
    name: str

    @property
    def ids(self) -> pl.Series:
        """Ids of the rows."""
        return self.rows["example_id"]


def locate(
    tables: Mapping[str, pl.DataFrame], features: str, column: str, where: str, *, cosine: bool = True
) -> Located:
    """Take the vectors of the examples as one matrix, those without (or, under cosine, without a direction) left out.

    Parameters as for `vector_source`. Raises `DataRefused` where no example has one, or one holds NaN or infinity (the
    first id is named). Memory: 4 bytes a number, and as much again while rows of zeros are left out.
    """
    found, read = vector_source(tables, features, column, where)
    text = found.schema["vector"] == pl.String
    if text and len(found):
        parts = [read(part).astype(np.float32) for part in found.iter_slices(SLICE)]
        matrix = np.concatenate(parts)
        del parts
    else:  # vectors of float32 in one piece are not copied
        matrix = np.asarray(read(found), dtype=np.float32) if len(found) else np.zeros((0, 1), dtype=np.float32)
    ids = found["example_id"]
    finite(matrix, ids, where)
    rows = found.drop("vector")
    missing = len(tables["examples"]) - len(rows)
    warnings = [f"{missing:,} examples have no vector and were left out"] if missing else []
    if cosine:
        norms = norms_of(matrix)
        held = norms > 0
        if not held.all():
            count = len(held) - int(held.sum())
            warnings.append(f"{count:,} examples have a vector of zeros (no words?) and were left out")
            rows, matrix, norms = rows.filter(pl.Series(held)), matrix[held], norms[held]
        matrix = scaled(matrix, norms)
    if not len(rows):
        raise DataRefused(
            f"none of {len(tables['examples']):,} examples has a vector{' that is not zero' if cosine else ''}",
            where=where,
            expected="at least one row with words or numbers",
            remedy="name another column or features table, or drop this measure",
        )
    return Located(rows, matrix, tuple(warnings), features or ("hashed words" if text else column))


def normalised(vectors: NDArray[Any]) -> Floats:
    """Return rows of length 1; raises `DataRefused` for rows that hold NaN or infinity, keeps rows of zeros."""
    rows = np.array(vectors, dtype=np.float64)
    square = np.einsum("nd,nd->n", rows, rows)
    plain = (square > 1e-200) & (square < 1e200)
    if not plain.all():
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise DataRefused(
                f"{int(bad.sum()):,} of {len(rows):,} vectors hold NaN or infinity, first in row {int(bad.argmax())}",
                expected="finite numbers",
                remedy="make these vectors again, or reject these rows",
            )
        rest = rows[~plain]
        largest = np.abs(rest).max(axis=1, keepdims=True, initial=0)
        rest = np.divide(rest, largest, out=np.zeros_like(rest), where=largest > 0)  # squares stay in range
        rows[~plain] = rest
        square[~plain] = np.einsum("nd,nd->n", rest, rest)
    rows *= (1 / np.sqrt(np.where(square > 0, square, 1)))[:, None]
    return rows


def directed(block: NDArray[Any]) -> Floats:
    """Return the rows of a block that have a direction, of length 1."""
    unit = normalised(block)
    held = unit.any(axis=1)
    return unit if held.all() else unit[held]


def text_column(examples: pl.DataFrame, column: str, where: str) -> pl.Series:
    """Return a column as text, nested ones as JSON; raises `UsageError` for one that there is not."""
    if column not in examples.columns:
        raise UsageError(
            f"examples has no column {column!r}{nearest(column, examples.columns)}",
            where=where,
            expected=", ".join(examples.columns),
        )
    values = examples[column]
    if values.dtype.is_nested():
        nested = examples.select(pl.struct(pl.col(column)).struct.json_encode())[column]
        return nested.set(values.is_null(), None)
    return values.cast(pl.String)


def subset_names(column: pl.Series, where: str) -> list[str]:
    """Return the values of a text column of subsets, sorted; raises `UsageError` for more than `SUBSETS`."""
    names: list[str] = column.drop_nulls().unique().sort().to_list()
    if len(names) > SUBSETS:
        raise UsageError(
            f"{column.name} has {len(names):,} values",
            where=where,
            expected=f"at most {SUBSETS:,} subsets",
            remedy="name a coarser column with by:",
        )
    return names


def _with_features(examples: pl.DataFrame, table: pl.DataFrame, where: str) -> pl.DataFrame:
    """Join vectors by light columns, so that vectors in the order of ids are not copied."""
    left = examples.select("example_id").with_row_index("left")
    right = table.select(pl.col("example_id").cast(pl.String)).with_row_index("right")
    both = left.join(right, on="example_id", how="inner").sort("left", "right")
    if both["left"].is_duplicated().any():
        twice = both.filter(both["left"].is_duplicated())["example_id"][0]
        raise DataRefused(f"the id {twice!r} stands twice", where=where, expected="one vector an example")
    vectors, place = table[EMBEDDING], both["right"]
    if len(place) != len(vectors) or not (place.to_numpy() == np.arange(len(place))).all():
        vectors = vectors.gather(place)
    rows = examples if len(both) == len(examples) else examples[both["left"]]
    return rows.with_columns(vectors.alias("vector"))


def _numbers(part: pl.DataFrame) -> NDArray[Any]:
    column = part["vector"]
    if isinstance(column.dtype, pl.List):
        widths = column.list.len().unique()
        if len(widths) > 1:
            raise DataRefused(
                f"the vectors have different lengths: {sorted(widths.to_list())[:5]}",
                expected="one length for all rows",
            )
        column = column.list.to_array(int(widths[0])) if len(widths) else column.list.to_array(0)
    narrow = column.dtype.inner == pl.Float32  # type: ignore[attr-defined]
    found = np.asarray(column.to_numpy(), dtype=np.float32 if narrow else np.float64)
    return found.reshape(len(part), -1) if len(part) else found.reshape(0, column.dtype.shape[0])  # type: ignore[attr-defined]

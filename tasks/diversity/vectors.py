"""Vectors to measure diversity on: a features table, a column of lists, or hashed words of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.embeddings import finite, numbers
from gradatim.tasks.core.mapped import taken
from gradatim.tasks.core.neighbour_parts import norms_of
from gradatim.tasks.core.registry import Config
from gradatim.tasks.core.row_numbers import counted, matched, twice
from gradatim.tasks.core.vector_rows import SLICE, VectorRows, scratch

HASHED_WIDTH = 256
"""Width of hashed text vectors."""
HASHING = 2e-5
"""Seconds that it takes to hash a text."""
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


class OnVectors(Config):
    """Settings of a measure of vectors, for which `column` stands in where no `features` are named."""

    def named(self, setting: str) -> Any:
        """Return what a setting puts into a need: texts are not read where vectors are."""
        stands_in = setting == "column" and bool(getattr(self, "features", None))
        return "" if stands_in else super().named(setting)


@dataclass(frozen=True)
class HashedTexts:
    """Vectors of hashed words, made when they are asked for.

    Attributes
    ----------
    texts : polars.Series of str, without nulls
    """

    texts: pl.Series

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return len(self.texts), HASHED_WIDTH

    def __getitem__(self, rows: slice | NDArray[Any]) -> Floats:
        some = self.texts[rows] if isinstance(rows, slice) else self.texts.gather(rows)
        return hashed_ngrams(some.to_list())

    def kept(self) -> NDArray[np.float32]:
        """Hash all texts once: in memory, or on disk where they are many (`scratch`)."""
        out = scratch(*self.shape)
        for start in range(0, len(out), SLICE):
            out[start : start + SLICE] = self[start : start + SLICE]
        return out


def vector_source(
    tables: Mapping[str, pl.DataFrame], features: str, column: str, where: str = "diversity vendi"
) -> tuple[pl.DataFrame, VectorRows]:
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
        The columns of examples, sorted by example_id; rows without a vector are left out.
    VectorRows
        The vector of each of these rows, not normalised; none is copied or made before it is read, but of lists and of
        numbers other than floats.
    """
    examples = tables["examples"]
    if "example_id" not in examples.columns:
        raise UsageError(
            f"examples has no column 'example_id'{nearest('example_id', examples.columns)}",
            where=where,
            expected="ids of the rows, by which vectors are found and rows are drawn",
            remedy="name the column of ids: gd.read(..., id=COLUMN)",
        )
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
        left, place = _matched(examples, tables[name], f"{where}: features {features}")
        vectors = tables[name][EMBEDDING]
    else:
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where=where,
                expected=", ".join(examples.columns),
            )
        left, place, vectors = None, None, examples[column]
    if vectors.null_count():
        held = vectors.is_not_null().to_numpy()
        rows = np.arange(len(vectors)) if place is None else place
        kept = held[rows]
        left = np.flatnonzero(kept) if left is None else left[kept]
        place = rows[kept]
    rows_of = examples if left is None else taken(examples, left)
    if vectors.dtype == pl.String:
        texts = vectors if place is None else vectors.gather(place)
        return rows_of, VectorRows(HashedTexts(texts), dtype=np.float64)
    kind = vectors.dtype
    if not isinstance(kind, (pl.List, pl.Array)) or kind.inner is None or not kind.inner.is_numeric():
        raise UsageError(
            f"column {column!r} holds {kind}", where=where, expected="text, or lists of numbers of one length"
        )
    if isinstance(kind, pl.List):
        widths = vectors.list.len().drop_nulls().unique().sort()
        if len(widths) > 1:
            raise DataRefused(
                f"the vectors have different lengths: {widths.to_list()[:5]}", expected="one length for all rows"
            )
        vectors = vectors.list.to_array(int(widths[0]) if len(widths) else 0)
    source = numbers(vectors)
    return rows_of, VectorRows(source, place, dtype=source.dtype)


@dataclass(frozen=True)
class Located:
    """Examples with their vectors.

    Attributes
    ----------
    rows : polars.DataFrame
        Columns of examples, sorted by example_id.
    matrix : VectorRows, shape (len(rows), d), float32
        Finite; under cosine of length 1. Read some rows at a time.
    warnings : tuple of str
        What was left out.
    name : str
        The features, the column, or "hashed words".
    """

    rows: pl.DataFrame
    matrix: VectorRows
    warnings: tuple[str, ...]
    name: str

    @property
    def ids(self) -> pl.Series:
        """Ids of the rows."""
        return self.rows["example_id"]


def locate(
    tables: Mapping[str, pl.DataFrame], features: str, column: str, where: str, *, cosine: bool = True
) -> Located:
    """Find the vectors of the examples, those without (or, under cosine, without a direction) left out.

    Parameters as for `vector_source`. Raises `DataRefused` where no example has one, or one holds NaN or infinity (the
    first id is named). Vectors are looked through some rows at a time and stay where they are: 1 byte a row.
    """
    rows, source = vector_source(tables, features, column, where)
    text = isinstance(source.source, HashedTexts)
    if isinstance(source.source, HashedTexts):
        source = VectorRows(source.source.kept())
    matrix = replace(source, dtype=np.float32)
    ids = rows["example_id"]
    held = np.ones(len(matrix), dtype=bool)
    for part, some in matrix.slices():
        norms = norms_of(some)
        if not np.isfinite(norms).all():
            finite(matrix, ids, where)
        held[part] = norms > 0
    missing = len(tables["examples"]) - len(rows)
    warnings = [f"{missing:,} examples have no vector and were left out"] if missing else []
    if cosine:
        if not held.all():
            count = len(held) - int(held.sum())
            warnings.append(f"{count:,} examples have a vector of zeros (no words?) and were left out")
            rows, matrix = taken(rows, np.flatnonzero(held)), matrix.view(held)
        matrix = replace(matrix, unit=True)
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
    names: list[str] = counted(column)["name"].sort().to_list()
    if len(names) > SUBSETS:
        raise UsageError(
            f"{column.name} has {len(names):,} values",
            where=where,
            expected=f"at most {SUBSETS:,} subsets",
            remedy="name a coarser column with by:",
        )
    return names


def _matched(
    examples: pl.DataFrame, table: pl.DataFrame, where: str
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Return the rows of examples that have a vector and the place of each; None for all of them, in their order."""
    left, right = examples["example_id"].cast(pl.String), table["example_id"].cast(pl.String)
    plain = right.is_sorted() and not left.null_count() + right.null_count()
    if plain and twice(left) is None and twice(right) is None:
        if len(left) == len(right) and (left == right).all():
            return None, None
        one, other = matched(left, right)
        return None if len(one) == len(left) else one, other
    both = (
        pl.DataFrame({"id": left})
        .with_row_index("left")
        .join(pl.DataFrame({"id": right}).with_row_index("right"), on="id", how="inner")
        .sort("left", "right")
    )
    if both["left"].is_duplicated().any():
        again = both.filter(both["left"].is_duplicated())["id"][0]
        raise DataRefused(f"the id {again!r} stands twice", where=where, expected="one vector an example")
    whole = len(both) == len(examples)
    return None if whole else both["left"].to_numpy().astype(np.int64), both["right"].to_numpy().astype(np.int64)

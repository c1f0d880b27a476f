"""The vectors of each environment's examples, and which of them are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.embeddings import features_at_hand, placed_rows
from gradatim.tasks.core.mapped import taken
from gradatim.tasks.core.row_numbers import counted, mapped_over, matched, per_row, twice
from gradatim.tasks.core.two_sample import folds
from gradatim.tasks.core.vector_rows import VectorRows
from gradatim.tasks.diversity.environments import EnvironmentConfig, Environments, as_text, codes, environments_of
from gradatim.tasks.diversity.vectors import HashedTexts

Integers = NDArray[np.int64]
MOST_LABELS = 1_000
"""Labels up to which a column is one of labels, not of free texts."""


@dataclass(frozen=True)
class Placed:
    """Vectors with what is known of each, in the order of their ids.

    Attributes
    ----------
    ids : polars.Series of str, length n
        Sorted.
    matrix : VectorRows, shape (n, d), float32
        Read where they are used: ``matrix[rows]``.
    environment, label : numpy.ndarray, shape (n,), int32
        Numbers of names; -1 where there is none.
    fold : numpy.ndarray, shape (n,), int64
        In [0, 5), the same for rows that are kept together.
    draw : numpy.ndarray, shape (n,), float64
        Those with the smallest numbers are taken where there are too many.
    environments : Environments
    labels : tuple of str
    warnings : tuple of str
    kind : str
        What the vectors are.
    """

    ids: pl.Series
    matrix: VectorRows
    environment: NDArray[np.int32]
    label: NDArray[np.int32]
    fold: Integers
    draw: NDArray[np.float64]
    environments: Environments
    labels: tuple[str, ...]
    warnings: tuple[str, ...]
    kind: str

    def rows(self, side: tuple[int, ...], label: int | None = None) -> Integers:
        """Return the positions of a side's rows, of one label where one is named, ascending."""
        here = np.isin(self.environment, side)
        return np.flatnonzero(here if label is None else here & (self.label == label)).astype(np.int64)

    def take(self, rows: Integers, most: int) -> Integers:
        """Return at most `most` of these rows, ascending, chosen by hash."""
        if len(rows) <= most:
            return rows
        return np.sort(rows[np.argsort(self.draw[rows], kind="stable")[:most]])


def placed_vectors(
    tables: Mapping[str, pl.DataFrame],
    config: EnvironmentConfig,
    where: str,
    *,
    features: str,
    column: str,
    label: str,
    together: str,
    seed: int,
) -> Placed:
    """Find each example's vector, environment, label and fold.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
    config : EnvironmentConfig
    where : str
        Who asks, for errors.
    features, column, label, together : str
        Settings: the features table (the only one at hand where none is named), else a column of texts, whose words are
        hashed; the column of labels; the column whose rows stay in one fold.
    seed : int

    Raises
    ------
    UsageError, DataRefused
        No vectors, an id twice, NaN, different widths, an environment without any vector.
    """
    environments = environments_of(tables, config, where)
    examples = tables["examples"]
    examples = examples if examples["example_id"].is_sorted() else examples.sort("example_id")
    names_of = examples["example_id"].cast(pl.String)
    again = twice(names_of)
    if again is not None:
        raise DataRefused(f"the id {again!r} stands twice", where=where, expected="unique ids")
    code = codes(as_text(examples, config.environment, where), environments.names)
    known = [names_of.alias("example_id")]
    known += [
        as_text(examples, column, where).alias(name) for column, name in ((label, "label"), (together, "key")) if column
    ]
    if features or any(name.startswith("features_") for name in tables):
        names = [features] if features else features_at_hand(tables, where)
        if len(names) > 1:
            raise UsageError("there are several features", where=where, expected=f"features: {' or '.join(names)}")
        ids, matrix, _ = placed_rows(tables, names[0], where)
        kind = "features"
    else:
        ids, matrix, kind = (*_hashed(examples, column, where), "hashed words")
    wanted = code >= 0
    places, vectors = matched(names_of, ids)
    if not wanted.all():
        held = wanted[places]
        places, vectors = places[held], vectors[held]
    lacking = int(wanted.sum()) - len(places)
    whole = len(places) == len(examples)
    rows = pl.DataFrame(known) if whole else taken(pl.DataFrame(known), places)
    ids, matrix = rows["example_id"], matrix.view(vectors)
    code = code if whole else code[places]
    empty = [name for i, name in enumerate(environments.names) if not (code == i).any()]
    if empty:
        raise DataRefused(
            f"no example of {config.environment}={empty[0]} has a vector",
            where=where,
            expected="a vector of each environment's examples",
        )
    labels = tuple(counted(rows["label"])["name"].sort().to_list()) if label else ()
    if label and not labels:
        raise DataRefused(f"column {label!r} has no value", where=where, expected="labels of examples with a vector")
    if len(labels) > MOST_LABELS:
        raise UsageError(
            f"column {label!r} has {len(labels):,} different values",
            where=where,
            expected=f"labels: at most {MOST_LABELS:,} of them",
            remedy="name a column of labels: label: COLUMN",
        )
    warnings = list(environments.warnings)
    if lacking:
        warnings.append(f"{lacking:,} examples have no vector and were left out")
    unlabelled = rows["label"].null_count() if label else 0
    if unlabelled:
        warnings.append(f"{unlabelled:,} examples have no {label}")
    key = rows["key"] if together else ids

    def fold(part: slice) -> Integers:
        return folds(key[part].fill_null(ids[part]), seed)

    number = codes(rows["label"], labels) if label else per_row(len(rows), np.int32, -1)
    draw = mapped_over(len(ids), lambda part: uniform(ids[part], seed, "shift auc"))
    return Placed(
        ids, matrix, code, number, mapped_over(len(ids), fold, np.int64), draw,
        environments, labels, tuple(warnings), kind,
    )  # fmt: skip


def _hashed(examples: pl.DataFrame, column: str, where: str) -> tuple[pl.Series, VectorRows]:
    if column not in examples.columns:
        raise UsageError(
            f"there are no features, and examples has no column {column!r}{nearest(column, examples.columns)}",
            where=where,
            expected="a table features_NAME, or a column of texts: " + ", ".join(examples.columns),
        )
    if examples.schema[column] != pl.String:
        raise UsageError(f"column {column!r} holds {examples.schema[column]}", where=where, expected="texts")
    rows = examples.select(pl.col("example_id").cast(pl.String), pl.col(column)).drop_nulls().sort("example_id")
    return rows["example_id"], VectorRows(HashedTexts(rows[column]).kept())

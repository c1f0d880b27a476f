"""Vectors with a class each: what the measures of task difficulty look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.embeddings import features_at_hand, vectors_of


@dataclass(frozen=True)
class Classified:
    """Examples with a vector and a class, sorted by id.

    Attributes
    ----------
    features : str
        Name of the vectors.
    ids : polars.Series of str, length N
    matrix : (N, d) float32, finite
    names : tuple of str
        Classes, sorted.
    classes : (N,) int64
        Place in `names`.
    excluded : polars.DataFrame
        example_id, reason.
    """

    features: str
    ids: pl.Series
    matrix: NDArray[np.float32]
    names: tuple[str, ...]
    classes: NDArray[np.int64]
    excluded: pl.DataFrame

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Examples of each class."""
        return np.bincount(self.classes, minlength=len(self.names)).astype(np.int64)

    def take(self, rows: NDArray[np.int64], reason: str) -> Classified:
        """Keep some rows, in order of id; the others are excluded for `reason`."""
        rows = np.sort(rows)
        left = pl.DataFrame({"example_id": self.ids.filter(~pl.Series(np.isin(np.arange(len(self.ids)), rows)))})
        return Classified(
            self.features,
            self.ids.gather(rows),
            self.matrix[rows],
            self.names,
            self.classes[rows],
            pl.concat([self.excluded, left.with_columns(reason=pl.lit(reason))]).sort("example_id"),
        )


def classified(tables: Mapping[str, pl.DataFrame], features: str | None, label: str, where: str) -> Classified:
    """Join the vectors of ``features_{features}``, or the only ones there are, with the examples' column `label`.

    Raises
    ------
    UsageError
        If there is no such table or column.
    DataRefused
        As `embeddings.vectors_of`; if no example has both, there is one class, or a class for nearly every example.
    """
    if features is None:
        features, *more = features_at_hand(tables, where)
        if more:
            raise UsageError(
                f"there are several features: {', '.join([features, *more])}", where=where, remedy="name one: features"
            )
    found = vectors_of(tables, features, where)
    examples = tables["examples"]
    if label not in examples.columns:
        raise UsageError(
            f"the examples have no column {label!r}{nearest(label, examples.columns)}",
            where=f"{where}: label",
            expected="one of " + ", ".join(c for c in examples.columns if c != "example_id"),
        )
    kind = examples.schema[label]
    if kind.is_nested():
        raise UsageError(f"the column {label!r} is of type {kind}", where=f"{where}: label", expected="text or numbers")
    labels = examples.select(pl.col("example_id").cast(pl.String), pl.col(label).cast(pl.String).alias("label"))
    if kind.is_float():
        labels = labels.with_columns(pl.when(pl.col("label") != "NaN").then("label"))
    rows = pl.DataFrame({"example_id": found.ids}).with_row_index("row")
    both = labels.join(rows, on="example_id", how="full", coalesce=True).sort("example_id")
    usable = both.drop_nulls(["label", "row"])
    reason = pl.when(pl.col("row").is_null()).then(pl.lit("no vector")).otherwise(pl.lit("no label"))
    gone = both.filter(pl.col("row").is_null() | pl.col("label").is_null()).select("example_id", reason=reason)
    names = usable["label"].unique().sort()
    if len(names) < 2:
        raise DataRefused(
            f"the column {label!r} holds {len(names)} class among {len(usable):,} examples with a vector",
            where=where,
            expected="two classes or more",
        )
    if 2 * len(names) > len(usable) and len(usable) > 4:
        raise DataRefused(
            f"the column {label!r} holds {len(names):,} different values in {len(usable):,} examples",
            where=where,
            expected="classes with several examples each",
            remedy="cut a number into ranges first",
        )
    classes = usable["label"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
    return Classified(
        features, usable["example_id"], found.matrix[usable["row"].to_numpy()], tuple(names), classes, gone
    )

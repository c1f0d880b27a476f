"""What the methods on trees share: reading them, setting rows without one apart, and the rows to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.distinct_trees import DistinctTrees, distinct
from gradatim.tasks.core.registry import Config
from gradatim.tasks.core.trees import parse
from gradatim.tasks.difficulty.rows import example_column


class TreeConfig(Config):
    """Settings of what is counted on a tree."""

    of: str = Field("structure", min_length=1, description="column of trees")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@dataclass(frozen=True)
class Structures:
    """The rows that have a tree, sorted by id.

    Attributes
    ----------
    ids : polars.Series of String, length N
    trees : DistinctTrees
        Of these rows.
    reference : numpy.ndarray of bool, shape (N,)
        Whether a row is one of those that the others are compared with.
    excluded : polars.DataFrame
        example_id, reason: the rows without a tree.
    """

    ids: pl.Series
    trees: DistinctTrees
    reference: np.ndarray
    excluded: pl.DataFrame


def read_structures(
    tables: Mapping[str, pl.DataFrame],
    column: str,
    where: str,
    reference: str | None = None,
    value: str | int | bool | None = None,
) -> Structures:
    """Read a column of trees, or of trees as text in brackets or JSON lists.

    Parameters
    ----------
    reference, value : optional
        Column and value that name the reference rows: by default true in a column of truths, else "train". Without a
        column, all rows are.

    Raises
    ------
    UsageError
        If there is no such column or it holds no trees.
    DataRefused
        For what is no tree (the examples are named), no tree at all, or no reference row with a tree.
    """
    frame = example_column(tables, column, where)
    trees = frame["found"]
    if trees.dtype == pl.String:
        trees, wrong = parse(trees)
        bad = pl.DataFrame({"example_id": frame["example_id"], "wrong": wrong}).filter(pl.col("wrong") != "no nodes")
        if len(bad):
            raise DataRefused(
                f"{len(bad):,} of {len(frame):,} texts are no trees: {bad['wrong'][0]} "
                f"(example {', '.join(map(repr, bad['example_id'].head(3)))})",
                where=where,
                expected='brackets such as (S (NP they) (VP run)), or JSON lists such as ["S", ["NP", "they"]]',
            )
    if trees.null_count() == len(trees):
        raise DataRefused("no row holds a tree", where=where, expected="a tree in some rows")
    found = distinct(trees, frame["example_id"], where=where)
    there = pl.Series(found.tree >= 0)
    if not there.any():
        raise DataRefused("every tree is empty", where=where, expected="a tree with nodes in some rows")
    chosen = np.ones(len(frame), dtype=bool)
    if reference is not None:
        chosen = _reference(example_column(tables, reference, where)["found"], value, f"{where}: {reference}")
        if not (chosen & (found.tree >= 0)).any():
            raise DataRefused("no reference row holds a tree", where=f"{where}: {reference}", expected="at least one")
    reason = pl.when(pl.col("found").is_null()).then(pl.lit("no structure")).otherwise(pl.lit("a tree without nodes"))
    return Structures(
        frame["example_id"].filter(there),
        DistinctTrees(found.forest, found.label, found.labels, found.tree[found.tree >= 0]),
        chosen[found.tree >= 0],
        frame.filter(~there).select("example_id", reason.alias("reason")),
    )


def _reference(column: pl.Series, value: str | int | bool | None, where: str) -> np.ndarray:
    """Whether each row of the column holds the value; a null does not."""
    wanted = (True if column.dtype == pl.Boolean else "train") if value is None else value
    if isinstance(wanted, bool) != (column.dtype == pl.Boolean):
        raise UsageError(
            f"reference_value is {wanted!r}, the column is of type {column.dtype}",
            where=where,
            expected="true or false for a column of truths, a text or whole number for others",
        )
    held = (column if isinstance(wanted, bool) else column.cast(pl.String)).drop_nulls()
    wanted = wanted if isinstance(wanted, bool) else str(wanted)
    if not (held == wanted).any():
        values = [str(v) for v in held.unique().sort().head(12)]
        raise UsageError(
            f"no row holds {wanted!r}{nearest(str(wanted), values)}",
            where=where,
            expected="one of " + (", ".join(map(repr, values)) or "(all rows are null)"),
            remedy="name the value of the training rows:  reference_value: VALUE",
        )
    return (column.cast(held.dtype) == wanted).fill_null(False).to_numpy()

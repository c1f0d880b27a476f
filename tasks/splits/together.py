"""Which rows stay together, and by which name they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.tasks.core.components import components, grow
from gradatim.tasks.splits.inputs import phrase

_ALIKE = " (near-duplicates)"
"""Ends the name of a component of near-duplicates where rows have groups too."""
_GROUP = "\x1f"
"""Keeps a group called like the id of a row that stands alone apart from it."""


@dataclass(frozen=True)
class Together:
    """What stays together.

    Attributes
    ----------
    component : polars.Series of String, (rows,)
        Name of each row's component; null for a row that stands alone.
    key : polars.Series of String, (rows,)
        What it is drawn by, never null. A component of near-duplicates is drawn by its name as the row of that id was
        before others joined it.
    """

    component: pl.Series
    key: pl.Series


def together(
    examples: pl.DataFrame,
    columns: Sequence[str],
    tables: Mapping[str, pl.DataFrame],
    tied: pl.Series | None = None,
) -> Together:
    """Name the component of each row: rows that must not be parted.

    Parameters
    ----------
    examples : polars.DataFrame
        With ``example_id`` and `columns`, sorted by id.
    columns : sequence of str
        Rows that share a non-null value in any of these belong together, and so on through chains of rows.
    tables : mapping
        Optional ``components`` (example_id, component: near-duplicates under names that stay), or ``pairs`` where there
        are no components: see `near_duplicates`. Ids without an example are passed over. A released split, ``frozen``,
        gives components the names that they had, so that a new row in one moves nobody.
    tied : polars.Series of String, (rows,), optional
        Components to use in place of all that; null for a row that stands alone.

    Returns
    -------
    Together
        Named by the group's value where one column ties rows, by the smallest example_id where several do, by the name
        of the component of near-duplicates where only these do; where near-duplicates link groups, by the smallest of
        the groups' names.

    Notes
    -----
    One column or components alone: a cast or a join. Else connected components by SciPy, about 2 s per million rows.
    """
    ids = examples["example_id"]
    if tied is not None:
        return Together(tied, _key(tied, ids))
    before = _before(tables)
    groups = grouped(examples, columns)
    keys = _key(groups, ids)
    if before is not None and len(columns) > 1:
        groups, keys = _as_before(groups, ids, before)
    alike = _alike(ids, tables, before, grouped=bool(columns))
    if alike is None:
        return Together(groups, keys)
    frame = pl.DataFrame({"id": ids, "alike": alike, "group": groups, "key": keys})
    if columns:
        frame = frame.with_columns(label=pl.Series(_labels(len(ids), [groups, alike])))
    else:
        frame = frame.with_columns(label=pl.col("alike").rank("dense"))
    several = (pl.len().over("label") > 1) | (pl.col("alike") != pl.col("id"))
    name: pl.Expr = pl.when(several).then("alike")
    if columns:
        # else a component could bear the name of a group that it has nothing to do with
        name = pl.coalesce(pl.col("group").min().over("label"), name + _ALIKE)
    of_group = pl.col("key").filter(pl.col("group") == pl.col("group").min()).first().over("label")
    found = frame.select(component=name, key=pl.coalesce(of_group, "alike"))
    return Together(found["component"], found["key"])


def _before(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame | None:
    """Return the component of each released row: example_id, before (null where it stood alone)."""
    frozen = tables.get("frozen")
    if frozen is None or "component" not in frozen.columns:
        return None
    known = frozen.select(pl.col("example_id").cast(pl.String), pl.col("component").alias("before"))
    return known.unique("example_id", keep="first", maintain_order=True)


def _as_before(groups: pl.Series, ids: pl.Series, before: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Name groups that several columns tie as a release did: by its name for one of their rows, the smallest.

    A group of rows of which none was in one, but one stood alone, is drawn as that row was. Returns names and keys.
    """
    rows = pl.DataFrame({"group": groups, "id": ids}).join(
        before.with_columns(was=True), left_on="id", right_on="example_id", how="left", maintain_order="left"
    )
    named = pl.col("before").min().over("group")
    alone = pl.col("id").filter(pl.col("was") & pl.col("before").is_null()).min().over("group")
    is_group = pl.col("group").is_not_null()
    found = rows.select(
        component=pl.when(is_group).then(pl.coalesce(named, alone, "group")),
        key=pl.when(is_group)
        .then(pl.coalesce(pl.lit(_GROUP) + named, alone, pl.lit(_GROUP) + pl.col("group")))
        .otherwise("id"),
    )
    return found["component"], found["key"]


def _key(groups: pl.Series, alone: pl.Series) -> pl.Series:
    if groups.null_count() == len(groups):
        return alone
    return phrase(_GROUP, groups, when=groups.is_not_null(), otherwise=alone)


def grouped(examples: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Name the groups that columns tie: by the value of one, by the smallest example_id of several; null if alone."""
    if not columns:
        return pl.Series("component", [None], dtype=pl.String).new_from_index(0, len(examples))
    if len(columns) == 1:
        return examples[columns[0]].cast(pl.String).alias("component")
    labels = _labels(len(examples), [examples[column].cast(pl.String) for column in columns])
    # examples are sorted by id, so that a group's first row has its smallest id
    named = pl.DataFrame({"label": labels, "id": examples["example_id"]}).select(
        pl.when(pl.len().over("label") > 1).then(pl.col("id").first().over("label")).alias("component")
    )
    return named["component"]


def _labels(rows: int, columns: Sequence[pl.Series]) -> np.ndarray:
    """Number the components of rows that share a value of any column, each value being a further node."""
    pairs, nodes = [np.empty((0, 2), np.int64)], rows
    for column in columns:
        known = np.flatnonzero(column.is_not_null().to_numpy())
        values = column.drop_nulls().rank("dense").cast(pl.Int64)
        pairs.append(np.stack([known, values.to_numpy() - 1 + nodes], axis=1))
        nodes += values.n_unique()
    return components(nodes, np.concatenate(pairs))[:rows]


def _alike(
    ids: pl.Series, tables: Mapping[str, pl.DataFrame], before: pl.DataFrame | None, *, grouped: bool
) -> pl.Series | None:
    """Name each row's component of near-duplicates, by its own id where it is alone; None where there are none."""
    if "components" in tables:
        named = tables["components"].select(pl.col("example_id").cast(pl.String), "component")
    elif "pairs" in tables:
        known = pl.DataFrame(schema={"example_id": pl.String, "component": pl.String})
        if before is not None:
            name = pl.col("before")
            if grouped:  # another name is that of a group
                name = pl.when(name.str.ends_with(_ALIKE)).then(name.str.strip_suffix(_ALIKE))
            was_alone = pl.when(pl.col("before").is_null()).then("example_id")
            known = before.select("example_id", component=pl.coalesce(name, was_alone)).drop_nulls()
        here = pl.all_horizontal(pl.col("left_id", "right_id").is_in(ids.implode()))
        named = grow(known, near_duplicates(tables["pairs"]).filter(here)).components
    else:
        return None
    found = ids.to_frame("example_id").join(named, on="example_id", how="left", maintain_order="left")
    return found.select(pl.coalesce("component", "example_id").alias("alike"))["alike"]


def near_duplicates(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs that tie their rows.

    Parameters
    ----------
    pairs : polars.DataFrame
        Columns left_id, right_id; of a table with ``kind`` the rows near_duplicate alone, of one with ``similarity``
        and ``threshold`` those that reach it.
    """
    if "kind" in pairs.columns:
        pairs = pairs.filter(pl.col("kind") == "near_duplicate")
    if {"similarity", "threshold"} <= set(pairs.columns):
        pairs = pairs.filter((pl.col("similarity") >= pl.col("threshold") - 1e-9).fill_null(True))
    return pairs.with_columns(pl.col("left_id", "right_id").cast(pl.String))

"""Components of rows that pairs tie together: found, cut where they are giant, and grown by new pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.row_numbers import per_row, slices

GIANT_ROWS = 100
"""Fewer rows than these are never giant: two copies among three rows are no chain."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def components(rows: int, pairs: ArrayLike) -> Ints:
    """Number the component of each row.

    Parameters
    ----------
    rows : int
    pairs : array-like, shape (n, 2), of int
        Rows that belong together, and so on through chains.

    Returns
    -------
    numpy.ndarray, shape (rows,), int64
        From 0 up in the order of the components' first rows; a row that stands alone has its own number.

    Notes
    -----
    O(rows + pairs log pairs) by SciPy, which sees only rows that are tied; 1M rows and as many pairs: .3 s. Memory: a
    byte a row and some numbers a pair, as the numbers of many rows lie on disk (`row_numbers.per_row`).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    tied = np.unique(ends)
    place = np.searchsorted(tied, ends)
    graph: Any = coo_array((np.ones(len(ends), np.bool_), (place[:, 0], place[:, 1])), shape=(len(tied),) * 2)
    label = connected_components(graph, directed=False)[1] if len(tied) else np.zeros(0, np.int64)
    first = np.unique(label, return_index=True)[1]
    starts = np.ones(rows, dtype=bool)
    starts[tied] = False
    starts[tied[first]] = True
    number, before = per_row(rows, np.int64), 0
    for part in slices(rows):
        number[part] = np.cumsum(starts[part]) + (before - 1)
        before = int(number[part][-1]) + 1
    number[tied] = number[tied[first]][label]
    return number


@dataclass(frozen=True)
class Cut:
    """Components after giant ones were cut.

    Attributes
    ----------
    labels : numpy.ndarray, shape (rows,), int64
    thresholds : numpy.ndarray, shape (pairs,), float64
        Similarity from which each pair counted, where it lies; of a pair that no longer counts the one that it missed.
    kept : numpy.ndarray of bool, shape (pairs,)
    steps : tuple of (first row, rows before, threshold, rows of the largest piece after)
        One a giant component.
    """

    labels: Ints
    thresholds: Floats
    kept: NDArray[np.bool_]
    steps: tuple[tuple[int, int, float, int], ...]


def cut_giants(
    rows: int, pairs: Ints, similarity: Floats, threshold: float, *, share: float = 0.5, step: float = 0.02
) -> Cut:
    """Raise the threshold inside a component of more than `share` of all rows until no piece of it is.

    Parameters
    ----------
    rows : int
    pairs : array, shape (n, 2), int64
    similarity : array, shape (n,)
        In [`threshold`, 1].
    threshold : float
    share : float
        Share of the rows that a component may hold; one of no more than `GIANT_ROWS` is left as it is.
    step : float
        By how much the threshold rises at a time, up to 1: pieces of rows of similarity 1 stay, however large.

    Notes
    -----
    Single linkage chains: a is like b, b like c, but a not like c. Only pairs inside the giant component are touched.
    O((rows + pairs) / step).
    """
    labels = components(rows, pairs)
    thresholds, kept = np.full(len(pairs), float(threshold)), np.ones(len(pairs), dtype=bool)
    most = max(share * rows, GIANT_ROWS)
    steps: list[tuple[int, int, float, int]] = []
    large, size = np.unique(labels[np.unique(pairs)], return_counts=True)
    for giant in large[size > most]:
        members = np.flatnonzero(labels == giant)
        place = per_row(rows, np.int64, -1)
        place[members] = np.arange(len(members))
        inside = np.flatnonzero(place[pairs[:, 0]] >= 0)
        local, alike = place[pairs[inside]], similarity[inside]
        largest, level, number = len(members), float(threshold), 0
        while largest > most and level < 1:
            number += 1
            level = min(1.0, round(threshold + number * step, 9))
            counted = alike >= level - 1e-9
            largest = int(np.bincount(components(len(members), local[counted])).max())
        thresholds[inside] = level
        kept[inside] = alike >= level - 1e-9
        steps.append((int(members[0]), len(members), level, largest))
    return Cut(components(rows, pairs[kept]) if steps else labels, thresholds, kept, tuple(steps))


@dataclass(frozen=True)
class Growth:
    """Components after new rows came.

    Attributes
    ----------
    components : polars.DataFrame
        example_id, component: old rows and new, sorted by example_id.
    merges : polars.DataFrame
        component (the name that stays), absorbed (the name that goes), frozen (a list: the frozen ids of either,
        sorted; empty where none is touched), sorted.
    joined : polars.DataFrame
        example_id, component, frozen: the rows that are new in a component that held or now holds others; frozen tells
        that one of these is a frozen evaluation row, so that the new row must not be trained on. Sorted.
    """

    components: pl.DataFrame
    merges: pl.DataFrame
    joined: pl.DataFrame


def grow(known: pl.DataFrame, pairs: pl.DataFrame, frozen: Iterable[str] = (), new: Iterable[str] = ()) -> Growth:
    """Add new rows and pairs to components; they only grow, and keep their names.

    Parameters
    ----------
    known : polars.DataFrame
        example_id, component: a text, the component's name. No rows at first.
    pairs : polars.DataFrame
        left_id, right_id: of rows known or new.
    frozen : iterable of str
        Ids of evaluation rows that stay where they are.
    new : iterable of str
        Ids of new rows, also those without a pair; the ids in `pairs` that are not known are new anyway.

    Returns
    -------
    Growth
        A component is called by its old name; where several became one, by the smallest of theirs; without an old one,
        by its smallest id. Neither the order of rows nor that of pairs matters.

    Raises
    ------
    UsageError
        If an id stands in `known` twice.
    """
    held = known.select(pl.col("example_id").cast(pl.String), pl.col("component").cast(pl.String))
    if held["example_id"].is_duplicated().any():
        raise UsageError("an id has two components", where="grow", expected="each example_id once")
    ends = pairs.select(pl.col("left_id").cast(pl.String), pl.col("right_id").cast(pl.String))
    came = pl.concat([ends["left_id"], ends["right_id"], pl.Series(list(new), dtype=pl.String).alias("left_id")])
    rows = pl.concat([held["example_id"], came.rename("example_id")]).unique().sort().to_frame()
    rows = rows.join(held, on="example_id", how="left", maintain_order="left").with_row_index("row")
    index = rows.select("row", "example_id")
    tied = ends.join(index.rename({"row": "left"}), left_on="left_id", right_on="example_id").join(
        index.rename({"row": "right"}), left_on="right_id", right_on="example_id"
    )
    whole = rows.drop_nulls("component").with_columns(first=pl.col("row").first().over("component"))
    links = np.concatenate(
        [whole.select("first", "row").to_numpy().astype(np.int64), tied.select("left", "right").to_numpy()]
    )
    rows = rows.with_columns(
        label=pl.Series(components(len(rows), links)),
        is_frozen=pl.col("example_id").is_in(pl.Series(list(frozen), dtype=pl.String).unique().implode()),
    )
    by_label = rows.group_by("label").agg(
        name=pl.col("component").min(),
        smallest=pl.col("example_id").min(),
        size=pl.len(),
        frozen=pl.col("example_id").filter("is_frozen").sort(),
    )
    # a component without an old name takes its smallest id, unless a component still bears that of a row that left
    taken = held["component"].unique().implode()
    fresh = pl.col("name").is_null()
    name = pl.when(pl.col("smallest").is_in(taken)).then(pl.col("smallest") + "+").otherwise("smallest")
    by_label = by_label.with_columns(name=pl.when(fresh).then(name).otherwise("name"))
    rows = rows.join(by_label, on="label", how="left", maintain_order="left")
    gone = rows.drop_nulls("component").filter(pl.col("component") != pl.col("name"))
    merges = gone.select(component="name", absorbed="component", frozen="frozen").unique(["component", "absorbed"])
    joined = rows.filter(pl.col("component").is_null() & (pl.col("size") > 1))
    return Growth(
        rows.select("example_id", component="name").sort("example_id"),
        merges.sort("component", "absorbed"),
        joined.select("example_id", component="name", frozen=pl.col("frozen").list.len() > 0).sort("example_id"),
    )

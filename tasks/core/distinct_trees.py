"""The different trees of a column: what is done once for each of them serves all rows that share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.pieces import ranges
from gradatim.tasks.core.trees import Forest, faults, lay_out


@dataclass(frozen=True)
class DistinctTrees:
    """The different trees of a column, with labels as integers: millions of rows often share few.

    Attributes
    ----------
    forest : Forest
        Each different tree once, in order of first appearance.
    label : numpy.ndarray, shape (nodes of forest,), int64
        Codes of the labels: places in `labels`.
    labels : polars.Series of String
        The different labels, sorted by their UTF-8 bytes, so that codes do not depend on the order of rows.
    tree : numpy.ndarray, shape (rows,), int64
        Which tree each row is; -1 for a null and for an empty list.
    """

    forest: Forest
    label: np.ndarray
    labels: pl.Series
    tree: np.ndarray

    def __len__(self) -> int:
        return len(self.forest.size)

    def rows(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count the rows of each tree, int64; only those where `chosen` (bool, shape (rows,)) is true, if given."""
        mine = self.tree if chosen is None else self.tree[chosen]
        return np.bincount(mine[mine >= 0], minlength=len(self))

    @cached_property
    def left(self) -> np.ndarray:
        """Place in the flat arrays of the next sibling to the left of each node, -1 for none; int64."""
        above = np.where(self.forest.parent >= 0, self.up, -1)
        order = np.argsort(above, kind="stable")
        follows = (above[order][1:] == above[order][:-1]) & (above[order][1:] >= 0)
        left = np.full(len(above), -1, dtype=np.int64)
        left[order[1:][follows]] = order[:-1][follows]
        return left

    @cached_property
    def up(self) -> np.ndarray:
        """Place in the flat arrays of each node's parent, -1 for a root; int64."""
        first = np.repeat(self.forest.offsets[:-1], self.forest.size)
        return np.where(self.forest.parent >= 0, self.forest.parent + first, -1)


def distinct(trees: pl.Series, ids: pl.Series | None = None, *, where: str = "structure") -> DistinctTrees:
    """Find the different trees of a column, and refuse what is no tree.

    Parameters
    ----------
    trees : polars.Series
        As for `problems`. A null and an empty list are no tree: `DistinctTrees.tree` is -1 there.
    ids : polars.Series of String, optional
        Names of the rows, for the error; by default their numbers from 0.
    where : str
        What the error names.

    Raises
    ------
    DataRefused
        For a tree with a cycle, no root, several roots, a parent that is not there, misnumbered nodes or a node
        without label; names the first rows of that kind.
    UsageError
        If the column holds no trees.

    Notes
    -----
    O(nodes): trees are hashed, and each is compared with the one that stands for it, so that a collision cannot join
    two. 1M trees of 9 nodes take about 3 s on one core.
    """
    _is_trees(trees, where)
    forest, misnumbered = lay_out(trees)
    names = forest.label.drop_nulls().unique().sort()
    code = forest.label.cast(pl.Enum(names)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    rows = np.flatnonzero(forest.size)
    present = Forest(forest.offsets[np.append(rows, len(trees))], forest.parent, forest.label)
    first, which = same_trees(present, code)
    places = ranges(forest.offsets[:-1][rows[first]], forest.size[rows[first]])
    offsets = np.concatenate([[0], np.cumsum(forest.size[rows[first]])])
    one = Forest(offsets, forest.parent[places], forest.label.gather(places))
    tree = np.full(len(trees), -1, dtype=np.int64)
    tree[rows] = which
    wrong = faults(one, np.bincount(which[misnumbered[rows]], minlength=len(first)) > 0)
    guilty = [number for number, reason in enumerate(wrong.tolist()) if reason is not None]
    if guilty:
        bad = np.flatnonzero(np.isin(tree, guilty))
        _refuse(bad, wrong[tree[bad[0]]], len(trees), ids, where)
    return DistinctTrees(one, code[places], names, tree)


def _is_trees(trees: pl.Series, where: str) -> None:
    inner = trees.dtype.inner if isinstance(trees.dtype, pl.List) else None
    fields = {field.name for field in inner.fields} if isinstance(inner, pl.Struct) else set()
    if not {"parent", "label"} <= fields:
        raise UsageError(
            f"the column is of type {trees.dtype}",
            where=where,
            expected="trees: lists of nodes with node, parent and label",
            remedy="read brackets or JSON lists with  structure: COLUMN  in the section examples, or gd.read(...)",
        )


def _refuse(rows: np.ndarray, reason: str, count: int, ids: pl.Series | None, where: str) -> None:
    named = [f"row {row}" if ids is None else f"example {ids[row]!r}" for row in rows[:3].tolist()]
    more = f" and {len(rows) - 3:,} more" if len(rows) > 3 else ""
    raise DataRefused(
        f"{len(rows):,} of {count:,} structures are no trees: {reason} ({', '.join(named)}{more})",
        where=where,
        expected="one root with parent -1, every other parent a node of the same tree, a label on every node",
        remedy="mend the rows, or make their structure null: they are then left out and counted",
    )


def same_trees(forest: Forest, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal trees.

    Parameters
    ----------
    forest : Forest
        Without empty trees.
    label : numpy.ndarray of int64, shape (nodes,)
        Labels as integers; all 0 groups trees of the same shape.

    Returns
    -------
    first : numpy.ndarray, int64
        The first tree of each group, in order of appearance.
    which : numpy.ndarray, shape (trees,), int64
        Group of each tree.
    """
    starts, size, tree = forest.offsets[:-1], forest.size, forest.tree
    if not len(size):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    place = np.arange(len(tree)) - np.repeat(starts, size)
    for salt in range(1, 9):
        mixed = _mixed(label, place * 2 * salt + 1) ^ _mixed(forest.parent, place * 2 * salt + 2)
        _, first, which = np.unique(np.add.reduceat(mixed, starts), return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        first, which = np.sort(first), rank[which]
        stand_in = first[which]
        if not np.array_equal(size, size[stand_in]):
            continue
        there = np.repeat(starts[stand_in] - starts, size) + np.arange(len(tree))
        if np.array_equal(label, label[there]) and np.array_equal(forest.parent, forest.parent[there]):
            return first, which
    raise AssertionError("eight different hashes of trees collided")


def _mixed(values: np.ndarray, salt: np.ndarray) -> np.ndarray:
    """Mix pairs of integers to 64 bits (the finisher of splitmix64)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt.astype(np.uint64) * np.uint64(
            0xD1B54A32D192ED03
        )
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed

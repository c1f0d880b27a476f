"""All connected sub-graphs of trees, one size after the other, as integer codes; and their weights in DBCA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.tasks.core.distinct_trees import DistinctTrees, same_trees
from gradatim.tasks.core.pieces import pack, ranges
from gradatim.tasks.core.subtrees import Shape


@dataclass(frozen=True)
class Steps:
    """What the codes of one size stand for: each is a code of one node less and its last node in preorder.

    Attributes
    ----------
    rest : numpy.ndarray of int64, shape (codes,)
        The code without that node; 0 for a single node.
    level : numpy.ndarray of int64, shape (codes,)
        How deep it lies below the top.
    label : numpy.ndarray of int64, shape (codes,)
        Its label.
    """

    rest: np.ndarray
    level: np.ndarray
    label: np.ndarray

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Level:
    """All connected sub-graphs of one size.

    Attributes
    ----------
    tree, code : numpy.ndarray of int64, shape (occurrences,)
        Of each occurrence, tree by tree.
    start : numpy.ndarray of int64, shape (trees + 1,)
        First occurrence of each tree.
    steps : Steps
    """

    tree: np.ndarray
    start: np.ndarray
    code: np.ndarray
    steps: Steps


def shapes_of(found: DistinctTrees) -> tuple[np.ndarray, list[np.ndarray]]:
    """Shape of each tree, and the parents of a tree of each shape."""
    first, which = same_trees(found.forest, np.zeros_like(found.label))
    offsets = found.forest.offsets
    return which, [found.forest.parent[offsets[tree] : offsets[tree + 1]] for tree in first]


def _expand(shape: np.ndarray, lists: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write a list of each shape out for each tree: places in the joined lists, the tree of each, where trees start."""
    lengths = np.array([len(one) for one in lists], dtype=np.int64)
    begin = np.concatenate([[0], np.cumsum(lengths)])
    number = lengths[shape]
    tree = np.repeat(np.arange(len(shape)), number)
    return ranges(begin[shape], number), tree, np.concatenate([[0], np.cumsum(number)])


def next_level(found: DistinctTrees, shape: np.ndarray, lists: list[Shape], size: int, below: Level | None) -> Level:
    """Code the sub-graphs of size + 1 nodes: the code without the last node, and that node's depth and label."""
    at, tree, start = _expand(shape, [one.last[size] for one in lists])
    node = _joined([one.last[size] for one in lists])[at] + found.forest.offsets[tree]
    label = found.label[node]
    if below is None:
        code, first = pack([label], [max(1, len(found.labels))])
        none = np.zeros(len(first), dtype=np.int64)
        return Level(tree, start, code, Steps(none, none, label[first]))
    level = _joined([one.level[size] for one in lists])[at]
    rest = below.code[_joined([one.rest[size] for one in lists])[at] + below.start[tree]]
    code, first = pack([rest, level, label], [max(1, len(below.steps)), size + 1, max(1, len(found.labels))])
    return Level(tree, start, code, Steps(rest[first], level[first], label[first]))


def weigh(small: Level, large: Level, shape: np.ndarray, inner: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Weight of each occurrence of `small`: 1 - the greatest P of a compound of one node more that it lies in."""
    at, tree, _ = _expand(shape, inner)
    pairs = _joined(inner).reshape(-1, 2)[at]
    kinds = max(1, len(large.steps))
    # an occurrence that lies in several of one kind counts once
    keys = (pairs[:, 0] + small.start[tree]) * kinds + large.code[pairs[:, 1] + large.start[tree]]
    keys.sort(kind="stable")  # nearly sorted already
    keys = keys[np.diff(keys, prepend=-1) > 0]
    occurrence = keys // kinds
    inside, _ = pack([small.code[occurrence], keys - occurrence * kinds], [max(1, len(small.steps)), kinds])
    times = np.bincount(inside, rows[small.tree[occurrence]])[inside]
    share = times / np.bincount(small.code, rows[small.tree])[small.code[occurrence]]
    most = np.zeros(len(small.code))
    np.maximum.at(most, occurrence, share)
    return 1.0 - most


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def written(levels: tuple[Steps, ...], labels: pl.Series, least: int) -> pl.Series:
    """Names of the codes of all levels from `least` nodes on: each adds its last node to the open brackets before."""
    quoted = labels.to_frame("label").select(pl.struct("label").struct.json_encode().str.slice(9)).to_series()
    quoted = quoted.str.head(-1)
    names, opened, depth = [], pl.Series([""], dtype=pl.String), np.zeros(1, dtype=np.int64)
    for size, level in enumerate(levels, 1):
        closing = _brackets(depth[level.rest] - level.level + 1) + pl.Series([","]) if size > 1 else pl.Series([""])
        opened = opened.gather(level.rest) + closing + pl.Series(["["]) + quoted.gather(level.label)
        depth = level.level
        if size >= least:
            names.append((opened + _brackets(depth + 1)).alias("compound"))
    return pl.concat(names)


def _brackets(number: np.ndarray) -> pl.Series:
    most = int(number.max(initial=0))
    return pl.Series(["]" * n for n in range(most + 1)], dtype=pl.String).gather(number)

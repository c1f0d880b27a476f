"""n-LS: the local structures of trees, a node with its nearest ancestors and left siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.distinct_trees import DistinctTrees, distinct
from gradatim.tasks.core.pieces import Pieces, collect, pack

ROOT = "<s>"
"""Symbol above every root."""

LARGEST = 6


@dataclass(frozen=True)
class LocalStructures(Pieces):
    """The local structures of trees; see `Pieces` for the sparse rows.

    Attributes
    ----------
    n : int
        Most symbols in a structure.
    kinds : tuple of tuple of str
        The roles of the symbols of each kind of structure, e.g. ("parent", "child") and ("sibling", "child").
    kind : numpy.ndarray, shape (size,), int64
        Kind of each structure: a place in `kinds`.
    symbols : numpy.ndarray, shape (size, n), int64
        Its symbols as places in `labels`, ancestors first (outermost first), then siblings (leftmost first), then the
        node itself; -1 fills short structures up.
    labels : polars.Series of String
        `ROOT` and the labels of the trees.
    """

    n: int
    kinds: tuple[tuple[str, ...], ...]
    kind: np.ndarray
    symbols: np.ndarray
    labels: pl.Series

    def names(self, codes: np.ndarray | None = None) -> pl.Series:
        """Name structures, e.g. ``parent 'around', child 'right'``; all by default."""
        codes = np.arange(self.size) if codes is None else np.asarray(codes, dtype=np.int64)
        named = pl.Series("structure", [None], dtype=pl.String).new_from_index(0, len(codes))
        for number, roles in enumerate(self.kinds):
            here = np.flatnonzero(self.kind[codes] == number)
            words = pl.DataFrame(
                [self.labels.gather(self.symbols[codes[here], i]).alias(f"{i}") for i in range(len(roles))]
            )
            texts = words.select(pl.format(", ".join(f"{role} '{{}}'" for role in roles), *words.columns)).to_series()
            named = named.scatter(here, texts) if len(here) else named
        return named


def local_structures(trees: pl.Series | DistinctTrees, n: int = 2) -> LocalStructures:
    """Find the local structures of up to n symbols of each tree.

    A structure is a node with its a nearest ancestors and its b nearest left siblings, for all a, b >= 0 with
    1 <= a + b <= n - 1. For n = 2 that is every pair of parent and child and every pair of adjacent siblings; n = 3
    adds grandparent, parent and child; parent, left sibling and child; and three siblings in a row. The root's parent
    is `ROOT`. Structures of different roles are different, whatever their symbols.

    Parameters
    ----------
    trees : polars.Series or DistinctTrees
        A column of trees (see `distinct` for what it refuses), or what `distinct` made of it.
    n : int, 2 to 6

    Returns
    -------
    LocalStructures

    Raises
    ------
    UsageError
        For another n, or a column that holds no trees.
    DataRefused
        For what is no tree.

    Notes
    -----
    All nodes of all trees at once: O(n² N log N) for N nodes of different trees. 1M different trees of 9 nodes take
    about 4 s of computing for n = 2.

    Source: Bogin, Gupta, Berant (2022). Unobserved Local Structures Make Compositional Generalization Hard.
    """
    if not 2 <= n <= LARGEST:
        raise UsageError(f"local structures of {n} symbols were asked for", where="n", expected=f"2 to {LARGEST}")
    found = trees if isinstance(trees, DistinctTrees) else distinct(trees)
    nodes = len(found.label)
    # one more place at the end stands for the root's parent, which has neither parent nor sibling
    symbol = np.append(found.label + 1, 0)
    up = np.append(np.where(found.up >= 0, found.up, nodes), -1)
    left = np.append(found.left, -1)
    tree = found.forest.tree
    labels = pl.concat([pl.Series("label", [ROOT]), found.labels.alias("label")])
    shapes = [(total - b, b) for total in range(1, n) for b in range(total + 1)]
    lines, codes, kind, symbols = [], [], [], []
    size = 0
    for number, (ancestors, siblings) in enumerate(shapes):
        node, columns = _columns(symbol, up, left, nodes, ancestors, siblings)
        code, first = pack(columns, [len(labels)] * len(columns))
        lines.append(tree[node])
        codes.append(code + size)
        kind.append(np.full(len(first), number))
        symbols.append(np.full((len(first), n), -1))
        symbols[-1][:, : len(columns)] = np.column_stack([column[first] for column in columns])
        size += len(first)
    pieces, _ = collect(found.tree, np.concatenate(lines), np.concatenate(codes), len(found), size)
    return LocalStructures(
        **vars(pieces),
        n=n,
        kinds=tuple(_roles(a, b) for a, b in shapes),
        kind=np.concatenate(kind),
        symbols=np.concatenate(symbols),
        labels=labels,
    )


def _roles(ancestors: int, siblings: int) -> tuple[str, ...]:
    above = ["great-" * (i - 2) + "grandparent" if i > 1 else "parent" for i in range(ancestors, 0, -1)]
    beside = ["sibling" if i == 1 else f"{i}th sibling" for i in range(siblings, 0, -1)]
    return (*above, *(name.replace("2th", "2nd").replace("3th", "3rd") for name in beside), "child")


def _columns(
    symbol: np.ndarray, up: np.ndarray, left: np.ndarray, nodes: int, ancestors: int, siblings: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Nodes that have so many ancestors and left siblings, and the symbols of each such structure in order."""
    node = here = np.arange(nodes)
    above: list[np.ndarray] = []
    beside: list[np.ndarray] = []
    for steps, way, passed in ((ancestors, up, above), (siblings, left, beside)):
        at = node
        for _ in range(steps):
            at = way[at]
            inside = at >= 0
            node, at = node[inside], at[inside]
            above[:] = [column[inside] for column in above]
            beside[:] = [column[inside] for column in beside]
            passed.append(symbol[at])
        here = node
    return here, [*above[::-1], *beside[::-1], symbol[here]]

"""Every connected sub-graph of the shapes of trees, up to a size: the lists that the labels of many trees are read by.

Shapes are few where trees are many, so this part may loop; nothing here looks at a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import UsageError

MOST = 2_000_000
"""Sub-graphs of one shape beyond which it is refused."""

_Part = tuple[tuple[int, int], ...]
"""Nodes in preorder: places after the top in the preorder of the tree, and levels below the top."""


@dataclass(frozen=True)
class Shape:
    """The connected sub-graphs of one shape by size: entry m - 1 is for those of m nodes.

    Attributes
    ----------
    last : tuple of numpy.ndarray of int64, each of shape (graphs,)
        The last node in preorder, as a place in the tree.
    level : tuple of numpy.ndarray, the same shapes
        Levels of that node below the top of the sub-graph.
    rest : tuple of numpy.ndarray, the same shapes
        The sub-graph without that node, as a place among those of m - 1 nodes; 0 for m = 1.
    inner : tuple of numpy.ndarray, each of shape (pairs, 2)
        Pairs of a sub-graph of m nodes and one of m + 1 nodes that holds it, as places among their sizes; sorted.
    """

    last: tuple[np.ndarray, ...]
    level: tuple[np.ndarray, ...]
    rest: tuple[np.ndarray, ...]
    inner: tuple[np.ndarray, ...]


class Shapes:
    """Finds the sub-graphs of shapes; remembers those of every sub-tree that it meets.

    Parameters
    ----------
    largest : int
        Most nodes of a sub-graph.
    pairs : bool
        Whether `Shape.inner` is wanted.
    """

    def __init__(self, largest: int, *, pairs: bool) -> None:
        self.largest, self.pairs = largest, pairs
        self._numbers: dict[tuple[int, ...], int] = {}  # a shape is the numbers of its children's shapes
        self._children: list[tuple[int, ...]] = []
        self._counts: list[list[int]] = []
        self._sizes: list[int] = []
        self._parts: list[list[list[_Part]]] = []

    def find(self, parent: np.ndarray) -> Shape:
        """Return the sub-graphs of one shape.

        Parameters
        ----------
        parent : numpy.ndarray of int, shape (nodes,)
            Place of each node's parent, -1 for the root; a sound tree.

        Raises
        ------
        UsageError
            If there are more than `MOST`.
        """
        order, kinds = self._preorder(parent.tolist())
        total = sum(sum(self._counts[kind]) for kind in kinds)
        if total > MOST:
            raise UsageError(
                f"a tree of {len(parent)} nodes has {total:,} connected parts of at most {self.largest} nodes",
                where="compounds",
                expected=f"at most {MOST:,}",
                remedy="ask for smaller compounds, or bring nodes with many children under nodes between",
            )
        for kind in sorted(set(kinds)):
            self._enumerate(kind)
        parts = [
            [
                tuple((top + place, level) for place, level in part)
                for top, kind in enumerate(kinds)
                for part in self._parts[kind][size]
            ]
            for size in range(self.largest)
        ]
        number = [{_places(part): i for i, part in enumerate(sized)} for sized in parts]
        back = np.array(order, dtype=np.int64)
        rest = [
            [number[size - 1][_places(part[:-1])] if size else 0 for part in sized] for size, sized in enumerate(parts)
        ]
        inner = [
            sorted((number[size][smaller], i) for i, part in enumerate(parts[size + 1]) for smaller in _smaller(part))
            for size in range(self.largest - 1 if self.pairs else 0)
        ]
        return Shape(
            tuple(back[_array([part[-1][0] for part in sized])] for sized in parts),
            tuple(_array([part[-1][1] for part in sized]) for sized in parts),
            tuple(_array(sized) for sized in rest),
            tuple(_array(pairs).reshape(-1, 2) for pairs in inner),
        )

    def _preorder(self, parent: list[int]) -> tuple[list[int], list[int]]:
        """Nodes in preorder, and the number of the shape below each."""
        children: list[list[int]] = [[] for _ in parent]
        for node, above in enumerate(parent):
            if above >= 0:
                children[above].append(node)
        order: list[int] = []
        waiting = [parent.index(-1)]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(children[order[-1]])
        kind = [0] * len(parent)
        for node in reversed(order):
            kind[node] = self._number(tuple(kind[child] for child in children[node]))
        return order, [kind[node] for node in order]

    def _number(self, children: tuple[int, ...]) -> int:
        """Number a shape, higher than its children, and count its sub-graphs with its root by size."""
        if children in self._numbers:
            return self._numbers[children]
        counts = [1] + [0] * (self.largest - 1)
        for child in children:
            below = self._counts[child]
            counts = [n + sum(counts[size - 1 - i] * below[i] for i in range(size)) for size, n in enumerate(counts)]
        self._numbers[children] = len(self._children)
        self._children.append(children)
        self._counts.append(counts)
        self._sizes.append(1 + sum(self._sizes[child] for child in children))
        self._parts.append([])
        return self._numbers[children]

    def _enumerate(self, kind: int) -> None:
        """List a shape's sub-graphs with its root by size; its children's are listed already."""
        if self._parts[kind]:
            return
        parts: list[list[_Part]] = [[((0, 0),)], *([] for _ in range(self.largest - 1))]
        start = 1
        for child in self._children[kind]:
            below = [[tuple((start + p, 1 + level) for p, level in part) for part in s] for s in self._parts[child]]
            parts = [
                [*mine, *(one + two for i in range(size) for one in parts[size - 1 - i] for two in below[i])]
                for size, mine in enumerate(parts)
            ]
            start += self._sizes[child]
        self._parts[kind] = parts


def _places(part: _Part) -> tuple[int, ...]:
    return tuple(place for place, _ in part)


def _smaller(part: _Part) -> list[tuple[int, ...]]:
    """The connected sub-graphs with one node less, as places: without a leaf, or without a top of one child."""
    places = _places(part)
    levels = [level for _, level in part]
    ends = [i for i in range(1, len(part)) if i + 1 == len(part) or levels[i + 1] <= levels[i]]
    if levels.count(1) == 1:
        ends.append(0)
    return [places[:i] + places[i + 1 :] for i in ends]


def _array(numbers: list[int] | list[tuple[int, int]]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)

"""Atoms and compounds of trees, their weights, and the divergence of two distributions of them (DBCA)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.compound_levels import Level, Steps, next_level, shapes_of, weigh, written
from gradatim.tasks.core.distinct_trees import DistinctTrees, distinct
from gradatim.tasks.core.pieces import Pieces, collect
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.subtrees import Shapes

LARGEST = 12


@dataclass(frozen=True)
class Compounds(Pieces):
    """Atoms or compounds of trees; see `Pieces` for the sparse rows.

    Attributes
    ----------
    weight : numpy.ndarray, shape (entries,), float64
        w of each entry (see `compounds`); 1 where weights were not asked for.
    nodes : numpy.ndarray, shape (size,), int64
        Nodes of each piece.
    """

    weight: np.ndarray
    nodes: np.ndarray
    least: int = field(repr=False)
    labels: pl.Series = field(repr=False)
    steps: tuple[Steps, ...] = field(repr=False)

    def names(self) -> pl.Series:
        """Write the pieces as JSON lists, e.g. ``["S",["NP",["they"]]]``, which `trees.parse` reads."""
        return written(self.steps, self.labels, self.least)


def atoms(trees: pl.Series | DistinctTrees) -> Compounds:
    """Count the atoms of each tree: its labels, i.e. single rules.

    Parameters
    ----------
    trees : polars.Series or DistinctTrees
        A column of trees (see `distinct` for what it refuses), or what `distinct` made of it.

    Returns
    -------
    Compounds
        `weight` is 1.
    """
    return _found(trees, 1, 1, weights=False)


def compounds(trees: pl.Series | DistinctTrees, max_size: int = 5, *, weights: bool = False) -> Compounds:
    """Find the compounds of each tree: its connected sub-graphs of 2 to `max_size` nodes.

    Two sub-graphs are the same compound if they have the same labels in the same shape, children in the same order;
    children of a node that are not in the sub-graph do not count.

    Parameters
    ----------
    trees : polars.Series or DistinctTrees
        As for `atoms`. All its rows are the pool that the weights look at; a tree in many rows counts many times.
    max_size : int, 2 to 12
    weights : bool
        Whether to weigh. A tree's w(G) is the greatest over the occurrences g of G in the tree of
        1 - max over G' of P(G' | G), G' any compound of one node more that g lies in, and P(G' | G) the share of the
        occurrences of G in the pool that lie in a G'. A compound that is always seen inside one and the same larger one
        weighs 0. DBCA takes the greatest over all super-graphs: P of a larger one is at most that of the steps towards
        it, so those of one node more decide, unless a compound stands in several places of a larger one. The compounds
        of `max_size` nodes are weighed by those of one node more as well.

    Returns
    -------
    Compounds

    Raises
    ------
    UsageError
        For another size, a column that holds no trees, or a tree with more than 2 million sub-graphs.
    DataRefused
        For what is no tree.

    Notes
    -----
    Sub-graphs are listed once for each different shape, in Python; labels are read by those lists for all trees at
    once: O(occurrences log occurrences). See docs/difficulty/structure.md for times; memory is about 100 bytes an
    occurrence in a different tree, with weights 200.

    Source: Keysers et al. (2020). Measuring Compositional Generalization: A Comprehensive Method on Realistic Data.
    """
    if not 2 <= max_size <= LARGEST:
        raise UsageError(f"compounds of up to {max_size} nodes were asked for", where="max_size", expected="2 to 12")
    return _found(trees, 2, max_size, weights=weights)


def chernoff_divergence(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """Divergence 1 - C of two distributions, C = sum over k of p_k^alpha q_k^(1 - alpha), the Chernoff coefficient.

    Parameters
    ----------
    p, q : array-like, shape (n,)
        Weights of the same n things in train (p) and test (q), at least 0; each is divided by its sum.
    alpha : float in (0, 1)
        Exponent of p. DBCA takes 0.5 for atoms, and 0.1 for compounds, which asks rather whether train holds a compound
        of the test at all than how often.

    Returns
    -------
    float
        0 for equal distributions, 1 for disjoint ones. For alpha other than 0.5 it matters which is p.

    Raises
    ------
    UsageError
        For another alpha, different lengths, a negative or non-finite weight, or weights that sum to 0.

    Notes
    -----
    Source: as `compounds`.
    """
    train, test = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if not 0 < alpha < 1:
        raise UsageError(f"alpha is {alpha}", where="chernoff_divergence", expected="a number between 0 and 1")
    if train.ndim != 1 or train.shape != test.shape:
        raise UsageError(
            f"weights of shapes {train.shape} and {test.shape}", where="chernoff_divergence", expected="the same n"
        )
    total = []
    for name, weights in (("p", train), ("q", test)):
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise UsageError(f"a weight of {name} is negative or not finite", where="chernoff_divergence")
        total.append(ordered_sum(weights))
        if total[-1] == 0:
            raise UsageError(f"the weights of {name} sum to 0", where="chernoff_divergence", expected="a positive sum")
    coefficient = ordered_sum((train / total[0]) ** alpha * (test / total[1]) ** (1 - alpha))
    return min(1.0, max(0.0, 1.0 - coefficient))


def _found(trees: pl.Series | DistinctTrees, least: int, most: int, *, weights: bool) -> Compounds:
    found = trees if isinstance(trees, DistinctTrees) else distinct(trees)
    shape, members = shapes_of(found)
    shapes = Shapes(most + weights, pairs=weights)
    lists = [shapes.find(parent) for parent in members]
    levels: list[Level] = []
    for size in range(most + weights):
        levels.append(next_level(found, shape, lists, size, levels[-1] if levels else None))
    kept = levels[least - 1 : most]
    offset = np.cumsum([0] + [len(level.steps) for level in kept])
    pieces, entry = collect(
        found.tree,
        np.concatenate([level.tree for level in kept]),
        np.concatenate([level.code + first for level, first in zip(kept, offset[:-1], strict=True)]),
        len(found),
        int(offset[-1]),
    )
    weight = np.ones(len(pieces.code))
    if weights:
        rows = found.rows()
        each = [
            weigh(small, large, shape, [one.inner[size] for one in lists], rows)
            for size, (small, large) in enumerate(pairwise(levels))
            if size + 1 >= least
        ]
        weight = np.zeros(len(pieces.code))
        np.maximum.at(weight, entry, np.concatenate(each))
    return Compounds(
        **vars(pieces),
        weight=weight,
        nodes=np.repeat(np.arange(least, most + 1), np.diff(offset)),
        least=least,
        labels=found.labels,
        steps=tuple(level.steps for level in levels[:most]),
    )

"""The E-step for curves of any asymptotes: posteriors of ability, the log-likelihood and expected counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response import marginal
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.marginal import Expectation, Grid, Patterns, blocks


@dataclass(frozen=True)
class Counted(Expectation):
    """An `Expectation` with the expected right answers of each item at each node, `right` (J, Q)."""

    right: np.ndarray


def posteriors(
    data: Patterns, curves: Curves, grid: Grid, *, width: int = 0
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield for blocks of patterns: the slice, the posterior over nodes (B, Q) and the log-likelihoods (B,)."""
    if curves.bare:
        yield from marginal.posteriors(data, curves.a, curves.d, grid, width=width)
        return
    right, wrong = curves.right_wrong(grid.nodes)
    wrong = np.log(np.maximum(wrong, 1e-300))
    odds = np.log(np.maximum(right, 1e-300)) - wrong
    base = grid.log_weights + (wrong.sum(axis=0) if data.complete else data.masks.astype(np.float64) @ wrong)
    base = np.atleast_2d(base)
    for part in blocks(len(data.weight), len(grid.nodes) + width + len(curves.a)):
        joint = data.y[:, part].T.astype(np.float64, copy=False) @ odds
        joint += base[data.group[part]]
        top = joint.max(axis=1)
        joint -= top[:, None]
        np.exp(joint, out=joint)
        total = joint.sum(axis=1)
        joint /= total[:, None]
        yield part, joint, np.log(total) + top


def expectation(data: Patterns, curves: Curves, grid: Grid) -> Expectation:
    """Do the E-step; with expected right answers (`Counted`) where a curve does not run from 0 to 1."""
    if curves.bare:
        return marginal.expectation(data, curves.a, curves.d, grid)
    return counted(data, curves, grid)


def counted(data: Patterns, curves: Curves, grid: Grid) -> Counted:
    """Do the E-step and count expected right answers. O(N J Q)."""
    count = len(data.weight)
    mean, variance, loglik = np.empty(count), np.empty(count), np.empty(count)
    counts = np.zeros((len(data.masks), len(grid.nodes)))
    right = np.zeros((len(curves.a), len(grid.nodes)))
    for part, posterior, value in posteriors(data, curves, grid):
        loglik[part] = value
        mean[part] = posterior @ grid.nodes
        variance[part] = np.maximum(posterior @ grid.nodes**2 - mean[part] ** 2, 0.0)
        weighted = posterior * data.weight[part, None]
        right += data.y[:, part].astype(np.float64, copy=False) @ weighted
        if len(counts) == 1:
            counts[0] += weighted.sum(axis=0)
        else:
            np.add.at(counts, data.group[part], weighted)
    return Counted(float(data.weight @ loglik), mean, variance, counts, right)

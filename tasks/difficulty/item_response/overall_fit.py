"""Whether a model describes the answers as a whole: M2, a chi-square on the shares of single items and pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.marginal import Grid, Patterns

MOST_ITEMS = 80  # a matrix of 3,240 x 3,240


@dataclass(frozen=True)
class OverallFit:
    """A test of the whole model.

    Attributes
    ----------
    method : str
        M2; or none, and why.
    statistic, p, rmsea : float
        Chi-square, its upper tail, and the root of its excess over df a respondent and df: about how wrong the model is
        whatever the number of respondents (below .05 is commonly called close). NaN where there is no test.
    df : int
        Items and pairs of items, less the rank of the estimated parameters.
    """

    method: str
    statistic: float
    df: int
    p: float
    rmsea: float


def m2(
    data: Patterns, curves: Curves, grid: Grid, *, slope: str = "free", lower: bool = False, upper: bool = False
) -> OverallFit:
    """Compare the observed shares of items and of pairs of items right with those that the model expects.

    Full tables of patterns are empty beyond a dozen items; the margins of order one and two are not.

    Parameters
    ----------
    data : Patterns
        Complete answers of 0 and 1.
    curves : Curves
    grid : Grid
    slope : "free", "common" or "given"
        Which slopes were estimated.
    lower, upper : bool
        Whether asymptotes were.

    Notes
    -----
    O(J^4 Q + J^6), at most 80 items. Estimates with priors are near the maximum, and so is the statistic near its own.

    Source: A. Maydeu-Olivares, H. Joe (2006). Limited information goodness-of-fit testing in multidimensional
    contingency tables.
    """
    items, n = len(curves.a), float(data.weight.sum())
    reason = ""
    if not data.complete:
        reason = "cells are missing"
    elif np.any((data.y > 0) & (data.y < 1)):
        reason = "scores are fractions"
    elif items > MOST_ITEMS:
        reason = "too many items"
    if reason:
        return OverallFit(f"none: {reason}", np.nan, 0, np.nan, np.nan)
    right = curves.right_wrong(grid.nodes)[0]
    weight = np.exp(grid.log_weights)
    first, second = np.triu_indices(items, 1)
    joint = np.concatenate([right, right[first] * right[second]])  # chance of each margin at each node
    expected = joint @ weight
    y = data.y.astype(np.float64, copy=False)
    observed = np.concatenate([y @ data.weight, ((y * data.weight) @ y.T)[first, second]]) / n
    covariance = (joint * weight) @ joint.T
    for j in range(items):  # margins that share an item: it counts once
        at = np.concatenate([[j], items + np.flatnonzero((first == j) | (second == j))])
        covariance[np.ix_(at, at)] = (joint[at] * (weight / np.maximum(right[j], 1e-300))) @ joint[at].T
    np.fill_diagonal(covariance, expected)
    covariance -= np.outer(expected, expected)
    tangent = _tangent(curves, grid.nodes, weight, right, slope, lower, upper)
    return _statistic(observed - expected, covariance, tangent, n)


def _tangent(
    curves: Curves, nodes: np.ndarray, weight: np.ndarray, right: np.ndarray, slope: str, lower: bool, upper: bool
) -> np.ndarray:
    """Derivatives of the expected margins in the estimated parameters, (margins, P)."""
    s, r = curves.shape(nodes)
    steep = (curves.u - curves.g)[:, None] * s * r
    change = [steep * nodes, steep, *([r] if lower else []), *([s] if upper else [])]
    items = len(right)
    first, second = np.triu_indices(items, 1)
    found, pair = np.zeros((items + len(first), len(change), items)), items + np.arange(len(first))
    for k, own in enumerate(change):
        found[np.arange(items), k, np.arange(items)] = own @ weight
        both = (own * weight) @ right.T  # (j, m): item j moves, item m stays
        found[pair, k, first], found[pair, k, second] = both[first, second], both[second, first]
    flat = found[:, 1:].reshape(len(found), -1)
    if slope == "given":
        return flat
    return np.concatenate([found[:, 0] if slope == "free" else found[:, 0].sum(axis=1, keepdims=True), flat], axis=1)


def _statistic(residual: np.ndarray, covariance: np.ndarray, tangent: np.ndarray, n: float) -> OverallFit:
    """Weigh the residuals that no change of parameters could explain."""
    from scipy.special import chdtrc

    values, vectors = np.linalg.eigh(covariance)
    good = values > 1e-12 * values[-1]
    root = vectors[:, good] / np.sqrt(values[good])  # covariance^-1 = root root'
    basis, singular, _ = np.linalg.svd(root.T @ tangent, full_matrices=False)
    basis = basis[:, singular > 1e-8 * singular[0]]
    white = root.T @ residual
    left = white - basis @ (basis.T @ white)
    df = int(good.sum()) - basis.shape[1]
    if df <= 0:
        return OverallFit("none: no degree of freedom is left", np.nan, 0, np.nan, np.nan)
    value = float(n * left @ left)
    return OverallFit("M2", value, df, float(chdtrc(df, value)), float(np.sqrt(max(value - df, 0.0) / (n * df))))

"""Diversity shift and correlation shift of a categorical feature between two environments, from counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gradatim.tasks.core.reduce import ordered_sum

SOURCE = (
    "N. Ye et al. (2022). OoD-Bench: quantifying and understanding two dimensions of out-of-distribution generalization"
)
Formula = Literal["hellinger", "original"]


@dataclass(frozen=True)
class Shift:
    """Diversity shift and correlation shift, each in [0, 1]."""

    diversity: float
    correlation: float


def exact_shift(left: NDArray[np.int64], right: NDArray[np.int64], formula: Formula = "hellinger") -> Shift:
    """Return diversity and correlation shift of a categorical feature, from counts.

    Parameters
    ----------
    left, right : numpy.ndarray of int, shape (categories, labels)
        Rows of each combination in the two environments.
    formula : "hellinger" or "original"
        ``½ Σ_S (√p - √q)²`` and ``½ Σ_T √(pq) Σ_y (√p(y|z) - √q(y|z))²``, or with absolute differences of p and q. S
        holds the categories that one side alone has, T the others.

    Returns
    -------
    Shift
        Both in [0, 1]. Under ``hellinger`` they sum to the squared Hellinger distance of the joint distributions where
        the shares of the categories that both have are equal, and never to more.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (left, right)]
    joint = [side / side.sum() for side in sides]
    p, q = (side.sum(axis=1) for side in joint)
    alone = (p == 0) | (q == 0)
    given = [
        np.divide(side, whole[:, None], out=np.zeros_like(side), where=whole[:, None] > 0)
        for side, whole in zip(joint, (p, q), strict=True)
    ]
    if formula == "original":
        apart, differ = np.abs(p - q), np.abs(given[0] - given[1])
    else:
        apart, differ = (np.sqrt(p) - np.sqrt(q)) ** 2, (np.sqrt(given[0]) - np.sqrt(given[1])) ** 2
    weight = np.where(alone, 0.0, np.sqrt(p * q))
    return Shift(ordered_sum(apart[alone]) / 2, ordered_sum(weight[:, None] * differ) / 2)

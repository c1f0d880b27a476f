"""What several runs of one arm, from different seeds, say together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.reduce import ordered_sum

POOLED = -1
"""The seed of table rows that sum up several runs."""


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n - 1; NaN for one run), least and largest value of `n` runs."""

    n: int
    mean: float
    sd: float
    min: float
    max: float


def spread(values: ArrayLike) -> Spread:
    """Describe one number of each run.

    Parameters
    ----------
    values : array-like of float, shape (runs,)
        Without NaN.
    """
    found = np.asarray(values, dtype=np.float64).ravel()
    if not found.size or np.isnan(found).any():
        raise UsageError(f"{found.size} values, {int(np.isnan(found).sum())} of them NaN", expected="a number a run")
    mean = ordered_sum(found) / found.size
    sd = float(np.sqrt(ordered_sum((found - mean) ** 2) / (found.size - 1))) if found.size > 1 else float("nan")
    return Spread(found.size, mean, sd, float(found.min()), float(found.max()))


def spread_ratio(in_distribution: ArrayLike, out_of_distribution: ArrayLike) -> float:
    """Return the standard deviation over runs out of distribution, as a multiple of that in distribution.

    Source: R. T. McCoy, J. Min, T. Linzen (2020). BERTs of a feather do not generalize together.
    """
    inside, outside = spread(in_distribution).sd, spread(out_of_distribution).sd
    return outside / inside if inside > 0 else float("nan")

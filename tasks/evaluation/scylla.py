"""Generalisation score and critical complexity over levels of task complexity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError

SOURCE = "Z. Qi et al. (2024). Quantifying generalization complexity for large language models"


@dataclass(frozen=True)
class Complexity:
    """What a model's accuracies over levels say.

    Attributes
    ----------
    levels : tuple of str
    gap, score : numpy.ndarray, shape (levels,)
        max(0, ID - OOD), and OOD less that, in [-1, 1].
    critical : str or None
        Level of the largest gap; the first one in a tie, None where there is no gap at any level.
    """

    levels: tuple[str, ...]
    gap: NDArray[np.float64]
    score: NDArray[np.float64]
    critical: str | None


def complexity(levels: ArrayLike, in_distribution: ArrayLike, out_of_distribution: ArrayLike) -> Complexity:
    """Summarise accuracies of tasks at levels of rising complexity.

    Parameters
    ----------
    levels : array-like of str, shape (tasks,)
        Level of each task; levels count in order of first appearance, simplest first.
    in_distribution, out_of_distribution : array-like of float in [0, 1], shape (tasks,)
        Gap and score are taken for each task, then averaged over the tasks of a level.

    Notes
    -----
    With some 250 items a cell the standard error of a gap is about 4 points: read a peak beside its neighbours.
    """
    names = [str(level) for level in np.asarray(levels).ravel()]
    inside, outside = (np.asarray(a, dtype=np.float64).ravel() for a in (in_distribution, out_of_distribution))
    if not names or not len(names) == len(inside) == len(outside):
        raise UsageError(
            f"{len(names)} levels, {len(inside)} and {len(outside)} accuracies", expected="one of each for every task"
        )
    both = np.concatenate([inside, outside])
    if not ((both >= 0) & (both <= 1)).all():
        raise UsageError("an accuracy is not in [0, 1]", expected="shares of right answers")
    order = list(dict.fromkeys(names))
    codes = np.array([order.index(name) for name in names])
    gaps = np.maximum(0.0, inside - outside)
    tasks = np.bincount(codes)
    gap = np.bincount(codes, gaps) / tasks
    score = np.bincount(codes, outside - gaps) / tasks
    peak = int(np.argmax(np.round(gap, 9)))
    return Complexity(tuple(order), gap, score, order[peak] if gap[peak] > 0 else None)

"""Equal training sizes in all folds of a strategy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.splits.cuts import TRAIN
from gradatim.tasks.splits.keep_labels import Kept, first_of_each


def beyond_smallest(
    folds: Sequence[np.ndarray], kept: Sequence[Sequence[Kept]], code: np.ndarray, draw: np.ndarray
) -> list[np.ndarray]:
    """Choose the training rows to leave out, whole components in the order of a draw, so that all folds have as many.

    Components that a value needs in train (see `keep_labels`) come first, and stay.

    Parameters
    ----------
    folds : sequence of numpy.ndarray of uint8, (rows,)
        Split codes of each fold.
    kept : sequence of sequences
        What each fold keeps in train.
    code : numpy.ndarray of int64, (rows,)
        Component of each row.
    draw : numpy.ndarray of float64, (components,)

    Returns
    -------
    list of numpy.ndarray of bool, (rows,)

    Raises
    ------
    DataRefused
        Where the values of a fold need more rows than the smallest fold has, or its groups are larger.
    """
    least = smallest(folds)
    result = []
    for number, (split, labels) in enumerate(zip(folds, kept, strict=True)):
        train = split == TRAIN
        size = np.bincount(code[train], minlength=len(draw))
        needed = _needed(train, labels, code, draw)
        order = np.lexsort((draw, ~needed))
        dropped = np.zeros(len(draw), np.bool_)
        dropped[order] = np.cumsum(size[order]) > least
        out = train & dropped[code]
        if (needed & dropped).any() or out.sum() == train.sum():
            why = "its values need more" if needed.any() else "its groups are larger"
            raise DataRefused(
                f"fold {number} cannot have the {least:,} training rows that the smallest fold has: {why}",
                where="balance",
                remedy="leave balance out, or keep together by a finer column",
            )
        result.append(out)
    return result


def smallest(folds: Sequence[np.ndarray]) -> int:
    """Return the training rows of the fold that has fewest."""
    return min(int((split == TRAIN).sum()) for split in folds)


def _needed(train: np.ndarray, kept: Sequence[Kept], code: np.ndarray, draw: np.ndarray) -> np.ndarray:
    """Say of each component whether a value would lack training rows without it."""
    needed = np.zeros(len(draw), np.bool_)
    for one in kept:
        rows = np.flatnonzero(train & (one.labels.codes >= 0))
        wanted = np.full(len(one.labels.levels), one.least)
        needed[first_of_each(rows, one.labels.codes, code, draw, wanted)] = True
    return needed

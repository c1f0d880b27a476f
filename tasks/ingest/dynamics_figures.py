"""Figures of training dynamics from logits or class probabilities and the right class."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

SUM_TOLERANCE = 1e-3
"""How far the sum of class probabilities may be from one: what rounding to four places leaves of ten classes."""


class Figures(NamedTuple):
    """Figures of n rows, each (n,) float64; NaN where a row's numbers are not finite. `correct` is 1, 0 or NaN."""

    gold_probability: Floats
    correct: Floats
    loss: Floats
    margin: Floats
    error_norm: Floats


def from_logits(values: Floats, lengths: Whole, gold: Whole) -> Figures:
    """Turn logits into figures.

    Parameters
    ----------
    values : numpy.ndarray, shape (sum of lengths,)
        The rows' logits end to end.
    lengths : numpy.ndarray, shape (n,)
        Classes of each row, at least 2.
    gold : numpy.ndarray, shape (n,)
        Right class of each row, from 0, below its length.

    Returns
    -------
    Figures
        The probability is a softmax that does not overflow; the loss -log of it (nats); the margin the gold logit less
        the largest other one; the answer is right where the margin is above 0, so a tie is not; the error norm the
        2-norm of probabilities less one-hot.
    """
    return _by_length(values, lengths, gold, _of_logits)


def from_probabilities(values: Floats, lengths: Whole, gold: Whole) -> Figures:
    """Turn class probabilities into figures, as `from_logits`; a probability of 0 leaves loss or margin infinite."""
    return _by_length(values, lengths, gold, _of_probabilities)


def sums(values: Floats, lengths: Whole) -> Floats:
    """Sum each row's numbers: shape (n,)."""
    return np.add.reduceat(np.append(values, 0.0), _starts(lengths)) * (lengths > 0)


def all_finite(values: Floats, lengths: Whole) -> NDArray[np.bool_]:
    """Say for each row whether all its numbers are finite: shape (n,)."""
    bad = np.append((~np.isfinite(values)).astype(np.int64), 0)
    found: NDArray[np.bool_] = (np.add.reduceat(bad, _starts(lengths)) == 0) | (lengths == 0)
    return found


def _starts(lengths: Whole) -> Whole:
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)


def _by_length(values: Floats, lengths: Whole, gold: Whole, figures: Callable[[Floats, Whole], Figures]) -> Figures:
    """Work on a matrix for each number of classes."""
    found = Figures(*(np.full(len(lengths), np.nan) for _ in Figures._fields))
    finite, starts = all_finite(values, lengths), _starts(lengths)
    finite &= lengths > 0
    for length in np.unique(lengths[finite]):
        rows = np.flatnonzero(finite & (lengths == length))
        matrix = values[starts[rows][:, None] + np.arange(length)]
        for column, part in zip(found, figures(matrix, gold[rows]), strict=True):
            column[rows] = part
    return found


def _of_logits(z: Floats, gold: Whole) -> Figures:
    rows = np.arange(len(z))
    shifted = z - z.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return _of(np.exp(log_p), -log_p[rows, gold], _lead(z, gold), gold)


def _of_probabilities(p: Floats, gold: Whole) -> Figures:
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(np.clip(p, 0.0, 1.0))
        return _of(p, -log_p[np.arange(len(p)), gold], _lead(log_p, gold), gold)


def _of(p: Floats, loss: Floats, margin: Floats, gold: Whole) -> Figures:
    rows = np.arange(len(p))
    error = p.copy()
    error[rows, gold] -= 1.0
    return Figures(p[rows, gold], (margin > 0).astype(np.float64), loss + 0.0, margin, np.sqrt((error**2).sum(axis=1)))


def _lead(z: Floats, gold: Whole) -> Floats:
    rows = np.arange(len(z))
    others = z.copy()
    others[rows, gold] = -np.inf
    found: Floats = z[rows, gold] - others.max(axis=1)
    return found

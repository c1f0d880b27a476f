"""Whether two sets can be told apart: out-of-fold scores of a classifier, and what is read off them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.intervals import Interval, wilson
from gradatim.tasks.core.reduce import one_thread

SOURCE = "Lopez-Paz & Oquab (2017). Revisiting Classifier Two-Sample Tests."
FOLDS = 5
CROSS_VALIDATED = 1 + FOLDS / (FOLDS - 1)
"""Factor of the variance of what is measured out of fold: the folds' classifiers share most of their rows.

Source: C. Nadeau, Y. Bengio (2003). Inference for the generalization error.
"""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def folds(keys: pl.Series, seed: int, purpose: str = "shift auc fold") -> Integers:
    """Return each row's fold in [0, 5), a pure function of its key: rows of one key stay in one fold."""
    return (uniform(keys, seed, purpose) * FOLDS).astype(np.int64)


def chosen(ids: pl.Series, most: int, seed: int, purpose: str = "shift auc") -> Integers:
    """Return the positions, ascending, of at most `most` rows: those with the smallest uniform number."""
    if len(ids) <= most:
        return np.arange(len(ids), dtype=np.int64)
    draw = uniform(ids, seed, purpose)
    return np.sort(np.argsort(draw, kind="stable")[:most]).astype(np.int64)


def trainable(label: Integers, fold: Integers) -> bool:
    """Say whether no fold would be trained on one class alone."""
    parts = [np.bincount(fold[label == value], minlength=FOLDS) for value in (0, 1)]
    return all((part.sum() - part).min() > 0 for part in parts)


def out_of_fold(features: Any, label: Integers, fold: Integers, model: Any, weight: Floats | None = None) -> Floats:
    """Score each row by a classifier that was fitted on the other folds.

    Parameters
    ----------
    features : array or sparse matrix, shape (n, d)
    label, fold : numpy.ndarray, shape (n,), int64
        Label 0 or 1; both in every fold's complement, see `trainable`.
    model : classifier of scikit-learn
        With ``fit`` and ``decision_function``; fitted anew for each fold.
    weight : numpy.ndarray, shape (n,), optional
        Weights of the rows in the fit.

    Returns
    -------
    numpy.ndarray, shape (n,), float64
        Higher where label 1 is likelier, rounded to nine places.
    """
    from sklearn.exceptions import ConvergenceWarning

    score = np.empty(len(label))
    with warnings.catch_warnings():
        # where a fit stops does not make its score of rows that it has not seen less true
        warnings.simplefilter("ignore", ConvergenceWarning)
        for one in np.unique(fold):
            held = fold == one
            weights = {} if weight is None else {"sample_weight": weight[~held]}
            score[held] = model.fit(features[~held], label[~held], **weights).decision_function(features[held])
    return np.round(score, 9)


@dataclass(frozen=True)
class Told:
    """How well two sets of vectors are told apart.

    Attributes
    ----------
    auc : Interval
        Out-of-fold AUC, .5 where nothing tells them apart.
    proxy_a : Interval
        Proxy A-distance 2(1 - 2e) of the balanced error e, in [0, 2].
    score : numpy.ndarray
        Out-of-fold scores.
    """

    auc: Interval
    proxy_a: Interval
    score: Floats


def tell_apart(vectors: ArrayLike, label: Integers, fold: Integers, weight: Floats | None = None) -> Told | None:
    """Tell two sets of vectors apart by a logistic regression, out of fold.

    Parameters
    ----------
    vectors : array-like, shape (n, d)
        Finite, in canonical order of rows; standardised here over both sets.
    label, fold : numpy.ndarray, shape (n,), int64
    weight : numpy.ndarray, shape (n,), optional
        Positive weights of the rows, in the fit and in what is read off. Each set then counts by its weights alone.

    Returns
    -------
    Told or None
        None where a set is too small for five folds.

    Notes
    -----
    L2 penalty with C = 1, sets weighted equally. Columns without spread are left out; where none is left, nothing tells
    the sets apart. Linear: sets that differ in their spread alone look the same. 100,000 x 256 take about 10 s.

    Source: D. Lopez-Paz, M. Oquab (2017). Revisiting Classifier Two-Sample Tests; S. Ben-David et al. (2007). Analysis
    of representations for domain adaptation (proxy A-distance).
    """
    if not trainable(label, fold):
        return None
    from sklearn.linear_model import LogisticRegression

    rows = np.asarray(vectors, dtype=np.float64)
    rows = rows - rows.mean(axis=0)
    spread = rows.std(axis=0)
    rows = rows[:, spread > 1e-12 * np.abs(rows).max(initial=1e-300)]
    rows = rows / rows.std(axis=0)
    if not rows.shape[1]:
        score = np.zeros(len(label))
    else:
        with one_thread():
            model = LogisticRegression(C=1.0, class_weight="balanced", max_iter=300)
            score = out_of_fold(rows, label, fold, model, weight)
    return Told(
        auc_interval(label, score, weight, CROSS_VALIDATED),
        proxy_a_distance(label, score, weight, CROSS_VALIDATED),
        score,
    )


def auc_interval(label: Integers, score: Floats, weight: Floats | None = None, inflation: float = 1.0) -> Interval:
    """Return the AUC with its interval from the variance of placements (DeLong); of weighted rows by Kish's n.

    `inflation` multiplies the variance, see `CROSS_VALIDATED`. An AUC of 0 or 1 shows no spread: its interval is that
    of Wilson for the smaller set. O(n log n).

    Source: E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson (1988). Comparing the areas under two or more correlated
    receiver operating characteristic curves: a nonparametric approach.
    """
    weight = np.ones(len(label)) if weight is None else weight
    sides = [(score[label == value], weight[label == value]) for value in (0, 1)]
    placements = []
    for (mine, _), (other, other_weight), sign in ((sides[0], sides[1], -1), (sides[1], sides[0], 1)):
        order = np.argsort(sign * other, kind="stable")
        below = np.concatenate([[0.0], np.cumsum(other_weight[order])])
        ranked = (sign * other)[order]
        low, high = (below[np.searchsorted(ranked, sign * mine, side=side)] for side in ("left", "right"))
        placements.append((low + high) / (2 * below[-1]))
    means = [np.average(place, weights=w) for place, (_, w) in zip(placements, sides, strict=True)]
    auc = float(means[1])
    sizes = [float(w.sum() ** 2 / (w**2).sum()) for _, w in sides]
    variance = sum(
        float(np.average((place - mean) ** 2, weights=w)) / max(size - 1, 1)
        for place, mean, (_, w), size in zip(placements, means, sides, sizes, strict=True)
    )
    if variance <= 0:
        smaller = int(min(sizes))
        smaller = max(1, int(smaller / inflation))
        wide = wilson(min(max(auc, 0.0), 1.0) * smaller, smaller)
        return Interval(auc, wide.low, wide.high, len(label), "wilson over the smaller set")
    half = 1.959963984540054 * float(np.sqrt(inflation * variance))
    return Interval(auc, max(0.0, auc - half), min(1.0, auc + half), len(label), "delong")


def proxy_a_distance(label: Integers, score: Floats, weight: Floats | None = None, inflation: float = 1.0) -> Interval:
    """Return 2(1 - 2e) of the balanced error e of ``score > 0``, cut at 0, with Newcombe's interval over both sets.

    `inflation` divides the rows behind the interval, see `CROSS_VALIDATED`.
    """
    weight = np.ones(len(label)) if weight is None else weight
    errors = []
    for value in (0, 1):
        wrong, w = (score > 0) != bool(value), weight[label == value]
        wrong = np.where(score == 0, 0.5, wrong)[label == value]
        size = float(w.sum() ** 2 / (w**2).sum()) / inflation
        errors.append(wilson(float(np.average(wrong, weights=w)) * size, size))
    error = sum(part.value for part in errors) / 2
    down, up = (
        float(np.sqrt(sum((getattr(part, end) - part.value) ** 2 for part in errors)) / 2) for end in ("low", "high")
    )
    low, high = (min(2.0, max(0.0, 2 * (1 - 2 * e))) for e in (error + up, error - down))
    return Interval(max(0.0, 2 * (1 - 2 * error)), low, high, len(label), "wilson, two sets")

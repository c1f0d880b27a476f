"""How many neighbours, how good the prediction is on held-out examples, and how wide its interval has to be."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.hashing import uniform
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.neighbours import NearestNeighbours, Neighbours
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.difficulty.prediction.knn_pictures import Tried, compare_pairs
from gradatim.tasks.difficulty.prediction.labelled import Floats, conformal, mean_square, pearson, spearman

BLOCK = 65_536
"""Examples that are predicted together."""

Ints = NDArray[np.int64]


class Settings(Protocol):
    """What of the settings of `knn` is needed here."""

    @property
    def k(self) -> int | None: ...
    @property
    def candidates(self) -> tuple[int, ...]: ...
    @property
    def weighting(self) -> str: ...
    @property
    def sample(self) -> int: ...
    @property
    def lists_probed(self) -> int | None: ...


@dataclass(frozen=True)
class Choice:
    """The chosen number of neighbours and what the held-out examples say of it.

    Attributes
    ----------
    k : int
    tried : list of Tried
        The candidates; empty where nothing could be held out.
    heldout : int
        Held-out examples.
    spearman, r2, mse, mse_of_mean : float
        Of their predictions; `mse_of_mean` is that of the mean of the other folds. NaN where unknown.
    prior : float
        Variance that stands for one more neighbour, so that equal neighbours do not promise certainty.
    error_factor, interval_factor, coverage : float
        Standard error and half of the interval in multiples of the spread of the neighbours; the interval's level.
    least_similar : float
        Smallest similarity of a held-out example to its nearest one.
    pairs : polars.DataFrame
        pairs (neighbours, random), distance, difference: held-out examples and others.
    warnings : list of str
    """

    k: int
    tried: list[Tried] = field(default_factory=list)
    heldout: int = 0
    spearman: float = math.nan
    r2: float = math.nan
    mse: float = math.nan
    mse_of_mean: float = math.nan
    prior: float = math.nan
    error_factor: float = math.nan
    interval_factor: float = math.nan
    coverage: float = math.nan
    least_similar: float = -math.inf
    pairs: pl.DataFrame = field(default_factory=pl.DataFrame)
    warnings: list[str] = field(default_factory=list)

    @property
    def reliability(self) -> float | None:
        """Squared correlation of held-out predictions and values; 0 for a negative one, None where it is unknown."""
        return None if math.isnan(self.r2) else self.r2

    def spread(self, variance: Floats, n: Ints) -> Floats:
        """Return the standard deviation of the neighbours' values, with one more neighbour of variance `prior`."""
        return np.sqrt((n * variance + self.prior) / (n + 1.0))

    def notes(self) -> dict[str, Cell]:
        """Return the facts for people."""
        if not self.heldout:
            return {"k": self.k}
        return {
            "k": self.k,
            "held-out examples": self.heldout,
            "held-out rank correlation": _shown(self.spearman),
            "held-out mean squared error": _shown(self.mse),
            "the same of the global mean": _shown(self.mse_of_mean),
            "interval holds a new value with": f"{100 * self.coverage:.4g} %",
        }


@dataclass(frozen=True)
class Made:
    """Predictions.

    Attributes
    ----------
    rows : numpy.ndarray, shape (n,), int64
        Rows that were predicted.
    value, variance : numpy.ndarray, shape (n,), float64
        Weighted mean and variance of the neighbours' values.
    n : numpy.ndarray, shape (n,), int64
        Neighbours.
    nearest : numpy.ndarray, shape (n,), int64
        The nearest one, as a row of the labelled ones.
    similarity : numpy.ndarray, shape (n,), float64
        Cosine to it.
    """

    rows: Ints
    value: Floats
    variance: Floats
    n: Ints
    nearest: Ints
    similarity: Floats


def averaged(near: Neighbours, known: Floats, k: int, weighting: str) -> tuple[Floats, Floats, Ints]:
    """Average the values of the first `k` neighbours: mean, variance and number, each of shape (Q,).

    By similarity, a neighbour weighs its cosine, a negative one nothing; where all weigh nothing they weigh the same.
    """
    index, cosine = near.index[:, :k], near.measure[:, :k]
    there = index >= 0
    values = np.where(there, known[np.where(there, index, 0)], 0.0)
    weight = there.astype(np.float64)
    if weighting == "similarity":
        similar = np.where(there, np.maximum(cosine, 0.0), 0.0)
        weight = np.where(similar.sum(axis=1, keepdims=True) > 0, similar, weight)
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean = (weight * values).sum(axis=1) / total
    variance = (weight * (values - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, variance, there.sum(axis=1)


def choose_k(
    matrix: NDArray[np.float32], ids: pl.Series, known: Floats, fold: Ints, config: Settings, seed: int
) -> Choice:
    """Choose the number of neighbours by the rank correlation of predictions with held-out values.

    Parameters
    ----------
    matrix : array, shape (n, d)
        Vectors of the labelled examples.
    ids : polars.Series, length n
    known : array, shape (n,)
        Their values.
    fold : array, shape (n,)
        Each fold is predicted from the others.

    Returns
    -------
    Choice
        With equal rank correlations the smaller mean squared error decides, then the smaller k.
    """
    sizes = np.bincount(fold)
    wanted = (config.k,) if config.k is not None else config.candidates
    if (sizes > 0).sum() < 2:
        words = "one labelled example" if len(known) == 1 else "the labelled examples are one group"
        said = f"{words}: nothing can be held out, so neither error nor interval is known"
        return Choice(min(wanted[0], len(known)), warnings=[said])
    smallest = int(len(known) - sizes.max())  # labelled examples that predict the largest fold
    candidates = sorted({min(k, smallest) for k in wanted})
    chosen = _sampled(ids, config.sample, seed)
    near = _held_out(matrix, ids, fold, chosen, candidates[-1], config)
    truth = known[chosen]
    tried = []
    for k in candidates:
        value, _, _ = averaged(near, known, k, config.weighting)
        tried.append(Tried(k, spearman(value, truth), mean_square(value - truth)))
    best = min(tried, key=lambda t: (-t.spearman if not math.isnan(t.spearman) else 2.0, round(t.mse, 12), t.k))
    return _judged(best, tried, near, known, chosen, fold, config, matrix, wanted)


def _judged(
    best: Tried,
    tried: list[Tried],
    near: Neighbours,
    known: Floats,
    chosen: Ints,
    fold: Ints,
    config: Settings,
    matrix: NDArray[np.float32],
    wanted: tuple[int, ...],
) -> Choice:
    truth = known[chosen]
    value, variance, n = averaged(near, known, best.k, config.weighting)
    away = np.abs(value - truth)
    spread = np.sqrt((n * variance + best.mse) / (n + 1.0))
    ratio = np.divide(away, spread, out=np.zeros_like(away), where=spread > 0)
    factor, coverage = conformal(ratio)
    sums = np.array([ordered_sum(known[fold == f]) for f in range(int(fold.max()) + 1)])
    counts = np.bincount(fold)
    others = (ordered_sum(sums) - sums) / np.maximum(len(known) - counts, 1)
    mse_of_mean = mean_square(truth - others[fold[chosen]])
    r = pearson(value, truth)
    warnings = []
    if min(wanted) > tried[-1].k or (config.k is not None and config.k > tried[-1].k):
        warnings.append(f"k was cut to {tried[-1].k}: there are no more labelled examples in the other folds")
    if (known == known[0]).all():
        warnings.append("all labels are equal: there is nothing to learn")
    elif best.mse >= mse_of_mean or not best.spearman > 0:
        warnings.append("held out, the prediction does not beat the mean of the labels: these features do not tell")
    if coverage < 0.95:
        warnings.append(f"{len(chosen)} held-out examples support intervals of {100 * coverage:.3g} %, not of 95 %")
    return Choice(
        k=best.k,
        tried=tried,
        heldout=len(chosen),
        spearman=best.spearman,
        r2=0.0 if r < 0 else r * r,
        mse=best.mse,
        mse_of_mean=mse_of_mean,
        prior=best.mse,
        error_factor=math.sqrt(mean_square(ratio)),
        interval_factor=factor,
        coverage=coverage,
        least_similar=float(np.nanmin(near.measure[:, 0])) if (near.index[:, 0] >= 0).any() else -math.inf,
        pairs=compare_pairs(near, known, chosen, matrix),
        warnings=warnings,
    )


def predict(
    matrix: NDArray[np.float32],
    ids: pl.Series,
    known: Floats,
    everyone: NDArray[np.float32],
    wanted: Ints,
    choice: Choice,
    config: Settings,
) -> Made:
    """Predict the rows `wanted` of `everyone` from all labelled ones, block by block."""
    where = "difficulty knn"
    near = NearestNeighbours(matrix, ids, lists_probed=config.lists_probed, where=where) if len(wanted) else None
    parts = []
    for start in range(0, len(wanted), BLOCK):
        assert near is not None
        rows = wanted[start : start + BLOCK]
        parts.append(_made(rows, near.search(everyone[rows], choice.k), known, choice.k, config))
    return _joined(parts)


def out_of_fold(
    matrix: NDArray[np.float32], ids: pl.Series, known: Floats, fold: Ints, choice: Choice, config: Settings
) -> Made:
    """Predict every labelled example from the other folds; where there is no other fold, from itself."""
    everyone = np.arange(len(known))
    if len(np.unique(fold)) < 2:
        return predict(matrix, ids, known, matrix, everyone, choice, config)
    near = _held_out(matrix, ids, fold, everyone, choice.k, config)
    return _made(everyone, near, known, choice.k, config)


def _sampled(ids: pl.Series, sample: int, seed: int) -> Ints:
    """Return the rows, ascending, of at most `sample` ids: those with the smallest random numbers."""
    if len(ids) <= sample:
        return np.arange(len(ids))
    return np.sort(np.lexsort((np.arange(len(ids)), uniform(ids, seed, "knn/sample")))[:sample])


def _held_out(
    matrix: NDArray[np.float32], ids: pl.Series, fold: Ints, chosen: Ints, k: int, config: Settings
) -> Neighbours:
    """Find the neighbours of the rows `chosen`, each among the other folds; `index` counts all labelled rows."""
    index, measure = np.full((len(chosen), k), -1, dtype=np.int64), np.full((len(chosen), k), np.nan)
    for number in np.unique(fold[chosen]):
        learn, there = np.flatnonzero(fold != number), np.flatnonzero(fold[chosen] == number)
        search = NearestNeighbours(matrix[learn], ids.gather(learn), lists_probed=config.lists_probed)
        near = search.search(matrix[chosen[there]], k)
        index[there] = np.where(near.index >= 0, learn[near.index], -1)
        measure[there] = near.measure
    return Neighbours(index, measure)


def _made(rows: Ints, near: Neighbours, known: Floats, k: int, config: Settings) -> Made:
    value, variance, n = averaged(near, known, k, config.weighting)
    return Made(rows, value, variance, n, near.index[:, 0], near.measure[:, 0])


def _joined(parts: list[Made]) -> Made:
    if not parts:
        none = np.zeros(0)
        return Made(none.astype(np.int64), none, none, none.astype(np.int64), none.astype(np.int64), none)
    return Made(*(np.concatenate([getattr(part, name) for part in parts]) for name in Made.__dataclass_fields__))


def joined(first: Made, second: Made) -> Made:
    """Lay predictions of different rows together."""
    return _joined([first, second])


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)

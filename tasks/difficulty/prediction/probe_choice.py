"""How a probe is chosen: parts that fit, choose and test; every candidate; and predictions for the rows that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.embeddings import Vectors
from gradatim.tasks.difficulty.prediction.labelled import folds_of, spearman
from gradatim.tasks.difficulty.prediction.probe_fit import Linear, auc, logistic, ridge

LEAST = {"train": 10, "validation": 5, "test": 5}
"""Fewest labelled examples in each part."""
HELD = 0.2
"""Share of the labelled examples that choose, and share that test."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tried:
    """One candidate: rank correlation or AUC on the validation part (NaN where its predictions are constant)."""

    features: str
    alpha: float
    score: float


def cut(ids: pl.Series, together: pl.Series, seed: int, where: str) -> dict[str, Ints]:
    """Cut the labelled rows into train, validation and test, each family as a whole, by its hash."""
    drawn = uniform(together, seed, "probe/part")
    parts = {
        "test": np.flatnonzero(drawn < HELD),
        "validation": np.flatnonzero((drawn >= HELD) & (drawn < 2 * HELD)),
        "train": np.flatnonzero(drawn >= 2 * HELD),
    }
    for name, least in LEAST.items():
        if len(parts[name]) < least:
            raise DataRefused(
                f"{len(parts[name])} of {len(ids)} labelled examples with all vectors fall into the {name} part",
                where=where,
                expected=f"at least {least}: some 50 labelled examples, of several groups",
                remedy="label more, or use knn, which needs fewer",
            )
    return parts


def places(vectors: Vectors, ids: pl.Series) -> Ints:
    """Return the row of each id."""
    known = pl.DataFrame({"id": vectors.ids}).with_row_index("row")
    joined = pl.DataFrame({"id": ids}).join(known, on="id", how="left", maintain_order="left")
    return joined["row"].to_numpy().astype(np.int64)


def choose(
    found: Mapping[str, Vectors],
    ids: pl.Series,
    truth: Floats,
    parts: Mapping[str, Ints],
    alphas: tuple[float, ...],
    binary: bool,
) -> tuple[list[Tried], Tried, Linear]:
    """Fit every candidate on the train part and score it on the validation part; the first of equals wins."""
    tried: list[Tried] = []
    best: tuple[float, Tried, Linear] | None = None
    for name, vectors in found.items():
        place = places(vectors, ids)
        fits = (logistic if binary else ridge)(vectors.matrix, place[parts["train"]], truth[parts["train"]], alphas)
        for alpha, fitted in zip(alphas, fits, strict=True):
            predicted = fitted.of(vectors.matrix, place[parts["validation"]])
            score = (auc if binary else spearman)(predicted, truth[parts["validation"]])
            tried.append(Tried(name, alpha, score))
            worth = -math.inf if math.isnan(score) else score
            if best is None or worth > best[0]:
                best = worth, tried[-1], fitted
    assert best is not None
    return tried, best[1], best[2]


def cross_fitted(
    vectors: Vectors,
    place: Ints,
    truth: Floats,
    parts: Mapping[str, Ints],
    together: pl.Series,
    alpha: float,
    binary: bool,
    predict: Callable[[Linear, Ints], Floats],
    seed: int,
) -> Floats:
    """Predict every labelled row by a fit that did not see it: train rows in folds, the others by the whole part."""
    train = parts["train"]
    value = np.empty(len(place))
    fit = logistic if binary else ridge
    (whole,) = fit(vectors.matrix, place[train], truth[train], [alpha])
    others = np.concatenate([parts["validation"], parts["test"]])
    value[others] = predict(whole, place[others])
    fold = folds_of(together.gather(train), 5, seed, "probe/fold")
    for number in np.unique(fold):
        learn, there = train[fold != number], train[fold == number]
        fitted = whole if not len(learn) else fit(vectors.matrix, place[learn], truth[learn], [alpha])[0]
        value[there] = predict(fitted, place[there])
    return value

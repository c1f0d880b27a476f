"""What a probe has to beat: the words of the text, and its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALPHAS = tuple(10.0**power for power in range(-3, 5))
"""Penalties of the ridge on TF-IDF."""


def baselines(
    texts: pl.Series, y: Floats, parts: Mapping[str, Ints], score: Callable[[Floats, Floats], float]
) -> dict[str, float]:
    """Score simple predictors on the test part, chosen as the probe was.

    Parameters
    ----------
    texts : polars.Series of str, length n
        A null counts as empty.
    y : array, shape (n,)
    parts : mapping of "train", "validation" and "test" to rows
    score : callable
        ``score(prediction, truth)``; higher is better.

    Returns
    -------
    dict of str to float
        ``tf-idf ridge`` and ``length`` (characters); NaN where a predictor is constant.
    """
    filled = texts.cast(pl.String).fill_null("")
    train, test = parts["train"], parts["test"]
    length = filled.str.len_chars().to_numpy().astype(np.float64)
    away = length[train] - length[train].mean()
    sign = float(np.sign(away @ (y[train] - y[train].mean())))
    found = {"length": score(sign * length[test], y[test]) if sign else math.nan}
    found["tf-idf ridge"] = _words(filled, y, parts, score)
    return found


def _words(texts: pl.Series, y: Floats, parts: Mapping[str, Ints], score: Callable[[Floats, Floats], float]) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge

    vectorizer = TfidfVectorizer()
    try:
        rows: dict[str, Any] = {"train": vectorizer.fit_transform(texts.gather(parts["train"]).to_list())}
    except ValueError:  # not a word in all texts
        return math.nan
    for name in ("validation", "test"):
        rows[name] = vectorizer.transform(texts.gather(parts[name]).to_list())
    best, chosen = -math.inf, math.nan
    for alpha in ALPHAS:
        model = Ridge(alpha=alpha, solver="sparse_cg", tol=1e-6).fit(rows["train"], y[parts["train"]])
        value = score(model.predict(rows["validation"]), y[parts["validation"]])
        if value > best:
            best, chosen = value, score(model.predict(rows["test"]), y[parts["test"]])
    return chosen

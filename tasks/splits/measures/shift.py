"""How well a simple classifier tells training inputs from test inputs, and what it finds alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.two_sample import SOURCE, chosen, folds, out_of_fold, trainable
from gradatim.tasks.splits.measures.block import Block, Measured

__all__ = ["SOURCE", "Told", "nearest_pairs", "shift", "shift_auc", "tell"]

MOST_ROWS = 5_000
MOST_CHARACTERS = 2_000
_ROWS = 250


@dataclass(frozen=True)
class Told:
    """What a classifier made of two sets of texts.

    Attributes
    ----------
    rows : polars.DataFrame
        The rows used, first those of the first set.
    label : numpy.ndarray, (rows,), int64
        0 and 1.
    features : sparse matrix, (rows, d)
    score : numpy.ndarray, (rows,), float64
        Out of fold; higher for the second set.
    auc : float
    """

    rows: pl.DataFrame
    label: np.ndarray
    features: Any
    score: np.ndarray
    auc: float


def shift(told: Told | None) -> Measured:
    """Return ``shift_auc``: .5 where nothing tells train and test_ood (or test) apart, 1 where everything does."""
    return {} if told is None else {"shift_auc": (told.auc, len(told.rows))}


def told_of(block: Block) -> Told | None:
    """Tell train from test_ood (or test); None without inputs or with too few rows."""
    if not block.has("input") or not len(block.train) or not len(block.compared):
        return None
    return tell(block.train, block.compared, block.seed)


def tell(left: pl.DataFrame, right: pl.DataFrame, seed: int) -> Told | None:
    """Tell two sets of texts apart by a logistic regression, out of fold.

    Parameters
    ----------
    left, right : polars.DataFrame
        Columns example_id, input (text), component (rows of one component stay in one fold), and others, kept. At most
        5,000 rows a side are taken, those with the smallest uniform number.
    seed : int

    Returns
    -------
    Told or None
        None where a side is too small for five folds or no row has a text.

    Notes
    -----
    Features are hashed counts of words (1, 2) and of character n-grams (2 to 4), each row scaled to length 1, of the
    first 2,000 characters. A few seconds for two times 5,000 short texts.
    """
    # the solver goes through the rows in their order
    sides = [side[chosen(side["example_id"], MOST_ROWS, seed)].sort("example_id") for side in (left, right)]
    both = pl.concat(sides)
    label = np.repeat([0, 1], [len(side) for side in sides])
    fold = folds(both["component"].fill_null(both["example_id"]), seed)
    text = both["input"].fill_null("").str.slice(0, MOST_CHARACTERS)
    if not trainable(label, fold) or text.str.strip_chars().eq("").all():
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    features = _features(text.to_list())
    # the dual is as exact here as the primal to four digits, and twenty times as fast
    model = LogisticRegression(C=1.0, solver="liblinear", dual=True, tol=1e-2, class_weight="balanced", random_state=0)
    score = out_of_fold(features, label, fold, model)
    return Told(both, label, features, score, float(roc_auc_score(label, score)))


def shift_auc(left: pl.DataFrame, right: pl.DataFrame, seed: int) -> float | None:
    """Return the out-of-fold AUC of `tell`: .5 where nothing tells the sets apart; None where it cannot be told."""
    told = tell(left, right, seed)
    return None if told is None else told.auc


def nearest_pairs(told: Told, most: int = 10) -> pl.DataFrame:
    """Return the test rows whose nearest training row is nearest, each with it.

    Returns
    -------
    polars.DataFrame
        test_id, train_id, similarity (cosine of the classifier's features, 0 to 1), test_input, train_input; the most
        similar first.
    """
    train, test = told.features[told.label == 0], told.features[told.label == 1]
    best, place = np.zeros(test.shape[0]), np.zeros(test.shape[0], np.int64)
    turned = train.T.tocsc()
    for start in range(0, test.shape[0], _ROWS):
        alike = (test[start : start + _ROWS] @ turned).toarray()
        place[start : start + _ROWS] = alike.argmax(axis=1)
        best[start : start + _ROWS] = alike.max(axis=1)
    rows = [told.rows.filter(pl.Series(told.label == value)).select("example_id", "input") for value in (0, 1)]
    found = pl.DataFrame(
        {
            "test_id": rows[1]["example_id"],
            "train_id": rows[0]["example_id"].gather(place),
            # both halves of the features have length 1
            "similarity": np.round(np.clip(best / 2, 0, 1), 9),
            "test_input": rows[1]["input"],
            "train_input": rows[0]["input"].gather(place),
        }
    )
    return found.sort(["similarity", "test_id"], descending=[True, False]).head(most)


def _features(texts: list[str]) -> Any:
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(
        token_pattern=r"\S+", ngram_range=(1, 2), n_features=2**18, alternate_sign=False, lowercase=False
    )
    characters = HashingVectorizer(
        analyzer="char_wb", ngram_range=(2, 4), n_features=2**18, alternate_sign=False, lowercase=False
    )
    counts = hstack([words.transform(texts), characters.transform(texts)], format="csr")
    return counts[:, np.unique(counts.indices)]  # the solver's time grows with columns, also empty ones

"""How well a simple classifier tells training inputs from test inputs: the classifier two-sample test."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.two_sample import SOURCE, chosen, folds, out_of_fold, trainable

__all__ = ["SOURCE", "shift_auc"]

MOST_ROWS = 5_000
MOST_CHARACTERS = 2_000


def shift_auc(left: pl.DataFrame, right: pl.DataFrame, seed: int) -> tuple[float | None, int]:
    """Return the out-of-fold AUC of a logistic regression that tells two sets of texts apart.

    Parameters
    ----------
    left, right : polars.DataFrame
        Columns example_id, input (text), component (rows of one component stay in one fold). At most 5,000 rows a side
        are taken, those with the smallest uniform number.
    seed : int

    Returns
    -------
    (float or None, int)
        AUC, .5 where nothing tells them apart; None where a side is too small for five folds or no row has a text.
        Rows used.

    Notes
    -----
    Features are hashed counts of words (1, 2) and of character n-grams (2 to 4), each row scaled to length 1, of the
    first 2,000 characters. A few seconds for two times 5,000 short texts.
    """
    sides = [side[chosen(side["example_id"], MOST_ROWS, seed)] for side in (left, right)]
    both = pl.concat(sides)
    label = np.repeat([0, 1], [len(side) for side in sides])
    key = both["component"].fill_null(both["example_id"])
    fold = folds(key, seed)
    if not trainable(label, fold):
        return None, len(both)
    if both["input"].str.strip_chars().fill_null("").eq("").all():  # no text to tell anything by
        return None, 0
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    features = _features(both["input"].fill_null("").str.slice(0, MOST_CHARACTERS).to_list())
    model = LogisticRegression(C=1.0, solver="liblinear", class_weight="balanced", random_state=0)
    return float(roc_auc_score(label, out_of_fold(features, label, fold, model))), len(both)


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

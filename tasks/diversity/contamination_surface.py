"""Edit similarity of a text and the likest stretch of a longer one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError, missing_extra
from gradatim.tasks.core.ngrams import hash_words
from gradatim.tasks.diversity.contamination_retrieval import length_used, word_starts

STRIDE = 0.05
"""Step of the window, as a share of its length."""
LEAST = 50.0
"""Windows below this ratio are no candidates."""
MAXIMA = 3
"""Local maxima that are aligned to the character."""
NEAR = 5.0
"""Windows within this of the lowest level are aligned; a step of the window changes the ratio by less."""
LONG = 100_000
"""Characters from which on a text is only looked at around n-grams that it shares."""

Floats = NDArray[np.float64]


def surface_similarity(
    text: str, others: Sequence[str], *, lowest: float = 70.0, n: int = 12, whole: bool = False
) -> Floats:
    """Return how much of each other text's likest stretch is the same as `text`.

    Parameters
    ----------
    text : str
        The evaluation text, normalised.
    others : sequence of str
        Training texts, normalised.
    lowest : float
        The lowest level that matters, 0 to 100.
    n : int
        Length of the n-grams by which the others were found, for long ones.
    whole : bool
        Compare with the whole of each other text, as is right for a text of a few words, which many texts hold.

    Returns
    -------
    numpy.ndarray, shape (len(others),), float64
        0 to 100; 100 if the text stands in the other as it is, 0 if no window reaches `LEAST`.

    Notes
    -----
    A window of the text's length moves over the other text by `STRIDE` of its length, the last one at its end; each is
    measured by the normalised Indel similarity, ``100 * (1 - (insertions + deletions) / (sum of lengths))``. Local
    maxima of at least `LEAST` stay; the best `MAXIMA` of them within `NEAR` of `lowest` are aligned to the character by
    the partial ratio in the window widened by a step on either side. A text shorter than the window is compared whole:
    to hold a short stretch of an evaluation text is no contamination.

    O(len(text)^2 / 64) for each window; about 2 microseconds at 250 characters.

    Source: M. Riddell, A. Ni, A. Cohan (2024). Quantifying contamination in evaluating code generation capabilities of
    language models (the window and its stride).
    """
    if not text:
        raise UsageError("an empty text is like no other", expected="a text with a character")
    try:
        from rapidfuzz import fuzz, process
    except ImportError:
        raise missing_extra("rapidfuzz", "text") from None
    width = len(text)
    if whole:
        return np.asarray(process.cdist([text], list(others), scorer=fuzz.ratio, dtype=np.float64)[0])
    step = max(1, round(STRIDE * width))
    places = [_places(text, other, width, step, n) for other in others]
    windows = [other[at : at + width] for other, found in zip(others, places, strict=True) for at in found]
    scores = np.zeros(0)
    if windows:
        scores = process.cdist([text], windows, scorer=fuzz.ratio, score_cutoff=LEAST, dtype=np.float64)[0]
    best = np.zeros(len(others))
    end = 0
    for i, (other, found) in enumerate(zip(others, places, strict=True)):
        start, end = end, end + len(found)
        mine = scores[start:end]
        if not len(mine):
            continue
        best[i] = mine.max()
        if best[i] == 100 or best[i] < lowest - NEAR or len(other) < width:
            continue
        for at in found[_peaks(mine, lowest - NEAR)]:
            wider = other[max(0, at - step) : at + width + step]
            best[i] = max(best[i], fuzz.partial_ratio(text, wider, score_cutoff=best[i]))
    return best


def _places(text: str, other: str, width: int, step: int, n: int) -> NDArray[np.int64]:
    """Return where windows start: every step and at the end; in a long text only around a shared n-gram."""
    if not other:
        return np.zeros(0, np.int64)
    if len(other) <= width:
        return np.zeros(1, np.int64)
    last = len(other) - width
    places = np.arange(0, last + 1, step, dtype=np.int64)
    if places[-1] != last:
        places = np.append(places, last)
    if len(other) <= LONG:
        return places
    words = hash_words(pl.Series([text]), "letters")
    length = int(length_used(words.count, n)[0])
    grams, long = words.ngrams(length)[1], hash_words(pl.Series([other]), "letters").ngrams(length)[1]
    shared = word_starts(other)[np.flatnonzero(np.isin(long, grams))]
    inside = np.searchsorted(shared, places + width) > np.searchsorted(shared, places)
    return np.asarray(places[inside])


def _peaks(scores: Floats, least: float) -> NDArray[np.int64]:
    """Return the best local maxima of at least `least`, best first, the earlier one of equals."""
    before = np.concatenate([[-1.0], scores[:-1]])
    after = np.concatenate([scores[1:], [-1.0]])
    peaks = np.flatnonzero((scores >= before) & (scores >= after) & (scores >= max(least, LEAST)))
    return peaks[np.argsort(-scores[peaks], kind="stable")][:MAXIMA]

"""Homogenisation: how alike the texts of a set are, two by two, by BLEU and by ROUGE-L."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import missing_extra
from gradatim.tasks.core.ngrams import PATTERNS, HashedWords, hash_words
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic
from gradatim.tasks.diversity.lexical import Unit, WordsConfig, hash_order, result, subsets, texts
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.self_bleu import SMOOTHING

SOURCE = (
    "V. Padmakumar, H. He (2023). Does writing with language models reduce content diversity?; C.-Y. Lin (2004). "
    "ROUGE: a package for automatic evaluation of summaries; K. Papineni, S. Roukos, T. Ward, W.-J. Zhu (2002). BLEU: "
    "a method for automatic evaluation of machine translation"
)
BLOCK = 256
"""Texts that are compared with all others at once."""
NORMAL = 1.959963984540054
Score = Literal["rouge_l", "bleu"]
Floats = NDArray[np.float64]


class HomogenisationConfig(WordsConfig):
    """Settings of `homogenisation`."""

    unit: Unit = Field("letters", description="what a word is: words, tokens, letters or characters")
    scores: tuple[Score, ...] = Field(("rouge_l", "bleu"), description="what is measured; the first one comes first")
    n: int = Field(4, ge=1, le=10, description="longest n-grams of BLEU")
    sample: int = Field(1000, ge=2, le=5_000, description="texts compared, drawn by hash; cost grows with its square")
    longest: int = Field(2000, ge=1, description="words of a text that are looked at, from its beginning")

    @field_validator("scores")
    @classmethod
    def _each_once(cls, found: tuple[Score, ...]) -> tuple[Score, ...]:
        if not found or len(set(found)) < len(found):
            raise ValueError("scores should be rouge_l, bleu, or both, each once")
        return found


def rouge_l_matrix(words: HashedWords) -> Floats:
    """Return the ROUGE-L of every two texts.

    Parameters
    ----------
    words : HashedWords
        Of N texts.

    Returns
    -------
    numpy.ndarray, shape (N, N), float64
        F1 of the longest common subsequence of words, in [0, 1], symmetric; 0 for two texts without words.

    Raises
    ------
    UsageError
        The package rapidfuzz is not installed.

    Notes
    -----
    O(N^2 L^2 / 64) with L words a text, by bit-parallel subsequences.

    Source: C.-Y. Lin (2004). ROUGE: a package for automatic evaluation of summaries.
    """
    try:
        from rapidfuzz.distance import LCSseq
        from rapidfuzz.process import cdist
    except ImportError:
        raise missing_extra("rapidfuzz", "text") from None
    numbers = np.unique(words.hashes, return_inverse=True)[1]
    lists = [part.tolist() for part in np.split(numbers, np.cumsum(words.count)[:-1])] if len(words.count) else []
    common = cdist(lists, lists, scorer=LCSseq.similarity, dtype=np.int64, workers=-1)
    both = words.count[:, None] + words.count
    found: Floats = 2.0 * np.asarray(common).reshape(both.shape) / np.maximum(both, 1)
    return found


def bleu_matrix(words: HashedWords, n: int = 4) -> Floats:
    """Return the BLEU of each text with each other one as its only reference.

    Parameters
    ----------
    words : HashedWords
        Of N texts.
    n : int
        Longest n-grams; each length weighs the same.

    Returns
    -------
    numpy.ndarray, shape (N, N), float64
        Row: the text, column: its reference; in [0, 1], not symmetric; 0 where no word matches.

    Notes
    -----
    The k-th occurrence of an n-gram in a text counts as an item of its own: then clipped matches of all pairs are one
    product of sparse 0/1 matrices, of as many multiplications as there are shared items. Smoothing and brevity penalty
    are those of `self_bleu`.
    """
    from scipy import sparse

    size = len(words.count)
    logs, none = np.zeros((size, size)), np.ones((size, size), dtype=bool)
    for length in range(1, n + 1):
        text, gram = words.ngrams(length)
        item = pl.DataFrame({"text": text, "gram": gram}).with_columns(time=pl.int_range(pl.len()).over("text", "gram"))
        number = item.select(pl.struct("gram", "time").rank("dense") - 1).to_series().to_numpy().astype(np.int64)
        shape = (size, int(number.max(initial=-1)) + 1)
        held = sparse.csr_array((np.ones(len(text), dtype=np.int32), (text, number)), shape=shape)
        total = np.maximum(np.bincount(text, minlength=size), 1)
        for start in range(0, size, BLOCK):
            rows = slice(start, start + BLOCK)
            matched = (held[rows] @ held.T).toarray()
            if length == 1:
                none[rows] = matched == 0
            logs[rows] += np.log(np.where(matched > 0, matched, SMOOTHING) / total[rows, None]) / n
    mine, other = words.count[:, None], words.count[None, :]
    logs += np.minimum(0.0, 1 - other / np.maximum(mine, 1))
    return np.where(none, 0.0, np.exp(logs))


def mean_of_pairs(matrix: Floats) -> tuple[float, float, Floats]:
    """Return the mean over all ordered pairs of two different texts, its standard error, and the mean of each text.

    Parameters
    ----------
    matrix : numpy.ndarray, shape (N, N)

    Returns
    -------
    (float, float, numpy.ndarray of shape (N,))
        A text's mean is over its pairs in both orders. NaN for fewer than two texts; the error needs three.

    Notes
    -----
    The error is the jackknife's over texts, since pairs that share a text are not independent.

    Source: B. Efron, C. Stein (1981). The jackknife estimate of variance.
    """
    size = len(matrix)
    if size < 2:
        return math.nan, math.nan, np.full(size, np.nan)
    both = matrix + matrix.T
    np.fill_diagonal(both, 0.0)
    own = np.array([ordered_sum(row, sort=False) for row in both])
    total = ordered_sum(own) / 2  # of ordered pairs; `own` holds each pair twice in both orders
    mean = total / (size * (size - 1))
    if size < 3:
        return mean, math.nan, own / (2 * (size - 1))
    without = (total - own) / ((size - 1) * (size - 2))
    spread = without - ordered_sum(without) / size
    error = math.sqrt((size - 1) / size * ordered_sum(spread * spread))
    return mean, error, own / (2 * (size - 1))


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=1.0 + rows * 1.2e-6, bytes=2e8 + rows * 200)


@register(
    "diversity",
    "homogenisation",
    config=HomogenisationConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    source=SOURCE,
)
def homogenisation(tables: Mapping[str, pl.DataFrame], config: HomogenisationConfig, seed: int) -> Diversity:
    """Mean ROUGE-L and BLEU over all pairs of texts of a sample: the higher, the more alike they are.

    Returns the statistics ``rouge_l`` and ``bleu`` with intervals (jackknife over texts) and ``mean_length`` (words a
    text of the sample), of all and of each subset, drawn by `seed`; each sampled row's value is its mean similarity, by
    the first of `scores`, to the others. A mean of pairs does not grow with the sample, unlike `self_bleu`.
    """
    rows = texts(tables, config, "diversity homogenisation")
    worded = rows.filter(pl.col("text").str.contains(PATTERNS[config.unit]))
    warnings = [f"{len(rows) - len(worded):,} texts have no word and were left out"] if len(worded) < len(rows) else []
    statistics, values, cut, alone = [], None, 0, []
    for name, part in subsets(worded, config.by):
        drawn = hash_order(part, seed, "homogenisation").head(config.sample).sort("example_id")
        words = hash_words(drawn["text"], config.unit, ignore_case=config.ignore_case)
        short = _beginnings(words, config.longest)
        if len(drawn) < 2:
            alone.append(name)
        for score in config.scores:
            matrix = rouge_l_matrix(short) if score == "rouge_l" else bleu_matrix(short, config.n)
            mean, error, own = mean_of_pairs(matrix)
            ends = (max(0.0, mean - NORMAL * error), min(1.0, mean + NORMAL * error)) if error >= 0 else (None, None)
            statistics.append(Statistic(name, score, mean, len(drawn), *ends))
            if name == "all" and score == config.scores[0]:
                values = drawn.select("example_id", value=pl.Series(own).fill_nan(None))
        statistics.append(Statistic(name, "mean_length", float(words.count.sum()) / len(drawn), len(drawn)))
        cut = int((words.count > config.longest).sum()) if name == "all" else cut
    if alone:
        warnings.append(f"a text alone has no pair: {', '.join(alone[:5])}")
    if cut:
        warnings.append(f"of {cut:,} longer texts the first {config.longest:,} words were compared")
    left_out = len(tables["examples"]) - len(rows)
    return result(
        "homogenisation",
        config,
        statistics,
        main=config.scores[0],
        source=SOURCE,
        left_out=left_out,
        values=values,
        warnings=warnings,
    )


def _beginnings(words: HashedWords, longest: int) -> HashedWords:
    """Cut each text to its first words."""
    count = np.minimum(words.count, longest)
    place = np.arange(len(words.hashes)) - np.repeat(np.cumsum(words.count) - words.count, words.count)
    return HashedWords(count, words.hashes[place < longest])

"""Self-BLEU: how well each text is made of the n-grams of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.tasks.core.ngrams import PATTERNS, HashedWords, hash_words
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic
from gradatim.tasks.diversity.lexical import Unit, WordsConfig, hash_order, result, subsets, texts
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "Y. Zhu, S. Lu, L. Zheng, J. Guo, W. Zhang, J. Wang, Y. Yu (2018). Texygen: a benchmarking platform for text "
    "generation models"
)
SMOOTHING = 0.1
"""What stands in for no match of an n-gram length (method 1 of Chen and Cherry)."""


class SelfBleuConfig(WordsConfig):
    """Settings of `self_bleu`."""

    unit: Unit = Field("tokens", description="what a word is: words, tokens, letters or characters")
    n: int = Field(4, ge=1, le=10, description="longest n-grams")
    sample: int = Field(1000, ge=2, description="texts measured, drawn by hash; fewer where a subset has fewer")


def self_bleu_scores(words: HashedWords, n: int = 4) -> NDArray[np.float64]:
    """Return the BLEU of each text with all other texts as its references.

    Parameters
    ----------
    words : HashedWords
        Of N texts.
    n : int
        Longest n-grams; each length weighs the same.

    Returns
    -------
    numpy.ndarray, shape (N,), float64
        0 to 1; 0 where no word stands in another text, NaN for a text without words and for one that is alone.

    Notes
    -----
    Only the two largest counts of each n-gram are needed, so all N scores cost O(words), not O(N^2). Clipped counts,
    brevity penalty (reference of the closest length, the shorter of two) and smoothing (`SMOOTHING` matches where
    there is none) are those of nltk's ``sentence_bleu`` with ``method1``.

    Source: K. Papineni, S. Roukos, T. Ward, W.-J. Zhu (2002). BLEU: a method for automatic evaluation of machine
    translation; B. Chen, C. Cherry (2014). A systematic comparison of smoothing techniques for sentence-level BLEU.
    """
    worded = words.count > 0
    logs, none = np.zeros(len(words.count)), np.zeros(len(words.count), dtype=bool)
    for length in range(1, n + 1):
        matched, total = _matches(words, length)
        if length == 1:
            none = matched == 0
        logs += np.log(np.where(matched > 0, matched, SMOOTHING) / np.maximum(total, 1)) / n
    scores = np.where(none, 0.0, _brevity(words.count) * np.exp(logs))
    alone = worded.sum() < 2
    return np.where(worded & ~alone, scores, np.nan)


def _matches(words: HashedWords, length: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """N-grams of each text that stand in another one, each counted as often as in that other at most; and all."""
    text, gram = words.ngrams(length)
    size = len(words.count)
    counted = pl.DataFrame({"text": text, "gram": gram}).group_by("text", "gram").agg(times=pl.len().cast(pl.Int64))
    top = pl.col("times").max()
    tops = counted.group_by("gram").agg(
        top=top,
        holders=(pl.col("times") == top).sum(),
        second=pl.col("times").filter(pl.col("times") < top).max().fill_null(0),
    )
    mine_is_top = (pl.col("times") == pl.col("top")) & (pl.col("holders") == 1)
    others = pl.when(mine_is_top).then("second").otherwise("top")
    found = counted.join(tops, on="gram").select("text", matched=pl.min_horizontal("times", others))
    matched = np.bincount(found["text"].to_numpy(), found["matched"].to_numpy(), minlength=size).astype(np.float64)
    return matched, np.bincount(text, minlength=size).astype(np.float64)


def _brevity(count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Penalty of texts shorter than the other text whose length is closest; texts without words are no reference."""
    lengths, times = np.unique(count[count > 0], return_counts=True)
    if not len(lengths):
        return np.zeros(len(count))
    at = np.minimum(np.searchsorted(lengths, count), len(lengths) - 1)
    below = lengths[np.maximum(at - 1, 0)].astype(np.float64)
    above = lengths[np.minimum(at + 1, len(lengths) - 1)].astype(np.float64)
    below = np.where(at > 0, below, above)
    above = np.where(at + 1 < len(lengths), above, below)
    closest = np.where(count - below <= above - count, below, above)
    closest = np.where(at == 0, above, closest)
    closest = np.where(times[at] > 1, count, closest)
    return np.where(count > closest, 1.0, np.exp(1 - closest / np.maximum(count, 1)))


def self_bleu(texts: Iterable[str], n: int = 4, *, unit: str = "tokens", ignore_case: bool = True) -> float:
    """Return the mean BLEU of each text with all others as its references; NaN for fewer than two texts."""
    return _mean(
        self_bleu_scores(hash_words(pl.Series(list(texts), dtype=pl.String), unit, ignore_case=ignore_case), n)
    )


def _mean(scores: NDArray[np.float64]) -> float:
    known = scores[~np.isnan(scores)]
    return ordered_sum(known) / len(known) if len(known) else float("nan")


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.3 + rows * 2e-6, bytes=1e8 + rows * 300)


@register(
    "diversity",
    "self_bleu",
    config=SelfBleuConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    source=SOURCE,
)
def bleu(tables: Mapping[str, pl.DataFrame], config: SelfBleuConfig, seed: int) -> Diversity:
    """Mean BLEU of each text of a sample with all others of it as references: the higher, the less diverse.

    Returns the statistics ``self_bleu`` and ``mean_length`` (words a text of the sample), of as many texts from every
    subset, drawn by `seed`; each sampled row's value is its own BLEU among all.
    """
    rows = texts(tables, config, "diversity self_bleu")
    worded = rows.filter(pl.col("text").str.contains(PATTERNS[config.unit]))
    parts = dict(subsets(worded, config.by))
    least = min((len(part), name) for name, part in parts.items())
    size = min(config.sample, least[0])
    warnings = [f"{len(rows) - len(worded):,} texts have no word and were left out"] if len(worded) < len(rows) else []
    if config.by and size < config.sample:
        warnings.append(f"compared at {size:,} texts, as many as {least[1]} has, and not at {config.sample:,}")
    statistics, values = [], None
    for name, part in parts.items():
        drawn = hash_order(part, seed, "self_bleu").head(size).sort("example_id")
        words = hash_words(drawn["text"], config.unit, ignore_case=config.ignore_case)
        scores = self_bleu_scores(words, config.n)
        statistics.append(Statistic(name, "self_bleu", _mean(scores), len(drawn)))
        statistics.append(Statistic(name, "mean_length", float(words.count.sum()) / len(drawn), len(drawn)))
        if name == "all":
            values = drawn.select("example_id", value=pl.Series(scores).fill_nan(None))
    if size < 2:
        warnings.append("a text alone has no self-BLEU")
    left_out = len(tables["examples"]) - len(rows)
    return result(
        "self_bleu",
        config,
        statistics,
        main="self_bleu",
        source=SOURCE,
        left_out=left_out,
        values=values,
        warnings=warnings,
    )

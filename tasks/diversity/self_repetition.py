"""Self-repetition: how often the n-grams of a text stand in other texts too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.ngrams import HashedWords, hash_words
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic
from gradatim.tasks.diversity.lexical import WordsConfig, hash_order, result, subsets, texts
from gradatim.tasks.diversity.result import Diversity

SOURCE = "N. Salkar, T. Trikalinos, B. C. Wallace, A. Nenkova (2022). Self-repetition in abstractive neural summarizers"
UNEVEN = 1.5
"""Ratio of the sizes of subsets from which on they should not be compared as they are."""

AT_ONCE = 2_000_000
"""n-grams whose texts are counted at once."""


class RepetitionConfig(WordsConfig):
    """Settings of `self_repetition`."""

    n: int = Field(4, ge=1, description="words of an n-gram")
    documents: int = Field(0, ge=0, description="measure only so many texts of each subset, drawn by hash; 0: all")


def partial(words: HashedWords, n: int = 4) -> pl.DataFrame:
    """Count the texts of a part that each n-gram stands in: gram (UInt64), texts (UInt32), sorted by gram."""
    return _distinct(words, n).group_by("gram").agg(texts=pl.len().cast(pl.UInt32)).sort("gram")


def merge(partials: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Add the counts of parts, in any order and grouping."""
    return pl.concat(list(partials)).group_by("gram").agg(pl.col("texts").sum()).sort("gram")


def repeats(words: HashedWords, counts: pl.DataFrame, n: int = 4) -> np.ndarray:
    """Sum, over each text's different n-grams, the other texts that each stands in: (texts,), int64."""
    shared = counts.filter(pl.col("texts") > 1)
    found = _distinct(words, n).join(shared, on="gram")
    # whole numbers: their sums are exact in any order
    sums = np.bincount(found["text"].to_numpy(), found["texts"].to_numpy() - 1.0, minlength=len(words.count))
    return np.asarray(sums, dtype=np.int64)


def repeats_within(words: HashedWords, n: int = 4) -> np.ndarray:
    """Do as `repeats` with the counts of these texts alone; n-grams of `AT_ONCE` hashes or so are held at a time."""
    text, gram = words.ngrams(n)
    slots = max(1, len(gram) // AT_ONCE)
    slot = gram % np.uint64(slots)
    sums = np.zeros(len(words.count), dtype=np.int64)
    for i in range(slots):
        mine = slot == i
        found = pl.DataFrame({"text": text[mine].astype(np.uint32), "gram": gram[mine]}).unique()
        shared = found.join(found.group_by("gram").agg(texts=pl.len()).filter(pl.col("texts") > 1), on="gram")
        more = np.bincount(shared["text"].to_numpy(), shared["texts"].to_numpy() - 1.0, minlength=len(sums))
        sums += more.astype(np.int64)
    return sums


def finish(sums: np.ndarray) -> float:
    """Return the mean of ln(1 + sum) over all texts of all parts, in any order; NaN for none."""
    values, times = np.unique(sums, return_counts=True)
    return ordered_sum(np.log1p(values) * times) / len(sums) if len(sums) else float("nan")


def self_repetition(texts: Iterable[str], n: int = 4, *, unit: str = "words", ignore_case: bool = True) -> float:
    """Return the mean over texts of ln(1 + sum over its different n-grams of the other texts that hold it)."""
    words = hash_words(pl.Series(list(texts), dtype=pl.String), unit, ignore_case=ignore_case)
    return finish(repeats_within(words, n))


def _distinct(words: HashedWords, n: int) -> pl.DataFrame:
    text, gram = words.ngrams(n)
    return pl.DataFrame({"text": text.astype(np.uint32), "gram": gram}).unique()


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.1 + rows * 2e-5, bytes=2e8 + rows * 900)


@register(
    "diversity",
    "self_repetition",
    config=RepetitionConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    source=SOURCE,
)
def repetition(tables: Mapping[str, pl.DataFrame], config: RepetitionConfig, seed: int) -> Diversity:
    """How often the n-grams of a text stand in other texts of the same subset, on a scale of logarithms.

    Returns the statistics ``self_repetition`` and ``mean_length`` (words a text); each row's value is its own
    ln(1 + sum) among all rows measured. `seed` draws the texts where only `documents` of them count.
    """
    rows = texts(tables, config, "diversity self_repetition")
    statistics, sizes, values = [], [], None
    for name, part in subsets(rows, config.by):
        if config.documents:
            part = hash_order(part, seed, "self_repetition").head(config.documents).sort("example_id")
        words = hash_words(part["text"], config.unit, ignore_case=config.ignore_case)
        sums = repeats_within(words, config.n)
        statistics.append(Statistic(name, "self_repetition", finish(sums), len(part)))
        statistics.append(Statistic(name, "mean_length", float(words.count.sum()) / len(part), len(part)))
        if name == "all":
            values = part.select("example_id", value=pl.Series(np.log1p(sums)))
        else:
            sizes.append(len(part))
    warnings = []
    if sizes and max(sizes) > UNEVEN * min(sizes):
        warnings.append(
            f"the subsets have {min(sizes):,} to {max(sizes):,} texts, and repetition grows with their number: "
            f"compare them with documents: {min(sizes)}"
        )
    left_out = len(tables["examples"]) - len(rows)
    return result(
        "self_repetition",
        config,
        statistics,
        main="self_repetition",
        source=SOURCE,
        left_out=left_out,
        values=values,
        warnings=warnings,
    )

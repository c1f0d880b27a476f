"""Distinct-n: the share of different n-grams among all, at equal numbers of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.ngrams import HashedWords, hash_words
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic
from gradatim.tasks.diversity.lexical import WordsConfig, hash_order, result, subsets, texts
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "J. Li, M. Galley, C. Brockett, J. Gao, B. Dolan (2016). A diversity-promoting objective function for neural "
    "conversation models"
)
FEW = 1000
"""Words below which the shares are close to 1 whatever the texts say."""


class DistinctConfig(WordsConfig):
    """Settings of `distinct_n`."""

    orders: tuple[int, ...] = Field((1, 2, 3, 4), description="lengths of the n-grams")
    tokens: int = Field(100_000, ge=1, description="words of the sample; fewer where a subset has fewer")

    @field_validator("orders")
    @classmethod
    def _orders(cls, orders: tuple[int, ...]) -> tuple[int, ...]:
        if not orders or min(orders) < 1:
            raise ValueError("orders must be lengths of 1 or more, at least one")
        return tuple(sorted(set(orders)))


@dataclass(frozen=True)
class Sample:
    """The first texts in the order of their hashes, and how many there were.

    Attributes
    ----------
    rows : polars.DataFrame
        bits, example_id, hashes (list of UInt64, a word each), sorted by bits and id.
    words, texts : int
        Of all that were seen.
    """

    rows: pl.DataFrame
    words: int
    texts: int


def partial(rows: pl.DataFrame, tokens: int, seed: int, unit: str = "words", ignore_case: bool = True) -> Sample:
    """Keep the texts of a part (example_id, text) that may be among the first `tokens` words in the order of hashes."""
    words = hash_words(rows["text"], unit, ignore_case=ignore_case)
    ordered = hash_order(rows.select("example_id", row=pl.int_range(pl.len())), seed, "distinct_n")
    place = ordered["row"].to_numpy()
    count = words.count[place]
    kept = np.concatenate([[0], np.cumsum(count)])[:-1] < tokens
    place, count = place[kept], count[kept]
    starts = np.concatenate([[0], np.cumsum(words.count)])[place]
    inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    hashes = _lists(words.hashes[np.repeat(starts, count) + inside], count)
    frame = ordered.filter(pl.Series(kept, dtype=pl.Boolean)).select("bits", "example_id").with_columns(hashes=hashes)
    return Sample(frame, int(words.count.sum()), len(rows))


def merge(samples: Iterable[Sample], tokens: int) -> Sample:
    """Merge samples of parts in any order and grouping."""
    parts = list(samples)
    rows = pl.concat([part.rows for part in parts]).sort("bits", "example_id")
    before = rows["hashes"].list.len().cast(pl.Int64).cum_sum().shift(1).fill_null(0)
    return Sample(rows.filter(before < tokens), sum(part.words for part in parts), sum(part.texts for part in parts))


def finish(sample: Sample, tokens: int, orders: Iterable[int] = (1, 2, 3, 4)) -> dict[int, float]:
    """Return the share of different n-grams among those of the first `tokens` words; NaN where there is no n-gram.

    The last text is cut so that the number of words is exact; no n-gram crosses from one text into the next.
    """
    count = sample.rows["hashes"].list.len().to_numpy().astype(np.int64)
    ends = np.minimum(np.cumsum(count), tokens)
    hashes = sample.rows["hashes"].explode().drop_nulls().to_numpy()[:tokens]
    words = HashedWords(np.diff(np.concatenate([[0], ends])), hashes)
    found = {}
    for n in orders:
        grams = words.ngrams(n)[1]
        found[n] = len(np.unique(grams)) / len(grams) if len(grams) else float("nan")
    return found


def distinct_n(texts: Iterable[str], n: int, *, unit: str = "words", ignore_case: bool = True) -> float:
    """Return different n-grams over all n-grams of texts, which falls with their number; NaN where there is none."""
    if n < 1:
        raise UsageError(f"n-grams of {n} words", expected="1 or more")
    grams = hash_words(pl.Series(list(texts), dtype=pl.String), unit, ignore_case=ignore_case).ngrams(n)[1]
    return len(np.unique(grams)) / len(grams) if len(grams) else float("nan")


def _lists(values: np.ndarray, count: np.ndarray) -> pl.Series:
    import pyarrow as pa

    offsets = pa.array(np.concatenate([[0], np.cumsum(count)]), pa.int64())
    lists = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, pa.array(values, pa.uint64())))
    return pl.Series("hashes", lists, dtype=pl.List(pl.UInt64))


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.1 + rows * 8e-6, bytes=1e8 + rows * 500)


@register(
    "diversity",
    "distinct_n",
    config=DistinctConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    source=SOURCE,
)
def distinct(tables: Mapping[str, pl.DataFrame], config: DistinctConfig, seed: int) -> Diversity:
    """Share of different n-grams among all, of as many words from every subset, in an order that `seed` draws.

    Returns the statistics ``distinct_1`` ... ``distinct_4``, and beside them ``mean_length`` (words a text, of all
    texts) and ``tokens`` (words of the sample).
    """
    rows = texts(tables, config, "diversity distinct_n")
    samples = {
        name: partial(part, config.tokens, seed, config.unit, config.ignore_case)
        for name, part in subsets(rows, config.by)
    }
    least = min((sample.words, name) for name, sample in samples.items() if sample.words)
    size = min(config.tokens, least[0])
    warnings = [f"{name} has no word" for name, sample in samples.items() if not sample.words]
    if size < config.tokens:
        warnings.append(f"compared at {size:,} words, as many as {least[1]} has, and not at {config.tokens:,}")
    if size < FEW:
        warnings.append(f"{size:,} words are few: in any short text nearly every n-gram is new")
    statistics = []
    for name, sample in samples.items():
        found = finish(sample, size, config.orders) if sample.words else dict.fromkeys(config.orders, float("nan"))
        statistics += [Statistic(name, f"distinct_{n}", value, sample.texts) for n, value in found.items()]
        statistics.append(Statistic(name, "mean_length", sample.words / sample.texts, sample.texts))
        statistics.append(Statistic(name, "tokens", float(min(size, sample.words)), sample.texts))
    main = f"distinct_{config.orders[min(1, len(config.orders) - 1)]}"
    left_out = len(tables["examples"]) - len(rows)
    return result("distinct_n", config, statistics, main=main, source=SOURCE, left_out=left_out, warnings=warnings)

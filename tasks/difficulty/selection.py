"""Which examples to train on, by what rollouts say: hard, easy, medium, learnable, a band, strata or a mixture.

Each function takes what `rollouts` or `pass_rate` gave, or its table (example_id, raw: pass rate, n) in any order, and
returns ids in the order of their selection. Ties are broken by id; chance is a pure function of seed and id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.ranks import DECIMALS

ENOUGH = 8
"""Rollouts from which an example that never succeeded counts as out of reach for `hard_nonzero`."""


def select(table: pl.DataFrame, strategy: str, *, size: int, seed: int = 0) -> list[str]:
    """Select `size` examples (or all, where there are fewer) by one of `STRATEGIES`.

    Raises
    ------
    UsageError
        For an unknown strategy, or a size below 1.

    Notes
    -----
    Source: Hard examples are all you need (2025), arXiv 2508.14094: hard, easy, medium and random at a budget of a
    tenth.
    """
    if strategy not in STRATEGIES:
        raise UsageError(
            f"there is no selection {strategy!r}{nearest(strategy, STRATEGIES)}", expected=", ".join(STRATEGIES)
        )
    return STRATEGIES[strategy](table, size, seed)


def hard(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """The lowest pass rates first."""
    return _first(_ranked(table).reverse(), size)


def easy(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """The highest pass rates first."""
    return _first(_ranked(table), size)


def medium(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """A window of ranks around the middle, easiest first."""
    ranked = _ranked(table)
    size = min(_positive(size), len(ranked))
    return ranked["example_id"].slice((len(ranked) - size) // 2, size).to_list()


def hard_nonzero(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """The lowest pass rates first, without examples that failed in all of eight rollouts or more: no signal there."""
    return hard(_read(table).filter((pl.col("raw") > 0) | (pl.col("n") < ENOUGH)), size)


def max_learnability(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """The largest p(1 - p) first, so pass rates nearest to one half."""
    distance = (pl.col("raw") - 0.5).abs().round(DECIMALS)
    return _first(_read(table).sort(distance, pl.col("example_id")), size)


def random(table: pl.DataFrame, size: int, seed: int = 0) -> list[str]:
    """Any examples, by the hash of seed and id: adding rows takes places, but changes no one's order."""
    return _first(_drawn(_read(table), seed, "random"), size)


STRATEGIES: dict[str, Callable[[pl.DataFrame, int, int], list[str]]] = {
    "hard": hard,
    "hard_nonzero": hard_nonzero,
    "medium": medium,
    "easy": easy,
    "max_learnability": max_learnability,
    "random": random,
}
"""Selections that need a size and a seed only."""


def band(table: pl.DataFrame, *, low: float, high: float, size: int | None = None, seed: int = 0) -> list[str]:
    """Examples whose pass rate is in [low, high], at random, `size` of them or all."""
    if not 0 <= low <= high <= 1:
        raise UsageError(f"a band from {low} to {high}", where="selection band", expected="0 <= low <= high <= 1")
    inside = _read(table).filter(pl.col("raw").round(DECIMALS).is_between(round(low, DECIMALS), round(high, DECIMALS)))
    return _first(_drawn(inside, seed, "band"), max(1, len(inside)) if size is None else size)


def stratified(
    table: pl.DataFrame, *, size: int, strata: int = 10, quotas: Sequence[float] | None = None, seed: int = 0
) -> list[str]:
    """Cut the ranks into equal strata and draw from each its share, easiest stratum first.

    `quotas` are relative, by default equal. A stratum that is smaller than its share gives all that it has: nobody
    else fills in.
    """
    if strata < 1 or (quotas is not None and len(quotas) != strata):
        raise UsageError(
            f"{len(quotas or ())} quotas for {strata} strata", where="selection stratified", expected="one a stratum"
        )
    ranked = _ranked(table)
    shares = _shares(list(quotas) if quotas is not None else [1.0] * strata, _positive(size), "quota")
    ends = [k * len(ranked) // strata for k in range(strata + 1)]
    found: list[str] = []
    for low, high, share in zip(ends[:-1], ends[1:], shares, strict=True):
        found += _drawn(ranked.slice(low, high - low), seed, "stratified")["example_id"].head(share).to_list()
    return found


def mixture(table: pl.DataFrame, weights: Mapping[str, float], *, size: int, seed: int = 0) -> list[str]:
    """Select by several strategies in proportion to their weights; an example that one has taken is left to it."""
    shares = _shares(list(weights.values()), _positive(size), "weight")
    found: list[str] = []
    for strategy, share in zip(weights, shares, strict=True):
        left = _read(table).filter(~pl.col("example_id").is_in(found))
        if share:
            found += select(left, strategy, size=share, seed=seed)
    return found


def _read(table: pl.DataFrame) -> pl.DataFrame:
    """Take a table, or a result that has one; its pass rates must be known."""
    found: pl.DataFrame = getattr(table, "table", table)
    for name in ("example_id", "raw", "n"):
        if name not in found.columns:
            raise UsageError(
                f"there is no column {name!r}", where="selection", expected="the table of rollouts or pass_rate"
            )
    return found


def _ranked(table: pl.DataFrame) -> pl.DataFrame:
    """Sort by failure rate, easiest first, ties by id."""
    return _read(table).sort((1.0 - pl.col("raw")).round(DECIMALS), pl.col("example_id"))


def _drawn(table: pl.DataFrame, seed: int, purpose: str) -> pl.DataFrame:
    draw = uniform(table["example_id"], seed, f"selection.{purpose}")
    return table.with_columns(pl.Series("draw", draw, dtype=pl.Float64)).sort("draw", "example_id")


def _first(table: pl.DataFrame, size: int) -> list[str]:
    return table["example_id"].head(_positive(size)).to_list()


def _positive(size: int) -> int:
    if size < 1 or size != int(size):
        raise UsageError(f"a selection of size {size}", where="selection", expected="a whole number from 1")
    return int(size)


def _shares(weights: Sequence[float], size: int, word: str) -> list[int]:
    """Cut `size` in proportion to weights by largest remainders, the first of equals first."""
    if not weights or not all(0 <= w < np.inf for w in weights) or sum(weights) <= 0:
        raise UsageError(f"{word}s {list(weights)}", where="selection", expected=f"a {word} of 0 or more, one above 0")
    exact = np.array(weights, dtype=np.float64) / sum(weights) * size
    shares = np.floor(exact + 1e-9).astype(int)
    order = np.argsort(-np.round(exact - shares, DECIMALS), kind="stable")
    shares[order[: size - int(shares.sum())]] += 1
    return [int(share) for share in shares]

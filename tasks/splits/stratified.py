"""Stratified split: each class, or each difficulty bin, has the same share in train, validation and test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.controls import one_method
from gradatim.tasks.splits.engine import IN, TEST, TRAIN, VALIDATION, Marks, Pool, build
from gradatim.tasks.splits.inputs import phrase, prepare
from gradatim.tasks.splits.result import Split

SOURCE = "Kohavi (1995). A Study of Cross-Validation and Bootstrap for Accuracy Estimation and Model Selection."


class StratifiedConfig(SplitConfig):
    """Settings of a stratified split."""

    column: str | None = Field(None, description="column whose values are the strata; difficulty bins by default")


@register(
    "split",
    "stratified",
    config=StratifiedConfig,
    needs=("examples.{column}", "examples.{keep_together}"),
    cost=lambda rows, width: Cost(3e-6 * rows, 400 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: StratifiedConfig, seed: int) -> Split:
    """Cut each stratum (a column's value, or a difficulty bin) in the same shares, exact to a row or group.

    The balance can force rows to move when rows are added; released test rows stay.
    """
    examples = prepare(tables, config)
    stratum = _strata(examples, tables, config)
    strata = stratum.unique().sort()
    codes = stratum.rank("dense").cast(pl.Int64).to_numpy() - 1
    reason = phrase("drawn within ", stratum)
    marks = Marks(side=np.full(len(examples), IN, np.int8), reason=reason)
    warnings = (f"there is one stratum ({strata[0]}): this is a random split",) if len(strata) == 1 else ()

    def cut(pool: Pool, settings: SplitConfig) -> np.ndarray:
        return cut_by_quota(pool, settings, codes, len(strata))

    return build(
        examples, [marks], config, seed, tables,
        method="stratified", axis="none", source=SOURCE, cut=cut, warnings=warnings,
    )  # fmt: skip


def cut_by_quota(pool: Pool, config: SplitConfig, stratum: np.ndarray, strata: int) -> np.ndarray:
    """Fill each stratum's quota of test, then validation, in the order of the draws.

    A component belongs to the stratum of most of its rows (the first of equals). A quota is share x rows, rounded by
    largest remainders, so that the whole is right to a row. A component larger than its quota stays in train, and so
    does one that would overfill it by more than half of its own size.

    Parameters
    ----------
    pool : Pool
    config : SplitConfig
    stratum : numpy.ndarray of int64, (rows of examples,)
        From 0 to strata - 1.
    strata : int

    Returns
    -------
    numpy.ndarray of uint8, (components,)
    """
    chosen = np.full(len(pool.draw), TRAIN, np.uint8)
    home = _majority(pool, stratum, strata)
    present = np.flatnonzero(pool.size > 0)
    rows = np.bincount(home[present], weights=pool.size[present], minlength=strata)
    order = present[np.lexsort((pool.draw[present], home[present]))]
    for split, share in ((TEST, config.test), (VALIDATION, config.validation)):
        quota = _largest_remainders(share * rows)
        candidates = order[pool.size[order] <= np.maximum(1, quota[home[order]])]
        size, owner = pool.size[candidates], home[candidates]
        filled = np.cumsum(size) - size / 2
        start = np.concatenate([[0.0], np.cumsum(np.bincount(owner, weights=size, minlength=strata))])
        taken = filled - start[owner] <= quota[owner]
        chosen[candidates[taken]] = split
        order = order[chosen[order] == TRAIN]
    return chosen


def _largest_remainders(wanted: np.ndarray) -> np.ndarray:
    """Round to whole numbers whose sum is the rounded sum."""
    wanted = np.round(wanted, 9)
    whole: np.ndarray = np.floor(wanted)
    more = round(float(wanted.sum())) - int(whole.sum())
    whole[np.argsort(-(wanted - whole), kind="stable")[:more]] += 1
    return whole


def _majority(pool: Pool, stratum: np.ndarray, strata: int) -> np.ndarray:
    """Return the stratum that most of a component's rows in the pool have."""
    pairs, counts = np.unique(pool.code[pool.rows] * strata + stratum[pool.rows], return_counts=True)
    order = np.lexsort((-pairs, counts))  # the last write wins: most rows, then the smaller stratum
    home = np.zeros(len(pool.draw), np.int64)
    home[pairs[order] // strata] = pairs[order] % strata
    return home


def _strata(examples: pl.DataFrame, tables: Mapping[str, pl.DataFrame], config: StratifiedConfig) -> pl.Series:
    if config.column is not None:
        return phrase(f"{config.column} ", examples[config.column].cast(pl.String).fill_null("null"))
    if "difficulty" not in tables:
        raise UsageError(
            "there is nothing to stratify by",
            where="split stratified",
            expected="the setting 'column', or a difficulty whose bins are the strata",
            remedy="stratified: {column: domain}",
        )
    bins = one_method(tables["difficulty"], config.difficulty).select("example_id", "bin")
    joined = examples.select("example_id").join(bins, on="example_id", how="left", maintain_order="left")
    return phrase("bin ", joined["bin"].cast(pl.String).fill_null("unknown"))

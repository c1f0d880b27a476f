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
from gradatim.tasks.splits.engine import IN, Marks, build
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
    revision=2,
)
def run(tables: Mapping[str, pl.DataFrame], config: StratifiedConfig, seed: int) -> Split:
    """Cut each stratum (a column's value, or a difficulty bin) in the same shares, exact to a row or group.

    The balance can force rows to move when rows are added; released test rows stay.
    """
    if config.stratify is not None:
        raise UsageError("'stratify' and a stratified split say the same", remedy="stratified: {column: ...}")
    examples = prepare(tables, "stratified", config)
    stratum = _strata(examples, tables, config)
    count = stratum.n_unique()
    reason = phrase("drawn within ", stratum)
    warnings = (f"there is one stratum ({stratum[0]}): this is a random split",) if count == 1 else ()
    marks = Marks(side=np.full(len(examples), IN, np.int8), reason=reason, warnings=warnings)
    return build(
        examples, lambda _: [marks], config, seed, tables,
        method="stratified", axis="none", source=SOURCE, strata=stratum,
    )  # fmt: skip


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

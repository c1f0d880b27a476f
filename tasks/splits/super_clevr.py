"""Super-CLEVR: train on one level of one factor, test on each level of it, the other factors at their base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered
from gradatim.tasks.splits.values import assignments, coded, spelt

SOURCE = (
    "Li, Wang, Stengel-Eskin, Kortylewski, Ma, Van Durme & Yuille (2023). Super-CLEVR: A Virtual Benchmark to Diagnose "
    "Domain Robustness in Visual Reasoning."
)
_WHERE = "split super_clevr"


class SuperClevrConfig(SplitConfig):
    """Settings of level by level plans."""

    base: dict[str, bool | int | float | str] = Field(
        min_length=1, description="the factors, each with the level that it has while another one is shifted"
    )
    min_rows: int = Field(30, ge=1, description="a level with fewer rows to train on gets no fold")

    @property
    def columns(self) -> tuple[str, ...]:
        """The factors."""
        return tuple(sorted(self.base))


@rule(
    "super_clevr",
    config=SuperClevrConfig,
    needs=("examples.{columns}",),
    axis="one factor at a time",
    cost=lambda rows, width: Cost(2e-6 * rows * max(width, 12), 430 * rows * max(width, 12)),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: SuperClevrConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Make a fold for each level of each factor: train on it, and test on every level of that factor."""
    names = config.columns
    found = {name: coded(examples[name]) for name in names}
    at_base = {}
    for name in names:
        base, levels = spelt(config.base[name], examples[name]), found[name].levels
        if base not in levels:
            raise UsageError(
                f"there is no level {base!r}{nearest(base, levels.head(2000))}",
                where=f"{_WHERE}, base, column {name!r}",
                expected=", ".join(levels.head(20)),
            )
        at_base[name] = (levels == base).to_numpy()
    # rows that differ from the base in one factor at most
    off = {name: np.append(~at_base[name], True)[found[name].codes] for name in names}
    away = np.sum([off[name] for name in names], axis=0)
    known = np.logical_and.reduce([found[name].codes >= 0 for name in names])
    others = {name: known & (away - off[name] == 0) for name in names}
    folds, warnings = {}, []
    for name in names:
        sizes = np.bincount(found[name].codes[others[name]], minlength=len(found[name].levels))
        if (sizes > 0).sum() < 2:
            warnings.append(f"{name} has one level while the others are at their base: no fold")
            continue
        for number, level in enumerate(found[name].levels):
            folds[f"{name}: trained on {level}"] = (name, number, int(sizes[number]))
    few = [axis for axis, (_, _, size) in folds.items() if size < config.min_rows]
    warnings += [f"{axis}: {folds[axis][2]:,} rows, fewer than min_rows: no fold" for axis in few]
    if len(few) == len(folds):
        raise DataRefused(
            f"no level of {', '.join(names)} has {config.min_rows} rows while the other factors are at their base",
            where=_WHERE,
            expected="factors of two levels or more, shifted one at a time",
            remedy="name another base, or lower min_rows",
        )
    unknown = {name: pl.Series(found[name].codes < 0) for name in names}
    away_told = _differences(examples, names, off, unknown)
    marks = []
    for fold, axis in numbered(list(folds), tables.get("frozen"), config.folds, by="axis"):
        if axis in few:  # numbered too, so that min_rows moves no number
            continue
        name, number, _ = folds[axis]
        codes, levels = found[name].codes, found[name].levels
        inside = others[name] & (codes == number)
        side = np.where(inside, IN, np.where(others[name], OUT, NEITHER)).astype(np.int8)
        cells = pl.concat([assignments([name], [levels]), pl.Series("cell", [None], dtype=pl.String)])
        held_out = cells.gather(pl.Series(np.where(side == OUT, codes, len(levels)), dtype=pl.UInt32))
        shown = examples[name].cast(pl.String)
        reason = phrase(f"{name} ", shown, f" is not {levels[number]}", when=pl.Series(~inside), otherwise=None)
        reason = phrase(f"{name} ", shown, " is trained on", when=pl.Series(inside), otherwise=reason)
        reason = phrase("not at the base: ", away_told[name], when=pl.Series(~others[name]), otherwise=reason)
        marks.append(Marks(side, reason, held_out, fold, axis))
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _differences(
    examples: pl.DataFrame, names: tuple[str, ...], off: Mapping[str, np.ndarray], unknown: Mapping[str, pl.Series]
) -> dict[str, pl.Series]:
    """Name the values of each row in which factors other than one differ from their base."""
    parts = {
        name: pl.when(pl.Series(off[name])).then(
            pl.concat_str(pl.lit(f"{name} "), pl.lit(examples[name].cast(pl.String).fill_null("null")))
        )
        for name in names
    }
    told = {}
    for shifted in names:
        texts = [parts[name] for name in names if name != shifted]
        texts.append(pl.when(unknown[shifted]).then(pl.lit(f"{shifted} null")))
        one = pl.select(pl.concat_str(texts, separator=", ", ignore_nulls=True).alias("x"))["x"]
        told[shifted] = one
    return told

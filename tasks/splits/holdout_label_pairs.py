"""Held-out label pairs: labels that are trained on, but never together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.divergences import Bag
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import Cut, cut_by_draw, cut_by_strata
from gradatim.tasks.splits.divergent.train_atoms import keeps_atoms
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, build
from gradatim.tasks.splits.held_pieces import Contents, HeldPieces, Sparse, told_of
from gradatim.tasks.splits.inputs import phrase, prepare
from gradatim.tasks.splits.members import members
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.values import coded, quoted, standing

SOURCE = "Hupkes et al. (2023). A taxonomy and review of generalization research in NLP."
_WHERE = "split holdout_label_pairs"


class HoldoutLabelPairsConfig(SplitConfig):
    """Settings of held-out label pairs."""

    lists: ClassVar[bool] = True
    column: str = Field("labels", description="column of lists of labels")
    pairs: tuple[tuple[str, str], ...] = Field((), description="pairs of labels that are held out")
    fraction: float | None = Field(
        None, gt=0, lt=1, description="in place of pairs: the share of those that occur, each drawn by its own number"
    )
    keep_labels: int = Field(1, ge=1, description="training rows that each label keeps, or all if it has fewer")

    @field_validator("pairs", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if found and isinstance(found[0], str) else found

    @model_validator(mode="after")
    def _one_choice(self) -> HoldoutLabelPairsConfig:
        if bool(self.pairs) == (self.fraction is not None):
            raise ValueError("name either the 'pairs' that are held out or the 'fraction' of them to draw")
        for pair in self.pairs:
            if pair[0] == pair[1]:
                raise ValueError(f"the pair {', '.join(pair)} is one label")
        return self


@register(
    "split",
    "holdout_label_pairs",
    config=HoldoutLabelPairsConfig,
    needs=("examples.{column}", "examples.{keep_together}", "examples.{stratify}"),
    cost=lambda rows, width: Cost(1.4e-5 * rows, 600 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: HoldoutLabelPairsConfig, seed: int) -> Split:
    """Rows with a held-out pair of labels are test_ood; every single label stays in train."""
    examples = prepare(tables, "holdout_label_pairs", config)
    contents, labels, names = _contents(examples, config)
    bag = Bag(contents.line, *contents.labels, np.ones(len(contents.labels[1]), np.int64), contents.counts[0])
    cut = kept_in_train(examples, config, bag, config.keep_labels)
    return build(
        examples, lambda one: [_mark(examples, config, one, tables, contents, labels, names)], config, seed, tables,
        method="holdout_label_pairs", axis=config.column, source=SOURCE, cut=cut,
    )  # fmt: skip


def kept_in_train(examples: pl.DataFrame, config: SplitConfig, labels: Bag, least: int) -> Cut:
    """Return the cut of the settings that leaves each label `least` rows of train, or all that it has."""
    base: Cut = cut_by_draw
    if config.stratify is not None:
        stratum = examples[config.stratify].cast(pl.String).fill_null("null")
        base = cut_by_strata(stratum.rank("dense").cast(pl.Int64).to_numpy() - 1, stratum.n_unique())
    return keeps_atoms(base, labels, lambda: np.ones(labels.size, np.bool_), least)


def _contents(examples: pl.DataFrame, config: HoldoutLabelPairsConfig) -> tuple[Contents, pl.Series, pl.Series]:
    """Read the labels of rows and the pairs that occur, named in the order of names."""
    long, known = members(examples, [config.column])
    found, row = coded(long["member"]), long["row"].to_numpy()
    one = pl.DataFrame({"row": row, "code": found.codes})
    both = (
        one.join(one, on="row", how="inner")
        .filter(pl.col("code") < pl.col("code_right"))
        .sort("row", "code", "code_right")
    )
    distinct = both.select("code", "code_right").unique().sort("code", "code_right").with_row_index("pair")
    pair = both.join(distinct, on=["code", "code_right"], how="left", maintain_order="left")["pair"]
    shown = pl.Series("name", [quoted(level) for level in found.levels], dtype=pl.String)
    names = phrase(shown.gather(distinct["code"]), " + ", shown.gather(distinct["code_right"]))
    rows = len(examples)
    contents = Contents(
        np.where(known, np.arange(rows), -1),
        _sparse(row, found.codes, rows),
        _sparse(both["row"].to_numpy(), pair.cast(pl.Int64).to_numpy(), rows),
        (len(found.levels), len(distinct)),
    )
    if not contents.counts[1]:
        raise DataRefused(
            f"no row has two labels in {config.column!r}",
            where=_WHERE,
            expected="lists of labels",
            remedy="name another column",
        )
    return contents, found.levels, names


def _sparse(row: np.ndarray, code: np.ndarray, rows: int) -> Sparse:
    return np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]), code


def _mark(
    examples: pl.DataFrame, config: HoldoutLabelPairsConfig, seed: int, tables: Mapping[str, pl.DataFrame],
    contents: Contents, labels: pl.Series, names: pl.Series,
) -> Marks:  # fmt: skip
    held_pieces = HeldPieces(contents, examples, config, tables, config.keep_labels)
    held, warnings = _choose(examples, config, seed, tables, contents, labels, names, held_pieces)
    held_out = told_of(held, names, contents.pieces, contents.line)
    known = contents.line >= 0
    side = np.where(known, np.where(held_out.is_not_null().to_numpy(), OUT, IN), NEITHER).astype(np.int8)
    plain = pl.Series([f"no pair of its {config.column} is held out"])
    reason = phrase(held_out, " held out as a pair", when=held_out.is_not_null(), otherwise=plain)
    reason = phrase(f"{config.column} is null", when=pl.Series(~known), otherwise=reason)
    return Marks(side, reason, held_out, warnings=warnings)


def _choose(
    examples: pl.DataFrame, config: HoldoutLabelPairsConfig, seed: int, tables: Mapping[str, pl.DataFrame],
    contents: Contents, labels: pl.Series, names: pl.Series, pieces: HeldPieces,
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """Choose the pairs: those named or released, then in the order of their draw, none that empties a label."""
    if config.pairs:
        fixed, warnings = _named(config, labels, names)
        drawn = np.ones(len(names))
        barred = ~fixed
    else:
        warnings = ()
        fixed, barred = np.zeros((2, len(names)), np.bool_)
        drawn = uniform(names, seed, f"{_WHERE} pairs")
        released = standing(examples["example_id"], tables, seed)
        if released is not None:
            fixed = names.is_in(list(released.held)).to_numpy()
            barred = pieces_of(contents, released.inside) & ~fixed
    if not pieces.take(np.flatnonzero(fixed)):
        raise DataRefused(
            "a label would keep too few rows: each pair of labels that is held out takes all rows with both",
            where=_WHERE,
            expected=f"{config.keep_labels:,} rows of each label that stay in distribution",
            remedy="hold out fewer pairs, or lower keep_labels",
        )
    held = fixed.copy()
    wanted = ~fixed & ~barred & (drawn < (config.fraction or 0.0))
    left = int(wanted.sum())
    for pair in np.lexsort((np.arange(len(names)), drawn)):
        if left == 0:
            break
        if not fixed[pair] and not barred[pair]:
            held[pair] = pieces.take(np.array([pair]))
            left -= int(held[pair])
    if not held.any():
        none = not wanted.any()
        raise DataRefused(
            f"none of the {len(names):,} pairs of labels "
            + (f"is drawn at the fraction {config.fraction:g}" if none else "can be held out: each empties a label"),
            where=_WHERE,
            remedy=f"raise fraction above {np.ceil(drawn.min() * 1000) / 1000:g}, take another seed, or name pairs"
            if none
            else "lower keep_labels",
        )
    swapped = int((wanted & ~held).sum())
    if swapped:
        warnings = (*warnings, f"{swapped:,} drawn pairs would have taken the last rows of a label")
    return held, warnings


def pieces_of(contents: Contents, rows: np.ndarray) -> np.ndarray:
    """Say which pieces some rows hold."""
    starts, codes = contents.pieces
    lines = np.zeros(len(starts) - 1, np.bool_)
    lines[contents.line[rows & (contents.line >= 0)]] = True
    return np.bincount(codes[np.repeat(lines, np.diff(starts))], minlength=contents.counts[1]) > 0


def _named(config: HoldoutLabelPairsConfig, labels: pl.Series, names: pl.Series) -> tuple[np.ndarray, tuple[str, ...]]:
    known, wanted = set(labels), []
    for pair in config.pairs:
        for label in pair:
            if label not in known:
                raise UsageError(
                    f"there is no label {label!r}{nearest(label, known)}",
                    where=f"{_WHERE}, column {config.column!r}",
                    expected=", ".join(labels.head(20)),
                )
        wanted.append(" + ".join(quoted(label) for label in sorted(pair)))
    there = set(names)
    warnings = tuple(f"no row has {name}: it is held out already" for name in wanted if name not in there)
    return names.is_in(wanted).to_numpy(), warnings

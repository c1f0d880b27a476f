"""Factor World: test on new values of one factor at a time, or of two, while all others are as in training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.numbering import numbered
from gradatim.tasks.splits.values import Coded, Standing, assignments, coded, spelt, standing, values_of

SOURCE = (
    "Xie, Lee, Xiao & Finn (2023). Decomposing the Generalization Gap in Imitation Learning for Visual Robotic "
    "Manipulation."
)
_WHERE = "split factor_world"


class FactorWorldConfig(SplitConfig):
    """Settings of shifts of one factor at a time."""

    factors: tuple[str, ...] = Field(min_length=1, description="columns, or factors, that are shifted")
    train_values: dict[str, tuple[bool | int | float | str, ...]] = Field(
        default_factory=dict, description="the values of a factor that are trained on; all others are new"
    )
    fraction: float | None = Field(
        None, gt=0, lt=1, description="share of the values of each other factor that are new, drawn; at least one is"
    )
    pairs: bool = Field(False, description="also a fold for each two factors, both with a new value")

    @field_validator("factors", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str) else found

    @field_validator("train_values", mode="before")
    @classmethod
    def _one_or_more_values(cls, found: object) -> object:
        if not isinstance(found, dict):
            return found
        return {name: (own,) if isinstance(own, str | int | float) else own for name, own in found.items()}

    @model_validator(mode="after")
    def _says_enough(self) -> FactorWorldConfig:
        if len(set(self.factors)) < len(self.factors):
            raise ValueError("a factor comes twice")
        for name in self.train_values:
            if name not in self.factors:
                raise ValueError(f"train_values names {name!r}, which is not among the factors")
        left = [name for name in self.factors if name not in self.train_values]
        if left and self.fraction is None:
            raise ValueError(f"name the train_values of {left[0]!r}, or the 'fraction' of its values that are new")
        return self


@rule(
    "factor_world",
    config=FactorWorldConfig,
    needs=("examples.{factors}",),
    axis="one factor at a time",
    cost=lambda rows, width: Cost(2e-6 * rows * max(width, 4), 450 * rows * max(width, 4)),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: FactorWorldConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Train on rows without a new value; a fold for each factor tests those with a new value of it alone."""
    names = tuple(sorted(config.factors))
    found = {name: coded(examples[name]) for name in names}
    ids = examples["example_id"]
    released = standing(ids, tables, seed)
    new = {name: _new(name, names, found[name], examples[name], config, seed, released) for name in names}
    fresh = {name: (found[name].codes >= 0) & np.append(new[name], False)[found[name].codes] for name in names}
    complete = np.logical_and.reduce([found[name].codes >= 0 for name in names])
    count = np.sum([fresh[name] for name in names], axis=0)
    inside = complete & (count == 0)
    # a value that is not new but comes with new ones alone is not trained on either
    strange = {name: complete & ~fresh[name] & ~_trained(found[name], inside)[found[name].codes] for name in names}
    usable = complete & ~np.logical_or.reduce(list(strange.values()))
    told = _told(examples, names, found, fresh, strange)
    kept = tuple(
        Kept(Coded(assignments([name], [found[name].levels]), np.where(inside, found[name].codes, -1)))
        for name in names
    )
    shifts = [(name,) for name in names] + (list(combinations(names, 2)) if config.pairs else [])
    folds = {" + ".join(shift): shift for shift in shifts}
    marks, warnings = [], []
    for fold, axis in numbered(list(folds), tables.get("frozen"), config.folds, by="axis"):
        shift = folds[axis]
        out = usable & (count == len(shift)) & np.logical_and.reduce([fresh[name] for name in shift])
        if not out.any():
            warnings.append(f"no row has a new value of {' and '.join(shift)} alone: no fold")
            continue
        side = np.where(inside, IN, np.where(out, OUT, NEITHER)).astype(np.int8)
        reason = phrase(told, "; all others are trained on", when=pl.Series(out), otherwise=told)
        rest = pl.Series(complete & ~inside & ~out)
        reason = phrase(told, f"; this fold is about {' and '.join(shift)} alone", when=rest, otherwise=reason)
        cells = assignments(shift, [_text(found[name]).filter(pl.Series(out)) for name in shift])
        held_out = pl.Series([None], dtype=pl.String).new_from_index(0, len(ids)).scatter(np.flatnonzero(out), cells)
        marks.append(Marks(side, reason, held_out, fold, axis, kept=kept))
    if not marks:
        raise DataRefused(
            f"no row has a new value of one of {', '.join(names)} alone, and trained ones of all others",
            where=_WHERE,
            expected="rows that shift one factor at a time",
            remedy="name other train_values, or take another seed",
        )
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _trained(found: Coded, inside: np.ndarray) -> np.ndarray:
    """Say of each level, and of none, whether an in-distribution row has it."""
    have = np.bincount(found.codes[inside], minlength=len(found.levels)) > 0
    return np.append(have, True)


def _text(found: Coded) -> pl.Series:
    levels = pl.concat([found.levels, pl.Series(found.levels.name, [None], dtype=pl.String)])
    return levels.gather(pl.Series(np.where(found.codes < 0, len(found.levels), found.codes), dtype=pl.UInt32))


def _new(
    name: str, names: tuple[str, ...], found: Coded, column: pl.Series, config: FactorWorldConfig, seed: int,
    released: Standing | None,
) -> np.ndarray:  # fmt: skip
    """Say of each level of a factor whether it is new."""
    levels = found.levels
    if name in config.train_values:
        wanted = [spelt(value, column) for value in config.train_values[name]]
        for value in wanted:
            if value not in levels:
                raise UsageError(
                    f"there is no value {value!r}{nearest(value, levels.head(2000))}",
                    where=f"{_WHERE}, train_values, column {name!r}",
                    expected=", ".join(levels.head(20)),
                )
        return ~levels.is_in(wanted).to_numpy()
    if len(levels) < 2:
        raise DataRefused(
            f"the factor {name!r} has {len(levels)} values; one must be trained on and one be new",
            where=_WHERE,
            remedy="leave it out of the factors",
        )
    draw = uniform(levels, seed, f"{_WHERE} {name}")
    new: np.ndarray = draw < (config.fraction or 0.0)
    if released is not None:
        held = {value for piece in released.held for value in _values(piece, name, names)}
        seen = np.bincount(found.codes[released.inside & (found.codes >= 0)], minlength=len(levels)) > 0
        new = levels.is_in(list(held)).to_numpy() | (new & ~seen)
    elif not new.any():
        new[np.argmin(draw)] = True
    elif new.all():
        new[np.argmax(draw)] = False
    return new


def _values(piece: str, name: str, names: tuple[str, ...]) -> list[str]:
    """Read the value of a factor from a name in a released ``held_out``: of it alone, or of it and another."""
    for shift in [(name,), *(pair for pair in combinations(names, 2) if name in pair)]:
        values = values_of(piece, shift)
        if values is not None:
            return [values[shift.index(name)]]
    return []


def _told(
    examples: pl.DataFrame, names: tuple[str, ...], found: Mapping[str, Coded], fresh: Mapping[str, np.ndarray],
    strange: Mapping[str, np.ndarray],
) -> pl.Series:  # fmt: skip
    """Say of each row which values are new, never trained on, or lacking."""
    parts = []
    for name in names:
        shown = pl.lit(examples[name].cast(pl.String))
        parts.append(
            pl.when(pl.Series(fresh[name])).then(pl.concat_str(pl.lit(f"{name} "), shown, pl.lit(" is new")))
            .when(pl.Series(strange[name])).then(pl.concat_str(pl.lit(f"{name} "), shown, pl.lit(" is not trained on")))
            .when(pl.Series(found[name].codes < 0)).then(pl.lit(f"{name} is null"))
        )  # fmt: skip
    joined = pl.select(pl.concat_str(parts, separator="; ", ignore_nulls=True).alias("x"))["x"]
    return joined.set(joined == "", "no value is new")

"""OMEGA: train below a level of each template, on skills one by one, or on familiar strategies; test beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits import conditions, holdout_values
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.holdout_values import HoldoutValuesConfig
from gradatim.tasks.splits.inputs import phrase, require_column
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.members import joined, members
from gradatim.tasks.splits.numbering import numbered
from gradatim.tasks.splits.values import Coded, assignments, coded, frozen_tests

SOURCE = (
    "Sun, Hu, Zhou, Zheng, Hajishirzi, Dziri & Song (2025). OMEGA: Can LLMs Reason Outside the Box in Math? "
    "Evaluating Exploratory, Compositional, and Transformative Generalization."
)
Regime = Literal["exploratory", "compositional", "transformative"]
_WHERE = "split omega"


class OmegaConfig(SplitConfig):
    """Settings of OMEGA's three axes."""

    lists: ClassVar[bool] = True
    regimes: tuple[Regime, ...] = Field(
        ("exploratory",), min_length=1, description="exploratory, compositional, transformative; each is a fold"
    )
    template: str = Field("template", description="exploratory: column of the problem's template")
    level: str = Field("level", description="exploratory: column of the level of complexity")
    train: str | None = Field(None, description="exploratory: the levels that are trained on, e.g. '<= 3'")
    skills: tuple[str, ...] = Field(
        ("skills",), min_length=1, description="compositional: a column of lists of skills, or a column a skill"
    )
    pairs: tuple[tuple[str, str], ...] = Field(
        (), description="compositional: pairs of skills that are held out together; without them all"
    )
    keep_skills: int = Field(1, ge=1, description="compositional: training rows of each tested skill alone")
    strategy: str = Field("new_strategy", description="transformative: your column that marks what needs a new one")
    marked: tuple[bool | int | float | str, ...] = Field(
        (True,), min_length=1, description="transformative: its values that mark a row"
    )

    @field_validator("regimes", "skills", "marked", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str | int | float) else found

    @model_validator(mode="after")
    def _says_enough(self) -> OmegaConfig:
        if len(set(self.regimes)) < len(self.regimes):
            raise ValueError("a regime comes twice")
        if "exploratory" in self.regimes:
            if self.train is None:
                raise ValueError("exploratory needs 'train', the levels that are trained on, such as '<= 3'")
            conditions.parse(self.train)
        for pair in self.pairs:
            if pair[0] == pair[1]:
                raise ValueError(f"the pair {', '.join(pair)} is one skill")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the regimes read."""
        read = {
            "exploratory": (self.template, self.level),
            "compositional": self.skills,
            "transformative": (self.strategy,),
        }
        return tuple(dict.fromkeys(name for regime in self.regimes for name in read[regime]))


@rule(
    "omega",
    config=OmegaConfig,
    needs=("examples.{columns}",),
    axis=lambda config: ", ".join(config.regimes),
    cost=lambda rows, width: Cost(1.2e-5 * rows, 1_200 * rows),
    source=SOURCE,
    maturity="experimental",
)
def mark(examples: pl.DataFrame, config: OmegaConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Test higher levels of trained templates, skills joined that were trained apart, or what a column marks as new."""
    marks = []
    for fold, regime in numbered(config.regimes, tables.get("frozen"), config.folds, by="axis"):
        tests = frozen_tests(examples["example_id"], tables, seed, fold, config.folds)
        if regime == "exploratory":
            one = _exploratory(examples, config, tests)
        elif regime == "compositional":
            one = _compositional(examples, config, tests)
        else:
            one = _transformative(examples, config, seed)
        side, reason, held_out, kept = one
        marks.append(Marks(side, reason, held_out, fold, regime, kept=kept))
    return marks


_Marked = tuple[np.ndarray, pl.Series, str | pl.Series, tuple[Kept, ...]]


def _exploratory(examples: pl.DataFrame, config: OmegaConfig, tests: Sequence[np.ndarray]) -> _Marked:
    """Train on the lower levels of each template; a template without them is neither trained on nor tested.

    Nor is one whose lower levels a release holds in test (`tests`, one a cut).
    """
    for name in (config.template, config.level):
        require_column(examples, name)
    assert config.train is not None
    condition = conditions.parse(config.train)
    level, template = examples[config.level], coded(examples[config.template])
    values = conditions.comparable(level, condition, examples["example_id"])
    holds = pl.select(condition.holds(pl.lit(values)).alias("x"))["x"]
    known = values.is_not_null().to_numpy() & (template.codes >= 0)
    low = known & holds.fill_null(False).to_numpy()
    high = known & ~low
    count = len(template.levels)
    trained = np.all([np.bincount(template.codes[low & ~test], minlength=count) > 0 for test in tests], axis=0)
    out = high & np.append(trained, False)[template.codes]
    side = np.where(low, IN, np.where(out, OUT, NEITHER)).astype(np.int8)
    tested = np.bincount(template.codes[out], minlength=count) > 0
    kept = Kept(
        Coded(
            assignments([config.template], [template.levels]),
            np.where(low & np.append(tested, False)[template.codes], template.codes, -1),
        )
    )
    said = pl.when(pl.Series(low)).then(pl.lit(f" {condition.text}")).otherwise(pl.lit(f" {condition.complement}"))
    shown = examples[config.template].cast(pl.String)
    reason = phrase(f"{config.level} ", level.cast(pl.String), said, f" of {config.template} ", shown)
    any_low = np.append(np.bincount(template.codes[low], minlength=count) > 0, False)[template.codes]
    for rows, lacking in (
        (high & ~out & ~any_low, f"no row of the {config.template} is {config.level} {condition.text}"),
        (high & ~out & any_low, f"each {config.level} {condition.text} of the {config.template} is released in test"),
    ):
        reason = phrase(reason, f"; {lacking}", when=pl.Series(rows), otherwise=reason)
    reason = phrase(f"{config.template} is null", when=pl.Series(template.codes < 0), otherwise=reason)
    reason = phrase(f"{config.level} is null", when=values.is_null(), otherwise=reason)
    return side, reason, f"{config.level} {condition.complement}", (kept,)


def _compositional(examples: pl.DataFrame, config: OmegaConfig, tests: Sequence[np.ndarray]) -> _Marked:
    """Train on rows of one skill; rows that join skills trained alone are out of distribution.

    A skill whose rows a release holds in test (`tests`, one a cut) is not trained alone.
    """
    long, known = members(examples, config.skills)
    found, row = coded(long["member"]), long["row"].to_numpy()
    size = np.bincount(row, minlength=len(examples))
    alone = np.all(
        [np.bincount(found.codes[(size[row] == 1) & ~test[row]], minlength=len(found.levels)) > 0 for test in tests],
        axis=0,
    )
    strange = np.bincount(row[~alone[found.codes]], minlength=len(examples)) > 0
    joins = size > 1
    hit = joins & (_with_pairs(found, row, len(examples), config) if config.pairs else True)
    single, out = size == 1, hit & ~strange
    if not out.any():
        if hit.any():
            some, remedy = "each row that joins skills has one that no row has alone", "add rows of each skill alone"
        else:
            some = "no row joins " + ("a held-out pair of skills" if config.pairs else "two skills")
            remedy = "name another column as 'skills'" + (", or other pairs" if config.pairs else "")
        raise DataRefused(
            some,
            where=f"{_WHERE}, column {', '.join(config.skills)}",
            expected="rows of one skill, and rows of several that are alone elsewhere",
            remedy=remedy,
        )
    side = np.where(single, IN, np.where(out, OUT, NEITHER)).astype(np.int8)
    names = joined(long, len(examples), " + ")
    lonely = long.with_columns(alone=pl.Series(alone[found.codes])).filter(~pl.col("alone"))
    reason = phrase("skill ", names, " alone", when=pl.Series(single), otherwise=phrase("joins ", names))
    never = joined(lonely, len(examples), ", ")
    nowhere = "; nowhere alone in train: " if any(test.any() for test in tests) else "; nowhere alone: "
    reason = phrase(reason, nowhere, never, when=pl.Series(hit & strange), otherwise=reason)
    reason = phrase(reason, "; no pair of them is held out", when=pl.Series(joins & ~hit), otherwise=reason)
    reason = phrase("no skill is named", when=pl.Series(size == 0), otherwise=reason)
    reason = phrase(" and ".join(config.skills) + " is null", when=pl.Series(~known), otherwise=reason)
    tested = np.bincount(found.codes[out[row]], minlength=len(found.levels)) > 0
    label = np.full(len(examples), -1, np.int64)
    wanted = single[row] & tested[found.codes]
    label[row[wanted]] = found.codes[wanted]
    shown = pl.select(pl.concat_str(pl.lit("skill "), pl.lit(found.levels)).alias("x"))["x"]
    return side, reason, names.set(pl.Series(~out), None), (Kept(Coded(shown, label), config.keep_skills),)


def _with_pairs(found: Coded, row: np.ndarray, rows: int, config: OmegaConfig) -> np.ndarray:
    """Say which rows have both skills of a held-out pair."""
    place = {name: number for number, name in enumerate(found.levels)}
    hit = np.zeros(rows, np.bool_)
    for pair in config.pairs:
        both = np.ones(rows, np.bool_)
        for skill in pair:
            if skill not in place:
                raise UsageError(
                    f"there is no skill {skill!r}{nearest(skill, place)}",
                    where=f"{_WHERE}, pairs",
                    expected=", ".join(list(place)[:20]),
                )
            both &= np.bincount(row[found.codes == place[skill]], minlength=rows) > 0
        hit |= both
    return hit


def _transformative(examples: pl.DataFrame, config: OmegaConfig, seed: int) -> _Marked:
    """Hold out the rows that a column marks: what needs another strategy cannot be read from anything else."""
    require_column(examples, config.strategy)
    setting = HoldoutValuesConfig(column=config.strategy, values=config.marked)
    found = holdout_values.mark(examples, setting, seed, {})[0]
    plain = pl.Series([f"{config.strategy} does not mark it"])
    reason = phrase("needs a new strategy", when=pl.Series(found.side == OUT), otherwise=plain)
    reason = phrase(f"{config.strategy} is null", when=pl.Series(found.side == NEITHER), otherwise=reason)
    assert found.held_out is not None
    return found.side, reason, found.held_out, ()

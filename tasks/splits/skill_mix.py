"""SKILL-MIX: more skills at once than training ever combined, and skills of categories that it never saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.preset_marks import Case, decide, only
from gradatim.tasks.splits.values import assignments

SOURCE = (
    "Zhao, Kaur, Yu, Goyal & Arora (2024). Can Models Learn Skill Composition from Examples? Yu et al. (2024). "
    "Skill-Mix: A Flexible and Expandable Family of Evaluations for AI Models."
)
REGIMES = ("k", "category", "both")
"""The regimes; the place of one is its fold's number."""
_WHERE = "split skill_mix"


class SkillMixConfig(SplitConfig):
    """Settings of the SKILL-MIX regimes."""

    lists: ClassVar[bool] = True
    column: str = Field("skills", description="column of lists: the skills that a text shows, each counted once")
    regimes: tuple[Literal["k", "category", "both"], ...] = Field(
        ("k",),
        min_length=1,
        description="folds: k tests more skills at once; category tests skills of held-out categories; both tests both",
    )
    train_k: tuple[int, ...] = Field((1, 2, 3), min_length=1, description="numbers of skills in training")
    test_k: tuple[int, ...] = Field((4, 5), min_length=1, description="numbers of skills in the regimes k and both")
    held_out: tuple[str, ...] = Field((), description="categories whose skills are never trained on, in any regime")
    categories: dict[str, str] = Field(
        {}, description="category of each skill: {metaphor: literary, irony: rhetorical}"
    )
    category: str | None = Field(None, description="in place of categories: column of lists, one category a skill")
    mixed: Literal["exclude", "test"] = Field(
        "exclude",
        description="rows of held-out and other skills: in no split, or tested as rows of held-out ones",
    )

    @field_validator("regimes", "held_out", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @field_validator("train_k", "test_k", mode="before")
    @classmethod
    def _one_or_more_numbers(cls, found: Any) -> Any:
        return (found,) if isinstance(found, int) else found

    @model_validator(mode="after")
    def _fits(self) -> SkillMixConfig:
        both = sorted(set(self.train_k) & set(self.test_k))
        if both or min(*self.train_k, *self.test_k) < 1:
            raise ValueError(f"k {both[0]} is in train_k and in test_k" if both else "a text shows one skill or more")
        if set(self.regimes) != {"k"} and not self.held_out:
            raise ValueError("the regimes category and both need 'held_out', the categories that are never trained on")
        if self.held_out and bool(self.categories) == (self.category is not None):
            raise ValueError("name the skills' categories either in 'categories' or by the column 'category'")
        if (self.categories or self.category) and not self.held_out:
            raise ValueError("name the categories to hold out in 'held_out'")
        return self


@rule(
    "skill_mix",
    config=SkillMixConfig,
    needs=("examples.{column}", "examples.{category}"),
    axis="composition",
    cost=lambda rows, width: Cost(3.5e-6 * rows * len(REGIMES), 500 * rows * len(REGIMES)),
    source=SOURCE,
    maturity="experimental",
)
def mark(examples: pl.DataFrame, config: SkillMixConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Make a fold of each regime; all of them train on the same rows: few skills, of categories not held out."""
    skills = _lists(examples[config.column], config.column)
    k = skills.list.n_unique().fill_null(0).cast(pl.Int64).to_numpy()
    total, of_category = k, np.zeros(len(k), np.int64)
    named = pl.Series([None], dtype=pl.String).new_from_index(0, len(k))
    if config.held_out:
        of_category, named = _held(examples, skills, config)
    shown = phrase("k ", pl.Series(total).cast(pl.String))
    few, many = np.isin(k, config.train_k), np.isin(k, config.test_k)
    held = of_category > 0 if config.mixed == "test" else of_category == total
    held &= of_category > 0
    trained = of_category == 0
    empty = Case(k == 0, NEITHER, f"{config.column} is null or empty")
    cell_k = _named_k(k)
    marks = []
    for number, regime in enumerate(REGIMES):
        if regime not in config.regimes:
            continue
        out = (trained & many, held & few, held & many)[number]
        told_held = phrase(shown, ", skills of ", named)
        side, reason = decide(
            empty,
            Case(trained & few, IN, phrase(shown, " is trained on")),
            Case(out & trained, OUT, phrase(shown, ": more skills at once than in training")),
            Case(out, OUT, told_held),
            Case(~held & ~trained, NEITHER, phrase(shown, ", held-out skills among others")),
            Case(held, NEITHER, phrase(told_held, ", not tested in this fold")),
            Case(np.ones(len(k), np.bool_), NEITHER, phrase(shown, " is not tested in this fold")),
        )
        label = (cell_k, named, phrase(named, "; ", cell_k))[number]
        marks.append(Marks(side, reason, only(label, out), number, ("k", "category", "k and category")[number]))
    return marks


def _named_k(k: np.ndarray) -> pl.Series:
    return phrase("k=", pl.Series(k).cast(pl.String))


def _lists(column: pl.Series, name: str) -> pl.Series:
    """Return lists of texts without nulls."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List) or column.dtype.inner.is_nested():
        raise UsageError(
            f"the column {name!r} holds {column.dtype}", where=_WHERE, expected="lists of texts: [metaphor, irony]"
        )
    return column.cast(pl.List(pl.String)).list.drop_nulls()


def _held(examples: pl.DataFrame, skills: pl.Series, config: SkillMixConfig) -> tuple[np.ndarray, pl.Series]:
    """Count each row's skills of held-out categories, and name these categories as ``held_out`` does."""
    rows = pl.DataFrame({"row": np.arange(len(skills)), "skill": skills})
    if config.category is not None:
        of = _lists(examples[config.category], config.category)
        raw = _lists(examples[config.column], config.column)
        uneven = np.flatnonzero((of.list.len().fill_null(0) != raw.list.len().fill_null(0)).to_numpy())
        if len(uneven):
            row = int(uneven[0])
            raise DataRefused(
                f"the row {examples['example_id'][row]!r} has {raw.list.len()[row] or 0} skills and "
                f"{of.list.len()[row] or 0} categories",
                where=f"{_WHERE}, column {config.category!r}",
                expected="a category for each skill, in the same order",
            )
        long = rows.with_columns(category=of).explode("skill", "category").drop_nulls("skill").unique()
    else:
        mapped = pl.col("skill").replace_strict(dict(config.categories), default=None, return_dtype=pl.String)
        long = rows.explode("skill").drop_nulls("skill").unique().with_columns(category=mapped)
        lacking = long.filter(pl.col("category").is_null())["skill"].unique().sort()
        if len(lacking):
            raise UsageError(
                f"the skill {lacking[0]!r} has no category{nearest(lacking[0], config.categories)}",
                where=f"{_WHERE}, setting categories",
                expected="a category for each skill of the data",
                remedy=f"name {len(lacking):,} more",
            )
    known = long["category"].drop_nulls().unique().sort()
    for name in config.held_out:
        if name not in known:
            raise UsageError(
                f"there is no category {name!r}{nearest(name, known)}", where=_WHERE, expected=", ".join(known.head(20))
            )
    held = long.filter(pl.col("category").is_in(list(config.held_out)))
    counts = held.unique(["row", "skill"]).group_by("row").len("n")
    texts = held.select("row", "category").unique().sort("row", "category")
    texts = texts.select("row", label=assignments(["category"], [texts["category"]]))
    labels = texts.group_by("row", maintain_order=True).agg(pl.col("label").str.join("; "))
    joined = rows.select("row").join(counts, on="row", how="left", maintain_order="left")
    joined = joined.join(labels, on="row", how="left", maintain_order="left")
    return joined["n"].fill_null(0).cast(pl.Int64).to_numpy(), joined["label"]

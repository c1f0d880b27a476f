"""Composed: out of distribution where any, or all, of several rules say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.recipe import Steps
from gradatim.tasks.core.registry import Cost, Plugin, resolve
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, RULES, Marks, rule
from gradatim.tasks.splits.inputs import require_column

SOURCE = "Hupkes et al. (2023). A Taxonomy and Review of Generalization Research in NLP."


class ComposedConfig(SplitConfig):
    """Settings of a composed split."""

    lists: ClassVar[bool] = True
    any: Steps = Field([], description="rules, as steps of a recipe: a row is out of distribution where one says so")
    all: Steps = Field([], description="in place of any: a row is out of distribution where all of them say so")

    @model_validator(mode="after")
    def _resolves(self) -> ComposedConfig:
        if bool(self.any) == bool(self.all):
            raise ValueError("list rules below either 'any' or 'all'")
        word = "any" if self.any else "all"
        for place, step in enumerate(self.any or self.all):
            where = f"{word}[{place}]"
            try:
                resolve("split", step, where=where)
            except UsageError as error:
                more = [
                    f"\n  {label}  {said}"
                    for label, said in (("expected", error.expected), ("do", error.remedy))
                    if said
                ]
                raise ValueError(f"{error.where}: {error.what}{''.join(more)}") from None
            if step.method not in RULES:
                raise ValueError(
                    f"{where}: {step.method!r} is more than a rule and cannot be composed"
                    f"{nearest(step.method, RULES)}\n  expected  one of {', '.join(sorted(RULES))}"
                )
            for key in step.settings:
                if key in SplitConfig.model_fields:
                    raise ValueError(
                        f"{where}.{step.method}: {key!r} is said once for the whole: composed: {{{key}: …}}"
                    )
        return self

    @property
    def rules(self) -> list[tuple[Plugin, SplitConfig]]:
        """The rules with their settings; those that every split has are this one's own."""
        shared = {name: getattr(self, name) for name in SplitConfig.model_fields}
        found = [resolve("split", step) for step in self.any or self.all]
        return [(plugin, config.model_copy(update=shared)) for plugin, config in found]  # type: ignore[misc]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of examples that any of the rules reads."""
        needs = [need for plugin, config in self.rules for need in plugin.columns(config)]
        return tuple(dict.fromkeys(need.removeprefix("examples.") for need in needs if need.startswith("examples.")))

    @property
    def others(self) -> tuple[str, ...]:
        """What any of the rules reads of other tables."""
        needs = [need for plugin, config in self.rules for need in plugin.columns(config)]
        return tuple(dict.fromkeys(need for need in needs if not need.startswith("examples.")))

    def place_of(self, column: str) -> str:
        """Point at a column in the first rule that names it."""
        return next(filter(None, (config.place_of(column) for _, config in self.rules)), "")


@rule(
    "composed",
    config=ComposedConfig,
    needs=("examples.{columns}", "{others}"),
    axis=lambda config: ", ".join(config.columns),
    cost=lambda rows, width: Cost(8e-6 * rows, 900 * rows),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: ComposedConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Out of distribution where any (or all) of several rules say so; neither where one of them says neither."""
    found = [_one(plugin, nested, examples, seed, tables) for plugin, nested in config.rules]
    sides = np.stack([one.side for one in found])
    out = (sides == OUT).any(axis=0) if config.any else (sides == OUT).all(axis=0)
    side = np.where((sides == NEITHER).any(axis=0), NEITHER, np.where(out, OUT, IN)).astype(np.int8)
    agree = [pl.Series(one.side == side) for one in found]
    reason = _join([(one.reason, same) for one, same in zip(found, agree, strict=True)])
    held_out = _join([(one.held_out, pl.Series(one.side == OUT)) for one in found if one.held_out is not None])
    validation = [one.validation for one in found if one.validation is not None]
    return [
        Marks(
            side,
            reason,
            held_out.set(pl.Series(side != OUT), None),
            warnings=tuple(warning for one in found for warning in one.warnings),
            validation=np.logical_or.reduce(validation) & (side == OUT) if validation else None,
            kept=tuple(kept for one in found for kept in one.kept),
        )
    ]


def _one(
    plugin: Plugin, config: SplitConfig, examples: pl.DataFrame, seed: int, tables: Mapping[str, pl.DataFrame]
) -> Marks:
    """Let one rule mark the rows."""
    if not config.lists:
        for need in plugin.columns(config):
            if need.startswith("examples.") and not need.endswith("?"):
                require_column(examples, need.removeprefix("examples."))
    marks = RULES[plugin.name](examples, config, seed, tables)
    if len(marks) != 1:
        raise UsageError(
            f"{plugin.name!r} has {len(marks)} folds here, and composed takes rules of one",
            where="split composed",
            remedy="say what is held out, such as  holdout_values: {column: domain, values: [law]}",
        )
    return marks[0]


def _join(texts: list[tuple[str | pl.Series | None, pl.Series]]) -> pl.Series:
    """Join the texts of each row that are meant; null where none is."""
    parts = [pl.when(pl.lit(meant)).then(pl.lit(text)) for text, meant in texts]
    joined = pl.select(pl.concat_str(parts, separator="; ", ignore_nulls=True).alias("x"))["x"]
    return joined.set(joined == "", None)

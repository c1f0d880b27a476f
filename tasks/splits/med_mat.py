"""Med-MAT: a triple of modality, anatomy and task is held out while others provide its elements, or do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered
from gradatim.tasks.splits.preset_marks import Case, decide
from gradatim.tasks.splits.values import as_text, assignments

SOURCE = "Cai et al. (2025). Exploring Compositional Generalization of Multimodal LLMs for Medical Imaging."
ELEMENTS = ("modality", "anatomy", "task")
REGIMES = ("related", "unrelated", "without_modality", "without_anatomy", "without_task", "all")
"""The regimes of a target; the place of one counts on from the target's first fold."""
Regime = Literal["related", "unrelated", "without_modality", "without_anatomy", "without_task", "all"]


class MedMatConfig(SplitConfig):
    """Settings of the Med-MAT regimes."""

    modality: str = Field("modality", description="column of the modality: CT, X-ray, ...")
    anatomy: str = Field("anatomy", description="column of the anatomical area")
    task: str = Field("task", description="column of the task")
    targets: tuple[dict[str, str], ...] = Field(
        min_length=1, description="triples to hold out: {modality: CT, anatomy: Lung, task: Cancer}; folds each"
    )
    regimes: tuple[Regime, ...] = Field(
        ("related",),
        min_length=1,
        description="what is trained on: triples that share an element with the target (related), that share none "
        "(unrelated), the related ones less those that provide one element (without_...), or all but the target",
    )

    @field_validator("targets", "regimes", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str | dict) else found

    @model_validator(mode="after")
    def _triples(self) -> MedMatConfig:
        for target in self.targets:
            if set(target) != set(ELEMENTS):
                raise ValueError(f"a target names modality, anatomy and task, and found is {', '.join(sorted(target))}")
        if len({tuple(sorted(target.items())) for target in self.targets}) < len(self.targets):
            raise ValueError("a target comes twice")
        return self

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns of the three elements."""
        return self.modality, self.anatomy, self.task


@rule(
    "med_mat",
    config=MedMatConfig,
    needs=("examples.{columns}",),
    axis="modality, anatomy, task",
    cost=lambda rows, width: Cost(2.5e-6 * rows * max(width, 1), 450 * rows * max(width, 1)),
    source=SOURCE,
    maturity="experimental",
)
def mark(examples: pl.DataFrame, config: MedMatConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Make a fold of each target and regime: the target's rows are test_ood, the regime says what is trained on."""
    values = [as_text(examples[column]) for column in config.columns]
    unknown = [
        Case(column.is_null().to_numpy(), NEITHER, f"{name} is null")
        for name, column in zip(config.columns, values, strict=True)
    ]
    targets = {_label(target, config): tuple(target[name] for name in ELEMENTS) for target in config.targets}
    for target in targets.values():
        for name, column, value in zip(config.columns, values, target, strict=True):
            levels = column.drop_nulls().unique().sort()
            if value not in levels:
                raise UsageError(
                    f"there is no value {value!r}{nearest(value, levels)}",
                    where=f"split med_mat, column {name!r}", expected=", ".join(levels.head(30)),
                )  # fmt: skip
    marks: list[Marks] = []
    cuts = config.folds * len(REGIMES)
    for number, label in numbered(list(targets), tables.get("frozen"), cuts):
        if label in targets:
            marks += _folds(values, targets[label], label, number, unknown, config)
    return marks


def _label(target: Mapping[str, str], config: MedMatConfig) -> str:
    return str(assignments(config.columns, [pl.Series([target[name]]) for name in ELEMENTS])[0])


def _folds(
    values: list[pl.Series], target: tuple[str, ...], label: str, number: int, unknown: list[Case], config: MedMatConfig
) -> list[Marks]:
    """Make the folds of one target, one a regime."""
    shares = [(column == value).fill_null(False).to_numpy() for column, value in zip(values, target, strict=True)]
    missing = np.any([case.rows for case in unknown], axis=0)
    out = shares[0] & shares[1] & shares[2]
    related = (shares[0] | shares[1] | shares[2]) & ~out
    warnings = tuple(
        f"no other triple has {name} {value}: the target {label} cannot be composed of what is trained on"
        for name, value, share in zip(config.columns, target, shares, strict=True)
        if not (share & ~out & ~missing).any()
    )
    shown = phrase(values[0], ", ", values[1], ", ", values[2])
    shared = pl.select(
        pl.concat_str(
            [pl.when(pl.Series(share)).then(pl.lit(name)) for name, share in zip(config.columns, shares, strict=True)],
            separator=", ",
            ignore_nulls=True,
        ).alias("x")
    )["x"]
    marks = []
    for place, regime in enumerate(REGIMES):
        if regime not in config.regimes:
            continue
        inside = {"related": related, "unrelated": ~related, "all": np.ones(len(out), np.bool_)}.get(regime)
        if inside is None:
            inside = related & ~shares[ELEMENTS.index(regime.removeprefix("without_"))]
        told = phrase(shown, " shares ", shared)
        none = phrase(shown, " shares nothing")
        alike = phrase(told, " with the target", when=pl.Series(related), otherwise=phrase(none, " with the target"))
        side, reason = decide(
            *unknown,
            Case(out, OUT, phrase(shown, " is the target")),
            Case(inside, IN, alike),
            Case(np.ones(len(out), np.bool_), NEITHER, phrase(alike, f": not trained on by the regime {regime}")),
        )
        axis = f"{', '.join(config.columns)}: {regime}"
        marks.append(Marks(side, reason, label, number * len(REGIMES) + place, axis, warnings=warnings))
    return marks

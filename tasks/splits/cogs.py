"""COGS: the generalisation cases of semantic parsing out of distribution, lexical and structural."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import TEST, TRAIN, VALIDATION, Cut, Pool
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, build
from gradatim.tasks.splits.inputs import phrase, prepare
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.preset_marks import Case, cells, decide
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.values import Coded, as_text

SOURCE = "Kim & Linzen (2020). COGS: A Compositional Generalization Challenge Based on Semantic Interpretation."
STRUCTURAL = ("cp_recursion", "obj_pp_to_subj_pp", "pp_recursion")
LEXICAL = (
    "active_to_passive", "do_dative_to_pp_dative", "obj_omitted_transitive_to_transitive", "obj_to_subj_common",
    "obj_to_subj_proper", "only_seen_as_transitive_subj_as_unacc_subj",
    "only_seen_as_unacc_subj_as_obj_omitted_transitive_subj", "only_seen_as_unacc_subj_as_unerg_subj",
    "passive_to_active", "pp_dative_to_do_dative", "prim_to_inf_arg", "prim_to_obj_common", "prim_to_obj_proper",
    "prim_to_subj_common", "prim_to_subj_proper", "subj_to_obj_common", "subj_to_obj_proper", "unacc_to_transitive",
)  # fmt: skip
CASES = tuple(sorted(STRUCTURAL + LEXICAL))
"""The 21 cases; the place of one is its fold's number."""
_FILES = {"train": TRAIN, "dev": VALIDATION, "validation": VALIDATION, "test": TEST}
_EXPOSURE = "exposure_example"


class CogsConfig(SplitConfig):
    """Settings of the COGS split."""

    column: str = Field("type", description="column of in_distribution, primitive, exposure_example_* or the case")
    cases: tuple[str, ...] = Field((), description="cases to test; all that occur by default")
    by: Literal["all", "kind", "case"] = Field(
        "all", description="one test_ood of all cases, one each of the lexical and the structural, or one a case"
    )
    files: str | None = Field(
        None, description="column of the published file (train, dev, test, gen), where in-distribution rows then stay"
    )

    @field_validator("cases", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @field_validator("cases")
    @classmethod
    def _known(cls, found: tuple[str, ...]) -> tuple[str, ...]:
        for name in found:
            if name not in CASES:
                raise ValueError(f"there is no case {name!r}{nearest(name, CASES)}; valid are {', '.join(CASES)}")
        return found

    @model_validator(mode="after")
    def _cut_once(self) -> CogsConfig:
        if self.files and (self.folds > 1 or self.stratify):
            raise ValueError("with 'files' rows stay where they were published: no 'folds', no 'stratify'")
        return self


@register(
    "split",
    "cogs",
    config=CogsConfig,
    needs=("examples.{column}", "examples.{files}", "examples.{keep_together}", "examples.{stratify}"),
    cost=lambda rows, width: Cost(2e-6 * rows, 350 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: CogsConfig, seed: int) -> Split:
    """Test the generalisation cases out of distribution; primitives and exposure examples stay in train."""
    examples = prepare(tables, "cogs", config)
    marks = _marks(examples, config)
    cut = None if config.files is None else _published(examples, config.files, marks[0].side)
    return build(
        examples, lambda _: marks, config, seed, tables, method="cogs", axis="generalisation case", source=SOURCE,
        cut=cut,
    )  # fmt: skip


@dataclass(frozen=True)
class _Fold:
    """One fold: its number, the cases that it tests, and its axis."""

    number: int
    cases: Sequence[str]
    axis: str


def _marks(examples: pl.DataFrame, config: CogsConfig) -> list[Marks]:
    kind = as_text(examples[config.column])
    present = kind.drop_nulls().unique().sort().to_list()
    shown = [name for name in present if name.startswith(_EXPOSURE) or name == "primitive"]
    for name in present:
        if name not in CASES and name not in shown and name != "in_distribution":
            valid = ["in_distribution", "primitive", f"{_EXPOSURE}_*", *CASES]
            raise UsageError(
                f"{name!r} is no type of COGS{nearest(name, valid)}",
                where=f"split cogs, column {config.column!r}",
                expected=", ".join(valid),
            )
    asked = config.cases or tuple(name for name in CASES if name in present)
    for name in asked:
        if name not in present:
            raise DataRefused(f"no row is of the case {name!r}", where="split cogs", remedy="add the file gen.tsv")
    if not asked:
        raise DataRefused(
            "no row is of a generalisation case, so that nothing would be out of distribution",
            where=f"split cogs, column {config.column!r}",
            expected=", ".join(CASES),
            remedy="read the file gen.tsv too",
        )
    warnings = () if shown else ("no row is a primitive or an exposure example: words of lexical cases are never seen",)
    is_shown = kind.is_in(shown).fill_null(False).to_numpy()
    places = np.full(len(kind), -1, np.int64)
    places[is_shown] = np.arange(int(is_shown.sum()))
    ids = examples["example_id"].filter(pl.Series(is_shown))
    # each such row is a label of its own, and every label is to have its row in train
    kept = () if config.files else (Kept(Coded(ids, places)),)
    found = []
    for fold in _folds(asked, config):
        out = kind.is_in(list(fold.cases)).fill_null(False).to_numpy()
        side, reason = decide(
            Case(kind.is_null().to_numpy(), NEITHER, f"{config.column} is null"),
            Case(out, OUT, phrase("generalisation case ", kind)),
            Case(kind.is_in(list(CASES)).fill_null(False).to_numpy(), NEITHER, phrase(kind, " is not tested here")),
            Case(is_shown, IN, phrase(kind, ": what training shows of a word")),
            Case(np.ones(len(kind), np.bool_), IN, "in distribution"),
        )
        held_out = cells([config.column], [kind], out)
        found.append(Marks(side, reason, held_out, fold.number, fold.axis, warnings=warnings, kept=kept))
    return found


def _folds(asked: Sequence[str], config: CogsConfig) -> list[_Fold]:
    if config.by == "all":
        return [_Fold(0, asked, "generalisation case")]
    kinds = {"lexical": LEXICAL, "structural": STRUCTURAL}
    if config.by == "case":
        of = {name: kind for kind, names in kinds.items() for name in names}
        return [_Fold(CASES.index(name), [name], of[name]) for name in sorted(asked)]
    parts = {kind: [name for name in asked if name in names] for kind, names in kinds.items()}
    return [_Fold(number, some, kind) for number, (kind, some) in enumerate(parts.items()) if some]


def _published(examples: pl.DataFrame, column: str, side: np.ndarray) -> Cut:
    """Return the cut that leaves rows in their published file; a group over several goes to the last one of them."""
    file = as_text(examples[column])
    valid = [*_FILES, "gen"]
    for name in file.drop_nulls().unique().sort():
        if name not in valid:
            raise UsageError(
                f"{name!r} is no file of COGS{nearest(name, valid)}",
                where=f"split cogs, column {column!r}",
                expected=", ".join(valid),
            )
    place = file.replace_strict(_FILES, default=None, return_dtype=pl.UInt8)
    homeless = np.flatnonzero((side == IN) & place.is_null().to_numpy())
    if len(homeless):
        row = int(homeless[0])
        raise DataRefused(
            f"the row {examples['example_id'][row]!r} is in distribution, and its file is {file[row]!r}",
            where=f"split cogs, column {column!r}",
            expected="train, dev or test",
        )
    home = place.fill_null(TRAIN).to_numpy()

    def cut(pool: Pool, config: SplitConfig) -> np.ndarray:
        chosen = np.full(len(pool.draw), TRAIN, np.uint8)
        np.maximum.at(chosen, pool.code[pool.rows], home[pool.rows])
        return chosen

    return cut

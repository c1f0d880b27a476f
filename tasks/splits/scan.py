"""The six published splits of SCAN, by their rules: simple, length, add-primitive (two) and template (two)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.preset_marks import Case, decide
from gradatim.tasks.splits.values import Coded

SOURCE = (
    "Lake & Baroni (2018). Generalization without Systematicity: On the Compositional Skills of Sequence-to-Sequence "
    "Recurrent Networks. Loula, Baroni & Lake (2018). Rearranging the Familiar: Testing Compositional Generalization "
    "in Recurrent Networks."
)
LONGEST = 22
"""Actions up to which an output is in the training set of the length split."""
FOLDS = ("simple", "length", "jump", "turn left", "around right", "jump around right")
"""What each fold holds out; its place is its number, whichever of them are asked for."""
_LEFT_OUT = "turn around right"
Kind = Literal["simple", "length", "add_primitive", "template"]


class ScanConfig(SplitConfig):
    """Settings of the SCAN splits."""

    command: str = Field("input", description="column of the command")
    actions: str = Field("output", description="column of the actions, parted by spaces; read by kind length alone")
    kinds: tuple[Kind, ...] = Field(
        ("simple", "length", "add_primitive", "template"), min_length=1, description="published splits, a fold each"
    )
    primitives: tuple[Literal["jump", "turn left"], ...] = Field(
        ("jump", "turn left"), min_length=1, description="of kind add_primitive: the primitive that is seen alone"
    )
    templates: tuple[Literal["around right", "jump around right"], ...] = Field(
        ("around right", "jump around right"), min_length=1, description="of kind template: the one that is held out"
    )
    test: float = Field(0.2, gt=0, lt=1, description="share of the in-distribution rows for test; that of simple")

    @field_validator("kinds", "primitives", "templates", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        found = (found,) if isinstance(found, str) else found
        return tuple(n if n == "add_primitive" or not isinstance(n, str) else n.replace("_", " ") for n in found)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the kinds read."""
        words = any(kind in ("add_primitive", "template") for kind in self.kinds)
        found = [self.command] * words + [self.actions] * ("length" in self.kinds)
        return tuple(found or ["example_id"])

    @property
    def asked(self) -> list[str]:
        """What the folds hold out, in the order of `FOLDS`."""
        chosen: set[str] = {kind for kind in self.kinds if kind in ("simple", "length")}
        chosen |= set(self.primitives) if "add_primitive" in self.kinds else set()
        chosen |= set(self.templates) if "template" in self.kinds else set()
        return [name for name in FOLDS if name in chosen]


@rule(
    "scan",
    config=ScanConfig,
    needs=("examples.{columns}",),
    axis="composition",
    cost=lambda rows, width: Cost(2e-6 * rows * len(FOLDS), 400 * rows * len(FOLDS)),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: ScanConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Make a fold of each published SCAN split; what the papers train on is train, validation and test together."""
    for name in config.columns:
        if examples[name].dtype not in (pl.String, pl.Null):
            raise UsageError(f"the column {name!r} holds {examples[name].dtype}", expected="texts, words and spaces")
    makers = {"simple": _simple, "length": _length, "jump": _primitive, "turn left": _primitive}
    return [makers.get(name, _template)(examples, config, name) for name in config.asked]


def _simple(examples: pl.DataFrame, config: ScanConfig, name: str) -> Marks:
    reason = phrase("random draw").new_from_index(0, len(examples))
    told = (
        "the published simple split is a random draw that no rule gives back: the shares are its own, the rows are not"
    )
    return Marks(np.full(len(examples), IN, np.int8), reason, None, 0, "none", warnings=(told,))


def _length(examples: pl.DataFrame, config: ScanConfig, name: str) -> Marks:
    column = examples[config.actions].cast(pl.String)
    count = column.str.count_matches(r"\S+")
    told = count.cast(pl.String)
    side, reason = decide(
        _unknown(column, config.actions),
        Case((count > LONGEST).fill_null(False).to_numpy(), OUT, phrase(told, f" actions, more than {LONGEST}")),
        Case(np.ones(len(column), np.bool_), IN, phrase(told, f" actions, up to {LONGEST}")),
    )
    return Marks(side, reason, f"more than {LONGEST} actions", FOLDS.index(name), "length")


def _primitive(examples: pl.DataFrame, config: ScanConfig, name: str) -> Marks:
    command = examples[config.command].cast(pl.String)
    alone = _matches(command, rf"^\s*{_spaced(name)}\s*$")
    if not alone.any():
        raise DataRefused(
            f"no row is the command {name!r} by itself, so that training would never see it",
            where=f"split scan, column {config.command!r}",
            expected="the bare primitive among the commands",
            remedy="add it, or leave the kind add_primitive out",
        )
    side, reason = decide(
        _unknown(command, config.command),
        Case(alone, IN, f"the primitive {name} by itself"),
        Case(_holds(command, name), OUT, f"{name} within a longer command"),
        Case(np.ones(len(command), np.bool_), IN, f"without {name}"),
    )
    others = int((side == IN).sum()) - int(alone.sum())
    copies = round(others / 9)
    told = (
        f"the paper repeats {name!r} until it is a tenth of the training lines: {copies:,} times for the {others:,} "
        "other in-distribution rows here; that is a weight in training, and no part of the split"
    )
    kept = Kept(Coded(pl.Series([f"the command {name!r}"]), np.where(alone, 0, -1)))
    held_out = f"{name} within a longer command"
    return Marks(side, reason, held_out, FOLDS.index(name), f"primitive {name}", warnings=(told,), kept=(kept,))


def _template(examples: pl.DataFrame, config: ScanConfig, name: str) -> Marks:
    command = examples[config.command].cast(pl.String)
    held = rf"(?:walk|look|run|jump) {name}" if name == "around right" else name
    side, reason = decide(
        _unknown(command, config.command),
        Case(_holds(command, _LEFT_OUT), NEITHER, f"{_LEFT_OUT}: in neither set of the paper"),
        Case(_holds(command, held), OUT, f"an instance of the template {name}"),
        Case(np.ones(len(command), np.bool_), IN, f"no instance of the template {name}"),
    )
    return Marks(side, reason, f"template {name}", FOLDS.index(name), f"template {name}")


def _unknown(column: pl.Series, name: str) -> Case:
    return Case(column.is_null().to_numpy(), NEITHER, f"{name} is null")


def _spaced(words: str) -> str:
    return words.replace(" ", r"\s+")


def _holds(command: pl.Series, words: str) -> np.ndarray:
    return _matches(command, rf"(?:^|\s){_spaced(words)}(?:\s|$)")


def _matches(command: pl.Series, pattern: str) -> np.ndarray:
    found: np.ndarray = command.str.contains(pattern).fill_null(False).to_numpy()
    return found

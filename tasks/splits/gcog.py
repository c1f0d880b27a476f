"""gCOG: distractors, systematicity over operators and objects or over trees, productivity over depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.distinct_trees import distinct
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.core.trees import depths
from gradatim.tasks.splits import conditions
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.preset_marks import Case, cells, decide
from gradatim.tasks.splits.values import as_text, coded

SOURCE = (
    "Ito, Dan, Rigotti, Kozloski & Campbell (2024). On the Generalization Capacity of Neural Networks during Generic "
    "Multimodal Reasoning."
)
REGIMES = ("distractor", "systematic_depth1", "systematic_depth3", "productive")
"""The regimes; the place of one is its fold's number."""
Regime = Literal["distractor", "systematic_depth1", "systematic_depth3", "productive"]
Halves = tuple[tuple[str, ...], tuple[str, ...]]


class GcogConfig(SplitConfig):
    """Settings of the gCOG regimes."""

    lists: ClassVar[bool] = True
    regimes: tuple[Regime, ...] = Field(min_length=1, description="regimes, a fold each")
    depth: str | None = Field(
        "depth", description="column of the task's depth: 1, 3, 5, ...; null reads it off the trees in 'structure'"
    )
    distractors: str = Field("distractors", description="column of the number of distractors")
    operator: str = Field("operator", description="column of the operator at the task's start")
    ends: str = Field("ends", description="column of the operators at the branches' ends: a list, or one of them")
    color: str = Field("color", description="column of the colour that the operator asks for")
    shape: str = Field("shape", description="column of the shape that the operator asks for")
    few: str = Field("<= 5", description="distractors in training: " + conditions.VALID)
    many: str = Field(">= 10", description="distractors in the test; rows between the two are excluded")
    operators: Halves = Field(
        (("exist", "sumeven", "producteven", "getshape"), ("sumodd", "productodd", "go", "getcolor")),
        description="depth 1: operators trained on the first colours, and those trained on the last shapes",
    )
    colors: tuple[str, ...] = Field((), description="depth 1: the first colours; by default half of them, drawn")
    shapes: tuple[str, ...] = Field((), description="depth 1: the last shapes; by default half of them, drawn")
    starts: Halves = Field(
        (("exist", "sumeven", "producteven"), ("sumodd", "productodd")),
        description="depth 3: starting operators of the first and of the second kind of tree",
    )
    endings: Halves = Field(
        (("sumeven", "producteven", "getcolor", "getshape"), ("exist", "sumodd", "productodd", "go")),
        description="depth 3: operators at the ends of the first and of the second kind of tree",
    )
    train_depths: tuple[int, ...] = Field((1, 3), min_length=1, description="productive: depths that are trained on")

    @field_validator("regimes", "colors", "shapes", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @field_validator("train_depths", mode="before")
    @classmethod
    def _one_or_more_depths(cls, found: Any) -> Any:
        return (found,) if isinstance(found, int) else found

    @field_validator("few", "many")
    @classmethod
    def _parses(cls, text: str) -> str:
        conditions.parse(text)
        return text

    @model_validator(mode="after")
    def _apart(self) -> GcogConfig:
        for name in ("operators", "starts", "endings"):
            first, second = getattr(self, name)
            both = sorted(set(first) & set(second))
            if both or not first or not second:
                raise ValueError(
                    f"{name} are two lists that share nothing" + (f"; both have {both[0]!r}" if both else "")
                )
        for depth in self.train_depths:
            if depth < 1 or depth % 2 == 0:
                raise ValueError(f"the depth {depth} is none: an operator and a branch come in turn, so depths are odd")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the regimes read."""
        more = {
            "distractor": [self.distractors],
            "systematic_depth1": [self.operator, self.color, self.shape],
            "systematic_depth3": [self.operator, self.ends],
            "productive": [],
        }
        found = [name for regime in REGIMES if regime in self.regimes for name in more[regime]]
        return tuple(dict.fromkeys([self.depth or "structure", *found]))


@dataclass(frozen=True)
class _Rows:
    """Examples with the depth of each, -1 where it is not known."""

    examples: pl.DataFrame
    depth: np.ndarray
    config: GcogConfig
    seed: int

    def other(self, depth: int) -> tuple[Case, Case]:
        """Rows that are not of the regime's depth."""
        told = pl.Series(self.depth).cast(pl.String)
        return self.unknown, Case(self.depth != depth, NEITHER, phrase("depth ", told, f" is not {depth}"))

    @property
    def unknown(self) -> Case:
        """Rows without a depth."""
        return Case(self.depth < 0, NEITHER, f"{self.config.depth or 'structure'} is null")

    def text(self, column: str) -> tuple[pl.Series, Case]:
        """A column as texts, and its rows without one."""
        found = as_text(self.examples[column])
        return found, Case(found.is_null().to_numpy(), NEITHER, f"{column} is null")


@rule(
    "gcog",
    config=GcogConfig,
    needs=("examples.{columns}",),
    axis="composition",
    cost=lambda rows, width: Cost(2e-6 * rows * len(REGIMES), 450 * rows * len(REGIMES)),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: GcogConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Make a fold of each regime: more distractors, operators with new objects, trees of two halves, deeper trees."""
    rows = _Rows(examples, _depth(examples, config), config, seed)
    makers = {
        "distractor": _distractor, "systematic_depth1": _objects, "systematic_depth3": _trees, "productive": _deeper,
    }  # fmt: skip
    return [makers[name](rows) for name in REGIMES if name in config.regimes]


def _depth(examples: pl.DataFrame, config: GcogConfig) -> np.ndarray:
    """Return the depth of each row's task, int64: levels of the tree, or the column."""
    if config.depth is None:
        trees = examples["structure"]
        known = distinct(trees, examples["example_id"], where="split gcog, column 'structure'").tree >= 0
        trees = trees.set(pl.Series(~known), None)
        found = depths(trees).cast(pl.Int64) + 1
    else:
        found = conditions.comparable(examples[config.depth], conditions.parse(">= 1"), examples["example_id"])
    if found.dtype == pl.Null:
        found = found.cast(pl.Int64)
    sound = (found >= 1) & (found % 2 == 1)
    bad = (found.is_not_null() & ~sound.fill_null(False)).arg_true()
    if len(bad):
        row = int(bad[0])
        raise DataRefused(
            f"the row {examples['example_id'][row]!r} has the depth {found[row]}",
            where=f"split gcog, column {config.depth or 'structure'!r}",
            expected="odd depths: operators and branches come in turn",
            remedy="count the levels from the first operator to an end: operator, branch, operator is 3",
        )
    depth: np.ndarray = found.cast(pl.Int64).fill_null(-1).to_numpy()
    return depth


def _distractor(rows: _Rows) -> Marks:
    """Few distractors in training, many in the test, tasks of depth 1."""
    config, column = rows.config, rows.examples[rows.config.distractors]
    few, many = conditions.parse(config.few), conditions.parse(config.many)
    ids = rows.examples["example_id"]
    holds = [
        pl.select(x=one.holds(pl.lit(conditions.comparable(column, one, ids))))["x"].fill_null(False).to_numpy()
        for one in (few, many)
    ]
    both = np.flatnonzero(holds[0] & holds[1])
    if len(both):
        raise UsageError(
            f"{column[int(both[0])]} distractors are both few ({config.few}) and many ({config.many})",
            where="split gcog", expected="conditions that exclude each other",
        )  # fmt: skip
    text, null = rows.text(config.distractors)
    counted = phrase(text, " distractors")
    side, reason = decide(
        *rows.other(1), null,
        Case(holds[1], OUT, phrase(counted, f" {many.text}")),
        Case(holds[0], IN, phrase(counted, f" {few.text}")),
        Case(np.ones(len(text), np.bool_), NEITHER, phrase(counted, ": neither few nor many")),
    )  # fmt: skip
    return Marks(side, reason, cells([config.distractors], [text], side == OUT), 0, "distractors")


def _objects(rows: _Rows) -> Marks:
    """Each half of the operators is trained on its own objects and tested on those of the other half alone."""
    config = rows.config
    operator, no_operator = rows.text(config.operator)
    color, no_color = rows.text(config.color)
    shape, no_shape = rows.text(config.shape)
    at_one = rows.depth == 1
    first, second = _halves(operator.filter(pl.Series(at_one)), operator, config.operators, config.operator)
    early = _half(color, config.colors, config.color, rows.seed)
    late = _half(shape, config.shapes, config.shape, rows.seed)
    asked = phrase(operator, " of ", color, " ", shape)
    unknown = (*rows.other(1), no_operator, no_color, no_shape)
    known = ~np.any([case.rows for case in unknown], axis=0)
    seen = (first & early) | (second & late)
    new = (first & ~early & late) | (second & ~late & early)
    parts = (operator, color, shape)
    strange = np.any([~_among(part, known & seen) for part in parts], axis=0) & new
    if (known & new).any() and not (known & new & ~strange).any():
        raise DataRefused(
            "each row that asks an operator for new objects has an operator, a colour or a shape that no row trains",
            where=f"split gcog, columns {config.operator!r}, {config.color!r} and {config.shape!r}",
            expected="operators of both halves, each with its own objects: together they train all colours and shapes",
            remedy="add rows of the other half of the operators, or name other halves in 'operators'",
        )
    side, reason = decide(
        *unknown,
        Case(strange, NEITHER, phrase(asked, ": the operator, the colour or the shape is in no trained row")),
        Case(new, OUT, phrase(asked, ": the operator is not trained on this object")),
        Case(seen, IN, phrase(asked, ": the operator is trained on this object")),
        Case(np.ones(len(operator), np.bool_), NEITHER, phrase(asked, ": no operator is trained on this object")),
    )  # fmt: skip
    held_out = cells([config.color, config.operator, config.shape], [color, operator, shape], side == OUT)
    kept = _kept(operator, side)
    return Marks(side, reason, held_out, 1, "operator and object", kept=(kept,))


def _trees(rows: _Rows) -> Marks:
    """Trees that start in one half and end in it are trained on; those that end in the other half are tested."""
    config = rows.config
    operator, no_operator = rows.text(config.operator)
    ends = rows.examples[config.ends]
    if isinstance(ends.dtype, pl.Array):
        ends = ends.arr.to_list()
    listed = ends if isinstance(ends.dtype, pl.List) else pl.select(pl.concat_list(pl.lit(ends)).alias("e"))["e"]
    listed = listed.cast(pl.List(pl.String)).list.drop_nulls()
    at_three = pl.Series(rows.depth == 3)
    starts = _halves(operator.filter(at_three), operator, config.starts, config.operator)
    long = listed.filter(at_three).explode().drop_nulls()
    _halves(long, long, config.endings, config.ends)
    none = (listed.is_null() | (listed.list.len() == 0)).fill_null(True).to_numpy()
    within = [
        listed.list.eval(pl.element().is_in(list(half))).list.all().fill_null(False).to_numpy()
        for half in config.endings
    ]
    asked = phrase(operator, " ends in ", listed.list.join(", "))
    side, reason = decide(
        *rows.other(3), no_operator, Case(none, NEITHER, f"{config.ends} is null"),
        Case((starts[0] & within[1]) | (starts[1] & within[0]), OUT, phrase(asked, ", of the other kind of tree")),
        Case((starts[0] & within[0]) | (starts[1] & within[1]), IN, phrase(asked, ", of its own kind of tree")),
        Case(np.ones(len(operator), np.bool_), NEITHER, phrase(asked, ", of both kinds")),
    )  # fmt: skip
    return Marks(side, reason, "starts and ends of two kinds", 2, "tree", kept=(_kept(operator, side),))


def _deeper(rows: _Rows) -> Marks:
    """Trees deeper than any in training are tested."""
    trained = sorted(rows.config.train_depths)
    told = pl.Series(rows.depth).cast(pl.String)
    side, reason = decide(
        rows.unknown,
        Case(np.isin(rows.depth, trained), IN, phrase("depth ", told, " is trained on")),
        Case(rows.depth > trained[-1], OUT, phrase("depth ", told, f" > {trained[-1]}")),
        Case(np.ones(len(told), np.bool_), NEITHER, phrase("depth ", told, " lies between those trained on")),
    )
    held_out = cells([rows.config.depth or "depth"], [told], side == OUT)
    return Marks(side, reason, held_out, 3, "depth", kept=(_kept(told, side),))


def _among(column: pl.Series, rows: np.ndarray) -> np.ndarray:
    """Say which rows have a value that one of some rows has."""
    found: np.ndarray = column.is_in(column.filter(pl.Series(rows)).unique().implode()).fill_null(False).to_numpy()
    return found


def _kept(label: pl.Series, side: np.ndarray) -> Kept:
    """Say that each label with in-distribution rows, or rows to test that have one, is trained on."""
    return Kept(coded(label.set(pl.Series(side != IN), None)))


def _halves(known: pl.Series, column: pl.Series, halves: Halves, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Say which rows are of the first and of the second half; refuses a value of neither."""
    valid = [*halves[0], *halves[1]]
    strange = known.drop_nulls().unique().sort()
    strange = strange.filter(~strange.is_in(valid))
    if len(strange):
        raise UsageError(
            f"{strange[0]!r} is in neither half of the operators{nearest(strange[0], valid)}",
            where=f"split gcog, column {name!r}",
            expected=", ".join(valid),
            remedy="name your operators in the settings operators, starts and endings",
        )
    first, second = (column.is_in(list(half)).fill_null(False).to_numpy() for half in halves)
    return first, second


def _half(column: pl.Series, named: tuple[str, ...], name: str, seed: int) -> np.ndarray:
    """Say which rows have a value of the half: the named ones, or each with a draw below one half."""
    levels = column.drop_nulls().unique().sort()
    for value in named:
        if value not in levels:
            raise UsageError(
                f"there is no value {value!r}{nearest(value, levels)}",
                where=f"split gcog, column {name!r}", expected=", ".join(levels.head(30)),
            )  # fmt: skip
    chosen = list(named) or levels.filter(pl.Series(uniform(levels, seed, f"split gcog {name}") < 0.5)).to_list()
    if len(chosen) in (0, len(levels)):
        raise DataRefused(
            f"{'none' if not chosen else 'each'} of the {len(levels)} values of {name!r} is in the half",
            where="split gcog",
            remedy="name the half in the setting, or take another seed",
        )
    half: np.ndarray = column.is_in(chosen).fill_null(False).to_numpy()
    return half

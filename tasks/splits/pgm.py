"""The eight regimes of procedurally generated matrices (PGM), over structures of relation, object and attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.pgm_structures import (
    ATTRIBUTE_NAMES,
    ATTRIBUTE_PAIRS,
    ATTRIBUTES,
    NAMES,
    ORDERED,
    PAIRS,
    TRIPLES,
    long_triples,
    mask_of,
    masks,
)
from gradatim.tasks.splits.preset_marks import Case, decide, only

SOURCE = "Barrett, Hill, Santoro, Morcos & Lillicrap (2018). Measuring Abstract Reasoning in Neural Networks."
REGIMES = (
    "neutral", "interpolation", "extrapolation", "attr.rel.pairs", "attr.rels", "attrs.pairs", "attrs.shape.color",
    "attrs.line.type",
)  # fmt: skip
"""The regimes, by the names of the published files; the place of one is its fold's number."""
Regime = Literal[
    "neutral", "interpolation", "extrapolation", "attr.rel.pairs", "attr.rels", "attrs.pairs", "attrs.shape.color",
    "attrs.line.type",
]  # fmt: skip
HELD_PAIRS, HELD_ATTRIBUTE_PAIRS = 40, 4
_WHERE = "split pgm"


class PgmConfig(SplitConfig):
    """Settings of the PGM regimes."""

    lists: ClassVar[bool] = True
    column: str = Field(
        "triples", description="column of lists of triples: 'XOR shape colour', [XOR, shape, colour] or named fields"
    )
    values: str = Field(
        "values",
        description="column of the places of the values that colours and sizes take, from 0: a list a row, or one a "
        "triple; read by interpolation and extrapolation alone",
    )
    levels: int = Field(10, ge=2, description="values of a colour or a size: places run from 0 to levels - 1")
    regimes: tuple[Regime, ...] = Field(min_length=1, description="regimes, a fold each")

    @field_validator("regimes", mode="before")
    @classmethod
    def _one_or_more(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @model_validator(mode="after")
    def _halves(self) -> PgmConfig:
        if "extrapolation" in self.regimes and self.levels % 2:
            raise ValueError(f"{self.levels} levels have no two halves")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the regimes read."""
        ordered = {"interpolation", "extrapolation"} & set(self.regimes)
        return (self.column, self.values) if ordered else (self.column,)


@dataclass(frozen=True)
class Held:
    """What a regime holds out: names, and for each the triples of which a structure has one, or one of each group.

    Attributes
    ----------
    names : tuple of str
    groups : tuple of tuple of int
        For each name whole numbers (`mask_of`); a structure has the held-out thing if it meets each of them.
    least : int
        Triples that a structure of this regime has at least.
    """

    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    least: int = 1


def held_out(regime: str, seed: int) -> Held:
    """Return what a regime holds out: a function of the seed and the definition of matrices alone, not of the data."""
    if regime == "attr.rel.pairs":
        names = [f"{NAMES[i]} + {NAMES[j]}" for i, j in PAIRS]
        chosen = _lowest(names, HELD_PAIRS, seed, regime)
        return Held(*_both(names, chosen, [(1 << i, 1 << j) for i, j in PAIRS]), least=2)
    if regime == "attrs.pairs":
        names = [f"{ATTRIBUTE_NAMES[i]} + {ATTRIBUTE_NAMES[j]}" for i, j in ATTRIBUTE_PAIRS]
        chosen = _lowest(names, HELD_ATTRIBUTE_PAIRS, seed, regime)
        groups = [(_any(i), _any(j)) for i, j in ATTRIBUTE_PAIRS]
        return Held(*_both(names, chosen, groups), least=2)
    if regime == "attr.rels":
        draw = uniform(list(NAMES), seed, f"{_WHERE} {regime}")
        first = [min((draw[i], i) for i, t in enumerate(TRIPLES) if t[1:] == attribute)[1] for attribute in ATTRIBUTES]
        return Held(*_both(NAMES, sorted(first), [(1 << i,) for i in range(len(NAMES))]))
    place = ATTRIBUTES.index(("shape", "colour") if regime == "attrs.shape.color" else ("line", "type"))
    return Held((ATTRIBUTE_NAMES[place],), ((_any(place),),))


def _any(attribute: int) -> int:
    return mask_of([i for i, triple in enumerate(TRIPLES) if triple[1:] == ATTRIBUTES[attribute]])


def _lowest(names: Sequence[str], count: int, seed: int, regime: str) -> list[int]:
    draw = uniform(list(names), seed, f"{_WHERE} {regime}")
    return sorted(np.argsort(draw, kind="stable")[:count].tolist())


def _both(
    names: Sequence[str], chosen: Sequence[int], groups: Sequence[tuple[int, ...]]
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    return tuple(names[i] for i in chosen), tuple(groups[i] for i in chosen)


@rule(
    "pgm",
    config=PgmConfig,
    needs=("examples.{columns}",),
    axis="structure",
    cost=lambda rows, width: Cost(2e-6 * rows * len(REGIMES), 450 * rows * len(REGIMES)),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: PgmConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Make a fold of each regime: other values, triples, pairs of triples or attributes than in training."""
    ids, where = examples["example_id"], f"{_WHERE}, column {config.column!r}"
    long = long_triples(examples[config.column], ids, where)
    mask = masks(long, len(examples), ids, where)
    structures, of = np.unique(mask, return_inverse=True)
    count = np.array([int(m).bit_count() for m in structures])
    marks = []
    for fold, regime in enumerate(REGIMES):
        if regime not in config.regimes:
            continue
        none = Case(mask == 0, NEITHER, f"{config.column} is null or empty")
        if regime == "neutral":
            side, reason = decide(none, Case(mask >= 0, IN, "any structure"))
            marks.append(Marks(side, reason, None, fold, "none"))
        elif regime in ("interpolation", "extrapolation"):
            marks.append(_values(examples, long, none, config, regime, fold))
        else:
            held = held_out(regime, seed)
            told = _told(structures, held)
            enough = count >= held.least
            side, reason = decide(
                none,
                Case(~enough[of], NEITHER, "one triple, and this regime is about pairs"),
                Case((told.is_not_null().to_numpy())[of], OUT, phrase("holds ", told.gather(pl.Series(of)))),
                Case(mask > 0, IN, "holds nothing that is held out"),
            )
            marks.append(Marks(side, reason, only(told.gather(pl.Series(of)), side == OUT), fold, regime))
    return marks


def _told(structures: np.ndarray, held: Held) -> pl.Series:
    """Name what each structure has of what is held out, parted by ``; ``; null for nothing."""
    hits = np.ones((len(structures), len(held.names)), np.bool_)
    for column, groups in enumerate(held.groups):
        for group in groups:
            hits[:, column] &= (structures & group) > 0
    at, which = np.nonzero(hits)
    texts = pl.DataFrame({"at": at, "name": pl.Series(held.names).gather(which)})
    joined = texts.group_by("at", maintain_order=True).agg(pl.col("name").str.join("; "))
    rows = pl.DataFrame({"at": np.arange(len(structures))}).join(joined, on="at", how="left", maintain_order="left")
    return rows["name"]


def _values(examples: pl.DataFrame, long: pl.DataFrame, none: Case, config: PgmConfig, regime: str, fold: int) -> Marks:
    """Train on the even places of ordered values, or the lower half; test on the others."""
    ordered = np.array([triple[2] in ORDERED for triple in TRIPLES])
    governed = long.filter(pl.Series(ordered[long["triple"].to_numpy()]))
    has = np.zeros(len(examples), np.bool_)
    has[governed["row"].to_numpy()] = True
    row, place = _places(examples, governed, config)
    if regime == "interpolation":
        far, near_name, far_name = place % 2 == 1, "even places", "odd places"
    else:
        half = config.levels // 2
        far, near_name, far_name = place >= half, f"places below {half}", f"places from {half} on"
    total = np.bincount(row, minlength=len(examples))
    away = np.bincount(row[far], minlength=len(examples))
    side, reason = decide(
        none,
        Case(~has, NEITHER, "no triple of colour or size"),
        Case(total == 0, NEITHER, f"{config.values} is null or empty"),
        Case(away == total, OUT, f"colours and sizes at {far_name} alone"),
        Case(away == 0, IN, f"colours and sizes at {near_name} alone"),
        Case(np.ones(len(total), np.bool_), NEITHER, f"colours and sizes at {near_name} and at {far_name}"),
    )
    return Marks(side, reason, f"colours and sizes at {far_name}", fold, regime)


def _places(examples: pl.DataFrame, governed: pl.DataFrame, config: PgmConfig) -> tuple[np.ndarray, np.ndarray]:
    """List the places that ordered values take: rows and places, int64, of the same length."""
    column, ids, where = examples[config.values], examples["example_id"], f"{_WHERE}, column {config.values!r}"
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    kind: Any = column.dtype
    each = isinstance(kind, pl.List) and isinstance(kind.inner, pl.List)
    inner: Any = kind.inner if isinstance(kind, pl.List) else None
    inner = inner.inner if each else inner
    if inner is None or not (inner.is_integer() or inner == pl.Null):
        raise UsageError(
            f"the column holds {kind}", where=where, expected="lists of whole numbers, or such a list for each triple"
        )
    long = pl.DataFrame({"row": np.arange(len(column)), "place": column})
    if each:
        uneven = np.flatnonzero(
            column.is_not_null().to_numpy()
            & (column.list.len().fill_null(0) != examples[config.column].list.len().fill_null(0)).to_numpy()
        )
        if len(uneven):
            raise DataRefused(
                f"the row {ids[int(uneven[0])]!r} has {column.list.len()[int(uneven[0])]} lists of values",
                where=where,
                expected="one for each of its triples, or one list a row",
            )
        long = long.with_columns(at=pl.int_ranges(0, pl.col("place").list.len())).explode("place", "at")
        long = long.join(governed.select("row", "at"), on=["row", "at"], how="semi").select("row", "place")
    long = long.explode("place").drop_nulls("place").with_columns(pl.col("place").cast(pl.Int64)).sort("row", "place")
    wrong = long.filter((pl.col("place") < 0) | (pl.col("place") >= config.levels))
    if len(wrong):
        raise DataRefused(
            f"the row {ids[wrong['row'][0]]!r} has a value at place {wrong['place'][0]}",
            where=where,
            expected=f"places from 0 to {config.levels - 1}",
            remedy="count places from 0, or set levels",
        )
    return long["row"].to_numpy(), long["place"].to_numpy()

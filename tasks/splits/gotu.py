"""GOTU: train on a region of the Boolean cube, test on the rest of it, the unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered

SOURCE = "Abbe, Bengio, Lotfi & Rizk (2023). Generalization on the Unseen, Logic Reasoning and Degree Curriculum."
Region = Literal["half_space", "hamming_weight", "f1", "f2", "f3", "f4"]
_WHERE = "split gotu"
_FIRST = {"f1": 3, "f2": 2, "f3": 3, "f4": 2}
"""Coordinates from the first on that the regions of the paper's functions look at."""


class GotuConfig(SplitConfig):
    """Settings of generalisation on the unseen."""

    lists: ClassVar[bool] = True
    inputs: tuple[str, ...] = Field(
        ("x",), min_length=1, description="a column of lists of -1 and 1, or a column a coordinate, in their order"
    )
    regions: tuple[Region, ...] = Field(
        ("half_space",), min_length=1,
        description="the seen, a fold each: half_space (a coordinate is 1), hamming_weight (at most so many are -1) "
        "or the region of the function f1 (x0 x1 x2 = 1), f2 and f4 (x0 = 1 or x1 = 1), f3 (one of x0, x1, x2 is 1)",
    )  # fmt: skip
    coordinates: tuple[int, ...] = Field((0,), min_length=1, description="half_space: coordinates, from 0; a fold each")
    weights: tuple[int, ...] = Field((), description="hamming_weight: most coordinates that are -1; a fold each")

    @field_validator("inputs", "regions", "coordinates", "weights", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str | int) else found

    @model_validator(mode="after")
    def _says_enough(self) -> GotuConfig:
        if "hamming_weight" in self.regions and not self.weights:
            raise ValueError("hamming_weight needs 'weights', the most coordinates that may be -1, such as [6, 7, 8]")
        if min(self.coordinates) < 0 or (self.weights and min(self.weights) < 0):
            raise ValueError("coordinates and weights count from 0")
        return self


@rule(
    "gotu",
    config=GotuConfig,
    needs=("examples.{inputs}",),
    axis="unseen",
    cost=lambda rows, width: Cost(5e-6 * rows, 700 * rows),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: GotuConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Train on a half-space, a ball or another region of the cube; its complement is test_ood."""
    cube, known = _cube(examples, config.inputs)
    folds: dict[str, tuple[str, np.ndarray, pl.Series, pl.Series]] = {}
    for region in dict.fromkeys(config.regions):
        if region == "half_space":
            for k in dict.fromkeys(config.coordinates):
                _has(cube, k)
                shown = pl.Series(cube[:, k]).cast(pl.String)
                told = phrase(f"x{k} = ", shown)
                folds[f"x{k} = 1 is seen"] = (f"x{k} = -1", cube[:, k] == 1, told, told)
        elif region == "hamming_weight":
            minus = (cube == -1).sum(axis=1)
            shown = pl.Series(minus).cast(pl.String)
            for most in dict.fromkeys(config.weights):
                rest = " of -1, "
                low, high = phrase(shown, rest, f"at most {most}"), phrase(shown, rest, f"more than {most}")
                folds[f"at most {most} of -1 are seen"] = (f"more than {most} of -1", minus <= most, low, high)
        else:
            first = cube[:, : _FIRST[region]]
            _has(cube, _FIRST[region] - 1)
            seen = first.prod(axis=1) == 1 if region == "f1" else (first == 1).any(axis=1)
            names = [f"x{k}" for k in range(_FIRST[region])]
            out = f"{' '.join(names)} = -1" if region == "f1" else f"{' = '.join(names)} = -1"
            parts = [phrase(f"{name} = ", pl.Series(first[:, k]).cast(pl.String)) for k, name in enumerate(names)]
            told = parts[0]
            for part in parts[1:]:
                told = phrase(told, ", ", part)
            folds[f"the region of {region} is seen"] = (out, seen, told, told)
    marks = []
    for fold, axis in numbered(list(folds), tables.get("frozen"), config.folds, by="axis"):
        held_out, seen, low, high = folds[axis]
        side = np.where(known, np.where(seen, IN, OUT), NEITHER).astype(np.int8)
        reason = phrase(low, " is seen", when=pl.Series(seen), otherwise=phrase(high, " is unseen"))
        reason = phrase("a coordinate is null", when=pl.Series(~known), otherwise=reason)
        marks.append(Marks(side, reason, held_out, fold, axis))
    return marks


def _has(cube: np.ndarray, coordinate: int) -> None:
    if coordinate >= cube.shape[1]:
        raise UsageError(
            f"there is no coordinate {coordinate}: rows have {cube.shape[1]}",
            where=_WHERE,
            expected=f"0 to {cube.shape[1] - 1}",
        )


def _cube(examples: pl.DataFrame, inputs: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read the points: int8 of -1 and 1, (rows, d), 0 where unknown; and which rows are known, bool.

    Raises
    ------
    DataRefused
        For a value other than -1 and 1, or rows of different lengths; names the row.
    """
    ids, columns = examples["example_id"], [examples[name] for name in inputs]
    if len(columns) == 1 and isinstance(columns[0].dtype, pl.List | pl.Array):
        column = columns[0]
        lists = column.arr.to_list() if isinstance(column.dtype, pl.Array) else column
        length = lists.list.len()
        d = int(length.max() or 0)  # type: ignore[arg-type]
        other = ((length != d) & (length > 0)).fill_null(False)
        if other.any():
            place = int(other.arg_true()[0])
            raise DataRefused(
                f"the row {ids[place]!r} has {length[place]} coordinates, others {d}",
                where=f"column {inputs[0]!r}",
                expected="points of one cube",
            )
        full = (length == d).fill_null(False) & (d > 0)
        flat = lists.filter(full).explode() if d else pl.Series([], dtype=pl.Int8)
        where = np.flatnonzero(full.to_numpy())
        known, values = np.zeros((len(ids), d), np.bool_), np.zeros((len(ids), d), np.int8)
        known[where], values[where] = (part.reshape(-1, d) if d else part for part in _signs(flat, ids, where, inputs))
    else:
        parts = [_signs(column, ids, np.arange(len(ids)), inputs) for column in columns]
        known = np.stack([part[0] for part in parts], axis=1)
        values = np.stack([part[1] for part in parts], axis=1)
    complete: np.ndarray = np.asarray(known.all(axis=1) & (known.shape[1] > 0))
    if not complete.any():
        raise DataRefused(f"no row has coordinates in {', '.join(inputs)}", where=_WHERE)
    return values, complete


def _signs(flat: pl.Series, ids: pl.Series, rows: np.ndarray, inputs: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return which values there are, and the values: -1, 1, and 0 for none."""
    numbers = flat.cast(pl.Float64, strict=False)
    there = (flat.fill_nan(None) if flat.dtype.is_float() else flat).is_not_null()
    bad = there & ~(numbers.abs() == 1).fill_null(False)
    if flat.dtype == pl.Boolean or bad.any():
        place = int(bad.arg_true()[0]) if bad.any() else 0
        per = max(len(flat) // max(len(rows), 1), 1)
        raise DataRefused(
            f"the row {ids[int(rows[place // per])]!r} has the coordinate {flat[place]!r}",
            where=f"column {', '.join(inputs)}",
            expected="-1 and 1",
            remedy="write 1 - 2b for a bit b",
        )
    return there.to_numpy(), numbers.fill_nan(0).fill_null(0).cast(pl.Int8).to_numpy()

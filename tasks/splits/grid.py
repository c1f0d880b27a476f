"""Grid: each value of a column is trained on in exactly k combinations with the values of another."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.factor_cells import cell_numbers
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.values import Coded, Standing, assignments, coded, standing, values_of

SOURCE = "Uselis, Dittadi & Oh (2025). Does Data Scaling Lead to Visual Compositional Generalization?"
_WHERE = "split grid"


class GridConfig(SplitConfig):
    """Settings of a grid."""

    columns: tuple[str, ...] = Field(min_length=2, description="columns, or factors, that span the grid")
    k: int = Field(ge=1, description="combinations of each value of the first column that train has")
    complete: bool = Field(True, description="refuse a grid where a combination meant for train has no row")

    @model_validator(mode="after")
    def _differ(self) -> GridConfig:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a column comes twice in {', '.join(self.columns)}")
        return self


@rule(
    "grid",
    config=GridConfig,
    needs=("examples.{columns}",),
    axis=lambda config: ", ".join(config.columns),
    cost=lambda rows, width: Cost(3e-6 * rows, 450 * rows),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: GridConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """A cyclic band of the grid, its values in a drawn order, is in distribution; the rest is test_ood."""
    found = [coded(examples[name]) for name in config.columns]
    codes = np.stack([one.codes for one in found], axis=1)
    known = (codes >= 0).all(axis=1)
    late = np.zeros(len(codes), np.bool_)
    member = [one.counts > 0 for one in found]
    released = standing(examples["example_id"], tables, seed)
    if released is not None:
        member = _released(released, found, config)
        for column, values in enumerate(member):
            late |= known & ~np.append(values, False)[codes[:, column]]
    sizes = [int(values.sum()) for values in member]
    _fits(sizes, config)
    place = [_order(one, values, name, seed) for one, values, name in zip(found, member, config.columns, strict=True)]
    inside = known & ~late
    at = np.stack([order[codes[inside, column]] for column, order in enumerate(place)], axis=1)
    within = in_band(at, sizes, config.k)
    cell = cell_numbers(codes[inside], [len(one.levels) for one in found])
    present, where = np.unique(cell, return_inverse=True)
    first = np.full(len(present), len(cell), np.int64)
    np.minimum.at(first, where, np.arange(len(cell)))
    trained = within[first]
    if config.complete:
        _complete(int(trained.sum()), sizes, config)
    levels = [one.levels.gather(pl.Series(codes[inside][first, c])) for c, one in enumerate(found)]
    names = assignments(config.columns, levels)
    if released is not None and names.filter(pl.Series(trained)).is_in(list(released.held)).any():
        raise _moved("a value of the released grid has no rows any more")
    side = np.full(len(codes), NEITHER, np.int8)
    side[inside] = np.where(within, IN, OUT)
    band = f"{config.k} of {sizes[-1]}"
    told = pl.Series(
        [f"{n} is {'among' if t else 'not among'} the {band}" for n, t in zip(names, trained, strict=True)]
    )
    of_row = np.full(len(codes), len(names), np.uint32)
    of_row[inside] = where
    nothing = pl.Series([None], dtype=pl.String)
    reason = pl.concat([told, nothing]).gather(pl.Series(of_row))
    if not inside.all():
        reason = reason.fill_null(_why_neither(codes, late, config.columns))
    held_out = pl.concat([names.set(pl.Series(trained), None), nothing]).gather(pl.Series(of_row))
    kept = Coded(names, np.where(side == IN, of_row.astype(np.int64), -1))
    warnings = (
        (f"{int(late.sum()):,} rows have a value that came after the release; they are excluded",) if late.any() else ()
    )
    return [Marks(side, reason, held_out, warnings=warnings, kept=(Kept(kept),))]


def in_band(at: np.ndarray, sizes: list[int], k: int) -> np.ndarray:
    """Say which cells are trained on.

    Two columns of n and m values: row i has the columns floor(i m / n) + 0, ..., k - 1 modulo m, so that each row has
    exactly k, and each column floor(k n / m) or one more: as many as there are multiples of m / n in a half-open
    interval of length k. With n = m it is the Latin band i, ..., i + k - 1. More columns, all of n values: the last
    less the sum of the others, modulo n, is below k, so that every choice of the others has exactly k values of the
    last, and the same holds of each column in its place.

    Parameters
    ----------
    at : numpy.ndarray of int64, (cells, columns)
        Places of the values in their order, from 0.
    sizes : list of int
        Values of each column.
    k : int
    """
    start = at[:, 0] * sizes[1] // sizes[0] if len(sizes) == 2 else at[:, :-1].sum(axis=1)
    band: np.ndarray = (at[:, -1] - start) % sizes[-1] < k
    return band


def _order(found: Coded, member: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Give each value its place in the drawn order; -1 for one that is not in the grid."""
    draw = uniform(found.levels, seed, f"{_WHERE} order of {name}")
    places = np.full(len(member), -1, np.int64)
    chosen = np.flatnonzero(member)
    places[chosen[np.argsort(draw[chosen], kind="stable")]] = np.arange(len(chosen))
    return places


def _released(released: Standing, found: list[Coded], config: GridConfig) -> list[np.ndarray]:
    """Say of each value whether the released grid had it."""
    cells = [values for piece in released.held if (values := values_of(piece, config.columns)) is not None]
    members = []
    for column, (one, name) in enumerate(zip(found, config.columns, strict=True)):
        here = np.zeros(len(one.levels), np.bool_)
        here[one.codes[released.used & (one.codes >= 0)]] = True
        gone = sorted({values[column] for values in cells} - set(one.levels))
        if gone:
            raise _moved(f"the value {gone[0]!r} of {name!r}, of the released grid, has no rows any more")
        members.append(here)
    return members


def _moved(what: str) -> DataRefused:
    remedy = "restore its rows, or retire the strategy so that a new grid is drawn"
    return DataRefused(f"{what}, and the grid without it is another one", where=_WHERE, remedy=remedy)


def _fits(sizes: list[int], config: GridConfig) -> None:
    listed = ", ".join(f"{name} {size:,}" for name, size in zip(config.columns, sizes, strict=True))
    if min(sizes) < 2:
        raise DataRefused(f"a grid takes two values or more a column ({listed})", where=_WHERE)
    if len(sizes) > 2 and len(set(sizes)) > 1:
        raise UsageError(
            f"the columns have different numbers of values ({listed})",
            where=_WHERE,
            expected="two columns, or three and more with as many values each",
            remedy="take two columns, or holdout_combinations",
        )
    if config.k >= sizes[-1]:
        raise UsageError(
            f"k is {config.k}, and {config.columns[-1]!r} has {sizes[-1]:,} values: nothing would be held out",
            where=_WHERE,
            expected=f"k from 1 to {sizes[-1] - 1}",
        )
    if config.k * sizes[0] < sizes[1]:
        least = -(-sizes[1] // sizes[0])
        raise UsageError(
            f"with k {config.k}, {sizes[1] - config.k * sizes[0]:,} values of {config.columns[1]!r} are never in train "
            f"({listed})",
            where=_WHERE,
            expected=f"k of {least} or more" if least < sizes[1] else "more values in the first column",
            remedy="raise k, or name the column with more values first",
        )


def _complete(trained: int, sizes: list[int], config: GridConfig) -> None:
    asked = config.k
    for size in sizes[:-1]:
        asked *= size
    if trained < asked:
        raise DataRefused(
            f"{asked - trained:,} of the {asked:,} combinations meant for train have no row",
            where=_WHERE,
            expected=f"a row of each, so that every value is in exactly {config.k}",
            remedy="add rows, name other columns, take another seed, or say  complete: false  (at most k then)",
        )


def _why_neither(codes: np.ndarray, late: np.ndarray, columns: tuple[str, ...]) -> pl.Series:
    parts = [pl.when(pl.Series(codes[:, i] < 0)).then(pl.lit(f"{name} is null")) for i, name in enumerate(columns)]
    parts.append(pl.when(pl.Series(late)).then(pl.lit("it has a value that came after the release of this grid")))
    return pl.select(pl.concat_str(parts, separator="; ", ignore_nulls=True).alias("x"))["x"]

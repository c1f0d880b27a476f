"""Hold out combinations of values while every single value stays in train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import keep_together, phrase
from gradatim.tasks.splits.keep_labels import Kept
from gradatim.tasks.splits.together import together
from gradatim.tasks.splits.values import Coded, Standing, assignments, coded, spelt, standing

SOURCE = (
    "Lake & Baroni (2018). Generalization without Systematicity: On the Compositional Skills of Sequence-to-Sequence "
    "Recurrent Networks."
)
_WHERE = "split holdout_combinations"
_MOST_SETS = 200
Scalar = bool | int | float | str


class HoldoutCombinationsConfig(SplitConfig):
    """Settings of held-out combinations."""

    columns: tuple[str, ...] = Field(min_length=2, description="columns, or factors, whose single values stay in train")
    r: int | None = Field(None, ge=2, description="values in a combination; as many as there are columns by default")
    sets: tuple[tuple[str, ...], ...] = Field((), description="sets of r columns to combine; all of them by default")
    fraction: float | None = Field(None, gt=0, lt=1, description="share of the combinations that is drawn")
    cells: tuple[dict[str, Scalar], ...] = Field(
        (), description="in place of fraction: the combinations, such as {colour: red, shape: square}"
    )
    keep_values: int = Field(1, ge=1, description="training rows that each single value keeps at least")

    @model_validator(mode="after")
    def _fits(self) -> HoldoutCombinationsConfig:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a column comes twice in {', '.join(self.columns)}")
        if (self.r or 0) > len(self.columns):
            raise ValueError(f"r is {self.r}, and there are {len(self.columns)} columns")
        if bool(self.cells) == (self.fraction is not None):
            raise ValueError("name either the 'cells' that are held out or the 'fraction' of them to draw")
        for found, what in [(s, "set") for s in self.sets] + [(tuple(c), "cell") for c in self.cells]:
            for name in found:
                if name not in self.columns:
                    raise ValueError(f"the {what} {', '.join(found)} names {name!r}{nearest(name, self.columns)}, "
                                     f"which is not among the columns {', '.join(self.columns)}")  # fmt: skip
            if len(set(found)) != (self.r or len(self.columns)):
                raise ValueError(f"the {what} {', '.join(found)} has {len(set(found))} columns, and r is "
                                 f"{self.r or len(self.columns)}")  # fmt: skip
        if len(self.of) > _MOST_SETS:
            raise ValueError(f"{len(self.columns)} columns have {len(self.of):,} sets of {self.r}: name some in 'sets'")
        return self

    @property
    def of(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns whose combinations are held out, each in the order of names."""
        named = self.sets or tuple(tuple(cell) for cell in self.cells)
        found = named or combinations(sorted(self.columns), self.r or len(self.columns))
        return tuple(sorted({tuple(sorted(one)) for one in found}))


@dataclass(frozen=True)
class _Cells:
    """The cells of all sets in the order of their draw, and the units of each: row[starts[i]] to row[starts[i + 1]]."""

    names: pl.Series
    drawn: np.ndarray
    row: np.ndarray
    starts: np.ndarray

    def units(self, chosen: np.ndarray) -> np.ndarray:
        """List the units of the cells that a mask chooses."""
        units: np.ndarray = self.row[spans(self.starts, np.flatnonzero(chosen))]
        return units


@rule(
    "holdout_combinations",
    config=HoldoutCombinationsConfig,
    needs=("examples.{columns}",),
    axis=lambda config: ", ".join(config.columns),
    cost=lambda rows, width: Cost(4e-6 * rows, 500 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: HoldoutCombinationsConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Rows of a held-out combination are test_ood; train keeps rows of every single value, or the split is refused."""
    found = {name: coded(examples[name]) for name in config.columns}
    codes = np.stack([found[name].codes for name in config.columns], axis=1)
    complete: np.ndarray = np.asarray((codes >= 0).all(axis=1))
    if not complete.any():
        raise DataRefused(f"no row has a value of each of {', '.join(config.columns)}", where=_WHERE)
    group = together(examples, keep_together(examples, config), tables).component.filter(pl.Series(complete))
    # all that follows is about distinct rows: the same values in the same group
    unit_of, units, sizes, home = _units(codes[complete], group)
    cells, of_unit = _cells(units, found, config, seed)
    if config.cells:
        fixed, warnings = _named(cells, found, examples, config)
        barred = ~fixed
    else:
        fixed, barred = _released(cells, unit_of, complete, standing(examples["example_id"], tables, seed))
        warnings = ()
    held, more = _choose(cells, _Counts(units, sizes, home), fixed, barred, found, config)
    hit = held[of_unit].any(axis=1)
    side = np.full(len(examples), NEITHER, np.int8)
    side[complete] = np.where(hit, OUT, IN)[unit_of]
    place = np.full(len(examples), len(units), np.uint32)
    place[complete] = unit_of
    told = pl.Series([f"{name} is held out" for name in cells.names], dtype=pl.String)
    why = _joined(told, of_unit, held).fill_null(_not_held(cells, of_unit, config))
    nothing = pl.Series([None], dtype=pl.String)
    reason = pl.concat([why, nothing]).gather(pl.Series(place))
    if not complete.all():
        reason = reason.fill_null(_lacking(codes, complete, config.columns))
    held_out = pl.concat([_joined(cells.names, of_unit, held), nothing]).gather(pl.Series(place))
    kept = tuple(
        Kept(
            Coded(assignments([name], [found[name].levels]), np.where(complete, codes[:, column], -1)),
            config.keep_values,
        )
        for column, name in enumerate(config.columns)
    )
    return [Marks(side, reason, held_out, warnings=(*warnings, *more), kept=kept)]


def _units(codes: np.ndarray, group: pl.Series) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Number the distinct rows of codes (and group): places, distinct codes, their counts, the group of each."""
    frame = pl.DataFrame(codes, schema=[f"f{i}" for i in range(codes.shape[1])])
    grouped = group.null_count() < len(group)
    if grouped:
        # a row that stands alone is a group of its own, told apart by its place
        name = group.cast(pl.Categorical).to_physical().cast(pl.Int64)
        frame = frame.with_columns(group=pl.when(name.is_null()).then(-1 - pl.int_range(len(name))).otherwise(name))
    distinct = frame.group_by(frame.columns).len("size").sort(frame.columns)
    place = frame.join(
        distinct.drop("size").with_row_index("unit"), on=frame.columns, how="left", maintain_order="left"
    )["unit"]
    home = None
    if grouped:
        home = distinct["group"].rank("dense").cast(pl.Int64).to_numpy() - 1
    return (
        place.cast(pl.Int64).to_numpy(),
        distinct.select(frame.columns[: codes.shape[1]]).to_numpy().astype(np.int64),
        distinct["size"].cast(pl.Int64).to_numpy(),
        home,
    )


def _cells(
    units: np.ndarray, found: Mapping[str, Coded], config: HoldoutCombinationsConfig, seed: int
) -> tuple[_Cells, np.ndarray]:
    """List the cells that occur, in the order of their draw, and the cell of each unit in each set."""
    names: list[pl.Series] = []
    columns: list[np.ndarray] = []
    count = 0
    for one in config.of:
        frame = pl.DataFrame({name: units[:, config.columns.index(name)] for name in one})
        distinct = frame.unique().sort(one)
        place = frame.join(distinct.with_row_index("cell"), on=list(one), how="left", maintain_order="left")["cell"]
        columns.append(place.cast(pl.Int64).to_numpy() + count)
        names.append(assignments(one, [found[name].levels.gather(distinct[name]) for name in one]))
        count += len(distinct)
    every = pl.concat(names)
    drawn = uniform(every, seed, f"{_WHERE} cells")
    order = np.lexsort((every.rank("ordinal").to_numpy(), drawn))
    back = np.empty(count, np.int64)
    back[order] = np.arange(count)
    of_unit = back[np.stack(columns, axis=1)]
    flat = of_unit.ravel()
    by_cell = np.argsort(flat, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(flat, minlength=count))])
    return _Cells(every.gather(pl.Series(order)), drawn[order], by_cell // of_unit.shape[1], starts), of_unit


def _released(
    cells: _Cells, unit_of: np.ndarray, complete: np.ndarray, released: Standing | None
) -> tuple[np.ndarray, np.ndarray]:
    """Say which cells a released split holds out, and which it has in distribution."""
    fixed, barred = np.zeros((2, len(cells.names)), np.bool_)
    if released is not None:
        fixed = cells.names.is_in(list(released.held)).to_numpy()
        seen = np.bincount(unit_of[released.inside[complete]], minlength=int(cells.row.max()) + 1) > 0
        barred = np.logical_or.reduceat(seen[cells.row], cells.starts[:-1]) & ~fixed
    return fixed, barred


def _named(
    cells: _Cells, found: Mapping[str, Coded], examples: pl.DataFrame, config: HoldoutCombinationsConfig
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Find the cells that the settings name; warns of those that no row has."""
    wanted = []
    for cell in config.cells:
        names = sorted(cell)
        values = [spelt(cell[name], examples[name]) for name in names]
        for name, value in zip(names, values, strict=True):
            if value not in found[name].levels:
                raise UsageError(
                    f"there is no value {value!r}{nearest(value, found[name].levels.head(2000))}",
                    where=f"column {name!r}",
                    expected=", ".join(found[name].levels.head(20)),
                )
        wanted.append(assignments(names, [pl.Series([value]) for value in values])[0])
    known = set(cells.names)
    warnings = tuple(f"no row has {name}: it is held out already" for name in wanted if name not in known)
    return cells.names.is_in(wanted).to_numpy(), warnings


class _Counts:
    """Rows of each value that stay in distribution while combinations are held out."""

    def __init__(self, units: np.ndarray, sizes: np.ndarray, home: np.ndarray | None) -> None:
        self.units, self.sizes, self.home = units, sizes, home
        self.alive = np.ones(len(units), np.bool_)
        self.whole = [np.bincount(codes, weights=sizes).astype(np.int64) for codes in units.T]
        self.left = [whole.copy() for whole in self.whole]
        if home is not None:
            self.by_home = np.argsort(home, kind="stable")
            self.starts = np.concatenate([[0], np.cumsum(np.bincount(home))])

    def lost(self, units: np.ndarray) -> np.ndarray:
        """List the units that go where these are held out: with them the rest of their groups."""
        if self.home is not None:
            units = self.by_home[spans(self.starts, np.unique(self.home[units]))]
        once = np.unique(units)
        living: np.ndarray = once[self.alive[once]]
        return living

    def take(self, lost: np.ndarray, least: int) -> bool:
        """Take units away unless a value would keep too few rows; says whether it did."""
        after = []
        for codes, left in zip(self.units.T, self.left, strict=True):
            values, inverse = np.unique(codes[lost], return_inverse=True)
            gone = np.bincount(inverse, weights=self.sizes[lost], minlength=len(values)).astype(np.int64)
            if (left[values] - gone < least).any():
                return False
            after.append((values, left[values] - gone))
        for (values, rest), left in zip(after, self.left, strict=True):
            left[values] = rest
        self.alive[lost] = False
        return True


def spans(starts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """List the places starts[i] to starts[i + 1] of each i in chosen, one after the other."""
    sizes = starts[chosen + 1] - starts[chosen]
    places: np.ndarray = np.arange(int(sizes.sum())) + np.repeat(starts[chosen] - (np.cumsum(sizes) - sizes), sizes)
    return places


def _choose(
    cells: _Cells, counts: _Counts, fixed: np.ndarray, barred: np.ndarray, found: Mapping[str, Coded],
    config: HoldoutCombinationsConfig,
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """Choose the held-out cells: those that are fixed, and others that are not barred.

    In the order of their draw, each that leaves every value its rows, until there are as many as were drawn below the
    fraction: one that would take the last rows of a value is so swapped for the next that does not.
    """
    least = config.keep_values
    _refuse(counts, config, found, "that is all it has")
    drawn = ~barred & (cells.drawn < (config.fraction or 0.0))
    wanted = fixed | drawn
    if config.fraction is not None and not wanted.any():
        raise DataRefused(
            f"none of the {len(wanted):,} combinations is drawn at the fraction {config.fraction:g}",
            where=_WHERE,
            remedy=f"raise fraction above {np.ceil(cells.drawn[0] * 1000) / 1000:g}, take another seed, or name cells",
        )
    if counts.take(counts.lost(cells.units(wanted)), least):
        return wanted, ()
    held = np.zeros(len(fixed), np.bool_)
    if not counts.take(counts.lost(cells.units(fixed)), least):
        counts.take(counts.lost(cells.units(fixed)), 0)  # no value can have fewer than none
        _refuse(counts, config, found, "the held-out combinations, with the groups that they share, take the others")
    held |= fixed
    left = int(drawn.sum()) - int((drawn & fixed).sum())
    for cell in np.flatnonzero(~fixed & ~barred):
        if not left:
            break
        held[cell] = counts.take(counts.lost(cells.row[cells.starts[cell] : cells.starts[cell + 1]]), least)
        left -= int(held[cell])
    swapped = int((drawn & ~held).sum())
    note = f"{swapped:,} drawn combinations would have taken the last rows of a value; " + (
        f"{swapped - left:,} others are held out in their place" if left < swapped else "nothing could take their place"
    )
    if not held.any():
        raise DataRefused(
            f"no combination of {', '.join(config.columns)} can be held out: each takes the last rows of a value",
            where=_WHERE,
            expected=f"{least:,} rows of each value that stay in distribution",
            remedy="lower keep_values, or hold out combinations of fewer columns",
        )
    return held, (note,)


def _refuse(counts: _Counts, config: HoldoutCombinationsConfig, found: Mapping[str, Coded], why: str) -> None:
    for name, left, whole in zip(config.columns, counts.left, counts.whole, strict=True):
        short = np.flatnonzero((left < config.keep_values) & (whole > 0))
        if len(short):
            value = int(short[0])
            raise DataRefused(
                f"{assignments([name], [found[name].levels[value : value + 1]])[0]} keeps {left[value]:,} of its "
                f"{whole[value]:,} rows, and train is to have {config.keep_values:,}: {why}",
                where=_WHERE,
                remedy="hold out other combinations, lower keep_values, or leave rows with this value out",
            )


def _not_held(cells: _Cells, of_unit: np.ndarray, config: HoldoutCombinationsConfig) -> pl.Series:
    """Say of each unit what of it is not held out."""
    if of_unit.shape[1] > 1:
        text = f"none of its combinations of {len(config.of[0])} is held out"
        return pl.Series([text]).new_from_index(0, len(of_unit))
    return phrase(cells.names.gather(pl.Series(of_unit[:, 0])), " is not held out")


def _joined(texts: pl.Series, of_unit: np.ndarray, held: np.ndarray) -> pl.Series:
    """Join the texts of the held-out cells of each unit; null where it has none."""
    columns = [texts.gather(pl.Series(cell)).set(pl.Series(~held[cell]), None) for cell in of_unit.T]
    if len(columns) == 1:
        return columns[0]
    joined = pl.select(pl.concat_str([pl.lit(c) for c in columns], separator="; ", ignore_nulls=True).alias("x"))["x"]
    return joined.set(joined == "", None)


def _lacking(codes: np.ndarray, complete: np.ndarray, columns: tuple[str, ...]) -> pl.Series:
    """Say which values a row lacks."""
    parts = [pl.when(pl.Series(codes[:, i] < 0)).then(pl.lit(f"{name} is null")) for i, name in enumerate(columns)]
    joined = pl.concat_str(parts, separator="; ", ignore_nulls=True)
    return pl.select(pl.when(pl.Series(~complete)).then(joined).alias("x"))["x"]

"""Coverage of combinations of factors: which cells of values are seen, which are missing, what test adds to train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core.clusters import occupancy_entropy
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "D. R. Kuhn, I. Dominguez Mendoza, R. N. Kacker, Y. Lei (2013). Combinatorial coverage measurement concepts and "
    "applications; E. Lanus, L. J. Freeman, D. R. Kuhn, R. N. Kacker (2021). Combinatorial testing metrics for machine "
    "learning"
)
WHERE = "diversity factor_coverage"
MOST_SETS = 5_000
"""Sets of r factors that are looked at; more are refused."""
MOST_JOINED = 16
"""Factors up to which differences are counted."""
SHOWN = 200
"""Missing cells that a summary lists."""
GRID = 60
"""Values of a factor up to which a grid is drawn."""

Codes = NDArray[np.int64]


class FactorCoverageConfig(Config):
    """Settings of `factor_coverage`."""

    factors: tuple[str, ...] = Field(
        ("factors",), description="columns of examples, each a factor; a column of named factors (a map) stands for all"
    )
    ways: tuple[int, ...] = Field((1, 2), description="sizes r of the sets of factors whose cells are counted")
    split: str = Field("split", description="column of examples that says which rows are for training, if there is one")
    train: str = Field(
        "train", description="its value for the training rows; the cells of every other value are compared"
    )
    nearest: bool = Field(
        False, description="for each row that is not for training, the fewest factors in which a training row differs"
    )

    @field_validator("ways")
    @classmethod
    def _valid(cls, found: tuple[int, ...]) -> tuple[int, ...]:
        if not found or min(found) < 1:
            raise ValueError("ways should be one or more numbers from 1")
        return tuple(sorted(set(found)))


@dataclass(frozen=True)
class Factors:
    """Values of factors as numbers.

    Attributes
    ----------
    names : tuple of str
    levels : tuple of polars.Series
        Values of each factor that occur, sorted.
    codes : numpy.ndarray, shape (rows, factors), int64
        Place of each row's value among the levels; -1 where there is none.
    """

    names: tuple[str, ...]
    levels: tuple[pl.Series, ...]
    codes: Codes


@dataclass(frozen=True)
class Cells:
    """The cells of one set of factors: their `factors` (places), number `possible`, those seen with their counts."""

    factors: tuple[int, ...]
    possible: int
    seen: Codes
    counts: Codes


def read_factors(examples: pl.DataFrame, columns: Sequence[str]) -> Factors:
    """Read factors from columns, or from a column of named factors (a map of texts).

    Raises `UsageError` for a column that there is not, `DataRefused` where no factor has a value.
    """
    series: dict[str, pl.Series] = {}
    for column in columns:
        if column not in examples.columns:
            raise UsageError(
                f"examples has no column {column!r}{nearest(column, examples.columns)}",
                where=WHERE,
                expected=", ".join(examples.columns),
                remedy="name the factors' columns: factors: [shape, colour]",
            )
        series.update(_wide(examples, column))
    series = {name: values for name, values in series.items() if values.null_count() < len(values)}
    if not series:
        raise DataRefused(
            f"none of {len(examples):,} rows has a value of {', '.join(columns)}",
            where=WHERE,
            expected="at least one row with factors",
            remedy="name other columns, or drop this measure",
        )
    names = tuple(sorted(series))
    levels = tuple(series[name].drop_nulls().unique().sort() for name in names)
    codes = np.stack(
        [
            series[name]
            .replace_strict(level, np.arange(len(level)), default=-1, return_dtype=pl.Int64)
            .fill_null(-1)
            .to_numpy()
            for name, level in zip(names, levels, strict=True)
        ],
        axis=1,
    )
    return Factors(names, levels, codes.astype(np.int64))


def count_cells(found: Factors, r: int, rows: NDArray[np.bool_] | None = None) -> Iterator[Cells]:
    """Count the cells of each set of r factors: whole numbers, so that counts of parts add to those of the whole.

    Parameters
    ----------
    found : Factors
    r : int
        At most the number of factors.
    rows : numpy.ndarray of bool, optional
        Rows that count. A row without a value of one of the factors is in none of its cells.

    Raises
    ------
    UsageError
        For more than `MOST_SETS` sets, or more possible cells of one set than 2^62.
    """
    sets = comb(len(found.names), r)
    if sets > MOST_SETS:
        raise UsageError(
            f"{len(found.names)} factors have {sets:,} sets of {r}", where=WHERE, expected=f"at most {MOST_SETS:,}",
            remedy="name fewer factors, or smaller ways",
        )  # fmt: skip
    for chosen in combinations(range(len(found.names)), r):
        sizes = [len(found.levels[f]) for f in chosen]
        possible = int(np.prod([float(size) for size in sizes]))
        if possible > 2**62:
            raise UsageError(
                f"the factors {', '.join(found.names[f] for f in chosen)} have {possible:.1e} cells", where=WHERE,
                expected="fewer than 2^62", remedy="leave out factors with a value of its own for each row",
            )  # fmt: skip
        part = found.codes[:, chosen] if rows is None else found.codes[rows][:, chosen]
        part = part[(part >= 0).all(axis=1)]
        seen, counts = np.unique(_cell(part, sizes), return_counts=True)
        yield Cells(chosen, possible, seen, counts.astype(np.int64))


def missing_cells(found: Factors, cells: Cells, limit: int) -> list[tuple[str, ...]]:
    """Name the first `limit` cells of a set of factors that no row has, in the order of values.

    Looks at no more than `limit` cells beyond those seen, however many are possible.
    """
    end = min(cells.possible, limit + len(cells.seen))
    lacking = np.setdiff1d(np.arange(end), cells.seen[cells.seen < end], assume_unique=True)[:limit]
    names = []
    for factor in reversed(cells.factors):
        level = found.levels[factor]
        names.append([str(value) for value in level.gather(lacking % len(level)).to_list()])
        lacking = lacking // len(level)
    return list(zip(*reversed(names), strict=True))


def fewest_differences(train: Codes, other: Codes) -> Codes:
    """Return, for each row of `other`, in how many factors the nearest row of `train` differs (Hamming distance).

    Parameters
    ----------
    train, other : numpy.ndarray of int, shapes (n, m) and (k, m)

    Returns
    -------
    numpy.ndarray, shape (k,), int64
        From 0 to m. Two rows without a value agree in it.

    Notes
    -----
    Joins on each set of m - h factors for h = 0, 1, ... until every row has met one, so it is linear in the rows; at
    most 2^m joins, fewest where rows are near.
    """
    width = train.shape[1]
    if width > MOST_JOINED:
        raise UsageError(
            f"{width} factors", where=WHERE, expected=f"at most {MOST_JOINED} where nearest is asked for",
            remedy="name fewer factors",
        )  # fmt: skip
    known, ours = (pl.DataFrame(part, schema=[f"f{i}" for i in range(width)]).unique() for part in (train, other))
    answers = []
    for h in range(width):
        if ours.is_empty():
            break
        met = pl.repeat(False, len(ours), eager=True)
        for chosen in combinations(ours.columns, width - h):
            some = known.select(chosen).unique().with_columns(met=pl.lit(True))
            met |= ours.join(some, on=list(chosen), how="left", maintain_order="left")["met"].fill_null(False)
        answers.append(ours.filter(met).with_columns(h=pl.lit(h, pl.Int64)))
        ours = ours.filter(~met)
    answers.append(ours.with_columns(h=pl.lit(width, pl.Int64)))
    rows = pl.DataFrame(other, schema=[f"f{i}" for i in range(width)])
    joined = rows.join(pl.concat(answers), on=rows.columns, how="left", maintain_order="left")
    return joined["h"].to_numpy().astype(np.int64)


@register(
    "diversity",
    "factor_coverage",
    config=FactorCoverageConfig,
    needs=("examples.{factors}", "examples.{split}?"),
    cost=lambda rows, width: Cost(seconds=0.5 + rows * 4e-6, bytes=1e8 + rows * 400),
    source=SOURCE,
)
def factor_coverage(tables: Mapping[str, pl.DataFrame], config: FactorCoverageConfig, seed: int) -> Diversity:
    """Combinations of factor values that are seen of all that are possible, what is missing, what test adds to train.

    Returns for each r of `ways` ``factor_coverage_r`` (seen cells of all possible ones, over all sets of r factors),
    ``factor_entropy_r`` (mean of the sets, nats), ``factor_missing_r``; of each split but the training one
    ``factor_unseen_r``, the share of its cells that training rows do not have, and ``factor_rows_unseen_r``. `seed` is
    not used.
    """
    examples = tables["examples"].sort("example_id")
    found = read_factors(examples, config.factors)
    ways = [r for r in config.ways if r <= len(found.names)]
    if not ways:
        raise UsageError(
            f"ways {', '.join(map(str, config.ways))} of {len(found.names)} factors ({', '.join(found.names)})",
            where=WHERE,
            expected="sets of no more factors than there are",
        )
    whole = {r: list(count_cells(found, r)) for r in ways}
    n = len(examples)
    statistics = [s for r in ways for s in _seen("all", whole[r], r, n)]
    warnings = []
    if len(ways) < len(config.ways):
        beyond = ", ".join(str(r) for r in config.ways if r not in ways)
        warnings.append(f"cells of {beyond} factors were left out: there are {len(found.names)}")
    lacking = (found.codes < 0).any(axis=1)
    if lacking.any():
        warnings.append(f"{int(lacking.sum()):,} of {n:,} rows lack a factor and are in none of its cells")
    groups = _groups(examples, config)
    train = groups.pop(config.train, None)
    if train is None and config.nearest:
        raise UsageError(
            f"nearest needs training rows, and none has {config.split} = {config.train!r}",
            where=WHERE,
            expected="a column split that names them",
            remedy="name it with split: and its value with train:",
        )
    away = np.full(n, -1, dtype=np.int64)
    if train is not None:
        name = f"{config.split}={config.train}"
        ours = {r: list(count_cells(found, r, train)) for r in ways}
        statistics += [s for r in ways for s in _seen(name, ours[r], r, int(train.sum()))]
        for value, rows in groups.items():
            subset = f"{config.split}={value}"
            statistics += [s for r in ways for s in _unseen(found, ours[r], r, rows, subset, name)]
            if config.nearest:
                away[rows] = fewest_differences(found.codes[train], found.codes[rows])
                mean = float(away[rows].mean())  # of whole numbers
                statistics.append(Statistic(subset, "factor_differences_mean", mean, int(rows.sum()), reference=name))
    top = ways[-1]
    parameters = {**config.model_dump(), "names": list(found.names), "levels": [len(level) for level in found.levels]}
    pictures = {
        "sets": Picture(
            "Share of the cells of each set of factors that rows have.", lambda: _draw_sets(found, whole[top])
        )
    }
    pair = min(whole.get(2, ()), key=lambda cells: (len(cells.seen) / cells.possible, cells.factors), default=None)
    if pair is not None and max(len(found.levels[f]) for f in pair.factors) <= GRID:
        pictures["grid"] = Picture(
            "Rows in each cell of the two factors that are covered least: a nought is a missing cell.",
            partial(_draw_grid, found, pair),
        )
    return Diversity(
        method="factor_coverage",
        statistics=statistics_table(statistics, parameters),
        table=_table(examples["example_id"], away),
        main=f"factor_coverage_{top}",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures=pictures,
        tables=tuple(_listed(found, whole[r], r) for r in ways),
    )


def _wide(examples: pl.DataFrame, column: str) -> dict[str, pl.Series]:
    """Return a column as factors: a map or struct gives one of each of its names."""
    values = examples[column]
    if isinstance(values.dtype, pl.Struct):
        return {
            name: part.cast(pl.String) for name, part in zip(values.struct.fields, values.struct.unnest(), strict=True)
        }
    if values.dtype.is_nested():
        try:
            pairs = values.cast(pl.List(pl.Struct({"key": pl.String, "value": pl.String})))
        except pl.exceptions.PolarsError:
            raise UsageError(
                f"column {column!r} holds {values.dtype}",
                where=WHERE,
                expected="single values, or named factors (a map)",
            ) from None
        long = (
            pl.DataFrame({"row": np.arange(len(values)), "pair": pairs}).drop_nulls().explode("pair").drop_nulls("pair")
        )
        long = long.filter(pl.col("pair").struct.field("key").is_not_null()).unnest("pair")
        if long.is_empty():
            return {}
        wide = long.group_by("row", "key").agg(pl.col("value").first()).pivot("key", index="row", values="value")
        wide = pl.DataFrame({"row": np.arange(len(values))}).join(wide, on="row", how="left", maintain_order="left")
        return {name: wide[name] for name in wide.columns if name != "row"}
    return {column: values.cast(pl.String)}


def _cell(codes: Codes, sizes: Sequence[int]) -> Codes:
    cell = np.zeros(len(codes), dtype=np.int64)
    for i, size in enumerate(sizes):
        cell = cell * size + codes[:, i]
    return cell


def _groups(examples: pl.DataFrame, config: FactorCoverageConfig) -> dict[str, NDArray[np.bool_]]:
    """Return the rows of each value of the split column; none where there is no training row."""
    if config.split not in examples.columns:
        if config.split != "split":
            raise UsageError(
                f"examples has no column {config.split!r}{nearest(config.split, examples.columns)}",
                where=WHERE,
                expected=", ".join(examples.columns),
            )
        return {}
    column = examples[config.split].cast(pl.String)
    values = column.drop_nulls().unique().sort().to_list()
    if config.train not in values:
        if config.split == "split":
            return {}
        raise DataRefused(
            f"no row has {config.split} = {config.train!r}", where=WHERE, expected=", ".join(map(repr, values[:10]))
        )
    return {value: (column == value).fill_null(False).to_numpy() for value in values}


def _seen(subset: str, sets: Sequence[Cells], r: int, n: int, whole: Sequence[Cells] | None = None) -> list[Statistic]:
    possible = sum(cells.possible for cells in sets)
    seen = sum(len(cells.seen) for cells in sets)
    entropy = ordered_sum([occupancy_entropy(cells.counts) for cells in sets]) / len(sets)
    return [
        Statistic(subset, f"factor_coverage_{r}", seen / possible, n),
        Statistic(subset, f"factor_missing_{r}", float(possible - seen), n),
        Statistic(subset, f"factor_entropy_{r}", entropy, n),
        Statistic(subset, f"factor_fully_covered_{r}", sum(len(c.seen) == c.possible for c in sets) / len(sets), n),
    ]


def _unseen(
    found: Factors, train: Sequence[Cells], r: int, rows: NDArray[np.bool_], subset: str, reference: str
) -> list[Statistic]:
    """Cells of some rows that no training row has: Lanus and others' set difference, and the rows that hold one."""
    cells = unseen = 0
    new = np.zeros(int(rows.sum()), dtype=bool)
    for known, own in zip(train, count_cells(found, r, rows), strict=True):
        lacking = np.setdiff1d(own.seen, known.seen, assume_unique=True)
        cells, unseen = cells + len(own.seen), unseen + len(lacking)
        part = found.codes[rows][:, own.factors]
        code = np.where((part >= 0).all(axis=1), _cell(part, [len(found.levels[f]) for f in own.factors]), -1)
        new |= np.isin(code, lacking)
    share = wilson(int(new.sum()), len(new))
    return [
        Statistic(subset, f"factor_unseen_{r}", unseen / cells if cells else 0.0, cells, reference=reference),
        Statistic(subset, f"factor_rows_unseen_{r}", float(new.mean()), len(new), share.low, share.high, reference),
    ]


def _listed(found: Factors, sets: Sequence[Cells], r: int) -> SummaryTable:
    rows: list[tuple[str, str]] = []
    total = sum(cells.possible - len(cells.seen) for cells in sets)
    for cells in sorted(sets, key=lambda c: (len(c.seen) / c.possible, c.factors)):
        if len(rows) >= SHOWN:
            break
        names = " × ".join(found.names[f] for f in cells.factors)
        rows += [(names, " × ".join(cell)) for cell in missing_cells(found, cells, SHOWN - len(rows))]
    left = total - len(rows)
    note = f"{left:,} more are missing" if left else "" if rows else "none is missing"
    return SummaryTable(
        f"Missing cells of {r} factor{'s' if r > 1 else ''}", ("factors", "values"), tuple(rows), note=note
    )


def _table(ids: pl.Series, away: Codes) -> pl.DataFrame:
    """Return how many factors away each row is that was asked."""
    rows = pl.DataFrame({"example_id": ids, "value": away}).filter(pl.col("value") >= 0)
    rows = rows.with_columns(method=pl.lit("factor_coverage"))
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in polars_schema("diversity").items()
    )


def _draw_sets(found: Factors, sets: Sequence[Cells]) -> object:
    from gradatim.tasks.core.charts import bars, heatmap

    share = [len(cells.seen) / cells.possible for cells in sets]
    if len(sets[0].factors) == 2 and len(found.names) > 2:
        both = [(a, b, s) for (a, b), s in zip([c.factors for c in sets], share, strict=True)]
        rows = [
            (found.names[a], found.names[b], s)
            for a, b, s in [*both, *((b, a, s) for a, b, s in both), *((f, f, 1.0) for f in range(len(found.names)))]
        ]
        frame = pl.DataFrame(rows, schema=["factor", "with", "seen"], orient="row")
        order = {name: i for i, name in enumerate(found.names)}
        frame = frame.sort(pl.col("factor").replace_strict(order), pl.col("with").replace_strict(order))
        return heatmap(
            frame, x="factor", y="with", value="seen", title="Share of the cells of two factors that are seen"
        )
    names = [" × ".join(found.names[f] for f in cells.factors) for cells in sets]
    frame = pl.DataFrame({"factors": names, "seen": share}).sort("seen", "factors")
    return bars(frame, x="factors", y="seen", title="Share of the cells that are seen, least first")


def _draw_grid(found: Factors, cells: Cells) -> object:
    from gradatim.tasks.core.charts import heatmap

    a, b = cells.factors
    counts = np.zeros(cells.possible, dtype=np.int64)
    counts[cells.seen] = cells.counts
    width = len(found.levels[b])
    frame = pl.DataFrame(
        {
            found.names[a]: found.levels[a].gather(np.arange(cells.possible) // width),
            found.names[b]: found.levels[b].gather(np.arange(cells.possible) % width),
            "rows": counts,
        }
    )
    return heatmap(
        frame, x=found.names[a], y=found.names[b], value="rows", title=f"{found.names[a]} by {found.names[b]}"
    )

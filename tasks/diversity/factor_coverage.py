"""Coverage of combinations of factors: which cells of values are seen, which are missing, what test adds to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core.clusters import occupancy_entropy
from gradatim.tasks.core.factor_cells import (
    Cells,
    Codes,
    Factors,
    cell_numbers,
    count_cells,
    fewest_differences,
    missing_cells,
    read_factors,
)
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
SHOWN = 200
"""Missing cells that a summary lists."""
GRID = 60
"""Values of a factor up to which a grid is drawn."""


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
        code = np.where((part >= 0).all(axis=1), cell_numbers(part, [len(found.levels[f]) for f in own.factors]), -1)
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

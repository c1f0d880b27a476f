"""Diversity shift and correlation shift between environments (OoD-Bench): exact for categories, else by densities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.ood_shift import SOURCE, Formula, exact_shift
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.environment_vectors import placed_vectors
from gradatim.tasks.diversity.environments import (
    EnvironmentConfig,
    as_text,
    codes,
    comparison_table,
    environments_of,
    largest,
)
from gradatim.tasks.diversity.ood_densities import EPS_COR, EPS_DIV, density_shift
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import plane_picture
from gradatim.tasks.diversity.vectors import OnVectors

MEASURES = ("diversity_shift", "correlation_shift")
MOST_CELLS = 20_000_000
Integers = NDArray[np.int64]


class OodBenchConfig(EnvironmentConfig, OnVectors):
    """Settings of `ood_bench`."""

    label: str = Field("output", description="column of examples with the labels")
    categories: tuple[str, ...] = Field((), description="columns whose combination is the feature: exact, no vectors")
    features: str = Field("", description="name of a features table; the only one there is, if not named")
    column: str = Field("input", description="without features: a column of texts, whose words are hashed")
    formula: Formula = Field("hellinger", description="hellinger (whose sum is the squared distance), or original")
    rows: int = Field(4_000, ge=50, description="rows a side behind the densities, chosen by hash anew each time")
    points: int = Field(4_000, ge=100, description="points at which the densities are compared")
    repeats: int = Field(10, ge=1, description="times that rows, projection and points are drawn")
    calibrate: bool | None = Field(
        None, description="choose both thresholds so that random halves score .005 to .01; by default with hellinger"
    )
    eps_div: float = Field(EPS_DIV, gt=0, description="density below which there is nothing, without calibration")
    eps_cor: float = Field(EPS_COR, gt=0, description="density above which both have rows, without calibration")


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=15 + rows * 2e-6, bytes=6e8 + rows * 200)


@register(
    "diversity",
    "ood_bench",
    config=OodBenchConfig,
    needs=(
        "examples.{environment}",
        "examples.{label}",
        "examples.{categories}",
        "features_{features}.embedding",
        "examples.{column}?",
    ),
    cost=_cost,
    source=SOURCE,
)
def ood_bench(tables: Mapping[str, pl.DataFrame], config: OodBenchConfig, seed: int) -> Diversity:
    """Diversity shift (features that one side alone has) and correlation shift (labels of equal features differ).

    For each comparison ``diversity_shift`` and ``correlation_shift``. With `categories` by exact sums, with the same
    numbers of two random halves of both sides as ``..._halves``. Otherwise by kernel densities of vectors, projected to
    eight dimensions by a small network where they have more: the mean of several draws with its interval, the spread
    of draws as ``..._sd``, and the thresholds ``eps_div`` and ``eps_cor``.
    """
    where = "diversity ood_bench"
    statistics: list[Statistic] = []
    if config.categories:
        warnings, n, mode = _exact(tables, config, seed, where, statistics)
    else:
        warnings, n, mode = _by_density(tables, config, seed, where, statistics)
    parameters = {**config.model_dump(mode="json"), "mode": mode, "seed": seed}
    table = statistics_table([*largest(statistics, MEASURES, n), *statistics], parameters)
    shown = list(dict.fromkeys(row.metric for row in statistics))
    return Diversity(
        method="ood_bench",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="diversity_shift",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "plane": Picture(
                "Each comparison by its diversity shift and its correlation shift",
                lambda: plane_picture(table, "diversity_shift", "correlation_shift", "Two kinds of shift"),
            )
        },
        tables=(comparison_table("Diversity and correlation shift", table, shown),),
    )


Mode = Literal["exact", "densities of features", "densities of hashed words"]


def _exact(
    tables: Mapping[str, pl.DataFrame], config: OodBenchConfig, seed: int, where: str, statistics: list[Statistic]
) -> tuple[list[str], int, str]:
    found, examples = environments_of(tables, config, where), tables["examples"]
    parts = {f"z{i}": as_text(examples, name, where) for i, name in enumerate(config.categories)}
    rows = pl.DataFrame(
        {
            "id": examples["example_id"].cast(pl.String),
            "environment": codes(as_text(examples, config.environment, where), found.names),
            "y": as_text(examples, config.label, where),
            **parts,
        }
    ).filter(pl.col("environment") >= 0)
    known = rows.drop_nulls()
    present = set(known["environment"].unique().to_list())
    empty = [name for i, name in enumerate(found.names) if i not in present]
    if empty:
        raise DataRefused(
            f"no example of {config.environment}={empty[0]} has both a label and the categories",
            where=where,
            expected="rows of each environment",
        )
    known = known.with_columns(
        z=_numbered(known.select(list(parts))),
        label=_numbered(known.select("y")),
        half=pl.Series((uniform(known["id"], seed, "ood bench half") < 0.5).astype(np.int32)),
    )
    for pair in found.pairs:
        left, right = (pl.col("environment").is_in(side) for side in (pair.left, pair.right))
        both = known.with_columns(side=pl.when(left).then(1).when(right).then(0)).drop_nulls("side")
        for ending, by in (("", "side"), ("_halves", "half")):
            counts = _counts(both, by)
            if counts is None:
                continue
            shift = exact_shift(*counts, config.formula)
            statistics += [
                Statistic(pair.subset, name + ending, value, len(both), reference=pair.reference)
                for name, value in zip(MEASURES, (shift.diversity, shift.correlation), strict=True)
            ]
    lost = len(rows) - len(known)
    warnings = [*found.warnings]
    if lost:
        warnings.append(f"{lost:,} rows have no label or category and were left out")
    return warnings, len(known), "exact"


def _numbered(rows: pl.DataFrame) -> pl.Series:
    """Number the distinct rows in sorted order, from 0."""
    different = rows.unique().sort(rows.columns).with_row_index("number")
    return rows.join(different, on=rows.columns, how="left", maintain_order="left")["number"].cast(pl.Int64)


def _counts(both: pl.DataFrame, by: str) -> tuple[Integers, Integers] | None:
    """Count rows of each category and label in both sides; None where a side is empty."""
    cells = both.group_by("z", "label").agg(one=(pl.col(by) == 1).sum(), other=(pl.col(by) == 0).sum())
    if not cells["one"].sum() or not cells["other"].sum():
        return None
    place = cells["z"].rank("dense").to_numpy() - 1, cells["label"].rank("dense").to_numpy() - 1
    shape = tuple(int(part.max()) + 1 for part in place)
    if shape[0] * shape[1] > MOST_CELLS:
        raise UsageError(
            f"{shape[0]:,} categories and {shape[1]:,} labels make too many combinations",
            where="diversity ood_bench",
            expected=f"at most {MOST_CELLS:,}",
            remedy="name columns of fewer values",
        )
    sides = []
    for name in ("one", "other"):
        counts = np.zeros(shape, dtype=np.int64)
        counts[place] = cells[name].to_numpy()
        sides.append(counts)
    return sides[0], sides[1]


def _by_density(
    tables: Mapping[str, pl.DataFrame], config: OodBenchConfig, seed: int, where: str, statistics: list[Statistic]
) -> tuple[list[str], int, str]:
    placed = placed_vectors(
        tables, config, where, features=config.features, column=config.column,
        label=config.label, together="", seed=seed,
    )  # fmt: skip
    warnings = list(placed.warnings)
    calibrate = config.formula == "hellinger" if config.calibrate is None else config.calibrate
    for pair in placed.environments.pairs:
        sides = [rows[placed.label[rows] >= 0] for rows in (placed.rows(pair.left), placed.rows(pair.right))]
        found = density_shift(
            placed.matrix, placed.label, placed.ids, sides, formula=config.formula, rows=config.rows,
            points=config.points, repeats=config.repeats, calibrate=calibrate,
            eps=(config.eps_div, config.eps_cor), seed=seed,
        )  # fmt: skip
        n = sum(map(len, sides))
        if found is None:
            warnings.append(
                f"{pair.subset} / {pair.reference} has too few rows on a side, or vectors with nothing to tell"
            )
            values: dict[str, Any] = dict.fromkeys(MEASURES, (None, None, None))
        else:
            values, notes = found
            warnings += [f"{pair.subset} / {pair.reference}: {note}" for note in notes]
        statistics += [
            Statistic(pair.subset, name, value, n, low, high, reference=pair.reference)
            for name, (value, low, high) in values.items()
        ]
    return warnings, len(placed.ids), f"densities of {placed.kind}"

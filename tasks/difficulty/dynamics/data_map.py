"""The data map: confidence against variability, and its easy, ambiguous and hard regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.charts_data_map import draw_map, map_cells
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.dynamics.result import parameters
from gradatim.tasks.difficulty.dynamics.table import RIGHT, Cells
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, Window, check_numbers

CAPTION = (
    "Data map: easy examples lie at the top left, hard ones at the bottom left, ambiguous ones to the right. Size: "
    "examples in the cell; colour: share of right epochs."
)


class MapConfig(DynamicsConfig):
    """Settings of the measures that draw a data map."""

    share: float = Field(0.33, gt=0, le=1, description="share of the examples in each region of the data map")


@dataclass(frozen=True)
class Regions:
    """Cut-offs of the regions of a data map.

    Attributes
    ----------
    rows : int
        Examples asked for in each: the whole part of share x n, at least one.
    hard, easy : float
        Highest confidence of the `rows` least confident examples, lowest of the most confident.
    ambiguous : float
        Lowest variability of the `rows` most variable ones.
    is_hard, is_ambiguous, is_easy : numpy.ndarray of bool, shape (n,)
        Examples on this side of the cut-off, ties at it included. Regions overlap: much that is ambiguous is hard too.
    """

    rows: int
    hard: float
    ambiguous: float
    easy: float
    is_hard: NDArray[np.bool_]
    is_ambiguous: NDArray[np.bool_]
    is_easy: NDArray[np.bool_]


def regions(confidence: ArrayLike, variability: ArrayLike, share: float = 0.33) -> Regions:
    """Find the regions of a data map.

    Parameters
    ----------
    confidence, variability : array-like of float, shape (n,)
    share : float
        Share of the examples in each region, in (0, 1].

    Raises
    ------
    UsageError
        If the lengths differ or `share` is not in (0, 1].
    DataRefused
        If there is no example, or a number is not finite.

    Notes
    -----
    O(n). Source: S. Swayamdipta et al. (2020). Dataset cartography: mapping and diagnosing datasets with training
    dynamics.
    """
    try:
        c, v = np.asarray(confidence, dtype=np.float64), np.asarray(variability, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error), where="regions", expected="two rows of numbers") from None
    if c.shape != v.shape or c.ndim != 1 or not 0 < share <= 1:
        raise UsageError(
            f"confidence of shape {c.shape}, variability of shape {v.shape}, share {share}",
            where="regions",
            expected="two rows of numbers of equal length and a share in (0, 1]",
        )
    if not len(c) or not np.isfinite(c).all() or not np.isfinite(v).all():
        raise DataRefused(
            "a confidence or variability is not finite" if len(c) else "there is no example", where="regions"
        )
    n, rows = len(c), max(1, int(share * len(c)))
    hard = float(np.partition(c, rows - 1)[rows - 1])
    easy = float(np.partition(c, n - rows)[n - rows])
    ambiguous = float(np.partition(v, n - rows)[n - rows])
    return Regions(rows, hard, ambiguous, easy, c <= hard, v >= ambiguous, c >= easy)


def with_correct(chosen: Window) -> Mapping[str, pl.Expr]:
    """Return what `reduce` shall count for the map's colour, where the table says what was right."""
    there = "correct" in chosen.rows.collect_schema().names()
    check_numbers(chosen.rows, ("correct",), "dynamics")
    return {"right": RIGHT} if there else {}


def data_map(cells: Cells, config: MapConfig, name: str) -> dict[str, Any]:
    """Return `pictures` and `statistics` of the measure `name`, whose cells hold gold probabilities."""
    confidence, _ = cells.over_runs(cells.mean)
    variability, _ = cells.over_runs(np.sqrt(cells.variance))
    right = cells.total(cells.marks["right"][:, 0]) / cells.total(cells.n) if "right" in cells.marks else None
    found = regions(confidence, variability, config.share)
    cuts = {"hard": found.hard, "ambiguous": found.ambiguous, "easy": found.easy}
    rows = [
        Statistic("all", "mean confidence", float(confidence.mean()), len(confidence)),
        Statistic("all", "mean variability", float(variability.mean()), len(confidence)),
        Statistic("all", "spearman of confidence and variability", _spearman(confidence, variability), len(confidence)),
        Statistic("region=hard", "highest confidence", found.hard, int(found.is_hard.sum())),
        Statistic("region=ambiguous", "lowest variability", found.ambiguous, int(found.is_ambiguous.sum())),
        Statistic("region=easy", "lowest confidence", found.easy, int(found.is_easy.sum())),
    ]
    counted = map_cells(confidence, variability, right)
    return {
        "statistics": statistics_table(rows, parameters(name, config)),
        "pictures": {"data_map": Picture(CAPTION, partial(draw_map, counted, cuts, config.share))},
    }


def _spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Rank correlation, ranks taken after rounding to 1e-9; None without variance."""
    ranks = pl.DataFrame({"a": first, "b": second}).select(pl.all().round(9).rank()).to_numpy()
    centred = ranks - (len(ranks) + 1) / 2
    spread = (centred**2).sum(axis=0)
    if not spread.all():
        return None
    return round(float(np.prod(centred, axis=1).sum() / np.sqrt(spread.prod())), 9)

"""Cells of the evaluation table: the mean score of a slice, a gap, the worst group, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.intervals import FEW_CLUSTERS, Arm, Interval, bootstrap, wilson
from gradatim.tasks.core.reduce import group_sums

ID, OOD = "test", "test_ood"
WORST_OF = 10
"""The worst group is sought among groups of at least this many rows, unless all are smaller."""


@dataclass(frozen=True)
class Settings:
    """How intervals are made."""

    resamples: int
    seed: int
    clusters: str


@dataclass(frozen=True)
class Cell:
    """One cell: a value of one run (or of all runs) on one slice."""

    axis: str
    slice: str
    metric: str
    interval: Interval
    n: int


def arm(frames: Sequence[pl.DataFrame], slices: Sequence[pl.Expr], clusters: int | None = None) -> Arm:
    """Sum scores and count rows by run, cluster and slice.

    Parameters
    ----------
    frames : sequence of polars.DataFrame
        One a run, with columns code (of the cluster) and score.
    slices : sequence of polars.Expr
        Conditions on rows, one a quantity.
    clusters : int, optional
        Number of clusters, where codes stand for the same ones in other arms; by default those in the frames count.

    Returns
    -------
    (sums, counts)
        Each of shape (runs, clusters, slices), float64.
    """
    codes = [frame["code"].to_numpy().astype(np.int64) for frame in frames]
    if clusters is None:
        present, inverse = np.unique(np.concatenate(codes), return_inverse=True)
        clusters, codes = len(present), np.split(inverse, np.cumsum([len(c) for c in codes])[:-1])
    shape = (len(frames), clusters, len(slices))
    sums, counts = np.zeros(shape), np.zeros(shape)
    for run, frame in enumerate(frames):
        held = frame.select(condition.alias(str(number)) for number, condition in enumerate(slices))
        for number in range(len(slices)):
            part: NDArray[np.bool_] = held[str(number)].fill_null(False).to_numpy()
            sums[run, :, number] = group_sums(codes[run][part], frame["score"].to_numpy()[part], clusters)
            counts[run, :, number] = np.bincount(codes[run][part], minlength=clusters)
    return sums, counts


def mean_interval(frames: Sequence[pl.DataFrame], condition: pl.Expr, settings: Settings) -> tuple[Interval, int]:
    """Return the mean score of a slice and its rows: Wilson for independent 0/1 rows of one run, else the bootstrap."""
    sums, counts = arm([frame.filter(condition) for frame in frames], [pl.col("score").is_not_null()])
    rows = int(counts.sum())
    binary = bool(((sums == 0) | (sums == 1)).all())
    if rows and len(frames) == 1 and binary and bool((counts <= 1).all()):
        return wilson(float(sums.sum()), rows), rows
    found = bootstrap([(sums, counts)], [1.0], resamples=settings.resamples, seed=settings.seed)
    return named(found, settings), rows


def gap_interval(frames: Sequence[pl.DataFrame], settings: Settings) -> tuple[Interval, int]:
    """Return the gap, mean score of test less that of test_ood, and its rows."""
    sums, counts = arm(frames, [pl.col("split") == ID, pl.col("split") == OOD])
    found = bootstrap([(sums, counts)], [1.0, -1.0], resamples=settings.resamples, seed=settings.seed)
    return named(found, settings), int(counts.sum())


def cells(
    frames: Sequence[pl.DataFrame], axes: Sequence[str], metric: str, settings: Settings, *, worst: bool = True
) -> Iterable[Cell]:
    """Yield the cells of one run, or of several runs pooled: splits, slices within splits, worst groups and the gap."""
    splits = _values(frames, "split")
    for split in splits:
        yield Cell("split", split, metric, *mean_interval(frames, pl.col("split") == split, settings))
    if ID in splits and OOD in splits:
        gap, rows = gap_interval(frames, settings)
        yield Cell("gap", f"{ID} - {OOD}", "gap", gap, rows)
    for axis in axes:
        for split in splits:
            inside = [frame.filter(pl.col("split") == split) for frame in frames]
            found = []
            for value in _values(inside, axis):
                interval, rows = mean_interval(inside, pl.col(axis) == value, settings)
                found.append(Cell(axis, f"{split}/{value}", metric, interval, rows))
            yield from found
            large = [cell for cell in found if cell.n >= WORST_OF * len(frames)] or found
            if worst and split in (ID, OOD) and axis != "bin" and len(large) > 1:
                lowest = min(large, key=lambda cell: (cell.interval.value, cell.slice))
                yield Cell(f"worst_{axis}", lowest.slice, metric, lowest.interval, lowest.n)


def named(interval: Interval, settings: Settings) -> Interval:
    """Say in the method what was resampled."""
    few = "; few clusters" if interval.n < FEW_CLUSTERS else ""
    text = f"{interval.method}, {interval.n:,} clusters of {settings.clusters}, {settings.resamples:,} resamples{few}"
    if interval.method.startswith(("none", "wilson")):
        text = interval.method
    return Interval(interval.value, interval.low, interval.high, interval.n, text, interval.p)


def _values(frames: Sequence[pl.DataFrame], column: str) -> list[Any]:
    found = pl.concat([frame[column] for frame in frames]).drop_nulls().unique().sort()
    return found.to_list()

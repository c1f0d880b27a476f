"""AUM: the area under the margin, which tells mislabelled examples from hard ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.dynamics.result import NEEDS, PLEISS, cost, finish, parameters
from gradatim.tasks.difficulty.dynamics.table import Cells, column, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, window
from gradatim.tasks.difficulty.result import Difficulty

MARGIN = column("margin")
SUSPECT = "likely mislabelled (AUM)"
FAKE = "threshold sample: trained with the label of a class that there is not"
DOUBTFUL = (
    "more than half of the labels are doubted: were the threshold samples trained with the label of a class that there "
    "is not?"
)


class AumConfig(DynamicsConfig):
    """Settings of `aum`."""

    threshold: tuple[str, ...] = Field(
        (), description="true/false column of the examples that marks threshold samples; one for all runs, or one a run"
    )
    quantile: float = Field(
        0.99, gt=0, lt=1, description="quantile of the threshold samples' AUM below which a label is doubted"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_or_several(cls, found: object) -> object:
        if isinstance(found, dict) and isinstance(found.get("threshold"), str):
            return {**found, "threshold": (found["threshold"],)}
        return found


@register(
    "difficulty",
    "aum",
    config=AumConfig,
    needs=(*NEEDS, "dynamics.margin", "examples.{threshold}"),
    cost=cost,
    source=PLEISS,
)
def run(tables: Mapping[str, pl.DataFrame], config: AumConfig, seed: int = 0) -> Difficulty:
    """Mean margin over training; low is hard, and lower than a class that there is not is likely mislabelled.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, margin in logits; run_id where there are several runs); ``examples`` with the
        column `config.threshold`, where threshold samples were trained, see `threshold_samples`.
    config : AumConfig
        Several columns of `threshold` belong to the runs in the order of `runs`, or of their names.
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        raw is the AUM, averaged over runs, value its negative. With threshold samples, each run's cut-off is a quantile
        of theirs (`statistics`); examples whose AUM less the cut-off, averaged over runs, is negative are flagged; an
        example that was a threshold sample in every run is excluded, in some runs takes the others.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_window.window` and `dynamics_table.reduce`; for a column that is not there, holds no truths, or
        marks no example of a run.

    Notes
    -----
    Linear in the rows, one streaming pass. The margin in the dynamics of a threshold sample is that of its fake label.
    """
    where = "difficulty aum"
    cells = reduce(window(tables, config, MARGIN.columns, where), MARGIN, tables, where)
    if not config.threshold:
        area, error = cells.over_runs(cells.mean, standard_error(cells))
        return _result(cells, config, area, error, -cells.mean, seed)
    fake = _fake(cells, config, tables, where)
    cuts = _cuts(cells, fake, config, where)
    real = (~fake).astype(np.float64)
    runs = cells.total(real)
    keep = runs > 0
    if not keep.any():
        raise DataRefused(
            "every example is a threshold sample",
            where=f"{where}: threshold",
            expected="about one in C + 1, with C classes",
            remedy="mark the examples that gradatim.tasks.difficulty.aum.threshold_samples chose",
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        area = cells.total(real * cells.mean) / runs
        lead = cells.total(real * (cells.mean - cuts[cells.run])) / runs
        spread = cells.total(real * (cells.mean - np.where(keep, area, 0.0)[cells.item]) ** 2)
        alone = cells.total(real * np.nan_to_num(standard_error(cells), nan=0.0))
        error = np.where(runs > 1, np.sqrt(spread / (runs - 1) / runs), np.where(alone > 0, alone, np.nan))
    area = np.where(keep, area, 0.0)
    doubted = keep & (lead < 0)
    rows = [
        Statistic(f"run={name}", "AUM cut-off", float(cut), int((fake & (cells.run == place)).sum()))
        for place, (name, cut) in enumerate(zip(cells.window.runs, cuts, strict=True))
    ]
    rows.append(Statistic("all", "share likely mislabelled", float(doubted[keep].mean()), int(keep.sum())))
    return _result(
        cells,
        config,
        area,
        error,
        np.where(fake, np.nan, -cells.mean),
        seed,
        flags=[(doubted, SUSPECT)],
        keep=keep,
        gone=FAKE,
        notes={
            "threshold samples": int((cells.total(fake) > 0).sum()),
            "likely mislabelled": int(doubted.sum()),
        },
        warnings=[DOUBTFUL] if 2 * doubted.sum() > keep.sum() else [],
        statistics=statistics_table(rows, parameters("aum", config)),
    )


def threshold_samples(
    ids: pl.Series | Sequence[str], labels: pl.Series | Sequence[object], seed: int = 0, *, part: int = 0
) -> pl.DataFrame:
    """Choose threshold samples: examples to train with the label of one class more than there are.

    Parameters
    ----------
    ids : sequence of str, length n
        Unique.
    labels : sequence, length n
        Classes; C different ones.
    seed : int
    part : int
        0 for the first run; 1 for a second one, whose samples are others, so that each example is judged in one run.

    Returns
    -------
    polars.DataFrame
        example_id, threshold (bool): n // (C + 1) examples are true, at least one; sorted by example_id. They are those
        with the smallest hashes of (seed, id), so neither the order of rows nor the machine matters.

    Raises
    ------
    UsageError
        If the lengths differ, an id stands twice, or there are not enough examples for this part.

    Notes
    -----
    O(n log n). Source: G. Pleiss et al. (2020). Identifying mislabeled data using the area under the margin ranking.
    """
    names, classes = pl.Series(ids, strict=False).cast(pl.String), pl.Series(labels, strict=False)
    n = len(names)
    if len(classes) != n or names.n_unique() != n or names.null_count() or not n:
        raise UsageError(
            f"{n} ids, {names.n_unique()} of them different, came with {len(classes)} labels",
            where="threshold_samples",
            expected="unique ids and a label for each",
        )
    size = max(1, n // (classes.n_unique() + 1))
    if part < 0 or (part + 1) * size > n:
        raise UsageError(
            f"part {part} of {size} threshold samples each, of {n} examples",
            where="threshold_samples",
            expected=f"a part from 0 to {n // size - 1}",
        )
    frame = pl.DataFrame({"example_id": names, "hash": uniform(names, seed, "difficulty.aum.threshold")})
    place = pl.int_range(pl.len())
    return (
        frame.sort("hash", "example_id")
        .select("example_id", threshold=(place >= part * size) & (place < (part + 1) * size))
        .sort("example_id")
    )


def _fake(cells: Cells, config: AumConfig, tables: Mapping[str, pl.DataFrame], where: str) -> NDArray[np.bool_]:
    """Mark the cells of threshold samples: shape (M,)."""
    runs, given = cells.window.runs, config.threshold
    if len(given) not in (1, len(runs)):
        raise UsageError(
            f"{len(given)} columns of threshold samples for {len(runs)} runs",
            where=f"{where}: threshold",
            expected="one column, or one a run",
        )
    if "examples" not in tables:
        raise UsageError("threshold samples are marked in the examples, which are not here", where=where)
    examples = tables["examples"].lazy()
    schema = examples.collect_schema()
    for name in given:
        if name not in schema:
            raise UsageError(
                f"the examples have no column {name!r}{nearest(name, schema.names())}",
                where=f"{where}: threshold",
                expected="one of " + ", ".join(schema.names()),
                remedy="mark the examples that gradatim.tasks.difficulty.aum.threshold_samples chose",
            )
        if schema[name] != pl.Boolean:
            raise UsageError(
                f"the column {name!r} is of type {schema[name]}", where=f"{where}: threshold", expected="true or false"
            )
    marks = examples.select(pl.col("example_id").cast(pl.String), *dict.fromkeys(given)).collect()
    joined = cells.ids.to_frame("example_id").join(marks, on="example_id", how="left", maintain_order="left")
    matrix = np.stack([joined[name].fill_null(False).to_numpy() for name in given], axis=1)
    column_of = np.zeros(len(runs), dtype=np.int64)
    if len(given) > 1:
        order = config.runs or runs
        column_of = np.array([order.index(name) for name in runs], dtype=np.int64)
    found: NDArray[np.bool_] = matrix[cells.item, column_of[cells.run]]
    return found


def _cuts(cells: Cells, fake: NDArray[np.bool_], config: AumConfig, where: str) -> NDArray[np.float64]:
    """Each run's cut-off: shape (runs,)."""
    cuts = np.empty(len(cells.window.runs))
    for place, name in enumerate(cells.window.runs):
        theirs = cells.mean[fake & (cells.run == place)]
        if not len(theirs):
            raise DataRefused(
                f"no example of the run {name!r} is marked as a threshold sample",
                where=f"{where}: threshold",
                expected="the examples that were trained with the label of a class that there is not",
            )
        cuts[place] = np.quantile(theirs, config.quantile)
    return cuts


def _result(
    cells: Cells,
    config: AumConfig,
    area: NDArray[np.float64],
    error: NDArray[np.float64],
    by_run: NDArray[np.float64],
    seed: int,
    **rest: object,
) -> Difficulty:
    return finish(
        cells,
        config,
        name="aum",
        title="AUM",
        scale="logits",
        value=-area,
        raw=area,
        error=error,
        by_run=by_run,
        seed=seed,
        source=PLEISS,
        **rest,  # type: ignore[arg-type]
    )

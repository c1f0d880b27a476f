"""Train sets against evaluated sets: how far what is learnt from one data set reaches into the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.intervals import RESAMPLES, Interval, bootstrap
from gradatim.tasks.evaluation.by_fold import fold_scores
from gradatim.tasks.evaluation.cells import Cell, Settings, arm, mean_interval
from gradatim.tasks.evaluation.result import evaluation_rows, evaluation_table
from gradatim.tasks.evaluation.scores import RUN
from gradatim.tasks.evaluation.seeds import POOLED

SOURCE = (
    "A. Talmor, J. Berant (2019). MultiQA: An empirical investigation of generalization and transfer in reading "
    "comprehension"
)
_CELL = {
    "trained": pl.String, "evaluated": pl.String, "value": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64,
    "n": pl.Int64, "interval": pl.String, "seen": pl.Boolean, "relative": pl.Float64,
}  # fmt: skip
_MEAN = {
    "side": pl.String, "name": pl.String, "value": pl.Float64, "ci_low": pl.Float64, "ci_high": pl.Float64,
    "cells": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class CrossMatrix:
    """Scores by what was trained on and what is evaluated.

    Attributes
    ----------
    table : polars.DataFrame
        One row a cell: trained, evaluated, value, ci_low, ci_high, n (scores), interval, seen (whether the evaluated
        set is among those trained on), relative (value over that of training on the evaluated set alone).
    means : polars.DataFrame
        Means of cells not seen: side ``trained`` (how well it generalises) or ``evaluated`` (how hard it is to reach),
        name, value, ci_low, ci_high, cells.
    asymmetry : polars.DataFrame
        Pairs of sets trained on alone: first, second, value = cell(first, second) - cell(second, first).
    column : str
    warnings : tuple of str
    """

    table: pl.DataFrame
    means: pl.DataFrame
    asymmetry: pl.DataFrame
    column: str
    warnings: tuple[str, ...] = ()

    def cell(self, trained: str, evaluated: str) -> Interval:
        """Return one cell; NaN where there is none."""
        found = self.table.filter((pl.col("trained") == trained) & (pl.col("evaluated") == evaluated))
        if found.is_empty():
            return Interval(math.nan, math.nan, math.nan, 0, "none: no predictions")
        row = found.row(0, named=True)
        value, low, high = (math.nan if row[end] is None else row[end] for end in ("value", "ci_low", "ci_high"))
        return Interval(value, low, high, row["n"], row["interval"])

    @property
    def evaluation(self) -> pl.DataFrame:
        """The cells as rows of the table `evaluation`: axis ``trained_COLUMN``, slice ``TRAINED -> EVALUATED``."""
        cells = [
            Cell(f"trained_{self.column}", f"{row['trained']} -> {row['evaluated']}", "score", interval, row["n"])
            for row in self.table.iter_rows(named=True)
            for interval in [self.cell(row["trained"], row["evaluated"])]
        ]
        rows = evaluation_rows(cells, run_id=f"by {self.column}", checkpoint=0, seed=POOLED, split_version=0)
        return evaluation_table(rows)

    def sentence(self) -> str:
        """Say which set generalises best and which is hardest to reach."""
        best = self.means.filter(pl.col("side") == "trained").sort("value", "name", descending=[True, False])
        hard = self.means.filter(pl.col("side") == "evaluated").sort("value", "name")
        sets = self.table["trained"].n_unique(), self.table["evaluated"].n_unique()
        if best.is_empty() or hard.is_empty():
            return f"{sets[0]} training sets against {sets[1]} evaluated sets."
        return (
            f"Of {sets[0]} training sets {best['name'][0]} generalises best ({100 * best['value'][0]:.1f} % on sets "
            f"not seen); of {sets[1]} evaluated sets {hard['name'][0]} is hardest to reach "
            f"({100 * hard['value'][0]:.1f} % by models that did not see it)."
        )

    def summary(self) -> Summary:
        """Describe the matrix for terminal, report and artifact."""
        from gradatim.tasks.core.charts import chart

        facts = [
            Fact(
                f"{name} ({'generalises' if side == 'trained' else 'is reached'})",
                round(value, 4),
                note=f"mean of {cells} cell" + ("s" if cells > 1 else ""),
            )
            for side, name, value, cells in self.means.select("side", "name", "value", "cells").iter_rows()
        ]
        tables = [SummaryTable("Cells", tuple(self.table.columns), tuple(self.table.head(400).rows()))]
        tables.append(SummaryTable("Means of sets not seen", tuple(self.means.columns), tuple(self.means.rows())))
        if len(self.asymmetry):
            rows = tuple(self.asymmetry.head(200).rows())
            tables.append(SummaryTable("Asymmetry", tuple(self.asymmetry.columns), rows))
        return Summary(
            step=f"matrix {self.column}",
            headline=self.sentence(),
            facts=tuple(facts),
            tables=tuple(tables),
            charts=(chart(self.plot(), self.sentence()),),
            warnings=self.warnings,
            sources=(SOURCE,),
        )

    def plot(self) -> Any:
        """Draw the matrix (an Altair chart): training sets down, evaluated sets across."""
        from gradatim.tasks.core.charts import heatmap

        title = f"Score by {self.column} trained on and evaluated"
        return heatmap(self.table, x="evaluated", y="trained", value="value", title=title)

    def cite(self) -> str:
        """Return the source."""
        return SOURCE

    def __repr__(self) -> str:
        wide = self.table.pivot(on="evaluated", index="trained", values="value")
        return "\n".join([self.sentence(), str(wide), *(f"  ! {warning}" for warning in self.warnings)])


def cross_matrix(
    predictions: pl.DataFrame,
    splits: pl.DataFrame,
    examples: pl.DataFrame,
    runs: pl.DataFrame,
    *,
    column: str = "dataset",
    cluster: str | None = None,
    variant: str = "plain",
    common: bool = True,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> CrossMatrix:
    """Score every training set on every evaluated set.

    Parameters
    ----------
    predictions : polars.DataFrame
        Table `predictions` of all runs; each run's last checkpoint counts.
    splits : polars.DataFrame
        Table `splits` of cross_dataset (or leave_one_domain_out), all folds.
    examples : polars.DataFrame
        With `column`.
    runs : polars.DataFrame
        One row a run: run_id, fold; `split_seed` where the splits have several. Runs trained on the same sets are
        pooled.
    column : str
        What names the data set.
    cluster : str, optional
        As for `evaluate`.
    common : bool
        Compare within a column on the examples that every training set was tested on: else a set that was trained on is
        evaluated on its test rows, and one that was not on all its rows.
    resamples, seed : int
        Of the bootstrap.

    Returns
    -------
    CrossMatrix

    Raises
    ------
    UsageError, DataRefused
        As `fold_scores`; no predictions of test and test_ood rows.

    Notes
    -----
    Intervals as `evaluate`'s: Wilson for a share of independent rows of one run, else a bootstrap of clusters (and
    runs, where several). Means over cells resample clusters for all cells together.
    """
    scores, folds = fold_scores(predictions, splits, examples, runs, column, cluster=cluster, variant=variant)
    names, whole = _training_sets(folds)
    last = pl.col("checkpoint") == pl.col("checkpoint").max().over("run_id")
    tested = scores.filter(last & pl.col("split").is_in(["test", "test_ood"])).join(names, on=["split_seed", "fold"])
    if tested.is_empty():
        raise DataRefused("there are no predictions of test and test_ood rows", where="cross_matrix")
    order = names["trained"].unique(maintain_order=True).to_list()
    order = [name for name in order if (tested["trained"] == name).any()]
    warnings = []
    if common:
        inner = tested.filter(pl.col("split") == "test")["example_id"].unique()
        tested = _common(tested)
        lost = len(inner) - tested["example_id"].n_unique()
        if lost > 0:
            warnings.append(f"{lost:,} of {len(inner):,} test examples were not answered by every run and are left out")
        if tested.is_empty():
            raise DataRefused(
                "no example was tested for every training set",
                where="cross_matrix",
                expected="predictions of the same test rows by every run",
                remedy="predict them, or set common=False",
            )
    settings = Settings(resamples, seed, cluster or "example")
    sets = tested["value"].unique().sort().to_list()
    codes = int(tested["code"].max()) + 1  # type: ignore[arg-type]
    by_set = {name: tested.filter(pl.col("trained") == name).partition_by(RUN, maintain_order=True) for name in order}
    rows = []
    for name in order:
        for value in sets:
            interval, n = mean_interval(by_set[name], pl.col("value") == value, settings)
            if n:
                ends = (interval.value, interval.low, interval.high, n, interval.method)
                rows.append((name, value, *ends, value in whole[name], None))
    table = pl.DataFrame(rows, schema=_CELL, orient="row")
    # the diagonal: trained on the evaluated set, and on nothing else
    alone = {value: name for value in sets for name in order if whole[name] == {value}}
    cells = {(row[0], row[1]): row[2] for row in rows}
    diagonal = {value: cells[name, value] for value, name in alone.items() if (name, value) in cells}
    base = pl.col("evaluated").replace_strict(diagonal, default=None, return_dtype=pl.Float64)
    table = table.with_columns(pl.when(base > 0).then(pl.col("value") / base).alias("relative"))
    means = _means(table, by_set, order, sets, codes, settings)
    return CrossMatrix(table, means, _asymmetry(table, alone), column, tuple(warnings))


def _training_sets(folds: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, set[str]]]:
    """Name what each fold was trained on: one value, ``all but X``, ``all``, or a list."""
    every = sorted(folds["value"].unique())
    rows, whole = [], {}
    trained = folds.filter(pl.col("split") == "train").group_by("split_seed", "fold").agg(pl.col("value").unique())
    for split_seed, fold, values in trained.sort("split_seed", "fold").iter_rows():
        left = [value for value in every if value not in values]
        if len(values) == 1:
            name = str(values[0])
        elif not left:
            name = "all"
        elif len(left) == 1:
            name = f"all but {left[0]}"
        else:
            name = ", ".join(sorted(values))
        rows.append((split_seed, fold, name))
        whole[name] = set(values)
    schema = {"split_seed": pl.Int64, "fold": pl.Int64, "trained": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row"), whole


def _common(tested: pl.DataFrame) -> pl.DataFrame:
    """Keep the examples that every run on the same seed of the split was tested on."""
    runs = tested.group_by("split_seed").agg(pl.struct(RUN).n_unique().alias("runs"))
    keys = ["split_seed", "example_id"]
    answered = tested.group_by(keys).agg(pl.struct(RUN).n_unique().alias("runs"))
    every = answered.join(runs, on=["split_seed", "runs"], how="semi")
    return tested.join(every, on=keys, how="semi", maintain_order="left")


def _means(
    table: pl.DataFrame,
    by_set: dict[str, list[pl.DataFrame]],
    order: Sequence[str],
    sets: Sequence[str],
    codes: int,
    settings: Settings,
) -> pl.DataFrame:
    """Average the cells of sets not seen, of each row and each column, with intervals."""
    unseen = set(table.filter(~pl.col("seen")).select("trained", "evaluated").iter_rows())
    rows = []
    for name in order:
        there = [value for value in sets if (name, value) in unseen]
        if there:
            one = arm(by_set[name], [pl.col("value") == value for value in there], codes)
            found = bootstrap(
                [one], np.full(len(there), 1 / len(there)), resamples=settings.resamples, seed=settings.seed
            )
            rows.append(("trained", name, found, len(there)))
    for value in sets:
        by = [name for name in order if (name, value) in unseen]
        if by:
            arms = [arm(by_set[name], [pl.col("value") == value], codes) for name in by]
            found = bootstrap(arms, np.full(len(by), 1 / len(by)), resamples=settings.resamples, seed=settings.seed)
            rows.append(("evaluated", value, found, len(by)))
    told = [(side, name, found.value, found.low, found.high, cells) for side, name, found, cells in rows]
    return pl.DataFrame(told, schema=_MEAN, orient="row").with_columns(pl.col("ci_low", "ci_high").fill_nan(None))


def _asymmetry(table: pl.DataFrame, alone: dict[str, str]) -> pl.DataFrame:
    """Difference of the two cells of each pair of sets that were trained on alone."""
    cells = {
        (trained, evaluated): value
        for trained, evaluated, value in table.select("trained", "evaluated", "value").iter_rows()
    }
    names = sorted(alone)
    rows = [
        (first, second, cells[alone[first], second] - cells[alone[second], first])
        for at, first in enumerate(names)
        for second in names[at + 1 :]
        if (alone[first], second) in cells and (alone[second], first) in cells
    ]
    schema = {"first": pl.String, "second": pl.String, "value": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")

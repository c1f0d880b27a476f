"""`Evaluation`: how good an arm is in and out of distribution, which explains itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.schemas.tables import spec
from gradatim.tasks.core.intervals import Interval
from gradatim.tasks.evaluation.cells import ID, OOD, Cell
from gradatim.tasks.evaluation.seeds import POOLED

SOURCE = (
    "E. B. Wilson (1927). Probable inference, the law of succession, and statistical inference; "
    "B. Efron, R. Tibshirani (1993). An Introduction to the Bootstrap; "
    "T. Sellam et al. (2022). The MultiBERTs: BERT reproductions for robustness analysis"
)
_SHOWN = 60


@dataclass(frozen=True, repr=False)
class Matrix:
    """Scores by split and one axis; `table` has split, the axis, value, n, ci_low, ci_high."""

    axis: str
    table: pl.DataFrame
    name: str

    def plot(self) -> Any:
        """Draw scores over the axis, one line or group of bars a split (an Altair chart)."""
        from gradatim.tasks.core.charts import bars, lines

        title = f"Score of {self.name} by {self.axis}"
        draw = lines if self.axis == "bin" else bars
        return draw(self.table, x=self.axis, y="value", color="split", title=title, low="ci_low", high="ci_high")

    def __repr__(self) -> str:
        return f"{self.name} by split and {self.axis}\n{self.table}"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good one arm (or model) is, in and out of distribution.

    Attributes
    ----------
    table : polars.DataFrame
        The table `evaluation`: every run at every checkpoint; seed -1 where several runs are pooled.
    scores : polars.DataFrame
        The score of each run on each example, with its split, cluster and slices.
    name : str
        What a sentence calls it, e.g. ``the curriculum arm``.
    strategy, metric, clusters : str
    checkpoint : int
        The last one; what `gap`, `sentence` and `matrix` speak of.
    difficulty : str
        How it was made sure that the difficulty does not rest on this model; empty where there is none.
    warnings : tuple of str
    """

    table: pl.DataFrame
    scores: pl.DataFrame
    name: str
    strategy: str
    metric: str
    clusters: str
    checkpoint: int
    difficulty: str = ""
    warnings: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> int:
        """Number of runs at the last checkpoint."""
        return int(self.scores.filter(pl.col("checkpoint") == self.checkpoint)["run_id"].n_unique())

    @property
    def _rows(self) -> pl.DataFrame:
        rows = self.table.filter(pl.col("checkpoint") == self.checkpoint)
        return rows.filter(pl.col("seed") == POOLED) if self.runs > 1 else rows

    def cell(self, axis: str, slice: str, metric: str = "") -> Interval:
        """Return one number with its interval at the last checkpoint, pooled over runs; NaN where there is none."""
        metric = metric or ("gap" if axis == "gap" else self.metric)
        found = self._rows.filter((pl.col("axis") == axis) & (pl.col("slice") == slice) & (pl.col("metric") == metric))
        if found.is_empty():
            return Interval(float("nan"), float("nan"), float("nan"), 0, f"none: no {slice}")
        row = found.row(0, named=True)
        value, low, high = (float("nan") if row[end] is None else row[end] for end in ("value", "ci_low", "ci_high"))
        return Interval(value, low, high, row["n"], row["interval"])

    @property
    def gap(self) -> Interval:
        """Mean score on test less that on test_ood; NaN where one is missing."""
        return self.cell("gap", f"{ID} - {OOD}")

    def matrix(self, axis: str = "bin") -> Matrix:
        """Return scores by split and `axis` (bin, level, domain, ...); raises `UsageError` for one not evaluated."""
        axes = [
            a for a in self.table["axis"].unique().sort() if a not in ("split", "gap") and not a.startswith("worst_")
        ]
        if axis not in axes:
            raise UsageError(
                f"{self.name} was not evaluated by {axis!r}{nearest(axis, axes)}",
                expected=", ".join(axes)
                or "an axis: evaluate(..., difficulty=...) adds bin, examples add level and domain",
            )
        rows = self._rows.filter((pl.col("axis") == axis) & (pl.col("metric") == self.metric))
        parts = pl.col("slice").str.split_exact("/", 1)
        split, value = parts.struct.field("field_0"), pl.col("slice").str.replace("^[^/]*/", "")
        table = rows.select(split.alias("split"), value.alias(axis), "value", "n", "ci_low", "ci_high")
        if axis == "bin":
            table = table.with_columns(pl.col(axis).cast(pl.Int32))
        return Matrix(axis, table.sort("split", axis), self.name)

    def sentence(self) -> str:
        """Say the result in one plain sentence, with its interval."""
        inside, outside, gap = self.cell("split", ID), self.cell("split", OOD), self.gap
        verb = "solves {} of" if self.metric == "exact_match" else "scores {} on"
        where = f"On the {self.strategy} split " if self.strategy else ""
        over = f", mean of {self.runs} runs" if self.runs > 1 else ""
        if inside.n and outside.n:
            reach = f", 95 % interval {_points(gap.low)} to {_points(gap.high)}" if gap.low == gap.low else ""
            text = (
                f"{where}{self.name} {verb.format(_percent(inside.value))} the test set in distribution and "
                f"{_percent(outside.value)} out of distribution (gap {_points(gap.value)} points{reach}{over})."
            )
        elif inside.n or outside.n:
            found, which, other = (inside, "in", OOD) if inside.n else (outside, "out of", ID)
            text = (
                f"{where}{self.name} {verb.format(_percent(found.value))} the test set {which} distribution "
                f"(95 % interval {_points(found.low)} to {_points(found.high)} %{over}); "
                f"there are no predictions of {other}."
            )
        else:
            text = f"{where}{self.name} has no predictions of {ID} or {OOD}."
        return text[0].upper() + text[1:]

    def summary(self) -> Summary:
        """Describe the result for people, with its chart."""
        from gradatim.tasks.core.charts import chart

        facts = [
            Fact("in distribution", _known(self.cell("split", ID).value)),
            Fact("out of distribution", _known(self.cell("split", OOD).value)),
            Fact("gap", _known(self.gap.value), note=self.gap.method),
            Fact("checkpoint", self.checkpoint, unit="steps"),
            Fact("runs", self.runs),
        ]
        if self.difficulty:
            facts.append(Fact("difficulty", self.difficulty))
        columns = ("axis", "slice", "metric", "value", "ci_low", "ci_high", "n", "interval")
        rows = self._rows.select(columns).rows()
        note = f"{len(rows) - _SHOWN} more in the table evaluation" if len(rows) > _SHOWN else ""
        shown = self._rows.filter(pl.col("axis") == "split").filter(pl.col("metric") == self.metric)
        return Summary(
            step=f"evaluate {self.strategy}".strip(),
            headline=self.sentence(),
            facts=tuple(facts),
            tables=(SummaryTable("Scores", columns, tuple(rows[:_SHOWN]), note=note),),
            charts=(chart(self.plot(), self.sentence()),) if len(shown) else (),
            warnings=self.warnings,
            sources=(SOURCE,),
        )

    def plot(self) -> Any:
        """Draw the score by split with its interval (an Altair chart)."""
        from gradatim.tasks.core.charts import bars

        rows = self._rows.filter((pl.col("axis") == "split") & (pl.col("metric") == self.metric))
        title = f"Score of {self.name}"
        return bars(rows.rename({"slice": "set"}), x="set", y="value", title=title, low="ci_low", high="ci_high")

    def cite(self) -> str:
        """Return the sources of the intervals."""
        return SOURCE

    def __repr__(self) -> str:
        rows = [
            f"  {axis:<8} {slice:<20} {value:.4f}  ({low:.4f} to {high:.4f}; n {n:,})"
            for axis, slice, value, low, high, n in self._rows.filter(
                pl.col("axis").is_in(["split", "gap"]) & pl.col("metric").is_in([self.metric, "gap"])
            )
            .select("axis", "slice", "value", "ci_low", "ci_high", "n")
            .drop_nulls()
            .rows()
        ]
        note = [f"  difficulty: {self.difficulty}"] if self.difficulty else []
        return "\n".join([self.sentence(), *rows, *note, *(f"  ! {warning}" for warning in self.warnings)])


def evaluation_rows(
    cells: Iterable[Cell], *, run_id: str, checkpoint: int, seed: int, split_version: int
) -> list[tuple[Any, ...]]:
    """Return cells as rows in the order of the table's columns."""
    return [
        (
            *(run_id, checkpoint, seed, split_version, cell.axis, cell.slice, cell.metric, cell.interval.value, cell.n),
            *(cell.interval.low, cell.interval.high, cell.interval.method),
        )
        for cell in cells
    ]


def evaluation_table(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Return rows in the schema of the table `evaluation`, sorted by its key; NaN becomes null."""
    contract = spec("evaluation")
    empty = pl.from_arrow(contract.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    table = pl.DataFrame(rows, schema=empty.schema, orient="row")
    return table.with_columns(pl.col("value", "ci_low", "ci_high").fill_nan(None)).sort(contract.key)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:.1f}".replace("-0.0", "0.0")


def _known(value: float) -> float | None:
    return round(value, 6) if value == value else None

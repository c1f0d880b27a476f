"""How far difficulties agree: rank correlation of each pair, and the examples that they place most differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.format import number
from gradatim.tasks.core.ranks import rounded

UNRELATED = 0.2
SHOWN = 20
TOLD = 3
"""Pairs that warnings of one kind name; of more, how many there are."""
COLUMNS = ("example_id", "method", "value", "percentile")
NOTE = (
    "Spearman, on the examples that both know. Difficulties that people gave and those that models show can be almost "
    "unrelated (-.09 in one public sample): no estimator stands for another unless this table says so."
)


@dataclass(frozen=True, repr=False)
class Agreement:
    """How several difficulties of the same examples agree.

    Attributes
    ----------
    methods : tuple of str
    pairs : polars.DataFrame
        left, right (methods, left before right), spearman in [-1, 1] (null where one is constant or fewer than three
        examples are common), n; sorted by left, right.
    disagreements : polars.DataFrame
        example_id, easiest, hardest (methods), low, high (their percentiles), spread (high - low): the examples that
        the methods place most differently, widest first; none that all place alike.
    """

    methods: tuple[str, ...]
    pairs: pl.DataFrame
    disagreements: pl.DataFrame

    def __repr__(self) -> str:
        return f"agreement of {self._headline()}"

    def _headline(self) -> str:
        found = [float(value) for value in self.pairs["spearman"].drop_nulls()]
        if not found:
            several = f"{len(self.methods)} estimators, of which no two can be correlated"
            return several if len(self.methods) > 1 else f"{self.methods[0]} alone"
        low, high = number(min(found), 2), number(max(found), 2)
        return f"{len(self.methods)} estimators, rank correlation" + (f"s {low} to {high}" if found[1:] else f" {low}")

    def plot(self) -> Any:
        """Draw the matrix of rank correlations as an Altair chart."""
        from gradatim.tasks.core.charts import heatmap

        both = [(left, right, r) for left, right, r, _ in self.pairs.iter_rows()]
        cells = [*both, *((right, left, r) for left, right, r in both), *((name, name, 1.0) for name in self.methods)]
        frame = pl.DataFrame(
            cells, schema={"row": pl.String, "column": pl.String, "spearman": pl.Float64}, orient="row"
        )
        return heatmap(
            frame.sort("row", "column"),
            x="column",
            y="row",
            value="spearman",
            title="Rank correlation of estimators",
            correlations=True,
        )

    def summary(self) -> Summary:
        """Summarise for terminal, report and artifact."""
        from gradatim.tasks.core.charts import chart

        rows = tuple(self.pairs.iter_rows())
        far = tuple(self.disagreements.iter_rows())
        tables = [
            SummaryTable("Rank correlation of the estimators", tuple(self.pairs.columns), rows, NOTE),
            SummaryTable(
                "Examples on which they disagree most",
                tuple(self.disagreements.columns),
                far,
                "Low and high are percentiles, .01 easy and 1 hard.",
            ),
        ]
        return Summary(
            step="difficulty agreement",
            headline=self._headline(),
            facts=(Fact("estimators", ", ".join(self.methods)),),
            tables=tuple(table for table in tables if table.rows),
            charts=(chart(self.plot(), "How far the estimators agree."),) if rows else (),
            warnings=tuple(doubts(self.pairs, "what is hard by one says little about the other")),
        )


def agreement(table: pl.DataFrame, *, shown: int = SHOWN) -> Agreement:
    """Compare every two methods.

    Parameters
    ----------
    table : polars.DataFrame
        Columns example_id, method, value, percentile of the table `difficulty`.
    shown : int
        Disagreements that are kept.

    Raises
    ------
    UsageError
        Without a method or one of these columns.
    DataRefused
        If a method has an example twice.

    Notes
    -----
    One join a pair, one sort for all. Source: C. Spearman (1904). The proof and measurement of association between two
    things.
    """
    for name in COLUMNS:
        if name not in table.columns:
            raise UsageError(
                f"there is no column {name!r}", where="agreement", expected=", ".join(COLUMNS) + ": a table difficulty"
            )
    methods = table["method"].unique().sort().to_list()
    if not methods:
        raise UsageError("there is no difficulty to compare", where="agreement", expected="one or more")
    frames = {name: table.filter(pl.col("method") == name).select("example_id", "value") for name in methods}
    for name, frame in frames.items():
        if frame["example_id"].n_unique() < len(frame):
            twice = frame["example_id"].filter(frame["example_id"].is_duplicated()).sort()[0]
            raise DataRefused(
                f"{name!r} has the example {twice!r} more than once",
                where="agreement",
                expected="one value an example and method",
            )
    rows = [(left, right, *spearman(frames[left], frames[right])) for left, right in combinations(methods, 2)]
    schema = {"left": pl.String, "right": pl.String, "spearman": pl.Float64, "n": pl.Int64}
    return Agreement(tuple(methods), pl.DataFrame(rows, schema=schema, orient="row"), _furthest(table, methods, shown))


def spearman(left: pl.DataFrame, right: pl.DataFrame) -> tuple[float | None, int]:
    """Correlate the ranks of two frames of (example_id, value) on their common examples; None where it cannot be."""
    # sorted, so that the sums behind the correlation do not depend on the order of the rows
    both = left.join(right, on="example_id", suffix="_right").drop_nulls().sort("example_id")
    ties = both.with_columns(pl.Series(name, rounded(both[name].to_numpy())) for name in ("value", "value_right"))
    found = ties.select(pl.corr("value", "value_right", method="spearman")).item() if len(ties) > 2 else None
    return None if found is None or found != found else float(found), len(both)


def doubts(pairs: pl.DataFrame, why: str) -> list[str]:
    """Say which pairs are nearly unrelated or run against each other: up to `TOLD` of a kind, most striking first.

    Parameters
    ----------
    pairs : polars.DataFrame
        left, right, spearman.
    why : str
        What follows for a pair that is nearly unrelated.
    """
    known = [(a, b, r) for a, b, r in pairs.select("left", "right", "spearman").iter_rows() if r is not None]
    against = sorted((found for found in known if found[2] <= -UNRELATED), key=lambda found: round(found[2], 9))
    apart = sorted((found for found in known if abs(found[2]) < UNRELATED), key=lambda found: round(abs(found[2]), 9))
    told = [
        f"{a} and {b} run against each other ({number(r, 2)}): what is hard by one is easy by the other"
        for a, b, r in against[:TOLD]
    ]
    told += [f"{a} and {b} are nearly unrelated ({number(r, 2)}): {why}" for a, b, r in apart[:TOLD]]
    more = [(len(against) - TOLD, "run against each other"), (len(apart) - TOLD, "are nearly unrelated")]
    said = " and ".join(f"{n:,} more {what}" for n, what in more if n > 0)
    return [*told, f"of {len(known):,} pairs {said}: see the table"] if said else told


def _furthest(table: pl.DataFrame, methods: Sequence[str], shown: int) -> pl.DataFrame:
    place = pl.col("percentile")
    at = {"easiest": place == place.min(), "hardest": place == place.max()}
    return (
        table.sort("example_id", "method")  # a tie goes to the first method by name
        .group_by("example_id", maintain_order=True)
        .agg(
            *(pl.col("method").filter(where).first().alias(name) for name, where in at.items()),
            place.min().alias("low"),
            place.max().alias("high"),
            pl.len().alias("count"),
        )
        .filter(pl.col("count") > 1)
        .with_columns((pl.col("high") - pl.col("low")).alias("spread"))
        .filter(pl.col("spread") > 1e-9)
        .sort(pl.col("spread").round(9), "example_id", descending=[True, False])
        .head(shown if len(methods) > 1 else 0)
        .drop("count")
    )

"""Several strategies side by side, over their seeds and folds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import Cell, Summary, SummaryTable
from gradatim.tasks.core.format import number

MEASURES = {
    "rows:train": "train rows",
    "rows:test_ood": "test_ood rows",
    "duplicates_across": "inputs across",
    "near_duplicates_across": "near-duplicates across",
    "leakage": "leakage",
    "shift_auc": "shift AUC",
    "diversity_shift:classifier": "diversity shift",
    "correlation_shift:classifier": "correlation shift",
    "atom_divergence": "atom divergence",
    "compound_divergence": "compound divergence",
    "score_gap": "zero-shot gap",
    "score_gap_matched": "matched gap",
    "detectable_gap": "detectable gap",
}
"""What is compared, by the name of the check, with its heading."""


@dataclass(frozen=True)
class SideBySide:
    """Strategies compared.

    Attributes
    ----------
    table : polars.DataFrame
        strategy, splits (seeds x folds), measure, mean, deviation (over these splits; null for one), smallest, largest,
        random_control, matched_control (means), holds (whether every promise of the strategy holds).
    """

    table: pl.DataFrame

    def summary(self) -> Summary:
        """Describe the comparison for terminal and report: a row a measure, a column a strategy."""
        names = self.table["strategy"].unique(maintain_order=True).to_list()
        rows: list[tuple[Cell, ...]] = [
            ("seeds x folds", *(self._first(name, "splits") for name in names)),
            ("promises hold", *(self._first(name, "holds") for name in names)),
        ]
        for measure in self.table["measure"].unique(maintain_order=True):
            cells = [self._cell(name, measure) for name in names]
            rows.append((measure, *cells))
        return Summary(
            step="compare splits",
            headline=f"{len(names)} strategies: " + ", ".join(names),
            tables=(
                SummaryTable(
                    "Strategies side by side",
                    ("measure", *names),
                    tuple(rows),
                    note="Mean ± standard deviation over seeds and folds; in brackets the size-matched random control.",
                ),
            ),
        )

    def plot(self, measure: str = "shift AUC") -> Any:
        """Draw one measure of each strategy beside its random control's (an Altair chart)."""
        from gradatim.tasks.core import charts

        rows = self.table.filter(pl.col("measure") == measure)
        if rows.is_empty():
            raise UsageError(
                f"there is no measure {measure!r}",
                expected="one of " + ", ".join(self.table["measure"].unique().sort()),
            )
        long = (
            rows.select("strategy", split="mean", control="random_control")
            .rename({"control": "random control"})
            .unpivot(index="strategy", variable_name="of", value_name=measure)
            .drop_nulls()
        )
        return charts.bars(long, x="strategy", y=measure, color="of", title=f"{measure} of each strategy")

    def __repr__(self) -> str:
        return self.summary().headline

    def _first(self, strategy: str, column: str) -> Cell:
        found: Cell = self.table.filter(pl.col("strategy") == strategy)[column][0]
        return found

    def _cell(self, strategy: str, measure: str) -> str:
        row = self.table.filter((pl.col("strategy") == strategy) & (pl.col("measure") == measure))
        if row.is_empty() or row["mean"][0] is None:
            return "–"
        text = number(row["mean"][0], 3)
        if row["deviation"][0] is not None:
            text += f" ± {number(row['deviation'][0], 2)}"
        control = row["random_control"][0]
        return text if control is None or measure.endswith("rows") else f"{text} ({number(control, 3)})"


def side_by_side(certificates: Iterable[pl.DataFrame]) -> SideBySide:
    """Compare strategies by what their certificates say.

    Parameters
    ----------
    certificates : iterable of polars.DataFrame
        Tables ``certificate``, each of one or more strategies; strategies keep the order in which they come.

    Returns
    -------
    SideBySide

    Raises
    ------
    UsageError
        Without a certificate, or where two are of one strategy.
    """
    tables = list(certificates)
    names = [name for table in tables for name in table["strategy"].unique(maintain_order=True)]
    if not names:
        raise UsageError("there is no certificate to compare", expected="certificates of one or more splits")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"two certificates are of a strategy called {twice[0]!r}", remedy="give one of the splits another name"
        )
    rows = pl.concat(tables, how="diagonal")
    of_strategy = rows.group_by("strategy").agg(
        splits=pl.struct("seed", "fold").n_unique(), holds=pl.col("holds").fill_null(True).all()
    )
    mean = (
        rows.filter(pl.col("check").is_in(list(MEASURES)))
        .group_by("strategy", "check")
        .agg(  # sorted, so that sums are the same whatever the threads
            mean=pl.col("value").sort().mean(),
            deviation=pl.col("value").sort().std(),
            smallest=pl.col("value").min(),
            largest=pl.col("value").max(),
            random_control=pl.col("control_value").sort().mean(),
            matched_control=pl.col("matched_value").sort().mean(),
        )
    )
    order = pl.DataFrame({"strategy": names}).with_row_index("place")
    listed = pl.DataFrame({"check": list(MEASURES), "measure": list(MEASURES.values())}).with_row_index("line")
    table = mean.join(of_strategy, on="strategy").join(order, on="strategy").join(listed, on="check")
    return SideBySide(
        table.sort("place", "line").select(
            "strategy",
            "splits",
            "measure",
            "mean",
            "deviation",
            "smallest",
            "largest",
            "random_control",
            "matched_control",
            "holds",
        )
    )

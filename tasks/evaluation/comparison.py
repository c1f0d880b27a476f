"""`Comparison`: paired differences of arms from a baseline, which explain themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.intervals import Interval
from gradatim.tasks.evaluation.cells import ID, OOD

SOURCE = (
    "B. Efron, R. Tibshirani (1993). An Introduction to the Bootstrap; "
    "Q. McNemar (1947). Note on the sampling error of the difference between correlated proportions; "
    "S. Holm (1979). A simple sequentially rejective multiple test procedure"
)
COLUMNS = {
    "arm": pl.String,
    "baseline": pl.String,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "arm_value": pl.Float64,
    "baseline_value": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "test": pl.String,
    "interval": pl.String,
}


@dataclass(frozen=True, repr=False)
class Comparison:
    """Paired differences of arms from a baseline.

    Attributes
    ----------
    table : polars.DataFrame
        One row an arm and quantity (test_ood, test, gap): arm less baseline with its 95 % interval, n examples, both
        values, p and p_holm (over the arms), and how both were made.
    evaluation : polars.DataFrame
        The same differences as rows of the table `evaluation`, axis comparison.
    baseline : str
    titles : mapping of str to str
        What a sentence calls each arm.
    metric, strategy : str
    warnings : tuple of str
    """

    table: pl.DataFrame
    evaluation: pl.DataFrame
    baseline: str
    titles: Mapping[str, str]
    metric: str
    strategy: str
    warnings: tuple[str, ...] = field(default=())

    def difference(self, arm: str, quantity: str = OOD) -> Interval:
        """Return one paired difference; raises `UsageError` for an unknown arm or quantity."""
        found = self.table.filter((pl.col("arm") == arm) & (pl.col("quantity") == quantity))
        if found.is_empty():
            arms, quantities = (self.table[c].unique(maintain_order=True).to_list() for c in ("arm", "quantity"))
            raise UsageError(
                f"there is no difference of {arm!r} in {quantity!r}{nearest(arm, arms)}",
                expected=f"arm one of {', '.join(arms)}; quantity one of {', '.join(quantities)}",
            )
        row = found.row(0, named=True)
        value, low, high = (float("nan") if row[c] is None else row[c] for c in ("value", "ci_low", "ci_high"))
        return Interval(value, low, high, row["n"], row["interval"], row["p"])

    def sentence(self) -> str:
        """Say the comparison in one plain sentence an arm, with intervals."""
        verb = "solves" if self.metric == "exact_match" else "scores"
        on = "of" if self.metric == "exact_match" else "on"
        where = {ID: "in distribution", OOD: "out of distribution"}
        base = self.titles.get(self.baseline, self.baseline)
        said = []
        for (name,), rows in self.table.group_by("arm", maintain_order=True):
            parts = []
            for row in rows.iter_rows(named=True):
                if row["quantity"] == "gap":
                    parts.append(f"their gaps (in less out of distribution) differ by {_reach(row)}")
                    continue
                first, second = (f"{100 * row[c]:.1f} %" for c in ("arm_value", "baseline_value"))
                who = f"{self.titles.get(str(name), str(name))} {verb} {first} and {base} {second}"
                who, same = (f"{first} and {second}", "") if parts else (who, "the same ")
                parts.append(f"{where[row['quantity']]} {who} {on} {same}{row['n']:,} examples ({_reach(row)})")
            said.append("; ".join(parts) + ".")
        return " ".join(text[0].upper() + text[1:] for text in said)

    def summary(self) -> Summary:
        """Describe the comparison for people, with its chart."""
        from gradatim.tasks.core.charts import chart

        columns = tuple(COLUMNS)
        facts = tuple(
            Fact(f"{row['arm']} - {row['baseline']}, {row['quantity']}", row["value"], note=_reach(row))
            for row in self.table.iter_rows(named=True)
        )
        return Summary(
            step=f"compare {self.strategy}".strip(),
            headline=self.sentence(),
            facts=facts,
            tables=(SummaryTable("Paired differences", columns, tuple(self.table.rows())),),
            charts=(chart(self.plot(), self.sentence()),),
            warnings=self.warnings,
            sources=(SOURCE,),
        )

    def plot(self) -> Any:
        """Draw the differences with their intervals (an Altair chart)."""
        from gradatim.tasks.core.charts import points

        title = f"Difference from {self.baseline}"
        return points(self.table, x="quantity", y="value", color="arm", title=title, low="ci_low", high="ci_high")

    def cite(self) -> str:
        """Return the sources of intervals and tests."""
        return SOURCE

    def __repr__(self) -> str:
        return "\n".join([self.sentence(), *(f"  ! {warning}" for warning in self.warnings)])


def _points(difference: float) -> str:
    """Write a difference of shares as points, with its sign; a zero has none."""
    text = f"{100 * difference:+.1f}"
    return "0.0" if float(text) == 0 else text


def _reach(row: Mapping[str, Any]) -> str:
    text = f"{_points(row['value'])} points"
    if row["ci_low"] is not None:
        text += f", 95 % interval {_points(row['ci_low'])} to {_points(row['ci_high'])}"
    p = row["p_holm"]
    return text if p is None else text + (", p < 0.001" if p < 0.001 else f", p = {p:.3f}")

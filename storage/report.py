"""What an audit found: an outcome for each expectation, and a report that reads well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SAMPLE = 20
"""Ids at most that a report names; all of them stand in the Parquet files that it links."""


@dataclass(frozen=True)
class Outcome:
    """How one expectation turned out.

    Attributes
    ----------
    name, severity, tolerance
        As in the expectation.
    about : str
        The expectation in words.
    failed, rows : int
        Failing rows (or groups, for some table-level kinds) of those that were checked.
    holds : bool or None
        Whether the share of failing rows is within the tolerance; None where it could not be checked.
    sample : tuple of str
        Keys of failing rows, at most 20.
    note : str
        What was found, or why it was not checked.
    """

    name: str
    severity: str
    tolerance: float
    about: str
    failed: int = 0
    rows: int = 0
    holds: bool | None = True
    sample: tuple[str, ...] = ()
    note: str = ""

    @property
    def share(self) -> float:
        """Failing share in [0, 1]; 0 where nothing was checked."""
        return self.failed / self.rows if self.rows else float(self.failed > 0)

    def __str__(self) -> str:
        mark = {True: "ok", False: "FAILS" if self.severity != "warn" else "warns", None: "not checked"}[self.holds]
        text = f"{mark:<11} {self.name}"
        if self.failed:
            text += f": {self.failed:,} of {self.rows:,} ({self.share:.3%}; limit {self.tolerance:.3%})"
        if self.note:
            text += f": {self.note}"
        if self.sample:
            text += f"  e.g. {', '.join(self.sample[:3])}"
        return text


@dataclass(frozen=True)
class AuditReport:
    """What an audit found about one draft of a table.

    Attributes
    ----------
    table : str
    rows : int
        Rows of the whole version.
    checked : int
        Rows of the new parts, which were validated one by one.
    outcomes : tuple of Outcome
    rejected : int
        Rows left out because an expectation rejects them.
    offending : str
        Folder with all offending rows as Parquet; empty where there are none.
    """

    table: str
    rows: int
    checked: int
    outcomes: tuple[Outcome, ...]
    rejected: int = 0
    offending: str = ""

    @property
    def refused(self) -> tuple[Outcome, ...]:
        """Outcomes that forbid publishing."""
        return tuple(o for o in self.outcomes if o.holds is False and o.severity != "warn")

    @property
    def warnings(self) -> tuple[Outcome, ...]:
        """Outcomes that should be read with care: broken but only warned of, or not checked."""
        return tuple(o for o in self.outcomes if o.holds is None or (o.holds is False and o.severity == "warn"))

    def __getitem__(self, name: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.name == name)

    def __str__(self) -> str:
        verdict = "REFUSED" if self.refused else "passed"
        head = f"audit of {self.table} {verdict}: {self.rows:,} rows, {self.checked:,} of them new"
        if self.rejected:
            head += f", {self.rejected:,} rejected"
        shown = [outcome for outcome in self.outcomes if outcome.failed or outcome.holds is not True]
        lines = [head, *(f"  {outcome}" for outcome in shown)]
        lines.append(f"  {len(self.outcomes) - len(shown)} further expectations hold")
        if self.offending:
            lines.append(f"  rows  {self.offending}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        return {**asdict(self), "outcomes": [asdict(outcome) for outcome in self.outcomes]}

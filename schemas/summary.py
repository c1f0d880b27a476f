"""What every step hands up for people to read: one object, rendered to terminal, HTML report and Prefect artifact.

A summary never holds text that users wrote, except in `private` tables, which only local reports show.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Fact:
    """One number with its name, e.g. ``Fact("reliability", 0.62, note="supports 3 bins")``."""

    name: str
    value: Cell
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class SummaryTable:
    """A small table: `rows` are tuples in the order of `columns`; at most some hundred rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    private: bool = False


@dataclass(frozen=True)
class SummaryChart:
    """A picture as a Vega-Lite specification, with the sentence that it shows."""

    title: str
    spec: dict[str, Any]
    caption: str


@dataclass(frozen=True)
class Summary:
    """What a step did.

    Attributes
    ----------
    step : str
        Short name, e.g. ``ingest``, ``difficulty irt``, ``split length``.
    headline : str
        One line that says the result.
    facts, tables, charts
        Details, most important first.
    warnings : tuple of str
        What to read with care.
    next : tuple of str
        Commands or changes that may follow.
    sources : tuple of str
        Papers that the step rests on.
    """

    step: str
    headline: str
    facts: tuple[Fact, ...] = ()
    tables: tuple[SummaryTable, ...] = ()
    charts: tuple[SummaryChart, ...] = ()
    warnings: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reused: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, as `--json` prints them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Summary:
        """Rebuild what `to_dict` gave (JSON turns tuples into lists)."""
        return cls(
            step=data["step"],
            headline=data["headline"],
            facts=tuple(Fact(**fact) for fact in data["facts"]),
            tables=tuple(
                SummaryTable(
                    **{**table, "columns": tuple(table["columns"]), "rows": tuple(tuple(r) for r in table["rows"])}
                )
                for table in data["tables"]
            ),
            charts=tuple(SummaryChart(**chart) for chart in data["charts"]),
            warnings=tuple(data["warnings"]),
            next=tuple(data["next"]),
            sources=tuple(data["sources"]),
            reused=data["reused"],
            extra=data["extra"],
        )

"""Tables of a summary as aligned text cells, shared by terminal, artifact and HTML report."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from gradatim.schemas.summary import Cell, Fact, Summary, SummaryTable
from gradatim.tasks.core import format as fmt


@dataclass(frozen=True)
class Table:
    """A table ready to be set: every cell is text on one line, `numeric` says which columns stand to the right."""

    title: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int
    note: str
    private: bool

    @property
    def cut(self) -> str:
        """Say how many of the rows are shown; empty where all are."""
        return f"The first {len(self.rows):,} of {self.total:,} rows." if len(self.rows) < self.total else ""


def table(source: SummaryTable, *, rows: int, width: int) -> Table:
    """Format at most `rows` rows, each cell at most `width` characters; short rows are filled with dashes."""
    shown = source.rows[:rows]
    columns, numeric = [], []
    for i, name in enumerate(source.columns):
        values = [row[i] if i < len(row) else None for row in shown]
        columns.append([fmt.line(text, width) for text in _column(values, name)])
        numeric.append(any(_is_number(value) for value in values) and not any(isinstance(v, str) for v in values))
    return Table(
        title=fmt.line(source.title, width),
        columns=tuple(fmt.line(name, width) for name in source.columns),
        numeric=tuple(numeric),
        rows=tuple(zip(*columns, strict=True)) if columns else (),
        total=len(source.rows),
        note=fmt.line(source.note, 1000),
        private=source.private,
    )


def fact(source: Fact) -> str:
    """Format a fact's value with its unit."""
    return fmt.line(fmt.quantity(source.value, source.unit, source.name), 300)


def area(summary: Summary) -> str:
    """Name the part of the work that a step belongs to: the first word of its name."""
    return (fmt.line(summary.step).split() or ["step"])[0]


def _column(values: list[Cell], name: str) -> list[str]:
    numbers = [value for value in values if _is_number(value)]
    if any(isinstance(value, float) for value in numbers) and all(v is None or _is_number(v) for v in values):
        decimal = fmt.column([None if value is None else float(value) for value in values])
        return [fmt.cell(v, name) if isinstance(v, int) else text for v, text in zip(values, decimal, strict=True)]
    return [fmt.cell(value, name) for value in values]


def _is_number(value: Cell) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)

"""Summaries on a terminal: the step, what came of it, and below, indented, its facts and warnings."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradatim.schemas.summary import Summary
from gradatim.tasks.core import format as fmt
from gradatim.tasks.reporting import cells

NARROWEST, NAME = 40, 28
ROWS, WHOLE = 20, 60
"""Rows of a long table that `details` prints, and up to how many a table counts as short and is printed whole."""


def render_terminal(
    summaries: Sequence[Summary], *, width: int = 100, color: bool = False, details: bool = False
) -> str:
    """Return summaries as lines of at most `width` columns, steps in one column and results in the next.

    Parameters
    ----------
    summaries : sequence of Summary
    width : int
        Columns of the terminal; below 40 counts as 40.
    color : bool
        Whether to use ANSI colours; what they say is also said in words or signs.
    details : bool
        Whether to print tables (the first 20 rows of those with more than 60), sources and next steps too. Private
        tables never stand here.
    """
    width = max(NARROWEST, width)
    steps = [fmt.line(summary.step, NAME) for summary in summaries]
    name = min(max([12, *map(len, steps)]), NAME, width // 3)
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for step, summary in zip(steps, summaries, strict=True):
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=name, overflow="fold")
        grid.add_column(overflow="fold", ratio=1)
        grid.add_row(Text(step, style="bold"), _headline(summary))
        facts = _facts(summary, width - name - 3)
        for text in facts:
            grid.add_row("", text)
        for warning in summary.warnings:
            grid.add_row("", _hanging(Text("!", "bold yellow"), Text(fmt.line(warning, 1000), "yellow")))
        if details:
            for advice in summary.next:
                grid.add_row("", _hanging(Text("next", "dim"), Text(fmt.line(advice, 1000))))
            for source in summary.sources:
                grid.add_row("", _hanging(Text("source", "dim"), Text(fmt.line(source, 1000), "dim")))
        console.print(Padding(grid, (0, 0, 0, 2)))
        if details:
            for table in summary.tables:
                if not table.private:
                    rows = WHOLE if len(table.rows) <= WHOLE else ROWS
                    console.print(Padding(_table(cells.table(table, rows=rows, width=60)), (1, 0, 1, name + 3)))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + ("\n" if summaries else "")


def _headline(summary: Summary) -> Text:
    text = Text(fmt.line(summary.headline, 2000))
    if summary.reused:
        text.append("  (reused)", style="dim")
    return text


def _hanging(mark: Text, text: Text) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(mark, text)
    return grid


def _facts(summary: Summary, width: int) -> list[Text]:
    """Lay facts side by side, three blanks between them, as many on a line as fit."""
    lines: list[Text] = []
    for fact in summary.facts:
        text = Text.assemble((fmt.line(fact.name, 120), "dim"), " ", cells.fact(fact))
        if fact.note:
            text.append(f" ({fmt.line(fact.note, 300)})", style="dim")
        if lines and lines[-1].cell_len + 3 + text.cell_len <= width:
            lines[-1].append("   ").append_text(text)
        else:
            lines.append(text)
    return lines


def _table(source: cells.Table) -> Table:
    grid = Table(
        title=Text(source.title, style="bold"),
        title_justify="left",
        caption=Text(" ".join(filter(None, (source.note, source.cut)))) if source.note or source.cut else None,
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for name, numeric in zip(source.columns, source.numeric, strict=True):
        grid.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in source.rows:
        grid.add_row(*map(Text, row))
    return grid

"""A summary as markdown, the form of Prefect's artifacts: pictures inside, 200 rows a table, bounded in size."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator

from gradatim.schemas.summary import Summary, SummaryTable
from gradatim.tasks.core import format as fmt
from gradatim.tasks.reporting import cells, figures

ROWS = 200
"""Most rows of a table in an artifact."""
LIMIT = 600_000
"""Most bytes of an artifact: Prefect drops an artifact's event from 1.5 MB on."""
TABLE_LIMIT = 100_000
"""Most bytes of one table."""


def render_markdown(summary: Summary, *, link: str = "") -> str:
    """Return one step's summary as markdown of at most 600 kB; `link` is where everything stands (report, table).

    Private tables never stand in an artifact. What does not fit is named, never silently left out.
    """
    head = [f"## {escape(summary.step, 200)}", f"**{escape(summary.headline, 2000)}**"]
    if summary.reused:
        head.append("*Reused: nothing that this step depends on has changed.*")
    # told first are warnings, facts and what to do; tables and pictures share what room is left
    before = [("warnings", f"> **Read with care:** {escape(text, 1000)}") for text in summary.warnings]
    before += [("facts", "\n".join(_fact_rows(summary)))] if summary.facts else []
    after = [("next steps", _list("Next", map(_command, summary.next)))] if summary.next else []
    if summary.sources:
        after.append(("sources", _list("Sources", (escape(source, 1000) for source in summary.sources))))
    after += [("link", f"Everything: {_code(link)}")] if link else []
    left = LIMIT - sum(len(part.encode()) + 2 for part in head) - 5000
    missing: dict[str, None] = {}

    def fitting(parts: Iterable[tuple[str, str]]) -> Iterator[str]:
        nonlocal left
        for title, part in parts:
            needed = len(part.encode()) + 2
            if needed <= left:
                left -= needed
                yield part
            else:
                missing[title] = None

    first, last = list(fitting(before)), list(fitting(after))
    middle = list(fitting(_parts(summary, link)))
    if missing:
        middle.append(f"*Too large to stand here: {escape(', '.join(missing), 500)}.*")
    return "\n\n".join([*head, *first, *middle, *last]) + "\n"


def escape(text: object, limit: int) -> str:
    """Return text that markdown shows as it is, on one line, HTML included; wide blanks become a middle dot."""
    shown = html.escape(re.sub(" {2,}", " · ", fmt.line(text, limit)), quote=False)
    return re.sub(r"([\\`*\[\]|~$!#])|(?<!\w)(_)|(_)(?!\w)", lambda match: "\\" + match[0], shown)


def _list(title: str, items: Iterable[str]) -> str:
    return "\n".join([f"**{title}**", "", *(f"- {item}" for item in items)])


def _fact_rows(summary: Summary) -> list[str]:
    rows = ["| | | |", "| :-- | --: | :-- |"]
    for fact in summary.facts[:ROWS]:
        note = escape(fact.note, 300) if fact.note else ""
        rows.append(f"| {escape(fact.name, 120)} | **{escape(cells.fact(fact), 300)}** | {note} |")
    return rows


def _parts(summary: Summary, link: str) -> list[tuple[str, str]]:
    parts = [(table.title, _table(table, link)) for table in summary.tables if not table.private]
    for chart in summary.charts:
        figure = figures.picture(chart)
        caption = f"*{escape(figure.caption, 2000)}*" if figure.caption else ""
        if figure.error:
            parts.append(
                (figure.title, f"*{escape(figure.title, 300)} could not be drawn: {escape(figure.error, 300)}*")
            )
        else:
            parts.append((figure.title, f"![{escape(figure.alt, 300)}]({figure.uri})\n\n{caption}".rstrip()))
    return parts


def _table(source: SummaryTable, link: str) -> str:
    table = cells.table(source, rows=ROWS, width=200)
    lines = [f"**{escape(table.title, 200)}**", ""]
    if not table.rows:
        return "\n".join([*lines, "*No rows.*"])
    lines.append("| " + " | ".join(escape(name, 200) or " " for name in table.columns) + " |")
    lines.append("| " + " | ".join("--:" if numeric else ":--" for numeric in table.numeric) + " |")
    used, shown = sum(map(len, lines)), 0
    for row in table.rows:
        line = "| " + " | ".join(escape(text, 200) for text in row) + " |"
        used += len(line.encode()) + 1
        if used > TABLE_LIMIT:
            break
        lines.append(line)
        shown += 1
    notes = [escape(table.note, 1000)] if table.note else []
    if shown < table.total:
        notes.append(f"The first {shown:,} of {table.total:,} rows" + (f"; all: {_code(link)}" if link else "."))
    return "\n".join([*lines, "", f"*{' '.join(notes)}*"] if notes else lines)


def _command(advice: str) -> str:
    return _code(advice) if advice.startswith("gradatim ") else escape(advice, 1000)


def _code(text: str) -> str:
    shown = fmt.line(text, 1000)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"

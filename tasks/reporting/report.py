"""The report of a run: one self-contained HTML page that reads, and prints, without a network.

The page holds no script and loads nothing: its content policy forbids both. All text is escaped.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gradatim.schemas.summary import Cell, Summary, SummaryTable
from gradatim.tasks.core import format as fmt
from gradatim.tasks.reporting import cells, figures

ROWS = 500
"""Most rows of a table in the report."""
PACKAGES = ("numpy", "scipy", "polars", "pyarrow", "deltalake", "great-expectations", "prefect", "torch", "deepspeed")


@dataclass(frozen=True)
class Report:
    """What the page tells.

    Attributes
    ----------
    title : str
        What was run, e.g. ``SCAN: length split and curriculum``.
    dataset : str
    created : datetime
        With a time zone; shown in UTC.
    headline : tuple of str
        The claims, most important first, each one plain sentence with its interval.
    summaries : tuple of Summary
        One a step, in the order of the work.
    recipe_yaml : str
        The recipe as it was run.
    provenance : tuple of (name, value)
        Release, store, run, seeds, fingerprints.
    versions : SummaryTable or None
        The tables that the run read or wrote, with version, rows and content hash.
    packages : tuple of (name, version)
        See `package_versions`.
    commands : tuple of str
        What reproduces the run, in order.
    local : bool
        Whether tables with the users' own text are shown; False for anything that leaves their machine.
    """

    title: str
    dataset: str
    created: datetime
    headline: tuple[str, ...] = ()
    summaries: tuple[Summary, ...] = ()
    recipe_yaml: str = ""
    provenance: tuple[tuple[str, Cell], ...] = ()
    versions: SummaryTable | None = None
    packages: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    local: bool = False


def package_versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of Python, of gradatim and of the packages that results rest on, where installed."""
    found = [("python", platform.python_version())]
    for name in ("gradatim", *PACKAGES):
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def render_html(report: Report) -> str:
    """Return the page as text; the same report gives the same bytes.

    Costs about 0.2 s a chart. A chart that cannot be drawn is named in its place with the reason.
    """
    sections = list(_sections(report))
    areas: dict[str, list[dict[str, Any]]] = {}
    for section in sections:
        areas.setdefault(section["area"], []).append(section)
    created = report.created.astimezone(UTC) if report.created.tzinfo else report.created.replace(tzinfo=UTC)
    css, page = _template()
    html: str = page.render(
        report=report,
        css=css,
        created=created.strftime("%Y-%m-%d %H:%M UTC"),
        sections=sections,
        areas=areas,
        warned=sum(len(summary.warnings) for summary in report.summaries),
        versions=cells.table(report.versions, rows=ROWS, width=300) if report.versions else None,
    )
    return html


def _sections(report: Report) -> Iterator[dict[str, Any]]:
    """Prepare each step: its anchor, its area and everything formatted."""
    seen: Counter[str] = Counter()
    for number, summary in enumerate(report.summaries, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", fmt.line(summary.step, 60).lower()).strip("-") or "step"
        seen[slug] += 1
        anchor = slug if seen[slug] == 1 else f"{slug}-{seen[slug]}"
        shown = [table for table in summary.tables if report.local or not table.private]
        yield {
            "anchor": f"step-{anchor}",
            "area": cells.area(summary),
            "summary": summary,
            "facts": [(fact.name, cells.fact(fact), fact.note) for fact in summary.facts],
            "tables": [cells.table(table, rows=ROWS, width=2000) for table in shown],
            "hidden": len(summary.tables) - len(shown),
            "figures": [figures.drawing(c, f"f{number}-{i}") for i, c in enumerate(summary.charts, start=1)],
        }


@cache
def _template() -> tuple[Any, Any]:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        # every expression of the page passes here: hostile characters end, whoever wrote the text
        return value if isinstance(value, Markup) or not isinstance(value, str) else fmt.safe(value, 100_000)

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = fmt.cell
    environment.filters["svg"] = Markup  # drawn by us and reduced to known shapes
    environment.filters["is_command"] = lambda text: text.startswith("gradatim ")
    css = Markup((folder / "report.css").read_text(encoding="utf-8"))
    return css, environment.get_template("report.html.jinja")

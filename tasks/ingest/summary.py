"""What ingest tells people: every row is accounted for."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core import format as fmt
from gradatim.tasks.ingest.examples import IngestCounts
from gradatim.tasks.ingest.settle import Responded


def examples_summary(
    counts: IngestCounts, rejects: pl.DataFrame, files: int, columns: Sequence[str], reused: bool
) -> Summary:
    reasons = rejects.group_by("reason", "column").len("rows").sort("rows", "reason", descending=[True, False])
    listed = tuple((r["reason"], r["column"], r["rows"]) for r in reasons.head(50).iter_rows(named=True))
    some = rejects.sort("source_uri", "source_row").head(20)
    names = SummaryTable("Columns of the table examples", ("columns",), ((", ".join(columns),),))
    tables: tuple[SummaryTable, ...] = (names,)
    if len(rejects):
        tables = (
            names,
            SummaryTable("Rejected rows, by reason", ("reason", "column", "rows"), listed),
            SummaryTable("Rejected rows, the first 20", tuple(some.columns), tuple(some.iter_rows()), private=True),
        )
    return Summary(
        step="ingest",
        headline=str(counts),
        facts=(
            Fact("files", files),
            Fact("rows in", counts.rows_in),
            Fact("published", counts.published),
            Fact("rejected", counts.rejected),
            Fact("re-delivered", counts.redelivered, note="equal rows, collapsed"),
            Fact("new", counts.new),
            Fact("changed", counts.changed),
            Fact("vanished", counts.vanished),
        ),
        tables=tables,
        reused=reused,
    )


def responses_summary(found: Responded, asked: float) -> Summary:
    """Summarise responses; `asked` is the smallest share that had to be joined."""
    return Summary(
        step="responses",
        headline=str(found),
        facts=(
            Fact("rows in", found.rows_in),
            Fact("usable", found.rows_in - len(found.rejects)),
            Fact("joined", fmt.share(found.joined), note=f"at least {fmt.share(asked)} is asked"),
            Fact("re-delivered", found.redelivered),
            Fact("rejected", len(found.rejects)),
        ),
        tables=tuple(
            SummaryTable(title, tuple(rows.columns), tuple(rows.head(50).iter_rows()), private=True)
            for title, rows in (
                ("Responses without an example", found.unjoined),
                ("Rejected responses", found.rejects),
            )
            if len(rows)
        ),
    )

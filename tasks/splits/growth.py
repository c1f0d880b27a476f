"""Components of near-duplicates from release to release: they grow, keep their names, and tell what they touch."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.components import grow
from gradatim.tasks.core.frames import conform

_SHOWN = 200


@dataclass(frozen=True)
class Grown:
    """Components after a night.

    Attributes
    ----------
    table : polars.DataFrame
        In the schema of the table `components`: the rows that there are now.
    merges : polars.DataFrame
        component, absorbed, and frozen: the released test rows that it touches; see `Growth`.
    joined : polars.DataFrame
        example_id, component, frozen of the rows that came to others.
    """

    table: pl.DataFrame
    merges: pl.DataFrame
    joined: pl.DataFrame

    def summary(self) -> Summary:
        """Describe what grew for terminal, report and artifact."""
        sizes = self.table.group_by("component").len().filter(pl.col("len") > 1)
        rows = int(sizes["len"].sum())
        touched = self.merges.filter(pl.col("frozen").list.len() > 0)
        beside = self.joined.filter("frozen")
        headline = f"{len(sizes):,} components of near-duplicates hold {rows:,} of {len(self.table):,} rows"
        if len(self.merges):
            headline += f"   merged {len(self.merges):,}, {len(touched):,} of them with frozen test rows"
        return Summary(
            step="components",
            headline=headline,
            facts=(
                Fact("components of several rows", len(sizes)),
                Fact("rows in these", rows),
                Fact("largest", int(sizes["len"].max() or 0), "rows"),  # type: ignore[arg-type]
                Fact("new rows beside others", len(self.joined), note=f"{len(beside):,} beside frozen test rows"),
                Fact("merges", len(self.merges), note=f"{len(touched):,} touch frozen test rows"),
            ),
            tables=(_merged(touched),) if len(touched) else (),
            warnings=tuple(_told(touched)),
        )


def grow_components(known: pl.DataFrame, pairs: pl.DataFrame, ids: pl.Series, frozen: pl.Series) -> Grown:
    """Add pairs and new rows to the components of a release.

    Parameters
    ----------
    known : polars.DataFrame
        Table `components` of the release; no rows before the first.
    pairs : polars.DataFrame
        left_id, right_id: all that ties rows now.
    ids : polars.Series of String
        The rows that there are now. Those that are gone still hold their component together, and are not listed.
    frozen : polars.Series of String
        Released test rows.

    Returns
    -------
    Grown
        Nobody's component gets another name but by a merge: the smaller of two names stays, and the column absorbed
        keeps the other.
    """
    here = ids.cast(pl.String).to_frame("example_id")
    grown = grow(known, pairs, frozen, new=here["example_id"])
    table = grown.components.join(here, on="example_id", how="semi")
    former = known.select("example_id", was="component", before="absorbed")
    table = table.join(former, on="example_id", how="left").with_columns(
        absorbed=pl.when(pl.col("was") != pl.col("component")).then("was").otherwise("before")
    )
    joined = grown.joined.join(here, on="example_id", how="semi")
    return Grown(conform(table, "components"), grown.merges, joined)


def _merged(touched: pl.DataFrame) -> SummaryTable:
    rows = [
        (component, absorbed, len(frozen), ", ".join(frozen[:_SHOWN]) + (", …" if len(frozen) > _SHOWN else ""))
        for component, absorbed, frozen in touched.head(_SHOWN).select("component", "absorbed", "frozen").iter_rows()
    ]
    more = len(touched) - len(rows)
    note = f"{more:,} more in the column absorbed of the table components" if more else ""
    columns = ("component", "absorbed", "frozen test rows", "ids")
    return SummaryTable("Merged components with frozen test rows", columns, tuple(rows), note=note)


def _told(touched: pl.DataFrame) -> list[str]:
    if touched.is_empty():
        return []
    component, absorbed, frozen = touched.select("component", "absorbed", "frozen").row(0)
    first = f"{component!r} took in {absorbed!r}, with {len(frozen):,} frozen test rows"
    more = f", and {len(touched) - 1:,} more" if len(touched) > 1 else ""
    return [
        f"new rows tie components of frozen test rows to others ({first}{more}): rows of these that were trained on "
        "are excluded from now on, and models trained on them have seen near-duplicates of the test"
    ]

"""Rows that tell of examples (dynamics, options, features) joined to the examples that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core import format as fmt

SHOWN = 50


@dataclass(frozen=True)
class Joined:
    """Rows whose example there is, how many rows came, and the ids that no example has.

    Attributes
    ----------
    rows : polars.DataFrame
    rows_in : int
    unknown : polars.DataFrame
        example_id, rows; sorted by id.
    examples : int
        Examples that the rows tell of.
    """

    rows: pl.DataFrame
    rows_in: int
    unknown: pl.DataFrame
    examples: int

    def summary(self, table: str, asked: float, warnings: Sequence[str] = ()) -> Summary:
        """Summarise for terminal, report and artifact; `asked` is the smallest share that had to be joined."""
        note = f"{len(self.unknown)} in all, {SHOWN} shown" if len(self.unknown) > SHOWN else ""
        unknown = tuple(self.unknown.head(SHOWN).iter_rows())
        return Summary(
            step=table,
            headline=f"{fmt.count(len(self.rows))} rows of {fmt.count(self.examples)} examples",
            facts=(
                Fact("rows in", self.rows_in),
                Fact("joined", fmt.share(len(self.rows) / self.rows_in), note=f"at least {fmt.share(asked)} is asked"),
                Fact("examples", self.examples),
            ),
            warnings=tuple(warnings),
            tables=(SummaryTable("Rows without an example", ("example_id", "rows"), unknown, note),) if unknown else (),
        )


def join_examples(frame: pl.DataFrame, ids: pl.Series, share: float, *, where: str) -> Joined:
    """Keep the rows whose example_id is among `ids`.

    Parameters
    ----------
    frame : polars.DataFrame
        With a column example_id.
    ids : polars.Series of str
    share : float
        Smallest share of rows that must find their example.

    Raises
    ------
    DataRefused
        If fewer do, or there is no row.
    """
    if not len(frame):
        raise DataRefused("there is no row in the whole source", where=where, expected="at least one")
    known = pl.DataFrame({"example_id": ids.cast(pl.String)})
    rows = frame.join(known, on="example_id", how="semi", maintain_order="left")
    unknown = frame.select("example_id").join(known, on="example_id", how="anti")
    unknown = unknown.group_by("example_id").len("rows").sort("example_id")
    if len(rows) < share * len(frame) or not len(rows):
        raise DataRefused(
            f"{fmt.count(len(rows))} of {fmt.count(len(frame))} rows find their example "
            f"({fmt.share(len(rows) / len(frame))}); unknown is e.g. {unknown['example_id'][0]!r}",
            where=where,
            expected=f"at least {fmt.share(share)} (checks.joined)",
            remedy="name the column that holds the examples' ids, e.g.  example: guid",
        )
    return Joined(rows, len(frame), unknown, rows["example_id"].n_unique())

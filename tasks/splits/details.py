"""What a reviewer wants to see of a split: examples of each bin, the nearest pairs across it, what was left out."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from gradatim.schemas.hashing import uniform
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.splits.measures.block import Block
from gradatim.tasks.splits.measures.shift import Told, nearest_pairs

A_BIN = 5
"""Examples shown of each split and difficulty bin."""
MOST_EXCLUDED = 50
_CHARACTERS = 160


@dataclass(frozen=True)
class Details:
    """Rows to look at, of one seed and fold.

    Attributes
    ----------
    where : str
        Which seed and fold, where there are several.
    examples : polars.DataFrame
        split, bin (where known), example_id, input, output: five a split and bin, drawn by their ids.
    nearest : polars.DataFrame
        test_id, train_id, similarity and both inputs, see `nearest_pairs`.
    excluded : polars.DataFrame
        example_id and reason, the first 50 by reason.
    excluded_rows : int
    """

    where: str
    examples: pl.DataFrame
    nearest: pl.DataFrame
    excluded: pl.DataFrame
    excluded_rows: int

    def tables(self) -> tuple[SummaryTable, ...]:
        """Return the tables of a report; those with texts are private."""
        found = []
        for title, frame, private, note in (
            ("Examples", self.examples, True, f"{A_BIN} drawn from each split and difficulty bin"),
            ("Nearest pairs of test and train", self.nearest, True, "by hashed words and character n-grams"),
            ("Excluded rows", self.excluded, False, f"{len(self.excluded):,} of {self.excluded_rows:,}, by reason"),
        ):
            if len(frame):
                short = frame.with_columns(pl.col(pl.String).str.slice(0, _CHARACTERS).str.replace_all(r"\s+", " "))
                rows = tuple(short.with_columns(pl.col(pl.Float64).round(3)).iter_rows())
                names = tuple(name.replace("_", " ") for name in frame.columns)
                found.append(SummaryTable(title + self.where, names, rows, note=note, private=private))
        return tuple(found)


def details(block: Block, excluded: pl.DataFrame, told: Told | None, where: str) -> Details:
    """Choose what to show of one split; `excluded` are its excluded rows with their reasons."""
    return Details(
        where=where,
        examples=_examples(block),
        nearest=pl.DataFrame() if told is None else nearest_pairs(told),
        excluded=excluded.select("example_id", "reason").sort("reason", "example_id").head(MOST_EXCLUDED),
        excluded_rows=len(excluded),
    )


def _examples(block: Block) -> pl.DataFrame:
    if not block.has("input"):
        return pl.DataFrame()
    rows = block.rows.filter(pl.col("split") != "excluded")
    by = ["split", *(["bin"] if block.has("bin") else [])]
    drawn = rows.with_columns(draw=pl.Series(uniform(rows["example_id"], block.seed, "certificate examples")))
    shown = [*by, "example_id", "input", *(["output"] if block.has("output") else [])]
    return drawn.filter(pl.col("draw").rank("ordinal").over(by) <= A_BIN).sort([*by, "draw"]).select(shown)

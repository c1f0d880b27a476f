"""What an embedder gives back in a notebook: vectors, the fit that made them, and what was out of the ordinary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Fact, Summary
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.registry import Config, Plugin
from gradatim.tasks.embedding.embedder import Embedder, Fit, choose_sample, vectors


@dataclass(frozen=True, repr=False)
class Embedding:
    """Vectors of examples.

    Attributes
    ----------
    method : str
        Name of the embedder.
    table : polars.DataFrame
        example_id and embedding, ``Array(Float32, width)``, sorted by example_id: the table `features_NAME`.
    fit : mapping of str to numpy.ndarray
        What was learned.
    counts : mapping of str to int
        How many rows were out of the ordinary, by what they were.
    facts : tuple of Fact
        What is worth saying of the fit.
    source : str
        Authors (year). Title.
    embedder : Embedder
    """

    method: str
    table: pl.DataFrame
    fit: Fit
    counts: Mapping[str, int]
    facts: tuple[Fact, ...]
    source: str
    embedder: Embedder

    @property
    def matrix(self) -> NDArray[np.float32]:
        """Vectors in the order of the table, shape (rows, width), float32."""
        return self.table[EMBEDDING].to_numpy().reshape(len(self.table), self.width)

    @property
    def width(self) -> int:
        """Length of the vectors."""
        return self.embedder.width(self.fit)

    def embed(self, examples: pl.DataFrame) -> Embedding:
        """Embed other examples by the same fit, in the same space; raises as `embed`."""
        return _embedded(self, examples)

    def summary(self) -> Summary:
        """Describe the result for people."""
        return embedding_summary(
            self.method, len(self.table), self.width, self.facts, self.counts, self.source, new=len(self.table)
        )

    def cite(self) -> str:
        """Return the source to cite."""
        return self.source

    def __repr__(self) -> str:
        notes = [f"  ! {warning}" for warning in self.summary().warnings]
        facts = [f"  {fact.name:<22} {fact.value}" for fact in self.facts]
        return "\n".join(
            [f"Embedding {self.method}: {len(self.table):,} vectors of {self.width} numbers", *facts, *notes]
        )


def embed(plugin: Plugin, config: Config, examples: pl.DataFrame, seed: int) -> Embedding:
    """Fit an embedder on examples and embed them.

    Parameters
    ----------
    plugin : Plugin
        Of the area `embedding`.
    config : Config
    examples : polars.DataFrame
        example_id, unique, and the columns that the embedder reads; in any order.
    seed : int

    Raises
    ------
    UsageError
        A column is not there, or of another kind.
    DataRefused
        There is no row, an id is null or stands twice, or the embedder refuses the data.
    """
    embedder: Embedder = plugin.run(config, seed)
    rows = _rows(embedder, examples, plugin.name)
    chosen = choose_sample(rows["example_id"], embedder.sample, seed) if embedder.learns else rows["example_id"].head(0)
    fit = embedder.fit(rows.join(chosen.to_frame(), on="example_id", how="semi").sort("example_id"))
    empty = Embedding(plugin.name, rows.head(0), fit, {}, embedder.facts(fit), plugin.source, embedder)
    return _embedded(empty, rows)


def embedding_summary(
    name: str,
    rows: int,
    width: int,
    facts: tuple[Fact, ...],
    counts: Mapping[str, int],
    source: str,
    *,
    new: int,
    fitted: str = "",
) -> Summary:
    """Describe a table of vectors; `new` of the rows were embedded now, `fitted` says on what the fit rests."""
    zero = sum(number for what, number in counts.items() if "vector of zeros" in what)
    return Summary(
        step=f"features {name}",
        headline=f"{rows:,} vectors of {width} numbers" + (f", {new:,} of them new" if new < rows else ""),
        facts=(
            Fact("rows", rows),
            Fact("embedded now", new),
            Fact("width", width),
            *([Fact("fitted on", fitted)] if fitted else []),
            *facts,
        ),
        warnings=tuple(f"{number:,} of {rows:,} rows {what}" for what, number in sorted(counts.items()))
        if zero < rows
        else (f"all {rows:,} rows have a vector of zeros: look at the column", *map(str, sorted(counts))),
        sources=(source,),
    )


def _embedded(made: Embedding, examples: pl.DataFrame) -> Embedding:
    rows = _rows(made.embedder, examples, made.method)
    frames, counts = [], Counter[str]()
    for frame, found in vectors(made.embedder, made.fit, rows, f"embedding {made.method}"):
        frames.append(frame)
        counts.update(found.counts)
    return replace(made, table=pl.concat(frames), counts=dict(counts))


def _rows(embedder: Embedder, examples: pl.DataFrame, name: str) -> pl.DataFrame:
    where = f"embedding {name}"
    if "example_id" not in examples.columns:
        raise UsageError(
            "there is no column 'example_id'", where=where, expected="a unique id a row", remedy="gd.read makes one"
        )
    there: list[Any] = [column for column in embedder.columns if column in examples.columns]
    rows = examples.select(pl.col("example_id").cast(pl.String), *there)
    if not len(rows):
        raise DataRefused("there is no row", where=where, expected="at least one")
    if rows["example_id"].null_count() or rows["example_id"].is_duplicated().any():
        raise DataRefused("an example_id is null or stands twice", where=where, expected="a unique id a row")
    lacking = [column for column in embedder.columns if column not in examples.columns]
    if lacking:
        raise UsageError(
            f"there is no column {lacking[0]!r}{nearest(lacking[0], examples.columns)}",
            where=where,
            expected="one of " + ", ".join(examples.columns),
        )
    return rows.sort("example_id")

"""Whether the ids of a source are those of the examples: ids alone are read, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import random_bits
from gradatim.schemas.recipe import Dynamics, Examples, Features, Options, Responses
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.dynamics import files_and_ids
from gradatim.tasks.ingest.examples import examples_schema, read_options
from gradatim.tasks.ingest.features import feature_shards
from gradatim.tasks.ingest.lm_eval import read_lm_eval
from gradatim.tasks.ingest.mapping import mapped_columns, row_ids
from gradatim.tasks.ingest.numpy_files import numpy_vectors
from gradatim.tasks.ingest.reading import ReadOptions, read_shard, shard_schema, source_schema
from gradatim.tasks.ingest.responses import wide_column
from gradatim.tasks.ingest.sources import Shard, shards

SHOWN = 3
"""Ids without an example that are named."""
Section: TypeAlias = Dynamics | Features | Options | Responses
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Meeting:
    """How a source's rows meet the examples.

    Attributes
    ----------
    rows, joined : int
        Rows with an id, and those whose id is an example's.
    examples : int
        Examples that have a row.
    unknown : tuple of str
        The first ids that no example has, as they come.
    """

    rows: int
    joined: int
    examples: int
    unknown: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of rows that find their example."""
        return self.joined / max(1, self.rows)

    def note(self) -> str:
        """Say it in one line."""
        named = f"; without an example e.g. {', '.join(map(repr, self.unknown))}" if self.unknown else ""
        rows = f"{fmt.count(self.joined)} of {fmt.count(self.rows)} rows"
        return f"{rows}, of {fmt.count(self.examples)} examples{named}"


def known_ids(examples: Examples, *, base: str | Path = ".", seed: int = 0) -> Hashes:
    """Return the sorted hashes of the ids of a source of examples, or of a procedural data set: 8 bytes an example."""
    parts = [random_bits(ids, 0, "meeting") for ids, _ in _examples(examples, base, seed, inputs=False)]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *parts]))


def meet(section: Section, known: Hashes, examples: Examples, *, base: str | Path = ".", seed: int = 0) -> Meeting:
    """Count the rows of a source whose id is an example's.

    Parameters
    ----------
    section : Dynamics, Features, Options or Responses
    known : numpy.ndarray of uint64
        As `known_ids` gives it.
    examples : Examples
        Read again, with the inputs, where responses are joined by these.
    base : str or Path
    seed : int
        Of a procedural data set.

    Raises
    ------
    UsageError, DataRefused
        As reading the source does.

    Notes
    -----
    One pass over the column of ids; logs of the lm-evaluation-harness are read whole.
    """
    if isinstance(section, Responses) and section.format == "lm-eval":
        return _logs(section, examples, base, seed)
    rows = joined = 0
    unknown: dict[str, None] = {}
    met = np.zeros(len(known), dtype=bool)
    for ids, times in _ids(section, base):
        ids = ids.cast(pl.String)
        blank = ids.str.strip_chars().fill_null("") == ""
        ids, times = ids.filter(~blank), times.filter(~blank)
        hashes = random_bits(ids, 0, "meeting")
        place = np.minimum(np.searchsorted(known, hashes), max(len(known) - 1, 0))
        here = known[place] == hashes if len(known) else np.zeros(len(ids), dtype=bool)
        met[place[here]] = True
        rows += int(times.sum())
        joined += int(times.filter(pl.Series(here)).sum())
        if len(unknown) < SHOWN:
            unknown |= dict.fromkeys(ids.filter(pl.Series(~here)).unique(maintain_order=True).head(SHOWN).to_list())
    return Meeting(rows, joined, int(met.sum()), tuple(unknown)[:SHOWN])


def demand(found: Meeting, share: float, *, where: str) -> None:
    """Raise `DataRefused` where a smaller share of the rows finds its example than a run asks."""
    if found.rows and (found.share < share or not found.joined):
        raise DataRefused(
            f"{found.note()} ({fmt.share(found.share)})",
            where=where,
            expected=f"at least {fmt.share(share)} of the rows to find their example (checks.joined)",
            remedy="name the column that holds the examples' ids, e.g.  example: guid",
        )


def _examples(
    examples: Examples, base: str | Path, seed: int, *, inputs: bool
) -> Iterator[tuple[pl.Series, pl.Series | None]]:
    """Yield ids, and inputs if asked."""
    if examples.generate is not None:
        plugin, config = resolve("dataset", examples.generate, where="examples.generate")
        for frame in plugin.run(config, seed):
            yield frame["example_id"].cast(pl.String), frame["input"] if inputs else None
        return
    found = shards(str(examples.source), base, examples.format)
    options = read_options(examples)
    schema = examples_schema({shard.uri: shard_schema(shard, options) for shard in found}, examples)
    column = mapped_columns(examples, schema.names).get("input", "")
    read = [examples.id] if examples.id else examples.identity or [column]
    read = [*read, column] if inputs else read
    options = replace(options, schema=_narrow(schema, set(read)))
    for batch in (batch for shard in found for batch in read_shard(shard, options)):
        ids, empty = row_ids(batch.table, examples)
        kept = pl.Series(~empty)
        texts = pl.Series(pl.from_arrow(text(batch.table[column]))).filter(kept) if inputs and column else None
        yield pl.Series(pl.from_arrow(ids)).cast(pl.String).filter(kept), texts


def _ids(section: Section, base: str | Path) -> Iterator[tuple[pl.Series, pl.Series]]:
    """Yield the ids of a source and how many rows each stands for."""
    if isinstance(section, Features):
        found, column = feature_shards(section, base), section.example
    elif isinstance(section, Dynamics):
        found, column = files_and_ids(section, base)
    else:
        found, column = shards(section.source, base, section.format), section.example
    if isinstance(section, Responses):
        options = ReadOptions(text_columns=frozenset({section.respondent, column}))
        schema = source_schema({shard.uri: shard_schema(shard, options) for shard in found})
        wide = wide_column(section, schema)
        if wide:
            yield from _wide_ids(section, found, schema, wide)
            return
    for shard in found:
        if shard.format == "npy" and isinstance(section, Features):
            for ids, _, _ in numpy_vectors(shard, section, base):
                yield _once(ids)
            continue
        options = ReadOptions(text_columns=frozenset({column}))
        if shard.format in ("parquet", "arrow"):  # the head names the columns, and no other one is read
            options = replace(options, schema=_narrow(shard_schema(shard, options), {column}))
        for batch in read_shard(shard, options):
            if len(batch.rows) and column in batch.table.schema.names:
                yield _once(pl.Series(pl.from_arrow(text(batch.table[column]))))


def _wide_ids(
    section: Responses, found: list[Shard], schema: pa.Schema, wide: str
) -> Iterator[tuple[pl.Series, pl.Series]]:
    """Ids of a wide table: those of its rows, or the names of its further columns; its filled cells are the rows."""
    options = ReadOptions(text_columns=frozenset({section.respondent, section.example}), schema=schema)
    others = [name for name in schema.names if name != wide]
    for batch in (batch for shard in found for batch in read_shard(shard, options)):
        frame = pl.DataFrame(pl.from_arrow(batch.table.select(others)))
        if wide == section.example:
            filled = frame.select(pl.sum_horizontal(pl.all().is_not_null().cast(pl.Int64))).to_series()
            yield pl.Series(pl.from_arrow(text(batch.table[wide]))), filled
        else:
            yield pl.Series(others, dtype=pl.String), pl.Series(frame.select(pl.all().count()).row(0), dtype=pl.Int64)


def _once(ids: pl.Series) -> tuple[pl.Series, pl.Series]:
    return ids, pl.repeat(1, len(ids), dtype=pl.Int64, eager=True)


def _narrow(schema: pa.Schema, wanted: set[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in wanted])


def _logs(section: Responses, examples: Examples, base: str | Path, seed: int) -> Meeting:
    asked = {key: getattr(section, key) for key in ("metric", "filter", "join")}
    parts = list(_examples(examples, base, seed, inputs=True))
    ids = pl.concat([part for part, _ in parts])
    frame = pl.DataFrame({"example_id": ids})
    texts = [part for _, part in parts if part is not None]
    if texts:
        frame = frame.with_columns(input=pl.concat(texts).cast(pl.String))
    found = read_lm_eval(section.source, base=base, examples=frame, joined=0.0, **asked)
    missed = found.unjoined
    joined = len(found.responses) + found.redelivered
    unknown = missed["example"].cast(pl.String).head(SHOWN).to_list()
    rows = joined + int(missed["n"].sum())
    return Meeting(rows, joined, found.responses["example_id"].n_unique(), tuple(unknown))

"""What another trainer logged of each example at each epoch, to the table `dynamics`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Dynamics
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.ingest.dynamics_columns import Columns
from gradatim.tasks.ingest.reading import Batch, ReadOptions, Reject, read_shard, shard_schema, source_schema
from gradatim.tasks.ingest.sources import Shard, shards

FIGURES = ("gold_probability", "correct", "loss", "margin", "error_norm", "hidden_norm", "alignment")
RUN = "run"
"""Name of the only run where no column names runs."""

_EPOCH_FILE = re.compile(r"^dynamics_epoch_\d+\.")
_EPOCH_KEY = re.compile(r"^logits_epoch_(\d+)$")


def read_dynamics(settings: Dynamics, base: str | Path = ".") -> pl.DataFrame:
    """Read training dynamics: a row an example and epoch.

    Parameters
    ----------
    settings : Dynamics
        Files with columns as named there: the figures themselves, or a list of logits or of class probabilities and the
        right class, from which the figures that are not given are computed. ``format: cartography`` (found by the names
        of the files, too) reads files ``dynamics_epoch_N.jsonl`` with guid, logits_epoch_N and gold.
    base : str or Path
        Folder from which a relative source starts.

    Returns
    -------
    polars.DataFrame
        Table `dynamics`, sorted by run_id and position. Figures that are not finite are null and counted in a warning,
        as are lines that cannot be read. Without a column of positions, rows are counted epoch by epoch in the order of
        files and lines.

    Raises
    ------
    UsageError
        A column that is not there, or no figure at all.
    DataRefused
        A row without an id or epoch, a right class that is none of the list's, probabilities that do not sum to one, a
        figure out of its bounds, two rows of a run at one position: with the file and row.

    Notes
    -----
    A million rows of logits of three classes take two seconds. An answer is right where its logit is above all others:
    a tie is wrong.
    """
    found, options, maps = _plan(settings, base)
    frames: list[pl.DataFrame] = []
    rejects: list[Reject] = []
    for shard in found:
        for batch in read_shard(shard, options):
            rejects += batch.rejects
            if len(batch.rows):
                frames += [_frame(batch, shard, one) for one in _epochs(settings, batch, shard, maps)]
    if not frames:
        why = f": {_unread(rejects)}" if rejects else ""
        raise DataRefused(
            f"there is no row in the whole source{why}", where=settings.source, expected="a row an example and epoch"
        )
    table = _placed(pl.concat(frames), settings)
    _warn(table, rejects)
    return table.select(list(polars_schema("dynamics"))).sort("run_id", "position")


def check_dynamics(settings: Dynamics, base: str | Path = ".") -> tuple[str, ...]:
    """Try what `read_dynamics` would read: the columns of all files, and the beginning of the first with a row.

    Returns
    -------
    tuple of str
        Those of `FIGURES` that there will be: given by a column, or by logits or probabilities.
    """
    found, options, maps = _plan(settings, base)
    for shard in found:
        for batch in read_shard(shard, options):
            if len(batch.rows):
                names = batch.table.schema.names
                frame = pl.concat(_frame(batch, shard, one) for one in _epochs(settings, batch, shard, maps))
                filled = {name for name in FIGURES if frame[name].null_count() < len(frame)}
                return tuple(name for name in FIGURES if name in filled or getattr(settings, name) in names)
    raise DataRefused("there is no row in the whole source", where=settings.source)


def files_and_ids(settings: Dynamics, base: str | Path = ".") -> tuple[list[Shard], str]:
    """List the files, and name their column of examples: cartography's is ``guid`` unless said otherwise."""
    found, _, maps = _plan(settings, base)
    return found, "guid" if maps and "example" not in settings.model_fields_set else settings.example


def _plan(settings: Dynamics, base: str | Path) -> tuple[list[Shard], ReadOptions, bool]:
    """List the files, how to read them, and whether they are cartography's."""
    maps = settings.format == "cartography"
    found = shards(settings.source, base, None if maps else settings.format)
    if maps:
        found = [shard for shard in found if _is_map(shard)]
        if not found:
            raise UsageError("no file here is called dynamics_epoch_N.jsonl", where=settings.source)
    elif settings.format is None and settings.logits is None and settings.probabilities is None:
        maps = all(map(_is_map, found))
    return found, _options(settings, found, maps), maps


def _is_map(shard: Shard) -> bool:
    return shard.format == "jsonl" and _EPOCH_FILE.search(shard.path.name) is not None


def _options(settings: Dynamics, found: list[Shard], maps: bool) -> ReadOptions:
    ids = {settings.example, "guid"} if maps else {settings.example, *([settings.run] if settings.run else [])}
    options = ReadOptions(text_columns=frozenset(ids))
    if maps:
        return options  # each file has columns of its own
    schema = source_schema({shard.uri: shard_schema(shard, options) for shard in found})
    return ReadOptions(text_columns=frozenset(ids), schema=schema)


def _epochs(settings: Dynamics, batch: Batch, shard: Shard, maps: bool) -> Iterator[Dynamics | tuple[Dynamics, int]]:
    """Yield the settings to read a batch by; cartography's with the epoch that a key or file names."""
    if not maps:
        yield settings
        return
    names = batch.table.schema.names
    keys = [key for key in names if _EPOCH_KEY.match(key)]
    if not keys:
        raise UsageError(
            "there is no column logits_epoch_N",
            where=shard.uri,
            expected="guid, logits_epoch_N and gold; found " + ", ".join(names[:20]),
            remedy="name the columns: logits, gold, example, epoch, and the format: jsonl",
        )
    example = settings.example if "example" in settings.model_fields_set else "guid"
    for key in keys:
        match = _EPOCH_KEY.match(key)
        assert match is not None
        update = {"example": example, "logits": key, "gold": settings.gold or "gold"}
        yield settings.model_copy(update=update), int(match[1])


def _frame(batch: Batch, shard: Shard, how: Dynamics | tuple[Dynamics, int]) -> pl.DataFrame:
    """Turn a batch into the columns of the table; `position` may be null."""
    settings, epoch = how if isinstance(how, tuple) else (how, None)
    reader = Columns(batch, shard, settings)
    example = reader.text(settings.example, "example")
    run = reader.text(settings.run, "run") if settings.run else pl.repeat(RUN, len(example), eager=True)
    epochs = reader.whole(settings.epoch, "epoch") if epoch is None else np.full(len(example), epoch)
    position = reader.whole(settings.position, "position") if settings.position else None
    derived = reader.derived()
    columns: dict[str, pl.Series | NDArray[np.float64]] = {}
    for name in FIGURES:
        column = getattr(settings, name)
        given = column in batch.table.schema.names
        if not given and name in settings.model_fields_set:
            raise reader.no_column(column, name)
        if given:
            columns[name] = reader.figure(column, name)
        elif derived is not None and name in derived._fields:
            columns[name] = reader.bounded(getattr(derived, name), name)
    if not columns:
        raise UsageError(
            "there is no figure",
            where=f"dynamics: {shard.uri}",
            expected="one of the columns " + ", ".join(FIGURES) + "; found " + ", ".join(batch.table.schema.names[:20]),
            remedy="name one, or a column of logits and that of the right class: logits: COLUMN, gold: COLUMN",
        )
    kinds = polars_schema("dynamics")
    figures = {
        name: pl.Series(columns[name]).fill_nan(None).cast(kinds[name])
        if name in columns
        else pl.repeat(None, len(example), dtype=kinds[name], eager=True)
        for name in FIGURES
    }
    return pl.DataFrame(
        {
            "run_id": run,
            "position": pl.repeat(None, len(example), dtype=pl.Int64, eager=True) if position is None else position,
            "example_id": example,
            "epoch": pl.Series(epochs, dtype=pl.Int64).cast(pl.Int32),
            **figures,
        }
    )


def _placed(table: pl.DataFrame, settings: Dynamics) -> pl.DataFrame:
    """Number the rows where no column does; refuse two at one place."""
    if settings.position is None:
        ordered = table.sort("run_id", "epoch", maintain_order=True)
        return ordered.with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("run_id"))
    twice = table.filter(pl.struct("run_id", "position").is_duplicated()).sort("run_id", "position")
    if len(twice):
        raise DataRefused(
            f"the run {twice['run_id'][0]!r} has two rows at position {twice['position'][0]}, of the examples "
            f"{twice['example_id'][0]!r} and {twice['example_id'][1]!r}",
            where=f"dynamics.position: {settings.source}",
            expected="one row a run and position",
            remedy="name the column of runs: run: COLUMN, or leave position out",
        )
    return table


def _warn(table: pl.DataFrame, rejects: list[Reject]) -> None:
    told = [name for name in FIGURES if table[name].null_count() < len(table)]
    absent = int(table.select(pl.any_horizontal(pl.col(told).is_null()).sum()).item()) if told else len(table)
    if absent:
        warnings.warn(
            f"{absent:,} of {len(table):,} rows have figures that are missing or not finite: they are null",
            stacklevel=3,
        )
    if rejects:
        warnings.warn(f"left out: {_unread(rejects)}", stacklevel=3)


def _unread(rejects: list[Reject]) -> str:
    lines = "1 line" if len(rejects) == 1 else f"{len(rejects):,} lines"
    return f"{lines} cannot be read, first row {rejects[0].row}: {rejects[0].reason}"

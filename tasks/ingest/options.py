"""What models make of the options of multiple-choice questions: files of any format to the table `options`."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Options
from gradatim.tasks.core.frames import conform
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.reading import Batch, ReadOptions, read_shard, shard_schema, shorten, source_schema
from gradatim.tasks.ingest.sources import Shard, shards

KEY = ["respondent_id", "example_id", "order"]
LETTERS = {chr(ord("A") + i): i for i in range(26)}
LEAST = -60.0
"""Log probability (nats) that the likeliest option of a row has at least: its probability is then 9e-27."""
_SEPARATORS = r"[\s,;|\[\]()]+"


def read_options(options: Options, base: str | Path = ".") -> pl.DataFrame:
    """Read probabilities of options.

    Parameters
    ----------
    options : Options
        A row is one respondent, one example and one order of the options. Probabilities are a list, a text such as
        ``[0.1, 0.9]``, or one column a shown place, where questions with fewer options leave the last ones empty. The
        right option and a permutation are numbers from 0, or letters from A. Without a column `order`, rows of one
        respondent and example are numbered in the order of the files and their rows.
    base : str or Path
        Folder that a relative source starts from.

    Returns
    -------
    polars.DataFrame
        The table `options`, sorted by its key; probabilities as they add up: from logprobs exp(x), from logits
        exp(x) / sum exp; logprobs that are all below `LEAST` are raised together until the largest is there. Whether
        they are probabilities is not judged here.

    Raises
    ------
    UsageError
        A column that is not there, answered with those that are, or of a type that holds nothing of the kind.
    DataRefused
        A row that cannot be read or has no respondent or example, a cell that is no number or letter, one order of one
        respondent and example twice, or no row at all; names file and row.

    Notes
    -----
    O(rows); all rows are held in memory.
    """
    found, plan = _plan(options, base)
    frames = [_rows(shard, batch, options) for shard in found for batch in read_shard(shard, plan)]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        raise DataRefused("there is no row in the whole source", where=options.source)
    return _numbered(pl.concat(frames), options)


def check_options(options: Options, base: str | Path = ".") -> None:
    """Try what `read_options` would read: the columns of all files, and the beginning of the first with a row."""
    found, plan = _plan(options, base)
    frames = (_rows(shard, batch, options) for shard in found for batch in read_shard(shard, plan))
    first = next((frame for frame in frames if len(frame)), None)
    if first is None:
        raise DataRefused("there is no row in the whole source", where=options.source)
    _numbered(first, options)


def _plan(options: Options, base: str | Path) -> tuple[list[Shard], ReadOptions]:
    asked = options.probabilities
    if not asked or len(set(asked)) < len(asked):
        twice = next((name for name in asked if asked.count(name) > 1), "")
        raise UsageError(
            f"the column {twice!r} is named twice" if asked else "no column is named",
            where="options.probabilities",
            expected="one column with a list, or one column an option",
        )
    found = shards(options.source, base, options.format)
    plan = ReadOptions(text_columns=frozenset({options.respondent, options.example}))
    schema = source_schema({shard.uri: shard_schema(shard, plan) for shard in found})
    if not schema.names:
        raise DataRefused("there is no row in the whole source", where=options.source)
    named = [("respondent", options.respondent), ("example", options.example)]
    named += [("probabilities", column) for column in options.probabilities]
    chosen = ["order", "permutation", *(["gold"] if "gold" in options.model_fields_set else [])]
    named += [(key, getattr(options, key)) for key in chosen if getattr(options, key)]
    for key, column in named:
        if column not in schema.names:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, schema.names)}",
                where=f"options.{key}: {options.source}",
                expected="one of " + ", ".join(schema.names[:50]),
                remedy=f"name it: {key}: COLUMN",
            )
    return found, ReadOptions(text_columns=plan.text_columns, schema=schema)


def _rows(shard: Shard, batch: Batch, options: Options) -> pl.DataFrame:
    """The rows of a batch in the table's columns, with their place in the source."""
    if batch.rejects:
        bad = batch.rejects[0]
        raise DataRefused(
            f"{bad.reason}: {bad.value}" if bad.value else bad.reason,
            where=f"{shard.uri}: row {bad.row}",
            expected="rows that can be read",
        )
    table = batch.table
    place = pl.Series("row", batch.rows, dtype=pl.Int64)
    gold = options.gold if options.gold in table.schema.names else None
    nothing = pl.Series([None] * len(table), dtype=pl.String)
    read = {
        "respondent_id": _ids(table[options.respondent], shard, place, options.respondent),
        "example_id": _ids(table[options.example], shard, place, options.example),
        "order": _places(_series(table[options.order]), shard, place, options.order) if options.order else nothing,
        "permutation": _permutation(table, options, shard, place),
        "probabilities": _probabilities(table, options, shard, place),
        "gold": _places(_series(table[gold]), shard, place, gold) if gold else nothing,
    }
    return pl.DataFrame(read).with_columns(
        pl.col("order", "gold").cast(pl.Int32), row=place, uri=pl.lit(shard.uri, pl.String)
    )


def _numbered(rows: pl.DataFrame, options: Options) -> pl.DataFrame:
    pair = KEY[:2]
    rows = rows.sort(*pair, "uri", "row")
    if options.order is None:
        rows = rows.with_columns(order=pl.int_range(pl.len(), dtype=pl.Int32).over(pair))
    twice = rows.filter(rows.select(KEY).is_duplicated())
    if len(twice):
        respondent, example, order, uri, row = twice.select(*KEY, "uri", "row").row(0)
        raise DataRefused(
            f"respondent {respondent!r}, example {example!r}, order {order} comes more than once",
            where=f"{uri}: row {row}",
            expected="one row a respondent, example and order",
            remedy="leave  order  out to have them numbered, or drop repeated rows",
        )
    return conform(rows, "options")


def _series(column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(pl.from_arrow(column))


def _ids(column: pa.ChunkedArray, shard: Shard, place: pl.Series, name: str) -> pl.Series:
    found = pl.Series(pl.from_arrow(text(column))).cast(pl.String)
    empty = found.str.strip_chars().fill_null("") == ""
    _refuse(empty, found, shard, place, name, "is empty", "an id")
    return found


def _refuse(
    bad: pl.Series, cells: pl.Series, shard: Shard, place: pl.Series, name: str | None, said: str, expected: str
) -> None:
    if bad.any():
        first = bad.arg_max() or 0
        cell = cells[first]
        shown = cell.to_list() if isinstance(cell, pl.Series) else cell
        raise DataRefused(
            f"{shorten(repr(shown))} {said}, as in {int(bad.sum())} rows from here on",
            where=f"{shard.uri}: row {place[first]}, column {name!r}",
            expected=expected,
        )


def _place(cell: pl.Expr) -> pl.Expr:
    """A number from 0, or a letter from A, in text; null for anything else."""
    bare = cell.cast(pl.String).str.strip_chars(" \t.:()[]\"'").str.to_uppercase()
    number = bare.cast(pl.Float64, strict=False)
    whole = pl.when(number.is_between(0, 2**31 - 1) & (number == number.floor())).then(number)
    letter = bare.replace_strict(list(LETTERS), list(LETTERS.values()), default=None, return_dtype=pl.Float64)
    return pl.coalesce(whole, letter).cast(pl.Int64)


def _places(cells: pl.Series, shard: Shard, place: pl.Series, name: str | None) -> pl.Series:
    if isinstance(cells.dtype, pl.List | pl.Struct):
        raise UsageError(
            f"the column {name!r} is of type {cells.dtype}", where=shard.uri, expected="a number or letter a row"
        )
    blank = cells.cast(pl.String).str.strip_chars().fill_null("") == ""
    found = cells.to_frame("cell").select(_place(pl.col("cell"))).to_series()
    _refuse(found.is_null() & ~blank, cells, shard, place, name, "is no place", "a number from 0, or a letter from A")
    return found


def _permutation(table: pa.Table, options: Options, shard: Shard, place: pl.Series) -> pl.Series:
    """The option at each shown place; null, which is as given, without a column or in an empty cell."""
    if options.permutation is None:
        return pl.Series([None] * len(table), dtype=pl.List(pl.Int32))
    cells = _series(table[options.permutation])
    lists = cells if isinstance(cells.dtype, pl.List) else _split(cells, letters=True)
    found = lists.list.eval(_place(pl.element()))
    lacking = found.list.eval(pl.element().is_null()).list.any().fill_null(False)
    _refuse(lacking, cells, shard, place, options.permutation, "names no options", "numbers from 0, or letters from A")
    return found.cast(pl.List(pl.Int32))


def _probabilities(table: pa.Table, options: Options, shard: Shard, place: pl.Series) -> pl.Series:
    names = options.probabilities
    if len(names) > 1:
        cells = pl.DataFrame({name: _series(table[name]) for name in names}).select(
            pl.concat_list(_numeric(pl.col(names), shard, table.select(names), place)).alias("all"),
            pl.max_horizontal(
                pl.when(pl.col(name).is_not_null()).then(i + 1).otherwise(0) for i, name in enumerate(names)
            ).alias("count"),
        )
        lists = cells.select(pl.col("all").list.head("count")).to_series()
    else:
        given = _series(table[names[0]])
        if given.dtype.is_numeric():
            raise UsageError(
                f"the column {names[0]!r} holds one number a row",
                where=f"options.probabilities: {shard.uri}",
                expected="a list a row, or one column an option",
                remedy="name them all: probabilities: [FIRST, SECOND, ...]",
            )
        raw = given if isinstance(given.dtype, pl.List | pl.Array) else _split(given, letters=False)
        raw = raw.cast(pl.List(raw.dtype.inner)) if isinstance(raw.dtype, pl.Array) else raw
        lists = raw.list.eval(pl.element().cast(pl.Float64, strict=False))
        _refuse(
            _lost(raw, lists), given, shard, place, names[0], "is no list of numbers", "numbers, one a shown option"
        )
    return _chances(lists, options.scale)


def _numeric(cells: pl.Expr, shard: Shard, table: pa.Table, place: pl.Series) -> pl.Expr:
    for name in table.schema.names:
        given = _series(table[name])
        if isinstance(given.dtype, pl.List | pl.Struct | pl.Array):
            raise UsageError(
                f"the column {name!r} is of type {given.dtype}",
                where=f"options.probabilities: {shard.uri}",
                expected="one column with a list, or several columns with a number each",
            )
        read = given.cast(pl.Float64, strict=False)
        _refuse(read.is_null() & given.is_not_null(), given, shard, place, name, "is no number", "a number, or nothing")
    return cells.cast(pl.Float64, strict=False)


def _lost(before: pl.Series, after: pl.Series) -> pl.Series:
    """Rows where reading numbers turned a cell into null."""
    missing = [cells.list.eval(pl.element().is_null()).list.sum() for cells in (before, after)]
    return (missing[1] > missing[0]).fill_null(False)


def _split(cells: pl.Series, *, letters: bool) -> pl.Series:
    """Cut texts such as ``[0.1, 0.9]``, ``0.1 0.9`` and, of letters, ``CAB`` into lists; an empty text is null."""
    bare = pl.col("cell").cast(pl.String).str.replace_all(_SEPARATORS, " ").str.strip_chars()
    if letters:
        word = bare.str.contains(r"^[A-Za-z]+$")
        bare = pl.when(word).then(bare.str.replace_all("(.)", "${1} ").str.strip_chars()).otherwise(bare)
    return cells.to_frame("cell").select(pl.when(bare != "").then(bare.str.split(" "))).to_series()


def _chances(lists: pl.Series, scale: str) -> pl.Series:
    cell = pl.element()
    if scale == "logprobs":
        # as probabilities next to nothing is left, but how the options compare is: no float32 may lose it
        far = (cell.max() < LEAST) & cell.max().is_finite()
        lists = lists.list.eval(pl.when(far).then(cell - cell.max() + LEAST).otherwise(cell).exp())
    elif scale == "logits":
        relative = (cell - cell.max()).exp()  # the largest is one: nothing overflows
        lists = lists.list.eval(relative / relative.sum())
    return lists.cast(pl.List(pl.Float32))

"""CSV and TSV."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.ingest.reading import Batch, ReaderConfig, ReadOptions, Reject, shorten
from gradatim.tasks.ingest.sources import ChunkReader, Shard, utf8_chunks

BLOCK = 8 << 20
"""Bytes parsed at a time; no row may be longer."""

MISSING = ("NaN", "nan", "NAN", "NA", "N/A", "n/a", "null", "NULL", "None")
"""Words that stand for no value in a column whose other values are all numbers or true and false."""

_INTEGER = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?([iI]nf|[iI]nfinity)$"
_BOOLEAN = r"^([tT]rue|TRUE|[fF]alse|FALSE)$"


@register(
    "reader",
    "csv",
    config=ReaderConfig,
    cost=lambda rows, width: Cost(seconds=rows * width * 4e-7, bytes=200e6),
    source="RFC 4180: Common Format and MIME Type for Comma-Separated Values (CSV) Files",
    row_wise=True,
)
def read_csv(shard: Shard, options: ReadOptions) -> Iterator[Batch]:
    """CSV or TSV with a header, quoted as in RFC 4180, plain or gzipped.

    A field without quotes and without characters is null, ``""`` an empty text. A column is integer, number or true and
    false where all its values are; leading zeros, a plus sign or more than 64 bits make it text. Rows with more or
    fewer fields than the header are rejected. A column without a name is called column_1, column_2, … by its place.
    """
    names = _header(shard, options)
    if not names:
        return
    rejects: list[Reject] = []

    def ragged(row: pacsv.InvalidRow) -> str:
        reason = f"{row.actual_columns} fields, the header has {row.expected_columns}"
        rejects.append(Reject(row.number - 2, reason, None, shorten(row.text)))  # rows count from the header's 1
        return "skip"

    source = _source(shard, options)
    position, last = 0, ""
    try:
        with _open(source, shard, names, ragged) as reader:
            for record_batch in reader:
                table = pa.Table.from_batches([record_batch])
                rows = _rows(position, len(table), [r.row for r in rejects])
                position = int(rows[-1]) + 1 if len(rows) else position
                done = [r for r in rejects if r.row < position]
                rejects[:] = rejects[len(done) :]
                last = _last_text(table)
                yield Batch(_typed(table, options), pa.array(rows), done)
    except pa.ArrowInvalid as error:
        raise _unreadable(error, shard) from None
    tail = rejects[-1].value or "" if rejects else last
    if source.count % 2 and "\n" in tail:
        raise DataRefused(
            f"a quote is opened and never closed; the last row would swallow {tail.count(chr(10)) + 1} lines or more",
            where=shard.uri,
            remedy="close or double the quote",
        )
    empty = _typed(pa.table({name: pa.array([], pa.string()) for name in names}), options)
    yield Batch(empty, pa.array([], pa.int64()), rejects)


def _source(shard: Shard, options: ReadOptions) -> ChunkReader:
    return ChunkReader(utf8_chunks(shard.path, options.encoding, shard.uri))


def _header(shard: Shard, options: ReadOptions) -> list[str]:
    try:
        with _open(_source(shard, options), shard, None, lambda row: "skip") as reader:
            found = reader.schema.names
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return []
        raise _unreadable(error, shard) from None
    return [name or f"column_{place}" for place, name in enumerate(found, 1)]


def _open(source: ChunkReader, shard: Shard, names: list[str] | None, ragged: object) -> pacsv.CSVStreamingReader:
    tabs = shard.path.name.lower().removesuffix(".gz").endswith(".tsv")
    return pacsv.open_csv(
        source,
        read_options=pacsv.ReadOptions(
            use_threads=False,  # rows have numbers only when one thread parses
            block_size=BLOCK,
            column_names=names,
            skip_rows_after_names=1 if names else 0,
        ),
        parse_options=pacsv.ParseOptions(
            delimiter="\t" if tabs else ",", newlines_in_values=True, invalid_row_handler=ragged
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names or [], pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
            check_utf8=False,  # the source is checked, with the offset
        ),
    )


def _unreadable(error: Exception, shard: Shard) -> DataRefused:
    if "straddling" in str(error):
        return DataRefused(
            f"a row is longer than {BLOCK >> 20} MiB, or a quote is opened and never closed",
            where=shard.uri,
            expected="quotes as in RFC 4180, rows of at most that length",
        )
    return DataRefused(f"this is no readable CSV: {str(error)[:300]}", where=shard.uri)


def _rows(position: int, count: int, rejected: list[int]) -> np.ndarray:
    """Number the next `count` good rows from `position`, leaving out the rejected ones. int64."""
    candidates = np.arange(position, position + count + len(rejected), dtype=np.int64)
    return np.setdiff1d(candidates, np.array(rejected, dtype=np.int64), assume_unique=True)[:count]


def _last_text(table: pa.Table) -> str:
    return str(table.column(table.num_columns - 1)[-1].as_py() or "") if len(table) else ""


def _typed(table: pa.Table, options: ReadOptions) -> pa.Table:
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if options.schema is not None:
            known = name in options.schema.names
            columns.append(_as(column, options.schema.field(name).type) if known else column)
        else:
            columns.append(column if name in options.text_columns else _as(column, _kind(column)))
    return pa.Table.from_arrays(columns, names=table.schema.names)


def _kind(column: pa.ChunkedArray) -> pa.DataType:
    values = column.drop_null()
    values = values.filter(pc.invert(pc.is_in(values, value_set=pa.array(MISSING))))
    if not len(values):
        return pa.null()
    if _all(values, _INTEGER):
        try:
            values.cast(pa.int64())
        except pa.ArrowInvalid:
            return pa.string()
        return pa.int64()
    if _all(values, _NUMBER):
        return pa.float64()
    return pa.bool_() if _all(values, _BOOLEAN) else pa.string()


def _all(values: pa.ChunkedArray, pattern: str) -> bool:
    # most columns of text are told by their first value
    first = values.slice(0, 1)
    return bool(pc.all(pc.match_substring_regex(first, pattern)).as_py()) and bool(
        pc.all(pc.match_substring_regex(values, pattern)).as_py()
    )


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_string(kind):
        return column
    missing = pc.is_in(column, value_set=pa.array(MISSING))
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(column))])
    column = pc.if_else(missing, pa.scalar(None, pa.string()), column)
    if pa.types.is_nested(kind):  # another shard's type: only a column without values has it
        return column if column.null_count < len(column) else pa.chunked_array([pa.nulls(len(column), kind)])
    return pc.utf8_lower(column).cast(kind) if pa.types.is_boolean(kind) else column.cast(kind)

"""From a user's columns to the table `examples`: which column becomes what, row by row."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import normalise, row_hash_hex
from gradatim.schemas.recipe import Examples
from gradatim.schemas.tables import FACTORS, TABLES, TREE
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.columns import created_at, factors, structure
from gradatim.tasks.ingest.reading import Batch, Reject, shorten

PLAIN = ("domain", "group", "task", "level", "template", "input", "output")
"""Text columns of the contract. A user's column of that very name fills it unless the recipe maps another one."""


def text_columns(examples: Examples) -> frozenset[str]:
    """Columns whose text must stay as it stands in a CSV: ids, inputs and outputs."""
    return frozenset(c for c in (examples.id, examples.input, examples.output, *examples.identity) if c)


def mapped_columns(examples: Examples, names: list[str]) -> dict[str, str]:
    """Say which user's column fills each plain text column of the contract."""
    chosen = {name: getattr(examples, name) or (name if name in names else None) for name in PLAIN}
    return {name: column for name, column in chosen.items() if column}


def check_columns(examples: Examples, schema: pa.Schema, *, where: str) -> None:
    """Raise `UsageError`, with the nearest spelling and the columns there are, for a column that is not there."""
    wanted = {
        **{
            key: [getattr(examples, key)] for key in ("id", *PLAIN, "structure", "created_at") if getattr(examples, key)
        },
        "identity": examples.identity,
        "factors": examples.factors,
    }
    for key, columns in wanted.items():
        for column in columns:
            if column not in schema.names:
                raise UsageError(
                    f"there is no column {column!r}{nearest(column, schema.names)}",
                    where=f"examples.{key}: {where}",
                    expected="one of " + ", ".join(schema.names),
                )
    if not examples.id and not examples.identity and "input" not in mapped_columns(examples, schema.names):
        raise UsageError(
            "nothing says what identifies a row",
            where=f"examples: {where}",
            expected="id: a column with unique ids, identity: [columns], or input: a column",
            remedy="one of the columns " + ", ".join(schema.names),
        )


def payload_names(examples: Examples, schema: pa.Schema) -> dict[str, str]:
    """Say under which name each user's column is kept.

    Its own, unless it is the contract's: the column that fills a contract column of its own name and of text is not
    kept twice; any other one of such a name is kept as ``given_NAME``. Names that differ in case alone get a number,
    since many engines take them for one.
    """
    contract = {name.lower() for name in TABLES["examples"].schema.names}
    fills = mapped_columns(examples, schema.names) | {"example_id": examples.id or ""}
    taken, names = set(contract), {}
    for field in schema:
        if fills.get(field.name) == field.name and pa.types.is_string(field.type):
            continue
        name = field.name or "unnamed"
        name = f"given_{name}" if name.lower() in contract else name
        kept, number = name, 2
        while kept.lower() in taken:
            kept, number = f"{name}_{number}", number + 1
        taken.add(kept.lower())
        names[field.name] = kept
    return names


def map_batch(batch: Batch, examples: Examples, uri: str) -> tuple[pa.Table, list[Reject]]:
    """Map one batch; each row depends on that row alone.

    Parameters
    ----------
    batch : Batch
        With all columns of the source's schema.
    examples : Examples
    uri : str

    Returns
    -------
    table : pyarrow.Table
        In the schema of `examples`, the payload behind; in the order of the batch. The versions are null: whoever
        publishes knows them.
    rejects : list of Reject
        Rows of the batch that cannot be examples; the reader's own are not among them.
    """
    given = batch.table
    reasons: dict[str, np.ndarray] = {}
    ids, bad = row_ids(given, examples)
    reasons[examples.id or ", ".join(_identity(examples, given.schema.names))] = np.where(bad, "the id is empty", "")
    trees = pa.nulls(len(given), TREE)
    if examples.structure:
        trees, reasons[examples.structure] = structure(given[examples.structure])
    created = pa.nulls(len(given), TABLES["examples"].schema.field("created_at").type)
    if examples.created_at:
        created, reasons[examples.created_at] = created_at(given[examples.created_at])
    rejects, good = _rejected(batch, reasons)
    plain = {name: text(given[column]) for name, column in mapped_columns(examples, given.schema.names).items()}
    columns = {
        "example_id": ids,
        "source_uri": pa.array([uri], pa.string()).take(pa.array(np.zeros(len(given), dtype=np.int64))),
        "source_row": batch.rows,
        **{name: plain.get(name, pa.nulls(len(given), pa.string())) for name in PLAIN},
        "factors": factors(given, examples.factors) if examples.factors else pa.nulls(len(given), FACTORS),
        "structure": trees,
        "length_input": _length(plain.get("input"), examples.unit, len(given)),
        "length_output": _length(plain.get("output"), examples.unit, len(given)),
        "length_unit": pa.array([examples.unit], pa.string()).take(pa.array(np.zeros(len(given), dtype=np.int64))),
        "created_at": created,
        "content_hash": content_hashes(given),
        "first_version": pa.nulls(len(given), pa.int64()),
        "changed_version": pa.nulls(len(given), pa.int64()),
    }
    contract = TABLES["examples"].schema
    payload = payload_names(examples, given.schema)
    fields = [*contract, *(pa.field(name, given.schema.field(column).type) for column, name in payload.items())]
    arrays = [columns[field.name] for field in contract] + [given[column] for column in payload]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=contract.metadata))
    return (table if good.all() else table.filter(pa.array(good))), rejects


def content_hashes(given: pa.Table) -> pa.Array:
    """Hash all that the user gave for each row; numbers count by their text, so that widening changes no hash."""
    columns = {
        name: column if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) else text(column)
        for name, column in zip(given.schema.names, given.columns, strict=True)
    }
    return row_hash_hex(pa.table(columns))


def _identity(examples: Examples, names: list[str]) -> list[str]:
    return list(examples.identity) or [mapped_columns(examples, names)["input"]]


def row_ids(given: pa.Table, examples: Examples) -> tuple[pa.Array, np.ndarray]:
    """The user's id as text, or the hash of the normalised identity columns; and where there is none."""
    if examples.id:
        ids = text(given[examples.id])
        ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        empty = np.asarray(pc.equal(pc.utf8_trim_whitespace(pc.fill_null(ids, "")), ""))
        return pc.fill_null(ids, ""), empty
    columns = {}
    empty = np.ones(len(given), dtype=bool)
    for column in _identity(examples, given.schema.names):
        values = [normalise(v) if v is not None else None for v in text(given[column]).to_pylist()]
        # the input by default: its name in the table, whatever the user calls it
        columns[column if examples.identity else "input"] = pa.array(values, pa.string())
        empty &= np.array([not v for v in values], dtype=bool)
    return row_hash_hex(pa.table(columns)), empty


def _rejected(batch: Batch, reasons: dict[str, np.ndarray]) -> tuple[list[Reject], np.ndarray]:
    good = np.ones(len(batch.rows), dtype=bool)
    rejects: list[Reject] = []
    for column, reason in reasons.items():
        for place in np.flatnonzero(good & (reason != "")).tolist():
            known = column in batch.table.schema.names
            value = batch.table[column][place].as_py() if known else None
            shown = None if value is None else shorten(value)
            rejects.append(Reject(batch.rows[place].as_py(), str(reason[place]), column, shown))
        good &= reason == ""
    return rejects, good


def _length(column: pa.Array | pa.ChunkedArray | None, unit: str, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, pa.int64())
    series = pl.Series(pl.from_arrow(column))
    counts = series.str.count_matches(r"\S+") if unit == "words" else series.str.len_chars()
    return counts.cast(pl.Int64).to_arrow()

"""The last step of a procedural data set: ids, lengths, hashes and the columns' order of the table `examples`."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from gradatim.schemas.hashing import normalise, row_hash_hex
from gradatim.schemas.tables import TABLES
from gradatim.tasks.core.trees import TREE_DTYPE

FACTORS_DTYPE = pl.Map(pl.String, pl.String)
"""The Polars type of the column `factors`."""

_POLARS: dict[pa.DataType, type[pl.DataType] | pl.DataType] = {
    pa.string(): pl.String,
    pa.int64(): pl.Int64,
    pa.timestamp("us", tz="UTC"): pl.Datetime("us", "UTC"),
}


def contract_dtypes() -> dict[str, type[pl.DataType] | pl.DataType]:
    """Polars type of each column of the table `examples`, in its order."""
    known: dict[str, type[pl.DataType] | pl.DataType] = {"factors": FACTORS_DTYPE, "structure": TREE_DTYPE}
    return {field.name: known.get(field.name) or _POLARS[field.type] for field in TABLES["examples"].schema}


def input_ids(texts: pl.Series) -> pl.Series:
    """Make an example's id from its input: xxh3-128 of the normalised text, 32 hex digits."""
    column = pa.array(map(normalise, texts.to_list()), pa.string())
    return pl.Series("example_id", row_hash_hex(pa.table({"input": column})).to_pylist(), dtype=pl.String)


def words(column: str) -> pl.Expr:
    """Count the words of a text: runs of characters that are not white space. Int64, null where the text is."""
    return pl.col(column).str.count_matches(r"\S+").cast(pl.Int64)


def finish_generated(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Complete generated rows (columns `input`, `output`, … and payload) to the table `examples`, sorted by id.

    Two rows with one normalised input would be one example: the generator must not make them.
    """
    given = frame.to_arrow()
    dtypes = contract_dtypes()
    frame = frame.with_columns(
        input_ids(frame["input"]),
        pl.lit(f"generate:{name}").alias("source_uri"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("source_row"),
        words("input").alias("length_input"),
        words("output").alias("length_output"),
        pl.lit("words").alias("length_unit"),
        pl.Series("content_hash", row_hash_hex(given).to_pylist(), dtype=pl.String),
    )
    missing = [
        pl.lit(None, dtype=dtype).alias(column) for column, dtype in dtypes.items() if column not in frame.columns
    ]
    payload = [column for column in frame.columns if column not in dtypes]
    contract = [pl.col(column).cast(dtype) for column, dtype in dtypes.items()]
    return frame.with_columns(missing).select(*contract, *payload).sort("example_id")

"""What a procedurally generated matrix can be about: its triples, their pairs, and sets of them as whole numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest

_ALL = ("progression", "XOR", "OR", "AND", "consistent union")
RELATIONS: dict[tuple[str, str], tuple[str, ...]] = {
    ("shape", "size"): _ALL,
    ("shape", "colour"): _ALL,
    ("shape", "number"): ("progression", "consistent union"),
    ("shape", "position"): ("XOR", "OR", "AND"),
    ("shape", "type"): _ALL,
    ("line", "colour"): _ALL,
    ("line", "type"): ("XOR", "OR", "AND", "consistent union"),
}
"""Relations that each object's attribute can have (appendix A.1 of the paper)."""
ORDERED = ("colour", "size")
"""Attributes whose values have an order."""
Triple = tuple[str, str, str]
TRIPLES: tuple[Triple, ...] = tuple((r, o, a) for (o, a), relations in RELATIONS.items() for r in relations)
"""The 29 triples (relation, object, attribute)."""
ATTRIBUTES = tuple(RELATIONS)
"""The 7 attributes of objects, (object, attribute)."""
APART = frozenset({("shape", "number"), ("shape", "position")})
"""The two attributes that no matrix has together."""
PAIRS: tuple[tuple[int, int], ...] = tuple(
    (i, j) for i, j in combinations(range(len(TRIPLES)), 2) if {TRIPLES[i][1:], TRIPLES[j][1:]} != APART
)
"""The 400 pairs of triples that a matrix can have, as places among `TRIPLES`."""
ATTRIBUTE_PAIRS: tuple[tuple[int, int], ...] = tuple(
    (i, j) for i, j in combinations(range(len(ATTRIBUTES)), 2) if {ATTRIBUTES[i], ATTRIBUTES[j]} != APART
)
"""The 20 pairs of attributes of objects, as places among `ATTRIBUTES`."""
NAMES = tuple(" ".join(triple) for triple in TRIPLES)
ATTRIBUTE_NAMES = tuple(" ".join(attribute) for attribute in ATTRIBUTES)
_CODES = {name.lower(): place for place, name in enumerate(NAMES)}
_SHOWN = "XOR shape colour"


def mask_of(places: Sequence[int]) -> int:
    """Write a set of triples as a whole number: bit i is set for triple i."""
    return sum(1 << place for place in places)


def long_triples(column: pl.Series, ids: pl.Series, where: str) -> pl.DataFrame:
    """List the triples of each row.

    Parameters
    ----------
    column : polars.Series
        Lists of triples: texts (``XOR shape colour``), lists of three texts, or structs with relation, object and
        attribute. Case, ``_`` for a blank and ``color`` for colour do not matter.
    ids : polars.Series of String
        For errors.
    where : str

    Returns
    -------
    polars.DataFrame
        row (int64), at (int64, the triple's place in the row's list), triple (int64, its place among `TRIPLES`).

    Raises
    ------
    UsageError
        For another type of column.
    DataRefused
        For a triple that no matrix has, with its row.
    """
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, pl.List):
        raise UsageError(f"the column holds {column.dtype}", where=where, expected=f"lists of triples: [{_SHOWN!r}]")
    lengths = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(column)), lengths)
    at = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    single = column.filter(pl.Series(lengths > 0)).explode()
    if isinstance(single.dtype, pl.Struct):
        fields = ("relation", "object", "attribute")
        if set(fields) - {field.name for field in single.dtype.fields}:
            raise UsageError(f"the triples are {single.dtype}", where=where, expected=f"fields {', '.join(fields)}")
        text = single.struct.unnest().select(pl.concat_str(fields, separator=" ").alias("t"))["t"]
    elif isinstance(single.dtype, pl.List):
        text = single.cast(pl.List(pl.String)).list.join(" ")
    else:
        text = single.cast(pl.String)
    frame = pl.DataFrame({"row": row, "at": at, "text": text}).drop_nulls("text")
    levels = frame["text"].unique().sort()
    codes = [_CODES.get(_plain(level), -1) for level in levels]
    if -1 in codes:
        wrong = levels[codes.index(-1)]
        first = frame.filter(pl.col("text") == wrong)["row"][0]
        raise DataRefused(
            f"{wrong!r} is no triple of a matrix{nearest(wrong, NAMES)}",
            where=f"{where}, row {ids[int(first)]!r}",
            expected="one of " + ", ".join(NAMES),
        )
    if frame.is_empty():  # there is nothing to look up
        return frame.select("row", "at", triple=pl.lit(None, pl.Int64))
    place = frame["text"].replace_strict(levels, pl.Series(codes, dtype=pl.Int64), return_dtype=pl.Int64)
    return frame.select("row", "at", triple=place)


def _plain(text: str) -> str:
    return re.sub(r"[\s_,;/]+", " ", text).strip().lower().replace("color", "colour")


def masks(long: pl.DataFrame, rows: int, ids: pl.Series, where: str) -> np.ndarray:
    """Write each row's triples as one whole number, int64, (rows,); 0 for none.

    Raises `DataRefused` for a row whose triples no matrix has together.
    """
    once = long.select("row", "triple").unique()
    weight = np.ldexp(1.0, once["triple"].to_numpy())
    # sums of different powers of two below 2^29 are exact
    found = np.bincount(once["row"].to_numpy(), weights=weight, minlength=rows).astype(np.int64)
    one, other = (mask_of([i for i, triple in enumerate(TRIPLES) if triple[1:] == name]) for name in sorted(APART))
    both = np.flatnonzero(((found & one) > 0) & ((found & other) > 0))
    if len(both):
        raise DataRefused(
            f"the row {ids[int(both[0])]!r} has a relation of number and one of position",
            where=where,
            expected="structures that a matrix can have: number and position never occur together",
        )
    return found

"""A column of the examples as texts: cut to a length that bounds memory, blank ones told from the others."""

from __future__ import annotations

import polars as pl

from gradatim.schemas.errors import UsageError, nearest

LONGEST = 100_000
"""Characters of a text that are looked at by default."""

NO_TEXT = "without text: a vector of zeros"
CUT = "cut to the longest text"


def texts_of(frame: pl.DataFrame, column: str, longest: int, where: str) -> tuple[pl.Series, int]:
    """Take a column as texts.

    Returns
    -------
    texts : polars.Series of str
        At most `longest` characters each; "" for null and for white space alone.
    cut : int
        How many were longer.

    Raises
    ------
    UsageError
        There is no such column, or it holds lists, maps or bytes.
    """
    if column not in frame.columns:
        known = [name for name in frame.columns if name != "example_id"]
        raise UsageError(
            f"there is no column {column!r}{nearest(column, known)}",
            where=where,
            expected="one of " + ", ".join(known),
        )
    found = frame[column]
    if found.dtype.is_nested() or found.dtype == pl.Binary:
        raise UsageError(f"the column {column!r} holds {found.dtype}", where=where, expected="text, or plain values")
    texts = found.cast(pl.String).fill_null("")
    texts = texts.set(texts.str.strip_chars() == "", "")
    # bytes first: characters are counted only where there can be more than `longest` of them
    long = int((texts.filter(texts.str.len_bytes() > longest).str.len_chars() > longest).sum())
    return (texts.str.head(longest) if long else texts), long

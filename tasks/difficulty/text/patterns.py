"""A user's regular expression, tried before it is used."""

from __future__ import annotations

import polars as pl

from gradatim.schemas.errors import UsageError

PROBE = "It is 4.\n\nA b-c, #1!\n"
"""A text with edges of words and lines: what matches nothing in it counts such places."""


def checked_pattern(pattern: str, where: str) -> str:
    """Return a regular expression that compiles and matches no empty text, nor places such as the edge of a word.

    Expressions are those of Rust's crate `regex`: linear in the text, so without look-around and back-references.

    Raises
    ------
    UsageError
        With the place and the reason.
    """
    try:
        pl.Series([""]).str.count_matches(pattern)
        empty = "" in pl.Series(["", PROBE]).str.extract_all(pattern).explode().to_list()
    except pl.exceptions.ComputeError as error:
        raise UsageError(
            f"the pattern {pattern!r} is no valid regular expression: {_reason(str(error))}",
            where=where,
            expected="a regular expression of Rust's crate regex: no look-around, no back-references",
            remedy="put a backslash before . * + ? ( ) [ ] { } | ^ $ that stand for themselves",
        ) from None
    if empty:
        raise UsageError(
            f"the pattern {pattern!r} matches the empty text, so that it would count places instead of matches",
            where=where,
            expected="a pattern of at least one character",
            remedy="write + instead of *, or leave ? out",
        )
    return pattern


def _reason(message: str) -> str:
    """The sentence of an error message: after ``error:`` where the place in the pattern is drawn, else the first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return said[-1] if said else lines[0].removeprefix("regex error:").strip()

"""The expression holds in every in-distribution row and in none of test_ood, computed by another reader and NumPy.

Nothing is shared with the builder, neither the parser nor the arithmetic: words are worked off as they are read, on
arrays of values with a mask of what is known.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared

_WORD = re.compile(
    r"\s*(\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:\d\d)?)?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"|`(?:[^`]|``)+`|not\s+in\b|is\s+not\s+null\b|is\s+null\b|[^\W\d]\w*|[<>=!]=|[-+*/<>()\[\],])\s*'
)
_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare the sides of rows with the expression's values."""
    return compared(sides(settings, rows), rows, "the complement")


def sides(settings: dict[str, Any], rows: pl.DataFrame) -> np.ndarray:
    """Say on which side each row is: 0 in, 1 out, 2 neither."""
    found = _Reader(settings["train"], rows).disjunction()
    side = np.where(found.known, np.where(found.value.astype(bool), IN, OUT), NEITHER)
    return np.broadcast_to(side, (len(rows),)).astype(np.int8)


@dataclass(frozen=True)
class _Values:
    """Values of all rows, where they are known."""

    value: np.ndarray
    known: np.ndarray


class _Reader:
    def __init__(self, text: str, rows: pl.DataFrame) -> None:
        self.rows, self.words = rows, []
        at, text = 0, text.strip()
        while at < len(text):
            found = _WORD.match(text, at)
            if found is None:
                raise ValueError(f"the expression cannot be read from {text[at:]!r} on")
            word, at = found[1], found.end()
            self.words.append(word if word[0] in "'\"`" else " ".join(word.split()))
        self.words.reverse()

    def met(self, *words: str) -> str:
        return self.words.pop() if self.words and self.words[-1] in words else ""

    def disjunction(self) -> _Values:
        found = None
        while found is None or self.met("or"):
            both = self.negation()
            while self.met("and"):
                both = _and(both, self.negation())
            found = both if found is None else _or(found, both)
        return found

    def negation(self) -> _Values:
        if self.met("not"):
            found = self.negation()
            return _Values(~found.value.astype(bool), found.known)
        return self.relation()

    def relation(self) -> _Values:
        left = self.sum()
        if word := self.met("is null", "is not null"):
            return _Values(left.known == (word == "is not null"), np.array(True))
        if word := self.met("in", "not in"):
            among = np.zeros(np.shape(left.value), bool)
            while self.words.pop() != "]":
                if self.words[-1] != "]":
                    among |= np.asarray(left.value == self.sum().value, bool)
            return _Values(among == (word == "in"), left.known)
        found = None
        while sign := self.met(*_COMPARES):
            right = self.sum()
            one = _Values(np.asarray(_COMPARES[sign](left.value, right.value), bool), left.known & right.known)
            found, left = one if found is None else _and(found, one), right
        return left if found is None else found

    def sum(self) -> _Values:
        found, plus = None, ""
        while found is None or (plus := self.met("+", "-")):
            part = self.signed()
            while sign := self.met("*", "/"):
                part = _arithmetic(sign, part, self.signed())
            found = part if found is None else _arithmetic(plus, found, part)
        return found

    def signed(self) -> _Values:
        if self.met("-"):
            found = self.signed()
            return _Values(-found.value, found.known)
        if self.met("("):
            found = self.disjunction()
            self.words.pop()
            return found
        word = self.words.pop()
        if word == "len":
            self.words.pop()
            name = self.words.pop()
            self.words.pop()
            column = self.rows[_name(name)]
            return _column(column.list.len() if isinstance(column.dtype, pl.List) else _lengths(column))
        if word[0] == "`" or (re.match(r"[^\W\d]", word) and word not in ("true", "false")):
            return _column(self.rows[_name(word)])
        return _Values(_literal(word), np.array(True))


def _and(left: _Values, right: _Values) -> _Values:
    false = (left.known & ~left.value.astype(bool)) | (right.known & ~right.value.astype(bool))
    return _Values(~false, false | (left.known & right.known))


def _or(left: _Values, right: _Values) -> _Values:
    true = (left.known & left.value.astype(bool)) | (right.known & right.value.astype(bool))
    return _Values(true, true | (left.known & right.known))


def _arithmetic(sign: str, left: _Values, right: _Values) -> _Values:
    one, other = left.value.astype(np.float64), right.value.astype(np.float64)
    known = left.known & right.known
    with np.errstate(all="ignore"):
        if sign == "/":
            value, known = one / np.where(other == 0, 1, other), known & (other != 0)
        else:
            value = {"+": np.add, "-": np.subtract, "*": np.multiply}[sign](one, other)
    return _Values(value, known & ~np.isnan(value))


def _name(word: str) -> str:
    return word[1:-1].replace("``", "`") if word[0] == "`" else word


def _literal(word: str) -> np.ndarray:
    if word[0] in "'\"":
        return np.array(word[1:-1].replace(word[0] * 2, word[0]), dtype=object)
    if word in ("true", "false"):
        return np.array(word == "true")
    if re.match(r"\d{4}-", word):
        moment = datetime.fromisoformat(word)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return np.array(round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)))
    return np.array(int(word) if word.isdigit() else float(word))


def _column(column: pl.Series) -> _Values:
    kind = column.dtype
    known = column.is_not_null().to_numpy()
    if kind.is_temporal():
        return _Values(
            column.cast(pl.Datetime("us", getattr(kind, "time_zone", None))).to_physical().fill_null(0).to_numpy(),
            known,
        )
    if kind.is_nested() or kind == pl.Null:
        return _Values(np.zeros(len(column)), known)
    if kind.is_numeric():
        value = (column.cast(pl.Float64) if kind.is_decimal() or kind.is_float() else column).fill_null(0).to_numpy()
        return _Values(value, known & ~np.isnan(value)) if value.dtype.kind == "f" else _Values(value, known)
    if kind == pl.Boolean:
        return _Values(column.fill_null(False).to_numpy(), known)
    return _Values(np.array(column.cast(pl.String).fill_null("").to_list(), dtype=object), known)


def _lengths(column: pl.Series) -> pl.Series:
    """Count the signs of texts, or the members of arrays."""
    if column.dtype.is_nested():
        return column.cast(pl.List(column.dtype.inner)).list.len()  # type: ignore[attr-defined]
    return pl.Series([None if text is None else len(text) for text in column.cast(pl.String)], dtype=pl.Int64)

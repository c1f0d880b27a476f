"""An expression over columns as a Polars expression: its kinds checked, its nulls three-valued."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import polars as pl

from gradatim.tasks.splits.expressions import (
    Among,
    Arithmetic,
    Both,
    Column,
    Compare,
    IsNull,
    Length,
    Literal,
    Negative,
    Node,
    Not,
    complain,
)

_TIME = pl.Datetime("us", "UTC")
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_A = {"number": "numbers", "text": "texts", "time": "times", "truth": "truths", "list": "lists", "nothing": "nulls"}


@dataclass(frozen=True)
class Typed:
    """A Polars expression and the kind of its values: number, text, time, truth, list, or nothing (all null)."""

    expr: pl.Expr
    kind: str


def condition(node: Node, text: str, schema: pl.Schema) -> pl.Expr:
    """Build the expression that is true, false or null in each row.

    Parameters
    ----------
    node : Node
        From `expressions.parse`.
    text : str
        The same, as it is written, for errors.
    schema : polars.Schema
        Of a frame that has every column.

    Returns
    -------
    polars.Expr of Boolean
        Null where the known values do not settle it. Comparisons and arithmetic with null are null; so are a division
        by zero and what is not a number. Arithmetic is that of 64-bit floats; whole numbers compare exactly.

    Raises
    ------
    UsageError
        Where kinds do not go together, with the place and the column.
    """
    built = _Builder(text, schema)
    found = built.typed(node)
    built.demand(found, "truth", node, "the whole should be a condition")
    return found.expr.cast(pl.Boolean)


_METHODS = {Not: "opposite", IsNull: "is_null"}


class _Builder:
    def __init__(self, text: str, schema: pl.Schema) -> None:
        self.text, self.schema = text, schema

    def typed(self, node: Node) -> Typed:
        """Build one node and those below it."""
        build: Callable[[Any], Typed] = getattr(self, _METHODS.get(type(node), type(node).__name__.lower()))
        return build(node)

    def demand(self, found: Typed, kind: str, node: Node, why: str) -> None:
        if found.kind not in (kind, "nothing"):
            raise complain(f"{why}; {self.named(node)} holds {_A[found.kind]}", self.text, node.at, f"{_A[kind]}")

    def named(self, node: Node) -> str:
        """Name a node in an error: its column, else what it is."""
        if isinstance(node, Column):
            return f"column {node.name!r}"
        if isinstance(node, Literal):
            return "this value" if isinstance(node.value, datetime) else repr(node.value)
        return f"len({node.column.name})" if isinstance(node, Length) else "this part"

    def literal(self, node: Literal) -> Typed:
        kinds = {bool: "truth", int: "number", float: "number", str: "text", datetime: "time"}
        return Typed(pl.lit(node.value, _TIME if isinstance(node.value, datetime) else None), kinds[type(node.value)])

    def column(self, node: Column) -> Typed:
        kind, column = self.schema[node.name], pl.col(node.name)
        if kind.is_integer():
            return Typed(column.cast(pl.Int128 if kind in (pl.UInt64, pl.UInt128) else kind), "number")
        if kind.is_float() or kind.is_decimal():
            return Typed(column.cast(pl.Float64).fill_nan(None), "number")
        if kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum):
            return Typed(column.cast(pl.String), "text")
        if kind == pl.Boolean:
            return Typed(column, "truth")
        if kind == pl.Date:
            return Typed(column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC"), "time")
        if isinstance(kind, pl.Datetime):
            zoned = column if kind.time_zone else column.dt.replace_time_zone("UTC")
            return Typed(zoned.dt.convert_time_zone("UTC").dt.cast_time_unit("us"), "time")
        if isinstance(kind, pl.List | pl.Array):
            return Typed(column, "list")
        if kind == pl.Null:
            return Typed(column, "nothing")
        raise complain(
            f"column {node.name!r} holds {kind}", self.text, node.at, "numbers, texts, times, truths or lists"
        )

    def length(self, node: Length) -> Typed:
        found = self.typed(node.column)
        if found.kind == "list":
            nested = self.schema[node.column.name]
            size = found.expr.list.len() if isinstance(nested, pl.List) else found.expr.arr.len()
            # of an array the length is the same in all rows, of a null too
            return Typed(pl.when(found.expr.is_not_null()).then(size.cast(pl.Int64)), "number")
        self.demand(found, "text", node.column, "len() counts signs of a text or members of a list")
        return Typed(found.expr.cast(pl.String).str.len_chars().cast(pl.Int64), "number")

    def number(self, node: Node) -> pl.Expr:
        found = self.typed(node)
        self.demand(found, "number", node, "arithmetic takes numbers")
        return found.expr.cast(pl.Float64)

    def negative(self, node: Negative) -> Typed:
        return Typed(-self.number(node.operand), "number")

    def arithmetic(self, node: Arithmetic) -> Typed:
        total = self.number(node.first)
        for sign, operand in node.rest:
            other = self.number(operand)
            total = pl.when(other != 0).then(total / other) if sign == "/" else _ARITHMETIC[sign](total, other)
        return Typed(total.fill_nan(None), "number")

    def compare(self, node: Compare) -> Typed:
        held, (left, ours) = [], (node.first, self.typed(node.first))
        for sign, right in node.rest:
            theirs = self.typed(right)
            self.alike(left, ours, right, theirs)
            if sign not in ("==", "!=") and "truth" in (ours.kind, theirs.kind):
                raise complain(f"{sign} orders values, and truths have no order", self.text, left.at, "== or !=")
            held.append(_COMPARE[sign](*_same(ours, theirs)))
            left, ours = right, theirs
        return Typed(reduce(operator.and_, held), "truth")

    def alike(self, left: Node, ours: Typed, right: Node, theirs: Typed) -> None:
        """Refuse to compare values of two kinds."""
        if "list" in (ours.kind, theirs.kind):
            node = left if ours.kind == "list" else right
            raise complain(
                f"{self.named(node)} holds lists, which are not compared",
                self.text,
                node.at,
                remedy="compare len(column)",
            )
        if ours.kind == theirs.kind or "nothing" in (ours.kind, theirs.kind):
            return
        node, other = (left, right) if isinstance(left, Column) or not isinstance(right, Column) else (right, left)
        mine, its = (ours, theirs) if node is left else (theirs, ours)
        remedy = ""
        if isinstance(other, Literal) and mine.kind == "text" and not isinstance(other.value, str | datetime):
            remedy = f"write '{other.value}' in quotes, or give the column numbers in the source"
        what = f"{self.named(node)} holds {_A[mine.kind]} and is compared with {self.named(other)}"
        raise complain(what, self.text, node.at, f"{_A[mine.kind]} on both sides, not {_A[its.kind]}", remedy)

    def among(self, node: Among) -> Typed:
        found = self.typed(node.operand)
        for value in node.values:
            self.alike(node.operand, found, value, self.literal(value))
        values: list[Any] = [value.value for value in node.values]
        expr = found.expr
        if found.kind == "nothing":
            expr = pl.lit(None, pl.Boolean)
        elif found.kind == "number":
            # whole numbers are compared as such, all else as floats, as in a comparison
            whole = self.whole(node.operand) and all(isinstance(value, int) for value in values)
            kind = pl.Int128 if whole else pl.Float64
            expr = expr.cast(kind).is_in(
                pl.Series(values, dtype=pl.Int64 if whole else kind, strict=False).cast(kind).implode()
            )
        elif found.kind == "time":
            expr = expr.is_in(pl.Series(values, dtype=_TIME).implode())
        else:
            expr = expr.is_in(pl.Series(values).implode())
        return Typed(~expr if node.negated else expr, "truth")

    def whole(self, node: Node) -> bool:
        """Say whether a number is a whole one by its kind."""
        if isinstance(node, Column):
            return self.schema[node.name].is_integer()
        return isinstance(node, Length) or (isinstance(node, Literal) and isinstance(node.value, int))

    def is_null(self, node: IsNull) -> Typed:
        expr = self.typed(node.operand).expr
        return Typed(expr.is_not_null() if node.negated else expr.is_null(), "truth")

    def opposite(self, node: Not) -> Typed:
        found = self.typed(node.operand)
        self.demand(found, "truth", node.operand, "'not' takes a condition")
        return Typed(~found.expr.cast(pl.Boolean), "truth")

    def both(self, node: Both) -> Typed:
        parts = []
        for operand in node.operands:
            found = self.typed(operand)
            self.demand(found, "truth", operand, f"'{node.word}' joins conditions")
            parts.append(found.expr.cast(pl.Boolean))
        return Typed(reduce(operator.and_ if node.word == "and" else operator.or_, parts), "truth")


def _same(ours: Typed, theirs: Typed) -> tuple[pl.Expr, pl.Expr]:
    """Give two sides of a comparison one type where one of them is null throughout."""
    if "nothing" in (ours.kind, theirs.kind):
        return pl.lit(None, pl.Boolean), pl.lit(None, pl.Boolean)
    return ours.expr, theirs.expr

"""Expressions over columns, as a recipe writes them: ``n_steps <= 6 and domain not in ['law', 'art']``.

They are read by a parser of our own into the nodes below, never by Python's, and nothing is run but what is listed
here. A text is at most `LONGEST` signs long, holds at most `MOST_TERMS` terms and nests at most `DEEPEST` deep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from gradatim.schemas.errors import UsageError

LONGEST, DEEPEST, MOST_TERMS = 10_000, 100, 500
VALID = (
    "comparisons (== != < <= > >=, also 1 < x <= 3), in [..], not in, is null, and, or, not, + - * /, len(column), "
    "numbers, dates, 'texts', true, false, `a column's name`"
)
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2})?)?(?![\w.]))"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign>==|!=|<=|>=|[<>+\-*/()\[\],])"
)
_WORDS = {"and", "or", "not", "in", "is", "null", "true", "false", "len"}
_NOT, _COMPARE, _MINUS = 3, 4, 7
_BINDS = {"or": 1, "and": 2, "is": _COMPARE, "in": _COMPARE, "+": 5, "-": 5, "*": 6, "/": 6}
_BINDS |= dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _COMPARE)
Value = bool | int | float | str | datetime


@dataclass(frozen=True)
class Literal:
    """A value as it is written."""

    value: Value
    at: int


@dataclass(frozen=True)
class Column:
    """A column's value."""

    name: str
    at: int


@dataclass(frozen=True)
class Length:
    """Signs of a text, or members of a list."""

    column: Column
    at: int


@dataclass(frozen=True)
class Negative:
    """Minus a number."""

    operand: Node
    at: int


@dataclass(frozen=True)
class Arithmetic:
    """``first`` and then each (sign, operand), from the left; all signs bind alike."""

    first: Node
    rest: tuple[tuple[str, Node], ...]
    at: int


@dataclass(frozen=True)
class Compare:
    """``first`` and then each (sign, operand): true where every neighbouring pair is."""

    first: Node
    rest: tuple[tuple[str, Node], ...]
    at: int


@dataclass(frozen=True)
class Among:
    """Whether a value is among literals."""

    operand: Node
    values: tuple[Literal, ...]
    negated: bool
    at: int


@dataclass(frozen=True)
class IsNull:
    """Whether there is no value."""

    operand: Node
    negated: bool
    at: int


@dataclass(frozen=True)
class Not:
    """The opposite."""

    operand: Node
    at: int


@dataclass(frozen=True)
class Both:
    """``word`` is and, or: of all operands."""

    word: str
    operands: tuple[Node, ...]
    at: int


Node = Literal | Column | Length | Negative | Arithmetic | Compare | Among | IsNull | Not | Both


@dataclass(frozen=True)
class Token:
    """A kind (date, number, text, quoted, word, sign, end), what is written, and its place."""

    kind: str
    text: str
    at: int


def parse(text: str) -> Node:
    """Read an expression; raises `UsageError` that points at the place."""
    if len(text) > LONGEST:
        raise UsageError(f"the expression has {len(text):,} signs", expected=f"at most {LONGEST:,}")
    parser = _Parser(text, list(_tokens(text)))
    node = parser.expression(1, 0)
    if parser.now.kind != "end":
        raise parser.wrong("an operator, or the end")
    return node


def columns(node: Node) -> tuple[str, ...]:
    """Return the columns that an expression reads, in the order in which it names them, each once."""
    return tuple(dict.fromkeys(column.name for column in _columns(node)))


def _columns(node: Node) -> Iterator[Column]:
    if isinstance(node, Column):
        yield node
    for child in children(node):
        yield from _columns(child)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below one."""
    if isinstance(node, Length):
        return (node.column,)
    if isinstance(node, Negative | IsNull | Not | Among):
        return (node.operand,)
    if isinstance(node, Arithmetic | Compare):
        return (node.first, *[operand for _, operand in node.rest])
    return node.operands if isinstance(node, Both) else ()


def pointed(text: str, at: int) -> str:
    """Show the part of an expression around a place, with a caret below it."""
    start = max(0, at - 40)
    line = re.sub(r"[\s\ud800-\udfff]", " ", text[start : at + 40])
    before = "…" if start else ""
    after = "…" if at + 40 < len(text) else ""
    return f"{before}{line}{after}\n{' ' * (len(before) + at - start)}^"


def complain(what: str, text: str, at: int, expected: str = "", remedy: str = "") -> UsageError:
    """Build the error that points at a place of an expression."""
    shown = "\n  ".join(["", *pointed(text, at).split("\n")])
    return UsageError(f"{what}{shown}", expected=expected, remedy=remedy)


def _tokens(text: str) -> Iterator[Token]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise complain("a sign that is not Unicode text (a lone surrogate)", text, error.start) from None
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _strange(text, at)
        if found.lastgroup != "space":
            yield Token(str(found.lastgroup), found[0], at)
        at = found.end()
    yield Token("end", "", len(text))


def _strange(text: str, at: int) -> UsageError:
    sign = text[at]
    remedy = ""
    if sign in "'\"`":
        return complain(f"the quote {sign} is not closed", text, at)
    if sign in "=&|!~":
        remedy = {"=": "write == to compare", "&": "write and", "|": "write or"}.get(sign, "write not")
    elif sign == ".":
        remedy = "put a column's name with dots in backquotes: `a.b`"
    elif sign.isdigit():
        return complain("a number that cannot be read", text, at, expected="a number, or a date such as 2024-07-01")
    return complain(f"the sign {sign!r} has no meaning here", text, at, expected=VALID, remedy=remedy)


class _Parser:
    """Reads by binding power: an operand, then what binds at least as tightly as asked."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens, self.place, self.terms = text, tokens, 0, 0

    @property
    def now(self) -> Token:
        return self.tokens[self.place]

    def met(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these signs or words."""
        token = self.now
        if token.kind in ("sign", "word") and token.text in texts:
            self.place += 1
            return token
        return None

    def need(self, text: str) -> None:
        if self.met(text) is None:
            raise self.wrong(repr(text))

    def wrong(self, expected: str) -> UsageError:
        found = "the end" if self.now.kind == "end" else repr(self.now.text)
        remedy = ""
        if self.now.text in ("AND", "OR", "NOT", "IN", "IS", "NULL"):
            remedy = f"write {self.now.text.lower()}"
        return complain(f"found {found}", self.text, self.now.at, expected=expected, remedy=remedy)

    def expression(self, least: int, depth: int) -> Node:
        """Read an operand and all operators after it that bind by `least` or more."""
        if depth > DEEPEST:
            raise complain(f"nested more than {DEEPEST} deep", self.text, self.now.at)
        left, most = self.operand(least, depth), _MINUS
        while least <= (binds := self.binding()) <= most:
            left = self.joined(left, binds, depth)
            if binds == _COMPARE:  # a comparison is not compared again: 1 < x < 3 is one
                most = _COMPARE - 1
        return left

    def binding(self) -> int:
        """Say how tightly the operator that comes next binds; 0 for none."""
        token = self.now
        if token.kind not in ("sign", "word"):
            return 0
        negated = token.text == "not" and self.tokens[self.place + 1].text == "in"
        return _COMPARE if negated else _BINDS.get(token.text, 0)

    def joined(self, left: Node, binds: int, depth: int) -> Node:
        """Read an operator with its right side, and those of the same binding after it."""
        at = self.now.at
        if self.met("is"):
            negated = self.met("not") is not None
            self.need("null")
            return IsNull(left, negated, at)
        if self.now.text in ("not", "in"):
            negated = self.met("not") is not None
            self.need("in")
            return Among(left, self.list(), negated, at)
        signs = [sign for sign, one in _BINDS.items() if one == binds and sign not in ("is", "in")]
        rest = []
        while token := self.met(*signs):
            rest.append((token.text, self.expression(binds + 1, depth + 1)))
        if binds in (_BINDS["or"], _BINDS["and"]):
            return Both(rest[0][0], (left, *[operand for _, operand in rest]), at)
        return (Compare if binds == _COMPARE else Arithmetic)(left, tuple(rest), at)

    def operand(self, least: int, depth: int) -> Node:
        """Read a value, or what stands before one: not, minus."""
        if least <= _NOT and (token := self.met("not")):
            return Not(self.expression(_NOT, depth + 1), token.at)
        if token := self.met("-"):
            operand = self.expression(_MINUS, depth + 1)
            if isinstance(operand, Literal) and type(operand.value) in (int, float):
                return Literal(-operand.value, token.at)  # type: ignore[operator]
            return Negative(operand, token.at)
        return self.primary(depth)

    def list(self) -> tuple[Literal, ...]:
        self.need("[")
        values = [self.literal()]
        while self.met(","):
            values.append(self.literal())
        self.need("]")
        return tuple(values)

    def literal(self) -> Literal:
        place = self.place
        node = self.expression(_MINUS, 0)
        self.terms -= 1  # a list may be long
        if not isinstance(node, Literal):
            self.place = place
            raise self.wrong("a number, a date or a text in quotes")
        return node

    def primary(self, depth: int) -> Node:
        token = self.now
        self.terms += 1
        if self.terms > MOST_TERMS:
            raise complain(
                f"more than {MOST_TERMS} terms", self.text, token.at, remedy="a column of your own, or a list"
            )
        if self.met("("):
            node = self.expression(1, depth + 1)
            self.need(")")
            return node
        if self.met("len"):
            self.need("(")
            if self.now.kind not in ("quoted", "word") or self.now.text in _WORDS:
                raise self.wrong("a column's name: len(column)")
            column = self.primary(depth)
            assert isinstance(column, Column)
            self.need(")")
            return Length(column, token.at)
        if token.text == "null" and token.kind == "word":
            raise complain("nothing equals null", self.text, token.at, remedy="write  x is null  or  x is not null")
        reserved = token.kind == "word" and token.text in _WORDS - {"true", "false"}
        if reserved or token.kind in ("sign", "end"):
            raise self.wrong("a column, a number, a date, a text in quotes, len(..), 'not' or '('")
        self.place += 1
        return self.read(token)

    def read(self, token: Token) -> Literal | Column:
        if token.kind == "word":
            if token.text in ("true", "false"):
                return Literal(token.text == "true", token.at)
            return Column(token.text, token.at)
        if token.kind in ("quoted", "text"):
            quote = token.text[0]
            inner = token.text[1:-1].replace(quote * 2, quote)
            return Column(inner, token.at) if quote == "`" else Literal(inner, token.at)
        if token.kind == "number":
            value = float(token.text)
            if value in (float("inf"), 0.0) and re.search("[1-9]", re.split("[eE]", token.text)[0]):
                raise complain("a number beyond what 64 bits hold", self.text, token.at)
            whole = token.text.isdigit()
            if whole and int(token.text) >= 2**63:
                raise complain("a number beyond what 64 bits hold", self.text, token.at)
            return Literal(int(token.text) if whole else value, token.at)
        try:
            moment = datetime.fromisoformat(token.text)
        except ValueError as error:
            raise complain(f"there is no such date ({error})", self.text, token.at) from None
        return Literal(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC), token.at)


def place_of(node: Node, column: str) -> int | None:
    """Return the place where an expression first names a column."""
    return next((found.at for found in _columns(node) if found.name == column), None)


def only_counted(node: Node) -> set[str]:
    """Return the columns that an expression reads in len() alone."""
    inside = {found.column.name for found in _nodes(node) if isinstance(found, Length)}
    return inside - {found.name for found in _nodes(node) if isinstance(found, Column)}


def _nodes(node: Node) -> Iterator[Node]:
    """Walk all nodes but the columns in len()."""
    yield node
    if not isinstance(node, Length):
        for child in children(node):
            yield from _nodes(child)

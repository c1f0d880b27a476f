"""A look at a file: its columns and what they could be, and a first recipe from that."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core import trees
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.reading import ReadOptions, read_shard, shard_schema, shorten, source_schema
from gradatim.tasks.ingest.sources import shards

SAMPLE = 200_000
"""Rows that are looked at."""

LONGEST_NAME = 80
"""Characters of a column's name; a longer one is a row of data that was taken for a header."""

NAMES = {
    "id": ("id", "example_id", "item_id", "instance_id", "qid", "uid", "uuid", "guid", "pairid", "key", "index"),
    "input": (
        "input",
        "question",
        "prompt",
        "command",
        "source",
        "instruction",
        "query",
        "text",
        "problem",
        "sentence",
        "problem_statement",
        "premise",
        "src",
        "x",
    ),
    "output": (
        "output",
        "answer",
        "target",
        "actions",
        "response",
        "completion",
        "label",
        "solution",
        "gold",
        "patch",
        "gold_label",
        "tgt",
        "y",
    ),
    "domain": ("domain", "repo", "repository", "subject", "topic", "site", "category", "dataset", "language"),
    "group": ("group", "template", "template_id", "family", "cluster", "passage_id", "document_id", "user_id"),
    "level": ("level", "difficulty", "grade", "difficulty_level", "human_level"),
    "template": ("template", "pattern"),
    "structure": ("structure", "parse", "tree", "derivation", "syntax", "ast"),
    "created_at": ("created_at", "timestamp", "created", "date", "time", "datetime"),
}
"""Names by which columns are recognised, the likeliest first."""  # fmt: skip


@dataclass(frozen=True)
class ColumnView:
    """One column as it was seen.

    Attributes
    ----------
    name, type : str
    null_share : float
        In [0, 1].
    distinct : int
        Different values among the rows looked at; nested values count as their JSON text.
    unique : bool
        Whether no value stands twice and none is null.
    words : float
        Mean number of words of its text.
    """

    name: str
    type: str
    null_share: float
    distinct: int
    unique: bool
    words: float


@dataclass(frozen=True)
class Guess:
    """That a column could play a role, and why."""

    role: str
    column: str
    reason: str


@dataclass(frozen=True)
class Bound:
    """A cut of a column of whole numbers.

    Attributes
    ----------
    value : int
        At most 85 % of the rows lie at or below it, unless the smallest value alone has more.
    torn : float
        Share of the rows whose group lies on both sides, in [0, 1]; 0 without groups.
    """

    value: int
    torn: float


@dataclass(frozen=True)
class Inspection:
    """What a look at a source found.

    Attributes
    ----------
    source : str
        As it was given.
    format : str
    files, rows_seen : int
    complete : bool
        Whether every row was looked at.
    unreadable : int
        Rows among them that could not be read.
    columns : tuple of ColumnView
    guesses : tuple of Guess
        Best first within a role.
    bounds : dict
        For each column with the role steps, where a split could cut it.
    """

    source: str
    format: str
    files: int
    rows_seen: int
    complete: bool
    unreadable: int
    columns: tuple[ColumnView, ...]
    guesses: tuple[Guess, ...]
    bounds: dict[str, Bound]

    def best(self, role: str) -> str | None:
        """Name the likeliest column for a role: id, input, output, domain, group, level, template, structure,
        created_at, steps (a small whole number to cut a split at)."""
        return next((guess.column for guess in self.guesses if guess.role == role), None)

    def column(self, name: str) -> ColumnView:
        """Return one column's view."""
        return next(view for view in self.columns if view.name == name)


def inspect(source: str | Path, *, base: str | Path = ".", format: str | None = None) -> Inspection:
    """Look at up to `SAMPLE` rows of a source and guess what its columns are.

    Raises
    ------
    UsageError, DataRefused
        As `sources.shards` and the readers do; DataRefused where there is no row.
    """
    found = shards(source, base, format)
    options = ReadOptions()
    schema = source_schema({shard.uri: shard_schema(shard, options) for shard in found})
    if long := [name for name in schema.names if len(name) > LONGEST_NAME]:
        raise DataRefused(
            f"the header looks like data: a column is called {shorten(long[0])!r}",
            where=found[0].uri,
            expected="names of columns in the first line",
            remedy="put a header line on top",
        )
    tables: list[pa.Table] = []
    unreadable = seen = 0
    complete = True
    for shard in found:
        for batch in read_shard(shard, ReadOptions(schema=schema)):
            if seen >= SAMPLE:
                complete = False
                break
            tables.append(batch.table)
            unreadable += len(batch.rejects)
            seen += len(batch.rows)
        if not complete:
            break
    if not seen:
        raise DataRefused("there is no readable row", where=str(source), expected="at least one row")
    table = pa.concat_tables(tables)
    columns = tuple(_view(name, table[name], seen) for name in schema.names)
    guesses = _guesses(columns, table)
    bounds = {guess.column: _bound(table, guess.column, guesses) for guess in guesses if guess.role == "steps"}
    return Inspection(
        str(source), found[0].format, len(found), seen, complete, unreadable, columns, tuple(guesses), bounds
    )


def _bound(table: pa.Table, steps: str, guesses: list[Guess]) -> Bound:
    """Where a split at a whole number could cut, and what that does to the groups."""
    values = pl.Series("value", pl.from_arrow(table[steps]))
    counts = values.drop_nulls().value_counts().sort("value")
    below = counts.filter(pl.col("count").cum_sum() <= 0.85 * pl.col("count").sum())
    bound = int((below if len(below) else counts)["value"][-1 if len(below) else 0])
    group = next((guess.column for guess in guesses if guess.role == "group"), None)
    if group is None:
        return Bound(bound, 0.0)
    sides = pl.DataFrame({"group": pl.from_arrow(text(table[group])), "side": values <= bound})
    torn = sides.select((pl.col("side").n_unique().over("group") > 1).mean()).item()
    return Bound(bound, float(torn))


def _view(name: str, column: pa.ChunkedArray, rows: int) -> ColumnView:
    values = pl.Series(pl.from_arrow(text(column)), dtype=pl.String)
    distinct = values.drop_nulls().n_unique()
    words = values.str.count_matches(r"\S+").mean()
    return ColumnView(
        name=name,
        type=str(column.type),
        null_share=values.null_count() / rows,
        distinct=distinct,
        unique=distinct == rows,
        words=float(words) if isinstance(words, (int, float)) else 0.0,
    )


def _guesses(columns: tuple[ColumnView, ...], table: pa.Table) -> list[Guess]:
    rows = len(table)
    found: list[Guess] = []
    few = max(2, min(rows // 2, 1000))

    def suits(role: str) -> Callable[[ColumnView], str | None]:
        def reason(view: ColumnView) -> str | None:
            kind = table.schema.field(view.name).type
            plain = not pa.types.is_nested(kind)
            tests = {
                "id": (view.unique and plain and view.words <= 1.5, "no value stands twice"),
                "input": (plain and view.null_share < 0.5, "a text in most rows"),
                "output": (plain and view.null_share < 0.5, "a value in most rows"),
                "domain": (plain and 2 <= view.distinct <= few, f"{view.distinct:,} different values"),
                "group": (plain and 2 <= view.distinct < rows, f"{view.distinct:,} different values"),
                "level": (plain and 2 <= view.distinct <= 50, f"{view.distinct:,} different values"),
                "template": (plain and 2 <= view.distinct < rows, f"{view.distinct:,} different values"),
                "structure": (_is_tree(table[view.name]), "its values are trees"),
                "created_at": (plain and view.null_share < 0.5, "a time in most rows"),
            }
            holds, why = tests[role]
            return why if holds else None

        return reason

    for role, names in NAMES.items():
        test = suits(role)
        named = sorted(
            (v for v in columns if v.name.lower() in names), key=lambda v: (names.index(v.name.lower()), v.name)
        )
        found += [Guess(role, v.name, f"its name, and {reason}") for v in named if (reason := test(v))]
    taken = {guess.column for guess in found if guess.role != "id"}
    found += [
        Guess("id", view.name, "no value stands twice")
        for view in columns
        if view.name not in taken and suits("id")(view) and pa.types.is_string(table.schema.field(view.name).type)
    ]
    if not any(guess.role == "input" for guess in found):
        longest = sorted((v for v in columns if v.words > 2 and v.type == "string"), key=lambda v: (-v.words, v.name))
        found += [Guess("input", view.name, f"the longest text, {view.words:.0f} words") for view in longest[:1]]
    found += [
        Guess("steps", view.name, f"whole numbers, {view.distinct} different ones")
        for view in columns
        if pa.types.is_integer(table.schema.field(view.name).type)
        and 3 <= view.distinct <= min(100, max(3, rows // 2))
        and re.search(r"step|length|depth|^n_|hops|size|count|num", view.name.lower())
    ]
    return found


def _is_tree(column: pa.ChunkedArray) -> bool:
    kind = column.type
    some = column.slice(0, 1000)
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        names = {field.name for field in kind.value_type}
        if not {"parent", "label"} <= names:
            return False
        problems = trees.problems(pl.Series(pl.from_arrow(some)))
        return problems.null_count() == len(problems) and some.null_count < len(some)
    values = pl.Series(pl.from_arrow(text(some)), dtype=pl.String).drop_nulls()
    if not len(values) or not values.str.contains(r"^\s*[(\[]").all():
        return False
    return trees.parse(values)[1].null_count() == len(values)

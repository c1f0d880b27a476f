"""The audit's table-level half: what only the whole version can show, with memory bounded by a part.

Uniqueness comes from the parts' key bounds, and from a merge of those parts whose ranges overlap; existence, and the
other checks whose state could grow with the rows, run in passes over hash partitions of at most `_PASS` values; the
rest are counts a group. (The hash that partitions lives for one check only, so that Polars' own, which may change
between versions, will do.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.expectations import Expectation
from gradatim.schemas.tables import TableSpec
from gradatim.storage.audit import keys
from gradatim.storage.parts import Part
from gradatim.storage.report import SAMPLE, Outcome

_PASS = 16_000_000
_MERGED = 4_000_000
STEPS = (8_192, 131_072)
"""Fewest and most rows that a merge reads from one part at a time."""


@dataclass(frozen=True)
class Reference:
    """Another table that this one points to: its name and version, its parts' paths and its number of rows."""

    name: str
    paths: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class Draft:
    """A version that is not published yet.

    Attributes
    ----------
    spec : TableSpec
    parts : sequence of (Part, str, bool)
        Every part, where it can be read now, and whether it is new.
    refer : callable
        Returns the `Reference` for a table's name, or None where there is no such table.
    options : mapping
        For reading from an object store.
    kept : set of str
        Names of parts of groups that this version only passes on. They were made from older versions of other tables
        and checked against those, so that what refers to another table is not asked of them again.
    """

    spec: TableSpec
    parts: Sequence[tuple[Part, str, bool]]
    refer: Callable[[str], Reference | None]
    options: Mapping[str, str]
    kept: Set[str] = frozenset()

    @property
    def rows(self) -> int:
        """Rows of the version."""
        return sum(part.rows for part, _, _ in self.parts)

    def scan(self, columns: Sequence[str]) -> pl.LazyFrame:
        """Scan some columns of all parts with rows."""
        return _scan([path for part, path, _ in self.parts if part.rows], columns, self.options)

    def made(self) -> list[tuple[Part, str]]:
        """Return the parts with rows that this version makes or asks for, and where they can be read."""
        return [(part, path) for part, path, _ in self.parts if part.rows and part.name not in self.kept]


def check(expectation: Expectation, draft: Draft, known: dict[str, Outcome]) -> Outcome:
    """Check one table-level expectation; `known` keeps what several of them share."""
    base = Outcome(expectation.name, expectation.severity, expectation.tolerance, str(expectation), rows=draft.rows)
    if expectation.kind == "not_empty_table":
        return base if draft.rows else _failed(base, 1, note="the table has no rows")
    if not draft.rows:
        return base
    parameters = expectation.parameters
    match expectation.kind:
        case "unique":
            if "unique" not in known:
                known["unique"] = _unique(base, draft)
            shared = known["unique"]
            return _failed(base, shared.failed, shared.sample, shared.note) if shared.failed else base
        case "exists":
            return _exists(base, draft, expectation.column, parameters["table"], parameters["other"])
        case "conserved":
            return _conserved(base, draft, parameters["by"], parameters["table"])
        case "contiguous":
            return _contiguous(base, draft, expectation.column, parameters["by"])
        case "splits_filled":
            return _filled(base, draft, expectation.column, parameters["by"], parameters["values"])
        case "kept_whole":
            return _kept_whole(base, draft, expectation.column, parameters["by"], parameters["split"])
    raise ValueError(f"{expectation.kind} is no table-level kind")


def _failed(base: Outcome, failed: int, sample: tuple[str, ...] = (), note: str = "") -> Outcome:
    made = Outcome(
        base.name, base.severity, base.tolerance, base.about, failed, base.rows, False, sample[:SAMPLE], note
    )
    return made if made.share > made.tolerance else Outcome(**{**vars(made), "holds": True})


def _scan(paths: Sequence[str], columns: Sequence[str], options: Mapping[str, str]) -> pl.LazyFrame:
    return pl.scan_parquet(
        list(paths), storage_options=dict(options) or None, missing_columns="insert", extra_columns="ignore"
    ).select(list(columns))


# --- uniqueness: overlapping parts are merged in key order


def _unique(base: Outcome, draft: Draft) -> Outcome:
    failed = 0
    sample: tuple[str, ...] = ()
    for cluster in _overlapping([(p, path) for p, path, new in draft.parts if p.rows], _new(draft)):
        for block in merge([(path, part.rows) for part, path in cluster], draft.spec.key, draft.options):
            if len(cluster) > 1:
                block = block.sort(draft.spec.key)
            same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in draft.spec.key)
            twice = block.filter(same & (pl.int_range(pl.len()) > 0))
            failed += len(twice)
            if len(twice) and len(sample) < SAMPLE:
                sample += keys(twice.unique(maintain_order=True).head(SAMPLE), draft.spec.key)
    return _failed(base, failed, sample, "rows whose key occurs before" if failed else "")


def _new(draft: Draft) -> set[str]:
    return {path for _, path, new in draft.parts if new}


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple((value is not None, value if value is not None else 0) for value in key)


def _overlapping(parts: list[tuple[Part, str]], new: set[str]) -> Iterator[list[tuple[Part, str]]]:
    """Group parts whose key ranges overlap; groups of old parts alone were checked when they were new."""
    cluster: list[tuple[Part, str]] = []
    end: tuple[Any, ...] = ()
    for part, path in sorted(parts, key=lambda item: _order(item[0].first)):
        if cluster and _order(part.first) > end:
            if any(where in new for _, where in cluster):
                yield cluster
            cluster = []
        end = max(end, _order(part.last)) if cluster else _order(part.last)
        cluster.append((part, path))
    if any(where in new for _, where in cluster):
        yield cluster


def merge(
    parts: Sequence[tuple[str, int]], key: Sequence[str], options: Mapping[str, str] | None = None
) -> Iterator[pl.DataFrame]:
    """Merge key-sorted parts.

    Parameters
    ----------
    parts : sequence of (path, rows)
    key : sequence of str
        Columns that are read, and by which every part is sorted.

    Yields
    ------
    polars.DataFrame
        Rows in blocks that follow each other in key order; equal keys always share a block. Inside a block rows are in
        order for a single part, in none for several. Memory is about 4 million keys however many parts there are.
    """
    step = max(STEPS[0], min(STEPS[1], _MERGED // max(1, len(parts))))
    at = [0] * len(parts)
    held: list[pl.DataFrame | None] = [None] * len(parts)
    while True:
        for i, (path, rows) in enumerate(parts):
            block = held[i]
            if (block is None or not len(block)) and at[i] < rows:
                held[i] = _scan([path], key, options or {}).slice(at[i], step).collect()
                at[i] += step
        live = [i for i, block in enumerate(held) if block is not None and len(block)]
        if not live:
            return
        # beyond the smallest last key of a part with more to come, nothing is certain yet
        open_ends = [held[i].row(-1) for i in live if at[i] < parts[i][1]]  # type: ignore[union-attr]
        horizon = min(open_ends, key=_order) if open_ends else None
        taken = []
        for i in live:
            block = held[i]
            assert block is not None
            count = len(block) if horizon is None else _count_up_to(block, key, horizon)
            taken.append(block.head(count))
            held[i] = block.slice(count)
            if not len(block) - count and horizon is not None and block.row(-1) == horizon and at[i] < parts[i][1]:
                # rows equal to the horizon may begin the next slice: they belong to this block
                taken.append(_pull_equal(i, parts, key, options or {}, at, held, horizon))
        yield pl.concat(taken)


def _pull_equal(
    i: int,
    parts: Sequence[tuple[str, int]],
    key: Sequence[str],
    options: Mapping[str, str],
    at: list[int],
    held: list[pl.DataFrame | None],
    horizon: tuple[Any, ...],
) -> pl.DataFrame:
    path, rows = parts[i]
    pulled = []
    while at[i] < rows:
        block = _scan([path], key, options).slice(at[i], STEPS[0]).collect()
        at[i] += STEPS[0]
        count = _count_up_to(block, key, horizon)
        pulled.append(block.head(count))
        held[i] = block.slice(count)
        if count < len(block):
            break
    return pl.concat(pulled)


def _count_up_to(block: pl.DataFrame, key: Sequence[str], horizon: tuple[Any, ...]) -> int:
    """Count the leading rows whose key is at most `horizon` (nulls are smallest)."""
    within = pl.lit(True)
    for name, value in reversed(list(zip(key, horizon, strict=True))):
        column = pl.col(name)
        if value is None:
            within = column.is_null() & within
        else:
            limit = pl.lit(value, block.schema[name])
            within = column.is_null() | (column < limit) | ((column == limit) & within)
    return int(block.select(within.sum()).item())


# --- existence and wholeness: passes over hash partitions


def _exists(base: Outcome, draft: Draft, column: str, table: str, other: str) -> Outcome:
    reference = draft.refer(table)
    if reference is None:
        return _unchecked(base, f"there is no table {table}")
    passes = max(1, -(-reference.rows // _PASS))
    failed = 0
    sample: tuple[str, ...] = ()
    for turn in range(passes):
        known = np.empty(0, np.uint64)
        if reference.paths:
            known = _hashes(_scan(reference.paths, [other], draft.options), other, passes, turn).to_numpy()
        known = np.sort(known)
        for _, path in draft.made():
            ids = _scan([path], [column], draft.options).filter(pl.col(column).is_not_null())
            frame = ids.with_columns(pl.col(column).hash(0).alias("_hash")).filter(pl.col("_hash") % passes == turn)
            found = frame.collect()
            hashes = found["_hash"].to_numpy()
            place = np.searchsorted(known, hashes)
            hit = np.zeros(len(hashes), bool)
            inside = place < len(known)
            hit[inside] = known[place[inside]] == hashes[inside]
            lost = found.filter(~pl.Series(hit))
            failed += len(lost)
            if len(sample) < SAMPLE and len(lost):
                sample += keys(lost.unique(column, maintain_order=True).head(SAMPLE), [column])
    return _failed(base, failed, sample, f"rows whose {column} is not in {reference.name}") if failed else base


def _hashes(frame: pl.LazyFrame, column: str, passes: int, turn: int) -> pl.Series:
    hashed = frame.select(pl.col(column).hash(0)).filter(pl.col(column) % passes == turn)
    return hashed.collect(engine="streaming").to_series()


def _kept_whole(base: Outcome, draft: Draft, column: str, by: Sequence[str], split: str) -> Outcome:
    group = [*by, column]
    passes = max(1, -(-draft.rows // _PASS))
    rows = draft.scan([*group, split]).filter(pl.col(column).is_not_null(), pl.col(split) != "excluded")
    failed = 0
    sample: tuple[str, ...] = ()
    for turn in range(passes):
        part = rows.filter(pl.col(column).hash(0) % passes == turn)
        torn = part.group_by(group).agg(pl.col(split).n_unique().alias("n")).filter(pl.col("n") > 1)
        found = torn.collect(engine="streaming").sort(group)
        failed += len(found)
        sample += keys(found.head(SAMPLE), group)
    return _failed(base, failed, sample, f"values of {column} that lie in several splits") if failed else base


# --- counts a group


def _groups(draft: Draft, by: Sequence[str], *what: pl.Expr, more: Sequence[str] = ()) -> pl.DataFrame:
    return draft.scan([*by, *more]).group_by(list(by)).agg(*what).collect(engine="streaming").sort(list(by))


def _conserved(base: Outcome, draft: Draft, by: Sequence[str], table: str) -> Outcome:
    reference = draft.refer(table)
    if reference is None:
        return _unchecked(base, f"there is no table {table}")
    # with unique keys and ids that exist, equal counts mean that every id is there exactly once
    paths = [path for _, path in draft.made()]
    if not paths:
        return base
    counts = _scan(paths, by, draft.options).group_by(list(by)).agg(pl.len().alias("n")).collect(engine="streaming")
    counts = counts.filter(pl.col("n") != reference.rows).sort(list(by))
    if not len(counts):
        return base
    missing = int(counts.select((pl.col("n").cast(pl.Int64) - reference.rows).abs().sum()).item())
    first = counts["n"][0]
    note = f"{len(counts)} of the groups do not have the {reference.rows:,} rows of {reference.name}, e.g. {first:,}"
    return _failed(base, missing, keys(counts.head(SAMPLE), by), note)


def _contiguous(base: Outcome, draft: Draft, column: str, by: Sequence[str]) -> Outcome:
    span = _groups(
        draft,
        by,
        pl.len().cast(pl.Int64).alias("n"),
        pl.col(column).min().alias("low"),
        pl.col(column).max().alias("high"),
        more=[column],
    )
    wrong = span.filter((pl.col("low") != 0) | (pl.col("high") != pl.col("n") - 1))
    if not len(wrong):
        return base
    row = wrong.row(0, named=True)
    note = f"{row['n']:,} positions run from {row['low']:,} to {row['high']:,}; expected 0 to {row['n'] - 1:,}"
    return _failed(base, len(wrong), keys(wrong.head(SAMPLE), by), note)


def _filled(base: Outcome, draft: Draft, column: str, by: Sequence[str], values: Sequence[str]) -> Outcome:
    counts = _groups(draft, by, *((pl.col(column) == value).sum().alias(value) for value in values), more=[column])
    empty = counts.filter(pl.any_horizontal(pl.col(value) == 0 for value in values))
    if not len(empty):
        return base
    row = empty.row(0, named=True)
    without = ", ".join(value for value in values if row[value] == 0)
    return _failed(base, len(empty), keys(empty.head(SAMPLE), by), f"no rows in {without}")


def _unchecked(base: Outcome, why: str) -> Outcome:
    return Outcome(base.name, base.severity, base.tolerance, base.about, holds=None, note=why)

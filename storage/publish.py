"""Publish: compute the parts that are missing, audit them, and make the new version visible in one commit.

What nobody has asked for before is produced, everything else is listed again: N old and n new rows cost O(n) to make.
Until the commit nothing is visible, so that a process may die at any moment.
"""

from __future__ import annotations

import importlib.metadata
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.expectations import Suite
from gradatim.schemas.expectations import suite as suite_of
from gradatim.schemas.tables import TableSpec
from gradatim.schemas.tables import spec as spec_of
from gradatim.storage.audit import RowAudit
from gradatim.storage.casting import Changes, Frame, conform, stored_schema
from gradatim.storage.checks import Draft, Reference, check
from gradatim.storage.delta import Log, Version
from gradatim.storage.evolve import differs, initial_schema, note_widths, retype, unify
from gradatim.storage.parts import PART_ROWS, Part, cut, read_part, sort, types_hash, write_part
from gradatim.storage.report import AuditReport, Outcome

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset

_LOOK_BACK = 50
_PACKAGES = ("gradatim", "polars", "pyarrow", "deltalake", "great-expectations")


@dataclass(frozen=True)
class Wanted:
    """One step's result that the new version shall hold.

    Attributes
    ----------
    fingerprint : str
        `parts.fingerprint` of the step; if the table holds it already, `produce` is not called.
    produce : callable
        Returns the rows as an iterable of Polars frames, Arrow tables or batches.
    group : str
        Name of the result inside the table: a method, a strategy, an arm, a source shard. With `keep_others` all
        parts of the groups that are wanted are replaced, and those of other groups stay.
    ordered : bool
        The stream comes sorted by the table's key: refused if not, and its parts' key ranges are then disjoint, so that
        uniqueness costs nothing.
    """

    fingerprint: str
    produce: Callable[[], Iterable[Frame]]
    group: str = ""
    ordered: bool = False


@dataclass(frozen=True)
class Published:
    """What `publish` did.

    Attributes
    ----------
    table, version, content_hash, rows
        The version that now stands, and what it holds.
    new_parts, reused_parts : tuple of str
        File names.
    audit : AuditReport or None
        None where nothing had to be published.
    reused : bool
        Whether the current version was what is wanted, so that there is no new one.
    """

    table: str
    version: int
    content_hash: str
    rows: int
    new_parts: tuple[str, ...]
    reused_parts: tuple[str, ...]
    audit: AuditReport | None
    reused: bool = False

    @property
    def reference(self) -> str:
        """The version's name, e.g. ``splits@12``; give it as a parent of what is made from it."""
        return f"{self.table}@{self.version}"

    @property
    def rejected(self) -> int:
        """Rows that the audit left out."""
        return self.audit.rejected if self.audit else 0


@dataclass
class _Work:
    """One publishing attempt while it runs."""

    dataset: Dataset
    spec: TableSpec
    log: Log
    folder: Path
    audit: RowAudit
    changes: Changes
    part_rows: int
    schema: pa.Schema
    sizes: Mapping[str, int]
    draft: str = field(default_factory=lambda: uuid.uuid4().hex)
    staged: dict[str, Path] = field(default_factory=dict)


def publish(
    dataset: Dataset,
    table: str | TableSpec,
    wanted: Sequence[Wanted],
    *,
    suite: Suite | None = None,
    parents: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    keep_others: bool = False,
    changes: Changes | None = None,
    part_rows: int = PART_ROWS,
) -> Published:
    """Make a version of a table that holds exactly what is wanted.

    Parameters
    ----------
    dataset : Dataset
    table : str or TableSpec
        A spec for tables whose contract has parameters (`features_spec`).
    wanted : sequence of Wanted
        In the order in which readers get the parts.
    suite : Suite, optional
        Expectations; by default the table's own (`gradatim.schemas.expectations.suite`).
    parents : sequence of str
        Versions that this one is made from, e.g. ``["examples@3"]``: for lineage, and for checks that ids exist.
    metadata : mapping, optional
        JSON values to record: recipe hash, seeds, counts.
    keep_others : bool
        Keep the current parts of groups that are not wanted here.
    changes : Changes, optional
        The user's word on renamed and dropped columns.
    part_rows : int
        Rows of a part at most.

    Returns
    -------
    Published

    Raises
    ------
    DataRefused
        Where the audit refuses (everything is in quarantine, and the former version stays) or a part is damaged.
    TryAgain
        Where another publisher came first.
    """
    spec = spec_of(table) if isinstance(table, str) else table
    log = dataset.log(spec.name)
    if len({w.fingerprint for w in wanted}) != len(wanted):
        raise UsageError(f"two results of {spec.name} have one fingerprint", expected="a fingerprint a result")
    current = log.latest()
    sizes = dataset.store.sizes(dataset.name, spec.name)
    kept = _others(current, wanted) if keep_others else []
    held = _held(log, wanted, sizes)
    reused = [*kept, *(old for w in wanted for old in held.get(w.fingerprint, ()))]
    _undamaged([part for part, _ in reused], sizes, log)
    missing = [w for w in wanted if w.fingerprint not in held]
    if current is not None and not missing and {part.name for part, _ in reused} == {p.name for p in current.parts}:
        names = tuple(part.name for part in current.parts)
        return Published(spec.name, current.number, current.content_hash, current.rows, (), names, None, True)
    with dataset.store.staging(dataset.name) as folder:
        schema = note_widths(current.schema, spec) if current is not None else initial_schema(spec)
        audit = RowAudit(suite or suite_of(spec.name), spec, folder)
        work = _Work(dataset, spec, log, folder, audit, changes or Changes(), part_rows, schema, sizes)
        made = _produce(work, missing)
        fresh = [(pa.parquet.read_schema(work.staged[part.name]), part) for parts in made.values() for part in parts]
        found = [(columns, part.rows) for columns, part in fresh]
        work.schema = unify(spec, schema, found, work.changes, first=current is None)
        origin = {part.name: columns for columns, part in fresh} | {part.name: columns for part, columns in reused}
        # where a column of the table itself grew, all parts get new names and replace the old ones
        grown = current is not None and differs(schema, work.schema)
        listed = [part for part, _ in kept]
        for w in wanted:
            olds = [replace(part, group=w.group) for part, _ in held.get(w.fingerprint, ())]
            listed += olds or made[w.fingerprint]
        parts = [_rewrite(work, part) if grown or differs(origin[part.name], work.schema) else part for part in listed]
        report = _table_level(work, parts, parents, frozenset(part.name for part in parts[: len(kept)]))
        if report.refused:
            raise _quarantine(work, report)
        return _commit(work, parts, report, current, parents, dict(metadata or {}), grown)


def _others(current: Version | None, wanted: Sequence[Wanted]) -> list[tuple[Part, pa.Schema]]:
    """Return the current parts of groups that nobody asks for, with the columns of their version."""
    groups, made = {w.group for w in wanted}, {w.fingerprint for w in wanted}
    parts = current.parts if current is not None else ()
    return [(p, current.schema) for p in parts if current and p.group not in groups and p.fingerprint not in made]


def _held(log: Log, wanted: Sequence[Wanted], sizes: Mapping[str, int]) -> dict[str, list[tuple[Part, pa.Schema]]]:
    """Find results that the table has: in its current version, or in an older one whose files still stand.

    A recipe that is changed back therefore costs nothing.
    """
    sought = {w.fingerprint for w in wanted}
    found: dict[str, list[tuple[Part, pa.Schema]]] = {}
    for seen, version in enumerate(log.newest_first()):
        if seen > _LOOK_BACK or not sought:
            break
        results: dict[str, list[Part]] = {}
        for part in version.parts:
            results.setdefault(part.fingerprint, []).append(part)
        for made in sought & results.keys():
            if seen == 0 or all(sizes.get(part.name) == part.bytes for part in results[made]):
                found[made] = [(part, version.schema) for part in results[made]]
        sought -= found.keys()
    return found


def _undamaged(parts: Sequence[Part], sizes: Mapping[str, int], log: Log) -> None:
    for part in parts:
        if sizes.get(part.name) != part.bytes:
            has = f"{sizes[part.name]:,} bytes" if part.name in sizes else "no file"
            raise DataRefused(
                f"the part {part.name} is damaged: {has} instead of {part.bytes:,} bytes",
                where=log.uri,
                expected="the file as it was published",
                remedy="bring the file back from a copy of the store, or publish into a new dataset",
            )


# --- write and validate row by row, one part ahead


def _produce(work: _Work, missing: Sequence[Wanted]) -> dict[str, list[Part]]:
    """Write each missing result as parts; a part is validated in a second thread while the next is written."""
    made: dict[str, list[Part]] = {w.fingerprint: [] for w in missing}
    pending: Future[Part] | None = None

    def collect() -> None:
        if pending is not None:
            part = pending.result()
            made[part.fingerprint].append(part)

    with ThreadPoolExecutor(1) as pool:
        for w in missing:
            for index, table in enumerate(_sorted_parts(work, w)):
                part, path = write_part(table, work.spec, work.folder, w.fingerprint, index, w.group)
                del table
                collect()
                pending = pool.submit(_validate, work, part, path)
        collect()
    return made


def _sorted_parts(work: _Work, w: Wanted) -> Iterator[pa.Table]:
    where = f"table {work.spec.name}{f', {w.group}' if w.group else ''}"
    frames = (conform(frame, work.spec, work.schema, work.changes) for frame in w.produce())
    last: tuple[Any, ...] | None = None
    seen = False
    for table in cut(frames, work.part_rows):
        seen = True
        table = sort(table, work.spec, ordered=w.ordered, where=where)
        if w.ordered and len(table):
            first = tuple(table.column(name)[0].as_py() for name in work.spec.key)
            if last is not None and first < last:
                raise DataRefused(f"the stream is not sorted: {first} comes after {last}", where=where)
            last = tuple(table.column(name)[len(table) - 1].as_py() for name in work.spec.key)
        yield table
    if not seen:  # a result without rows is a part too: it need not be computed again
        yield stored_schema(work.spec).empty_table()


def _validate(work: _Work, part: Part, path: Path) -> Part:
    kept = work.audit.check(path)
    if kept is not None:
        part, path = write_part(kept, work.spec, work.folder, part.fingerprint, part.index, part.group)
    return _stage(work, part, path)


def _stage(work: _Work, part: Part, path: Path) -> Part:
    if work.sizes.get(part.name, part.bytes) != part.bytes:
        # an older version has this content in other types under that name, which must stay as it is
        part = replace(part, types=types_hash(pa.parquet.read_schema(path)))
    work.staged[part.name] = path
    return part


def _rewrite(work: _Work, part: Part) -> Part:
    """Write a part again, under a new name, in the version's types: readers want one type a column."""
    source = work.staged.pop(part.name, None)
    table = retype(read_part(source) if source else work.dataset.read_part(work.spec.name, part), work.schema)
    new, path = write_part(table, work.spec, work.folder, part.fingerprint, part.index, part.group)
    if source is None:
        new = replace(new, types=types_hash(work.schema))  # which no former version had
    return _stage(work, new, path)


# --- table-level checks, quarantine, commit


def _table_level(work: _Work, parts: Sequence[Part], parents: Sequence[str], kept: frozenset[str]) -> AuditReport:
    dataset, suite = work.dataset, work.audit.suite
    named = dict(parent.split("@", 1) for parent in parents)

    def refer(table: str) -> Reference | None:
        version = dataset.log(table).latest() if table not in named else dataset.version(f"{table}@{named[table]}")
        if version is None:
            return None
        paths = tuple(dataset.part_uri(table, part) for part in version.parts if part.rows)
        return Reference(version.reference, paths, version.rows)

    places = [
        (part, str(work.staged.get(part.name) or dataset.part_uri(work.spec.name, part)), part.name in work.staged)
        for part in parts
    ]
    draft = Draft(work.spec, places, refer, dataset.store.options, kept)
    shared: dict[str, Outcome] = {}
    outcomes = [*work.audit.outcomes(), *(check(e, draft, shared) for e in suite.table_level)]
    folder = dataset.store.uri(_quarantine_key(work)) if work.audit.files else ""
    return AuditReport(work.spec.name, draft.rows, work.audit.rows, tuple(outcomes), work.audit.rejected, folder)


def _quarantine_key(work: _Work) -> str:
    return work.dataset.store.key(work.dataset.name, "_quarantine", work.spec.name, work.draft)


def _record(work: _Work, report: AuditReport, key: str) -> None:
    document = {"draft": work.draft, "report": report.to_dict(), "great_expectations": work.audit.results}
    work.dataset.store.put(key, json.dumps(document, indent=1, default=str).encode())
    for file in work.audit.files:
        work.dataset.store.put_file(f"{_quarantine_key(work)}/{file.name}", file)


def _quarantine(work: _Work, report: AuditReport) -> DataRefused:
    """Move a refused draft to quarantine: its parts, all offending rows, the reasons."""
    key = _quarantine_key(work)
    report = replace(report, offending=work.dataset.store.uri(key))
    _record(work, report, f"{key}/audit.json")
    for name, path in work.staged.items():
        work.dataset.store.put_file(f"{key}/{name}", path)
    first, *more = report.refused
    return DataRefused(
        f"{work.spec.name} REFUSED (data, not code): {first}" + "".join(f"\n  {outcome}" for outcome in more),
        where=f"{work.dataset.name}/{work.spec.name}",
        expected=first.about,
        remedy=f"see the rows in {report.offending}, mend the data and run again; the former version stays in force",
    )


def _commit(
    work: _Work,
    parts: Sequence[Part],
    report: AuditReport,
    current: Version | None,
    parents: Sequence[str],
    metadata: dict[str, Any],
    rewritten: bool,
) -> Published:
    store = work.dataset.store
    # a part's name is its content: to write one that a dead publisher left behind again changes nothing
    for name, path in work.staged.items():
        store.put_file(f"{work.log.key}/{name}", path)
    document = {
        **metadata,
        "draft": work.draft,
        "parents": list(parents),
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "suite": work.audit.suite.suite_hash(),
        "rows": report.rows,
        "rejected": report.rejected,
        "warnings": [outcome.name for outcome in report.warnings],
    }
    version = work.log.commit(work.spec, parts, work.schema, document, current, rewritten=rewritten)
    _record(work, report, store.key(work.dataset.name, "_audits", work.spec.name, f"{work.draft}.json"))
    new = tuple(part.name for part in version.parts if part.name in work.staged)
    old = tuple(part.name for part in version.parts if part.name not in work.staged)
    return Published(work.spec.name, version.number, version.content_hash, version.rows, new, old, report)

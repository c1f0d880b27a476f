"""What there is in a store: releases, versions, rows, files; and the proof of a training run's order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Cell, Fact, Summary, SummaryTable
from gradatim.schemas.tables import TABLES
from gradatim.storage.lineage import lineage
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset
from gradatim.tasks.splits.side_by_side import side_by_side
from gradatim.tasks.training.audit import AuditResult, audit
from gradatim.tasks.training.task import run_folder


def open_dataset(store: str, dataset: str | None) -> Dataset:
    """Open a dataset; its name may be left out where the store holds one. Never makes a store."""
    if "://" not in store and not Path(store).is_dir():
        raise UsageError("there is no store here", where=store, remedy="name it with --store")
    opened = Store.open(store)
    known = opened.datasets()
    if dataset is None and len(known) == 1:
        dataset = known[0]
    if dataset is None or dataset not in known:
        what = "which dataset?" if dataset is None else f"there is no dataset {dataset!r}{nearest(dataset, known)}"
        raise UsageError(
            what, where=store, expected="one of " + (", ".join(known) or "(none yet)"), remedy="name it with --dataset"
        )
    return opened.dataset(dataset)


def log_of(store: str, dataset: str | None) -> Summary:
    """Tell the releases of a dataset and the newest version of each table."""
    found = open_dataset(store, dataset)
    releases = [found.read_release(number) for number in reversed(found.releases())]
    rows: list[tuple[Cell, ...]] = []
    for table in found.tables():
        versions = found.versions(table)
        newest = versions[0]
        released = next((r.number for r in releases if r.tables.get(table) == newest.number), None)
        rows.append(
            (newest.reference, _time(newest.created_at), newest.rows, len(newest.parts), len(versions), released)
        )
    listed = tuple(
        (r.number, r.created_at, r.based_on, ", ".join(f"{t}@{v}" for t, v in sorted(r.tables.items())))
        for r in releases
    )
    current = f"release {releases[0].number} is current" if releases else "nothing is released yet"
    return Summary(
        step="log",
        headline=f"{found.name}: {len(rows)} tables, {current}",
        tables=(
            SummaryTable(
                "Newest versions", ("version", "made", "rows", "parts", "versions", "in release"), tuple(rows)
            ),
            *((SummaryTable("Releases", ("release", "made", "based on", "tables"), listed),) if listed else ()),
        ),
        next=("gradatim show TABLE@VERSION", "gradatim paths TABLE@VERSION"),
    )


def show_table(store: str, dataset: str | None, reference: str, rows: int) -> Summary:
    """Tell what a version holds, what it was made from, and its first rows."""
    found = open_dataset(store, dataset)
    version = found.version(reference)
    frame = found.scan(version.table, version.number).head(max(rows, 0)).collect()
    sample = tuple(tuple(_cell(value) for value in row) for row in frame.iter_rows())
    contract = TABLES.get(version.table)
    columns = tuple(
        (f.name, str(f.type), (contract.schema.field(f.name).metadata or {}).get(b"description", b"").decode())
        if contract is not None and f.name in contract.schema.names
        else (f.name, str(f.type), "as it came")
        for f in version.schema
    )
    parents = tuple((v.reference, v.rows, v.content_hash) for v in lineage(found, version.reference).walk()[1:])
    made = version.metadata
    return Summary(
        step="show",
        headline=f"{version.reference}: {version.rows:,} rows in {len(version.parts)} parts",
        facts=(
            Fact("content hash", version.content_hash),
            Fact("made", _time(version.created_at)),
            Fact("key", ", ".join(contract.key) if contract else "example_id"),
            Fact("groups", ", ".join(dict.fromkeys(part.group for part in version.parts if part.group)) or "one"),
            Fact("recipe", made.get("recipe_hash")),
            Fact("rejected by the audit", made.get("rejected")),
            Fact("warnings of the audit", ", ".join(made.get("warnings", ())) or "none"),
        ),
        tables=(
            SummaryTable("Columns", ("column", "type", "meaning"), columns),
            *((SummaryTable("Made from", ("version", "rows", "content hash"), parents),) if parents else ()),
            SummaryTable(f"First {len(sample)} rows", tuple(frame.columns), sample),
        ),
        next=(f"gradatim paths {version.reference}",),
    )


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def paths_of(store: str, dataset: str | None, reference: str) -> list[str]:
    """Return the plain Parquet files of a version."""
    return open_dataset(store, dataset).paths(reference)


def compare_of(store: str, dataset: str | None, names: Sequence[str]) -> Summary:
    """Set the newest certificates of strategies side by side; all of them where none is named."""
    found = open_dataset(store, dataset)
    table = found.scan("certificate").collect()
    known = table["strategy"].unique().sort().to_list()
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no split {name!r}{nearest(name, known)}", where=found.name, expected=", ".join(known)
            )
    chosen = list(dict.fromkeys(names)) or known
    return side_by_side([table.filter(pl.col("strategy") == name) for name in chosen]).summary()


def audit_of(store: str, dataset: str | None, run: str) -> AuditResult:
    """Audit a training run, named by its folder, its id, or the beginning of its id.

    Raises
    ------
    UsageError
        For a name that no run, or more than one, has.
    """
    if (Path(run) / "config.json").is_file():
        return audit(Path(run))
    found = open_dataset(store, dataset)
    folder = run_folder(found, run).parent
    known = (
        sorted(path.name for path in folder.iterdir() if (path / "config.json").is_file()) if folder.is_dir() else []
    )
    matches = [name for name in known if name == run] or [name for name in known if name.startswith(run)]
    if len(matches) != 1:
        what = f"{len(matches)} runs begin with {run!r}" if matches else f"there is no run {run!r}{nearest(run, known)}"
        raise UsageError(what, where=str(folder), expected=", ".join(known) or "(no run yet)")
    return audit(folder / matches[0])

"""What the thin Prefect tasks of all areas share: where results go, how they are named, kept and found again.

A step's fingerprint names its result. What is published under a known fingerprint is not computed again; its summary,
kept beside the tables, is shown again.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from gradatim.schemas.errors import TryAgain, UsageError, nearest
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.summary import Summary
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Published, Wanted
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.mapped import collected
from gradatim.tasks.core.registry import Config, Plugin
from gradatim.tasks.core.row_numbers import SLICE

SECTIONS = ("responses", "dynamics", "options", "features")
"""Sections of a recipe, beside the examples, that bring a table."""
BOOKKEEPING = ("source_uri", "source_row", "content_hash", "first_version", "changed_version")
"""Columns of examples that say where a row came from and when: none of ``examples.*``."""


@dataclass(frozen=True)
class Place:
    """Where a run works; small, and safe to send to another process.

    Attributes
    ----------
    location, dataset : str
        Store and dataset.
    base : str
        Folder that the recipe's relative paths start from.
    seed : int
    recipe_hash : str
    """

    location: str
    dataset: str
    base: str
    seed: int
    recipe_hash: str

    def open(self) -> Dataset:
        """Open the dataset."""
        return Store.open(self.location).dataset(self.dataset)

    def metadata(self, **more: Any) -> dict[str, Any]:
        """Return what is recorded with every version that this run publishes."""
        return {"recipe_hash": self.recipe_hash, "seed": self.seed, **more}


@dataclass(frozen=True)
class Method:
    """One step of a recipe with its plug-in and validated settings; `where` is its path in the recipe."""

    area: str
    name: str
    plugin: Plugin
    config: Config
    where: str

    def needs(self) -> tuple[str, ...]:
        """Columns that it reads, as ``table.column``, with the settings that name columns filled in."""
        return self.plugin.columns(self.config)

    def reads(self) -> tuple[str, ...]:
        """Tables that it reads, sorted."""
        return tuple(sorted({need.split(".")[0] for need in self.needs()}))

    @property
    def of(self) -> tuple[str, ...]:
        """Earlier steps of the same section that it reads."""
        found = getattr(self.config, "of", None) if self.area in self.reads() else None
        return () if found is None else (found,) if isinstance(found, str) else tuple(found)

    def fingerprint(self, seed: int, inputs: Sequence[str]) -> str:
        """Name its result on these inputs (content hashes, in a fixed order)."""
        # JSON text, not JSON values: infinity is a valid setting
        settings = json.loads(self.config.model_dump_json())
        for setting in (*self.config.paths, *self.config.folders):
            if settings[setting] is not None:
                settings[setting] = path_hash(Path(settings[setting]))
        section = value_hash({"method": self.plugin.name, "name": self.name, "settings": settings, "seed": seed})
        return fingerprint(f"{self.area} {self.plugin.name}", self.plugin.revision, section, inputs)


def path_hash(path: Path) -> str:
    """Return the SHA-256 of a file, or of names and hashes of all files below a folder but hidden ones; 64 hex digits.

    Links are followed: what a hub's cache lays out as links to blobs counts as the files that it shows.
    """
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    shown = (found for found in path.rglob("*") if not any(n.startswith(".") for n in found.relative_to(path).parts))
    files = sorted((found.relative_to(path).as_posix(), found) for found in shown if found.is_file())
    text = json.dumps([[name, path_hash(found)] for name, found in files])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class StepResult:
    """What a step hands to the next ones: a summary and versions of tables, never rows."""

    summary: Summary
    versions: Mapping[str, int]


def retried(task: Any, run: Any, state: Any) -> bool:
    """Tell Prefect which failures may pass by themselves: only those that say `TryAgain`."""
    try:
        state.result()
    except TryAgain:
        return True
    except BaseException:
        return False
    return False


RETRIES: dict[str, Any] = {"retries": 2, "retry_delay_seconds": 5, "retry_condition_fn": retried}
"""How every task is retried."""


def read_columns(
    dataset: Dataset, versions: Mapping[str, int], needs: Iterable[str], *, where: str
) -> dict[str, pl.DataFrame]:
    """Read the columns that a method needs, with each table's ids; see `scan_columns`.

    Examples and vectors come sorted by id, memory-mapped where they are many (`mapped.collected`); other tables are in
    memory.
    """
    scans = scan_columns(dataset, versions, needs, where=where)
    frames = {}
    for name, scan in scans.items():
        if name == "examples" or name.startswith("features_"):
            columns = scan.collect_schema().names()
            frames[name] = collected([part.select(columns) for part in dataset.scan_by_part(name, versions[name])])
        else:
            frames[name] = scan.collect()
    return frames


def scan_columns(
    dataset: Dataset, versions: Mapping[str, int], needs: Iterable[str], *, where: str
) -> dict[str, pl.LazyFrame]:
    """Scan the columns that a method needs, with each table's ids.

    Parameters
    ----------
    versions : mapping of str to int
        Versions of the tables that there are.
    needs : iterable of str
        As ``table.column``; with a ``?`` at the end where it need not be there. ``table.*`` stands for all columns of
        the table but `BOOKKEEPING`.

    Raises
    ------
    UsageError
        For a table that the recipe does not make, or a column that it does not have.
    """
    wanted: dict[str, list[str]] = {}
    for need in needs:
        table, column = need.split(".", 1)
        if column == "*" and table in versions:
            names = dataset.version(f"{table}@{versions[table]}").schema.names
            wanted.setdefault(table, []).extend(name for name in names if name not in BOOKKEEPING)
        elif not column.endswith("?"):
            wanted.setdefault(table, []).append(column)
        elif table in versions and column[:-1] in dataset.version(f"{table}@{versions[table]}").schema.names:
            wanted.setdefault(table, []).append(column[:-1])
    frames = {}
    for table, columns in wanted.items():
        if table not in versions:
            section = table.split("_")[0]
            raise UsageError(
                f"this needs the table {table!r}, which the recipe does not make",
                where=where,
                remedy=f"add a section {section!r} to the recipe" if section in SECTIONS else "",
            )
        have = require_columns(dataset, f"{table}@{versions[table]}", columns, where=where)
        key = [name for name in ("example_id", "respondent_id") if name in have]
        frames[table] = dataset.scan(table, versions[table]).select(list(dict.fromkeys([*key, *columns])))
    return frames


def require_columns(dataset: Dataset, reference: str, columns: Iterable[str], *, where: str) -> list[str]:
    """Return a version's columns; raises `UsageError` with the nearest spelling where it lacks one of `columns`."""
    have: list[str] = dataset.version(reference).schema.names
    for column in columns:
        if column not in have:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, have)}",
                where=f"{where}: table {reference.split('@')[0]}",
                expected="one of " + ", ".join(have),
            )
    return have


def anchored(dataset: Dataset, method: Method, table: str) -> str | None:
    """Find the released version of a table whose rows of a method it keeps to by its setting `anchor`.

    None without the setting, and for ``current`` where no release holds such rows yet.

    Raises
    ------
    UsageError
        A release that is named by number holds none.
    """
    wanted = getattr(method.config, "anchor", None)
    if wanted is None:
        return None
    release = dataset.latest_release() if wanted == "current" else dataset.read_release(int(wanted))
    if release is None:
        return None
    version = release.tables.get(table)
    reference = f"{table}@{version}"
    if version is None or not group_parts(dataset, reference, method.name):
        if wanted == "current":
            return None
        raise UsageError(
            f"release {release.number} has no {table.replace('_', ' ')} of {method.name!r}",
            where=method.where,
            expected="a release that has some to keep to",
        )
    return reference


def group_parts(dataset: Dataset, reference: str, group: str) -> list[str]:
    """Return the fingerprints of a group's parts in a version, sorted."""
    return sorted({part.fingerprint for part in dataset.version(reference).parts if part.group == group})


def keep_summary(dataset: Dataset, made: str, summary: Summary) -> None:
    """Keep a result's summary under its fingerprint."""
    text = json.dumps(summary.to_dict(), ensure_ascii=False)
    dataset.store.put(_summary_key(dataset, made), text.encode("utf-8", "surrogatepass"))


def kept_summary(dataset: Dataset, made: str) -> Summary | None:
    """Return the summary of a result that was published before, marked as reused; None where there is none."""
    raw = dataset.store.get(_summary_key(dataset, made))
    return replace(Summary.from_dict(json.loads(raw)), reused=True) if raw else None


def held(dataset: Dataset, table: str, made: str, group: str) -> bool:
    """Whether a table's newest version holds the result `made` as its group `group`."""
    latest = dataset.log(table).latest()
    return latest is not None and any(part.fingerprint == made and part.group == group for part in latest.parts)


def publish_group(
    dataset: Dataset,
    place: Place,
    table: str,
    group: str,
    made: str,
    rows: pl.DataFrame,
    parents: Sequence[str],
    *,
    ordered: bool = False,
    **metadata: Any,
) -> Published:
    """Publish one method's rows of a table that several share, some at a time; the others' rows stay.

    `ordered` rows stand in the order of the table's key, and are not sorted in memory.
    """
    wanted = Wanted(made, lambda: rows.iter_slices(SLICE) if len(rows) else [rows], group=group, ordered=ordered)
    return dataset.publish(table, [wanted], parents=parents, metadata=place.metadata(**metadata), keep_others=True)


def quarantine(dataset: Dataset, table: str, name: str, rows: pl.DataFrame) -> str:
    """Write rows that were refused to the quarantine of a table and return where they lie."""
    key = dataset.store.key(dataset.name, "_quarantine", table, uuid.uuid4().hex, name)
    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    dataset.store.put(key, buffer.getvalue())
    return dataset.store.uri(key)


def keep_only(
    dataset: Dataset, place: Place, table: str, groups: Iterable[str], parents: Sequence[str], *, among: str = ""
) -> None:
    """Drop the results of a shared table that the recipe no longer asks for; what stays is listed again as it is.

    Only groups whose name begins with `among` are looked at: one area leaves the results of another alone.
    """
    latest = dataset.log(table).latest()
    if latest is None:
        return
    groups = set(groups)
    staying = {
        part.fingerprint: part.group
        for part in latest.parts
        if part.group in groups or not part.group.startswith(among)
    }
    if len(staying) == len({part.fingerprint for part in latest.parts}):
        return
    wanted = [Wanted(made, _absent, group=group) for made, group in staying.items()]
    metadata = {k: v for k, v in latest.metadata.items() if k in ("bases", "grounds", "ledgers")}
    dataset.publish(table, wanted, parents=parents, metadata=place.metadata(**metadata))


def _absent() -> Iterable[pl.DataFrame]:
    raise TryAgain("a part that the newest version lists was taken away meanwhile", remedy="run the step again")


def _summary_key(dataset: Dataset, made: str) -> str:
    return dataset.store.key(dataset.name, "_summaries", f"{made}.json")

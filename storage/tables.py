"""A dataset: its tables, their versions, and how they are read and published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.expectations import Suite
from gradatim.schemas.hashing import content_hash
from gradatim.schemas.tables import TABLES, TableSpec
from gradatim.storage.casting import Changes
from gradatim.storage.delta import Log, Version
from gradatim.storage.parts import PART_ROWS, Part
from gradatim.storage.publish import Published, Wanted, publish
from gradatim.storage.releases import Release, read_release, release_numbers
from gradatim.storage.releases import release as release_
from gradatim.storage.store import NAME, Store


@dataclass(frozen=True)
class Dataset:
    """The tables under one name in a store; make one with `Store.dataset`.

    A version is named ``table@number``, ``table@current`` (of the newest release) or ``table`` (the newest, released
    or not).
    """

    store: Store
    name: str

    # --- what there is

    def log(self, table: str) -> Log:
        """Return a table's Delta log; raises `UsageError` for a name that no table has."""
        if table not in TABLES and not (table.startswith("features_") and NAME.fullmatch(table)):
            raise UsageError(
                f"there is no table {table!r}{nearest(table, TABLES)}",
                where=self.name,
                expected="one of " + ", ".join([*TABLES, "features_NAME"]),
            )
        return Log(self.store, self.store.key(self.name, table), table)

    def tables(self) -> list[str]:
        """Return the names of the tables that have a version, sorted."""
        found = self.store.folders(self.name)
        return [name for name in found if not name.startswith("_") and self.log(name).latest() is not None]

    def versions(self, table: str) -> list[Version]:
        """Return all versions of a table that its log still has, newest first."""
        return list(self.log(table).newest_first())

    def resolve(self, reference: str) -> tuple[str, int]:
        """Turn ``splits@12``, ``splits@current`` or ``splits`` into a table's name and a version's number.

        Raises
        ------
        UsageError
            For a table without versions or releases, or for what is no reference.
        """
        table, _, wanted = reference.partition("@")
        log = self.log(table)
        if not wanted:
            latest = log.latest()
            if latest is None:
                raise UsageError(
                    f"the table {table!r} has no version yet",
                    where=self.store.uri(self.name),
                    expected="one of " + (", ".join(self.tables()) or "(no table has)"),
                )
            return table, latest.number
        if wanted == "current":
            release = self.latest_release()
            if release is None or table not in release.tables:
                what = "there is no release yet" if release is None else f"release {release.number} has no {table}"
                raise UsageError(what, where=self.store.uri(self.name), remedy=f"gradatim paths {table}")
            return table, release.tables[table]
        if not re.fullmatch(r"\d{1,18}", wanted):
            raise UsageError(f"{reference!r} names no version", expected=f"{table}, {table}@current or {table}@12")
        return table, int(wanted)

    def version(self, reference: str) -> Version:
        """Return a version by its name; raises `UsageError` with the versions that there are."""
        table, number = self.resolve(reference)
        version = self.log(table).version(number)
        if version is None:
            known = [v.number for v in self.log(table).newest_first()]
            raise UsageError(
                f"there is no version {table}@{number}",
                where=self.store.uri(self.name),
                expected="one of " + (", ".join(map(str, known[:20])) or "(none yet)"),
            )
        return version

    # --- reading

    def scan(self, table: str, version: int | None = None) -> pl.LazyFrame:
        """Scan a table lazily, its parts in the order in which they were published.

        Parameters
        ----------
        table : str
            A table, or a reference such as ``splits@12``.
        version : int, optional
            The newest by default.
        """
        found = self.version(table if version is None else f"{table}@{version}")
        return self._scan(found, [part for part in found.parts if part.rows])

    def scan_by_part(self, table: str, version: int) -> list[pl.LazyFrame]:
        """Scan a version's parts one by one, with the columns of `scan`: a scan of all reads ahead in all of them."""
        found = self.version(f"{table}@{version}")
        return [self._scan(found, [part]) for part in found.parts if part.rows] or [self._scan(found, [])]

    def _scan(self, found: Version, parts: Sequence[Part]) -> pl.LazyFrame:
        schema = pl.Schema(pl.from_arrow(found.schema.empty_table()).schema)  # type: ignore[union-attr]
        paths = [self.part_uri(found.table, part) for part in parts]
        if not paths:
            frame = pl.LazyFrame(schema=schema)
        else:
            frame = pl.scan_parquet(
                paths,
                schema=schema,
                missing_columns="insert",
                storage_options=dict(self.store.options) or None,
            )
        widths = {f.name: int(w) for f in found.schema if (w := (f.metadata or {}).get(b"gradatim.width"))}
        return frame.with_columns(pl.col(name).list.to_array(width) for name, width in widths.items())

    def paths(self, reference: str) -> list[str]:
        """Return the plain Parquet paths or URLs of a version, e.g. of ``splits@12``."""
        version = self.version(reference)
        return [self.part_uri(version.table, part) for part in version.parts]

    def parts(self, reference: str) -> tuple[Part, ...]:
        """Return a version's parts; their content hashes go into the fingerprints of what is made from them."""
        return self.version(reference).parts

    def scan_part(self, table: str, part: Part) -> pl.LazyFrame:
        """Scan one part."""
        return pl.scan_parquet(self.part_uri(table, part), storage_options=dict(self.store.options) or None)

    def read_part(self, table: str, part: Part) -> pa.Table:
        """Read one part, without a library's own additions to its types; raises `DataRefused` where it is damaged."""
        raw = self.store.get(f"{self.log(table).key}/{part.name}")
        try:
            return pa.parquet.read_table(pa.BufferReader(raw or b""))
        except (pa.ArrowInvalid, OSError) as error:
            raise DataRefused(
                f"the part cannot be read: {str(error).splitlines()[0]}", where=self.part_uri(table, part)
            ) from None

    def part_uri(self, table: str, part: Part) -> str:
        """Return a part's path or URL."""
        return self.store.uri(f"{self.log(table).key}/{part.name}")

    def fingerprints(self, table: str, *, older: bool = False) -> set[str]:
        """Return the fingerprints whose results the newest version holds; with `older` all that the log knows."""
        versions = self.log(table).newest_first()
        found: set[str] = set()
        for version in versions:
            found |= {part.fingerprint for part in version.parts}
            if not older:
                break
        return found

    def content_hash(self, reference: str) -> str:
        """Return the hash of a version's rows, whatever their order and the cut into parts."""
        return self.version(reference).content_hash

    def metadata(self, reference: str) -> dict[str, Any]:
        """Return what was recorded with a version: recipe hash, parents, seeds, package versions, counts."""
        return self.version(reference).metadata

    def verify(self, reference: str) -> None:
        """Read a version's rows again and compare their hash; raises `DataRefused` that names the damaged part."""
        version = self.version(reference)
        for part in version.parts:
            if content_hash(self.read_part(version.table, part)) != part.content_hash:
                raise DataRefused("the part does not hold what was published", where=self.part_uri(version.table, part))

    def runs_path(self, *names: str) -> str:
        """Return the path or URL of the run folders, or of one below; a local one is made if absent."""
        key = self.store.key(self.name, "_runs", *names)
        if self.store.root is not None:
            Path(self.store.root / key).mkdir(parents=True, exist_ok=True)
        return self.store.uri(key)

    # --- writing

    def publish(
        self,
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
        """Make a version of a table that holds exactly what is wanted; see `gradatim.storage.publish.publish`."""
        return publish(
            self,
            table,
            wanted,
            suite=suite,
            parents=parents,
            metadata=metadata,
            keep_others=keep_others,
            changes=changes,
            part_rows=part_rows,
        )

    # --- releases

    def release(
        self, tables: Mapping[str, int], *, based_on: int | None, metadata: Mapping[str, Any] | None = None
    ) -> Release:
        """Make versions visible together; see `gradatim.storage.releases.release`."""
        return release_(self, tables, based_on=based_on, metadata=metadata)

    def releases(self) -> list[int]:
        """Return the numbers of all releases, oldest first."""
        return release_numbers(self)

    def read_release(self, number: int) -> Release:
        """Return a release; raises `UsageError` with the ones that there are."""
        return read_release(self, number)

    def latest_release(self) -> Release | None:
        """Return the newest release, which ``@current`` means; None before the first."""
        numbers = self.releases()
        return self.read_release(numbers[-1]) if numbers else None

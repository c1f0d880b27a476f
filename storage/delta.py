"""The Delta log of one table: what each version lists, and how a new version is added.

A version is one commit whose metadata (key ``gradatim``) describes every part that the version lists, so that one log
entry tells all. delta-rs 1.6 has what that needs, as measured on a local disk:

* an append that adds the new parts and removes those that vanish; parts that stay are not touched, and stay listed;
* ``max_commit_retries=0`` makes the commit a compare-and-swap on the version that was read (by default a second
  append lands on top of the first, and two versions silently become one);
* an append never changes the schema: new columns go in by ``alter.add_columns`` first, a commit without our
  metadata that is no version to us; widened columns rewrite the table's parts under new names in one overwrite;
* an overwrite that lists a present path again adds and removes it in one commit, which the protocol forbids: never
  done.

Log entries and files are kept until our own ``gc`` removes them (Delta's own default drops the log after 30 days).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, create_table_with_add_actions

from gradatim.schemas.errors import TryAgain, UsageError
from gradatim.schemas.hashing import add_hashes
from gradatim.schemas.tables import TableSpec
from gradatim.storage.parts import Part
from gradatim.storage.store import Store

KEPT = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
}
_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class Version:
    """One version of a table, as its log entry describes it.

    Attributes
    ----------
    table : str
    number : int
        Delta version; numbers that only changed the schema are skipped.
    created_at : int
        Milliseconds since 1970-01-01 UTC.
    parts : tuple of Part
        In the order in which they were asked for.
    schema : pyarrow.Schema
        Columns of the version as they stand in its files.
    metadata : dict
        What the publisher recorded: recipe hash, parents, seeds, package versions, counts, audit.
    """

    table: str
    number: int
    created_at: int
    parts: tuple[Part, ...]
    schema: pa.Schema
    metadata: dict[str, Any]

    @property
    def reference(self) -> str:
        """The version's name, e.g. ``splits@12``."""
        return f"{self.table}@{self.number}"

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.parts)

    @property
    def content_hash(self) -> str:
        """Hash of the rows, whatever their order and the cut into parts; 32 hex digits."""
        return add_hashes(part.content_hash for part in self.parts)


@dataclass(frozen=True)
class Log:
    """The Delta log of the table `table` in the folder `key` of a store."""

    store: Store
    key: str
    table: str

    @property
    def uri(self) -> str:
        """Path or URL of the Delta table."""
        return self.store.uri(self.key)

    def delta(self) -> DeltaTable | None:
        """Open the newest Delta version; None where there is no table."""
        self.store.key(*self.key.split("/"), "_delta_log")
        try:
            return DeltaTable(self.uri, storage_options=dict(self.store.options) or None)
        except TableNotFoundError:
            return None

    def numbers(self) -> list[int]:
        """Return every number in the log, oldest first, ours or not."""
        names = self.store.sizes(*self.key.split("/"), "_delta_log")
        return [int(match[1]) for name in names if (match := _ENTRY.fullmatch(name))]

    def version(self, number: int) -> Version | None:
        """Read one version; None where the log entry is absent or not one of ours."""
        raw = self.store.get(f"{self.key}/_delta_log/{number:020d}.json")
        if raw is None:
            return None
        for line in raw.splitlines():
            entry = json.loads(line) if line.strip() else {}
            if "commitInfo" in entry and "gradatim" in entry["commitInfo"]:
                data = json.loads(entry["commitInfo"]["gradatim"])
                schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(data.pop("schema"))))
                parts = tuple(Part.from_dict(part) for part in data.pop("parts"))
                return Version(self.table, number, entry["commitInfo"]["timestamp"], parts, schema, data)
        return None

    def newest_first(self) -> Iterator[Version]:
        """Walk our versions from the newest to the oldest."""
        for number in reversed(self.numbers()):
            if (version := self.version(number)) is not None:
                yield version

    def latest(self) -> Version | None:
        """Return the newest version of ours, or None."""
        return next(self.newest_first(), None)

    def commit(
        self,
        spec: TableSpec,
        parts: Sequence[Part],
        schema: pa.Schema,
        metadata: dict[str, Any],
        based_on: Version | None,
        *,
        rewritten: bool = False,
    ) -> Version:
        """Add a version that lists `parts`, if the table still stands at `based_on`.

        Parameters
        ----------
        spec : TableSpec
        parts : sequence of Part
            All parts of the new version; their files stand in the table's folder.
        schema : pyarrow.Schema
            Columns of the new version.
        metadata : dict
            JSON values; holds a `draft` id by which an unclear commit is recognised.
        based_on : Version or None
            The version that was read; None for the first.
        rewritten : bool
            Whether every part has a new name, because columns were widened.

        Raises
        ------
        TryAgain
            Where another publisher came first or the store did not answer.
        """
        payload = {
            **metadata,
            "parts": [part.to_dict() for part in parts],
            "schema": schema.serialize().to_pybytes().hex(),
        }
        properties = CommitProperties(custom_metadata={"gradatim": json.dumps(payload)}, max_commit_retries=0)
        try:
            self._commit(spec, parts, schema, based_on, properties, rewritten)
        except (CommitFailedError, DeltaError, OSError) as error:
            # the commit may have landed although its answer got lost: read back and compare
            landed = self.latest()
            if landed is not None and landed.metadata["draft"] == metadata["draft"]:
                return landed
            moved = (landed.number if landed else -1) != (based_on.number if based_on else -1)
            raise TryAgain(
                "another publisher came first" if moved else f"the store did not take the commit: {error}",
                where=self.uri,
                expected=f"the table to stand at version {based_on.number if based_on else 'none'}",
                remedy="run the step again; nothing of this attempt is visible",
            ) from None
        landed = self.latest()
        if landed is None or landed.metadata["draft"] != metadata["draft"]:
            mine = next((v for v in self.newest_first() if v.metadata["draft"] == metadata["draft"]), None)
            if mine is None:  # a store without create-if-absent let another commit overwrite ours
                raise TryAgain("the commit vanished from the log", where=self.uri, remedy="gradatim check RECIPE")
            return mine
        return landed

    def _commit(
        self,
        spec: TableSpec,
        parts: Sequence[Part],
        schema: pa.Schema,
        based_on: Version | None,
        properties: CommitProperties,
        rewritten: bool,
    ) -> None:
        delta_schema = DeltaSchema.from_arrow(
            pa.schema([f.with_nullable(f.name not in spec.key).with_metadata(f.metadata) for f in schema])
        )
        present = {part.name: part for part in based_on.parts} if based_on else {}
        adds = [_add(part, spec) for part in parts if part.name not in present]
        table = self.delta()
        if based_on is None:
            if table is not None:
                raise CommitFailedError("the table was created meanwhile")
            create_table_with_add_actions(
                self.uri,
                delta_schema,
                adds,
                mode="error",
                name=self.table,
                configuration=KEPT,
                storage_options=dict(self.store.options) or None,
                commit_properties=properties,
            )
            return
        if table is None:
            raise CommitFailedError("the table is gone")
        if table.version() != based_on.number:
            self._refuse_foreign(based_on.number + 1, table.version())
        if rewritten:
            table.create_write_transaction(adds, "overwrite", delta_schema, commit_properties=properties)
            return
        known = {field.name for field in table.schema().fields}
        if fresh := [field for field in delta_schema.fields if field.name not in known]:
            table.alter.add_columns(fresh, commit_properties=CommitProperties(max_commit_retries=0))
        keeps = {part.name for part in parts}
        now = int(time.time() * 1000)
        gone = [RemoveAction(n, True, now, part.bytes, {}) for n, part in present.items() if n not in keeps]
        table.create_write_transaction([*adds, *gone], "append", table.schema(), commit_properties=properties)

    def _refuse_foreign(self, first: int, last: int) -> None:
        """Say who stands between: one of us (a lost race), a change of schema only, or another tool's write."""
        for number in range(first, last + 1):
            if self.version(number) is not None:
                raise CommitFailedError(f"version {number} was published meanwhile")
            raw = self.store.get(f"{self.key}/_delta_log/{number:020d}.json") or b""
            if b'"add":' in raw or b'"remove":' in raw:
                raise UsageError(
                    f"version {number} was written by another tool",
                    where=self.uri,
                    expected="a table that only gradatim writes",
                    remedy=f"restore version {first - 1} with that tool's own history, or publish to another dataset",
                )


def _add(part: Part, spec: TableSpec) -> AddAction:
    stats: dict[str, Any] = {"numRecords": part.rows}
    if part.rows:
        # only the first key column is sorted throughout a part; strings that would have to be cut are left out
        low, high = part.first[0], part.last[0]
        if not any(isinstance(bound, str) and len(bound) > 256 for bound in (low, high)):
            stats |= {"minValues": {spec.key[0]: low}, "maxValues": {spec.key[0]: high}}
    now = int(time.time() * 1000)
    return AddAction(part.name, part.bytes, {}, now, True, json.dumps(stats))

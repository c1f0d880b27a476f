"""What is known of a source's shards, under their fingerprints: an unchanged shard is never read again."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset


@dataclass(frozen=True)
class ShardNotes:
    """Notes about one shard, `made` its fingerprint: counts, frames of narrow columns, bytes."""

    dataset: Dataset
    made: str

    def get(self, name: str) -> bytes | None:
        """Read a note; None where there is none."""
        return self.dataset.store.get(self._key(name))

    def put(self, name: str, content: bytes) -> None:
        """Write a note."""
        self.dataset.store.put(self._key(name), content)

    def frame(self, name: str) -> pl.DataFrame:
        """Read a frame that `keep` wrote."""
        return pl.read_parquet(io.BytesIO(self.get(f"{name}.parquet") or b""))

    def scan(self, name: str) -> pl.LazyFrame:
        """Scan a frame that `keep` wrote, without holding it."""
        store = self.dataset.store
        return pl.scan_parquet(store.uri(self._key(f"{name}.parquet")), storage_options=dict(store.options) or None)

    def keep(self, name: str, frame: pl.DataFrame) -> None:
        """Write a frame."""
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        self.put(f"{name}.parquet", buffer.getvalue())

    def counts(self) -> dict[str, int] | None:
        """Read the counts, written last: where there are some, all other notes are there."""
        raw = self.get("counts.json")
        found: dict[str, int] | None = json.loads(raw) if raw else None
        return found

    def keep_counts(self, **counts: int) -> dict[str, int]:
        """Write the counts and return them."""
        self.put("counts.json", json.dumps(counts).encode())
        return counts

    def _key(self, name: str) -> str:
        return self.dataset.store.key(self.dataset.name, "_shards", self.made, name)

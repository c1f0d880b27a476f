"""Small sources on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from gradatim.schemas.recipe import Examples
from gradatim.tasks.ingest.examples import Ingested, read_examples
from gradatim.tasks.ingest.reading import ReadOptions, Reject, read_shard, shard_schema, source_schema
from gradatim.tasks.ingest.sources import shards

Read = Callable[..., tuple[pa.Table, list[int], list[Reject]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write bytes to a file and read it back: rows, their numbers, rejects."""

    def run(name: str, content: bytes, **options: Any) -> tuple[pa.Table, list[int], list[Reject]]:
        (tmp_path / name).write_bytes(content)
        return read_file(tmp_path / name, **options)

    return run


def read_file(path: Path, **options: Any) -> tuple[pa.Table, list[int], list[Reject]]:
    """Read one file in two passes, as ingest does."""
    (shard,) = shards(path.name, path.parent, options.pop("format", None))
    schema = source_schema({shard.uri: shard_schema(shard, ReadOptions(**options))})
    batches = list(read_shard(shard, ReadOptions(**options, schema=schema)))
    rows = [row for batch in batches for row in batch.rows.to_pylist()]
    table = pa.concat_tables([batch.table for batch in batches]) if batches else pa.table({})
    return table, rows, [reject for batch in batches for reject in batch.rejects]


@pytest.fixture
def read_path() -> Read:
    """Read a file that is there."""
    return read_file


@pytest.fixture
def ingest(tmp_path: Path) -> Callable[..., Ingested]:
    """Write files and read them as examples."""

    def run(files: dict[str, str | bytes | pl.DataFrame], source: str = ".", **section: Any) -> Ingested:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, pl.DataFrame):
                content.write_parquet(path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_examples(Examples.model_validate({"from": source} | section), base=tmp_path)

    return run

"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.ingest.reading import BATCH_ROWS, Batch, ReaderConfig, ReadOptions
from gradatim.tasks.ingest.sources import Shard

MAX_GROUP = 4 << 30
"""Bytes that one column of one row group may unpack to; more is taken for a trap."""

MAX_RATIO = 10_000
"""Times that a file may claim to unpack to its own size."""


@register(
    "reader",
    "parquet",
    config=ReaderConfig,
    cost=lambda rows, width: Cost(seconds=rows * width * 1e-7, bytes=400e6),
    source="Apache Parquet format specification",
    row_wise=True,
)
def read_parquet(shard: Shard, options: ReadOptions) -> Iterator[Batch]:
    """Parquet, batch by batch; what a file claims of itself is compared with bounds before anything is unpacked."""
    try:
        with pq.ParquetFile(shard.path, pre_buffer=False, memory_map=False, page_checksum_verification=True) as file:
            _probe(file, shard)
            yield Batch(file.schema_arrow.empty_table(), pa.array([], pa.int64()))
            if options.types_only:
                return
            names = None
            if options.schema is not None:
                names = [name for name in file.schema_arrow.names if name in options.schema.names]
            position = 0
            for record_batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names, use_threads=False):
                record_batch.validate(full=True)
                rows = np.arange(position, position + len(record_batch), dtype=np.int64)
                position += len(record_batch)
                yield Batch(pa.Table.from_batches([record_batch]), pa.array(rows))
            if position != file.metadata.num_rows:
                claimed = file.metadata.num_rows
                raise DataRefused(f"the file claims {claimed:,} rows and holds {position:,}", where=shard.uri)
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise _unreadable(shard, error) from None


def _unreadable(shard: Shard, error: BaseException) -> DataRefused:
    reason = str(error).split("\n")[0][:200] or type(error).__name__
    return DataRefused(
        f"this is no readable Parquet file, or a truncated one ({reason})",
        where=shard.uri,
        expected=f"a whole Parquet file; this one has {shard.size:,} bytes",
        remedy="write or copy it again, or leave it out",
    )


def _probe(file: pq.ParquetFile, shard: Shard) -> None:
    meta = file.metadata
    claimed = rows = 0
    for g in range(meta.num_row_groups):
        group = meta.row_group(g)
        rows += group.num_rows
        for c in range(group.num_columns):
            column = group.column(c)
            packed, unpacked = column.total_compressed_size, column.total_uncompressed_size
            if min(packed, unpacked, group.num_rows) < 0 or packed > shard.size or unpacked > MAX_GROUP:
                raise DataRefused(
                    f"the column {column.path_in_schema!r} claims {packed:,} bytes that unpack to {unpacked:,}",
                    where=shard.uri,
                    expected=f"at most {MAX_GROUP:,} unpacked, and no more than the file's {shard.size:,} packed",
                )
            claimed += unpacked
    if rows != meta.num_rows or claimed > MAX_RATIO * max(shard.size, 1):
        raise DataRefused(
            f"the file claims {meta.num_rows:,} rows ({rows:,} in its row groups) and {claimed:,} bytes unpacked",
            where=shard.uri,
            expected="figures that agree with each other and with the file's size",
        )

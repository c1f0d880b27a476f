"""Arrow IPC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.ingest.reading import BATCH_ROWS, Batch, ReaderConfig, ReadOptions
from gradatim.tasks.ingest.sources import Shard


@register(
    "reader",
    "arrow",
    config=ReaderConfig,
    cost=lambda rows, width: Cost(seconds=rows * width * 5e-8, bytes=400e6),
    source="Apache Arrow columnar format: serialization and interprocess communication",
    row_wise=True,
)
def read_arrow(shard: Shard, options: ReadOptions) -> Iterator[Batch]:
    """Arrow IPC, file (Feather 2) or stream; every batch is validated before it is used."""
    try:
        with pa.OSFile(str(shard.path)) as source:
            schema, batches = _open(source)
            _names(schema)
            yield Batch(schema.empty_table(), pa.array([], pa.int64()))
            if options.types_only:
                return
            position = 0
            for whole in batches:
                whole.validate(full=True)
                for start in range(0, len(whole), BATCH_ROWS):
                    part = whole.slice(start, BATCH_ROWS)
                    rows = np.arange(position, position + len(part), dtype=np.int64)
                    position += len(part)
                    yield Batch(pa.Table.from_batches([part]), pa.array(rows))
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise DataRefused(
            f"this is no readable Arrow IPC file, or a truncated one ({reason})",
            where=shard.uri,
            expected=f"an Arrow IPC file or stream; this one has {shard.size:,} bytes",
            remedy="write or copy it again, or leave it out",
        ) from None


def _names(fields: Iterable[pa.Field]) -> None:
    """Touch every name, nested ones too: in a damaged file one may be no UTF-8, which raises here."""
    for found in fields:
        _ = found.name
        _names(found.type.field(i) for i in range(found.type.num_fields))


def _open(source: pa.NativeFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    magic = source.read(6)
    source.seek(0)
    if magic == b"ARROW1":
        file = pa.ipc.open_file(source)
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    stream = pa.ipc.open_stream(source)
    return stream.schema, iter(stream)

"""The order of a run as a file: an uncompressed Arrow IPC table, one row a position, memory-mapped by every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import row_hashes
from gradatim.tasks.training.order import occurrences

SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), False, {"description": "row of the example in the cache"}),
        pa.field(
            "id_hash", pa.binary(16), False, {"description": "xxh3-128 of the example's id, halves little-endian"}
        ),
        pa.field("weight", pa.float32(), False, {"description": "loss weight"}),
        pa.field("epoch", pa.int32(), False, {"description": "how often this example has come before"}),
    ]
)
_CHUNK = 1 << 20
_FEW = 1024
_HEAD = len("example_id").to_bytes(4, "little") + b"example_id" + b"s"


@dataclass(frozen=True)
class Manifest:
    """The order: for each position the example's row and id hash, its loss weight and its epoch.

    Attributes
    ----------
    row : int64, hashes : uint64 of shape (positions, 2), weight : float32, epoch : int32
    hash : str
        The manifest hash, 32 hex digits: xxh3-128 over the ordered (id hash, weight).
    """

    row: np.ndarray
    hashes: np.ndarray
    weight: np.ndarray
    epoch: np.ndarray
    hash: str

    def __len__(self) -> int:
        return len(self.row)

    def __repr__(self) -> str:
        return f"Manifest({len(self):,} positions, {self.hash})"

    def save(self, path: Path) -> None:
        """Write the Arrow IPC file, whole or not at all."""
        hashes = np.ascontiguousarray(self.hashes, dtype="<u8")
        columns = [
            pa.array(np.ascontiguousarray(self.row)),
            pa.Array.from_buffers(pa.binary(16), len(self), [None, pa.py_buffer(hashes)]),
            pa.array(np.ascontiguousarray(self.weight)),
            pa.array(np.ascontiguousarray(self.epoch)),
        ]
        temporary = path.with_name(path.name + ".tmp")
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            # one batch, so that each column is one piece of the mapped file and is read without a copy
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
        temporary.replace(path)


def id_hashes(ids: pa.Array | pa.ChunkedArray | Sequence[str]) -> np.ndarray:
    """Hash example ids: uint64 of shape (ids, 2), the halves of xxh3-128."""
    if isinstance(ids, pa.Array) and len(ids) <= _FEW:
        digests = [xxhash.xxh3_128_digest(_encoded(name)) for name in ids.to_pylist()]
        return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64).reshape(-1, 2)
    column = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids, pa.string())
    return row_hashes(pa.table({"example_id": column}))


def _encoded(name: str) -> bytes:
    """Write an id as `row_hashes` does; for a batch's few ids that kernels' start costs more than their work saves."""
    value = name.encode("utf-8", "surrogatepass")
    return _HEAD + len(value).to_bytes(8, "little") + value


def manifest_hash(hashes: np.ndarray, weight: np.ndarray) -> str:
    """Hash an order: xxh3-128 over (high, low, weight) of each position, little-endian, 20 bytes a position."""
    state = xxhash.xxh3_128(b"gradatim order 1")
    for begin in range(0, len(hashes), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        packed = np.empty(len(hashes[part]), dtype=np.dtype([("id", "<u8", 2), ("weight", "<f4")]))
        packed["id"], packed["weight"] = hashes[part], weight[part]
        state.update(packed.tobytes())
    return state.hexdigest()


def build(row: np.ndarray, hashes: np.ndarray, weight: np.ndarray) -> Manifest:
    """Build a manifest from each position's cache row, id hash and weight."""
    if not len(row):
        raise DataRefused("the order has no positions", expected="at least one training example")
    weight = weight.astype(np.float32)
    if not np.isfinite(weight).all() or (weight < 0).any():
        at = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
        raise DataRefused(
            f"the weight is {weight[at]}", where=f"curriculum: position {at}", expected="a finite number >= 0"
        )
    return Manifest(row.astype(np.int64), hashes, weight, occurrences(row), manifest_hash(hashes, weight))


def load(path: Path) -> Manifest:
    """Open a manifest file, memory-mapped, and hash it anew; raises `UsageError` if it is absent."""
    if not path.is_file():
        raise UsageError("there is no order here", where=str(path), expected="a training run's folder")
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    row, weight, epoch = (batch.column(name).to_numpy() for name in ("row", "weight", "epoch"))
    hashes = np.frombuffer(batch.column("id_hash").buffers()[1], dtype="<u8", count=2 * len(row)).reshape(-1, 2)
    return Manifest(row, hashes, weight, epoch, manifest_hash(hashes, weight))

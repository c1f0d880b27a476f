"""Training dynamics: what each example did each time it was trained, written as Parquet parts a checkpoint interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from gradatim.schemas.tables import spec
from gradatim.tasks.training.loader import Cell
from gradatim.tasks.training.signals import NAMES

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = spec("dynamics").schema
_LIMIT = 262_144


class Dynamics:
    """Collects one rank's rows and writes them; figures stay on the device until they are written.

    Parameters
    ----------
    folder : Path
        The run's ``dynamics`` folder.
    run_id : str
    attempt, rank : int
    """

    def __init__(self, folder: Path, run_id: str, attempt: int, rank: int) -> None:
        self.folder, self.run_id, self.attempt, self.rank = folder, run_id, attempt, rank
        self._cells: list[Cell] = []
        self._signals: list[dict[str, Tensor]] = []
        self._rows = 0
        self._part = 0

    def add(self, cell: Cell, signals: dict[str, Tensor]) -> None:
        """Take one micro step's figures: tensors of at least ``len(cell.positions)`` values."""
        n = len(cell.positions)
        if not n:
            return
        self._cells.append(cell)
        kept = {name: signals[name].detach() for name in NAMES if name in signals}
        whole = len(cell.weights) == n
        self._signals.append(kept if whole else {name: value[:n] for name, value in kept.items()})
        self._rows += n
        cell.batch.clear()

    @property
    def full(self) -> bool:
        """Whether so much is buffered that a part should be written before the next checkpoint."""
        return self._rows >= _LIMIT

    def write(self, begin: int, end: int) -> None:
        """Write what was added since the last call as a part of the interval of steps that began at `begin`."""
        import torch

        if not self._rows:
            return
        columns: dict[str, Any] = {
            "run_id": pa.array([self.run_id] * self._rows, pa.string()),
            "position": np.concatenate([c.positions for c in self._cells]),
            "example_id": pa.concat_arrays([pa.array(c.ids).cast(pa.string()) for c in self._cells]),
            "epoch": np.concatenate([c.epochs for c in self._cells]),
        }
        for name in NAMES:
            if all(name in found for found in self._signals):
                values = torch.cat([found[name] for found in self._signals])
                columns[name] = (values.bool() if name == "correct" else values.float()).cpu().numpy()
            else:
                columns[name] = pa.nulls(self._rows, SCHEMA.field(name).type)
        table = pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA).sort_by("position")
        path = self.folder / f"{pattern(begin, end, self.attempt)}-{self.rank:04d}-{self._part:04d}.parquet"
        temporary = path.with_name(f".{path.name}.tmp")
        pq.write_table(table, temporary, compression="zstd")
        temporary.replace(path)
        self._cells, self._signals, self._rows = [], [], 0
        self._part += 1


def pattern(begin: int, end: int, attempt: int) -> str:
    """Return how the names of an interval's parts begin: the checkpoint interval in steps and the attempt."""
    return f"{begin:010d}-{end:010d}-{attempt:06d}"


def scan(parts: list[Path]) -> pl.LazyFrame:
    """Read parts as one frame in the schema of the table `dynamics`, sorted by position."""
    if not parts:
        return pl.from_arrow(SCHEMA.empty_table()).lazy()  # type: ignore[union-attr]
    return pl.scan_parquet(parts).sort("position")

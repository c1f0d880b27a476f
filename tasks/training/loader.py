"""Batches in the order of the manifest: our own dataset and sampler around torch's DataLoader.

With every batch travels what it was made from: its positions and the ids of the examples that were really read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gradatim.tasks.training import order
from gradatim.tasks.training.cache import ID, Cache
from gradatim.tasks.training.manifest import Manifest, id_hashes
from gradatim.tasks.training.order import Plan, World


@dataclass(frozen=True)
class Cell:
    """What one rank trains in one micro step.

    Attributes
    ----------
    step, index : int
        Optimizer step, and the cell's number inside it (``micro * world + rank``).
    positions : numpy.ndarray of int64
        Positions that count; may be empty in a short last step, whose batch then holds one row of weight 0.
    hashes : numpy.ndarray of uint64, shape (positions, 2)
        Hashes of the ids that were read.
    ids : pyarrow.Array
    epochs : numpy.ndarray of int32
    weights : numpy.ndarray of float32, shape (rows of the batch,)
    batch : dict of Tensor
        As the model's `collate` made it.
    """

    step: int
    index: int
    positions: np.ndarray
    hashes: np.ndarray
    ids: pa.Array
    epochs: np.ndarray
    weights: np.ndarray
    batch: dict[str, Any]


class Cells:
    """A map-style dataset whose item is a whole cell, asked for by (step, index, positions)."""

    def __init__(self, manifest: Manifest, cache: Cache, collate: Callable[[pa.Table], dict[str, Any]]) -> None:
        self.manifest, self.cache, self.collate = manifest, cache, collate

    def __getitem__(self, key: tuple[int, int, np.ndarray, int]) -> Cell:
        step, index, positions, spare = key
        n = len(positions)
        # every rank must take part in the collectives of every micro step, even with nothing to train
        wanted = positions if n else np.array([spare])
        table = self.cache.take(self.manifest.row[wanted])
        weights = self.manifest.weight[wanted] if n else np.zeros(1, np.float32)
        ids = table[ID].combine_chunks()[:n]
        return Cell(
            step, index, positions, id_hashes(ids), ids, self.manifest.epoch[positions], weights, self.collate(table)
        )


def keys(plan: Plan, world: World, start: int) -> Iterator[tuple[int, int, np.ndarray, int]]:
    """Yield the cells of one rank from a step on: (step, index, positions, a position of the same step)."""
    for step in range(start, plan.steps):
        spare = plan.span(step)[0]
        for micro, positions in enumerate(order.positions(plan, step, world)):
            yield step, micro * world.size + world.rank, positions, spare


def cells(dataset: Cells, plan: Plan, world: World, *, start: int, workers: int) -> Iterator[Cell]:
    """Iterate over one rank's cells in order; `workers` processes read ahead, which changes no order."""
    from torch.utils.data import DataLoader

    sampler = _Keys(plan, world, start)
    more: dict[str, Any] = {"prefetch_factor": 4} if workers else {}
    return iter(DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=workers, collate_fn=_same, **more))


def _same(cell: Cell) -> Cell:
    return cell


class _Keys:
    def __init__(self, plan: Plan, world: World, start: int) -> None:
        self.arguments = plan, world, start

    def __iter__(self) -> Iterator[tuple[int, int, np.ndarray, int]]:
        return keys(*self.arguments)

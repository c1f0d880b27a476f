"""Batches in the order of the manifest: our own dataset and sampler around torch's DataLoader.

With every batch travels what it was made from: its positions and the ids of the examples that were really read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
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


Key = tuple[int, int, np.ndarray, int]
"""How a cell is asked for: step, index, positions, and some position of the same step."""

_ROWS_A_READ = 1024


class Cells:
    """A map-style dataset whose item is a run of cells: their rows are read and their ids hashed in one go."""

    def __init__(self, manifest: Manifest, cache: Cache, collate: Callable[[pa.Table], dict[str, Any]]) -> None:
        self.manifest, self.cache, self.collate = manifest, cache, collate

    def __getitem__(self, asked: list[Key]) -> list[Cell]:
        # every rank must take part in the collectives of every micro step, even with nothing to train
        wanted = [positions if len(positions) else np.array([spare]) for _, _, positions, spare in asked]
        places = np.concatenate(wanted)
        table = self.cache.take(self.manifest.row[places])
        ids = table[ID].combine_chunks()
        hashes, weights, epochs = id_hashes(ids), self.manifest.weight[places], self.manifest.epoch[places]
        found, begin = [], 0
        for (step, index, positions, _), rows in zip(asked, wanted, strict=True):
            n, here = len(positions), slice(begin, begin + len(positions))
            weight = weights[here] if n else np.zeros(1, np.float32)
            batch = self.collate(table.slice(begin, len(rows)))
            found.append(Cell(step, index, positions, hashes[here], ids[here], epochs[here], weight, batch))
            begin += len(rows)
        return found


def keys(plan: Plan, world: World, start: int) -> Iterator[Key]:
    """Yield the cells of one rank from a step on."""
    for step in range(start, plan.steps):
        spare = plan.span(step)[0]
        for micro, positions in enumerate(order.positions(plan, step, world)):
            yield step, micro * world.size + world.rank, positions, spare


def cells(dataset: Cells, plan: Plan, world: World, *, start: int, workers: int) -> Iterator[Cell]:
    """Iterate over one rank's cells in order; `workers` processes read ahead, which changes no order."""
    from torch.utils.data import DataLoader

    more: dict[str, Any] = {"prefetch_factor": 4} if workers else {}
    runs = _Runs(plan, world, start)
    loader = DataLoader(dataset, batch_size=None, sampler=runs, num_workers=workers, collate_fn=_same, **more)
    return chain.from_iterable(loader)


def _same(found: list[Cell]) -> list[Cell]:
    return found


class _Runs:
    """The sampler: a rank's cells in order, as many at a time as are read in one go."""

    def __init__(self, plan: Plan, world: World, start: int) -> None:
        self.arguments, self.n = (plan, world, start), max(_ROWS_A_READ // plan.micro_batch, 1)

    def __iter__(self) -> Iterator[list[Key]]:
        left = keys(*self.arguments)
        while run := list(islice(left, self.n)):
            yield run

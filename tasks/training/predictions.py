"""Answers of a trained model to the evaluation rows, in the schema of the table `predictions`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from gradatim.schemas.tables import spec
from gradatim.tasks.training.cache import ID, Cache
from gradatim.tasks.training.order import World

if TYPE_CHECKING:
    from torch import nn

SCHEMA = spec("predictions").schema
BATCH = 512


def name(step: int) -> str:
    """Return the folder of a checkpoint's predictions under ``predictions``."""
    return f"step-{step:010d}"


def batches(module: Any, cache: Cache, rows: np.ndarray, world: World) -> Iterator[pa.Table]:
    """Yield this rank's share of the rows, alike ones together, so that little is decoded in vain."""
    if hasattr(module, "size") and len(rows):
        sizes = np.concatenate([module.size(part) for part in cache.batches(rows)])
        rows = np.unique(rows)[np.argsort(sizes, kind="stable")]
    for begin in range(world.rank * BATCH, len(rows), world.size * BATCH):
        yield cache.take(rows[begin : begin + BATCH])


def answer(module: nn.Module, table: pa.Table, *, run_id: str, step: int, seed: int, device: Any) -> pa.Table:
    """Decode one batch and compare with the right answers.

    `correct` is exact equality of the answer with the right one, both written alike (`answers`); `loss` is the mean
    loss over the right answer's tokens (nats).
    """
    import torch

    batch = {key: value.to(device) for key, value in module.collate(table).items()}
    with torch.inference_mode():
        loss = module(batch)["loss"].float().cpu().numpy()
        said = list(module.predict(batch))
        chances = module.probabilities(batch).float().cpu().tolist() if hasattr(module, "probabilities") else None
    right = module.answers(table) if hasattr(module, "answers") else table["output"].to_pylist()
    correct = np.array([a == b for a, b in zip(said, right, strict=True)], dtype=bool)
    n = len(table)
    columns: dict[str, Any] = {
        "run_id": [run_id] * n,
        "checkpoint": [step] * n,
        "example_id": table[ID].to_pylist(),
        "attempt": [0] * n,
        "variant": ["plain"] * n,
        "seed": [seed] * n,
        "prediction": said,
        "correct": correct,
        "score": correct.astype(np.float64),
        "loss": loss.astype(np.float64),
        "probabilities": [None] * n if chances is None else chances,
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def write(module: nn.Module, cache: Cache, rows: np.ndarray, world: World, folder: Path, **facts: Any) -> None:
    """Decode this rank's share and write it as one Parquet file in `folder`; `facts` go to `answer`."""
    folder.mkdir(parents=True, exist_ok=True)
    module.eval()
    with pq.ParquetWriter(folder / f"rank{world.rank:04d}.parquet", SCHEMA, compression="zstd") as writer:
        for table in batches(module, cache, rows, world):
            writer.write_table(answer(module, table, **facts))


def publish(scratch: Path, run_dir: Path, step: int) -> None:
    """Move finished predictions to their place, instead of earlier ones of the same checkpoint."""
    target = run_dir / "predictions" / name(step)
    if target.exists():
        shutil.rmtree(target)
    scratch.replace(target)


def scan(run_dir: Path, step: int) -> pl.LazyFrame:
    """Read a checkpoint's predictions, sorted by example."""
    return pl.scan_parquet(run_dir / "predictions" / name(step) / "*.parquet").sort("example_id")

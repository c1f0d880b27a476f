"""A run's folder: all that its workers need and all that they leave, in files that any reader opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Train
from gradatim.tasks.training import attempts, cache, manifest, models
from gradatim.tasks.training.order import Plan, accumulation


@dataclass(frozen=True)
class Run:
    """A prepared run.

    Attributes
    ----------
    folder : Path
    run_id : str
    train : Train
        The recipe's section.
    seed : int
    plan : Plan
        Length of the order and the batch sizes.
    manifest_hash : str
        Names the order: the manifest hash.
    cache : Path
        The examples' Arrow IPC file.
    """

    folder: Path
    run_id: str
    train: Train
    seed: int
    plan: Plan
    manifest_hash: str
    cache: Path

    def manifest(self) -> manifest.Manifest:
        """Open the order; raises `DataRefused` if its bytes are not those that the run was prepared with."""
        found = manifest.load(self.folder / "order.arrow")
        if found.hash != self.manifest_hash:
            raise DataRefused(
                f"the order has hash {found.hash}",
                where=str(self.folder / "order.arrow"),
                expected=f"{self.manifest_hash}, as the run was prepared with",
                remedy="prepare the run again",
            )
        return found

    def config(self) -> dict[str, Any]:
        """Return all settings, as ``config.json`` holds them."""
        found: dict[str, Any] = attempts.read_json(self.folder / "config.json")
        return found

    def outcome(self) -> dict[str, Any]:
        """Return what the finished run left, or an empty dict."""
        found: dict[str, Any] = attempts.read_json(self.folder / "outcome.json", {})
        return found

    def evaluation(self) -> pl.DataFrame:
        """Return the rows to answer after training: `split` and the cache's `row`."""
        return pl.read_ipc(self.folder / "evaluation.arrow")


def prepare(
    run_dir: Path,
    *,
    train: Train,
    examples: pl.DataFrame | pl.LazyFrame,
    order: pl.DataFrame,
    evaluate: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    cache_dir: Path | None = None,
    run_id: str = "",
) -> Run:
    """Write a run's folder; nothing is started. The same arguments give the same folder, so it may be called again.

    Parameters
    ----------
    run_dir : Path
        The run's folder; its name is the run's id unless `run_id` is given.
    train : Train
    examples : DataFrame or LazyFrame
        All rows that are trained or evaluated: `example_id` and the columns that the model reads.
    order : DataFrame
        The curriculum of one arm and seed: `position` (0, 1, 2, ...), `example_id`, optionally `weight`.
    evaluate : mapping of split to ids, optional
        What the trained model answers.
    seed : int
        Seed of the initial weights and of dropout.
    cache_dir : Path, optional
        Shared folder of the examples' files; ``cache`` beside the run's folder by default.

    Raises
    ------
    UsageError
        If the batch sizes do not fit the ranks, a column is missing, or the folder holds another run.
    DataRefused
        If the order has gaps or names an example that is not there.
    """
    cached = cache.write(examples, models.columns(train.model), cache_dir or run_dir.parent / "cache")
    rows = cache.Cache(cached)
    order = _ordered(order)
    row = rows.rows_of(order["example_id"], where="curriculum")
    weight = order["weight"].to_numpy() if "weight" in order.columns else np.ones(len(order), np.float32)
    hashes = np.concatenate([manifest.id_hashes(part) for part in rows.ids()])
    found = manifest.build(row, hashes[row], weight)
    plan = Plan(len(found), train.global_batch, train.micro_batch, train.max_steps)
    accumulation(plan, train.ranks)

    config = {
        "run_id": run_id or run_dir.name,
        "seed": seed,
        "train": train.model_dump(mode="json"),
        "manifest": found.hash,
        "positions": len(found),
        "steps": plan.steps,
        "cache": str(cached.resolve()),
        "evaluate": {split: value_hash(sorted(ids)) for split, ids in (evaluate or {}).items()},
    }
    _same_or_new(run_dir, config)
    for name in ("attempts", "records", "checkpoints", "dynamics", "predictions"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    found.save(run_dir / "order.arrow")
    parts = [
        pl.DataFrame({"row": rows.rows_of(pl.Series(ids, dtype=pl.String), where=f"evaluate: {split}")}).select(
            pl.lit(split).alias("split"), pl.col("row").cast(pl.Int64)
        )
        for split, ids in (evaluate or {}).items()
    ]
    empty = pl.DataFrame(schema={"split": pl.String, "row": pl.Int64})
    temporary = run_dir / "evaluation.arrow.tmp"
    pl.concat([empty, *parts]).write_ipc(temporary)
    temporary.replace(run_dir / "evaluation.arrow")
    attempts.write_json(
        run_dir / "manifest.json",
        {"hash": found.hash, "positions": len(found), "global_batch": plan.global_batch, "steps": plan.steps},
    )
    attempts.write_json(run_dir / "config.json", config)
    return open_run(run_dir)


def open_run(run_dir: Path) -> Run:
    """Open a prepared run's folder; raises `UsageError` if it is none."""
    path = run_dir / "config.json"
    if not path.is_file():
        raise UsageError("there is no training run here", where=str(run_dir), expected="a folder with config.json")
    config = attempts.read_json(path)
    train = Train.model_validate(config["train"])
    plan = Plan(config["positions"], train.global_batch, train.micro_batch, train.max_steps)
    return Run(
        run_dir.resolve(), config["run_id"], train, config["seed"], plan, config["manifest"], Path(config["cache"])
    )


def _ordered(order: pl.DataFrame) -> pl.DataFrame:
    for name in ("position", "example_id"):
        if name not in order.columns:
            raise UsageError(
                f"the order has no column {name!r}", where="curriculum", expected=", ".join(order.columns) or "columns"
            )
    order = order.sort("position")
    place = order["position"]
    wrong = place.is_null() | (place != pl.Series(np.arange(len(order))))
    if wrong.any():
        at = int(wrong.arg_true()[0])
        raise DataRefused(
            f"position {at} is {'missing' if place[at] is None or place[at] > at else 'there twice'}",
            where="curriculum: position",
            expected="0, 1, 2, ... of one arm and one seed",
        )
    return order


_FREE = {"ranks", "workers", "launcher", "checkpoints"}
"""Settings that change nothing of what is trained, so that they may change between attempts."""


def _same_or_new(run_dir: Path, config: dict[str, Any]) -> None:
    def fixed(found: dict[str, Any]) -> dict[str, Any]:
        train = {f"train: {key}": value for key, value in found["train"].items() if key not in _FREE}
        return {**found, **train, "train": None}

    before = attempts.read_json(run_dir / "config.json", {})
    if before and fixed(before) != fixed(config):
        differ = sorted(key for key, value in fixed(config).items() if fixed(before).get(key) != value)
        raise UsageError(
            f"this folder holds another run: {', '.join(differ)} differ",
            where=str(run_dir),
            remedy="give the new run a folder of its own",
        )

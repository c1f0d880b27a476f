"""One rank of a training run, as ``python -m gradatim.tasks.training.worker RUN --attempt N``.

Started by `gradatim.tasks.training.launch` or by any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from gradatim.schemas.errors import DataRefused, GradatimError, missing_extra
from gradatim.tasks.training import attempts, checkpoints, deepspeed_config, lifeline, models, predictions, records
from gradatim.tasks.training.cache import Cache
from gradatim.tasks.training.chain import Link, step_digest, write_links
from gradatim.tasks.training.dynamics import Dynamics, pattern
from gradatim.tasks.training.folder import Run, open_run
from gradatim.tasks.training.group import Group, device
from gradatim.tasks.training.loader import Cell, Cells, cells
from gradatim.tasks.training.manifest import Manifest
from gradatim.tasks.training.order import Plan, accumulation, learning_rate
from gradatim.tasks.training.records import Record


def main(arguments: list[str] | None = None) -> int:
    """Run one rank; returns its exit code."""
    parser = argparse.ArgumentParser(description="One rank of a gradatim training run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int, help="train as this attempt")
    parser.add_argument("--predict", type=int, metavar="STEP", help="answer the evaluation rows with a checkpoint")
    parser.add_argument("--folder", type=Path, help="where this job leaves its notes (with --predict)")
    options = parser.parse_args(arguments)
    lifeline.watch()
    rank = int(os.environ.setdefault("RANK", "0"))
    notes = options.folder or attempts.folder(options.run, options.attempt)
    attempts.sign(notes, f"rank{rank}", os.getpid())
    code, told = 0, {}
    try:
        run = open_run(options.run)
        cuda = _find_device()
        group = Group(cuda=cuda)
        if options.predict is not None:
            _predict(run, group, records.find(run.folder, options.predict), notes, cuda=cuda)
        else:
            Training(run, group, options.attempt, cuda=cuda).run_to_end()
        group.close()
    except GradatimError as error:
        traceback.print_exc()
        code = attempts.FENCED if isinstance(error, attempts.Fenced) else error.exit_code
        fields = {name: getattr(error, name) for name in ("what", "where", "expected", "remedy")}
        told = {"kind": type(error).__name__, **fields}
    except Exception as error:
        traceback.print_exc()
        code, told = 1, {"kind": "GradatimError", "what": f"{type(error).__name__}: {error}"}
    attempts.write_json(notes / f"rank{rank}.exit.json", {"code": code, "error": told})
    return code


def _find_device() -> bool:
    """Find out whether there is a GPU, and tell DeepSpeed before it is imported."""
    try:
        import torch
    except ImportError:
        raise missing_extra("torch", "train") from None
    cuda = bool(torch.cuda.is_available())
    if not cuda:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed
    except ImportError:
        raise missing_extra("deepspeed", "train") from None
    # without a C++ compiler the build of this one would end the run; gloo does its work
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return cuda


def _build(run: Run, group: Group, manifest: Manifest) -> Any:
    """Build the model on all ranks; what it looks up in the training rows is looked up once, by rank 0."""
    path = run.folder / "facts.json"
    built: list[Any] = []

    def build() -> None:
        spec = models.ModelSpec(Cache(run.cache), np.asarray(manifest.row), run.seed, models.read_facts(path))
        known = len(spec.facts)
        built.append(models.build(run.train.model, spec))
        if len(spec.facts) > known:
            models.write_facts(path, spec.facts)

    group.together(build)
    if not built:
        build()
    return built[0]


def _predict(run: Run, group: Group, record: Record, scratch: Path, *, cuda: bool, attempt: int = 0) -> None:
    """Answer the evaluation rows with a checkpoint's weights, which are verified before they are read.

    What a training `attempt` answers is published under the fence.
    """
    group.together(lambda: checkpoints.verify(run.folder, record))
    module = _build(run, group, run.manifest())
    checkpoints.load_weights(module, run.folder / "checkpoints" / record.name / checkpoints.WEIGHTS)
    where = device(group, cuda=cuda)
    module.to(where)
    rows = run.evaluation()["row"].to_numpy()
    parts = scratch / "predictions"
    facts = {"run_id": run.run_id, "step": record.step, "seed": run.seed, "device": where}
    predictions.write(module, Cache(run.cache), rows, group.world, parts, **facts)
    group.barrier()

    def publish() -> None:
        with attempts.holding(run.folder, attempt) if attempt else contextlib.nullcontext():
            predictions.publish(parts, run.folder, record.step)

    group.together(publish)


class Training:
    """One rank's training, from where its attempt starts to the end of the order."""

    def __init__(self, run: Run, group: Group, attempt: int, *, cuda: bool) -> None:
        import deepspeed

        self.run, self.group, self.attempt, self.cuda = run, group, attempt, cuda
        self.notes = attempts.folder(run.folder, attempt)
        self.plan: Plan = run.plan
        self.manifest = run.manifest()
        start = attempts.facts(run.folder, attempt)["start"]
        record = next((r for r in records.kept(run.folder) if r.name == start["record"]), None)
        if start["record"] and (record is None or record.manifest != self.manifest.hash):
            raise DataRefused(
                f"{start['record']} is gone or belongs to another order",
                where=str(run.folder),
                expected=f"a checkpoint of the order {self.manifest.hash}",
            )
        self.step = record.step if record else 0
        self.digest = record.digest if record else self.manifest.hash
        self.settings = deepspeed_config.settings(run.train, self.plan, world=group.size, cuda=cuda)
        self.zero = int(self.settings["zero_optimization"]["stage"])
        self.device = device(group, cuda=cuda)
        module = _build(run, group, self.manifest)
        self.collate = module.collate
        shown = dict(self.settings)
        if checkpoints.is_universal(record, world=group.size, zero=self.zero):
            shown["checkpoint"] = {"load_universal": True}
        self.engine, *_ = deepspeed.initialize(model=module, config=shown, dist_init_required=False)
        if record:
            scratch = self.notes / "universal"
            checkpoints.load(self.engine, group, run.folder, record, scratch, zero=self.zero)
        self.dynamics = Dynamics(run.folder / "dynamics", run.run_id, attempt, group.rank)
        self.saved = self.step
        self.links: list[Link] = []
        self.told = self.begun = time.monotonic()
        if group.rank == 0:
            attempts.write_json(self.notes / "deepspeed.json", shown)

    def run_to_end(self) -> None:
        """Train what is left, save, answer the evaluation rows, and publish the outcome."""
        plan, world = self.plan, self.group.world
        micro_steps = accumulation(plan, world.size)
        dataset = Cells(self.manifest, Cache(self.run.cache), self.collate)
        stream = cells(dataset, plan, world, start=self.step, workers=self.run.train.workers)
        self._tell("started", loss=None, rate=0.0)
        self.engine.train()
        loss, first = None, self.step
        while self.step < plan.steps:
            loss = self._one_step([next(stream) for _ in range(micro_steps)])
            self._link()
            if self.step == plan.steps or self.step % self.run.train.checkpoints.every == 0:
                self._save(self.group.mean(float(loss)))
            if self.group.rank == 0 and time.monotonic() - self.told > 0.5:
                self._tell("progress", loss=loss, rate=(self.step - first) / (time.monotonic() - self.begun))
        trained = time.monotonic() - self.begun
        final = records.find(self.run.folder, self.step)
        self._tell("predicting", loss=final.loss, rate=(self.step - first) / max(trained, 1e-9))
        self.engine = None  # answers come from the exported weights; the engine's memory is free for them
        _predict(self.run, self.group, final, self.notes, cuda=self.cuda, attempt=self.attempt)
        self.group.together(lambda: self._publish(final, trained))

    def _one_step(self, batch: list[Cell]) -> Any:
        """Take one optimizer step; returns the weighted mean loss as this rank sees it, left on the device."""
        import torch

        optimizer = self.run.train.optimizer
        rate = learning_rate(
            self.step, self.plan.steps, peak=optimizer.lr, warmup=optimizer.warmup, schedule=optimizer.schedule
        )
        for parameters in self.engine.optimizer.param_groups:
            parameters["lr"] = rate
        first, last = self.plan.span(self.step)
        # the engine averages over micro steps and ranks; this makes that the mean over the step's examples
        scale = len(batch) * self.group.size / (last - first)
        total = torch.zeros((), device=self.device)
        for cell in batch:
            # chance (dropout) is a function of the cell, so that neither ranks nor a restart change it
            torch.manual_seed(xxhash.xxh3_64_intdigest(f"{self.run.seed}/{cell.step}/{cell.index}".encode()) >> 1)
            tensors = {key: value.to(self.device, non_blocking=True) for key, value in cell.batch.items()}
            signals = self.engine(tensors)
            weights = torch.from_numpy(cell.weights).to(self.device)
            loss = (signals["loss"] * weights).sum() * scale
            self.engine.backward(loss)
            self.engine.step()
            total += loss.detach()
            self.dynamics.add(cell, signals)
        self.batch = batch
        return total / len(batch)

    def _link(self) -> None:
        """Gather what all ranks consumed in this step and add its digest to the chain."""
        mine = [
            np.column_stack([cell.positions, np.ascontiguousarray(cell.hashes).view(np.int64)]) for cell in self.batch
        ]
        capacity = len(self.batch) * self.plan.micro_batch
        consumed = self.group.gather(np.concatenate(mine), capacity)
        if consumed is not None:
            hashes = np.ascontiguousarray(consumed[:, 1:]).view(np.uint64)
            self.digest = step_digest(self.digest, self.step, consumed[:, 0], hashes)
            self.links.append(Link(self.step, len(consumed), self.digest))
        self.step += 1
        if self.dynamics.full:
            self.dynamics.write(*self._interval())

    def _interval(self) -> tuple[int, int]:
        every = self.run.train.checkpoints.every
        return self.saved, min((self.saved // every + 1) * every, self.plan.steps)

    def _write_links(self) -> None:
        write_links(self.notes / "chain.jsonl", self.links)
        self.links = []

    def _save(self, loss: float) -> None:
        if not np.isfinite(loss):  # the same on every rank, so that all of them stop
            raise GradatimError(
                f"the loss is {loss} in step {self.step - 1}",
                where=str(self.run.folder),
                expected="a finite number",
                remedy="lower  train: optimizer: lr, or look at the dynamics of the examples before it",
            )
        interval = self._interval()
        self.dynamics.write(*interval)
        if self.group.rank == 0:
            self._write_links()
        position = self.plan.span(self.step - 1)[1]
        record = Record(
            self.step, position, self.attempt, self.manifest.hash, self.digest, self.group.size, self.zero, loss
        )
        begin = pattern(*interval, self.attempt)
        keep = self.run.train.checkpoints.keep
        checkpoints.save(self.engine, self.group, self.run.folder, record, pattern=begin, keep=keep)
        self.saved = self.step

    def _tell(self, kind: str, *, loss: Any, rate: float) -> None:
        if self.group.rank != 0:
            return
        self._write_links()
        event = {
            "kind": kind,
            "step": self.step,
            "steps": self.plan.steps,
            "loss": None if loss is None else float(loss),
            "steps_per_second": round(rate, 3),
            "time": time.time(),
        }
        with (self.notes / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
        self.told = time.monotonic()

    def _publish(self, final: Record, seconds: float) -> None:
        target = self.run.folder / "model.safetensors"
        temporary = target.with_name(f".{target.name}.{self.attempt}")
        source = self.run.folder / "checkpoints" / final.name / checkpoints.WEIGHTS
        temporary.unlink(missing_ok=True)
        os.link(source, temporary)
        with attempts.holding(self.run.folder, self.attempt):
            temporary.replace(target)
            attempts.write_json(
                self.run.folder / "outcome.json",
                {
                    "state": "finished",
                    "attempt": self.attempt,
                    "steps": final.step,
                    "positions": final.position,
                    "manifest": final.manifest,
                    "chain": final.digest,
                    "loss": final.loss,
                    "seconds": round(seconds, 3),
                    "ranks": self.group.size,
                    "zero": self.zero,
                    "device": "cuda" if self.cuda else "cpu",
                },
            )


if __name__ == "__main__":
    sys.exit(main())

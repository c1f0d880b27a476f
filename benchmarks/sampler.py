"""What the order contract costs: sampler, audit chain and dynamics as a share of a training step, in one run.

The step is that of the demo: the recurrent network on texts as long as SCAN's. Counted as ours: choosing positions,
reading their rows, hashing their ids, the chain's digest, the per-example figures beyond the plain loss, and writing
them. Not counted: making tensors of texts, forward, backward, optimizer, which any trainer pays.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

STEPS, BATCH, WARM = 256, 64, 16
BOUND = 0.05


def examples(n: int = 20_000) -> pl.DataFrame:
    """Texts of 3 to 9 words whose answers have 1 to 22, as in SCAN's length split."""
    rng = np.random.default_rng(0)
    words, actions = np.array([f"w{i}" for i in range(13)]), np.array([f"A{i}" for i in range(6)])
    texts = [" ".join(words[rng.integers(0, 13, k)]) for k in rng.integers(3, 10, n)]
    answers = [" ".join(actions[rng.integers(0, 6, k)]) for k in rng.integers(1, 23, n)]
    return pl.DataFrame({"example_id": [f"{i:032x}" for i in range(n)], "input": texts, "output": answers})


class Clock:
    """Notes processor seconds by name: on one thread they are the time that an idle machine would take."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self.last = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self.last = time.process_time()

    def note(self, name: str) -> None:
        """Add what has passed since the last note to `name`."""
        now = time.process_time()
        self.spent.setdefault(name, []).append(now - self.last)
        self.last = now

    def milliseconds(self, name: str) -> float:
        """Return the mean of what a step spent, since some parts work for several steps at once."""
        return float(np.mean(self.spent[name][WARM:])) * 1e3


def run() -> dict[str, Any]:
    """Train some steps and measure each part; returns milliseconds a step and the share."""
    import torch

    from gradatim.schemas.recipe import Step
    from gradatim.tasks.training import cache, models
    from gradatim.tasks.training.chain import step_digest
    from gradatim.tasks.training.dynamics import Dynamics
    from gradatim.tasks.training.loader import Cells, cells
    from gradatim.tasks.training.manifest import build, id_hashes
    from gradatim.tasks.training.order import Plan, World
    from gradatim.tasks.training.signals import token_signals

    torch.set_num_threads(1)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        rows = cache.Cache(cache.write(examples(), ["input", "output"], Path(folder)))
        order = np.random.default_rng(1).integers(0, len(rows), STEPS * BATCH)
        manifest = build(order, np.concatenate([id_hashes(part) for part in rows.ids()])[order], np.ones(len(order)))
        plan = Plan(len(order), BATCH, BATCH)
        stream = cells(Cells(manifest, rows, lambda rows: {"rows": rows}), plan, World(), start=0, workers=0)
        step_of = Step.model_validate({"seq2seq": {"hidden": 64, "dropout": 0.0}})
        module = models.build(step_of, models.ModelSpec(rows, order, 0))
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        dynamics, digest = Dynamics(Path(folder), "bench", 1, 0), manifest.hash
        for step in range(STEPS):
            clock.start()
            cell = next(stream)
            clock.note("sampler")
            batch = module.collate(cell.batch["rows"])
            clock.note("collate")
            target = batch["target"]
            logits = module.network(batch["source"], target[:, :-1])
            gold, mask = target[:, 1:], target[:, 1:] != 0
            clock.note("forward")
            plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), gold.flatten(), reduction="none")
            (plain.view_as(gold) * mask).sum(-1).div(mask.sum(-1)).mean()
            clock.note("plain loss")
            signals = token_signals(logits, gold, mask)
            clock.note("loss with dynamics")
            signals["loss"].mean().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            clock.note("backward")
            dynamics.add(cell, signals)
            digest = step_digest(digest, step, cell.positions, cell.hashes)
            clock.note("chain")
        clock.start()
        dynamics.write(0, STEPS)
        clock.note("write")
        write = clock.spent["write"][0] * 1e3 / STEPS
    sampler = clock.milliseconds("sampler")
    figures = max(clock.milliseconds("loss with dynamics") - clock.milliseconds("plain loss"), 0.0)
    audit = clock.milliseconds("chain")
    ours = sampler + figures + audit + write
    work = sum(clock.milliseconds(name) for name in ("collate", "forward", "plain loss", "backward"))
    share = ours / (ours + work)
    return {
        "step (ms)": round(ours + work, 2),
        "sampler (ms)": round(sampler, 3),
        "dynamics (ms)": round(figures + write, 3),
        "chain (ms)": round(audit, 3),
        "share of a step": round(share, 4),
        f"share at most {BOUND:.0%}": share <= BOUND,
    }

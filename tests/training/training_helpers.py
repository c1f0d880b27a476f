"""Small data and recipes for the training tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.recipe import Train
from gradatim.tasks.training.audit import audit
from gradatim.tasks.training.chain import expected_chain
from gradatim.tasks.training.folder import Run, prepare

TRAINED, HELD_OUT, PASSES = 100, 20, 3


def examples() -> pl.DataFrame:
    """120 short texts whose answer is the text in capitals."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["a", "b", "c", "d"], rng.integers(1, 6))) for _ in range(TRAINED + HELD_OUT)]
    ids = [f"e{i:03d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "input": texts, "output": [text.upper() for text in texts]})


def order() -> pl.DataFrame:
    """Three passes over the first 100 of them, in a random order; 300 positions, the last step is short."""
    rng = np.random.default_rng(1)
    ids = examples()["example_id"][:TRAINED].to_numpy()
    return pl.DataFrame({"example_id": np.concatenate([rng.permutation(ids) for _ in range(PASSES)])}).with_row_index(
        "position"
    )


def settings(**changes: Any) -> Train:
    """A recipe's section `train`."""
    model = {"seq2seq": {"hidden": 16, "dropout": 0.1}}
    found = {"model": model, "global_batch": 16, "micro_batch": 8, "checkpoints": {"every": 5, "keep": 2}}
    return Train.model_validate({**found, "optimizer": {"lr": 0.01, "warmup": 0.1, "schedule": "cosine"}, **changes})


def make(folder: Path, **changes: Any) -> Run:
    """Prepare a run."""
    ids = examples()["example_id"][TRAINED:].to_list()
    return prepare(
        folder, train=settings(**changes), examples=examples(), order=order(), evaluate={"test": ids}, run_id="tiny"
    )


def assert_trained_in_order(run: Run) -> None:
    """The whole run's chain is the one that its manifest demands."""
    result = audit(run.folder)
    assert result.holds, str(result)
    assert result.audited == run.plan.steps == 19
    assert result.found == list(expected_chain(run.manifest(), run.plan))[-1].digest


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for a condition to hold; fails after a while."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found

"""Model recipes of a user's own, named as package.module:object by the tests."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np

from gradatim.tasks.training import order
from gradatim.tasks.training.model_seq2seq import Seq2SeqConfig, seq2seq
from gradatim.tasks.training.models import ModelSpec


def slow(spec: ModelSpec, settings: dict[str, Any]) -> Any:
    """The built-in network, but a step takes at least `seconds`, so that there is time to interrupt it."""
    module = seq2seq(spec, Seq2SeqConfig(hidden=16, dropout=0.1))
    forward = module.forward

    def slowly(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(settings["seconds"] if module.training else 0)
        return forward(batch)

    module.forward = slowly
    return module


def broken(spec: ModelSpec, settings: dict[str, Any]) -> Any:
    """The built-in network, whose loss stops being a number after a while."""
    module = seq2seq(spec, Seq2SeqConfig(hidden=16))
    forward, calls = module.forward, itertools.count()

    def breaks(batch: dict[str, Any]) -> dict[str, Any]:
        found = forward(batch)
        return {**found, "loss": found["loss"] * (float("nan") if next(calls) >= 12 else 1.0)}

    module.forward = breaks
    return module


def swapped(spec: ModelSpec, settings: dict[str, Any]) -> Any:
    """The built-in network under a sampler that exchanges one position with one of another step."""
    right = order.positions
    one, other = settings["swap"]

    def wrong(*arguments: Any) -> list[np.ndarray]:
        parts = right(*arguments)
        return [np.where(p == one, other, np.where(p == other, one, p)) for p in parts]

    order.positions = wrong
    return seq2seq(spec, Seq2SeqConfig(hidden=16, dropout=0.1))

"""What a model recipe is: a plug-in of the area ``model``, or a user's own as ``package.module:object``.

A recipe is one function ``build(spec, config) -> torch.nn.Module``. The module must offer

* ``collate(rows: pyarrow.Table) -> dict[str, Tensor]``: a batch from examples, in their order. It runs in the loader's
  processes, so it must not touch the module's weights, nor Polars;
* ``forward(batch) -> dict[str, Tensor]``: for each example, shape (examples,), at least `loss` (nats, with gradient);
  the other names of `gradatim.tasks.training.signals.NAMES` are recorded as training dynamics where they are given;
* ``predict(batch) -> list[str]``: an answer for each example;
* optionally ``answers(rows: pyarrow.Table) -> list[str]``: the right answers written as `predict` writes them
  (default: the column `output`), ``size(rows) -> numpy.ndarray``: the cost of decoding each row, by which evaluation
  rows are put into batches, and ``probabilities(batch) -> Tensor`` of shape (examples, classes).

For a user's own recipe `config` is the plain dict of its settings; the settings `columns` (default: input, output)
name the columns that it reads.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gradatim.schemas.errors import UsageError, missing_extra
from gradatim.schemas.recipe import Step
from gradatim.tasks.core import registry
from gradatim.tasks.training.cache import Cache

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelSpec:
    """What a recipe may look at when it builds a module.

    Attributes
    ----------
    cache : Cache
        The examples.
    train_rows : numpy.ndarray of int64
        Rows of the cache that the order names.
    seed : int
    facts : dict
        What earlier builds of this run found in the training rows; see `remember`.
    """

    cache: Cache
    train_rows: np.ndarray
    seed: int
    facts: dict[str, Any] = field(default_factory=dict)

    def training(self) -> Iterator[pa.Table]:
        """Yield the distinct training examples in parts of bounded size."""
        return self.cache.batches(self.train_rows)

    def remember(self, name: str, find: Callable[[], Any]) -> Any:
        """Return a fact (a JSON value, e.g. a vocabulary) that is found once a run and kept beside its weights."""
        if name not in self.facts:
            self.facts[name] = find()
        return self.facts[name]


def is_own(step: Step) -> bool:
    """Whether a model is a user's own, ``package.module:object``."""
    return ":" in step.method


def columns(step: Step) -> list[str]:
    """Return the columns of examples that a model reads; checks the settings of a built-in one. Imports no torch."""
    if is_own(step):
        found = step.settings.get("columns", ["input", "output"])
        return [found] if isinstance(found, str) else list(found)
    plugin, config = registry.resolve("model", step, where="train: model")
    names: list[str] = []
    for need in plugin.needs:
        column = need.split(".", 1)[1]
        if column.startswith("{"):
            value = getattr(config, column[1:-1])
            names += [value] if isinstance(value, str) else list(value)
        else:
            names.append(column)
    return list(dict.fromkeys(names))


def build(step: Step, spec: ModelSpec) -> nn.Module:
    """Build a model; raises `UsageError` if there is no such recipe or it lacks part of the interface."""
    try:
        import torch
    except ImportError:
        raise missing_extra("torch", "train") from None
    torch.manual_seed(spec.seed)
    if is_own(step):
        module = _own(step.method)(spec, dict(step.settings))
    else:
        plugin, config = registry.resolve("model", step, where="train: model")
        module = plugin.run(spec, config)
    for name in ("collate", "forward", "predict"):
        if not callable(getattr(module, name, None)):
            raise UsageError(
                f"the model has no {name!r}",
                where=f"train: model: {step.method}",
                expected="a torch module with collate, forward and predict",
            )
    return module


def _own(path: str) -> Callable[[ModelSpec, Mapping[str, Any]], Any]:
    package, _, name = path.partition(":")
    where = f"train: model: {path}"
    try:
        found = importlib.import_module(package)
    except ImportError as error:
        raise UsageError(
            f"the module {package!r} does not import: {error}", where=where, remedy="install it, or set PYTHONPATH"
        ) from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise UsageError(f"{package!r} has no {name!r}", where=where, expected="package.module:object") from None
    return found  # type: ignore[return-value]


def read_facts(path: Path) -> dict[str, Any]:
    """Read what `ModelSpec.remember` found, or nothing."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Keep what `ModelSpec.remember` found, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")
    temporary.replace(path)

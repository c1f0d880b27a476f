"""The recipe `mlp`: a perceptron on columns, numbers and categories in, a class out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.training.models import ModelSpec
from gradatim.tasks.training.signals import head_signals, token_signals

if TYPE_CHECKING:
    from torch import Tensor, nn


class MlpConfig(Config):
    """Settings of `mlp`."""

    columns: list[str] = Field(min_length=1, description="columns in: numbers are scaled, texts become embeddings")
    target: str = Field("output", description="column with the class")
    categories: list[str] = Field(default_factory=list, description="number columns that are categories all the same")
    hidden: int = Field(256, ge=1, le=65_536, description="width")
    layers: int = Field(2, ge=1, le=64, description="hidden layers")
    embedding: int = Field(64, ge=1, le=4096, description="width of each category's embedding")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of hidden units left out while training")


def _texts(column: pa.ChunkedArray) -> pa.Array:
    return pc.fill_null(pc.cast(column.combine_chunks(), pa.large_string()), "")


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    values = np.asarray(pc.cast(column, pa.float64()).fill_null(np.nan).combine_chunks())
    return np.where(np.isfinite(values), values, np.nan)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def find_facts(parts: list[pa.Table] | Any, config: MlpConfig) -> dict[str, Any]:
    """Look at the training rows: categories of each text column, mean and deviation of each number column, classes."""
    categories: dict[str, set[str]] = {}
    moments: dict[str, np.ndarray] = {}
    classes: set[str] = set()
    for part in parts:
        for name in config.columns:
            if name not in config.categories and _is_number(part.schema.field(name).type):
                values = _numbers(part[name])
                values = values[~np.isnan(values)]
                moments.setdefault(name, np.zeros(3))
                moments[name] += [len(values), values.sum(), (values**2).sum()]
            else:
                categories.setdefault(name, set()).update(pc.unique(_texts(part[name])).to_pylist())
        classes.update(pc.unique(_texts(part[config.target])).to_pylist())
    scale = {}
    for name, (n, total, square) in moments.items():
        mean = total / n if n else 0.0
        spread = float(np.sqrt(max(square / n - mean**2, 0.0))) if n else 0.0
        scale[name] = [float(mean), spread or 1.0]
    return {
        "categories": {name: sorted(found) for name, found in sorted(categories.items())},
        "scale": scale,
        "classes": sorted(classes),
    }


def collate(rows: pa.Table, *, facts: dict[str, Any], target: str) -> dict[str, Tensor]:
    """Make a batch: `numbers` (scaled; a missing one is the mean), `categories` (0 is unknown), `gold` (-1 unknown)."""
    import torch

    numbers = [np.nan_to_num((_numbers(rows[name]) - mean) / spread) for name, (mean, spread) in facts["scale"].items()]
    codes = [
        np.asarray(pc.fill_null(pc.index_in(_texts(rows[name]), pa.array(known, pa.large_string())), -1)) + 1
        for name, known in facts["categories"].items()
    ]
    gold = pc.fill_null(pc.index_in(_texts(rows[target]), pa.array(facts["classes"], pa.large_string())), -1)
    return {
        "numbers": torch.from_numpy(np.array(numbers, dtype=np.float32).reshape(len(numbers), len(rows)).T.copy()),
        "categories": torch.from_numpy(np.array(codes, dtype=np.int64).reshape(len(codes), len(rows)).T.copy()),
        "gold": torch.from_numpy(np.asarray(gold).astype(np.int64)),
    }


def answers(rows: pa.Table, *, target: str) -> list[str]:
    """Write the right classes as texts."""
    right: list[str] = _texts(rows[target]).to_pylist()
    return right


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=rows * width / 1e6, bytes=5e8)


@register(
    "model",
    "mlp",
    config=MlpConfig,
    needs=("examples.{columns}", "examples.{target}"),
    revision=2,
    cost=_cost,
    source="Rumelhart, Hinton & Williams (1986). Learning representations by back-propagating errors; "
    "Power et al. (2022). Grokking: Generalization Beyond Overfitting on Small Algorithmic Datasets",
)
def mlp(spec: ModelSpec, config: MlpConfig) -> nn.Module:
    """Columns to a class: numbers scaled, categories embedded, then a perceptron with ReLU layers."""
    import torch
    from torch import nn

    facts = spec.remember("mlp", lambda: find_facts(spec.training(), config))
    known, classes = facts["categories"], facts["classes"]

    class Mlp(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(len(found) + 1, config.embedding) for found in known.values()])
            width = len(facts["scale"]) + config.embedding * len(known)
            body: list[nn.Module] = []
            for _ in range(config.layers):
                body += [nn.Linear(width, config.hidden), nn.ReLU(), nn.Dropout(config.dropout)]
                width = config.hidden
            self.body = nn.Sequential(*body)
            self.head = nn.Linear(width, len(classes))
            self.collate = partial(collate, facts=facts, target=config.target)
            self.answers = partial(answers, target=config.target)

        def hidden(self, batch: dict[str, Tensor]) -> Tensor:
            numbers = batch["numbers"].to(self.head.weight.dtype)
            embedded = [table(batch["categories"][:, i]) for i, table in enumerate(self.tables)]
            return self.body(torch.cat([numbers, *embedded], -1))

        def logits(self, batch: dict[str, Tensor]) -> Tensor:
            return self.head(self.hidden(batch))

        def forward(self, batch: dict[str, Tensor]) -> dict[str, Any]:
            hidden, gold = self.hidden(batch), batch["gold"].clamp(min=0)
            logits = self.head(hidden)
            whole = torch.ones_like(gold[:, None], dtype=torch.bool)
            found = token_signals(logits[:, None], gold[:, None], whole)
            found |= head_signals(hidden, self.head.weight, logits, gold)
            unknown = batch["gold"] < 0  # a class that training never saw has no logit
            found["loss"] = found["loss"].masked_fill(unknown, torch.nan)
            found["correct"] = found["correct"] & ~unknown
            return found

        def probabilities(self, batch: dict[str, Tensor]) -> Tensor:
            return self.logits(batch).float().softmax(-1)

        def predict(self, batch: dict[str, Tensor]) -> list[str]:
            with torch.inference_mode():
                return [classes[i] for i in self.logits(batch).argmax(-1).tolist()]

    return Mlp()

"""The recipe `seq2seq`: text to text, a GRU with attention or a Transformer, trained from nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.training import tokens
from gradatim.tasks.training.models import ModelSpec
from gradatim.tasks.training.net_gru import gru_network
from gradatim.tasks.training.net_transformer import transformer_network
from gradatim.tasks.training.signals import token_signals

if TYPE_CHECKING:
    from torch import Tensor, nn


class Seq2SeqConfig(Config):
    """Settings of `seq2seq`."""

    kind: Literal["gru", "transformer"] = Field("gru", description="network")
    hidden: int = Field(128, ge=4, le=4096, description="width")
    layers: int = Field(1, ge=1, le=48, description="layers of encoder and of decoder")
    heads: int = Field(4, ge=1, le=128, description="attention heads (transformer)")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of hidden units left out while training")
    unit: tokens.Unit = Field("words", description="what a token is: words or characters")


def collate(rows: pa.Table, *, source: pa.Array, target: pa.Array, unit: tokens.Unit) -> dict[str, Tensor]:
    """Make a batch: `source` (examples, longest) and `target` (with begin and end), both int64, padded with 0."""
    import torch

    return {
        "source": torch.from_numpy(tokens.pad(*tokens.encode(rows["input"], source, unit))),
        "target": torch.from_numpy(tokens.pad(*tokens.encode(rows["output"], target, unit), ends=True)),
    }


def answers(rows: pa.Table, *, unit: tokens.Unit) -> list[str]:
    """Write the right answers as `predict` would."""
    return tokens.canonical(rows["output"].to_pylist(), unit)


def size(rows: pa.Table, *, unit: tokens.Unit) -> np.ndarray:
    """Return how many steps decoding takes at most: the tokens of the right answer."""
    return tokens.pieces(rows["output"], unit)[1]


def _cost(rows: int, width: int) -> Cost:
    # one GRU of width 128 on two cores: about 1.5k examples a second at 20 tokens
    return Cost(seconds=rows * width / 30_000, bytes=6e8)


@register(
    "model",
    "seq2seq",
    config=Seq2SeqConfig,
    needs=("examples.input", "examples.output"),
    cost=_cost,
    source="Luong, Pham & Manning (2015). Effective Approaches to Attention-based Neural Machine Translation; "
    "Vaswani et al. (2017). Attention Is All You Need",
)
def seq2seq(spec: ModelSpec, config: Seq2SeqConfig) -> nn.Module:
    """Text to text: a GRU encoder-decoder with attention, or a Transformer; vocabularies from the training rows.

    Decoding is greedy. It stops one token behind the right answer's length, since a longer answer is wrong whatever
    follows.
    """
    import torch
    from torch import nn

    source_words = spec.remember(
        "source", lambda: tokens.vocabulary((part["input"] for part in spec.training()), config.unit)
    )
    target_words = spec.remember(
        "target", lambda: tokens.vocabulary((part["output"] for part in spec.training()), config.unit)
    )
    sizes = len(source_words) + tokens.RESERVED, len(target_words) + tokens.RESERVED
    if config.kind == "gru":
        network = gru_network(*sizes, hidden=config.hidden, layers=config.layers, dropout=config.dropout)
    else:
        network = transformer_network(
            *sizes, hidden=config.hidden, layers=config.layers, heads=config.heads, dropout=config.dropout
        )

    class Seq2Seq(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.collate = partial(
                collate,
                source=pa.array(source_words, pa.large_string()),
                target=pa.array(target_words, pa.large_string()),
                unit=config.unit,
            )
            self.answers = partial(answers, unit=config.unit)
            self.size = partial(size, unit=config.unit)

        def forward(self, batch: dict[str, Tensor]) -> dict[str, Any]:
            target = batch["target"]
            logits = self.network(batch["source"], target[:, :-1])
            return token_signals(logits, target[:, 1:], target[:, 1:] != tokens.PAD)

        def predict(self, batch: dict[str, Tensor]) -> list[str]:
            # `target` has begin and end, so its width less one is the right answer's tokens and its end
            with torch.inference_mode():
                answer = self.network.greedy(batch["source"], batch["target"].shape[1] - 1)
            return tokens.decode(answer.cpu().numpy(), target_words, config.unit)

    return Seq2Seq()

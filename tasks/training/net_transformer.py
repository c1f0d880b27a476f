"""A Transformer encoder-decoder.

Source: A. Vaswani et al. (2017), Attention Is All You Need (sinusoidal positions, tied to no length).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradatim.schemas.errors import UsageError
from gradatim.tasks.training.tokens import BEGIN, END, PAD

if TYPE_CHECKING:
    from torch import Tensor, nn


def transformer_network(
    source_size: int, target_size: int, *, hidden: int, layers: int, heads: int, dropout: float
) -> nn.Module:
    """Build the network, with the same methods as `gradatim.tasks.training.net_gru.gru_network`."""
    import torch
    from torch import nn

    if hidden % heads or hidden % 2:
        raise UsageError(
            f"hidden {hidden} is not an even multiple of heads {heads}", where="train: model: seq2seq: hidden"
        )

    class Transformer(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
        def __init__(self) -> None:
            super().__init__()
            self.source = nn.Embedding(source_size, hidden, padding_idx=PAD)
            self.target = nn.Embedding(target_size, hidden, padding_idx=PAD)
            for table in (self.source, self.target):  # scaled up again in `place`, to the size of the positions
                nn.init.normal_(table.weight, std=hidden**-0.5)
            shape = {"dim_feedforward": 4 * hidden, "dropout": dropout, "batch_first": True, "norm_first": True}
            self.encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(hidden, heads, **shape), layers, nn.LayerNorm(hidden), False
            )
            self.decoder = nn.TransformerDecoder(
                nn.TransformerDecoderLayer(hidden, heads, **shape), layers, nn.LayerNorm(hidden)
            )
            self.out = nn.Linear(hidden, target_size)
            self.drop = nn.Dropout(dropout)

        def place(self, tokens: Tensor, table: nn.Module) -> Tensor:
            steps = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
            rates = torch.arange(0, hidden, 2, device=tokens.device, dtype=torch.float32) * (-math.log(1e4) / hidden)
            angles = steps[:, None] * rates.exp()
            waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
            embedded = table(tokens)
            return self.drop(embedded * math.sqrt(hidden) + waves.to(embedded.dtype))

        def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
            hide = source == PAD
            hide[:, 0] = False  # an empty text still gives the attention something to read
            return self.encoder(self.place(source, self.source), src_key_padding_mask=hide), hide

        def decode(self, target: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
            later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
            states = self.decoder(
                self.place(target, self.target),
                memory[0],
                tgt_mask=later,
                memory_key_padding_mask=memory[1],
                tgt_is_causal=True,
            )
            return self.out(states)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return self.decode(target, self.encode(source))

        def greedy(self, source: Tensor, limit: int) -> Tensor:
            memory = self.encode(source)
            answer = torch.full((len(source), 1), BEGIN, device=source.device)
            ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
            for _ in range(limit):
                token = self.decode(answer, memory)[:, -1].argmax(-1)
                answer = torch.cat([answer, token[:, None]], 1)
                ended |= token == END
                if bool(ended.all()):
                    break
            return answer[:, 1:]

    return Transformer()

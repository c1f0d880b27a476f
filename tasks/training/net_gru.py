"""A recurrent encoder-decoder with attention.

Source: M.-T. Luong, H. Pham, C. D. Manning (2015), Effective Approaches to Attention-based Neural Machine Translation
(global attention, general score); K. Cho et al. (2014), Learning Phrase Representations using RNN Encoder-Decoder for
Statistical Machine Translation (gated recurrent unit).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradatim.tasks.training.tokens import BEGIN, END, PAD

if TYPE_CHECKING:
    from torch import Tensor, nn


def gru_network(source_size: int, target_size: int, *, hidden: int, layers: int, dropout: float) -> nn.Module:
    """Build the network: ``encode(source)``, ``decode(target_in, memory)``, ``greedy(source, limit)``.

    The decoder's recurrence does not see the attention, so that all its steps run in one call; the attention reads
    the encoder once for all steps.
    """
    import torch
    from torch import nn

    class Gru(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
        def __init__(self) -> None:
            super().__init__()
            between = dropout if layers > 1 else 0.0
            self.source = nn.Embedding(source_size, hidden, padding_idx=PAD)
            self.target = nn.Embedding(target_size, hidden, padding_idx=PAD)
            self.encoder = nn.GRU(hidden, hidden, layers, batch_first=True, dropout=between)
            self.decoder = nn.GRU(hidden, hidden, layers, batch_first=True, dropout=between)
            self.score = nn.Linear(hidden, hidden, bias=False)
            self.mix = nn.Linear(2 * hidden, hidden)
            self.out = nn.Linear(hidden, target_size)
            self.drop = nn.Dropout(dropout)

        def encode(self, source: Tensor) -> tuple[Any, ...]:
            mask = source != PAD
            mask[:, 0] = True  # an empty text still gives the attention something to read
            packed = nn.utils.rnn.pack_padded_sequence(
                self.drop(self.source(source)), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
            )
            states, last = self.encoder(packed)
            states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
            return states, self.score(states), mask, last

        def attend(self, states: Tensor, memory: tuple[Any, ...]) -> Tensor:
            values, keys, mask, _ = memory
            weights = (states @ keys.transpose(1, 2)).masked_fill(~mask[:, None, :], -torch.inf).softmax(-1)
            return self.out(self.drop(torch.tanh(self.mix(torch.cat([states, weights @ values], -1)))))

        def decode(self, target: Tensor, memory: tuple[Any, ...]) -> Tensor:
            states, _ = self.decoder(self.drop(self.target(target)), memory[3])
            return self.attend(states, memory)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            return self.decode(target, self.encode(source))

        def greedy(self, source: Tensor, limit: int) -> Tensor:
            memory = self.encode(source)
            state = memory[3]
            token = torch.full((len(source), 1), BEGIN, device=source.device)
            ended = torch.zeros(len(source), dtype=torch.bool, device=source.device)
            answer = []
            for _ in range(limit):
                states, state = self.decoder(self.target(token), state)
                token = self.attend(states, memory).argmax(-1)
                answer.append(token)
                ended |= token[:, 0] == END
                if bool(ended.all()):
                    break
            return torch.cat(answer, 1)

    return Gru()

"""Training dynamics of each example from the logits of its answer's tokens.

Source: S. Swayamdipta et al. (2020), Dataset Cartography: Mapping and Diagnosing Datasets with Training Dynamics
(gold probability, correctness); M. Paul, S. Ganguli, G. K. Dziugaite (2021), Deep Learning on a Data Diet: Finding
Important Examples Early in Training (error norm, EL2N); G. Pleiss et al. (2020), Identifying Mislabeled Data using the
Area Under the Margin Ranking (margin); F. Hölzl et al. (2025), Gradient-Weight Alignment as a Train-Time Proxy for
Generalization in Classification Tasks (alignment).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("loss", "gold_probability", "correct", "margin", "error_norm", "hidden_norm", "alignment")
"""What a model's forward returns for each example; only `loss` is required of a user's own model."""


def token_signals(logits: Tensor, gold: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Measure each example.

    Parameters
    ----------
    logits : Tensor, shape (examples, tokens, classes)
    gold : Tensor of int64, shape (examples, tokens)
    mask : Tensor of bool, shape (examples, tokens)
        True where a token counts; at least one in each row.

    Returns
    -------
    dict of Tensor, each of shape (examples,)
        `loss` (mean over the tokens, nats; the only one with a gradient), `gold_probability` (geometric mean over the
        tokens), `correct` (bool: the gold token is the likeliest everywhere), `margin` (gold logit less the largest
        other one, smallest over the tokens), `error_norm` (2-norm of probabilities less one-hot, mean over the tokens).
    """
    import torch

    logits = logits.float()
    log_probabilities = logits.log_softmax(-1)
    gold_log = log_probabilities.gather(-1, gold[..., None])[..., 0]
    count = mask.sum(-1).clamp(min=1)
    loss = -(gold_log * mask).sum(-1) / count
    with torch.no_grad():
        others = log_probabilities.detach().scatter(-1, gold[..., None], -torch.inf)
        # differences of log-probabilities are differences of logits
        margin = (gold_log - others.amax(-1)).masked_fill(~mask, torch.inf).amin(-1)
        minus_one = gold_log.new_tensor(-1.0).expand(*gold.shape, 1)
        error = log_probabilities.exp().scatter_add(-1, gold[..., None], minus_one)
        error_norm = (torch.linalg.vector_norm(error, dim=-1) * mask).sum(-1) / count
        return {
            "loss": loss,
            "gold_probability": (-loss).exp(),
            "correct": margin > 0,
            "margin": margin,
            "error_norm": error_norm,
        }


def head_signals(hidden: Tensor, weight: Tensor, logits: Tensor, gold: Tensor) -> dict[str, Tensor]:
    """Measure what the last layer's gradient says of each example of a classifier.

    Parameters
    ----------
    hidden : Tensor, shape (examples, width)
        Input of the last layer.
    weight : Tensor, shape (classes, width)
        Its weights.
    logits : Tensor, shape (examples, classes)
    gold : Tensor of int64, shape (examples,)

    Returns
    -------
    dict of Tensor, each of shape (examples,)
        `hidden_norm`: 2-norm of `hidden`; with `error_norm` it gives the norm of the last layer's gradient (GraNd).
        `alignment`: cosine of a step against that gradient and the weights, in [-1, 1]; 0 where either vanishes.
    """
    import torch

    with torch.no_grad():
        error = logits.float().softmax(-1)
        error = error.scatter_add(-1, gold[:, None], error.new_tensor(-1.0).expand(len(error), 1))
        hidden, weight = hidden.float(), weight.float()
        norms = [torch.linalg.vector_norm(one, dim=-1) for one in (hidden, error)]
        size = norms[0] * norms[1] * torch.linalg.vector_norm(weight)
        against = -((error @ weight) * hidden).sum(-1)
        return {"hidden_norm": norms[0], "alignment": (against / (size + 1e-12)).clamp(-1.0, 1.0)}

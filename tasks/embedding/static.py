"""Static embeddings: the mean of a table's vectors of tokens, from a folder of this machine."""

from __future__ import annotations

from typing import Any

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.embedding.embedder import Embedder
from gradatim.tasks.embedding.encoders import Encode, EncoderConfig, encoder

PACKAGE = "model2vec"


class StaticConfig(EncoderConfig):
    """Settings of `static`."""


@register(
    "embedding",
    "static",
    config=StaticConfig,
    needs=("examples.{column}",),
    cost=lambda rows, width: Cost(1.0 + 6e-5 * rows, 5e8 + 4.0 * rows * width),
    source="S. Tulkens, T. van Dongen (2024). Model2Vec: fast state-of-the-art static embeddings.",
    row_wise=True,
)
def static(config: StaticConfig, seed: int) -> Embedder:
    """Embed texts as the mean of their tokens' vectors, with a model2vec model from a folder of this machine.

    Parameters
    ----------
    config : StaticConfig
    seed : int
        Not used.

    Returns
    -------
    Embedder
        Vectors of the model's width, of length 1 unless `unit` is off; zeros for a row without text or known token.

    Raises
    ------
    UsageError
        The package `model2vec` is not installed, or `path` is no folder with such a model.

    Notes
    -----
    Each text is embedded by itself: the same vector in any company. About 20,000 texts of twenty words a second.
    """

    def load(path: str) -> Encode:
        from model2vec import StaticModel

        model: Any = StaticModel.from_pretrained(path)
        return lambda texts: model.encode(texts, show_progress_bar=False)

    return encoder(config, "model2vec", PACKAGE, load, batch=4096)

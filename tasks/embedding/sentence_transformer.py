"""Sentence embeddings of a transformer from a folder of this machine."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.embedding.embedder import Embedder
from gradatim.tasks.embedding.encoders import Encode, EncoderConfig, encoder

PACKAGE = "sentence-transformers"


class SentenceTransformerConfig(EncoderConfig):
    """Settings of `sentence_transformer`."""

    prompt: str = Field("", description="text put before every text, for models that were trained with one")
    device: str = Field("cpu", description="cpu, cuda, cuda:1, mps: as torch names it")
    batch: int = Field(32, ge=1, description="texts that the model computes at once")


@register(
    "embedding",
    "sentence_transformer",
    config=SentenceTransformerConfig,
    needs=("examples.{column}",),
    cost=lambda rows, width: Cost(5.0 + 2e-2 * rows, 2e9 + 4.0 * rows * width),
    source="N. Reimers, I. Gurevych (2019). Sentence-BERT: sentence embeddings using Siamese BERT-networks.",
    row_wise=True,
)
def sentence_transformer(config: SentenceTransformerConfig, seed: int) -> Embedder:
    """Embed texts with a sentence transformer from a folder of this machine.

    Parameters
    ----------
    config : SentenceTransformerConfig
    seed : int
        Not used.

    Returns
    -------
    Embedder
        Vectors of the model's width, of length 1 unless `unit` is off; zeros for a row without text.

    Raises
    ------
    UsageError
        The package `sentence-transformers` is not installed, or `path` is no folder with such a model.

    Notes
    -----
    Code that comes with a model is not run. Texts are padded to the longest of their batch, so that a text's vector
    depends on its neighbours in the seventh digit; it is computed once, and kept while its part of the examples stands.
    About 50 texts of twenty words a second for a model of 22 million parameters on two cores.
    """

    def load(path: str) -> Encode:
        from sentence_transformers import SentenceTransformer

        model: Any = SentenceTransformer(path, device=config.device, local_files_only=True, trust_remote_code=False)
        # None leaves it to the model's own default prompt
        prompt = config.prompt or None
        return lambda texts: model.encode(
            texts, prompt=prompt, batch_size=config.batch, show_progress_bar=False, convert_to_numpy=True
        )

    return encoder(config, "sentence_transformers", PACKAGE, load, batch=4096)

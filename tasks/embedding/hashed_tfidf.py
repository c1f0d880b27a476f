"""Latent semantic analysis of hashed words: no model, no download, the same vectors on every night."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Fact
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.svd import truncated_svd
from gradatim.tasks.embedding.embedder import Embedded, Embedder, Fit, Learned
from gradatim.tasks.embedding.texts import CUT, LONGEST, NO_TEXT, texts_of

WHERE = "embedding hashed_tfidf"
SAMPLE = 50_000
WORD = r"\w+|[^\w\s]"
"""A run of letters, digits and underscores, or one other sign: digits and operators matter in tasks."""

UNKNOWN = "with no word that the fit knows: a vector of zeros"
FAINT = 1e-5
"""A text whose projection is shorter than this share of it lies outside of what the fit spans but for rounding."""


class HashedTfidfConfig(Learned):
    """Settings of `hashed_tfidf`."""

    column: str = Field("input", description="column of the examples with the text")
    width: int = Field(256, ge=1, le=4096, description="length of the vectors")
    buckets: int = Field(
        65_536, ge=256, le=2**22, description="hash buckets of words and pairs of words; more means fewer collisions"
    )
    parts: Literal["words", "characters"] = Field(
        "words", description="words; or runs of 2 to 5 characters within words, for languages without white space"
    )
    pairs: bool = Field(True, description="pairs of neighbouring words beside single words")
    rarest: int = Field(2, ge=1, description="texts of the sample that must hold a word for it to count")
    sample: int = Field(SAMPLE, ge=10, le=SAMPLE, description="rows that are fitted on at most, chosen by their hash")
    longest: int = Field(LONGEST, ge=1, description="characters of a text that are looked at")

    @model_validator(mode="after")
    def _fits(self) -> HashedTfidfConfig:
        if self.width >= self.buckets:
            raise ValueError(f"width {self.width} should be less than buckets {self.buckets}")
        return self


def _cost(rows: int, width: int) -> Cost:
    fitted = min(rows, SAMPLE)
    return Cost(0.5 + 4e-4 * fitted + 4e-5 * rows, 3e8 + 3 * 8 * 266 * (65_536 + fitted))


@register(
    "embedding",
    "hashed_tfidf",
    config=HashedTfidfConfig,
    needs=("examples.{column}",),
    cost=_cost,
    source="S. Deerwester et al. (1990). Indexing by latent semantic analysis; K. Weinberger et al. (2009). Feature "
    "hashing for large scale multitask learning; N. Halko et al. (2011). Finding structure with randomness.",
    row_wise=True,
)
def hashed_tfidf(config: HashedTfidfConfig, seed: int) -> Embedder:
    """Weigh hashed words by how rare they are, and keep the directions in which the texts differ most.

    Parameters
    ----------
    config : HashedTfidfConfig
    seed : int
        Of the randomised decomposition.

    Returns
    -------
    Embedder
        Its vectors have length 1 (or are zeros), so that dot products are cosines. Where the sample has fewer
        directions than `width`, the last numbers are 0.

    Raises
    ------
    DataRefused
        When it is fitted: no text of the sample has a word that counts.

    Notes
    -----
    Counts c become (1 + ln c) (1 + ln((1 + n) / (1 + d))) with d of the n texts of the sample that hold the word, each
    text of length 1; the right singular vectors of that matrix are the directions. In fewer than 10 `rarest` texts
    every word counts. Words are hashed without a sign (MurmurHash3), in lower case. The same bits on one machine for
    any number of threads and any cut into batches; elsewhere the same up to rounding.
    """
    counter = _counter(config)

    def counted(frame: pl.DataFrame) -> tuple[Any, pl.Series, int]:
        texts, cut = texts_of(frame, config.column, config.longest, WHERE)
        counts = counter.transform(texts.to_list())
        counts.data = 1.0 + np.log(counts.data)
        return counts, texts, cut

    def fit(frame: pl.DataFrame) -> Fit:
        from scipy.sparse import vstack

        batches = [counted(frame.slice(start, 2048))[0] for start in range(0, len(frame), 2048)]
        counts = vstack(batches, format="csr") if batches else counter.transform([])
        held = np.bincount(counts.indices, minlength=config.buckets)
        # in a handful of texts hardly a word stands twice: there all count
        known = np.flatnonzero(held >= (config.rarest if len(frame) >= 10 * config.rarest else 1))
        if not len(known):
            raise DataRefused(
                f"no text of the {len(frame):,} that are fitted on has a word that counts",
                where=f"{WHERE}: column {config.column!r}",
                expected=f"words that stand in {config.rarest} or more texts",
                remedy="name another column (column: COLUMN), or lower the setting rarest",
            )
        idf = 1.0 + np.log((1 + len(frame)) / (1 + held[known]))
        weighed = counts[:, known].multiply(idf).tocsr()
        weighed = _unit_rows(weighed)
        values, directions = truncated_svd(weighed, config.width, seed)
        return {
            "known": known.astype(np.int64),
            "idf": idf,
            "directions": np.ascontiguousarray(directions.T, dtype=np.float32),
            "values": values,
            "texts": np.array(len(frame)),
            # of the sample's squared lengths, which are 1 each but for texts without a known word
            "explained": np.array((values**2).sum() / np.count_nonzero(np.diff(weighed.indptr))),
        }

    def embed(found: Fit, frame: pl.DataFrame) -> Embedded:
        counts, texts, cut = counted(frame)
        weighed = counts[:, found["known"]].multiply(found["idf"]).tocsr()
        weighed = _unit_rows(weighed).astype(np.float32)
        vectors = np.zeros((len(frame), config.width), dtype=np.float32)
        inside = vectors[:, : found["directions"].shape[1]]
        inside[:] = weighed @ found["directions"]
        length = np.sqrt((inside.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
        there = length > FAINT
        inside[:] = np.where(there, inside / np.where(there, length, 1.0), 0.0)
        empty = int((texts == "").sum())
        zero = int(np.count_nonzero(~there))
        return Embedded(vectors, _told({NO_TEXT: empty, UNKNOWN: zero - empty, CUT: cut}))

    return Embedder(
        columns=(config.column,),
        fit=fit,
        embed=embed,
        width=lambda found: config.width,
        sample=config.sample,
        facts=_facts,
    )


def _counter(config: HashedTfidfConfig) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    shape: dict[str, Any] = {"token_pattern": WORD, "ngram_range": (1, 2 if config.pairs else 1)}
    if config.parts == "characters":
        shape = {"analyzer": "char_wb", "ngram_range": (2, 5)}
    return HashingVectorizer(n_features=config.buckets, alternate_sign=False, norm=None, **shape)


def _unit_rows(matrix: Any) -> Any:
    """Bring the rows of a CSR matrix to length 1, in place; rows without entries stay."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    length = np.sqrt(np.bincount(rows, weights=matrix.data**2, minlength=matrix.shape[0]))
    matrix.data = matrix.data / length[rows]
    return matrix


def _told(counts: Mapping[str, int]) -> dict[str, int]:
    return {what: number for what, number in counts.items() if number}


def _facts(found: Fit) -> tuple[Fact, ...]:
    values: NDArray[np.float64] = found["values"]
    return (
        Fact("texts fitted on", int(found["texts"])),
        Fact("word buckets known", len(found["known"])),
        Fact("directions", len(values)),
        Fact("explained", round(float(found["explained"]), 3), note="share of the sample's squared lengths"),
    )

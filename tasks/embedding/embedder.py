"""What an embedder is: it learns a fit from some examples, once, and turns any row into a vector by that fit."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import random_bits
from gradatim.schemas.summary import Fact
from gradatim.schemas.tables import EMBEDDING
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.registry import Config

Fit: TypeAlias = Mapping[str, NDArray[Any]]
"""What was learned, as arrays by name; none of them holds Python objects."""


class Learned(Config):
    """Settings of an embedder that learns from the examples."""

    anchor: Literal["current"] | int | None = Field(
        "current",
        description="release whose fit is kept: current (the newest release's, so that vectors stay as they are), "
        "a release's number (fitted on its examples), or null (fitted anew whenever examples change)",
    )

    @field_validator("anchor", mode="before")
    @classmethod
    def _number(cls, found: Any) -> Any:
        if isinstance(found, bool) or (isinstance(found, int) and found < 1):
            raise ValueError(f"found {found!r}; anchor is 'current', a release's number from 1, or null")
        return found


@dataclass(frozen=True)
class Embedded:
    """Vectors of some rows, of shape (rows, width), and how many rows were out of the ordinary, by what they were."""

    vectors: NDArray[np.float32]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Embedder:
    """A configured embedder.

    Attributes
    ----------
    columns : tuple of str
        Columns of the examples that it reads.
    fit : callable
        Learns from a frame of example_id (unique, sorted) and `columns`; what it returns depends on the rows alone.
    embed : callable
        ``embed(fit, frame)``: the vectors of the frame's rows, each a function of the fit and that row alone.
    width : callable
        Length of the vectors, given a fit.
    learns : bool
        Whether the fit depends on the examples: its settings are then a `Learned`. Else it is empty and not kept.
    sample : int
        Rows that `fit` is given at most, chosen by the hash of their ids; 0 stands for all.
    facts : callable
        What is worth saying of a fit.
    batch : int
        Rows that `embed` takes at once.
    """

    columns: tuple[str, ...]
    fit: Callable[[pl.DataFrame], Fit]
    embed: Callable[[Fit, pl.DataFrame], Embedded]
    width: Callable[[Fit], int]
    learns: bool = True
    sample: int = 0
    facts: Callable[[Fit], tuple[Fact, ...]] = lambda fit: ()
    batch: int = 2048


def choose_sample(ids: pl.Series, size: int, seed: int) -> pl.Series:
    """Choose ids by their hash: the `size` smallest, so that a new row displaces at most one; all for a size of 0.

    Parameters
    ----------
    ids : polars.Series of str, unique
    size, seed : int

    Returns
    -------
    polars.Series of str, sorted
    """
    if not size or len(ids) <= size:
        return ids.sort()
    drawn = pl.DataFrame({"example_id": ids, "drawn": random_bits(ids, seed, "embedding sample")})
    return drawn.sort("drawn", "example_id").head(size)["example_id"].sort()


def vectors(embedder: Embedder, fit: Fit, rows: pl.DataFrame, where: str) -> Iterator[tuple[pl.DataFrame, Embedded]]:
    """Embed rows batch by batch.

    Parameters
    ----------
    rows : polars.DataFrame
        example_id and the columns that the embedder reads.
    where : str
        Who asks, for errors.

    Yields
    ------
    frame : polars.DataFrame
        example_id and embedding, ``Array(Float32, width)``, in the order of `rows`.
    embedded : Embedded

    Raises
    ------
    DataRefused
        A vector holds NaN or infinity: its id is named.
    """
    width = embedder.width(fit)
    for start in range(0, len(rows), embedder.batch):
        batch = rows.slice(start, embedder.batch)
        found = embedder.embed(fit, batch)
        finite(found.vectors, batch["example_id"], where)
        column = pl.Series(EMBEDDING, found.vectors, dtype=pl.Array(pl.Float32, width))
        yield batch.select("example_id").with_columns(column), found


def to_bytes(fit: Fit) -> bytes:
    """Write a fit as .npz: the same bytes for the same arrays."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: fit[name] for name in sorted(fit)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(content: bytes, where: str) -> Fit:
    """Read what `to_bytes` wrote; raises `DataRefused` where it is damaged. Nothing pickled is loaded."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy have an error of their own each
        raise DataRefused(
            f"the kept fit cannot be read: {error}",
            where=where,
            expected="the file as it was written",
            remedy="remove this file: the fit is made again from the same examples",
        ) from None

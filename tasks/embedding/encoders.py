"""What the embedders around a trained encoder share: it comes from a folder, never from the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import UsageError, missing_extra
from gradatim.tasks.core.registry import Config
from gradatim.tasks.embedding.embedder import Embedded, Embedder
from gradatim.tasks.embedding.texts import CUT, NO_TEXT, texts_of

Encode = Callable[[list[str]], Any]
"""Texts to an array of shape (texts, width)."""

NO_TOKEN = "with no token that the model knows: a vector of zeros"


class EncoderConfig(Config):
    """Settings of an embedder around a trained encoder; the files of its folder are part of the result's name."""

    folders: ClassVar[tuple[str, ...]] = ("path",)

    path: str = Field(min_length=1, description="folder of the model; nothing is ever downloaded")
    column: str = Field("input", description="column of the examples with the text")
    unit: bool = Field(True, description="bring the vectors to length 1")
    longest: int = Field(20_000, ge=1, description="characters of a text that are handed to the model")


def encoder(config: EncoderConfig, module: str, package: str, load: Callable[[str], Encode], batch: int) -> Embedder:
    """Build the embedder; the model is loaded when it is first needed, the package is looked for now.

    Parameters
    ----------
    module, package : str
        What is imported, and what is installed.
    load : callable
        Loads the model of a folder and returns what encodes texts.
    batch : int
        Rows that are encoded at once.

    Raises
    ------
    UsageError
        The package is not installed, there is no such folder, or the model in it cannot be loaded.
    """
    where = f"embedding {package}"
    if not _installed(module):
        raise missing_extra(package, "embeddings")
    if not Path(config.path).is_dir():  # a name would be looked up on a hub
        raise UsageError(
            f"there is no folder {config.path!r}",
            where=f"{where}: path",
            expected="the folder of a model on this machine",
            remedy="fetch the model once, outside of a run, and name its folder: nothing is downloaded here",
        )

    @cache
    def loaded() -> tuple[Encode, int]:
        try:
            encode = load(config.path)
            width = np.asarray(encode(["a"])).shape[-1]
        except UsageError:
            raise
        except Exception as error:  # of a third party's code, which has many
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"the model cannot be loaded: {said}",
                where=f"{where}: {config.path}",
                expected=f"a folder that {package} saved",
            ) from error
        return encode, int(width)

    def embed(fit: Any, frame: pl.DataFrame) -> Embedded:
        encode, width = loaded()
        texts, cut = texts_of(frame, config.column, config.longest, where)
        full = np.flatnonzero((texts != "").to_numpy())
        vectors = np.zeros((len(frame), width), dtype=np.float32)
        if len(full):
            vectors[full] = np.asarray(encode(texts.gather(full).to_list()), dtype=np.float32).reshape(len(full), -1)
        zero = int(np.count_nonzero(~vectors.any(axis=1)))
        counts = {NO_TEXT: len(frame) - len(full), NO_TOKEN: zero - (len(frame) - len(full)), CUT: cut}
        told = {what: number for what, number in counts.items() if number}
        return Embedded(_unit(vectors) if config.unit else vectors, told)

    return Embedder((config.column,), lambda frame: {}, embed, lambda fit: loaded()[1], learns=False, batch=batch)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    wide = vectors.astype(np.float64)
    length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.asarray(wide / np.where(length > 0, length, 1.0), dtype=np.float32)


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # a module that was put in place by hand has no spec
        return True

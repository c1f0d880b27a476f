"""Texts as padded integer matrices, and back: vocabularies of white-space words or of characters.

Vectorised over Arrow columns, because it runs for each batch, in the loader's processes (which are forked, so Polars
must not be touched there).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Unit = Literal["words", "characters"]

PAD, BEGIN, END, UNKNOWN = range(4)
"""Reserved token numbers; a vocabulary's first entry is token 4."""
RESERVED = 4


def pieces(column: pa.Array | pa.ChunkedArray, unit: Unit) -> tuple[pa.Array, np.ndarray]:
    """Cut each text into tokens.

    Parameters
    ----------
    column : Arrow array of strings; a null counts as an empty text
    unit : "words" (white-space separated) or "characters" (Unicode code points)

    Returns
    -------
    tokens : pyarrow.Array of strings, all texts' tokens end to end
    lengths : numpy.ndarray of int64, tokens in each text
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    texts = pc.fill_null(pc.cast(column, pa.large_string()), "")
    if unit == "characters":
        lengths = np.asarray(pc.utf8_length(texts)).astype(np.int64)
        joined = "".join(texts.to_pylist())
        return pa.array(list(joined), pa.large_string()), lengths
    texts = pc.utf8_trim_whitespace(texts)
    lists = pc.utf8_split_whitespace(texts)
    lengths = np.asarray(pc.list_value_length(lists)).astype(np.int64)
    tokens = lists.flatten()
    empty = np.asarray(pc.equal(texts, "").cast(pa.int8())).astype(bool)
    if empty.any():  # the split of an empty text is one empty token
        tokens = tokens.filter(pc.not_equal(tokens, ""))
        lengths[empty] = 0
    return tokens, lengths


def vocabulary(columns: Iterable[pa.Array | pa.ChunkedArray], unit: Unit) -> list[str]:
    """Return the distinct tokens of some columns, sorted. Memory: the distinct tokens."""
    seen: set[str] = set()
    for column in columns:
        seen.update(pc.unique(pieces(column, unit)[0]).to_pylist())
    return sorted(seen)


def encode(column: pa.Array | pa.ChunkedArray, words: pa.Array, unit: Unit) -> tuple[np.ndarray, np.ndarray]:
    """Number each token; unknown ones become `UNKNOWN`. Returns (flat int64 numbers, int64 lengths)."""
    tokens, lengths = pieces(column, unit)
    index = pc.fill_null(pc.index_in(tokens, value_set=words), UNKNOWN - RESERVED)
    return np.asarray(index).astype(np.int64) + RESERVED, lengths


def pad(numbers: np.ndarray, lengths: np.ndarray, *, ends: bool = False) -> np.ndarray:
    """Lay flat token numbers into a matrix, padded on the right.

    Parameters
    ----------
    numbers, lengths : as `encode` returns them
    ends : bool
        Put `BEGIN` before and `END` behind each text.

    Returns
    -------
    numpy.ndarray, shape (texts, longest, at least 1), int64
    """
    extra = 2 if ends else 0
    width = max(int(lengths.max(initial=0)) + extra, 1)
    matrix = np.full((len(lengths), width), PAD, dtype=np.int64)
    place = np.arange(width)[None, :]
    matrix[(place >= extra // 2) & (place < lengths[:, None] + extra // 2)] = numbers
    if ends:
        matrix[:, 0] = BEGIN
        matrix[np.arange(len(lengths)), lengths + 1] = END
    return matrix


def decode(matrix: np.ndarray, words: Sequence[str], unit: Unit) -> list[str]:
    """Turn rows of token numbers into texts; a row ends at its first `END`."""
    table = np.array(["", "", "", "\N{REPLACEMENT CHARACTER}", *words], dtype=object)
    stop = np.where((matrix == END).any(1), (matrix == END).argmax(1), matrix.shape[1])
    glue = " " if unit == "words" else ""
    return [
        glue.join(piece for piece in table[row[:end]] if piece) for row, end in zip(matrix, stop.tolist(), strict=True)
    ]


def canonical(texts: Iterable[str | None], unit: Unit) -> list[str]:
    """Write texts as `decode` would: words with single spaces; characters as they are."""
    if unit == "characters":
        return [text or "" for text in texts]
    return [" ".join((text or "").split()) for text in texts]

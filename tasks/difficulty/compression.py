"""How little a text can be compressed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.texts import measured, text_column

SOURCE = (
    "J. Ziv, A. Lempel (1977). A universal algorithm for sequential data compression; P. Deutsch, J.-L. Gailly (1996). "
    "ZLIB compressed data format specification version 3.3 (RFC 1950)"
)
CHUNK = 20_000
SHORT = 200
"""Bytes below which the fixed 6 bytes and the first code table weigh more than repetition."""


class CompressionConfig(Config):
    """Settings of `compression`."""

    of: str = Field("input", min_length=1, description="text column of the examples: input, output or any other")
    level: int = Field(9, ge=1, le=9, description="zlib's effort, from 1 (fast) to 9")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "compression",
    config=CompressionConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 7e-6 * rows, bytes=1e8 + 400.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: CompressionConfig, seed: int = 0) -> Difficulty:
    """Compressed bytes over bytes: what repeats little counts as harder.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : CompressionConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are bytes of the zlib stream over UTF-8 bytes of the text, each text on its own; above 1 for very
        short ones. An empty text has none.

    Raises
    ------
    UsageError
        If there is no such column or it holds no text.

    Notes
    -----
    zlib sees one text at a time, in threads that it leaves free for longer texts.
    """
    frame = text_column(tables, config.of, f"difficulty compression: of: {config.of}")
    texts = frame["found"]
    size = texts.str.len_bytes().fill_null(0).to_numpy()
    rows = np.flatnonzero(size)
    parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]

    def compressed(part: np.ndarray) -> list[int]:
        found = texts.gather(part).to_list()
        return [len(zlib.compress(text.encode("utf-8"), config.level)) for text in found]

    raw = np.full(len(texts), np.nan)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        for part, lengths in zip(parts, threads.map(compressed, parts), strict=True):
            raw[part] = np.array(lengths) / size[part]
    middle = float(np.median(size[rows])) if len(rows) else 0.0
    return measured(
        frame.select(
            "example_id",
            pl.Series(raw).alias("raw"),
            pl.when(pl.col("found").is_not_null()).then(pl.lit(f"empty text in {config.of!r}")).alias("reason"),
        ),
        config=config,
        name="compression",
        title=f"compression of {config.of}",
        scale="compressed / raw bytes",
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes={"zlib": zlib.ZLIB_RUNTIME_VERSION, "median bytes": middle},
        warnings=[
            f"half of the texts have fewer than {SHORT} bytes: what zlib adds to each weighs more than repetition, so "
            "the ratio mostly follows their length"
        ]
        if 0 < middle < SHORT
        else [],
    )

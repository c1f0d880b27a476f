"""Compression ratio: bytes of all texts over bytes of all texts compressed together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import polars as pl
from pydantic import Field

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.ngrams import slices
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic
from gradatim.tasks.diversity.lexical import LexicalConfig, result, subsets, texts
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "C. Shaib, J. Barrow, J. Sun, A. F. Siu, B. C. Wallace, A. Nenkova (2024). Standardizing the measurement of text "
    "diversity: a tool and a comparative analysis of scores"
)
FEW = 32 * 1024
"""Bytes of the compressor's window: below it, the ratio rises with the number of bytes."""


class CompressionConfig(LexicalConfig):
    """Settings of `compression_ratio`."""

    level: int = Field(9, ge=1, le=9, description="effort of gzip")


def compressed_bytes(texts: Iterable[str], level: int = 9) -> tuple[int, int]:
    """Return bytes of texts joined by line ends, and bytes of a gzip file of them. Streams; memory of one text.

    Raises `UsageError` for a text with a lone surrogate, which has no UTF-8.
    """
    gzip = zlib.compressobj(level, zlib.DEFLATED, 31)
    raw = packed = 0
    for i, text in enumerate(texts):
        try:
            piece = (b"\n" if i else b"") + text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"text {i} has a lone surrogate", expected="texts that can be written as UTF-8") from None
        raw += len(piece)
        packed += len(gzip.compress(piece))
    return raw, packed + len(gzip.flush())


def compression_ratio(texts: Iterable[str], level: int = 9) -> float:
    """Return raw over compressed bytes, in the order given; below 1 for a few letters, NaN for no bytes."""
    raw, packed = compressed_bytes(texts, level)
    return raw / packed if raw else float("nan")


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.05 + rows * 1e-5, bytes=5e7 + rows * 150)


@register(
    "diversity",
    "compression_ratio",
    config=CompressionConfig,
    needs=("examples.{column}", "examples.{by}"),
    cost=_cost,
    source=SOURCE,
)
def compression(tables: Mapping[str, pl.DataFrame], config: CompressionConfig, seed: int) -> Diversity:
    """How many times smaller gzip makes all texts, in the order of ids: the higher, the more they repeat each other.

    Returns the statistics ``compression_ratio``, and beside it ``mean_length`` (bytes a text). `seed` is not used.
    """
    rows = texts(tables, config, "diversity compression_ratio")
    statistics, small = [], []
    for name, part in subsets(rows, config.by):
        raw, packed = compressed_bytes(_pieces(part["text"]), config.level)
        statistics.append(Statistic(name, "compression_ratio", raw / packed if raw else None, len(part)))
        statistics.append(
            Statistic(name, "mean_length", float(part["text"].str.len_bytes().sum()) / len(part), len(part))
        )
        small += [name] if raw < FEW else []
    warnings = [f"{', '.join(small[:5])}: under {FEW:,} bytes, where the ratio rises with the size"] if small else []
    left_out = len(tables["examples"]) - len(rows)
    return result(
        "compression_ratio",
        config,
        statistics,
        main="compression_ratio",
        source=SOURCE,
        left_out=left_out,
        warnings=warnings,
    )


def _pieces(column: pl.Series) -> Iterable[str]:
    """Join neighbouring texts, so that the compressor is called once a slice."""
    for part in slices(column, 10_000, 2**20):
        yield column[part].str.join("\n").item()

"""Lengths of texts in a unit, shared by `length` and `trace_length`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, missing_extra
from gradatim.tasks.difficulty.text.texts import TOKEN

Unit = Literal["characters", "bytes", "words", "tokens", "sentences"]
UNITS = (
    "characters (code points), bytes (UTF-8), words (runs between white space), tokens (words and single punctuation "
    "marks, or those of `tokenizer`), or sentences"
)
BATCH = 1000
"""Texts that the tokenizer sees at once."""
_APOSTROPHE = r"'(ve|ll|re|[tsd])"
_LETTER = r"[\p{L}\p{N}_]"  # what Python's \w is, which Rust's is not
_SENTENCE = rf"{_LETTER}[^.!?\s]*(?:\s[^.!?]*?{_LETTER}[^.!?\s]*){{2}}[^.!?]*"
"""What stands between marks that end a sentence, with a letter or digit in three words or more."""


def tokens_only(unit: Unit, tokenizer: str | None) -> None:
    """Raise `ValueError` for a tokenizer with another unit than tokens."""
    if tokenizer is not None and unit != "tokens":
        raise ValueError(f"a tokenizer counts tokens, not {unit}: write  unit: tokens")


def unit_name(unit: Unit, tokenizer: str | None) -> str:
    """Name a unit for the column `scale`: a model's tokens are not words and punctuation marks."""
    return unit if tokenizer is None else "model tokens"


def measure(texts: pl.Series, unit: Unit, tokenizer: str | None) -> pl.Series:
    """Measure texts (String; null stays null) in a unit: Int64.

    Raises
    ------
    UsageError
        If the tokenizer's file is not there or is none, or the package is missing.
    """
    if tokenizer is not None:
        return count_tokens(texts, tokenizer)
    if unit == "characters":
        found = texts.str.len_chars()
    elif unit == "bytes":
        found = texts.str.len_bytes()
    elif unit == "sentences":
        found = count_sentences(texts)
    else:
        found = texts.str.count_matches(r"\S+" if unit == "words" else TOKEN)
    return found.cast(pl.Int64)


def clean(texts: pl.Series) -> pl.Series:
    """Take punctuation out of texts, but for apostrophes of English contractions, as textstat does."""
    return (
        texts.str.replace_all("\x01", "-", literal=True)  # so that it can stand for the apostrophes that stay
        .str.replace_all(_APOSTROPHE, "\x01${1}")
        .str.replace_all(r"[^\p{L}\p{N}_\s\x01]", "")
        .str.replace_all("\x01", "'", literal=True)
    )


def count_sentences(texts: pl.Series) -> pl.Series:
    """Count sentences as textstat does: UInt32, 0 for an empty text, null for a null one.

    A sentence ends with full stops, exclamation or question marks; those of one or two words, such as abbreviations
    and numbers, do not count; a text has at least one.
    """
    found = texts.to_frame("text").select(
        pl.when(pl.col("text").str.len_bytes() == 0)
        .then(0)
        .otherwise(pl.col("text").str.count_matches(_SENTENCE).clip(lower_bound=1))
        .cast(pl.UInt32)
    )
    return found.to_series()


def count_tokens(texts: pl.Series, path: str) -> pl.Series:
    """Count a tokenizer's tokens, without special tokens, truncation or padding: Int64, null for a null text."""
    model = load_tokenizer(path)
    rows = texts.is_not_null().arg_true().to_numpy()
    lengths = np.zeros(len(texts), dtype=np.int64)
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        batch = model.encode_batch_fast(texts.gather(part).to_list(), add_special_tokens=False)
        lengths[part] = [len(encoding) for encoding in batch]
    return pl.select(pl.when(texts.is_not_null()).then(pl.Series(lengths))).to_series()


def load_tokenizer(path: str) -> Any:
    """Load a tokenizer of the package tokenizers (usually ``tokenizer.json``); nothing is downloaded."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing_extra("tokenizers", "text") from None
    file = Path(path)
    if not file.is_file():
        raise UsageError(
            "there is no such file" if not file.is_dir() else "this is a folder",
            where=f"tokenizer: {path}",
            expected="a file tokenizer.json as Hugging Face models bring",
            remedy=f"write  tokenizer: {file / 'tokenizer.json'}" if (file / "tokenizer.json").is_file() else "",
        )
    try:
        model = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises the bare class
        raise UsageError(
            f"the file holds no tokenizer: {error}",
            where=f"tokenizer: {path}",
            expected="a file tokenizer.json as Hugging Face models bring",
            remedy="save it with  tokenizer.save_pretrained(FOLDER)  and name FOLDER/tokenizer.json",
        ) from None
    model.no_truncation()
    model.no_padding()
    return model

"""Which training texts may hold an evaluation text: those that share most word n-grams with it, found in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.ngrams import BYTES, PATTERNS, HashedWords, hash_words, slices

SHORTEST = 4
"""n-grams are not halved below this number of words."""
SHARE = 16
"""An n-gram is at most one of this many parts of a text, but for the shortest ones."""
WHOLE = 6
"""Texts of fewer words are compared as wholes: many texts hold "how many are left" and are no copies of it."""
COMMON = 100
"""n-grams in more evaluation texts than this are passed over, unless a text has no others."""
ROWS = 100_000

HITS = {"text": pl.UInt32, "train_id": pl.String, "hits": pl.UInt32}


def normalised(texts: pl.Series) -> pl.Series:
    """Return texts as they are compared: Unicode NFC, lower case, white space folded to single spaces; "" for null."""
    folded = texts.fill_null("").str.normalize("NFC").str.to_lowercase()
    return folded.str.replace_all(r"\s+", " ").str.strip_chars()


def gram_lengths(n: int) -> list[int]:
    """Return the lengths of n-grams that texts use, longest first: n halved down to no less than `SHORTEST`."""
    lengths = [n]
    while lengths[-1] > SHORTEST:
        lengths.append(max(SHORTEST, lengths[-1] // 2))
    return lengths


def length_used(words: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return which length each text uses: the longest that is at most a sixteenth of its words, else the shortest.

    Copies that differ in every tenth word still share such an n-gram as a rule. A text of fewer than `WHOLE` words (or
    than the shortest n-gram) uses its own length: it is found by all its words only.
    """
    lengths = gram_lengths(n)
    used = np.where(words >= max(WHOLE, lengths[-1]), lengths[-1], words)
    for length in reversed(lengths[:-1]):
        used = np.where(words >= SHARE * length, length, used)
    return np.asarray(used, dtype=np.int64)


@dataclass(frozen=True)
class Index:
    """The n-grams of evaluation texts.

    Attributes
    ----------
    size : int
        Number of texts.
    whole : numpy.ndarray of bool, shape (size,)
        Texts of so few words that they are compared as wholes.
    measurable : numpy.ndarray of bool, shape (size,)
        Texts with a word.
    parts, wholes : mapping of int to polars.DataFrame
        For each length gram (UInt64) and text (UInt32): n-grams, and texts of just that many words.
    passed_over : int
        n-grams in more than `COMMON` texts.
    """

    size: int
    whole: NDArray[np.bool_]
    measurable: NDArray[np.bool_]
    parts: dict[int, pl.DataFrame]
    wholes: dict[int, pl.DataFrame]
    passed_over: int


def build(texts: pl.Series, n: int) -> Index:
    """Index different evaluation texts (normalised). O(words); 12 bytes an n-gram."""
    words = hash_words(texts, "letters")
    used = length_used(words.count, n)
    whole = words.count < max(WHOLE, gram_lengths(n)[-1])
    found: list[dict[int, pl.DataFrame]] = [{}, {}]
    for part, kind in zip(found, (False, True), strict=True):
        for length in np.unique(used[(whole == kind) & (words.count > 0)]).tolist():
            text, gram = words.ngrams(length)
            mine = (used[text] == length) & (whole[text] == kind)
            part[length] = pl.DataFrame({"gram": gram[mine], "text": text[mine].astype(np.uint32)}).unique()
    parts, passed_over = {}, 0
    for length, grams in found[0].items():
        parts[length], gone = _without_common(grams)
        passed_over += gone
    return Index(len(texts), whole, words.count > 0, parts, found[1], passed_over)


def _without_common(grams: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Leave out n-grams of more than `COMMON` texts, but for the rarest one of a text that has no others."""
    counted = grams.with_columns(texts=pl.len().over("gram"))
    fewest = pl.col("texts").min().over("text")
    rarest = (fewest > COMMON) & (pl.col("texts") == fewest)
    kept = counted.filter((pl.col("texts") <= COMMON) | (rarest & (pl.col("gram") == _least_rarest())))
    gone = counted.filter(pl.col("texts") > COMMON)["gram"].n_unique()
    return kept.select("gram", "text"), gone


def _least_rarest() -> pl.Expr:
    fewest = pl.col("texts").min().over("text")
    return pl.when(pl.col("texts") == fewest).then(pl.col("gram")).otherwise(None).min().over("text")


def partial(index: Index, train: pl.DataFrame, most: int) -> pl.DataFrame:
    """Find the `most` training texts of a batch that share most n-grams with each evaluation text.

    Parameters
    ----------
    index : Index
    train : polars.DataFrame
        train_id, and text as the user wrote it.
    most : int

    Returns
    -------
    polars.DataFrame
        text (UInt32), train_id (String), hits (UInt32: different shared n-grams).
    """
    frames = [pl.DataFrame(schema=HITS)]
    filters = {length: _Filter(grams["gram"].to_numpy()) for length, grams in index.parts.items()}
    for part in slices(train["text"], ROWS, BYTES):
        some = train[part]
        words = hash_words(normalised(some["text"]), "letters")
        frames.append(_hits(index, filters, words, some["train_id"], most))
    return merge(frames, most)


def merge(partials: Iterable[pl.DataFrame], most: int) -> pl.DataFrame:
    """Merge partials in any order and grouping: most hits first, then by training id."""
    found = pl.concat(list(partials)).sort(["text", "hits", "train_id"], descending=[False, True, False])
    return found.group_by("text", maintain_order=True).head(most).select(list(HITS))


class _Filter:
    """Tells most hashes that are not among some from those that may be, by their low bits."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        bits = min(27, max(16, int(len(hashes) * 32).bit_length()))
        self._mask = np.uint64(2**bits - 1)
        self._there = np.zeros(2**bits, dtype=bool)
        self._there[hashes & self._mask] = True

    def __call__(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.asarray(self._there[hashes & self._mask])


def _hits(index: Index, filters: dict[int, _Filter], words: HashedWords, ids: pl.Series, most: int) -> pl.DataFrame:
    counted = [pl.DataFrame(schema={"text": pl.UInt32, "row": pl.UInt32, "hits": pl.UInt32})]
    for (text, gram), known in _grams(index, filters, words):
        shared = pl.DataFrame({"gram": gram, "row": text.astype(np.uint32)}).unique().join(known, on="gram")
        counted.append(shared.group_by("text", "row").agg(hits=pl.len().cast(pl.UInt32)).select("text", "row", "hits"))
    hits = pl.concat(counted)
    named = hits.with_columns(train_id=ids.cast(pl.String).gather(hits["row"]))
    return merge([named.select(list(HITS))], most)


def _grams(
    index: Index, filters: dict[int, _Filter], words: HashedWords
) -> Iterator[tuple[tuple[NDArray[np.int64], NDArray[np.uint64]], pl.DataFrame]]:
    """Yield the n-grams that may be among those of each length, and these."""
    for length, known in index.parts.items():
        text, gram = words.ngrams(length)
        likely = filters[length](gram)
        yield (text[likely], gram[likely]), known
    for length, known in index.wholes.items():
        yield words.wholes(length), known


def word_starts(text: str) -> NDArray[np.int64]:
    """Return the character at which each word of a text starts, in the order in which `hash_words` counts them."""
    pieces = pl.Series([text]).str.extract_all(PATTERNS["letters"] + r"|\W+").explode().drop_nulls()
    starts = np.concatenate([[0], np.cumsum(pieces.str.len_chars().to_numpy().astype(np.int64))])[:-1]
    return np.asarray(starts[pieces.str.contains(r"^\w").to_numpy()])

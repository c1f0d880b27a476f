"""Words and n-grams of texts as 64-bit hashes, the same on any machine, so that parts made anywhere can be merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import random_bits

_ALONE = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"  # written without spaces
_LETTERS = rf"[{_ALONE}]|[\w--[{_ALONE}]]+"
PATTERNS = {
    "words": r"\S+",
    "tokens": rf"{_LETTERS}|[^\w\s]",
    "letters": _LETTERS,
    "characters": r"\S",
}
"""What can count as a word: runs between white space; runs of letters and digits (in scripts without spaces each
letter), and single other marks; such runs alone; single characters that are no white space."""
ROWS, BYTES = 200_000, 64 * 2**20
"""Most texts, and most bytes of text (but for one longer text), whose words are held as text at once."""

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that powers never vanish modulo 2^64

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class HashedWords:
    """The words of N texts as hashes.

    Attributes
    ----------
    count : numpy.ndarray, shape (N,), int64
        Words of each text; 0 for an empty or null one.
    hashes : numpy.ndarray, shape (sum of count,), uint64
        xxh3-64 of each word, text after text.
    """

    count: Ints
    hashes: Hashes

    def ngrams(self, n: int) -> tuple[Ints, Hashes]:
        """Return the text that each n-gram stands in (int64, from 0) and its hash, in the order of the texts.

        No n-gram crosses from one text into the next; a text of fewer than n words has none.
        """
        if n < 1:
            raise UsageError(f"n-grams of {n} words", expected="1 or more")
        many = len(self.hashes) - n + 1
        if many < 1:
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        text = np.repeat(np.arange(len(self.count)), self.count)
        inside = text[:many] == text[n - 1 :]
        return text[:many][inside], _rolled(self.hashes, n)[inside]

    def wholes(self, length: int) -> tuple[Ints, Hashes]:
        """Return the texts of exactly `length` words and the hash of all their words, that of the n-gram they are."""
        text, gram = self.ngrams(length)
        whole = self.count[text] == length
        return text[whole], gram[whole]


def _rolled(hashes: Hashes, n: int) -> Hashes:
    """Polynomial in `_BASE` modulo 2^64 over each n neighbouring hashes."""
    many = len(hashes) - n + 1
    rolled = hashes[:many].copy()
    for k in range(1, n):
        rolled *= _BASE
        rolled += hashes[k : k + many]
    return rolled


def slices(texts: pl.Series, rows: int = ROWS, most_bytes: int = BYTES) -> Iterator[slice]:
    """Cut texts into runs of at most `rows` texts and `most_bytes` bytes, but for one text that is longer alone."""
    ends = np.cumsum(texts.str.len_bytes().fill_null(0).to_numpy().astype(np.int64))
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + most_bytes, side="right"))
        stop = min(max(fits, start + 1), start + rows, len(texts))
        yield slice(start, stop)
        start = stop


def hash_words(texts: pl.Series, unit: str = "words", *, ignore_case: bool = True) -> HashedWords:
    """Cut texts into words and hash these.

    Parameters
    ----------
    texts : polars.Series of String
        A null counts as an empty text.
    unit : str
        One of `PATTERNS`.
    ignore_case : bool
        Words in lower case.

    Returns
    -------
    HashedWords

    Notes
    -----
    O(characters), each different word hashed once; 8 bytes a word, and the words themselves for a slice of texts at a
    time. A million texts of 15 words take about 3 seconds.
    """
    if unit not in PATTERNS:
        raise UsageError(f"there is no unit {unit!r}", expected=", ".join(PATTERNS))
    counts, hashes = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for part in slices(texts):
        some = texts[part].fill_null("")
        lists = (some.str.to_lowercase() if ignore_case else some).str.extract_all(PATTERNS[unit])
        count = lists.list.len().to_numpy().astype(np.int64)
        counts.append(count)
        if not count.any():
            continue
        words = lists.filter(lists.list.len() > 0).explode()
        own = pl.Categorical(pl.Categories.random())  # freed with the words, unlike the global ones
        coded = words.cast(own)
        different = coded.unique()
        places = different.to_physical().to_numpy().astype(np.int64)
        table = np.zeros(int(places.max()) + 1, np.uint64)
        table[places] = random_bits(different.cast(pl.String), 0, "word")
        hashes.append(table[coded.to_physical().to_numpy()])
    return HashedWords(np.concatenate(counts), np.concatenate(hashes))

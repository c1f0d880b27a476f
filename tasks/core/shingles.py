"""Shingles: the runs of k neighbouring words or characters of a text, as 64-bit hashes, for whole columns at once.

A text is normalised (Unicode NFC, white space folded), in lower case unless told otherwise, and cut into units: words
are what stands between white space, with their punctuation, so that ``3 + 2`` and ``3 - 2`` stay apart. A unit's hash
is a sum of hashed bytes times hashed places (multilinear hashing modulo 2^64), mixed; a shingle's the same of its
units. Nothing here depends on a library's hash, a machine or a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray

from gradatim.schemas.hashing import normalise

Unit = Literal["words", "characters"]
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]

CHUNK = 2**21
"""Bytes of text that are cut together; one longer text is cut alone."""
_BYTE, _PLACE, _UNIT = 1 << 40, 1 << 41, 1 << 42  # streams of constants
_SPACE = 0x20
_WHITE = r"[\t-\r\x1c-\x1f ]+"  # what `str.split` takes for white space in ASCII
_CONTROLS = r"[\t-\r\x1c-\x1f]"


@dataclass(frozen=True)
class Shingles:
    """The shingles of some texts, in order, with repetitions.

    Attributes
    ----------
    values : numpy.ndarray of uint64
        Text after text.
    starts : numpy.ndarray, shape (texts + 1,), int64
        Those of text i are ``values[starts[i] : starts[i + 1]]``: none for a text without units, one for a text of
        fewer units than a shingle has.
    """

    values: Hashes
    starts: Ints


def mix(values: Hashes) -> Hashes:
    """Return each 64-bit number scrambled by a bijection (the finaliser of SplitMix64).

    Source: G. L. Steele, D. Lea, C. H. Flood (2014). Fast splittable pseudorandom number generators.
    """
    out = values + np.uint64(0x9E3779B97F4A7C15)
    out ^= out >> np.uint64(30)
    out *= np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(27)
    out *= np.uint64(0x94D049BB133111EB)
    out ^= out >> np.uint64(31)
    return out


def constants(stream: int, size: int) -> Hashes:
    """Return the first `size` random numbers of a stream; the same for ever."""
    return mix(mix(np.arange(size, dtype=np.uint64) + np.uint64(stream)))


def digests(texts: pl.Series) -> pl.Series:
    """Return the hash of each normalised text, 32 hex digits, by which exact copies are found; null for a null.

    About a million short texts in half a second, three times that where they hold more than ASCII.
    """
    parts = [pl.Series("digest", [], dtype=pl.String)]
    for _, part in chunks(texts):
        found = pl.Series(
            map(xxhash.xxh3_128_hexdigest, normalised(part.fill_null("")).cast(pl.Binary).to_list()), dtype=pl.String
        )
        parts.append(found.set(part.is_null(), None) if part.null_count() else found)
    return pl.concat(parts)


def normalised(texts: pl.Series) -> pl.Series:
    """Return each text as `schemas.hashing.normalise` does; no text is null.

    Of ASCII alone nothing but white space can change; other texts go through Python's own tables of Unicode, since
    those of another library are of another version, and would give other hashes.
    """
    plain = (texts.str.len_bytes() == texts.str.len_chars()).to_numpy()
    uneven = texts.str.contains(_CONTROLS) | texts.str.contains("  ", literal=True)
    uneven |= texts.str.starts_with(" ") | texts.str.ends_with(" ")
    out = texts.clone()  # `scatter` writes in place
    folded = np.flatnonzero(plain & uneven.to_numpy())
    if len(folded):
        some = texts.gather(folded).str.replace_all(_WHITE, " ").str.strip_chars(" ")
        out = out.scatter(folded, some)
    other = np.flatnonzero(~plain)
    if len(other):
        out = out.scatter(other, pl.Series(map(normalise, texts.gather(other).to_list()), dtype=pl.String))
    return out


def shingles(texts: pl.Series, size: int, unit: Unit = "words", *, lowercase: bool = True) -> Shingles:
    """Cut texts into shingles.

    Parameters
    ----------
    texts : polars.Series of String
        Null counts as empty.
    size : int
        Units of a shingle, at least 1.
    unit : "words" or "characters"
        Characters are Unicode code points of the normalised text, its single spaces among them.
    lowercase : bool
        Whether capitals and small letters are the same.

    Notes
    -----
    A text of fewer units than `size`, but some, is one shingle: all of it. About a million short texts (15 words) in
    four seconds; about 60 bytes of memory a byte of text, so give long columns in `chunks`.

    Source: A. Z. Broder (1997). On the resemblance and containment of documents (shingles); D. Lemire, O. Kaser (2014).
    Strongly universal string hashing is fast (multilinear hashing).
    """
    clean = normalised(texts.fill_null(""))
    if lowercase:
        clean = clean.str.to_lowercase()
    raw = np.frombuffer("".join(clean.to_list()).encode(), dtype=np.uint8)
    ends = np.cumsum(clean.str.len_bytes().to_numpy(), dtype=np.int64)
    begins = ends - clean.str.len_bytes().to_numpy()
    heads = _heads(raw, begins[begins < ends], unit)
    if not len(heads):
        return Shingles(np.empty(0, np.uint64), np.zeros(len(texts) + 1, np.int64))
    units = _unit_hashes(raw, heads, unit)
    first = np.searchsorted(heads, begins)
    last = np.searchsorted(heads, ends)
    found = last - first
    count = np.where(found > 0, np.maximum(found - size + 1, 1), 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
    place = np.arange(starts[-1]) + np.repeat(first - starts[:-1], count)
    short = bool(((found > 0) & (found < size)).any())
    end = np.repeat(last, count) if short else None
    values = np.zeros(len(place), np.uint64)
    for step, weight in enumerate(constants(_UNIT, size) | np.uint64(1)):
        at = place + step
        if end is None:
            values += units[at] * weight
        else:
            values += np.where(at < end, units[np.minimum(at, len(units) - 1)] * weight, np.uint64(0))
    return Shingles(mix(values), starts)


def unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in ascending order, each once, by sorting.

    NumPy's own `unique` goes through a hash table that takes minutes for a million codes like ``left * rows + right``.
    """
    ordered = np.sort(values)
    kept = np.ones(len(ordered), dtype=bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]


def chunks(texts: pl.Series) -> Iterator[tuple[int, pl.Series]]:
    """Cut a column into runs of rows of about `CHUNK` bytes, each with the number of its first row."""
    size = texts.str.len_bytes().fill_null(0).to_numpy().astype(np.int64) + 1
    ends = np.cumsum(size)
    row = 0
    while row < len(texts):
        done = ends[row - 1] if row else 0
        stop = max(row + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        yield row, texts[row:stop]
        row = stop


def distinct(found: Shingles) -> Shingles:
    """Return the set of shingles of each text, as small codes: ascending, each once.

    Codes number the different shingles among these texts, so they compare with one another alone.
    """
    rows = np.repeat(np.arange(len(found.starts) - 1), np.diff(found.starts)).astype(np.uint64)
    code = np.unique(found.values, return_inverse=True)[1].astype(np.uint64)
    keys = unique((rows << np.uint64(32)) | code)
    starts = np.searchsorted(keys >> np.uint64(32), np.arange(len(found.starts), dtype=np.uint64))
    return Shingles(keys, starts.astype(np.int64))


def _heads(raw: NDArray[np.uint8], begins: Ints, unit: Unit) -> Ints:
    """Find the byte with which each word or character begins."""
    if unit == "characters":
        return np.flatnonzero((raw & 0xC0) != 0x80)
    space = raw == _SPACE
    head = np.empty(len(raw), dtype=bool)
    head[1:] = space[:-1]
    head[begins] = True
    head &= ~space
    return np.flatnonzero(head)


def _unit_hashes(raw: NDArray[np.uint8], heads: Ints, unit: Unit) -> Hashes:
    """Hash the bytes from each head to the next; a space after a word counts nothing."""
    of_byte = constants(_BYTE, 256)
    if unit == "words":
        of_byte[_SPACE] = 0
    length = np.diff(heads, append=len(raw))
    place = np.arange(heads[0], len(raw)) - np.repeat(heads, length)
    weights = constants(_PLACE, int(length.max())) | np.uint64(1)
    terms = of_byte[raw[heads[0] :]]
    terms *= weights[place]
    return mix(np.add.reduceat(terms, heads - heads[0]))

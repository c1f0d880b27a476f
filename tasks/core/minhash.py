"""MinHash: signatures whose bands two texts share the likelier, the more of their shingles they share.

The least of a random permutation of two sets is the same with probability equal to their Jaccard similarity s. r such
minima make a band, and pairs that share one of b bands are candidates: with probability 1 - (1 - s^r)^b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.shingles import Hashes, Ints, Shingles, constants, mix, unique

PERMUTATIONS = 128
"""Most permutations of a signature."""
RECALL = 0.999
"""Least chance that a pair at the threshold becomes a candidate."""
CROWD = 64
"""Most rows of a band that are all paired with one another."""
REACH = 8
"""Rows that each one of a larger band is paired with."""
_PIECE = 64  # shingles that are looked at together
_HELD = 2**16  # numbers of a block of signatures: it fits a processor's cache
_FIRST, _SECOND, _BAND = 1 << 43, 1 << 44, 1 << 45


@dataclass(frozen=True)
class Bands:
    """How minima are banded: `bands` of `rows` permutations each."""

    bands: int
    rows: int

    def chance(self, similarity: ArrayLike) -> NDArray[np.float64]:
        """Return the S-curve: the chance that sets of a similarity share a band."""
        s = np.asarray(similarity, dtype=np.float64)
        return np.asarray(1 - (1 - s**self.rows) ** self.bands)


def choose_bands(threshold: float, permutations: int = PERMUTATIONS, recall: float = RECALL) -> Bands:
    """Return the bands with most rows (fewest needless candidates) that find a pair at `threshold` often enough.

    Parameters
    ----------
    threshold : float in (0, 1]
        Jaccard similarity from which a pair counts.
    permutations : int
        Most that there may be: ``bands * rows``.
    recall : float in (0, 1)
        Least value of the S-curve at the threshold. No more bands are taken than it needs.

    Raises
    ------
    UsageError
        If one row a band needs more than `permutations` already.

    Source: J. Leskovec, A. Rajaraman, J. D. Ullman (2014). Mining of massive datasets, chapter 3.
    """
    if not 0 < threshold <= 1 or not 0 < recall < 1 or permutations < 1:
        raise UsageError(
            f"threshold {threshold}, recall {recall}, {permutations} permutations",
            where="minhash",
            expected="a threshold in (0, 1], a recall in (0, 1), one permutation or more",
        )
    for rows in range(min(16, permutations), 0, -1):
        caught = threshold**rows
        if caught < 1e-12:
            continue
        bands = 1 if caught >= 1 else max(1, math.ceil(math.log1p(-recall) / math.log1p(-caught) - 1e-9))
        if bands * rows <= permutations:
            return Bands(bands, rows)
    raise UsageError(
        f"{permutations} permutations do not find pairs of similarity {threshold:g} with a chance of {recall:g}",
        where="minhash",
        remedy="raise permutations or the threshold, or lower recall",
    )


def minima(found: Shingles, permutations: int) -> NDArray[np.uint32]:
    """Return the least of each permutation over each text's shingles.

    Returns
    -------
    numpy.ndarray, shape (texts, permutations), uint32
        Of a text without shingles all are 2^32 - 1.

    Notes
    -----
    Permutation i is ``a_i * low + b_i * high`` modulo 2^32 of a shingle's two halves. Texts are cut into pieces of up
    to 64 shingles; pieces of about one length are looked at together, padded with a shingle of their own, which changes
    no minimum. 1M texts of 12 shingles and 90 permutations: 3 s on one core.

    Source: A. Z. Broder (1997). On the resemblance and containment of documents.
    """
    rows = len(found.starts) - 1
    out = np.full((rows, permutations), np.iinfo(np.uint32).max, dtype=np.uint32)
    count = np.diff(found.starts)
    pieces = -(-count // _PIECE)
    owner = np.repeat(np.arange(rows), pieces)
    if not len(owner):
        return out
    before = np.cumsum(pieces) - pieces
    begin = found.starts[owner] + (np.arange(len(owner)) - before[owner]) * _PIECE
    length = np.minimum(found.starts[owner + 1] - begin, _PIECE)
    wide = np.where(length > 16, -(-length // 8) * 8, length)
    several = bool((pieces > 1).any())
    parts = np.empty((len(owner), permutations), dtype=np.uint32) if several else out
    low = (found.values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (found.values >> np.uint64(32)).astype(np.uint32)
    a = (constants(_FIRST, permutations).astype(np.uint32) | np.uint32(1))[:, None]
    b = (constants(_SECOND, permutations).astype(np.uint32) | np.uint32(1))[:, None]
    step = max(64, _HELD // permutations)
    for width in np.unique(wide):
        same = np.flatnonzero(wide == width)
        for start in range(0, len(same), step):
            some = same[start : start + step]
            least = np.full((permutations, len(some)), np.iinfo(np.uint32).max, dtype=np.uint32)
            one, two = np.empty_like(least), np.empty_like(least)
            for place in range(int(width)):
                at = begin[some] + np.minimum(place, length[some] - 1)
                np.multiply(a, low[at], out=one)
                np.multiply(b, high[at], out=two)
                one += two
                np.minimum(least, one, out=least)
            parts[some if several else owner[some]] = least.T
    if several:
        kept = pieces > 0
        out[kept] = np.minimum.reduceat(parts, before[kept], axis=0)
    return out


def band_keys(found: Shingles, bands: Bands) -> Hashes:
    """Return a 64-bit key for each text and band: shape (texts, bands); what has no shingle must be left out after."""
    least = minima(found, bands.bands * bands.rows)
    weights = constants(_BAND, bands.rows) | np.uint64(1)
    keys = np.zeros((len(least), bands.bands), dtype=np.uint64)
    for row in range(bands.rows):
        keys += mix(least[:, row :: bands.rows].astype(np.uint64)) * weights[row]
    return mix(keys)


def band_pairs(rows: Ints, key: Hashes, following: Hashes, total: int) -> tuple[Ints, Ints, int]:
    """Find the pairs of rows that share one band.

    Parameters
    ----------
    rows : array, shape (n,), int64
        Rows in the order of their ids, ascending: all that have any of these keys.
    key : array, shape (n,), uint64
        Their keys of this band.
    following : array, shape (total,), uint64
        Keys of the next band, of all rows; only those of rows that share a band are read.
    total : int
        Number of all rows.

    Returns
    -------
    pairs, crowded : numpy.ndarray of int64
        Pairs as ``left * total + right`` with left before right. A key that m rows share makes m (m - 1) / 2 pairs. In
        a crowd, of more than `CROWD` rows, each row is paired with the next `REACH` alone, in the order of (key of the
        next band, row): these are `crowded`.
    int
        Pairs of crowds that are in neither.

    Notes
    -----
    O(n) but for the pairs themselves; 1M rows: 60 ms.
    """
    shared = np.flatnonzero(pl.Series(key).is_duplicated().to_numpy())
    if not len(shared):
        return np.empty(0, np.int64), np.empty(0, np.int64), 0
    shared = shared[np.lexsort((shared, following[rows[shared]], key[shared]))]
    own, shared = key[shared], rows[shared]
    new = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]]))
    size = np.diff(new, append=len(own))
    reach = np.where(size > CROWD, REACH, size - 1)
    left_out = int((size * (size - 1) // 2 - (reach * size - reach * (reach + 1) // 2)).sum())
    crowd, far = np.repeat(size > CROWD, size), np.repeat(reach, size)
    pairs: tuple[list[Ints], list[Ints]] = ([], [])
    for step in range(1, int(reach.max()) + 1):
        near = np.flatnonzero((own[step:] == own[:-step]) & (far[:-step] >= step))
        one, two = shared[near], shared[near + step]
        coded = np.minimum(one, two) * total + np.maximum(one, two)
        pairs[0].append(coded[~crowd[near]])
        pairs[1].append(coded[crowd[near]])
    return np.concatenate(pairs[0]), np.concatenate(pairs[1]), left_out


def crowded_apart(key: Hashes, labels: Ints) -> int:
    """Count the pairs of rows of one band's crowds whose labels differ."""
    frame = pl.DataFrame({"key": key, "label": labels})
    crowds = frame.filter(pl.len().over("key") > CROWD)
    every = crowds.group_by("key").len()["len"].to_numpy().astype(np.int64)
    same = crowds.group_by("key", "label").len()["len"].to_numpy().astype(np.int64)
    return int((every * (every - 1) // 2).sum()) - int((same * (same - 1) // 2).sum())


def shared_bands(keys: Sequence[Hashes], pairs: Ints) -> Ints:
    """Count the bands, given one by one, that the two rows of each pair share."""
    out = np.zeros(len(pairs), dtype=np.int64)
    for key in keys:
        out += key[pairs[:, 0]] == key[pairs[:, 1]]
    return out


def pairs_between(new: Iterable[Hashes], old: Hashes) -> tuple[Ints, int]:
    """Find the pairs (new row, old row) that share a band.

    Parameters
    ----------
    new : iterable of arrays, shape (new rows,)
        Keys of one band after the other.
    old : array, shape (old rows, bands)
        As from `band_keys`. In a band that more than `CROWD` old rows share, each new row is paired with those that
        come first, so give them in a fixed order.

    Returns
    -------
    numpy.ndarray, shape (n, 2)
        Each pair once, ascending.
    int
        Pairs that were left out.
    """
    every, left_out = np.empty(0, np.int64), 0
    for band, key in enumerate(new):
        one = pl.DataFrame({"key": key}).with_row_index("new")
        two = pl.DataFrame({"key": np.ascontiguousarray(old[:, band])}).with_row_index("old")
        two = two.join(one.select("key"), on="key", how="semi", maintain_order="left")
        if two.is_empty():
            continue
        two = two.with_columns(place=pl.int_range(pl.len()).over("key"))
        kept = two.filter(pl.col("place") < CROWD)
        if len(kept) < len(two):
            beyond = one.join(two.filter(pl.col("place") >= CROWD).group_by("key").len(), on="key")
            left_out += int(beyond["len"].sum())
        both = one.join(kept, on="key")
        coded = both["new"].to_numpy().astype(np.int64) * len(old) + both["old"].to_numpy()
        every = unique(np.concatenate([every, coded]))
    return decoded(every, len(old)), left_out


def decoded(coded: Ints, rows: int) -> Ints:
    """Return pairs ``left * rows + right`` as an array of shape (n, 2)."""
    return np.stack([coded // max(1, rows), coded % max(1, rows)], axis=1)

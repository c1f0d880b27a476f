"""Which pieces each tree is made of: counts of integer-coded pieces as compressed sparse rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TABLE_LIMIT = 1 << 24
"""Codes below this bound are compressed by a table instead of a sort."""


@dataclass(frozen=True)
class Pieces:
    """The pieces of each different tree, as compressed sparse rows.

    Rows of the data that hold the same tree share one line: `tree` says which. Line t holds the entries indptr[t] to
    indptr[t + 1] of `code` and `count`.

    Attributes
    ----------
    tree : numpy.ndarray, shape (rows,), int64
        Line of each row; -1 for a row without a tree.
    indptr : numpy.ndarray, shape (lines + 1,), int64
    code : numpy.ndarray, shape (entries,), int64
        Pieces of each line, ascending, each once. What a code stands for does not depend on the order of rows.
    count : numpy.ndarray, shape (entries,), int64
        How often the piece occurs in the tree.
    size : int
        Number of different pieces; codes are 0 to size - 1.
    """

    tree: np.ndarray
    indptr: np.ndarray
    code: np.ndarray
    count: np.ndarray
    size: int

    @property
    def line(self) -> np.ndarray:
        """Line of each entry, int64."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def rows(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count the rows of each line, int64; only those where `chosen` (bool, shape (rows,)) is true, if given."""
        mine = self.tree if chosen is None else self.tree[chosen]
        return np.bincount(mine[mine >= 0], minlength=len(self.indptr) - 1)

    def totals(self, chosen: np.ndarray | None = None, weight: np.ndarray | None = None) -> np.ndarray:
        """Add up each piece over rows.

        Parameters
        ----------
        chosen : numpy.ndarray of bool, shape (rows,), optional
            Rows that count; all by default.
        weight : numpy.ndarray of float, shape (entries,), optional
            What an entry adds for each of its rows; by default its `count`.

        Returns
        -------
        numpy.ndarray, shape (size,), float64
            Exact for whole numbers below 2^53; other weights are added in an order that depends on their values alone.
        """
        from gradatim.tasks.core.reduce import group_sums

        entry = self.count if weight is None else weight
        return group_sums(self.code, entry * self.rows(chosen)[self.line], self.size)

    def examples(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Count the rows that hold each piece, int64, shape (size,)."""
        return self.totals(chosen, np.ones(len(self.code))).astype(np.int64)

    def expand(self) -> tuple[np.ndarray, np.ndarray]:
        """Write the lines out for every row of the data.

        Returns
        -------
        indptr : numpy.ndarray, shape (rows + 1,), int64
        entry : numpy.ndarray, int64
            Places in `code`, `count` and any array beside them; row i holds entry[indptr[i]:indptr[i + 1]].
        """
        lengths = np.append(np.diff(self.indptr), 0)[self.tree]  # a row without a tree takes the last, 0
        return np.concatenate([[0], np.cumsum(lengths)]), ranges(self.indptr[self.tree], lengths)


def collect(tree: np.ndarray, line: np.ndarray, code: np.ndarray, lines: int, size: int) -> tuple[Pieces, np.ndarray]:
    """Put occurrences (line, code), in any order, into `Pieces`; returns also the entry of each occurrence."""
    keys, entry, count = np.unique(line * max(size, 1) + code, return_inverse=True, return_counts=True)
    own = keys // max(size, 1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=lines))])
    return Pieces(tree, indptr, keys - own * max(size, 1), count.astype(np.int64), size), entry


def pack(columns: list[np.ndarray], bounds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Number the different rows of integer columns.

    Parameters
    ----------
    columns : list of numpy.ndarray of int64, each of shape (n,)
    bounds : list of int
        Every value of a column is at least 0 and below its bound.

    Returns
    -------
    code : numpy.ndarray, shape (n,), int64
        Equal exactly where rows are; in lexicographic order of the rows.
    first : numpy.ndarray, int64
        A row with each code.

    Notes
    -----
    Mixed radix, compressed to fewer codes whenever 63 bits would not do: exact for any number of columns.
    """
    key, bound = columns[0], bounds[0]
    for column, limit in zip(columns[1:], bounds[1:], strict=True):
        if bound * limit >= 1 << 62:
            key, first = _dense(key, bound)
            bound = len(first)
        key, bound = key * limit + column, bound * limit
    return _dense(key, bound)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Lay the ranges start, start + 1, ... of each length end to end."""
    ends = np.cumsum(lengths)
    places: np.ndarray = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return places


def _dense(key: np.ndarray, bound: int) -> tuple[np.ndarray, np.ndarray]:
    if bound > min(TABLE_LIMIT, max(4 * len(key), 1 << 16)):
        _, first, code = np.unique(key, return_index=True, return_inverse=True)
        return code, first
    row = np.full(bound, -1, dtype=np.int64)
    row[key[::-1]] = np.arange(len(key))[::-1]  # the first row wins
    there = row >= 0
    return (np.cumsum(there) - 1)[key], row[there]

"""Pieces of rows to hold out, so that every label of the rows stays in distribution often enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.tasks.core.pieces import ranges
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.inputs import keep_together
from gradatim.tasks.splits.together import together

Sparse = tuple[np.ndarray, np.ndarray]
"""Starts and codes of compressed sparse rows."""


@dataclass(frozen=True)
class Contents:
    """What rows are made of; rows of the same content share a line.

    Attributes
    ----------
    line : numpy.ndarray, shape (rows,), int64
        -1 for a row of unknown content.
    labels, pieces : (numpy.ndarray, numpy.ndarray)
        Starts (lines + 1,) and codes of each line, each code once a line.
    counts : (int, int)
        Number of labels, and of pieces.
    """

    line: np.ndarray
    labels: Sparse
    pieces: Sparse
    counts: tuple[int, int]


class HeldPieces:
    """Pieces that are held out, one after the other.

    Rows that hold one are out of distribution, and with them goes whatever is kept together with such a row.

    Attributes
    ----------
    rows : int
        Rows that are out.
    left : numpy.ndarray of int64, (labels,)
        Rows of each label that stay in distribution.
    whole : numpy.ndarray of int64, (labels,)
        Rows of each label.
    """

    def __init__(
        self, contents: Contents, examples: pl.DataFrame, config: SplitConfig, tables: Mapping[str, pl.DataFrame],
        least: int,
    ) -> None:  # fmt: skip
        known = contents.line >= 0
        line = contents.line[known]
        tied = together(examples, keep_together(examples, config), tables)
        if tied.component.null_count() == len(tied.component):
            unit = line
        else:
            unit = tied.key.rank("dense").cast(pl.Int64).to_numpy()[known] - 1
        lines = len(contents.labels[0]) - 1
        self.units = int(unit.max(initial=-1)) + 1
        # a part is the rows of one content in one unit: what goes or stays together
        key, self.size = np.unique(unit * max(lines, 1) + line, return_counts=True)
        self.unit, of_line = np.divmod(key, max(lines, 1))
        self.labels = _rows(contents.labels, of_line)
        part, piece = _entries(contents.pieces, of_line)
        order = np.lexsort((part, piece))
        self.parts = part[order]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(piece, minlength=contents.counts[1]))])
        self.by_unit = np.argsort(self.unit, kind="stable")
        self.unit_starts = np.concatenate([[0], np.cumsum(np.bincount(self.unit, minlength=self.units))])
        self.out = np.zeros(len(key), np.bool_)
        self.gone = np.zeros(self.units, np.bool_)
        self.whole = self._labels(np.arange(len(key)), contents.counts[0])
        self.left, self.least = self.whole.copy(), np.minimum(self.whole, least)
        self.rows = 0

    def take(self, pieces: np.ndarray, most: float = np.inf) -> bool:
        """Hold pieces out, unless a label keeps too few rows or more than `most` rows are out; says whether it did."""
        lengths = self.starts[pieces + 1] - self.starts[pieces]
        parts = np.unique(self.parts[ranges(self.starts[pieces], lengths)])
        parts = parts[~self.out[parts]]
        rows = int(self.size[parts].sum())
        if self.rows + rows > most:
            return False
        units = np.unique(self.unit[parts])
        units = units[~self.gone[units]]
        starts = self.unit_starts[units]
        lost = self.by_unit[ranges(starts, self.unit_starts[units + 1] - starts)]
        left = self.left - self._labels(lost, len(self.left))
        if (left < self.least).any():
            return False
        self.left, self.rows = left, self.rows + rows
        self.out[parts] = True
        self.gone[units] = True
        return True

    def fresh(self, piece: int) -> int:
        """Count the rows that a piece would add to those that are out."""
        parts = self.parts[self.starts[piece] : self.starts[piece + 1]]
        return int(self.size[parts[~self.out[parts]]].sum())

    def _labels(self, parts: np.ndarray, count: int) -> np.ndarray:
        starts, codes = self.labels
        lengths = starts[parts + 1] - starts[parts]
        weight = np.repeat(self.size[parts], lengths)
        return np.bincount(codes[ranges(starts[parts], lengths)], weight, minlength=count).astype(np.int64)


def _entries(sparse: Sparse, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the codes of each of some lines, with its place among them."""
    starts, codes = sparse
    lengths = starts[lines + 1] - starts[lines]
    return np.repeat(np.arange(len(lines)), lengths), codes[ranges(starts[lines], lengths)]


def _rows(sparse: Sparse, lines: np.ndarray) -> Sparse:
    owner, codes = _entries(sparse, lines)
    return np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(lines)))]), codes


def told_of(held: np.ndarray, names: pl.Series, pieces: Sparse, line: np.ndarray) -> pl.Series:
    """Name the held-out pieces of each row in the order of names, parted by ``; ``; null where it has none."""
    starts, codes = pieces
    lines = len(starts) - 1
    owner = np.repeat(np.arange(lines), np.diff(starts))
    hit = held[codes]
    long = pl.DataFrame({"line": pl.Series(owner[hit], dtype=pl.Int64), "name": names.gather(pl.Series(codes[hit]))})
    texts = long.sort("line", "name").group_by("line", maintain_order=True).agg(pl.col("name").str.join("; "))
    every = pl.DataFrame({"line": pl.Series(line, dtype=pl.Int64)})
    return every.join(texts, on="line", how="left", maintain_order="left")["name"]

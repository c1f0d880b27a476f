"""Vectors that are read some rows at a time, so that a table of them is never in memory as a whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.neighbour_parts import norms_of, scaled

SLICE = 65_536
"""Rows that are read together, at most."""
NUMBERS = 2**24
"""Numbers that are read together, at most: 64 MB of float32."""
HELD = 2**26
"""Bytes up to which vectors that are made or gathered stay in memory rather than on disk (64 MB)."""

Floats = NDArray[np.float64]
Ints = NDArray[Any]


@dataclass(frozen=True)
class VectorRows:
    """Some rows of a matrix, in an order, gathered when they are asked for.

    ``rows[start:stop]`` and ``rows[places]`` give arrays as NumPy would; `view` gives rows of these rows, of which none
    is read.

    Attributes
    ----------
    source : array, shape (M, d)
        In memory, memory-mapped, or anything that is indexed by slices and by arrays of places.
    place : numpy.ndarray of int, shape (N,), optional
        Row of `source` behind each row; all of them, in their order, by default.
    unit : bool
        Whether rows are brought to length 1 as they are read; those of zeros stay.
    dtype : type
        Of what is read: float32 or float64.
    """

    source: Any
    place: Ints | None = None
    unit: bool = False
    dtype: Any = np.float32

    def __len__(self) -> int:
        return len(self.source) if self.place is None else len(self.place)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return len(self), int(self.source.shape[1])

    def __getitem__(self, rows: slice | NDArray[Any]) -> NDArray[Any]:
        if self.place is not None:
            rows = self.place[rows]
        elif isinstance(rows, np.ndarray) and rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        part = np.asarray(self.source[rows], dtype=self.dtype)
        return scaled(np.ascontiguousarray(part), norms_of(part)) if self.unit else part

    def view(self, rows: NDArray[Any]) -> VectorRows:
        """Return some of these rows, by their places or by a mask."""
        if len(rows) == len(self) and self.place is None and _is_all(rows):
            return self
        if rows.dtype == np.bool_ and rows.all():
            return self
        places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        place = places if self.place is None else self.place[places]
        return VectorRows(self.source, place, self.unit, self.dtype)

    def slices(self, step: int | None = None) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Give the rows some at a time, with where they stand; fewer where they are wide."""
        step = step or rows_together(self.shape[1], SLICE)
        for start in range(0, len(self), step):
            part = slice(start, min(start + step, len(self)))
            yield part, self[part]

    def whole(self) -> NDArray[Any]:
        """Return all rows as one array: not copied where it is `source` itself, on disk beyond `HELD` bytes."""
        if self.place is None and not self.unit and isinstance(self.source, np.ndarray):
            return np.ascontiguousarray(self.source, dtype=self.dtype)
        out = scratch(*self.shape, dtype=self.dtype)
        for part, rows in self.slices():
            out[part] = rows
        return out

    def mean(self) -> Floats:
        """Return the mean row in float64, added up in the order of rows."""
        total = np.zeros((0, self.shape[1]))
        for _, rows in self.slices(8192):
            total = np.add.reduce(np.concatenate([total, rows.astype(np.float64)]), axis=0, keepdims=True)
        return np.asarray(total[0] / len(self) if len(self) else np.zeros(self.shape[1]))


def _is_all(rows: NDArray[Any]) -> bool:
    """Whether places, or a mask, are those of all rows in their order."""
    if rows.dtype == np.bool_:
        return bool(rows.all())
    parts = (slice(start, min(start + SLICE, len(rows))) for start in range(0, len(rows), SLICE))
    return all((rows[part] == np.arange(part.start, part.stop)).all() for part in parts)


def rows_together(width: int, most: int) -> int:
    """Return how many rows of a width are held together: `most`, or as many as `NUMBERS` allow, but at least 1,024."""
    return max(1024, min(most, NUMBERS // max(1, width)))


AnyVectors: TypeAlias = NDArray[Any] | VectorRows


def vector_rows(vectors: AnyVectors) -> VectorRows:
    """Return vectors as `VectorRows`; an array of shape (N, d) is not copied."""
    return vectors if isinstance(vectors, VectorRows) else VectorRows(vectors, dtype=vectors.dtype)


def scratch(rows: int, width: int, dtype: Any = np.float32, *, held: int | None = None) -> NDArray[Any]:
    """Return an array to be filled: in memory up to `held` bytes, else on disk, and gone with the last that holds it.

    `held` is `HELD` by default.

    Raises
    ------
    UsageError
        The disk that holds temporary files (``TMPDIR``) has not the room.
    """
    size = rows * width * np.dtype(dtype).itemsize
    if size <= (HELD if held is None else held):
        return np.zeros((rows, width), dtype=dtype)
    with tempfile.TemporaryFile(prefix="gradatim-") as file:
        try:
            # room is taken now: a disk that is full later would end the process without a word
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise UsageError(
                f"no room for {size / 1e9:.1f} GB of vectors: {error.strerror}",
                where=tempfile.gettempdir(),
                expected="a disk for temporary files",
                remedy="free it, or name another folder with the environment variable TMPDIR",
            ) from None
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=(rows, width)))

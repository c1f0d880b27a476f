"""Nearest neighbours: exact, the same on any machine, ties by id.

faiss finds candidates with products of float32; what it finds is measured again in float64, rounded to 1e-9 and put in
the order (nearest first, id). A bound on the error of the float32 products says whether a neighbour could be among
those that were not found: such a query is asked again, wider, and at last against every vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.neighbour_parts import (
    LOW,
    NONE,
    SLICE,
    UNIT,
    Floats,
    Ints,
    equal_groups,
    faiss,
    matrix,
    mean,
    norms_of,
    openmp,
    power_of_two,
    scaled,
    shifted,
)
from gradatim.tasks.core.reduce import one_thread

BLOCK = 8192
"""Queries that are searched together."""
CHUNK = 16_384
"""Vectors that one slice of queries is measured against where every vector has to be looked at."""
HELD = 2**23
"""Most numbers of vectors that are held in float64 at a time (64 MB), but for very wide ones."""
MARGIN = 16

_ULP = 2.0**-24  # relative error of one rounding in float32


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of queries, nearest first.

    Attributes
    ----------
    index : numpy.ndarray, shape (queries, k), int64
        Row of each neighbour among the vectors; -1 where there are fewer, and for a query without a direction.
    measure : numpy.ndarray, shape (queries, k), float64
        Cosine similarity, or Euclidean distance; NaN where `index` is -1. Rounded to 1e-9 (of the largest distance
        there can be).
    """

    index: Ints
    measure: Floats


class NearestNeighbours:
    """Vectors in which neighbours are looked for.

    Parameters
    ----------
    vectors : array, shape (N, d)
        Kept as float32; N below 2^32.
    ids : polars.Series or sequence of str, optional
        Their ids, which decide ties and tell a query from itself; by default the number of the row decides.
    metric : "cosine" or "euclidean"
    lists_probed : int, optional
        Look only into this many of about 4 √N clusters (an inverted file). Measures stay exact, but a neighbour may be
        missed: see `recall`. Which ones are missed may depend on the machine.
    threads : int, optional
        As many as OpenMP is allowed (``OMP_NUM_THREADS``) by default; the result does not depend on it.

    Attributes
    ----------
    directionless : numpy.ndarray of bool, shape (N,)
        Vectors of zeros under cosine: they are nobody's neighbour.
    duplicates : int
        Vectors that are equal to an earlier one.

    Raises
    ------
    DataRefused
        A vector holds NaN or infinity; its id is named.
    UsageError
        The shape is not (N, d) with d of at least 1, or N ids are not given.

    Notes
    -----
    ``queries * N * d`` products of float32: on two cores, 1M queries of width 256 against 50,000 in about 2.5 minutes.
    Memory: two or three times that of the vectors, and a block of queries.

    Source: M. Douze et al. (2024). The Faiss library.
    """

    def __init__(
        self,
        vectors: NDArray[Any],
        ids: pl.Series | Sequence[str] | None = None,
        *,
        metric: Literal["cosine", "euclidean"] = "cosine",
        lists_probed: int | None = None,
        threads: int | None = None,
        where: str = "nearest neighbours",
    ) -> None:
        self._faiss, self._where, self._threads = faiss(), where, threads
        rows = matrix(vectors, where)
        self.ids = None if ids is None else pl.Series("id", ids, dtype=pl.String)
        if self.ids is not None and (
            len(self.ids) != len(rows) or self.ids.null_count() or self.ids.is_duplicated().any()
        ):
            raise UsageError(
                f"{len(self.ids)} ids came with {len(rows)} vectors", where=where, expected="a different id for each"
            )
        if metric not in ("cosine", "euclidean"):
            raise UsageError(f"there is no metric {metric!r}", where=where, expected="cosine or euclidean")
        finite(rows, self.ids, where)
        self.metric, self.width = metric, rows.shape[1]
        norms = norms_of(rows)
        self.directionless = norms == 0 if metric == "cosine" else np.zeros(len(rows), dtype=bool)
        # place of each row in the order of ids, and back
        self._by_tie = np.arange(len(rows)) if self.ids is None else self.ids.arg_sort().to_numpy().astype(np.int64)
        self._tie = np.empty(len(rows), dtype=np.int64)
        self._tie[self._by_tie] = np.arange(len(rows))
        self._groups = equal_groups(rows, self._by_tie, self._tie)
        first = self._by_tie[self._groups.first]
        whole = len(first) == len(rows) and bool((first == np.arange(len(rows))).all())
        self._rows = rows if whole else rows[first]
        self._norms = norms[first]
        self._centre = np.zeros(self.width)
        self._unit = self._largest = 1.0
        if metric == "cosine":
            self._near = scaled(self._rows, self._norms)
        else:
            self._centre = mean(self._rows)
            near = shifted(self._rows, self._centre, 1.0)
            self._unit = float(power_of_two(norms_of(near).max(initial=0.0) or 1.0))  # then squares do not overflow
            self._near = shifted(self._rows, self._centre, self._unit)
            self._largest = float(norms_of(self._near).max(initial=0.0))
        self._index = None if lists_probed is None else self._inverted_file(lists_probed)

    def __len__(self) -> int:
        return len(self._tie)

    @property
    def duplicates(self) -> int:
        """Vectors that are equal to an earlier one."""
        return len(self._tie) - len(self._groups)

    def search(self, queries: NDArray[Any], k: int, *, ids: pl.Series | Sequence[str] | None = None) -> Neighbours:
        """Find the k nearest vectors of each query.

        Parameters
        ----------
        queries : array, shape (Q, d)
        k : int
            At least 1; may exceed the number of vectors.
        ids : polars.Series or sequence of str, length Q, optional
            Ids of the queries: none is its own neighbour.

        Returns
        -------
        Neighbours
            Arrays of shape (Q, k): for many queries call this for one block after the other.
        """
        rows = matrix(queries, self._where)
        names = None if ids is None else pl.Series("id", ids, dtype=pl.String)
        if rows.shape[1] != self.width:
            raise UsageError(
                f"queries of {rows.shape[1]} numbers, vectors of {self.width}", where=self._where, expected="one width"
            )
        if k < 1:
            raise UsageError(f"{k} neighbours were asked for", where=self._where, expected="at least 1")
        finite(rows, names, self._where)
        itself = self._rows_of(names, len(rows))
        index = np.full((len(rows), k), -1, dtype=np.int64)
        measure = np.full((len(rows), k), np.nan)
        with openmp(self._faiss, self._threads):
            for start in range(0, len(rows), BLOCK):
                part = slice(start, min(start + BLOCK, len(rows)))
                self._block(rows[part], k, itself[part], index[part], measure[part])
        return Neighbours(index, measure)

    def recall(self, queries: NDArray[Any], k: int, *, sample: int = 200) -> float:
        """Share of the true k neighbours that are found, over `sample` evenly spaced queries."""
        picks = np.unique(np.linspace(0, len(queries) - 1, min(sample, len(queries))).astype(np.int64))
        found = self.search(queries[picks], k).index
        index, self._index = self._index, None
        try:
            true = self.search(queries[picks], k).index
        finally:
            self._index = index
        hits = ((found[:, :, None] == true[:, None, :]) & (true[:, None, :] >= 0)).any(axis=1).sum()
        return float(hits / max(1, (true >= 0).sum()))

    # --- one block

    def _block(self, rows: NDArray[np.float32], k: int, itself: Ints, index: Ints, measure: Floats) -> None:
        """Fill `index` and `measure` for a block of queries."""
        norms = norms_of(rows)
        usable = np.flatnonzero(norms > 0) if self.metric == "cosine" else np.arange(len(rows))
        if not len(usable) or not len(self._rows):
            return
        rows, norms, itself = rows[usable], norms[usable], itself[usable]
        near = scaled(rows, norms) if self.metric == "cosine" else shifted(rows, self._centre, self._unit)
        scale = np.ones(len(rows)) if self.metric == "cosine" else self._scale(rows)
        needed = k + 1 + bool(self.directionless.any())  # itself, and the group of vectors of zeros, do not count
        best = np.full((len(rows), min(needed, len(self._rows))), NONE, dtype=np.int64)
        waiting = np.arange(len(rows))
        for wide in (2 * needed + MARGIN, 16 * needed + MARGIN):
            waiting = waiting[self._candidates(rows, norms, near, scale, needed, wide, best, waiting)]
            if not len(waiting):
                break
        for start in range(0, len(waiting), SLICE):
            some = waiting[start : start + SLICE]
            best[some] = self._every(rows[some], norms[some], scale[some], best.shape[1])
        own = np.where(itself >= 0, self._tie[itself], -1)
        keys = self._groups.unfold(best, k, own, self._tie)
        found = keys != NONE
        index[usable] = np.where(found, self._by_tie[np.where(found, keys & LOW, 0)], -1)
        away = (keys >> 32) / UNIT
        exact = 1.0 - away if self.metric == "cosine" else away * scale[:, None]
        measure[usable] = np.where(found, exact, np.nan)

    def _candidates(
        self,
        rows: NDArray[np.float32],
        norms: Floats,
        near: NDArray[np.float32],
        scale: Floats,
        k: int,
        wide: int,
        best: Ints,
        which: Ints,
    ) -> Ints:
        """Fill `best` with the keys of the nearest `k` groups of equal vectors; returns the places left undecided."""
        wide = min(wide, len(self._rows))
        some = near if len(which) == len(near) else near[which]
        if self._index is not None:
            close, group = self._index.search(some, wide)
        else:
            kind = self._faiss.METRIC_INNER_PRODUCT if self.metric == "cosine" else self._faiss.METRIC_L2
            close, group = self._faiss.knn(some, self._near, wide, metric=kind)
        close = close.astype(np.float64) * (1.0 if self.metric == "cosine" else -1.0)
        lost = (group < 0) | ~np.isfinite(close)  # fewer in the lists probed, or so far away that squares overflow
        close[lost] = -np.inf
        chosen = close >= (close[:, min(k, wide) - 1] - 2 * self._error(some))[:, None]
        undecided = np.zeros(len(which), dtype=bool)
        if self._index is None:
            undecided = lost.any(axis=1) | (chosen[:, -1] & (wide < len(self._rows)))
        step = max(1, min(SLICE, HELD // (k * self.width)))
        for start in range(0, len(which), step):
            part = slice(start, start + step)
            columns = int(chosen[part].sum(axis=1).max(initial=0))
            there = which[part]
            picked = group[part, :columns].astype(np.int64)
            keys = self._keys(rows[there], norms[there], scale[there], picked)
            keys[picked < 0] = NONE
            keys.sort(axis=1)
            columns = min(columns, best.shape[1])
            best[there, :columns] = keys[:, :columns]
        return np.flatnonzero(undecided)

    def _error(self, near: NDArray[np.float32]) -> Floats:
        """Bound the error of faiss's float32 figures: d + 8 roundings of products of no more than these norms."""
        roundings = (self.width + 8) * _ULP * 1.01
        if self.metric == "cosine":
            return np.full(len(near), roundings)
        reach: Floats = 2 * roundings * (norms_of(near) + self._largest) ** 2
        return reach

    def _keys(self, rows: NDArray[np.float32], norms: Floats, scale: Floats, group: Ints) -> Ints:
        """Measure queries against some groups in float64: key = rounded distance, then the group's first id."""
        held = self._rows[np.where(group < 0, 0, group)].astype(np.float64)
        if self.metric == "cosine":
            products = np.matmul(held, rows.astype(np.float64)[:, :, None])[:, :, 0]
            lengths = norms[:, None] * self._norms[group]
            away = 1.0 - np.divide(products, lengths, out=np.full_like(products, -1.0), where=lengths > 0)
            keys = self._key(away, group)
            keys[lengths == 0] = NONE
            return keys
        held -= rows.astype(np.float64)[:, None, :]
        return self._key(np.sqrt(np.einsum("qcd,qcd->qc", held, held)) / scale[:, None], group)

    def _key(self, away: Floats, group: Ints) -> Ints:
        rounded = np.rint(np.clip(away, 0.0, 2.0) * UNIT).astype(np.int64)
        keys: Ints = (rounded << 32) | self._groups.first[group]
        return keys

    def _every(self, rows: NDArray[np.float32], norms: Floats, scale: Floats, k: int) -> Ints:
        """Measure some queries against every vector: the keys of the nearest `k` groups."""
        best = np.full((len(rows), k), NONE, dtype=np.int64)
        query = rows.astype(np.float64)
        step = max(1024, min(CHUNK, HELD // self.width))
        for start in range(0, len(self._rows), step):
            group = np.arange(start, min(start + step, len(self._rows)))
            held = self._rows[group].astype(np.float64)
            if self.metric == "cosine":
                with one_thread():
                    products = query @ held.T
                lengths = norms[:, None] * self._norms[group]
                away = 1.0 - np.divide(products, lengths, out=np.full_like(products, -1.0), where=lengths > 0)
                keys = self._key(away, group)
                keys[lengths == 0] = NONE
            else:
                from scipy.spatial.distance import cdist

                keys = self._key(cdist(query, held) / scale[:, None], group)
            both = np.concatenate([best, keys], axis=1)
            best[:] = np.sort(np.partition(both, k - 1, axis=1)[:, :k], axis=1)
        return best

    def _scale(self, rows: NDArray[np.float32]) -> Floats:
        """Return a power of two for each query that no distance to it exceeds, so that keys need 31 bits."""
        away = rows.astype(np.float64) - self._centre
        reach = np.sqrt(np.einsum("nd,nd->n", away, away)) + self._largest * self._unit
        scale: Floats = power_of_two(reach * 1.001)
        return scale

    def _rows_of(self, names: pl.Series | None, count: int) -> Ints:
        """Return the row of each query among the vectors, -1 for one that is not there."""
        if names is None:
            return np.full(count, -1, dtype=np.int64)
        if self.ids is None or len(names) != count:
            raise UsageError(
                f"{len(names)} ids came with {count} queries", where=self._where, expected="ids of vectors and queries"
            )
        known = pl.DataFrame({"id": self.ids, "row": np.arange(len(self.ids))})
        joined = pl.DataFrame({"id": names}).join(known, on="id", how="left", maintain_order="left")
        return joined["row"].fill_null(-1).to_numpy().astype(np.int64)

    def _inverted_file(self, lists_probed: int) -> Any:
        if lists_probed < 1:
            raise UsageError(f"{lists_probed} lists were to be probed", where=self._where, expected="at least 1")
        cosine, count = self.metric == "cosine", len(self._near)
        kind = self._faiss.METRIC_INNER_PRODUCT if cosine else self._faiss.METRIC_L2
        lists = max(1, min(round(4 * count**0.5), count // 39))  # k-means wants 39 vectors a cluster
        flat = self._faiss.IndexFlatIP(self.width) if cosine else self._faiss.IndexFlatL2(self.width)
        index = self._faiss.IndexIVFFlat(flat, self.width, lists, kind)
        index.nprobe = min(lists_probed, lists)
        with openmp(self._faiss, self._threads):
            index.train(self._near)
            index.add(self._near)
        return index

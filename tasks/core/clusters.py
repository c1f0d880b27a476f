"""k-means: the same clusters on any machine, whatever the order of rows, and for a million rows by fitting a sample.

Rows are sampled and starts are drawn by the hash of their ids. Each row's nearest centre is exact, ties go to the lower
number (`tasks.core.neighbours`), and centres are means in float64 in the order of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import random_bits, uniform
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.neighbour_parts import Floats, Ints, equal_groups, matrix, mean, norms_of, scaled
from gradatim.tasks.core.neighbours import NearestNeighbours
from gradatim.tasks.core.reduce import one_thread, ordered_sum
from gradatim.tasks.core.row_numbers import bits_of, numbered, per_row, smallest, twice
from gradatim.tasks.core.vector_rows import AnyVectors, VectorRows, vector_rows

CHUNK = 65_536
"""Rows whose sums are taken together, in float64."""
TOLERANCE = 1e-4
"""Iteration stops when inertia falls by less than this share."""
FITTED = 100
"""Rows per cluster that are fitted by default."""
SPREAD = 2000
"""Starts that are drawn far from each other; beyond, by hash alone, since that costs O(k²)."""
POOL = 10
"""Rows per cluster among which starts are drawn."""

Metric = Literal["cosine", "euclidean"]


@dataclass(frozen=True)
class Clusters:
    """Fitted centres.

    Attributes
    ----------
    centres : numpy.ndarray, shape (k, d), float32
        Of length 1 under cosine. None is empty on the rows that were fitted.
    metric : "cosine" or "euclidean"
    inertia : float
        Mean squared distance of the fitted rows to their centre; under cosine of unit vectors, 2 (1 - cosine).
    iterations : int
    converged : bool
        False where the iterations ran out.
    fitted : int
        Rows that were fitted.
    asked : int
        Clusters that were asked for; more than k where there are not as many different rows.
    """

    centres: NDArray[np.float32]
    metric: Metric
    inertia: float
    iterations: int
    converged: bool
    fitted: int
    asked: int

    def __len__(self) -> int:
        return len(self.centres)

    def assign(self, vectors: AnyVectors, *, threads: int | None = None) -> tuple[Ints, Floats]:
        """Give each row its nearest centre.

        Parameters
        ----------
        vectors : array or VectorRows, shape (N, d)
            Read some rows at a time.

        Returns
        -------
        cluster : numpy.ndarray, shape (N,), int64
            -1 for a vector of zeros under cosine.
        measure : numpy.ndarray, shape (N,), float64
            Cosine similarity or Euclidean distance to that centre, rounded to 1e-9; NaN where cluster is -1.
        """
        return _assign(self.centres, self.metric, _rows_of(vectors, "k-means"), threads, "k-means")


def k_means(
    vectors: AnyVectors,
    k: int,
    *,
    ids: pl.Series | Sequence[str] | None = None,
    metric: Metric = "cosine",
    seed: int = 0,
    iterations: int = 25,
    sample: int | None = None,
    threads: int | None = None,
    where: str = "k-means",
) -> Clusters:
    """Fit k-means (spherical under cosine) by Lloyd's iteration on a sample of the rows.

    Parameters
    ----------
    vectors : array or VectorRows, shape (N, d)
        Read as float32, some rows at a time. Under cosine, vectors of zeros have no direction and are left out.
    k : int
        Clusters; fewer are made where there are fewer different rows.
    ids : polars.Series or sequence of str, optional
        Unique ids, by which rows are drawn and put in order; by default the number of the row.
    metric : "cosine" or "euclidean"
    seed : int
    iterations : int
        At most.
    sample : int, optional
        Rows that are fitted, by default 100 a cluster but at least 10,000: where there are more, those with the
        smallest hash of seed and id.
    threads : int, optional
        As many as OpenMP is allowed by default; the result does not depend on it.

    Raises
    ------
    UsageError
        For k, iterations or a sample below 1, or ids that are not unique.
    DataRefused
        There is no row, or none with a direction, or a vector holds NaN or infinity (its id is named).

    Notes
    -----
    ``sample * k * d`` products an iteration, then N k d to assign all rows. A cluster that loses its
    rows starts again at the row farthest from its centre. Memory: one float32 copy of the sample, and about 30 bytes a
    row: it grows no further with the rows where vectors come as `VectorRows` of what is on disk.

    Starts are drawn by k-means++ among ten hashed rows per cluster.

    Source: S. P. Lloyd (1982). Least squares quantization in PCM; I. S. Dhillon, D. S. Modha (2001). Concept
    decompositions for large sparse text data using clustering.
    """
    sample = max(FITTED * k, 10_000) if sample is None else sample
    for name, number in (("k", k), ("iterations", iterations), ("sample", sample)):
        if number < 1:
            raise UsageError(f"{name} is {number}", where=where, expected="at least 1")
    if metric not in ("cosine", "euclidean"):
        raise UsageError(f"there is no metric {metric!r}", where=where, expected="cosine or euclidean")
    rows = _rows_of(vectors, where)
    if isinstance(ids, pl.Series):
        names = ids.cast(pl.String)
    else:
        names = pl.Series(
            "id", ids if ids is not None else [f"{row:012d}" for row in range(len(rows))], dtype=pl.String
        )
    if len(names) != len(rows) or names.null_count() or _repeated(names):
        raise UsageError(f"{len(names)} ids came with {len(rows)} vectors", where=where, expected="an id for each")
    finite(rows, names, where)
    picks = _sample(rows, names, sample, metric, seed)
    if not len(picks):
        raise DataRefused(
            f"none of {len(rows):,} vectors has a direction" if len(rows) else "there are no vectors",
            where=where,
            expected="at least one vector" + (" that is not zero" if metric == "cosine" else ""),
        )
    fit, ids_of_fit = rows[picks], names.gather(picks)
    if metric == "cosine":
        fit = scaled(fit, norms_of(fit))
    centres = fit[_starts(fit, ids_of_fit, k, seed)]
    before, inertia, cluster = np.zeros(0, dtype=np.int64), np.inf, np.zeros(0, dtype=np.int64)
    done, converged = 0, False
    while True:
        cluster, measure = _assign(centres, metric, fit, threads, where)
        away = 2 * (1 - measure) if metric == "cosine" else measure**2
        last, inertia = inertia, ordered_sum(away) / len(fit)
        size = np.bincount(cluster, minlength=len(centres))
        stable = np.array_equal(cluster, before) or (inertia >= (1 - TOLERANCE) * last and bool(size.all()))
        converged = bool(stable or inertia == 0)
        if converged or done == iterations:
            break
        done, before = done + 1, cluster
        centres = _moved(fit, cluster, away, size, centres, metric)
    kept = size > 0
    return Clusters(centres[kept], metric, float(inertia), done, converged, len(fit), k)


def occupancy_entropy(counts: NDArray[Any]) -> float:
    """Return the entropy, in nats, of the shares of rows that clusters hold; 0 for one cluster or no rows."""
    held = np.asarray(counts, dtype=np.float64)
    p = held[held > 0] / max(1.0, held.sum())
    return max(0.0, -ordered_sum(p * np.log(p)))


def _rows_of(vectors: AnyVectors, where: str) -> VectorRows:
    return vectors if isinstance(vectors, VectorRows) else vector_rows(matrix(vectors, where))


def _repeated(names: pl.Series) -> bool:
    """Whether an id stands twice; sorted ones need no table of all."""
    return twice(names) is not None if names.is_sorted() else bool(names.is_duplicated().any())


def _sample(rows: VectorRows, names: pl.Series, size: int, metric: Metric, seed: int) -> Ints:
    """Return the rows that are fitted, in order of their ids."""
    if metric == "cosine":
        directed = np.concatenate([np.zeros(0, bool), *(part.any(axis=1) for _, part in rows.slices())])
        usable = numbered(len(rows)) if directed.all() else np.flatnonzero(directed)
    else:
        usable = numbered(len(rows))
    if len(usable) > size:
        usable = usable[smallest(bits_of(names, seed, "k-means/sample", usable), size)]
    return np.asarray(usable[names.gather(usable).arg_sort().to_numpy()], dtype=np.int64)


def _starts(fit: NDArray[np.float32], ids: pl.Series, k: int, seed: int) -> Ints:
    """Draw k different rows: k-means++ among those of the smallest hashes."""
    order = np.arange(len(fit))
    first = equal_groups(fit, order, order).first
    bits = random_bits(ids.gather(first), seed, "k-means/start")
    first = first[np.argsort(bits, kind="stable")]
    if len(first) <= k:
        return first
    pool = fit[first[: max(POOL * k, 1000)]].astype(np.float64)
    with one_thread():
        spread = _far_apart(pool - mean(fit), min(k, SPREAD), uniform(map(str, range(k)), seed, "k-means/spread"))
    rest = np.delete(np.arange(len(pool)), spread)[: k - len(spread)]
    return np.asarray(first[np.concatenate([spread, rest])], dtype=np.int64)


def _far_apart(pool: Floats, k: int, draws: Floats) -> Ints:
    """Draw rows one after the other by their squared distance to those drawn, in whole numbers that add exactly.

    Source: D. Arthur, S. Vassilvitskii (2007). k-means++: the advantages of careful seeding.
    """
    norms = np.einsum("nd,nd->n", pool, pool)
    unit = 1e9 / max(float(norms.max()), 1e-300)
    chosen = [0]
    near = np.full(len(pool), np.iinfo(np.int64).max)
    while len(chosen) < k:
        last = chosen[-1]
        away = norms + norms[last] - 2 * (pool @ pool[last])
        near = np.minimum(near, np.rint(np.maximum(away, 0) * unit).astype(np.int64))
        near[chosen] = 0
        sums = np.cumsum(near)
        if not sums[-1]:
            break
        chosen.append(int(np.searchsorted(sums, int(draws[len(chosen)] * int(sums[-1])), side="right")))
    return np.array(chosen, dtype=np.int64)


def _assign(
    centres: NDArray[np.float32], metric: Metric, rows: AnyVectors, threads: int | None, where: str
) -> tuple[Ints, Floats]:
    near = NearestNeighbours(centres, metric=metric, threads=threads, where=where)
    cluster, measure = per_row(len(rows), np.int64), per_row(len(rows))
    for part, some in vector_rows(rows).slices():
        found = near.search(some, 1)
        cluster[part], measure[part] = found.index[:, 0], found.measure[:, 0]
    return cluster, measure


def _moved(
    fit: NDArray[np.float32], cluster: Ints, away: Floats, size: Ints, centres: NDArray[np.float32], metric: Metric
) -> NDArray[np.float32]:
    """Move each centre to the mean of its rows, and empty ones to the rows farthest from their centres."""
    total = cluster_sums(fit, cluster, len(centres))
    length = np.sqrt(np.einsum("kd,kd->k", total, total)) if metric == "cosine" else size.astype(np.float64)
    # opposite directions may cancel: such a centre stays where it is
    held = (size > 0) & (length > 1e-6 * size)
    new = centres.copy()
    new[held] = total[held] / length[held, None]
    empty = np.flatnonzero(size == 0)
    if len(empty):
        far = np.lexsort((np.arange(len(away)), -np.round(away, 9)))[: 4 * len(empty) + 16]
        far = far[np.round(away[far], 9) > 0]
        different = far[np.sort(np.unique(fit[far], axis=0, return_index=True)[1])][: len(empty)]
        new[empty[: len(different)]] = fit[different]
    return new


def cluster_sums(rows: AnyVectors, cluster: NDArray[Any], k: int) -> Floats:
    """Sum the rows of each cluster in float64, in the order of rows.

    Parameters
    ----------
    rows : array or VectorRows, shape (N, d)
        In canonical order; read some at a time.
    cluster : array of int, shape (N,)
        In [0, k); rows of -1 are left out.

    Returns
    -------
    numpy.ndarray, shape (k, d), float64
        The same on any machine: rows are added one after the other, in chunks of `CHUNK`.
    """
    from scipy.sparse import csr_array

    total = np.zeros((k, rows.shape[1]))
    for start in range(0, len(rows), CHUNK):
        part = cluster[start : start + CHUNK]
        used = np.flatnonzero(part >= 0)
        order = used[np.argsort(part[used], kind="stable")]
        ends = np.concatenate([[0], np.cumsum(np.bincount(part[used], minlength=k))])
        member = csr_array((np.ones(len(order)), order, ends), shape=(k, len(part)))
        total += member @ rows[start : start + CHUNK].astype(np.float64)
    return total

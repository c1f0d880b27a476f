"""Of rows in an order: the most similar one that comes before each."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import polars as pl

from gradatim.tasks.core.clusters import Clusters, k_means
from gradatim.tasks.core.neighbour_parts import Floats, Ints, equal_groups
from gradatim.tasks.core.reduce import one_thread, processors
from gradatim.tasks.core.row_numbers import counts, mapped_over, per_row, slices
from gradatim.tasks.core.vector_rows import AnyVectors, vector_rows

BLOCK = 1024
"""Rows that are compared with all earlier ones together."""
GATHERED = 16_384
"""Rows of a group up to which they are gathered together."""
LEVELS = 3
"""Times that a too large cluster is cut again."""


def nearest_earlier(rows: AnyVectors) -> tuple[Floats, Ints]:
    """Find the most similar earlier row of each row.

    Parameters
    ----------
    rows : array or VectorRows, shape (n, d)
        In order, of length 1.

    Returns
    -------
    similarity : numpy.ndarray, shape (n,), float64
        Largest cosine to an earlier row, rounded to 1e-9 and at most 1; NaN for the first row.
    index : numpy.ndarray, shape (n,), int64
        The earliest row with it, where an equal row goes before one that is as near but for rounding; -1 for the first.

    Notes
    -----
    O(m² d) for m different rows; equal rows cost nothing. Memory: the m rows in float64, and a block of `BLOCK` rows
    by m.
    """
    found = replace(vector_rows(rows), dtype=np.float32)
    similarity, index = np.full(len(found), np.nan), np.full(len(found), -1, dtype=np.int64)
    if not len(found):
        return similarity, index
    place = np.arange(len(found))
    groups = equal_groups(found, place, place)
    first = groups.first
    again = np.repeat(first, np.diff(groups.starts))
    twin = np.ones(len(found), dtype=bool)
    twin[first] = False
    index[groups.members] = again
    similarity[twin], index[first] = 1.0, -1
    unit = found[first].astype(np.float64)
    unit /= np.sqrt(np.einsum("nd,nd->n", unit, unit))[:, None]
    for start in range(0, len(unit), BLOCK):
        end = min(start + BLOCK, len(unit))
        products = np.round(unit[start:end] @ unit[:end].T, 9)
        products[:, start:][np.triu_indices(end - start)] = -np.inf
        best = products.argmax(axis=1)
        value = products[np.arange(end - start), best]
        held = np.isfinite(value)
        similarity[first[start:end][held]] = np.clip(value[held], -1, 1)
        index[first[start:end][held]] = first[best[held]]
    return similarity, index


def nearest_earlier_in_groups(rows: AnyVectors, group: Ints) -> tuple[Floats, Ints]:
    """Find the most similar earlier row of the same group; `group` is ascending. Groups run on all processors.

    Of `VectorRows` only the groups that are worked on are gathered.
    """
    found = vector_rows(rows)
    similarity, index = per_row(len(rows), fill=np.nan), per_row(len(rows), np.int64, -1)
    first = [np.zeros(0, dtype=np.int64)]
    for part in slices(len(group)):
        before = group[part.start - 1] if part.start else group[0] - 1
        first.append(np.flatnonzero(np.diff(group[part], prepend=before)) + part.start)
    starts = np.concatenate(first)
    ends = np.append(starts[1:], len(group))

    def fill(part: tuple[int, int]) -> None:
        low, high = part
        # small groups are gathered once, large ones by slices
        value, place = nearest_earlier(found[low:high] if high - low <= GATHERED else found.view(np.arange(low, high)))
        similarity[low:high], index[low:high] = value, np.where(place >= 0, place + low, -1)

    with one_thread(), ThreadPoolExecutor(processors()) as pool:
        for _ in pool.map(fill, zip(starts.tolist(), ends.tolist(), strict=True)):
            pass
    return similarity, index


def bounded_clusters(
    vectors: AnyVectors, ids: pl.Series, k: int, *, largest: int, seed: int, where: str
) -> tuple[Clusters, Ints, Floats]:
    """Fit spherical k-means to rows of length 1, and cut the centres of clusters of more than `largest` rows again.

    Returns
    -------
    Clusters
        With a centre for each cluster: any row, also a later one, belongs to the nearest.
    cluster : numpy.ndarray, shape (N,), int64
        From 0, none empty. One of more than `largest` rows is left only where `LEVELS` cuts do not suffice, as for
        equal rows.
    similarity : numpy.ndarray, shape (N,), float64
        Cosine to the cluster's centre.
    """
    rows = vector_rows(vectors)
    found = k_means(rows, k, ids=ids, seed=seed, where=where)
    cluster, similarity = found.assign(rows)
    for _ in range(LEVELS):
        size = counts(cluster, len(found))
        large = np.flatnonzero(size > largest)
        stay = [found.centres[size <= largest]]
        for number in large.tolist():
            there = np.flatnonzero(cluster == number)
            pieces = math.ceil(2 * len(there) / largest)
            cut = k_means(rows.view(there), pieces, ids=ids.gather(there), seed=seed, where=where)
            stay.append(cut.centres)
        if sum(map(len, stay)) <= len(found):
            break
        found = replace(found, centres=np.concatenate(stay))
        cluster, similarity = found.assign(rows)
    held = counts(cluster, len(found)) > 0
    renumbered = np.cumsum(held) - 1
    numbers = mapped_over(len(cluster), lambda part: renumbered[cluster[part]], np.int64)
    return replace(found, centres=found.centres[held]), numbers, similarity

"""Distances of two sets of vectors: mean discrepancies with a permutation test, and optimal transport."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.hashing import random_bits, value_hash
from gradatim.tasks.core.reduce import BLOCK, Moments, moments, one_thread, ordered_sum
from gradatim.tasks.core.vector_rows import AnyVectors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBOURHOOD = 1_000
"""Rows whose median distance is the width of the Gaussian kernel."""


@dataclass(frozen=True)
class Discrepancy:
    """Squared maximum mean discrepancies of two sets, unbiased, so that they may be below 0, with permutation p-values.

    Attributes
    ----------
    linear, linear_p : float
        Of the kernel x·y: the squared distance of the means.
    rbf, rbf_p : float
        Of the kernel exp(-|x - y|² / (2 w²)) by random Fourier features.
    width : float
        w, the median distance of rows.
    """

    linear: float
    linear_p: float
    rbf: float
    rbf_p: float
    width: float


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return a generator of random numbers that is a function of a seed and a purpose."""
    return np.random.Generator(np.random.PCG64(int(value_hash({"purpose": purpose, "seed": seed}), 16)))


def permuted_labels(ids: pl.Series, first: int, permutations: int, seed: int) -> NDArray[np.bool_]:
    """Draw sets of `first` rows out of all: shape (permutations, n), each a function of seed, number and the ids.

    Rows are taken by the order of a mixed hash (splitmix64 of the id's random bits and the permutation's number).
    """
    base = random_bits(ids, seed, "shift permutation")
    drawn = np.zeros((permutations, len(ids)), dtype=np.bool_)
    with np.errstate(over="ignore"):
        for number in range(permutations):
            mixed = base + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            drawn[number, np.argpartition(mixed ^ (mixed >> np.uint64(31)), first - 1)[:first]] = True
    return drawn


def mean_discrepancy(
    vectors: ArrayLike, label: Integers, ids: pl.Series, *, seed: int, permutations: int = 199, frequencies: int = 256
) -> Discrepancy | None:
    """Compare two sets by their mean embeddings under a linear and a Gaussian kernel.

    Parameters
    ----------
    vectors : array-like, shape (n, d)
        In the order of ids, which is canonical.
    label : numpy.ndarray, shape (n,), int64
        0 or 1; the permutations draw as many rows as have 1.
    ids : polars.Series of str, length n
    seed : int
    permutations : int
        The smallest p-value is 1 / (permutations + 1).
    frequencies : int
        Random frequencies: a cosine and a sine each.

    Returns
    -------
    Discrepancy or None
        None where a set has fewer than two rows.

    Notes
    -----
    O(n (d + frequencies) permutations) time, memory of a block: 20,000 x 256 with 199 permutations take about a second.

    Source: A. Gretton et al. (2012). A kernel two-sample test; A. Rahimi, B. Recht (2007). Random features for
    large-scale kernel machines.
    """
    ones = int(label.sum())
    sizes = np.array([ones, len(label) - ones], dtype=np.float64)
    if sizes.min() < 2:
        return None
    rows = np.asarray(vectors)
    centre = rows.mean(axis=0, dtype=np.float64)
    width = _median_distance(rows, ids, seed)
    frequency = generator(seed, "random fourier features").standard_normal((rows.shape[1], frequencies)) / width
    sides = np.concatenate([label[None] == 1, permuted_labels(ids, ones, permutations, seed)])
    totals: list[Floats] = [np.zeros(0), np.zeros(0)]
    whole: list[Floats] = [np.zeros(0), np.zeros(0)]
    with one_thread():
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK].astype(np.float64) - centre
            phase = block @ frequency
            turned = np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / np.sqrt(frequencies)
            chosen = sides[:, start : start + BLOCK].astype(np.float64)
            for kind, mapped in enumerate((block, turned)):
                full = np.concatenate([mapped, (mapped**2).sum(axis=1, keepdims=True)], axis=1)
                part, everyone = chosen @ full, full.sum(axis=0)
                totals[kind] = totals[kind] + part if start else part
                whole[kind] = whole[kind] + everyone if start else everyone
    found: list[tuple[float, float]] = []
    for total, everyone in zip(totals, whole, strict=True):
        rest = everyone - total
        within = sum(
            ((side[:, :-1] ** 2).sum(axis=1) - side[:, -1]) / (n * (n - 1))
            for side, n in zip((total, rest), sizes, strict=True)
        )
        value = np.asarray(within - 2 * (total[:, :-1] * rest[:, :-1]).sum(axis=1) / sizes.prod())
        slack = 1e-9 * float(np.abs(everyone[-1]) / len(rows) + 1e-300)  # ties within rounding count as ties
        as_large = int((value[1:] >= value[0] - slack).sum())
        found.append((float(value[0]), (1 + as_large) / (permutations + 1)))
    return Discrepancy(*found[0], *found[1], width)


@dataclass(frozen=True)
class Gaussian:
    """Rows, mean of shape (d,) and covariance of shape (d, d), divided by rows - 1."""

    n: int
    mean: Floats
    covariance: Floats


def gaussian(partial: Moments) -> Gaussian:
    """Turn merged moments into mean and covariance; of one row the covariance is zero."""
    mean = partial.total / partial.n
    spread = (partial.gram - partial.n * np.outer(mean, mean)) / max(partial.n - 1, 1)
    return Gaussian(partial.n, mean, (spread + spread.T) / 2)


def gaussian_of(vectors: AnyVectors, centre: Floats) -> Gaussian:
    """Return mean and covariance of rows in canonical order, after subtracting `centre`, block by block."""

    def blocks() -> Iterator[Floats]:
        for start in range(0, len(vectors), BLOCK):
            yield vectors[start : start + BLOCK].astype(np.float64) - centre

    return gaussian(moments(blocks()))


def frechet(left: Gaussian, right: Gaussian) -> float:
    """Return the squared 2-Wasserstein distance of two Gaussians, ``|m - n|² + tr(A + B - 2 (A^½ B A^½)^½)``.

    The convention of the Fréchet inception distance, which is not a square root. O(d³). Too large on few rows: the bias
    falls as d / n.

    Source: D. C. Dowson, B. V. Landau (1982). The Fréchet distance between multivariate normal distributions;
    M. Heusel et al. (2017). GANs trained by a two time-scale update rule converge to a local Nash equilibrium.
    """
    with one_thread():
        values, basis = np.linalg.eigh(left.covariance)
        root = basis * np.sqrt(np.clip(values, 0, None)) @ basis.T
        inner = root @ right.covariance @ root
        cross = np.sqrt(np.clip(np.linalg.eigvalsh((inner + inner.T) / 2), 0, None))
        distance = ((left.mean - right.mean) ** 2).sum() + np.trace(left.covariance) + np.trace(right.covariance)
    return max(0.0, float(distance - 2 * cross.sum()))


def wasserstein_1d(left: Floats, right: Floats) -> float:
    """Return the 1-D Wasserstein distance of two samples, each of one number or more, of any sizes. O(n log n)."""
    values = np.concatenate([left, right])
    order = np.argsort(values, kind="stable")
    values = values[order]
    below = np.cumsum(order < len(left)) / len(left) - np.cumsum(order >= len(left)) / len(right)
    return ordered_sum(np.abs(below[:-1]) * np.diff(values), sort=False)


def sliced_wasserstein(left: ArrayLike, right: ArrayLike, *, projections: int = 128, seed: int = 0) -> float:
    """Return the mean 1-D Wasserstein distance of two samples over random directions.

    Parameters
    ----------
    left, right : array-like, shapes (n, d) and (m, d)
    projections : int
    seed : int

    Notes
    -----
    In one dimension it is the Wasserstein distance itself; in d it is smaller, for a shift of the mean by about
    ``sqrt(2 / (pi d))``. O(projections (n + m) log(n + m)).

    Source: J. Rabin et al. (2011). Wasserstein barycenter and its application to texture mixing.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (left, right)]
    width = sides[0].shape[1]
    direction = generator(seed, "sliced wasserstein").standard_normal((width, projections if width > 1 else 1))
    direction /= np.sqrt((direction**2).sum(axis=0))
    with one_thread():
        turned = [side @ direction for side in sides]
    found = [wasserstein_1d(turned[0][:, i], turned[1][:, i]) for i in range(direction.shape[1])]
    return ordered_sum(found) / len(found)


def _median_distance(rows: NDArray[np.floating], ids: pl.Series, seed: int) -> float:
    """Return the median distance of rows, 1 where most are equal."""
    order = np.argsort(random_bits(ids, seed, "shift kernel width"), kind="stable")[:NEIGHBOURHOOD]
    some = rows[np.sort(order)].astype(np.float64)
    some -= some.mean(axis=0)
    with one_thread():
        square = (some**2).sum(axis=1)
        distance = np.sqrt(np.clip(square[:, None] + square - 2 * some @ some.T, 0, None))
    middle = float(np.median(distance[np.triu_indices(len(some), 1)]))
    return middle if middle > 1e-6 * float(np.sqrt(square.max(initial=0.0)) + 1e-300) and middle > 0 else 1.0

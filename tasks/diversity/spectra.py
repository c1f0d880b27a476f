"""Vendi scores from eigenvalues: of a kernel, of vectors in the dual form, and of random Fourier features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.reduce import Moments, moments, one_thread
from gradatim.tasks.diversity.vectors import directed

Floats = NDArray[np.float64]


def vendi_score(kernel: ArrayLike, q: float = 1.0) -> float:
    """Return the Vendi score of order q of a similarity matrix.

    Parameters
    ----------
    kernel : array-like, shape (n, n)
        Symmetric and positive semi-definite, with 1 on its diagonal.
    q : float
        Order: 1 is the exponential of the eigenvalues' entropy, infinity the inverse of the largest one.

    Returns
    -------
    float
        From 1 (all the same) to n (nothing in common).

    Raises
    ------
    UsageError
        For a matrix that is no similarity matrix, with what is wrong.

    Notes
    -----
    O(n³): for some thousand items; `vendi_score_dual` for more.
    """
    matrix = np.asarray(kernel, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise UsageError(f"a kernel of shape {matrix.shape}", expected="a square matrix of at least one item")
    if not np.isfinite(matrix).all():
        raise UsageError("the kernel holds NaN or infinity", expected="finite similarities")
    if not np.allclose(matrix, matrix.T, atol=1e-8):
        raise UsageError("the kernel is not symmetric", expected="k(a, b) = k(b, a)")
    if not np.allclose(np.diag(matrix), 1, atol=1e-6):
        raise UsageError("the kernel's diagonal is not 1", expected="similarity 1 of each item to itself")
    values = eigenvalues((matrix + matrix.T) / (2 * len(matrix)))
    if values[0] < -1e-6:
        raise UsageError(
            f"the kernel has a negative eigenvalue, {values[0] * len(matrix):.3g}",
            expected="a positive semi-definite similarity, e.g. cosine or exp(-distance)",
        )
    return effective_number(values, q, len(matrix))


def vendi_score_dual(vectors: ArrayLike, q: float = 1.0) -> float:
    """Return the Vendi score of order q under cosine similarity, from the vectors themselves.

    Parameters
    ----------
    vectors : array-like, shape (n, d)
        Normalised here; a row of zeros has no direction and is refused.

    Returns
    -------
    float
        Equal to `vendi_score` of the n x n cosine matrix; at most min(n, d).

    Notes
    -----
    O(n d²) time, O(d²) memory beside the vectors.
    """
    rows = np.asarray(vectors)
    if rows.ndim != 2 or 0 in rows.shape:
        raise UsageError(f"vectors of shape {rows.shape}", expected="at least one row and one column")
    found = moments([rows], prepare=directed)
    if found.n < len(rows):
        raise UsageError("a vector is all zeros and has no direction", expected="vectors that are not zero")
    return vendi_score_moments(found, q)


def vendi_score_moments(partial: Moments, q: float = 1.0) -> float:
    """Return the Vendi score of order q from the merged moments of unit vectors (`tasks.core.reduce.moments`)."""
    return effective_number(spectrum(partial), q, max(partial.n, len(partial.gram)))


def fourier_features(width: int, bandwidth: float, frequencies: int, seed: int) -> Callable[[NDArray[Any]], Floats]:
    """Draw random Fourier features of the kernel ``exp(-|x - y|² / (2 bandwidth²))``.

    Parameters
    ----------
    width : int
        Width d of the vectors.
    bandwidth : float
        Above 0, in the units of the vectors.
    frequencies : int
        D; the error of a similarity is about 1 / √(2 D).
    seed : int
        Each number drawn is a pure function of the seed and its place.

    Returns
    -------
    callable
        Turns (n, d) vectors into (n, 2 D) rows of length 1 whose products estimate the kernel without bias.

    Source: A. Rahimi, B. Recht (2007). Random features for large-scale kernel machines.
    """
    from scipy.special import ndtri

    if not (bandwidth > 0 and np.isfinite(bandwidth)):
        raise UsageError(f"a bandwidth of {bandwidth}", expected="a finite number above 0")
    drawn = uniform((f"{i}" for i in range(width * frequencies)), seed, "vendi/fourier")
    waves = ndtri(drawn + 2.0**-54).reshape(width, frequencies) / bandwidth

    def features(block: NDArray[Any]) -> Floats:
        phase = block.astype(np.float64) @ waves
        out = np.empty((len(block), 2 * frequencies))
        np.cos(phase, out=out[:, :frequencies])
        np.sin(phase, out=out[:, frequencies:])
        out *= frequencies**-0.5
        return out

    return features


def median_distance(rows: NDArray[Any]) -> float:
    """Return the median distance between different rows (some thousand), the usual bandwidth; 1 where all are equal."""
    from scipy.spatial.distance import pdist

    away = np.round(pdist(rows.astype(np.float64)), 9)
    away = away[away > 0]
    return float(np.median(away)) if len(away) else 1.0


def spectrum(partial: Moments) -> Floats:
    """Return the eigenvalues of the gram matrix over n; of unit vectors they sum to 1."""
    return eigenvalues(partial.gram / partial.n)


def eigenvalues(matrix: Floats) -> Floats:
    """Return the eigenvalues of a symmetric matrix, ascending."""
    with one_thread():
        return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)


def effective_number(values: Floats, q: float, n: int) -> float:
    """Return the Hill number of order q of eigenvalues that sum to 1."""
    if not q >= 0:
        raise UsageError(f"order {q}", expected="q of 0 or more")
    noise = values.max() * max(n, len(values)) * np.finfo(np.float64).eps
    share = np.sort(values[values > noise])  # below, an eigenvalue is rounding error, which low orders would count
    share = share / share.sum()
    if q == 1:
        score = np.exp(-np.sum(share * np.log(share)))
    elif np.isinf(q):
        score = 1 / share.max()
    else:
        top = share.max()
        score = np.exp((q * np.log(top) + np.log(np.sum((share / top) ** q))) / (1 - q))
    return float(max(score, 1.0))

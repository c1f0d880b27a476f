"""m-coherence: how many examples a step on one of them helps, from the last layer's gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.embeddings import vectors_of
from gradatim.tasks.core.reduce import BLOCK, one_thread, ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.result import Difficulty, build

SOURCE = (
    "S. Chatterjee, P. Zielinski (2020). Making coherence out of nothing at all: measuring the evolution of gradient "
    "alignment; S. Chatterjee, P. Zielinski (2022). On the generalization mystery in deep learning"
)
LARGEST = 2**28
"""Most numbers in the sum of gradients (2 GB)."""
ZERO, CANCELLED = "gradient of zero", "the gradients cancel: they have no mean direction"

Floats = NDArray[np.float64]


class CoherenceConfig(Config):
    """Settings of `coherence`."""

    hidden: str = Field(min_length=1, description="name of the features with the last layer's input h")
    error: str = Field(min_length=1, description="name of the features with e = softmax(logits) - onehot(gold)")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@dataclass(frozen=True)
class Coherence:
    """Coherence of the gradients of m examples.

    Attributes
    ----------
    m : int
        Examples whose gradient is not zero.
    alpha : float
        |mean g|² / mean |g|², from 0 (they cancel) to 1 (they are equal).
    m_coherence : float
        m alpha: 1 for orthogonal gradients of equal norm, m for equal ones.
    cosine : numpy.ndarray, shape (N,), float64
        Of each example's gradient and the mean gradient; NaN where one of both is zero.
    norm : numpy.ndarray, shape (N,), float64
        Of each gradient.
    cancelled : bool
        Whether the mean gradient is zero.
    """

    m: int
    alpha: float
    m_coherence: float
    cosine: Floats
    norm: Floats
    cancelled: bool


def coherence(hidden: ArrayLike, error: ArrayLike) -> Coherence:
    """Measure the coherence of last-layer gradients, g = e h' of each example.

    Parameters
    ----------
    hidden : array, shape (N, D)
    error : array, shape (N, C)

    Returns
    -------
    Coherence

    Raises
    ------
    UsageError
        Shapes that do not fit, or more than `LARGEST` weights.
    DataRefused
        Every gradient is zero.

    Notes
    -----
    No gradient is ever laid out: |g| = |e| |h|, the sum of all is the C x D matrix E'H, and the product of one with it
    is e'(E'H)h. O(N C D) time, two passes; memory 8 C D bytes and blocks of 4096 rows. The order of additions is that
    of the rows, so give them in order of id.
    """
    h, e = np.asarray(hidden), np.asarray(error)
    if h.ndim != 2 or e.ndim != 2 or len(h) != len(e):
        raise UsageError(f"hidden {h.shape}, error {e.shape}", where="coherence", expected="(N, D) and (N, C)")
    if h.shape[1] * e.shape[1] > LARGEST:
        raise UsageError(
            f"the last layer has {e.shape[1]:,} x {h.shape[1]:,} weights",
            where="coherence",
            expected=f"at most {LARGEST:,}",
            remedy="project both kinds of vectors to fewer dimensions at random, which keeps products",
        )
    total = np.zeros((e.shape[1], h.shape[1]))
    norm, product = np.empty(len(h)), np.empty(len(h))
    with one_thread():
        for start in range(0, len(h), BLOCK):
            a, b = h[start : start + BLOCK].astype(np.float64), e[start : start + BLOCK].astype(np.float64)
            total += b.T @ a
            norm[start : start + BLOCK] = np.sqrt(np.einsum("nd,nd->n", a, a) * np.einsum("nc,nc->n", b, b))
        for start in range(0, len(h), BLOCK):
            a, b = h[start : start + BLOCK].astype(np.float64), e[start : start + BLOCK].astype(np.float64)
            product[start : start + BLOCK] = np.einsum("nd,nd->n", b @ total, a)
    m = int((norm > 0).sum())
    if not m:
        raise DataRefused(
            "every gradient is zero", where="coherence", expected="an example that the model does not fit exactly"
        )
    size = math.sqrt(ordered_sum(total * total))
    squares = ordered_sum(norm * norm)
    cancelled = size <= 1e-12 * ordered_sum(norm)
    if cancelled:
        size = 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = np.where((norm > 0) & (not cancelled), np.clip(product / (norm * size), -1.0, 1.0), np.nan)
    alpha = (size / m) ** 2 / (squares / m)
    return Coherence(m, alpha, m * alpha, cosine, norm, cancelled)


def _cost(rows: int, width: int) -> Cost:
    width = max(width, 1)
    return Cost(seconds=0.2 + 4e-11 * rows * width**2, bytes=2e8 + 8.0 * width**2 + rows * (8.0 * width + 300))


@register(
    "difficulty",
    "coherence",
    config=CoherenceConfig,
    needs=("features_{hidden}.embedding", "features_{error}.embedding"),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: CoherenceConfig, seed: int = 0) -> Difficulty:
    """Negative cosine of an example's last-layer gradient with the mean gradient, and m-coherence of the whole set.

    Parameters
    ----------
    tables : mapping
        ``features_HIDDEN`` (h) and ``features_ERROR`` (e), each example_id and embedding, of one moment of a training.
    config : CoherenceConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value = -cosine, raw the cosine: an example whose gradient points against the others' is hard or mislabelled. A
        gradient of zero has value 0 (flagged). `statistics`: alpha and m_coherence.

    Raises
    ------
    UsageError, DataRefused
        As `coherence` and `embeddings.vectors_of`.
    """
    where = "difficulty coherence"
    hidden, error = (vectors_of(tables, name, where) for name in (config.hidden, config.error))
    places = [pl.DataFrame({"example_id": v.ids}).with_row_index(n) for v, n in ((hidden, "h"), (error, "e"))]
    both = places[0].join(places[1], on="example_id", how="inner").sort("example_id")
    if not len(both):
        raise DataRefused(
            f"no example has a vector both in {config.hidden} and in {config.error}",
            where=where,
            expected="the same ids in both",
        )
    found = coherence(*(_rows(v.matrix, both[n]) for v, n in ((hidden, "h"), (error, "e"))))
    raw = np.where(np.isnan(found.cosine), 0.0, found.cosine)
    flag = pl.select(
        pl.when(pl.Series(found.norm == 0)).then(pl.lit(ZERO)).when(found.cancelled).then(pl.lit(CANCELLED))
    ).to_series()
    everyone = [hidden.ids, hidden.lacking, error.ids, error.lacking]
    if "examples" in tables:
        everyone.append(tables["examples"]["example_id"].cast(pl.String))
    known = pl.DataFrame({"example_id": pl.concat([s.rename("example_id") for s in everyone]).unique()})
    gone = known.join(both, on="example_id", how="anti").sort("example_id")
    reason = f"no vector in {config.hidden} and {config.error}"
    statistics = [
        Statistic("all", "m_coherence", found.m_coherence, found.m),
        Statistic("all", "alpha", found.alpha, found.m),
    ]
    notes: dict[str, Cell] = {
        "gradients": found.m,
        "m-coherence": round(found.m_coherence, 6),
        "alpha": round(found.alpha, 9),
    }
    return build(
        method="coherence",
        title=f"coherence of {config.error} x {config.hidden}",
        ids=both["example_id"].to_list(),
        value=-raw + 0.0,
        raw=raw,
        scale="negative cosine",
        n=np.ones(len(raw), dtype=np.int64),
        flag=flag.to_list(),
        bins=config.bins,
        excluded=gone.select("example_id", pl.lit(reason).alias("reason")),
        notes=notes,
        source=SOURCE,
        statistics=statistics_table(
            statistics, {"method": "coherence", "hidden": config.hidden, "error": config.error}
        ),
    )


def _rows(matrix: NDArray[np.float32], places: pl.Series) -> NDArray[np.float32]:
    """Take rows; all of them, in order, without a copy."""
    chosen = places.to_numpy()
    return matrix if len(chosen) == len(matrix) else matrix[chosen]

"""The Vendi score: the effective number of different items, from the eigenvalues of their similarities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.reduce import BLOCK, Moments, moments, one_thread, ordered_sum
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.vectors import normalised, vector_source

SOURCE = (
    "D. Friedman, A. B. Dieng (2023). The Vendi Score: a diversity evaluation metric for machine learning; "
    "A. P. Pasarkar, A. B. Dieng (2024). Cousins of the Vendi Score"
)
Floats = NDArray[np.float64]


class VendiConfig(Config):
    """Settings of `vendi`."""

    features: str = Field("", description="name of a features table; its vectors are compared by cosine")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    by: str = Field("", description="column of examples: measure each of its values as well")
    orders: tuple[float, ...] = Field((0.5, 1.0, 2.0, float("inf")), description="orders q; low ones favour rare items")
    sample_size: int = Field(1000, ge=2, description="rows of each fixed-size sample, by which subsets are compared")
    samples: int = Field(20, ge=2, description="number of fixed-size samples")

    @field_validator("orders")
    @classmethod
    def _valid_orders(cls, found: tuple[float, ...]) -> tuple[float, ...]:
        if not found or not all(q >= 0 for q in found):
            raise ValueError("orders should be one or more numbers of 0 or more (.inf for infinity)")
        return found


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
    values = _eigenvalues((matrix + matrix.T) / (2 * len(matrix)))
    if values[0] < -1e-6:
        raise UsageError(
            f"the kernel has a negative eigenvalue, {values[0] * len(matrix):.3g}",
            expected="a positive semi-definite similarity, e.g. cosine or exp(-distance)",
        )
    return _effective_number(values, q, len(matrix))


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
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise UsageError(f"vectors of shape {rows.shape}", expected="at least one row and one column")
    unit = normalised(rows)
    if not unit.any(axis=1).all():
        raise UsageError("a vector is all zeros and has no direction", expected="vectors that are not zero")
    return vendi_score_moments(moments([unit]), q)


def vendi_score_moments(partial: Moments, q: float = 1.0) -> float:
    """Return the Vendi score of order q from the merged moments of unit vectors (`tasks.core.reduce.moments`)."""
    return _effective_number(_spectrum(partial), q, max(partial.n, len(partial.gram)))


def _cost(rows: int, width: int) -> Cost:
    width = width or 256
    return Cost(seconds=2 + rows * (2e-5 + 4e-11 * width**2), bytes=1.5e8 + 32 * width**2 + rows * 100)


@register(
    "diversity",
    "vendi",
    config=VendiConfig,
    needs=("examples.{column}", "examples.{by}", "features_{features}.embedding"),
    cost=_cost,
    source=SOURCE,
)
def vendi(tables: Mapping[str, pl.DataFrame], config: VendiConfig, seed: int) -> Diversity:
    """Effective number of different examples (Vendi score) on vectors, or on hashed words where there are none.

    Returns ``vendi_q1`` ... of all rows and of each value of `by`, and ``vendi_sample_q1`` ...: the mean over samples
    of one fixed size, with the 2.5 and 97.5 % quantiles of the samples. The score grows with the number of rows, so
    compare subsets and data sets by the samples. Streams over rows in blocks; rows without a vector, or with one of
    zeros, are left out and counted.
    """
    if config.by and config.by not in tables["examples"].columns:
        columns = tables["examples"].columns
        raise UsageError(
            f"examples has no column {config.by!r}{nearest(config.by, columns)}", expected=", ".join(columns)
        )
    rows, read = vector_source(tables, config.features, config.column)
    subsets = [("all", rows)]
    if config.by:
        parts = rows.drop_nulls(config.by).with_columns(pl.col(config.by).cast(pl.String)).sort(config.by, "example_id")
        subsets += [(f"{config.by}={p[config.by][0]}", p) for p in parts.partition_by(config.by, maintain_order=True)]
    zeros = 0
    measured: dict[str, tuple[Moments, pl.DataFrame]] = {}
    for subset, part in subsets:
        counter: list[pl.Series] = []
        found = _moments(part, read, counter)
        kept = part.filter(pl.concat(counter)) if counter else part
        zeros += len(part) - len(kept) if subset == "all" else 0
        if found.n:
            measured[subset] = (found, kept)
    if "all" not in measured:
        raise DataRefused(
            f"none of {len(tables['examples']):,} examples has a vector that is not zero",
            where="diversity vendi",
            expected="at least one row with words or numbers",
            remedy="name another column or features table, or drop this measure",
        )
    size = min(config.sample_size, *(found.n for found, _ in measured.values()))
    width = len(measured["all"][0].gram)
    statistics: list[Statistic] = []
    for subset, (found, kept) in measured.items():
        samples = [_spectrum(_moments(sample, read)) for sample in _samples(kept, size, config.samples, seed)]
        spectrum = _spectrum(found)
        for q in config.orders:
            name = f"q{q:g}"
            statistics.append(Statistic(subset, f"vendi_{name}", _effective_number(spectrum, q, found.n), found.n))
            drawn = np.array([_effective_number(values, q, size) for values in samples])
            low, high = np.quantile(drawn, [0.025, 0.975])
            mean = ordered_sum(drawn) / len(drawn)
            statistics.append(Statistic(subset, f"vendi_sample_{name}", mean, size, float(low), float(high)))
    parameters = {
        **config.model_dump(exclude={"orders"}),
        "orders": [f"{q:g}" for q in config.orders],
        "width": width,
        "sample_size": size,
        "seed": seed,
        "vectors": "features" if config.features else "hashed words" if _is_text(rows) else "column",
    }
    missing = len(tables["examples"]) - len(rows)
    warnings = [f"{missing:,} examples have no vector and were left out"] if missing else []
    warnings += [f"{zeros:,} examples have a vector of zeros (no words?) and were left out"] if zeros else []
    if size < config.sample_size:
        warnings.append(f"fixed-size samples hold {size:,} rows, as many as the smallest subset")
    label = config.features or ("" if config.column == "input" else config.column)
    return Diversity(
        method=f"vendi({label})" if label else "vendi",
        statistics=statistics_table(statistics, parameters),
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main=f"vendi_q{config.orders[0] if 1.0 not in config.orders else 1.0:g}",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
    )


def _moments(
    rows: pl.DataFrame, read: Callable[[pl.DataFrame], Floats], kept: list[pl.Series] | None = None
) -> Moments:
    """Accumulate the moments of the unit vectors of `rows`; rows of zeros are left out, and noted in `kept`."""

    def units() -> Iterator[Floats]:
        for part in rows.iter_slices(BLOCK):
            unit = normalised(read(part))
            held = unit.any(axis=1)
            if kept is not None:
                kept.append(pl.Series(held))
            yield unit[held]

    return moments(units()) if len(rows) else Moments(0, np.zeros(0), np.zeros((0, 0)))


def _samples(rows: pl.DataFrame, size: int, samples: int, seed: int) -> Iterable[pl.DataFrame]:
    """Draw `samples` sets of `size` rows: windows of one random order, disjoint where there are rows enough."""
    bits = pl.Series("bits", random_bits(rows["example_id"], seed, "vendi sample"))
    order = pl.DataFrame({"bits": bits, "example_id": rows["example_id"]}).with_row_index("row")
    positions = order.sort("bits", "example_id")["row"].to_numpy()
    for number in range(samples):
        window = (number * len(positions) // samples + np.arange(size)) % len(positions)
        yield rows[np.sort(positions[window])]


def _spectrum(partial: Moments) -> Floats:
    return _eigenvalues(partial.gram / partial.n)


def _eigenvalues(matrix: Floats) -> Floats:
    with one_thread():
        return np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64)


def _effective_number(values: Floats, q: float, n: int) -> float:
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


def _is_text(rows: pl.DataFrame) -> Any:
    return rows.schema["vector"] == pl.String

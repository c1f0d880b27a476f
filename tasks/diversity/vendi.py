"""The Vendi score: the effective number of different items, from the eigenvalues of their similarities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.embeddings import finite
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.reduce import BLOCK, Moments, moments, ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.row_numbers import bits_of, by_code, codes_of, numbered, smallest, windows
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.core.vector_rows import VectorRows
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.spectra import effective_number, fourier_features, median_distance, spectrum
from gradatim.tasks.diversity.vectors import (
    HASHED_WIDTH,
    HASHING,
    HashedTexts,
    OnVectors,
    directed,
    subset_names,
    text_column,
    vector_source,
)

SOURCE = (
    "D. Friedman, A. B. Dieng (2023). The Vendi Score: a diversity evaluation metric for machine learning; "
    "A. P. Pasarkar, A. B. Dieng (2024). Cousins of the Vendi Score"
)
FOURIER = "A. Rahimi, B. Recht (2007). Random features for large-scale kernel machines"
Floats = NDArray[np.float64]
Integers = NDArray[Any]


class VendiConfig(OnVectors):
    """Settings of `vendi`."""

    features: str = Field("", description="name of a features table; its vectors are compared by cosine")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    by: str = Field("", description="column of examples: measure each of its values as well")
    orders: tuple[float, ...] = Field((0.5, 1.0, 2.0, float("inf")), description="orders q; low ones favour rare items")
    sample_size: int = Field(1000, ge=2, description="rows of each fixed-size sample, by which subsets are compared")
    samples: int = Field(20, ge=2, description="number of fixed-size samples")
    kernel: Literal["cosine", "rbf"] = Field("cosine", description="similarity; rbf by random Fourier features")
    bandwidth: float | None = Field(
        None, gt=0, description="of the rbf kernel; by default the median distance of a hashed sample"
    )
    frequencies: int = Field(512, ge=1, le=4096, description="of the rbf kernel: its vectors are twice as wide")

    @field_validator("orders")
    @classmethod
    def _valid_orders(cls, found: tuple[float, ...]) -> tuple[float, ...]:
        if not found or not all(q >= 0 for q in found):
            raise ValueError("orders should be one or more numbers of 0 or more (.inf for infinity)")
        return found


def _cost(rows: int, width: int) -> Cost:
    texts, width = (0.0, width) if width else (HASHING * rows, HASHED_WIDTH)
    return Cost(seconds=texts + 2 + rows * 4e-11 * width**2, bytes=3e8 + 32 * width**2 + rows * 100)


@register(
    "diversity",
    "vendi",
    config=VendiConfig,
    needs=("examples.{column}", "examples.{by}", "features_{features}.embedding"),
    revision=2,
    cost=_cost,
    source=SOURCE,
)
def vendi(tables: Mapping[str, pl.DataFrame], config: VendiConfig, seed: int) -> Diversity:
    """Effective number of different examples (Vendi score) on vectors, or on hashed words where there are none.

    Returns ``vendi_q1`` ... of all rows and of each value of `by`, and ``vendi_sample_q1`` ...: the mean over samples
    of one fixed size, with the 2.5 and 97.5 % quantiles of the samples. The score grows with the number of rows, so
    compare subsets and data sets by the samples. Streams over rows in blocks; rows without a vector, or (under cosine)
    with one of zeros, are left out and counted.
    """
    if config.by and config.by not in tables["examples"].columns:
        columns = tables["examples"].columns
        raise UsageError(
            f"examples has no column {config.by!r}{nearest(config.by, columns)}", expected=", ".join(columns)
        )
    rows, vectors = vector_source(tables, config.features, config.column)
    ids = rows["example_id"]
    prepare, bandwidth = _kernel(ids, vectors, config, seed)
    subsets = [("all", numbered(len(rows)))]
    if config.by:
        by = text_column(rows, config.by, "diversity vendi")
        names = subset_names(by, "diversity vendi")
        order, starts = by_code(codes_of(by, names), len(names))
        subsets += [(f"{config.by}={name}", order[starts[i] : starts[i + 1]]) for i, name in enumerate(names)]
    zeros = 0
    measured: dict[str, tuple[Moments, Integers]] = {}
    for subset, part in subsets:
        found = _moments(ids, vectors.view(part), part, prepare)
        kept = part if found.n == len(part) else part[_directions(vectors.view(part))]
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
    statistics: list[Statistic] = []
    for subset, (found, kept) in measured.items():
        drawings = _samples(ids, kept, size, config.samples, seed)
        samples = [spectrum(_moments(ids, vectors.view(some), some, prepare)) for some in drawings]
        values = spectrum(found)
        for q in config.orders:
            name = f"q{q:g}"
            statistics.append(Statistic(subset, f"vendi_{name}", effective_number(values, q, found.n), found.n))
            drawn = np.array([effective_number(sample, q, size) for sample in samples])
            low, high = np.quantile(drawn, [0.025, 0.975])
            mean = ordered_sum(drawn) / len(drawn)
            statistics.append(Statistic(subset, f"vendi_sample_{name}", mean, size, float(low), float(high)))
    text = isinstance(vectors.source, HashedTexts)
    parameters = {
        **config.model_dump(exclude={"orders"}),
        "orders": [f"{q:g}" for q in config.orders],
        "width": len(measured["all"][0].gram),
        "bandwidth": bandwidth,
        "sample_size": size,
        "seed": seed,
        "vectors": "features" if config.features else "hashed words" if text else "column",
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
        source=SOURCE if config.kernel == "cosine" else f"{SOURCE}; {FOURIER}",
        warnings=tuple(warnings),
    )


def _kernel(
    ids: pl.Series, vectors: VectorRows, config: VendiConfig, seed: int
) -> tuple[Callable[[NDArray[Any]], Floats], float | None]:
    """Return what turns a block of vectors into rows of length 1, and the bandwidth."""
    if config.kernel == "cosine" or not len(ids):
        return directed, None
    some = vectors[smallest(bits_of(ids, seed, "vendi/bandwidth"), 1000)]
    bandwidth = config.bandwidth or median_distance(some)
    return fourier_features(some.shape[1], bandwidth, config.frequencies, seed), bandwidth


def _moments(ids: pl.Series, vectors: VectorRows, rows: Integers, prepare: Callable[[NDArray[Any]], Floats]) -> Moments:
    """Accumulate the moments of the prepared vectors of `rows`; an error names the id at fault."""
    if not len(rows):
        return Moments(0, np.zeros(0), np.zeros((0, 0)))

    def checked(block: NDArray[Any]) -> Floats:
        if not np.isfinite(block.sum()) and not np.isfinite(block).all():
            raise DataRefused("a vector holds NaN or infinity")
        return prepare(block)

    try:
        return moments((part for _, part in vectors.slices(BLOCK)), prepare=checked)
    except DataRefused:
        finite(vectors, ids.gather(rows), "diversity vendi")
        raise


def _directions(vectors: VectorRows) -> NDArray[np.bool_]:
    return np.concatenate([part.any(axis=1) for _, part in vectors.slices(BLOCK)])


def _samples(ids: pl.Series, rows: Integers, size: int, samples: int, seed: int) -> Iterable[Integers]:
    """Draw `samples` sets of `size` rows: windows of one random order, disjoint where there are rows enough."""
    bits, n = bits_of(ids, seed, "vendi sample", rows), len(rows)  # ties by id: rows stand in that order
    starts = [number * n // samples for number in range(samples)]
    # a window that passes the end goes on from the start
    pieces = [
        [(start, min(start + size, n)), *([(0, start + size - n)] if start + size > n else [])] for start in starts
    ]
    found = windows(bits, [span for spans in pieces for span in spans])
    for spans in pieces:
        yield np.sort(rows[np.concatenate([next(found) for _ in spans])])

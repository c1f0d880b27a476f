"""Inductive-bias complexity of a classification task, and how near each example lies to another class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.task_bias.bits import InductiveBias, classification_bits
from gradatim.tasks.difficulty.task_bias.class_resolution import (
    PAIRS,
    Tail,
    extreme_value_resolution,
    nearest_other_class,
)
from gradatim.tasks.difficulty.task_bias.classified import Classified, classified
from gradatim.tasks.difficulty.task_bias.intrinsic_dimension import REFERENCE, Dimension, intrinsic_dimension, sampled

SOURCE = (
    "A. Boopathy, K. Liu, J. Hwang, S. Ge, A. Mohammedsaleh, I. Fiete (2023). Model-agnostic measure of generalization "
    "difficulty. ICML"
)
WHERE = "difficulty inductive_bias"
CLASSES_SHOWN = 1000


class InductiveBiasConfig(Config):
    """Settings of `inductive_bias`."""

    features: str | None = Field(
        None, min_length=1, description="name of the vectors, as in the section features; in a notebook those given"
    )
    label: str = Field(min_length=1, description="column of the examples with the class")
    epsilon: float = Field(0.01, gt=0, le=1, description="error that is aimed at")
    n: int | None = Field(None, ge=1, description="training points; by default the number of examples")
    dimension: float | None = Field(
        None, ge=1, le=1e6, description="intrinsic dimension; by default estimated and rounded to a whole number"
    )
    radius: float | None = Field(None, gt=0, allow_inf_nan=False, description="largest norm; by default that found")
    resolution: float | Literal["auto", "minimum", "extreme_value"] = Field(
        "auto",
        description="distance between classes: a number, the smallest found (minimum), what extreme-value theory "
        "expects, or auto: minimum where all pairs were looked at, else extreme_value",
    )
    centre: bool = Field(False, description="take norms from the mean vector instead of from 0")
    neighbours: int = Field(5, ge=2, le=1000, description="neighbours behind the intrinsic dimension")
    sample: int = Field(10_000, ge=100, le=1_000_000, description="examples behind the intrinsic dimension")
    pairs: int = Field(4_000_000, ge=1000, le=200_000_000, description="pairs behind extreme_value")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as there are different values, at most 10")


def _cost(rows: int, width: int) -> Cost:
    distances = min(float(rows) ** 2, PAIRS) + min(float(rows), 1e4) * min(float(rows), REFERENCE)
    return Cost(2 + distances * (8e-9 + 1.5e-11 * width) + 5e-6 * rows, 4e8 + 20.0 * rows * max(width, 1))


@register(
    "difficulty",
    "inductive_bias",
    config=InductiveBiasConfig,
    needs=("features_{features}.embedding", "examples.{label}"),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: InductiveBiasConfig, seed: int = 0) -> Difficulty:
    """Bits of inductive bias that a classification task asks for; each example by its distance to another class.

    Parameters
    ----------
    tables : mapping
        ``features_NAME`` (example_id, embedding) and ``examples`` (example_id and the column `config.label`).
    config : InductiveBiasConfig
    seed : int
        Chooses, with each id, which examples are sampled where there are too many.

    Returns
    -------
    Difficulty
        statistics hold the task's log10_bits, intrinsic_dimension, radius and class_resolution, log10_bits with the
        dimension one lower and one higher, and each class's distance to the others. value of an example is minus raw,
        its distance to the nearest example of another class; n counts the examples that were looked at for it.

    Raises
    ------
    DataRefused, UsageError
        As `classified.classified`, `intrinsic_dimension` and `classification_bits`; where all vectors are 0, or all
        examples coincide with one of another class.

    Notes
    -----
    At most `PAIRS` distances: beyond some 44,000 examples each is compared with a sample of the others.
    """
    data = classified(tables, config.features, config.label, WHERE)
    order = sampled(data.ids, len(data.ids), seed)
    reference = np.sort(order[: int(np.clip(PAIRS // len(order), 2000, len(order)))])
    margin = nearest_other_class(data.matrix, data.classes, data.ids, reference)
    known = np.isfinite(margin)
    if not (margin[known] > 0).any():
        raise DataRefused(
            "every example has the same vector as one of another class",
            where=WHERE,
            expected="vectors that tell classes apart",
        )
    dimension = (
        None
        if config.dimension is not None
        else intrinsic_dimension(data.matrix, data.ids, k=config.neighbours, sample=config.sample, seed=seed)
    )
    all_pairs = len(reference) == len(order)
    tail = _tail(data, order, all_pairs, config)
    minimum = float(margin[known & (margin > 0)].min())
    resolution, how = _resolution(minimum, tail, all_pairs, config)
    radius = config.radius if config.radius is not None else _radius(data.matrix, config.centre)
    m = config.dimension if config.dimension is not None else max(1.0, float(np.rint(dimension.value)))  # type: ignore[union-attr]
    n = config.n or len(data.ids)
    bits = {
        shift: classification_bits(n, radius, m + shift, len(data.names), resolution, config.epsilon)
        for shift in ((-1, 0, 1) if m >= 2 else (0, 1))
    }
    of_class = np.bincount(data.classes[reference], minlength=len(data.names))
    same = margin == 0
    excluded = data.excluded
    if not known.all():  # the sample of others held one class only
        kept = data.take(np.flatnonzero(known), "no example of another class in the sample")
        data, margin, same, excluded = kept, margin[known], same[known], kept.excluded
    return build(
        method=method_name("inductive_bias", config.model_dump(exclude={"bins"}), _defaults()),
        title=f"inductive_bias of {config.label}: "
        + ("no bits" if np.isnan(bits[0].log10_bits) else f"10^{bits[0].log10_bits:.1f} bits"),
        ids=data.ids.to_list(),
        value=-margin + 0.0,
        raw=margin,
        scale="distance, negative",
        n=(len(reference) - of_class)[data.classes].astype(np.int64),
        flag=["has the same vector as an example of another class" if s else None for s in same],
        bins=config.bins,
        warnings=_warnings(bits, int(same.sum())),
        excluded=excluded,
        notes=_notes(data, bits, dimension, m, radius, resolution, how, n, len(reference), config),
        statistics=_statistics(data, margin, bits, dimension, m, radius, resolution, minimum, tail, config),
        source=SOURCE,
    )


def _defaults() -> dict[str, object]:
    return {name: field.default for name, field in InductiveBiasConfig.model_fields.items()}


def _radius(matrix: NDArray[np.float32], centre: bool) -> float:
    middle = matrix.mean(axis=0, dtype=np.float64) if centre else np.zeros(matrix.shape[1])
    largest = max(
        float(np.linalg.norm(matrix[start : start + 8192] - middle, axis=1).max())
        for start in range(0, len(matrix), 8192)
    )
    if largest == 0:
        raise DataRefused("all vectors are 0", where=WHERE, expected="vectors that differ")
    return largest


def _tail(data: Classified, order: NDArray[np.int64], all_pairs: bool, config: InductiveBiasConfig) -> Tail | None:
    if config.resolution != "extreme_value" and (config.resolution != "auto" or all_pairs):
        return None
    rows = order[: int((2 * config.pairs) ** 0.5) + 1]
    return extreme_value_resolution(data.matrix[rows], data.classes[rows], data.sizes)


def _resolution(minimum: float, tail: Tail | None, all_pairs: bool, config: InductiveBiasConfig) -> tuple[float, str]:
    if not isinstance(config.resolution, str):
        return config.resolution, "given"
    if tail is None:
        return minimum, "smallest of all pairs" if all_pairs else "smallest that was found"
    if np.isfinite(tail.value) and tail.value < minimum:
        return tail.value, f"extreme-value theory, index {tail.index:.3f}"
    return minimum, "smallest that was found, below what extreme-value theory expects"


def _warnings(bits: Mapping[int, InductiveBias], same: int) -> list[str]:
    found = []
    if np.isnan(bits[0].log10_bits):
        found.append("the training points leave nothing to be brought along: no bits at this resolution and error")
    else:
        low, high = bits.get(-1, bits[0]).log10_bits, bits[1].log10_bits
        found.append(
            f"log10 of the bits is {low:.1f} to {high:.1f} with the dimension one lower or higher: an order of tasks "
            "in the same vectors, no more"
        )
    if same:
        found.append(
            f"{same:,} examples have the same vector as one of another class: no function of it tells them apart"
        )
    return found


def _notes(
    data: Classified,
    bits: Mapping[int, InductiveBias],
    dimension: Dimension | None,
    m: float,
    radius: float,
    resolution: float,
    how: str,
    n: int,
    reference: int,
    config: InductiveBiasConfig,
) -> dict[str, Cell]:
    notes: dict[str, Cell] = {
        "log10 of the bits": None if np.isnan(bits[0].log10_bits) else round(bits[0].log10_bits, 6),
        "features": f"{data.features}, width {data.matrix.shape[1]}",
        "classes": len(data.names),
        "training points": n,
        "error aimed at": config.epsilon,
        "intrinsic dimension": round(m, 6),
        "radius": round(radius, 6),
        "class resolution": round(resolution, 9),
        "class resolution is": how,
    }
    if dimension is not None:
        notes["intrinsic dimension is"] = (
            f"{dimension.value:.3f}, from {config.neighbours} neighbours of {dimension.queries:,} examples among "
            f"{dimension.reference:,}"
        )
        if dimension.equal:
            notes["equal vectors, counted once"] = dimension.equal
    if reference < len(data.ids):
        notes["examples that each is compared with, a sample"] = reference
    return notes


def _statistics(
    data: Classified,
    margin: NDArray[np.float64],
    bits: Mapping[int, InductiveBias],
    dimension: Dimension | None,
    m: float,
    radius: float,
    resolution: float,
    minimum: float,
    tail: Tail | None,
    config: InductiveBiasConfig,
) -> pl.DataFrame:
    rows = len(data.ids)
    numbers = {
        "log10_bits": bits[0].log10_bits,
        "bits_per_dimension": bits[0].bits_per_dimension,
        "intrinsic_dimension": m,
        "radius": radius,
        "class_resolution": resolution,
        "class_resolution_minimum": minimum,
        "log10_bits_dimension_plus_1": bits[1].log10_bits,
    }
    if -1 in bits:
        numbers["log10_bits_dimension_minus_1"] = bits[-1].log10_bits
    if dimension is not None:
        numbers["intrinsic_dimension_estimate"] = dimension.value
    if tail is not None:
        numbers["class_resolution_extreme_value"] = tail.value
        numbers["extreme_value_index"] = tail.index
    found = [Statistic("all", name, value, rows) for name, value in numbers.items()]
    nearest = np.full(len(data.names), np.inf)
    np.minimum.at(nearest, data.classes, margin)
    for name, value, size in list(zip(data.names, nearest, data.sizes, strict=True))[:CLASSES_SHOWN]:
        found.append(Statistic(f"{config.label}={name}", "nearest_other_class", float(value), int(size)))
    return statistics_table(found, config.model_dump(mode="json", exclude={"bins"}))

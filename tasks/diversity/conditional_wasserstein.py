"""Conditional Wasserstein distance: how far the inputs of equal labels lie apart in two environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.distances import frechet, gaussian_of, sliced_wasserstein
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.environment_vectors import Placed, placed_vectors
from gradatim.tasks.diversity.environments import EnvironmentConfig, Pair, comparison_table, largest, unmeasured
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import pairs_picture
from gradatim.tasks.diversity.vectors import HASHED_WIDTH, HASHING, OnVectors

SOURCE = (
    "Z. Tang et al. (2024). FedImpro: measuring and improving client update in federated learning; "
    "J. Rabin et al. (2011). Wasserstein barycenter and its application to texture mixing"
)


class ConditionalWassersteinConfig(EnvironmentConfig, OnVectors):
    """Settings of `conditional_wasserstein`."""

    label: str = Field("output", description="column of examples with the labels")
    features: str = Field("", description="name of a features table; the only one there is, if not named")
    column: str = Field("input", description="without features: a column of texts, whose words are hashed")
    projections: int = Field(128, ge=1, description="random directions of the sliced form")
    most_rows: int = Field(10_000, ge=2, description="rows of a label and side that are projected, chosen by hash")


def _cost(rows: int, width: int) -> Cost:
    texts, width = (0.0, width) if width else (HASHING * rows, HASHED_WIDTH)
    return Cost(
        seconds=texts + 0.3 + rows * width * 2e-8 + min(rows, 200_000) * 128 * 1.5e-7,
        bytes=3e8 + 1e6 * width + rows * 200,
    )


@register(
    "diversity",
    "conditional_wasserstein",
    config=ConditionalWassersteinConfig,
    needs=("examples.{environment}", "examples.{label}", "features_{features}.embedding", "examples.{column}?"),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def conditional_wasserstein(
    tables: Mapping[str, pl.DataFrame], config: ConditionalWassersteinConfig, seed: int
) -> Diversity:
    """Wasserstein distance of the inputs of equal labels between environments, Gaussian and sliced.

    For each comparison ``conditional_w2_gaussian`` (2-Wasserstein distance of Gaussians, from two rows a side on) and
    ``conditional_w1_sliced`` (mean over random directions): half the mean under the one side's labels and half under
    the other's; ``label_unshared``: the mass of labels that the other side lacks, which are left out. The same for each
    label.
    """
    placed = placed_vectors(
        tables, config, "diversity conditional_wasserstein", features=config.features, column=config.column,
        label=config.label, together="", seed=seed,
    )  # fmt: skip
    centre = placed.matrix.mean()
    statistics: list[Statistic] = []
    for pair in placed.environments.pairs:
        statistics += _compare(placed, pair, config, centre, seed)
    names = ["conditional_w2_gaussian", "conditional_w1_sliced", "label_unshared"]
    parameters = {**config.model_dump(mode="json"), "vectors": placed.kind, "seed": seed}
    table = statistics_table([*largest(statistics, names, len(placed.ids)), *statistics], parameters)
    warnings = [*placed.warnings, *unmeasured(statistics)]
    lost = sum(row.metric == "label_unshared" and (row.value or 0) > 0 for row in statistics)
    if lost:
        warnings.append(f"{lost} comparisons have labels on one side only (label_unshared), which were left out")
    return Diversity(
        method="conditional_wasserstein",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="conditional_w2_gaussian",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "distances": Picture(
                "Wasserstein distance of the inputs of equal labels between environments (Gaussian form)",
                lambda: pairs_picture(table, "conditional_w2_gaussian", "Conditional Wasserstein distance"),
            )
        },
        tables=(comparison_table("Conditional Wasserstein distance", table, names),),
    )


def _compare(
    placed: Placed, pair: Pair, config: ConditionalWassersteinConfig, centre: Any, seed: int
) -> list[Statistic]:
    sides = [placed.rows(side) for side in (pair.left, pair.right)]
    counts = np.array(
        [np.bincount(placed.label[rows][placed.label[rows] >= 0], minlength=len(placed.labels)) for rows in sides]
    )
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shared = (counts > 0).all(axis=0)
    statistics = []
    found: dict[str, list[tuple[float, float]]] = {"conditional_w2_gaussian": [], "conditional_w1_sliced": []}
    for label in np.flatnonzero(shared):
        here = [rows[placed.label[rows] == label] for rows in sides]
        sample = [placed.matrix[placed.take(rows, config.most_rows)] for rows in here]
        values = {"conditional_w1_sliced": sliced_wasserstein(*sample, projections=config.projections, seed=seed)}
        if min(map(len, here)) > 1:
            spread = [gaussian_of(placed.matrix.view(rows), centre) for rows in here]
            values["conditional_w2_gaussian"] = float(np.sqrt(frechet(*spread)))
        more = f" & {config.label}={placed.labels[label]}"
        for name, value in values.items():
            found[name].append((float(share[:, label].mean()), value))
            subset, reference = pair.subset + more, pair.reference + more
            statistics.append(Statistic(subset, name, value, sum(map(len, here)), reference=reference))
    n = int(counts.sum())
    for name, rows in found.items():
        mass = ordered_sum([weight for weight, _ in rows])
        mean = ordered_sum([weight * value for weight, value in rows]) / mass if rows else None
        statistics.append(Statistic(pair.subset, name, mean, n, reference=pair.reference))
    lost = ordered_sum(share[:, ~shared].sum(axis=0)) / 2
    statistics.append(Statistic(pair.subset, "label_unshared", lost, n, reference=pair.reference))
    return statistics

"""How the vectors of two sets differ: classifier two-sample test, mean discrepancies, Fréchet distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core import distances, two_sample
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.intervals import holm
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.environment_vectors import Integers, Placed, placed_vectors
from gradatim.tasks.diversity.environments import EnvironmentConfig, Pair, comparison_table, largest
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import pairs_picture
from gradatim.tasks.diversity.vectors import HASHED_WIDTH, HASHING, OnVectors

SOURCE = (
    "D. Lopez-Paz, M. Oquab (2017). Revisiting classifier two-sample tests; A. Gretton et al. (2012). A kernel "
    "two-sample test; D. C. Dowson, B. V. Landau (1982). The Fréchet distance between multivariate normal distributions"
)
MEASURES = ("c2st_auc", "proxy_a", "mmd_linear", "mmd_rbf", "frechet")
_MOST_LABELS = 100


class EmbeddingShiftConfig(EnvironmentConfig, OnVectors):
    """Settings of `embedding_shift`."""

    features: str = Field("", description="name of a features table; the only one there is, if not named")
    column: str = Field("input", description="without features: a column of texts, whose words are hashed")
    label: str = Field("", description="column of labels: compare the rows of each label as well")
    keep_together: str = Field("", description="column whose rows of one value stay in one fold of the classifier")
    most_rows: int = Field(50_000, ge=10, description="rows a side that the classifier sees, chosen by hash")
    mmd_rows: int = Field(10_000, ge=10, description="rows a side of the mean discrepancies and their permutations")
    permutations: int = Field(199, ge=19, description="permutations behind each p-value")
    frequencies: int = Field(256, ge=8, description="random frequencies of the Gaussian kernel")


def _cost(rows: int, width: int) -> Cost:
    texts, width = (0.0, width) if width else (HASHING * rows, HASHED_WIDTH)
    return Cost(
        seconds=texts + 2 + min(rows, 100_000) * width * 2.2e-7 + rows * width * 2e-8,
        bytes=4e8 + min(rows, 100_000) * width * 16 + rows * 200,
    )


@register(
    "diversity",
    "embedding_shift",
    config=EmbeddingShiftConfig,
    needs=(
        "examples.{environment}",
        "features_{features}.embedding",
        "examples.{label}",
        "examples.{keep_together}",
        "examples.{column}?",
    ),
    cost=_cost,
    source=SOURCE,
)
def embedding_shift(tables: Mapping[str, pl.DataFrame], config: EmbeddingShiftConfig, seed: int) -> Diversity:
    """Shift of embeddings between environments: can a classifier tell them apart, and how far are they.

    For each comparison ``c2st_auc`` (out-of-fold AUC with interval, .5 is no shift), ``proxy_a`` (2(1 - 2 error)),
    ``mmd_linear`` and ``mmd_rbf`` (squared, unbiased) with permutation p-values ``mmd_linear_p`` and ``mmd_rbf_p``
    (``_p_holm`` for several comparisons), ``frechet`` (squared 2-Wasserstein distance of Gaussians, all rows); with
    `label` the same within each label. A side with too few rows has no value there.
    """
    placed = placed_vectors(
        tables, config, "diversity embedding_shift", features=config.features, column=config.column,
        label=config.label, together=config.keep_together, seed=seed,
    )  # fmt: skip
    centre = placed.matrix.mean()
    statistics: list[Statistic] = []
    warnings = list(placed.warnings)
    labels = list(range(len(placed.labels)))
    if len(labels) > _MOST_LABELS:
        warnings.append(f"the first {_MOST_LABELS} of {len(labels)} labels were compared")
    for pair in placed.environments.pairs:
        statistics += _compare(placed, pair, None, "", config, centre, seed)
        for label in labels[:_MOST_LABELS]:
            more = f" & {config.label}={placed.labels[label]}"
            statistics += _compare(placed, pair, label, more, config, centre, seed)
    statistics += _adjusted(statistics)
    small = {(row.subset, row.reference) for row in statistics if row.metric == "c2st_auc" and row.value is None}
    if small:
        warnings.append(f"{len(small)} comparisons have too few rows on a side, e.g. {' / '.join(min(small))}")
    overall = largest(statistics, MEASURES, len(placed.ids))
    parameters = {**config.model_dump(mode="json"), "vectors": placed.kind, "width": placed.matrix.shape[1]}
    parameters["seed"] = seed
    table = statistics_table([*overall, *statistics], parameters)
    return Diversity(
        method="embedding_shift",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="c2st_auc",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "told_apart": Picture(
                "How well each two environments are told apart: out-of-fold AUC, .5 where they cannot be",
                lambda: pairs_picture(table, "c2st_auc", "AUC"),
            )
        },
        tables=(comparison_table("Shift of embeddings", table, (*MEASURES, "mmd_linear_p", "mmd_rbf_p")),),
    )


def _compare(
    placed: Placed, pair: Pair, label: int | None, more: str, config: EmbeddingShiftConfig, centre: Any, seed: int
) -> list[Statistic]:
    """Measure one comparison, in one label where one is named; nothing where a side has no row."""
    sides = [placed.rows(side, label) for side in (pair.left, pair.right)]
    n = sum(map(len, sides))
    if not all(map(len, sides)):
        return []
    found: list[tuple[str, float | None, int, float | None, float | None]] = []
    told = told_apart(placed, sides, config.most_rows)
    used = sum(min(len(side), config.most_rows) for side in sides)
    for name in ("c2st_auc", "proxy_a"):
        part = None if told is None else told.auc if name == "c2st_auc" else told.proxy_a
        found.append((name, part.value, used, part.low, part.high) if part else (name, None, used, None, None))
    rows, side = both(placed, sides, config.mmd_rows)
    gap = distances.mean_discrepancy(
        placed.matrix[rows], side, placed.ids[rows], seed=seed,
        permutations=config.permutations, frequencies=config.frequencies,
    )  # fmt: skip
    for name, attribute in (
        ("mmd_linear", "linear"), ("mmd_linear_p", "linear_p"), ("mmd_rbf", "rbf"), ("mmd_rbf_p", "rbf_p"),
    ):  # fmt: skip
        found.append((name, None if gap is None else getattr(gap, attribute), len(rows), None, None))
    spread = (
        [distances.gaussian_of(placed.matrix.view(side), centre) for side in sides] if min(map(len, sides)) > 1 else []
    )
    found.append(("frechet", distances.frechet(*spread) if spread else None, n, None, None))
    return [
        Statistic(pair.subset + more, name, value, count, low, high, reference=pair.reference + more)
        for name, value, count, low, high in found
    ]


def both(placed: Placed, sides: list[Integers], most: int) -> tuple[Integers, Integers]:
    """Return the rows of two sides that are compared, in the order of ids, and 1 for those of the first."""
    chosen = [placed.take(side, most) for side in sides]
    rows = np.concatenate(chosen)
    side = np.repeat(np.array([1, 0], dtype=np.int64), [len(part) for part in chosen])
    order = np.argsort(rows, kind="stable")
    return rows[order], side[order]


def told_apart(placed: Placed, sides: list[Integers], most: int) -> two_sample.Told | None:
    """Tell two sides apart by their vectors, out of fold; None where one is too small."""
    rows, side = both(placed, sides, most)
    return two_sample.tell_apart(placed.matrix[rows], side, placed.fold[rows])


def _adjusted(statistics: list[Statistic]) -> list[Statistic]:
    """Return p-values adjusted for several comparisons (Holm)."""
    found = []
    for metric in ("mmd_linear_p", "mmd_rbf_p"):
        rows = [row for row in statistics if row.metric == metric and row.value is not None]
        if len(rows) > 1:
            adjusted = holm([row.value or 0.0 for row in rows])
            found += [
                row._replace(metric=f"{metric}_holm", value=float(value))
                for row, value in zip(rows, adjusted, strict=True)
            ]
    return found

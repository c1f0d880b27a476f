"""Covariate and concept shift in the sense of NICO++, by named approximations that need no training of deep models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.intervals import Interval, wilson
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.embedding_shift import told_apart
from gradatim.tasks.diversity.environment_vectors import Integers, Placed, placed_vectors
from gradatim.tasks.diversity.environments import EnvironmentConfig, Pair, comparison_table, largest, unmeasured
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import pairs_picture
from gradatim.tasks.diversity.vectors import HASHED_WIDTH, HASHING

SOURCE = (
    "X. Zhang et al. (2023). NICO++: towards better benchmarking for domain generalization; "
    "S. Ben-David et al. (2007). Analysis of representations for domain adaptation"
)
MEASURES = ("covariate_proxy_a", "concept_disagreement_min", "concept_disagreement_max", "concept_noise")


class NicoConfig(EnvironmentConfig):
    """Settings of `nico`."""

    label: str = Field("output", description="column of examples with the labels")
    features: str = Field("", description="name of a features table; the only one there is, if not named")
    column: str = Field("input", description="without features: a column of texts, whose words are hashed")
    most_rows: int = Field(5_000, ge=10, description="rows a side, chosen by hash")


def _cost(rows: int, width: int) -> Cost:
    texts, width = (0.0, width) if width else (HASHING * rows, HASHED_WIDTH)
    return Cost(seconds=texts + 0.3 + min(rows, 10_000) * width * 4e-7 + rows * 2e-6, bytes=3e8 + rows * width * 8)


@register(
    "diversity",
    "nico",
    config=NicoConfig,
    needs=("examples.{environment}", "examples.{label}", "features_{features}.embedding", "examples.{column}?"),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def nico(tables: Mapping[str, pl.DataFrame], config: NicoConfig, seed: int) -> Diversity:
    """Covariate and concept shift between environments, approximated: proxy A-distance, disagreement of oracles.

    For each comparison ``covariate_proxy_a``; ``concept_disagreement_min`` and ``_max``: how often a logistic
    regression fitted on the one environment and one fitted on the other give different labels, expected over the one
    and the other's rows, smaller and larger (each row is judged out of fold); and ``concept_noise``, the same of two
    random halves of both, which a disagreement without shift would be. Only rows whose label both sides have count.
    """
    placed = placed_vectors(
        tables, config, "diversity nico", features=config.features, column=config.column,
        label=config.label, together="", seed=seed,
    )  # fmt: skip
    statistics: list[Statistic] = []
    half = (uniform(placed.ids, seed, "nico half") < 0.5).astype(np.int64)
    for pair in placed.environments.pairs:
        statistics += _compare(placed, pair, half, config)
    parameters = {**config.model_dump(mode="json"), "vectors": placed.kind, "seed": seed}
    table = statistics_table([*largest(statistics, MEASURES, len(placed.ids)), *statistics], parameters)
    return Diversity(
        method="nico",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="concept_disagreement_max",
        parameters=parameters,
        source=SOURCE,
        warnings=(*placed.warnings, *unmeasured(statistics)),
        pictures={
            "concept": Picture(
                "How often the classifiers of two environments disagree on the rows of one of them",
                lambda: pairs_picture(table, "concept_disagreement_max", "Concept shift (oracles disagree)"),
            )
        },
        tables=(comparison_table("Covariate and concept shift (approximations)", table, MEASURES),),
    )


def oracle_disagreement(
    vectors: NDArray[np.floating], label: Integers, side: Integers, fold: Integers
) -> tuple[Interval, Interval] | None:
    """Return how often two sides' classifiers disagree, over the rows of side 0 and of side 1.

    Parameters
    ----------
    vectors : numpy.ndarray, shape (n, d)
        Standardised.
    label, side, fold : numpy.ndarray, shape (n,), int64
        A row is judged by its own side's classifier as fitted on the other folds.

    Returns
    -------
    (Interval, Interval) or None
        None where a fold's complement has no row of a side. A side of one label alone always answers that label.
    """
    answer = np.zeros((2, len(label)), dtype=np.int64)
    for value in (0, 1):
        mine = side == value
        for one in np.unique(fold):
            held = fold == one
            train = mine & ~held
            if not train.any():
                return None
            answer[value, held] = _fitted(vectors[train], label[train], vectors[held])
    differ = answer[0] != answer[1]
    return tuple(wilson(int(differ[side == value].sum()), int((side == value).sum())) for value in (0, 1))  # type: ignore[return-value]


def _fitted(train: Any, label: Integers, asked: Any) -> Integers:
    if len(np.unique(label)) == 1:
        return np.full(len(asked), label[0])
    from sklearn.linear_model import LogisticRegression

    with one_thread():
        model = LogisticRegression(C=1.0, max_iter=300).fit(train, label)
        return np.asarray(model.predict(asked), dtype=np.int64)


def _compare(placed: Placed, pair: Pair, half: Integers, config: NicoConfig) -> list[Statistic]:
    sides = [placed.rows(side) for side in (pair.left, pair.right)]
    told = told_apart(placed, sides, config.most_rows)
    n = sum(min(len(rows), config.most_rows) for rows in sides)
    covariate = None if told is None else told.proxy_a
    found: list[tuple[str, Interval | None, int]] = [("covariate_proxy_a", covariate, n)]
    shared = np.intersect1d(placed.label[sides[0]], placed.label[sides[1]])
    shared = shared[shared >= 0]
    known = [placed.take(rows[np.isin(placed.label[rows], shared)], config.most_rows) for rows in sides]
    rows = np.sort(np.concatenate(known))
    concept = noise = None
    if len(rows):
        side = np.isin(rows, known[0]).astype(np.int64)
        vectors = placed.matrix[rows].astype(np.float64)
        vectors = vectors - vectors.mean(axis=0)
        spread = vectors.std(axis=0)
        vectors = vectors / np.where(spread > 1e-12 * np.abs(vectors).max(initial=1e-300), spread, 1.0)
        label, fold = placed.label[rows].astype(np.int64), placed.fold[rows]
        concept = oracle_disagreement(vectors, label, side, fold)
        noise = oracle_disagreement(vectors, label, half[rows], fold)
    order = sorted(concept, key=lambda part: part.value) if concept else [None, None]
    found += [("concept_disagreement_min", order[0], len(rows)), ("concept_disagreement_max", order[1], len(rows))]
    found.append(("concept_noise", max(noise, key=lambda part: part.value) if noise else None, len(rows)))
    return [
        Statistic(pair.subset, name, part.value, count, part.low, part.high, reference=pair.reference)
        if part is not None
        else Statistic(pair.subset, name, None, count, reference=pair.reference)
        for name, part, count in found
    ]

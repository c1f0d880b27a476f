"""Label shift against input shift: do the labels differ, do the inputs, and do the inputs of equal labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.tasks.core import two_sample
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.column_shift import jensen_shannon, total_variation, total_variation_noise
from gradatim.tasks.diversity.embedding_shift import both
from gradatim.tasks.diversity.environment_vectors import Integers, Placed, placed_vectors
from gradatim.tasks.diversity.environments import EnvironmentConfig, Pair, comparison_table, largest, unmeasured
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.shift_pictures import pairs_picture
from gradatim.tasks.diversity.vectors import HASHED_WIDTH, HASHING

SOURCE = (
    "Z. C. Lipton, Y.-X. Wang, A. Smola (2018). Detecting and correcting for label shift with black box predictors; "
    "D. Lopez-Paz, M. Oquab (2017). Revisiting classifier two-sample tests"
)
MEASURES = (
    "label_tv", "label_tv_noise", "label_js", "label_p", "label_unshared", "input_auc", "input_proxy_a",
    "input_auc_balanced", "input_proxy_a_balanced", "conditional_auc", "conditional_proxy_a",
)  # fmt: skip


class LabelShiftConfig(EnvironmentConfig):
    """Settings of `label_shift`."""

    label: str = Field("output", description="column of examples with the labels")
    features: str = Field("", description="name of a features table; the only one there is, if not named")
    column: str = Field("input", description="without features: a column of texts, whose words are hashed")
    keep_together: str = Field("", description="column whose rows of one value stay in one fold of the classifier")
    most_rows: int = Field(20_000, ge=10, description="rows a side that the classifiers see, chosen by hash")


def balancing_weights(label: Integers, side: Integers, labels: int) -> NDArray[np.float64]:
    """Return weights under which both sides have the same shares of labels, the mean of their own.

    Parameters
    ----------
    label : numpy.ndarray, shape (n,), int64, in [0, labels)
    side : numpy.ndarray, shape (n,), int64
        0 or 1. Labels that one side lacks, and rows without a label (-1), get weight 0.
    labels : int

    Returns
    -------
    numpy.ndarray, shape (n,), float64
        Of mean 1 on each side; all 0 where no label is shared.
    """
    known = label >= 0
    counts = np.array([np.bincount(label[known & (side == value)], minlength=labels) for value in (0, 1)], dtype=float)
    shared = (counts > 0).all(axis=0)
    counts[:, ~shared] = 0
    weight = np.zeros(len(label))
    if not shared.any():
        return weight
    share = counts / counts.sum(axis=1, keepdims=True)
    factor = np.divide(share.mean(axis=0), share, out=np.zeros_like(share), where=share > 0)
    weight[known] = factor[side[known], label[known]]
    for value in (0, 1):
        weight[side == value] *= (side == value).sum() / weight[side == value].sum()
    return weight


def _cost(rows: int, width: int) -> Cost:
    texts, width = (0.0, width) if width else (HASHING * rows, HASHED_WIDTH)
    return Cost(seconds=texts + 0.5 + min(rows, 40_000) * width * 2.5e-7 + rows * 2e-6, bytes=4e8 + rows * width * 8)


@register(
    "diversity",
    "label_shift",
    config=LabelShiftConfig,
    needs=(
        "examples.{environment}",
        "examples.{label}",
        "features_{features}.embedding",
        "examples.{keep_together}",
        "examples.{column}?",
    ),
    cost=_cost,
    source=SOURCE,
)
def label_shift(tables: Mapping[str, pl.DataFrame], config: LabelShiftConfig, seed: int) -> Diversity:
    """Shift of labels beside shift of inputs, with the labels' shares made equal and within each label.

    For each comparison ``label_tv``, ``label_tv_noise``, ``label_js``, ``label_p`` (chi-squared test),
    ``label_unshared`` (mass of labels that the other side lacks, mean of both sides), ``input_auc`` and
    ``input_proxy_a`` (classifier two-sample test), the same ``_balanced`` by weights that give both sides the same
    labels, and ``conditional_auc``, ``conditional_proxy_a``: the mean over shared labels of the test within a label. An
    input shift that balancing removes is the labels' own.
    """
    placed = placed_vectors(
        tables, config, "diversity label_shift", features=config.features, column=config.column,
        label=config.label, together=config.keep_together, seed=seed,
    )  # fmt: skip
    statistics: list[Statistic] = []
    for pair in placed.environments.pairs:
        statistics += _compare(placed, pair, config)
    overall = largest(statistics, [name for name in MEASURES if name != "label_p"], len(placed.ids))
    parameters = {**config.model_dump(mode="json"), "vectors": placed.kind, "seed": seed}
    table = statistics_table([*overall, *statistics], parameters)
    warnings = [*placed.warnings, *unmeasured(statistics)]
    lost = [row for row in statistics if row.metric == "label_unshared" and (row.value or 0) > 0]
    if lost:
        most = max(lost, key=lambda row: row.value or 0.0)
        warnings.append(
            f"{len(lost)} comparisons have labels on one side only, at most {most.value:.2g} of the rows "
            f"({most.subset} / {most.reference}); they are no part of the balanced and conditional numbers"
        )
    return Diversity(
        method="label_shift",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="label_tv",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "labels": Picture(
                "Total variation of the labels' shares between environments",
                lambda: pairs_picture(table, "label_tv", "Shift of labels"),
            ),
            "inputs": Picture(
                "How well the inputs of equal labels are told apart between environments: AUC, .5 where they cannot be",
                lambda: pairs_picture(table, "conditional_auc", "Shift of inputs within labels"),
            ),
        },
        tables=(comparison_table("Labels and inputs", table, MEASURES),),
    )


def _compare(placed: Placed, pair: Pair, config: LabelShiftConfig) -> list[Statistic]:
    sides = [placed.rows(side) for side in (pair.left, pair.right)]
    labels = len(placed.labels)
    counts = [np.bincount(placed.label[rows][placed.label[rows] >= 0], minlength=labels) for rows in sides]
    found: list[tuple[str, float | None, int, float | None, float | None]] = []

    def add(name: str, value: float | None, n: int, low: float | None = None, high: float | None = None) -> None:
        found.append((name, value, n, low, high))

    labelled = int(counts[0].sum() + counts[1].sum())
    if all(count.sum() for count in counts):
        present = counts[0] + counts[1] > 0
        left, right = (count[present].astype(np.int64) for count in counts)
        add("label_tv", total_variation(left, right), labelled)
        add("label_tv_noise", total_variation_noise(left, right), labelled)
        add("label_js", jensen_shannon(left, right), labelled)
        add("label_p", _chi_squared(left, right), labelled)
        lost = (left[right == 0].sum() / left.sum() + right[left == 0].sum() / right.sum()) / 2
        add("label_unshared", float(lost), labelled)
    rows, side = both(placed, sides, config.most_rows)
    label = placed.label[rows].astype(np.int64)
    plain = two_sample.tell_apart(placed.matrix[rows], side, placed.fold[rows])
    _add_told(add, "input", "", plain, len(rows))
    weight = balancing_weights(label, side, labels)
    kept = weight > 0
    balanced = None
    if kept.any():
        balanced = two_sample.tell_apart(placed.matrix[rows[kept]], side[kept], placed.fold[rows[kept]], weight[kept])
    _add_told(add, "input", "_balanced", balanced, int(kept.sum()))
    within, masses, n = [], [], 0
    for one in np.unique(label[kept]):
        here = label == one
        told = two_sample.tell_apart(placed.matrix[rows[here]], side[here], placed.fold[rows[here]])
        if told is not None:
            within.append((told.auc.value, told.proxy_a.value))
            masses.append(ordered_sum(weight[here]))
            n += int(here.sum())
    for place, name in enumerate(("conditional_auc", "conditional_proxy_a")):
        mean = None
        if within:
            values = np.array([pair_[place] for pair_ in within]) * np.array(masses)
            mean = ordered_sum(values, sort=False) / ordered_sum(masses, sort=False)
        add(name, mean, n)
    return [
        Statistic(pair.subset, name, value, count, low, high, reference=pair.reference)
        for name, value, count, low, high in found
    ]


def _add_told(add: Any, name: str, ending: str, told: two_sample.Told | None, n: int) -> None:
    for kind in ("auc", "proxy_a"):
        part = None if told is None else getattr(told, kind)
        ends = () if part is None else (part.low, part.high)
        add(f"{name}_{kind}{ending}", None if part is None else part.value, n, *ends)


def _chi_squared(left: Integers, right: Integers) -> float:
    """Return the p-value of equal shares; 1 for one label alone."""
    if len(left) < 2:
        return 1.0
    from scipy.stats import chi2_contingency

    return float(chi2_contingency(np.stack([left, right]), correction=False).pvalue)

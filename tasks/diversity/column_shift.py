"""How the columns of two sets or environments differ: total variation, Jensen-Shannon, PSI and 1-D Wasserstein."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.column_counts import MOST_CATEGORIES, Counts, merge, partial, values_of
from gradatim.tasks.diversity.environments import (
    EnvironmentConfig,
    Environments,
    as_text,
    codes,
    comparison_table,
    environments_of,
    largest,
)
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "J. Lin (1991). Divergence measures based on the Shannon entropy; N. Siddiqi (2006). Credit Risk Scorecards (PSI); "
    "L. N. Vaserstein (1969). Markov processes over denumerable products of spaces (Wasserstein distance)"
)
ROWS = 1_000_000
"""Rows of one part."""
FEW = 20
"""Different numbers up to which each one is a category of its own."""
MANY = 100
"""Rows from which on whole numbers that all differ are taken for ids."""
BINS = 10
_BOOKKEEPING = ("example_id", "source_uri", "source_row", "content_hash", "first_version", "changed_version")
ALL, EMPTY = "*", "no value in any row"
_MOST_LABELS = 100
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class ColumnShiftConfig(EnvironmentConfig):
    """Settings of `column_shift`."""

    columns: tuple[str, ...] = Field(
        (ALL,),
        min_length=1,
        description="columns of examples to compare; *: all that can be, the others named with why",
    )
    label: str = Field("", description="column of labels: compare the rows of each label as well")


def total_variation(left: Integers, right: Integers) -> float:
    """Return half the sum of absolute differences of two sets' shares, in [0, 1], from counts by category."""
    return ordered_sum(np.abs(left / left.sum() - right / right.sum())) / 2


def total_variation_noise(left: Integers, right: Integers) -> float:
    """Return the total variation to expect of two samples of these sizes from one distribution (normal approximation).

    The plain value never is 0 on samples, and grows with categories: read it beside this number.
    """
    pooled = (left + right) / (left.sum() + right.sum())
    variance = pooled * (1 - pooled) * (1 / left.sum() + 1 / right.sum())
    return min(1.0, ordered_sum(np.sqrt(2 / np.pi * variance)) / 2)


def jensen_shannon(left: Integers, right: Integers) -> float:
    """Return the Jensen-Shannon divergence in bits, in [0, 1] (SciPy's distance is its square root)."""
    p, q = left / left.sum(), right / right.sum()
    middle = (p + q) / 2
    terms = [side[side > 0] * np.log2(side[side > 0] / middle[side > 0]) for side in (p, q)]
    return min(1.0, max(0.0, (ordered_sum(terms[0]) + ordered_sum(terms[1])) / 2))


def population_stability(left: Integers, right: Integers) -> float:
    """Return the population stability index ``sum (p - q) ln(p / q)``; half a row is added to each count of both."""
    p, q = ((side + 0.5) / (side.sum() + 0.5 * len(side)) for side in (left, right))
    return max(0.0, ordered_sum((p - q) * np.log(p / q)))


def wasserstein(values: Floats, left: Integers, right: Integers) -> float:
    """Return the 1-D Wasserstein distance of two sets of numbers, from counts of ascending values; in their unit."""
    gap = np.abs(np.cumsum(left) / left.sum() - np.cumsum(right) / right.sum())[:-1]
    return ordered_sum(gap * np.diff(values), sort=False)


def quantile_bins(reference: Integers, bins: int = BINS) -> Integers:
    """Return each value's bin by the quantiles of a reference, from its counts of ascending values.

    An edge is the smallest value with at least i/bins of the reference at or below it, and belongs to the lower bin;
    equal edges make fewer bins.
    """
    below = np.cumsum(reference)
    wanted = np.arange(1, bins) * int(below[-1])
    edges = np.unique(np.searchsorted(below * bins, wanted, side="left"))
    return np.searchsorted(edges, np.arange(len(reference)), side="left").astype(np.int64)


def finish(counts: Counts, groups: int) -> tuple[Floats | None, Integers, Integers]:
    """Turn merged counts into arrays.

    Parameters
    ----------
    counts : Counts
    groups : int
        Number of environments (or environments x labels).

    Returns
    -------
    (numpy.ndarray of float or None, numpy.ndarray of int, numpy.ndarray of int)
        The numbers in ascending order, shape (k,), or None for categories; rows, shape (groups, k); missing values,
        shape (groups,).
    """
    known, missing = counts.cells.drop_nulls("cell"), counts.cells.filter(pl.col("cell").is_null())
    lacking = np.zeros(groups, dtype=np.int64)
    lacking[missing["environment"].to_numpy()] = missing["rows"].to_numpy()
    different = known["cell"].unique().sort()
    place = different.search_sorted(known["cell"]) if len(known) else pl.Series([], dtype=pl.UInt32)
    rows = np.zeros((groups, len(different)), dtype=np.int64)
    rows[known["environment"].to_numpy(), np.asarray(place)] = known["rows"].to_numpy()
    values = values_of(different.to_numpy(), counts.level) if counts.kind == "number" else None
    return values, rows, lacking


def compare(values: Floats | None, left: Integers, right: Integers, missing: tuple[int, int]) -> dict[str, float]:
    """Return every measure of two sets' counts of one column, or nothing where a set has no row.

    Parameters
    ----------
    values : numpy.ndarray of float or None
        The ascending numbers that were counted; None for categories.
    left, right : numpy.ndarray of int, shape (k,)
        Rows of each; `right` is the reference, whose quantiles make the bins of numbers.
    missing : (int, int)
        Rows without a value: a category of their own for ``tv``, ``js`` and ``psi``.
    """
    if not left.sum() + missing[0] or not right.sum() + missing[1]:
        return {}
    found: dict[str, float] = {}
    sides = [left, right]
    if values is not None:
        if left.sum() and right.sum():
            finite = np.isfinite(values)
            if left[finite].sum() and right[finite].sum():
                found["wasserstein"] = wasserstein(values[finite], left[finite], right[finite])
        if ((left + right) > 0).sum() > FEW and right.sum():
            bins = quantile_bins(right)
            sides = [np.bincount(bins, weights=side, minlength=1).astype(np.int64) for side in sides]
    if any(missing):
        sides = [np.append(side, lost) for side, lost in zip(sides, missing, strict=True)]
    present = (sides[0] + sides[1]) > 0
    p, q = sides[0][present], sides[1][present]
    return {
        "tv": total_variation(p, q),
        "tv_noise": total_variation_noise(p, q),
        "js": jensen_shannon(p, q),
        "psi": population_stability(p, q),
        **found,
    }


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.5 + rows * 1.5e-6, bytes=4e8 + rows * 150)


@register(
    "diversity",
    "column_shift",
    config=ColumnShiftConfig,
    needs=("examples.{environment}", "examples.{columns}", "examples.{label}"),
    revision=2,
    cost=_cost,
    source=SOURCE,
)
def column_shift(tables: Mapping[str, pl.DataFrame], config: ColumnShiftConfig, seed: int) -> Diversity:
    """Shift of each column between environments: total variation, Jensen-Shannon, PSI, Wasserstein.

    For each comparison and column ``tv(column)``, ``tv_noise(column)``, ``js(column)``, ``psi(column)`` and of numbers
    ``wasserstein(column)``; with `label` the same within each label that both sides have. Numbers of more than 20
    different values are cut into ten bins by the reference's quantiles. Exact for up to 65,536 different numbers;
    beyond, numbers that share their leading bits count as one. Columns of more than 100,000 categories are left out and
    named with the reason; so are, unless you name them, free texts and ids: categories and whole numbers of which most
    rows have a value of their own, and nested values. `seed` is not used.
    """
    where = "diversity column_shift"
    examples = tables["examples"]
    found = environments_of(tables, config, where)
    named = () if ALL in config.columns else config.columns
    for column in named:
        if column not in examples.columns:
            as_text(examples, column, where)  # says which there are
    refused = [name for name in named if not _comparable(examples, name)]
    if refused:
        raise UsageError(
            f"column {refused[0]!r} holds {examples.schema[refused[0]]}",
            where=where,
            expected="numbers, texts, truth values, dates or times",
        )
    aside = (*_BOOKKEEPING, config.environment)
    chosen = named or tuple(name for name in examples.columns if name not in aside)
    group = codes(as_text(examples, config.environment, where), found.names)
    labels: list[str] = []
    if config.label:
        label = as_text(examples, config.label, where)
        labels = label.drop_nulls().unique().sort().to_list()
        if not 1 <= len(labels) <= _MOST_LABELS:
            raise UsageError(f"{len(labels)} labels in {config.label!r}", where=where, expected="1 to 100 labels")
        number = codes(label, labels)
        # one place more an environment holds the rows without a label
        group = np.where(group < 0, -1, group * (len(labels) + 1) + np.where(number < 0, len(labels), number))
    width = len(labels) + 1 if labels else 1
    environment = pl.Series(group.astype(np.int32))
    statistics: list[Statistic] = []
    left_out: dict[str, str] = {}
    infinite: list[str] = []
    for column in chosen:
        why = "" if named else _not_a_measure(examples, column, config.environment)
        counts = None if why else count(examples[column], environment)
        if counts is not None:
            why = _too_different(counts, named=bool(named))
        if counts is None or why:
            left_out[column] = why
            continue
        values, rows, missing = finish(counts, len(found.names) * width)
        if values is not None and np.isinf(values).any():
            infinite.append(column)
        statistics += _of_column(column, values, rows, missing, found, labels, config.label)
    if not statistics:
        said = "; ".join(f"{column}: {why}" for column, why in list(left_out.items())[:5])
        raise UsageError(
            f"no column can be compared ({said or 'there is none beside ids'})",
            where=where,
            expected="a column of numbers or of fewer categories",
            remedy="compare texts by embedding_shift",
        )
    told = [f"{column} ({why})" for column, why in left_out.items() if why != EMPTY]
    warnings = [*found.warnings, *([f"not compared: {'; '.join(told)}"] if told else [])]
    if infinite:
        warnings.append(f"infinite values are not part of the Wasserstein distance: {', '.join(infinite)}")
    n = int((group >= 0).sum())
    compared = [column for column in chosen if column not in left_out]
    aside_table = SummaryTable("Columns that are not compared", ("column", "why"), tuple(left_out.items()))
    overall = largest(statistics, [f"tv({column})" for column in compared], n)
    parameters = {**config.model_dump(mode="json"), "columns": compared}
    statistics += _tops([*overall, *statistics])
    table = statistics_table([*overall, *statistics], parameters)
    return Diversity(
        method="column_shift",
        statistics=table,
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="tv_largest",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "columns": Picture(
                "Total variation of each column beside what chance alone would give", lambda: _plot(table)
            )
        },
        tables=(
            comparison_table("Total variation by column", table, [f"tv({column})" for column in compared[:12]]),
            *([aside_table] if left_out else []),
        ),
    )


def count(column: pl.Series, environment: pl.Series) -> Counts:
    """Count a column part by part, so that memory does not grow with its rows."""
    whole: Counts | None = None
    for start in range(0, max(len(column), 1), ROWS):
        level = whole.level if whole is not None else 0
        part = partial(column[start : start + ROWS], environment[start : start + ROWS], level)
        whole = part if whole is None else merge([whole, part])
        if whole.kind == "too many":
            break
    assert whole is not None
    return whole


def _of_column(
    column: str,
    values: Floats | None,
    rows: Integers,
    missing: Integers,
    found: Environments,
    labels: Sequence[str],
    label: str,
) -> list[Statistic]:
    """Compare one column in every comparison, and in each label of it."""
    width = len(labels) + 1 if labels else 1
    statistics = []
    for pair in found.pairs:
        for place in range(len(labels) + 1):
            slots = range(width) if place == len(labels) else (place,)
            at = [[e * width + slot for e in side for slot in slots] for side in (pair.left, pair.right)]
            sides = [(rows[i].sum(axis=0), int(missing[i].sum())) for i in at]
            measured = compare(values, sides[0][0], sides[1][0], (sides[0][1], sides[1][1]))
            n = int(sum(side.sum() + lost for side, lost in sides))
            more = "" if place == len(labels) else f" & {label}={labels[place]}"
            statistics += [
                Statistic(pair.subset + more, f"{name}({column})", value, n, reference=pair.reference + more)
                for name, value in measured.items()
            ]
    return statistics


def _tops(statistics: Sequence[Statistic]) -> list[Statistic]:
    """Return the largest total variation over columns, overall and of each comparison."""
    by: dict[tuple[str, str], list[Statistic]] = {}
    for row in statistics:
        if row.metric.startswith("tv(") and row.value is not None:
            by.setdefault((row.subset, row.reference), []).append(row)
    return [
        Statistic(subset, "tv_largest", max(row.value or 0.0 for row in rows), rows[0].n, reference=reference)
        for (subset, reference), rows in by.items()
        if " & " not in subset
    ]


def _not_a_measure(examples: pl.DataFrame, column: str, environment: str) -> str:
    """Say why a column that nobody named is not compared, by its type and its different whole numbers; else nothing."""
    kind = examples.schema[column]
    known = examples[column].drop_nulls()
    if not len(known):
        return EMPTY
    if kind.is_nested():
        return "lists, vectors or records"
    if not _comparable(examples, column):
        return f"of type {kind}"
    if kind == examples.schema[environment] and examples[column].equals(examples[environment]):
        return "the environments themselves"
    if kind.is_integer() and len(known) > MANY and known.n_unique() == len(known):
        return "whole numbers that all differ, as ids do"
    return ""


def _too_different(counts: Counts, *, named: bool) -> str:
    """Say why the categories of a column are not compared, by how many they are; else nothing."""
    if counts.kind == "too many":
        return f"more than {MOST_CATEGORIES:,} categories, as ids and free texts have"
    if named or counts.kind != "category":
        return ""
    different, rows = counts.cells["cell"].n_unique(), int(counts.cells["rows"].sum())
    if different > max(FEW, rows // 2):
        return f"{different:,} different values in {rows:,} rows, as ids and free texts have"
    return ""


def _comparable(examples: pl.DataFrame, name: str) -> bool:
    kind: Any = examples.schema[name]
    if isinstance(kind, pl.List | pl.Array):
        return kind.inner is not None and not kind.inner.is_numeric()
    return bool(kind not in (pl.Binary, pl.Object, pl.Null))


def _plot(statistics: pl.DataFrame) -> Any:
    """Draw each column's largest total variation over the comparisons, with its noise."""
    from gradatim.tasks.core import charts

    rows = (
        statistics.filter((pl.col("reference") != "") & ~pl.col("subset").str.contains(" & ", literal=True))
        .with_columns(pl.col("metric").str.extract_groups(r"^(?<kind>tv|tv_noise)\((?<column>.*)\)$").alias("named"))
        .unnest("named")
        .drop_nulls("kind")
    )
    wide = rows.pivot(on="kind", index=["column", "subset", "reference"], values="value")
    top = wide.sort("tv", "subset", "reference", descending=[True, False, False]).unique("column", keep="first")
    top = top.sort("tv", "column", descending=[True, False])
    long = (
        top.rename({"tv": "measured", "tv_noise": "by chance"})
        .unpivot(["measured", "by chance"], index="column", variable_name="total variation", value_name="value")
        .with_columns(order=pl.col("column").replace_strict(top["column"].to_list(), list(range(len(top)))))
        .sort("order", "total variation", descending=[False, True])
    )
    return charts.bars(long, x="column", y="value", color="total variation", title="Shift of each column")

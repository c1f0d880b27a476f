"""Which rows are compared with which: two values of a column, every two, or each against the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core.registry import Config
from gradatim.tasks.core.row_numbers import codes_of, counted
from gradatim.tasks.core.statistics import Statistic

MOST_PAIRS = 200
_SHOWN = 50


class EnvironmentConfig(Config):
    """Settings that say what is compared."""

    environment: str = Field("domain", description="column of examples whose values are the environments or sets")
    left: str = Field("", description="one environment, compared with `right` alone")
    right: str = Field("", description="the other one: what `left` is compared with")
    reference: str = Field("", description="compare each other environment with this one")
    against: Literal["each other", "rest"] = Field("each other", description="every two, or each with all others")

    @model_validator(mode="after")
    def _one_way(self) -> EnvironmentConfig:
        if bool(self.left) != bool(self.right):
            raise ValueError("left and right go together: name both environments")
        if self.left and self.left == self.right:
            raise ValueError(f"left and right are both {self.left!r}: name two environments")
        if (bool(self.left), bool(self.reference), self.against == "rest").count(True) > 1:
            raise ValueError("left and right, reference, and against: rest are three ways; choose one")
        return self


@dataclass(frozen=True)
class Pair:
    """Two sets of environments: their numbers, and how the table `statistics` names them."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    subset: str
    reference: str


@dataclass(frozen=True)
class Environments:
    """The environments of a table.

    Attributes
    ----------
    names : tuple of str
        Those that are compared, sorted by their UTF-8 bytes.
    pairs : tuple of Pair
        What is compared: `subset` with its `reference`.
    missing : int
        Rows without an environment.
    """

    names: tuple[str, ...]
    pairs: tuple[Pair, ...]
    missing: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """Rows that belong nowhere, counted."""
        return (f"{self.missing:,} rows have no environment and were left out",) if self.missing else ()


def environments_of(tables: Mapping[str, pl.DataFrame], config: EnvironmentConfig, where: str) -> Environments:
    """Find the environments and what is compared with what.

    Raises
    ------
    UsageError
        There is no such column or value, or there would be more than 200 comparisons.
    DataRefused
        There is one environment alone.
    """
    column = as_text(tables["examples"], config.environment, where)
    names: tuple[str, ...] = tuple(counted(column)["name"].sort().to_list())
    if len(names) < 2:
        raise DataRefused(
            f"column {config.environment!r} has {len(names)} value in {len(column):,} rows",
            where=where,
            expected="two environments or more",
            remedy="name another column: environment: COLUMN",
        )
    for asked in filter(None, (config.left, config.right, config.reference)):
        if asked not in names:
            raise UsageError(
                f"column {config.environment!r} has no value {asked!r}{nearest(asked, names)}",
                where=where,
                expected=", ".join(names[:20]),
            )
    if config.left:
        names = tuple(sorted((config.left, config.right)))
    number = {name: i for i, name in enumerate(names)}
    label = [f"{config.environment}={name}" for name in names]

    def pair(left: int, right: int) -> Pair:
        return Pair((left,), (right,), label[left], label[right])

    if config.left:
        pairs = [pair(number[config.left], number[config.right])]
    elif config.reference:
        pairs = [pair(i, number[config.reference]) for i in range(len(names)) if names[i] != config.reference]
    elif config.against == "rest" and len(names) > 2:
        everyone = range(len(names))
        pairs = [Pair((i,), tuple(j for j in everyone if j != i), label[i], f"not {label[i]}") for i in everyone]
    else:
        pairs = [pair(i, j) for i, j in combinations(range(len(names)), 2)]
    if len(pairs) > MOST_PAIRS:
        raise UsageError(
            f"{len(names):,} environments make {len(pairs):,} comparisons",
            where=where,
            expected=f"at most {MOST_PAIRS}",
            remedy="compare with one (reference: VALUE) or with the rest (against: rest), or name left and right",
        )
    return Environments(names, tuple(pairs), column.null_count())


def codes(column: pl.Series, names: Iterable[str]) -> NDArray[np.int32]:
    """Return the number of each row's environment, -1 where it has none."""
    return codes_of(column, list(names))


def as_text(examples: pl.DataFrame, column: str, where: str) -> pl.Series:
    """Return a column of examples as text; raises `UsageError` where there is none, or it is nested."""
    if column not in examples.columns:
        raise UsageError(
            f"examples has no column {column!r}{nearest(column, examples.columns)}",
            where=where,
            expected=", ".join(examples.columns),
        )
    found = examples[column]
    if found.dtype.is_nested():
        raise UsageError(
            f"column {column!r} holds {found.dtype}", where=where, expected="texts, numbers or truth values"
        )
    return found.cast(pl.String)


def largest(statistics: Iterable[Statistic], metrics: Iterable[str], n: int) -> list[Statistic]:
    """Return the largest value of each metric over all comparisons, as a number about all rows."""
    found = []
    rows = list(statistics)
    for metric in metrics:
        values = [row.value for row in rows if row.metric == metric and row.value is not None]
        found.append(Statistic("all", metric, max(values, default=None), n))
    return found


def comparison_table(title: str, statistics: pl.DataFrame, metrics: Iterable[str]) -> SummaryTable:
    """Return the metrics of each comparison side by side, for the summary."""
    compared = statistics.filter(pl.col("reference") != "")
    order = compared.select("subset", "reference").unique(maintain_order=True)
    columns = list(dict.fromkeys(metrics))
    rows = []
    for subset, reference in order.head(_SHOWN).rows():
        here = compared.filter((pl.col("subset") == subset) & (pl.col("reference") == reference))
        value = dict(here.select("metric", "value").rows())
        rows.append((subset, reference, *(value.get(metric) for metric in columns)))
    left = len(order) - len(rows)
    note = f"{left} more comparisons in the table statistics" if left else ""
    return SummaryTable(title, ("subset", "compared with", *columns), tuple(rows), note=note)


def unmeasured(statistics: Iterable[Statistic]) -> list[str]:
    """Return the warning of comparisons that lack a number, with the first of them; none where each has all."""
    lacking = [row for row in statistics if row.reference and (row.value is None or row.value != row.value)]
    if not lacking:
        return []
    pairs = list(dict.fromkeys((row.subset, row.reference) for row in lacking))
    names = list(dict.fromkeys(row.metric for row in lacking))
    return [
        f"too few rows of a side or of its labels: no {', '.join(names[:6])} for {len(pairs)} "
        f"comparison{'' if len(pairs) == 1 else 's'}, first {' / '.join(pairs[0])}"
    ]

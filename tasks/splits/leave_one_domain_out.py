"""Leave-one-domain-out: a fold for each domain, which is its test_ood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.numbering import numbered

SOURCE = "Gulrajani & Lopez-Paz (2021). In Search of Lost Domain Generalization."
_FEW = 30


class LeaveOneDomainOutConfig(SplitConfig):
    """Settings of leave-one-domain-out."""

    column: str = Field("domain", description="column that names the domain: repository, site, source")
    domains: tuple[str, ...] = Field((), description="domains that get a fold; all of them by default")
    min_rows: int = Field(1, ge=1, description="a domain with fewer rows gets no fold; it stays in the others' pool")
    cross_validation: bool = Field(
        False, description="also a fold for each pair of domains, both left out: what models can be chosen by"
    )


@rule(
    "leave_one_domain_out",
    config=LeaveOneDomainOutConfig,
    needs=("examples.{column}",),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(2e-6 * rows * max(width, 2), 300 * rows * max(width, 2)),
    source=SOURCE,
    revision=2,
)
def mark(
    examples: pl.DataFrame, config: LeaveOneDomainOutConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Hold out one domain a fold (or two); a row's cut among the other domains is the same in all folds."""
    domain = examples[config.column].cast(pl.String).alias("domain")
    sizes = dict(domain.drop_nulls().value_counts().sort("domain").iter_rows())
    least = 3 if config.cross_validation else 2
    if len(sizes) < least:
        what = "to leave two out takes three" if config.cross_validation else "to leave one out takes two"
        raise DataRefused(
            f"the column {config.column!r} holds {len(sizes)} domains; {what} or more",
            where=f"column {config.column!r}",
            remedy="name another column" + (", or set cross_validation: false" if config.cross_validation else ""),
        )
    for name in config.domains:
        if name not in sizes:
            raise UsageError(
                f"there is no domain {name!r}{nearest(name, sizes)}",
                where=f"column {config.column!r}",
                expected=", ".join(list(sizes)[:20]),
            )
    asked = sorted(config.domains or sizes)
    few = [name for name in asked if sizes[name] < config.min_rows]
    if len(few) == len(asked):
        raise DataRefused(
            f"no domain has {config.min_rows} rows", where=f"column {config.column!r}", remedy="lower min_rows"
        )
    warnings = [f"{config.column} {name} has {sizes[name]} rows, fewer than min_rows: no fold" for name in few]
    warnings += [
        f"{config.column} {name} has {sizes[name]} rows: too few to see a gap"
        for name in asked
        if name not in few and sizes[name] < _FEW
    ]
    held = _held_out(config, asked, sorted(sizes))
    marks = []
    # domains without a fold are numbered too, so that min_rows moves no number
    for fold, label in numbered(list(held), tables.get("frozen"), config.folds):
        if any(sizes[name] < config.min_rows for name in held[label]):
            continue
        out = domain.is_in(list(held[label])).fill_null(False)
        side = np.where(domain.is_null().to_numpy(), NEITHER, np.where(out.to_numpy(), OUT, IN)).astype(np.int8)
        reason = phrase(f"{config.column} ", domain, " is not held out")
        reason = phrase(f"{config.column} ", domain, " is held out", when=out, otherwise=reason)
        reason = phrase(f"{config.column} is null", when=domain.is_null(), otherwise=reason)
        marks.append(Marks(side, reason, label, fold))
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _held_out(config: LeaveOneDomainOutConfig, asked: list[str], every: list[str]) -> dict[str, tuple[str, ...]]:
    """Return what each fold leaves out, by its label: each domain, then each pair with one of them."""
    chosen: list[tuple[str, ...]] = [(name,) for name in asked]
    if config.cross_validation:
        chosen += [pair for pair in combinations(every, 2) if pair[0] in asked or pair[1] in asked]
    labels = ["; ".join(f"{config.column}={name}" for name in held) for held in chosen]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataRefused(
            f"{twice!r} names both one domain and two",
            where=f"column {config.column!r}",
            remedy="rename the domain that holds '; '",
        )
    return dict(zip(labels, chosen, strict=True))

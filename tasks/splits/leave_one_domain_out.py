"""Leave-one-domain-out: a fold for each domain, which is its test_ood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import phrase

SOURCE = "Gulrajani & Lopez-Paz (2021). In Search of Lost Domain Generalization."
_FEW = 30


class LeaveOneDomainOutConfig(SplitConfig):
    """Settings of leave-one-domain-out."""

    column: str = Field("domain", description="column that names the domain: repository, site, source")
    domains: tuple[str, ...] = Field((), description="domains that get a fold; all of them by default")
    min_rows: int = Field(1, ge=1, description="a domain with fewer rows gets no fold; it stays in the others' pool")


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
    """Hold out one domain a fold; a row's cut among the other domains is the same in all folds."""
    domain = examples[config.column].cast(pl.String).alias("domain")
    sizes = dict(domain.drop_nulls().value_counts().sort("domain").iter_rows())
    if len(sizes) < 2:
        raise DataRefused(
            f"the column {config.column!r} holds {len(sizes)} domains; to leave one out takes two or more",
            where="split leave_one_domain_out",
            remedy="name another column",
        )
    for name in config.domains:
        if name not in sizes:
            raise UsageError(
                f"there is no domain {name!r}{nearest(name, sizes)}",
                where=f"column {config.column!r}",
                expected=", ".join(list(sizes)[:20]),
            )
    folds = _folds(sorted(config.domains or sizes), tables.get("frozen"), config.column)
    warnings, marks = [], []
    for fold, name in folds:
        if sizes.get(name, 0) < config.min_rows:
            warnings.append(f"{config.column} {name} has {sizes.get(name, 0)} rows, fewer than min_rows: no fold")
            continue
        if sizes[name] < _FEW:
            warnings.append(f"{config.column} {name} has {sizes[name]} rows: too few to see a gap")
        side = np.where((domain == name).fill_null(False).to_numpy(), OUT, IN)
        side = np.where(domain.is_null().to_numpy(), NEITHER, side).astype(np.int8)
        marks.append(Marks(side, _reason(domain, name, config.column), f"{config.column}={name}", fold))
    if not marks:
        raise DataRefused(
            f"no domain has {config.min_rows} rows", where="split leave_one_domain_out", remedy="lower min_rows"
        )
    marks[0] = replace(marks[0], warnings=tuple(warnings))
    return marks


def _reason(domain: pl.Series, held_out: str, column: str) -> pl.Series:
    reason = phrase(f"{column} ", domain, " is not held out")
    reason = phrase(f"{column} {held_out} is held out", when=domain == held_out, otherwise=reason)
    return phrase(f"{column} is null", when=domain.is_null(), otherwise=reason)


def _folds(domains: list[str], frozen: pl.DataFrame | None, column: str) -> list[tuple[int, str]]:
    """Number the folds by domain, sorted; domains of a released split keep their number, new ones follow."""
    known: dict[str, int] = {}
    if frozen is not None and {"held_out", "fold"} <= set(frozen.columns):
        pairs = frozen.select("held_out", "fold").drop_nulls().unique().sort("fold")
        known = {held.removeprefix(f"{column}="): fold for held, fold in pairs.iter_rows()}
    next_fold = max(known.values(), default=-1) + 1
    fresh = [name for name in domains if name not in known]
    numbered = {name: fold for name, fold in known.items() if name in domains}
    numbered |= {name: next_fold + place for place, name in enumerate(fresh)}
    return sorted((fold, name) for name, fold in numbered.items())

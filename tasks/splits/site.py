"""Site split: leave-one-domain-out by site, hospital or laboratory."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.engine import Marks, rule
from gradatim.tasks.splits.leave_one_domain_out import LeaveOneDomainOutConfig
from gradatim.tasks.splits.leave_one_domain_out import mark as leave_one_out


class SiteConfig(LeaveOneDomainOutConfig):
    """Settings of a site split."""

    column: str = Field("site", description="column that names the site: hospital, laboratory, device, city")


@rule(
    "site",
    config=SiteConfig,
    needs=("examples.{column}",),
    axis="site",
    cost=lambda rows, width: Cost(2e-6 * rows * max(width, 2), 300 * rows * max(width, 2)),
    source="Koh et al. (2021). WILDS: A Benchmark of in-the-Wild Distribution Shifts.",
)
def mark(examples: pl.DataFrame, config: SiteConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Hold out one site a fold; each other site has its own share of validation and test."""
    return leave_one_out(examples, config, seed, tables)

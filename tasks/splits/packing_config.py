"""Settings of a non-leaking split."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gradatim.tasks.splits.config import SplitConfig

WHERE = "split non_leaking"
SPLIT_NAMES = ("in distribution", "test_ood", "validation_ood")
MOST_CLUSTERS = 2_000


class NonLeakingConfig(SplitConfig):
    """Settings of a non-leaking split."""

    by: Literal["components", "kmeans", "single", "average"] = Field(
        "components",
        description="what stays whole: components of near-duplicates and groups, or clusters of the vectors",
    )
    features: str = Field(
        "",
        description="features whose vectors say what is alike; by default the only ones at hand; components do without",
    )
    fraction: float = Field(0.2, gt=0, lt=1, description="share of the rows, in whole clusters, out of distribution")
    epsilon: float = Field(
        0.05, ge=0, lt=1, description="a split has at least its share times (1 - epsilon) of the rows"
    )
    delta: float = Field(
        0.2, ge=0, lt=1, description="with stratify, at least its share times (1 - delta) of each value's rows"
    )
    clusters: int | None = Field(
        None, ge=2, le=MOST_CLUSTERS, description="clusters of kmeans; the root of the number of rows by default"
    )
    threshold: float = Field(0.9, gt=0, le=1, description="cosine from which single and average linkage tie rows")
    oversize: Literal["refuse", "overflow", "cut"] = Field(
        "refuse",
        description="a cluster larger than any split: refuse; overflow, which leaves it in distribution and takes "
        "shares of the other rows (and the nearest sizes where none fit); or cut it, so that like rows are parted",
    )
    margin: float | None = Field(
        None, gt=0, le=1, description="exclude in-distribution rows of at least this cosine to a row held out"
    )

    @property
    def compares(self) -> bool:
        """Whether rows are compared by vectors."""
        return self.by != "components" or self.margin is not None

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of in-distribution rows, test_ood and, where it is asked for, validation_ood."""
        out = (self.fraction * (1 - self.validation_ood), self.fraction * self.validation_ood)
        return (1 - self.fraction, *(share for share in out if share))

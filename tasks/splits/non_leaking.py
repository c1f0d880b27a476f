"""Non-leaking split: whole clusters of like rows in distribution or out, as unlike across the cut as sizes allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.embeddings import features_at_hand
from gradatim.tasks.core.leakage import mean_similarity
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.engine import Marks, build
from gradatim.tasks.splits.inputs import keep_together, prepare
from gradatim.tasks.splits.packing import pack, room
from gradatim.tasks.splits.packing_config import MOST_CLUSTERS, WHERE, NonLeakingConfig
from gradatim.tasks.splits.packing_marks import fixed_places, marked, released_places
from gradatim.tasks.splits.packing_refusals import parted_told, refuse_empty, sizes_told, too_large
from gradatim.tasks.splits.packing_search import SEARCHED, Units
from gradatim.tasks.splits.packing_units import (
    Bounds,
    Kept,
    Located,
    all_pairs,
    by_average,
    by_means,
    clustered,
    cut_pairs,
    linked,
    located,
    whole_clusters,
)
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.together import Together, together

SOURCE = (
    "Joeres, Blumenthal & Kalinina (2025). Data splitting to avoid information leakage with DataSAIL. "
    "Bushuiev et al. (2024). Learning to design protein-protein interactions with enhanced generalization."
)
_STRATA = 100

Ints = NDArray[np.int64]


@register(
    "split",
    "non_leaking",
    config=NonLeakingConfig,
    needs=("examples.{keep_together}", "examples.{stratify}", "features_{features}.embedding"),
    cost=lambda rows, width: Cost(1.2e-5 * rows + 4e-10 * rows * width * min(rows, 1_000), 900 * rows + 8.0 * width),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: NonLeakingConfig, seed: int) -> Split:
    """Put whole clusters of like rows in distribution or out, sizes and strata within tolerances, leaking least."""
    examples = prepare(tables, "non_leaking", config)
    ids = examples["example_id"]
    refuse_empty(len(ids), config)
    features = _features(tables, config)
    vectors = located(tables, features, ids) if features else None
    rows = _Rows(examples, keep_together(examples, config), tables, config, vectors)
    whole, kept, tied = rows.tied()

    def mark(one: int) -> list[Marks]:
        return [rows.marks(whole, kept, one)]

    return build(
        examples, mark, config, seed, tables, method="non_leaking", axis="cluster", source=SOURCE,
        together=rows.columns, tied=whole.component if tied else None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """The examples, sorted by id, with what says how they belong together."""

    examples: pl.DataFrame
    columns: tuple[str, ...]
    tables: Mapping[str, pl.DataFrame]
    config: NonLeakingConfig
    vectors: Located | None

    @property
    def ids(self) -> pl.Series:
        return self.examples["example_id"]

    @property
    def bounds(self) -> Bounds:
        rows, shares = len(self.ids), self.config.shares
        return Bounds(room(rows, shares, self.config.epsilon), max(1, int(min(shares) * rows)))

    def tied(self) -> tuple[Together, Kept | None, bool]:
        """Return what must stay together, what was cut, and whether the engine has to be told."""
        config = self.config
        if config.by == "components" and not (self.columns or {"pairs", "components"} & set(self.tables)):
            raise UsageError(
                "nothing says which rows belong together",
                where=WHERE,
                expected="near-duplicates (pairs), groups (keep_together), or vectors",
                remedy="measure near_duplicates first; or say keep_together: COLUMN; or by: kmeans with features: NAME",
            )
        if config.by != "single":
            whole = together(self.examples, self.columns, self.tables)
            if config.oversize != "cut" or _largest(whole) <= self.bounds.largest:
                return whole, None, False
        near = linked(self.vectors, self.ids, config.threshold) if config.by == "single" and self.vectors else None
        pairs = all_pairs(self.tables, near)
        if pairs is None:  # groups alone, which are not cut
            return whole, None, False
        whole, kept = together(self.examples, self.columns, {"pairs": pairs}), None
        if config.oversize == "cut" and _largest(whole) > self.bounds.largest:
            kept = cut_pairs(pairs, self.ids, self.bounds)
            whole = together(self.examples, self.columns, {"pairs": kept.kept.select("left_id", "right_id")})
        return whole, kept, True

    def marks(self, whole: Together, kept: Kept | None, seed: int) -> Marks:
        """Mark the rows of one seed."""
        config, ids, vectors = self.config, self.ids, self.vectors
        before = released_places(self.tables.get("frozen"), ids, seed)
        rank = np.array([0, 1, 3, 2])[before + 1]  # test_ood counts before validation_ood, and that before the rest
        unit = whole.key.rank("dense").cast(pl.Int64).to_numpy() - 1
        if config.by in ("kmeans", "average") and vectors is not None:
            unit = self._clusters(vectors, unit, before, rank, seed)
        count = int(unit.max(initial=-1)) + 1
        used = np.flatnonzero(unit >= 0)
        first = np.full(count, -1, np.int64)
        first[unit[used[::-1]]] = used[::-1]
        label, size = ids.gather(first), np.bincount(unit[used], minlength=count)
        fixed = fixed_places(unit, before, rank, count)
        released = fixed >= 0
        values, stratum = self._strata()
        per_stratum = [np.bincount(unit[used][stratum[used] == one], minlength=count) for one in range(len(values))]
        rows = np.stack([size, *per_stratum], axis=1).astype(np.int64)
        giants, told = (np.zeros(0, np.int64), []) if released.any() else too_large(size, label, config)
        rows[giants], fixed[giants] = 0, 0
        similarity = None
        if vectors is not None and count <= SEARCHED:
            similarity = mean_similarity(vectors.unit, unit[vectors.row], count)
        units = Units(
            names=whole.key.gather(first),
            rows=rows,
            shares=config.shares,
            epsilon=config.epsilon,
            delta=config.delta,
            fixed=fixed,
            mass=size.astype(np.int64),
            similarity=similarity,
        )
        packed = pack(units, seed, "split non_leaking place")
        told += sizes_told(units, packed, label, values, config, released=bool(released.any()))
        told += parted_told(kept, unit, packed)
        marks = marked(ids, unit, units, packed, label, released, before, vectors, config.margin)
        return replace(marks, warnings=tuple(told))

    def _clusters(self, vectors: Located, component: Ints, before: Ints, rank: Ints, seed: int) -> Ints:
        """Number clusters of whole components, -1 for rows in none."""
        config = self.config
        bounds = self.bounds if config.oversize == "cut" else None
        cluster = by_means(seed, bounds) if config.by == "kmeans" else by_average(config.threshold, bounds)
        wanted = config.clusters or min(MOST_CLUSTERS, max(2, round(len(self.ids) ** 0.5)))
        found = whole_clusters(clustered(vectors, self.ids, cluster, wanted, before), component, rank)
        held = found >= 0
        found[held] = np.unique(found[held], return_inverse=True)[1]
        return found

    def _strata(self) -> tuple[pl.Series, Ints]:
        """Return the values of the strata, sorted, and the number of each row's; no values where there are none."""
        column = self.config.stratify
        if column is None:
            return pl.Series([], dtype=pl.String), np.zeros(len(self.ids), np.int64)
        stratum = self.examples[column].cast(pl.String).fill_null("null")
        values = stratum.unique().sort()
        if len(values) > _STRATA:
            raise UsageError(
                f"the column {column!r} has {len(values):,} values",
                where=WHERE,
                expected=f"at most {_STRATA} strata",
                remedy="stratify by a coarser column",
            )
        return values, stratum.rank("dense").cast(pl.Int64).to_numpy() - 1


def _features(tables: Mapping[str, pl.DataFrame], config: NonLeakingConfig) -> str:
    """Return the features to compare rows by: those named, or the only ones at hand; none where they are not needed."""
    if config.features:
        return config.features
    known = [table.removeprefix("features_") for table in tables if table.startswith("features_")]
    if len(known) != 1 and config.compares:
        known = features_at_hand(tables, WHERE)
        if len(known) > 1:
            raise UsageError("there are several features", where=WHERE, expected="features: one of " + ", ".join(known))
    return known[0] if len(known) == 1 else ""


def _largest(whole: Together) -> int:
    """Return the rows of the largest component."""
    return int(whole.key.value_counts()["count"].max())  # type: ignore[arg-type]

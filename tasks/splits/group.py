"""Group split: entities kept whole, so that test holds entities that training never saw."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, Marks, build
from gradatim.tasks.splits.inputs import phrase, prepare
from gradatim.tasks.splits.result import Split

SOURCE = (
    "Roberts et al. (2017). Cross-validation strategies for data with temporal, spatial, hierarchical, or "
    "phylogenetic structure."
)


class GroupConfig(SplitConfig):
    """Settings of a group split."""

    column: str = Field("group", description="column that names the entity: author, patient, template, source file")


@register(
    "split",
    "group",
    config=GroupConfig,
    needs=("examples.{column}", "examples.{keep_together}"),
    cost=lambda rows, width: Cost(2.5e-6 * rows, 350 * rows),
    source=SOURCE,
    revision=2,
)
def run(tables: Mapping[str, pl.DataFrame], config: GroupConfig, seed: int) -> Split:
    """Cut whole entities at random into train, validation and test."""
    examples = prepare(tables, "group", config)
    entity = examples[config.column].cast(pl.String)
    entities = entity.drop_nulls().n_unique()
    if entities < 2:
        raise DataRefused(
            f"the column {config.column!r} holds {entities} entities; a group split needs two or more",
            where="split group",
            remedy="name another column",
        )
    known = entity.is_not_null()
    null = phrase(f"{config.column} is null").new_from_index(0, len(examples))
    reason = phrase(f"{config.column} ", entity, " drawn whole", when=known, otherwise=null)
    marks = Marks(side=np.where(known.to_numpy(), IN, NEITHER).astype(np.int8), reason=reason)
    together = tuple(dict.fromkeys((config.column, *(config.keep_together or ()))))
    return build(
        examples,
        lambda _: [marks],
        config,
        seed,
        tables,
        method="group",
        axis=config.column,
        source=SOURCE,
        together=together,
    )

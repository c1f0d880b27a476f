"""Depth of a tree: levels below its root."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.trees import node_levels
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.structure.structures import TreeConfig, read_structures

SOURCE = "a count of the tree itself"


@register(
    "difficulty",
    "tree_depth",
    config=TreeConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.2 + 3e-6 * rows, bytes=1e8 + 1.5e3 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: TreeConfig, seed: int = 0) -> Difficulty:
    """Levels of an example's tree below its root.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column of trees `config.of`.
    config : TreeConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are the depth: 0 for a single node; n the nodes. Rows without a tree are excluded.

    Raises
    ------
    UsageError
        If there is no such column or it holds no trees.
    DataRefused
        For what is no tree; names the examples.
    """
    read = read_structures(tables, config.of, f"difficulty tree_depth: of: {config.of}")
    forest = read.trees.forest
    depth = np.maximum.reduceat(node_levels(forest)[0], forest.offsets[:-1])[read.trees.tree].astype(np.float64)
    return build(
        method=method_name("tree_depth", config.model_dump(exclude={"bins"}), TreeConfig().model_dump()),
        title=f"depth of {config.of}",
        ids=read.ids,  # type: ignore[arg-type]
        value=depth,
        raw=depth,
        scale="levels",
        n=forest.size[read.trees.tree],
        bins=config.bins,
        excluded=read.excluded,
        source=SOURCE,
    )

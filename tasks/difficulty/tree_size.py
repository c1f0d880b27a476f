"""Size of a tree: its nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.structure.structures import TreeConfig, read_structures

SOURCE = "a count of the tree itself"


@register(
    "difficulty",
    "tree_size",
    config=TreeConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.2 + 3e-6 * rows, bytes=1e8 + 1.5e3 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: TreeConfig, seed: int = 0) -> Difficulty:
    """Nodes of an example's tree: rules applied, where it is a derivation.

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
        value, raw and n are the number of nodes. Rows without a tree are excluded.

    Raises
    ------
    UsageError
        If there is no such column or it holds no trees.
    DataRefused
        For what is no tree; names the examples.
    """
    read = read_structures(tables, config.of, f"difficulty tree_size: of: {config.of}")
    size = read.trees.forest.size[read.trees.tree]
    return build(
        method=method_name("tree_size", config.model_dump(exclude={"bins"}), TreeConfig().model_dump()),
        title=f"size of {config.of}",
        ids=read.ids,  # type: ignore[arg-type]
        value=size.astype(np.float64),
        raw=size.astype(np.float64),
        scale="nodes",
        n=size,
        bins=config.bins,
        excluded=read.excluded,
        source=SOURCE,
    )

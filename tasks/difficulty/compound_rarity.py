"""Rarity of the compounds of a tree: how seldom its combinations of rules stand in the training examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.compounds import LARGEST, compounds
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.structure.structures import read_structures

SOURCE = (
    "D. Keysers et al. (2020). Measuring compositional generalization: a comprehensive method on realistic data. ICLR"
)


class CompoundRarityConfig(Config):
    """Settings of `compound_rarity`."""

    of: str = Field("structure", min_length=1, description="column of trees")
    max_size: int = Field(3, ge=2, le=LARGEST, description="most nodes in a compound")
    over: Literal["mean", "max"] = Field("mean", description="the mean over the tree's compounds, or the rarest one")
    smoothing: float = Field(1.0, gt=0, le=1000, description="added to each compound's count")
    reference: str | None = Field(None, description="column that names the training rows; without it all rows are")
    reference_value: str | int | bool | None = Field(
        None, description="its value there; by default true, or train where the column is no truth"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "compound_rarity",
    config=CompoundRarityConfig,
    needs=("examples.{of}", "examples.{reference}"),
    cost=lambda rows, width: Cost(seconds=0.5 + 1.6e-5 * rows, bytes=1e8 + 2.5e3 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: CompoundRarityConfig, seed: int = 0) -> Difficulty:
    """Mean or greatest negative log frequency of the compounds of an example's tree in the other training examples.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id, the column of trees `config.of` and, where it is given, `config.reference`.
    config : CompoundRarityConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are -log p in nats, the mean over all compounds of the tree (each occurrence counts) or the
        greatest; n the occurrences. `details` names the rarest compound. Rows without a tree, and trees of one node,
        which have no compound, are excluded.

    Raises
    ------
    UsageError
        If a column is missing or holds no trees, no row is a training row, or a tree has too many compounds.
    DataRefused
        For what is no tree (names the examples), or if no tree has two nodes.

    Notes
    -----
    p(G) = (c(G) + smoothing) / (sum over G of c(G) + smoothing x M), c(G) the occurrences of compound G in the training
    rows *other than the example itself*, M the different compounds of all rows. Compounds are connected sub-graphs of 2
    to max_size nodes; frequencies are not weighted.
    """
    where = f"difficulty compound_rarity: of: {config.of}"
    read = read_structures(tables, config.of, where, config.reference, config.reference_value)
    found = compounds(read.trees, config.max_size)
    number = np.diff(found.indptr)
    if not number.any():
        raise DataRefused("no tree has two nodes", where=where, expected="a compound in some rows")
    line = found.line
    times = np.bincount(line, found.count, len(number))  # occurrences in each tree
    total = found.totals(read.reference)
    value, rarest = np.zeros((2, len(number))), np.zeros((2, len(number)), dtype=np.int64)
    # a tree may stand in training rows, which do not count themselves, and in others
    for itself in (0, 1):
        other = np.maximum(total[found.code] - itself * found.count, 0.0)
        all_others = np.maximum(total.sum() - itself * times, 0.0)
        nats = np.log(all_others + config.smoothing * found.size)[line] - np.log(other + config.smoothing)
        order = np.lexsort((found.code, -np.round(nats, 9), line))
        first = order[found.indptr[:-1][number > 0]]
        rarest[itself, number > 0] = found.code[first]
        if config.over == "max":
            value[itself, number > 0] = nats[first]
        else:
            value[itself] = np.bincount(line, nats * found.count, len(number)) / np.maximum(times, 1.0)
    tree, itself_too = found.tree, read.reference.astype(np.int64)
    there = number[tree] > 0
    nats_of_row = value[itself_too, tree][there]
    alone = read.ids.filter(pl.Series(~there))
    told = pl.DataFrame({"rarest": found.names().gather(rarest[itself_too, tree][there])})
    return build(
        method=method_name(
            "compound_rarity",
            config.model_dump(exclude={"bins"}, exclude_none=True),
            CompoundRarityConfig().model_dump(),
        ),
        title=f"{config.over} rarity of compounds of {config.of}",
        ids=read.ids.filter(pl.Series(there)),  # type: ignore[arg-type]
        value=nats_of_row,
        raw=nats_of_row,
        scale="nats",
        n=times[tree][there].astype(np.int64),
        details=told.select(pl.struct("rarest").struct.json_encode()).to_series(),  # type: ignore[arg-type]
        bins=config.bins,
        excluded=pl.concat(
            [read.excluded, alone.to_frame("example_id").with_columns(reason=pl.lit("a tree of one node: no compound"))]
        ).sort("example_id"),
        notes={
            "training rows": int(read.reference.sum()),
            "compounds": found.size,
            "of them in training": int((total > 0).sum()),
        },
        source=SOURCE,
    )

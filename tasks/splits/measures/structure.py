"""How far the atoms and compounds of trees differ between train and test."""

from __future__ import annotations

import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.divergences import split_divergences
from gradatim.tasks.core.trees import problems
from gradatim.tasks.splits.measures.block import Block, Measured

MAX_SIZE = 5
MOST = 20_000
"""Rows of a side that are looked at; the controls' are as many, so that what a sample adds is in both."""


def structure(block: Block) -> Measured:
    """Return ``atom_divergence`` and ``compound_divergence`` (compounds of up to five nodes), train against the test.

    Empty where no column `structure` holds trees, or a tree has too many parts. Rows whose tree is null or unsound do
    not count; None where a side has no compounds.
    """
    if not block.has("structure") or not isinstance(block.rows["structure"].dtype, pl.List):
        return {}
    rows = pl.concat([part.select("example_id", "split", "structure") for part in (block.train, block.compared)])
    rows = rows.drop_nulls("structure")
    if rows.is_empty():
        return {}
    try:
        rows = rows.filter(problems(rows["structure"]).is_null())
        found = split_divergences(rows, rows["split"], max_size=MAX_SIZE, most=MOST, seed=block.seed)
    except UsageError:  # lists of something else, or trees of too many parts
        return {}
    n = found.train + found.test
    return {"atom_divergence": (found.atom, n), "compound_divergence": (found.compound, n)}

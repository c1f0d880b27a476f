"""The rule of unobserved local structures on any split: how many of its test rows are hard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.distinct_trees import distinct
from gradatim.tasks.core.local_structures import local_structures
from gradatim.tasks.splits.result import Split

TESTED = ("validation", "validation_ood", "test", "test_ood")


def hard_rates(
    split: Split | pl.DataFrame, examples: pl.DataFrame, *, of: str = "structure", n: Sequence[int] = (2, 3)
) -> pl.DataFrame:
    """Count the rows of each split that hold a local structure which no training row holds: those are hard.

    Parameters
    ----------
    split : Split or polars.DataFrame
        A split, or rows of one: example_id and split, and where there are several of them seed and fold.
    examples : polars.DataFrame
        example_id, and trees in the column `of`.
    of : str
    n : sequence of int, 2 to 6
        Most symbols in a structure. The rule of the paper is n = 2; n = 3 calls hard what models can do too.

    Returns
    -------
    polars.DataFrame
        seed, fold, split, n, rows (with a tree), hard (their number), rate (hard / rows).

    Notes
    -----
    About 5 s per million different trees and n, and some 0.3 s per fold.

    Source: Bogin, Gupta & Berant (2022). Unobserved Local Structures Make Compositional Generalization Hard.
    """
    table = split.main if isinstance(split, Split) else split
    for column in ("example_id", "split"):
        if column not in table.columns:
            raise UsageError(f"the split has no column {column!r}", expected="example_id and split")
    for column in ("example_id", of):
        if column not in examples.columns:
            raise UsageError(f"the examples have no column {column!r}", expected=f"example_id and {of}")
    for column in ("seed", "fold"):
        if column not in table.columns:
            table = table.with_columns(pl.lit(0, pl.Int64).alias(column))
    trees = distinct(examples[of], examples["example_id"], where=of)
    place = examples.select("example_id").with_row_index("place")
    rows = table.join(place, on="example_id", how="inner").sort("seed", "fold", "place")
    found = {one: local_structures(trees, one) for one in n}
    lines = []
    for key, part in rows.group_by("seed", "fold", maintain_order=True):
        where, name = part["place"].to_numpy(), part.get_column("split")
        trained = np.zeros(len(examples), np.bool_)
        trained[where[(name == "train").to_numpy()]] = True
        for one, pieces in found.items():
            unseen = pieces.examples(trained) == 0
            hard = np.bincount(pieces.line[unseen[pieces.code]], minlength=len(trees)) > 0
            for tested in TESTED:
                line = trees.tree[where[(name == tested).to_numpy()]]
                line = line[line >= 0]
                if len(line):
                    count = int(hard[line].sum())
                    lines.append((*key, tested, one, len(line), count, count / len(line)))
    schema = {"seed": pl.Int64, "fold": pl.Int64, "split": pl.String, "n": pl.Int64, "rows": pl.Int64, "hard": pl.Int64}
    return pl.DataFrame(lines, schema={**schema, "rate": pl.Float64}, orient="row")

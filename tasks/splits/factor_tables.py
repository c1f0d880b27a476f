"""What a split of factor combinations leaves train with: covered cells, nearest trained cell, and what is held out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from gradatim.tasks.core.factor_cells import MOST_JOINED, Factors, count_cells, fewest_differences, read_factors
from gradatim.tasks.splits.inputs import with_factors
from gradatim.tasks.splits.measures.block import Measured
from gradatim.tasks.splits.result import Split


def coverage(split: Split, examples: pl.DataFrame, columns: Sequence[str], r: int | None = None) -> pl.DataFrame:
    """Say how many of the possible cells of r factors train has, and how evenly.

    Parameters
    ----------
    split : Split
    examples : polars.DataFrame
        With example_id and the columns, or factors, named.
    columns : sequence of str
    r : int, optional
        Factors in a cell; all columns by default.

    Returns
    -------
    polars.DataFrame
        A row for each seed, fold and set of r factors: seed, fold, factors, possible (values of all rows multiplied),
        seen (cells with a training row), coverage (seen / possible), entropy (nats, of training rows over cells; at
        most the logarithm of possible).
    """
    lines = []
    for seed, fold, _, found, trained in _folds(split, examples, columns):
        for cells in count_cells(found, r or len(found.names), trained):
            total = int(cells.counts.sum())
            entropy = (
                math.fsum(-n / total * math.log(n / total) for n in sorted(cells.counts.tolist())) if total else 0.0
            )
            names = ", ".join(found.names[place] for place in cells.factors)
            seen = len(cells.seen)
            lines.append((seed, fold, names, cells.possible, seen, seen / cells.possible, entropy))
    schema = {
        "seed": pl.Int64, "fold": pl.Int32, "factors": pl.String, "possible": pl.Int64, "seen": pl.Int64,
        "coverage": pl.Float64, "entropy": pl.Float64,
    }  # fmt: skip
    return pl.DataFrame(lines, schema=schema, orient="row")


def nearest_train(split: Split, examples: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Say of each row of test_ood in how many factors the nearest training row differs.

    Returns
    -------
    polars.DataFrame
        seed, fold, example_id, distance (Hamming: from 0 to the number of columns; two nulls agree).

    Raises
    ------
    UsageError
        For more than sixteen columns; see `fewest_differences`.
    """
    parts = []
    for seed, fold, block, found, trained in _folds(split, examples, columns):
        outside = (block["split"] == "test_ood").to_numpy()
        away = fewest_differences(found.codes[trained], found.codes[outside])
        ids = block["example_id"].filter(pl.Series(outside))
        part = pl.DataFrame({"example_id": ids, "distance": away})
        parts.append(part.select(pl.lit(seed).alias("seed"), pl.lit(fold, pl.Int32).alias("fold"), pl.all()))
    return pl.concat(parts)


def held_out_cells(split: Split) -> pl.DataFrame:
    """List what is held out: seed, fold, held_out, rows; a row that has several counts for each."""
    named = split.main.drop_nulls("held_out").select("seed", "fold", pl.col("held_out").str.split("; "))
    return (
        named.explode("held_out").group_by("seed", "fold", "held_out").agg(rows=pl.len().cast(pl.Int64)).sort(pl.all())
    )


def factor_measures(split: Split, examples: pl.DataFrame) -> dict[tuple[int, int], Measured]:
    """Measure what a strategy over `columns` leaves train with.

    Returns
    -------
    dict
        By seed and fold: ``factor_coverage``, the share of possible cells that train has (mean over sets of factors),
        and ``factor_distance``, the mean number of factors in which a row of test_ood differs from the nearest in
        train.
        Empty for a strategy without a setting `columns`, and for more than sixteen of them.
    """
    config = split.config
    columns = config.columns if "columns" in type(config).model_fields else ()
    if not columns or len(columns) > MOST_JOINED:
        return {}
    found: dict[tuple[int, int], Measured] = {}
    cells = coverage(split, examples, columns, getattr(config, "r", None))
    for (seed, fold), part in cells.partition_by("seed", "fold", as_dict=True).items():
        found[seed, fold] = {"factor_coverage": (math.fsum(part["coverage"]) / len(part), int(part["seen"].sum()))}
    for (seed, fold), part in (
        nearest_train(split, examples, columns).partition_by("seed", "fold", as_dict=True).items()
    ):
        found[seed, fold]["factor_distance"] = (int(part["distance"].sum()) / len(part), len(part))
    return found


def _folds(
    split: Split, examples: pl.DataFrame, columns: Sequence[str]
) -> Iterator[tuple[int, int, pl.DataFrame, Factors, np.ndarray]]:
    """Go through seeds and folds: both, the block, the factors of its rows, and which of them are trained on."""
    frame = with_factors(examples, list(columns)).select(pl.col("example_id").cast(pl.String), *columns)
    for (seed, fold), block in sorted(split.main.partition_by("seed", "fold", as_dict=True).items()):
        rows = block.join(frame, on="example_id", how="left", maintain_order="left")
        yield seed, fold, block, read_factors(rows, columns), (block["split"] == "train").to_numpy()

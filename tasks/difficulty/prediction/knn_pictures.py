"""Pictures of `knn`: whether difficulty is local, and how many neighbours are best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.neighbours import Neighbours
from gradatim.tasks.difficulty.prediction.labelled import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tried:
    """One number of neighbours on the held-out examples: rank correlation (NaN if constant) and mean squared error."""

    k: int
    spearman: float
    mse: float


def compare_pairs(near: Neighbours, known: Floats, chosen: Ints, matrix: NDArray[np.float32]) -> pl.DataFrame:
    """Compare held-out examples with their neighbours, and with one other each."""
    row, column = np.nonzero(near.index >= 0)
    distance = [1.0 - near.measure[row, column]]
    difference = [np.abs(known[chosen[row]] - known[near.index[row, column]])]
    kind = ["neighbours"] * len(row)
    if len(chosen) > 1:
        other = np.roll(chosen, len(chosen) // 2)
        a, b = matrix[chosen].astype(np.float64), matrix[other].astype(np.float64)
        lengths = np.sqrt(np.einsum("nd,nd->n", a, a) * np.einsum("nd,nd->n", b, b))
        distance.append(1.0 - np.einsum("nd,nd->n", a, b) / lengths)
        difference.append(np.abs(known[chosen] - known[other]))
        kind += ["random pairs"] * len(chosen)
    frame = pl.DataFrame(
        {"pairs": kind, "cosine distance": np.concatenate(distance), "difference": np.concatenate(difference)}
    )
    return pl.concat([_binned(part) for part in frame.partition_by("pairs", maintain_order=True)])


def _binned(pairs: pl.DataFrame, bins: int = 20) -> pl.DataFrame:
    """Cut pairs into equal-count bins of distance: mean distance, mean difference and its quartiles."""
    ordered = pairs.with_columns(pl.col("cosine distance").round(9), pl.col("difference").round(9))
    ordered = ordered.sort("cosine distance", "difference")
    cut = pl.int_range(pl.len()) * min(bins, max(1, len(pairs) // 5)) // pl.len()
    return (
        ordered.group_by("pairs", cut.alias("bin"), maintain_order=True)
        .agg(
            pl.col("cosine distance").mean(),
            pl.col("difference").mean(),
            low=pl.col("difference").quantile(0.25),
            high=pl.col("difference").quantile(0.75),
        )
        .drop("bin")
    )


def draw_locality(pairs: pl.DataFrame, scale: str) -> Any:
    """Draw the difference of difficulties over the distance of vectors."""
    from gradatim.tasks.core.charts import lines

    y = f"mean difference ({scale})"
    frame = pairs.rename({"difference": y})
    return lines(frame, x="cosine distance", y=y, color="pairs", low="low", high="high", title="Is difficulty local?")


def draw_choice(tried: list[Tried]) -> Any:
    """Draw the held-out rank correlation over the number of neighbours."""
    from gradatim.tasks.core.charts import lines

    frame = pl.DataFrame({"neighbours": [t.k for t in tried], "held-out rank correlation": [t.spearman for t in tried]})
    return lines(frame, x="neighbours", y="held-out rank correlation", title="How many neighbours")

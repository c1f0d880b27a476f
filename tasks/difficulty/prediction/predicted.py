"""What methods share that predict difficulties: own and predicted values in one frame, and who got none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from gradatim.tasks.difficulty.prediction.labelled import Labels

COLUMNS = ("example_id", "value", "standard_error", "low", "high", "n", "flag", "details")


def with_own(predicted: pl.DataFrame, labels: Labels, keep: bool) -> pl.DataFrame:
    """Lay predicted rows and, if `keep`, the labelled ones' own together: the columns `COLUMNS`, sorted by id.

    Probabilities are kept inside of [0, 1]. An own value without a standard error is its own interval.
    """
    if labels.scale == "probability":
        predicted = predicted.with_columns(pl.col("value", "low", "high").clip(0.0, 1.0))
    if not keep:
        return predicted.select(COLUMNS).sort("example_id")
    around = 1.96 * pl.col("standard_error").fill_null(0.0)
    own = labels.table.select(
        "example_id",
        "value",
        "standard_error",
        low=pl.col("value") - around,
        high=pl.col("value") + around,
        n=pl.lit(1, pl.Int64),
        flag="flag",
        details=pl.lit('{"origin":"own"}'),
    )
    return pl.concat([predicted.select(COLUMNS), own]).sort("example_id")


def left_out(
    tables: Mapping[str, pl.DataFrame], frame: pl.DataFrame, known: Sequence[pl.Series], reason: str
) -> pl.DataFrame:
    """List the examples, of the table of that name and of the series `known`, that have no row in `frame`."""
    parts = list(known)
    if "examples" in tables:
        parts.append(tables["examples"]["example_id"].cast(pl.String))
    everyone = pl.DataFrame({"example_id": pl.concat([part.rename("example_id") for part in parts]).unique()})
    gone = everyone.join(frame, on="example_id", how="anti").sort("example_id")
    return gone.with_columns(reason=pl.lit(reason))

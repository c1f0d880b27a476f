"""What a score is worth without the evaluation rows that stand in the training data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.intervals import paired_cluster_bootstrap

_SCHEMA = {
    "respondent_id": pl.String,
    "level": pl.Float64,
    "score": pl.Float64,
    "score_without": pl.Float64,
    "difference": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "flagged": pl.Int64,
    "n": pl.Int64,
}


def scores_without_flagged(
    found: pl.DataFrame,
    scores: pl.DataFrame,
    *,
    levels: Sequence[float] = (100.0, 90.0, 80.0, 70.0),
    seed: int = 0,
) -> pl.DataFrame:
    """Report each respondent's score with and without the flagged rows, at each level.

    Parameters
    ----------
    found : polars.DataFrame
        example_id and value, the similarity in [0, 1]: the table `diversity` of `contamination`. Rows without a value
        (texts without a word) are no part of either score.
    scores : polars.DataFrame
        example_id and score in [0, 1]; respondent_id, or run_id as in the table `predictions`, where there are
        several. Several attempts at an example count as one cluster.
    levels : sequence of float
        A row is flagged at a level if 100 times its similarity reaches it.
    seed : int

    Returns
    -------
    polars.DataFrame
        respondent_id, level, score, score_without, difference (without less with), its 95 % interval ci_low and
        ci_high, flagged and n (examples with a score), sorted by respondent, then from the highest level down. Without
        a flagged row the difference is 0 and has no interval; without a clean one there is no score without.

    Notes
    -----
    Both scores are of the same rows, so the interval of the difference is that of a paired bootstrap over examples.
    """
    for name, frame in (("value", found), ("score", scores)):
        for column in ("example_id", name):
            if column not in frame.columns:
                raise UsageError(
                    f"there is no column {column!r}{nearest(column, frame.columns)}",
                    where="contamination",
                    expected=f"example_id and {name}",
                )
    who = next((name for name in ("respondent_id", "run_id") if name in scores.columns), None)
    named = pl.col(who).cast(pl.String) if who else pl.lit("all")
    kept = scores.select(named.alias("respondent_id"), "example_id", pl.col("score").cast(pl.Float64))
    wrong = kept.filter(pl.col("score").is_not_null() & ~pl.col("score").is_between(0, 1))
    if len(wrong):
        raise DataRefused(
            f"{len(wrong):,} scores are not in [0, 1], first that of {wrong['example_id'].min()!r}",
            where="contamination",
            expected="scores from 0 to 1",
        )
    summed = (
        kept.drop_nulls("score")
        .group_by("respondent_id", "example_id")
        # sums of floats depend on their order: attempts are sorted
        .agg(total=pl.col("score").sort().sum(), attempts=pl.len())
        .join(found.select("example_id", "value").drop_nulls(), on="example_id")
        .sort("respondent_id", "example_id")
    )
    rows = [
        _compared(str(name[0]), part, level, seed)
        for name, part in summed.group_by("respondent_id", maintain_order=True)
        for level in sorted(levels, reverse=True)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _compared(name: str, part: pl.DataFrame, level: float, seed: int) -> tuple[str | float | int | None, ...]:
    total, attempts = part["total"].to_numpy(), part["attempts"].to_numpy().astype(np.float64)
    clean = part["value"].to_numpy() * 100 < level - 1e-9
    flagged = int((~clean).sum())
    score = float(total.sum() / attempts.sum())
    if not flagged:
        return name, level, score, score, 0.0, None, None, 0, len(part)
    if flagged == len(part):
        return name, level, score, None, None, None, None, flagged, len(part)
    difference = paired_cluster_bootstrap((total * clean, attempts * clean), (total, attempts), seed=seed)
    without = float(total[clean].sum() / attempts[clean].sum())
    return name, level, score, without, difference.value, difference.low, difference.high, flagged, len(part)

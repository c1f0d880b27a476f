"""Scores of models that never saw the split, and the smallest gap that its tests can show."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from gradatim.tasks.splits.measures.block import Block, Measured

MOST_MODELS = 200
"""Models whose scores are listed one by one: those with the most answers."""
UNITS = 10**9
"""Scores are summed as whole numbers of a billionth, so that a sum is the same whatever the threads."""
_Z_POWER_80 = 1.959963984540054 + 0.8416212335729143
"""Normal quantiles for a two-sided test at 5 % with a power of 80 %."""


def scores(block: Block) -> Measured:
    """Return zero-shot scores and what the sizes can show.

    Returns
    -------
    dict
        ``score:SPLIT`` and ``score_gap`` (test_ood less test) of the mean over models; ``score:SPLIT:MODEL`` of the
        tests and ``score_gap:MODEL``; ``detectable_gap``.
    """
    found: Measured = {}
    if block.has("score"):
        for name, part in block.parts.items():
            if len(known := part["score"].drop_nulls()):
                found[f"score:{name}"] = (math.fsum(known.to_list()) / len(known), len(known))
    if block.answers is not None:
        found |= _by_model(block, block.answers)
    for name in [name for name in found if name.startswith("score:test:") or name == "score:test"]:
        inside, outside = found[name], found.get(name.replace("score:test", "score:test_ood", 1))
        if outside is not None and inside[0] is not None and outside[0] is not None:
            gap = "score_gap" + name.removeprefix("score:test")
            found[gap] = (outside[0] - inside[0], inside[1] + outside[1])
    sides = [block.parts["test"], block.parts["test_ood"]]
    if all(map(len, sides)):
        found["detectable_gap"] = (detectable_gap(*(independent(side) for side in sides)), sum(map(len, sides)))
    return found


def _by_model(block: Block, answers: pl.DataFrame) -> Measured:
    codes = {"test": 1, "test_ood": 2}
    places = np.zeros(int(answers["row"].max() or 0) + 1, np.uint8)  # type: ignore[arg-type]
    tests = block.rows.filter(pl.col("split").is_in(list(codes)) & (pl.col("row") < len(places)))
    places[tests["row"].to_numpy()] = tests["split"].replace_strict(codes, return_dtype=pl.UInt8).to_numpy()
    placed = answers.with_columns(place=pl.Series(places[answers["row"].to_numpy()]))
    mean = (
        placed.filter(pl.col("place") > 0).group_by("place", "respondent_id")
        .agg((pl.col("score").sum() / pl.len() / UNITS).alias("mean"), pl.len())
        .sort("place", "respondent_id")
    )  # fmt: skip
    names = {code: name for name, code in codes.items()}
    return {f"score:{names[place]}:{model}": (value, n) for place, model, value, n in mean.iter_rows()}


def known_answers(responses: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Return each model's mean score on each example, of the models with the most answers.

    Parameters
    ----------
    responses : polars.DataFrame
        respondent_id, example_id, score.
    examples : polars.DataFrame
        example_id and ``row``, its place.

    Returns
    -------
    polars.DataFrame
        respondent_id, row, score in whole `UNITS`, whose sums do not depend on their order.
    """
    models = responses.group_by("respondent_id").len().sort(["len", "respondent_id"], descending=[True, False])
    few = responses.drop_nulls("score")
    if len(models) > MOST_MODELS:
        few = few.filter(pl.col("respondent_id").is_in(models["respondent_id"].head(MOST_MODELS).implode()))
    joined = few.select("respondent_id", "example_id", score=whole("score")).join(
        examples.select("example_id", "row"), on="example_id"
    )
    mean = joined.group_by("respondent_id", "row").agg(pl.col("score").sum() // pl.len())
    return mean


def whole(column: str) -> pl.Expr:
    """Return scores in whole `UNITS`."""
    return (pl.col(column).cast(pl.Float64) * UNITS).round().cast(pl.Int64)


def independent(rows: pl.DataFrame) -> float:
    """Return how many independent rows these are worth at least: (sum of group sizes)^2 / sum of their squares.

    As if the rows of a group were all alike; a row without a group stands alone (Kish's effective sample size).
    """
    groups = rows["component"].drop_nulls()
    size = groups.value_counts()["count"].to_numpy().astype(np.float64)
    alone = len(rows) - len(groups)
    return float(len(rows) ** 2 / ((size**2).sum() + alone))


def detectable_gap(left: float, right: float, rate: float = 0.5) -> float:
    """Return the smallest difference of two rates that a two-sided test at 5 % sees with a power of 80 %.

    Normal approximation for `left` and `right` independent rows at a common `rate`; .5 is the least favourable.
    """
    return _Z_POWER_80 * float(np.sqrt(rate * (1 - rate) * (1 / left + 1 / right)))

"""Scores of models that never saw the split, and the smallest gap that its tests can show."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from gradatim.tasks.splits.measures.block import Block, Measured

MOST_MODELS = 200
"""Models whose scores are listed one by one: those with the most answers."""
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
    models = answers.group_by("respondent_id").len().sort(["len", "respondent_id"], descending=[True, False])
    few = answers.filter(pl.col("respondent_id").is_in(models["respondent_id"].head(MOST_MODELS).implode()))
    tests = block.rows.filter(pl.col("split").is_in(["test", "test_ood"])).select("example_id", "split")
    mean = (
        few.drop_nulls("score").join(tests, on="example_id").group_by("split", "respondent_id")
        .agg(pl.col("score").sort().mean(), pl.len())  # sorted, so that the sum is the same whatever the threads
    )  # fmt: skip
    return {f"score:{split}:{model}": (value, n) for split, model, value, n in mean.iter_rows()}


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

"""Uncertainty measures of one respondent at one example, from the probabilities in every order that was shown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from gradatim.tasks.difficulty.options.orders import canonical

MEASURES = ("gold_probability", "top_probability", "entropy", "margin", "order_sensitivity")


def per_respondent(frame: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Measure each respondent's uncertainty at each example.

    Parameters
    ----------
    frame : polars.DataFrame
        As `option_orders.checked` returns it.
    measure : str
        The one of `MEASURES` whose standard error is wanted.

    Returns
    -------
    polars.DataFrame
        example_id, respondent_id, options (K), orders (O), mass, the `MEASURES`, right (share of orders in which the
        gold option is the likeliest) and error: the jackknife standard error of `measure` over orders. NaN where there
        is none: without gold, and for order_sensitivity and error with one order. Sorted by example and respondent.

    Notes
    -----
    With p the probabilities by option of one order and q their mean over orders: gold_probability and top_probability
    are means over orders of p[gold] and max p; entropy is -sum q log q / log K; margin the difference of the two
    largest q; order_sensitivity 1 - (orders that agree on the likeliest option) / O, where the lowest option wins a
    tie. O(cells).
    """
    found = [_block(part, chances, measure) for part, chances in canonical(frame)]
    return pl.concat(found).sort("example_id", "respondent_id")


def _block(part: pl.DataFrame, p: np.ndarray, measure: str) -> pl.DataFrame:
    key = part.select("example_id", "respondent_id")
    first = np.flatnonzero(key.select(pl.struct(pl.all()).ne_missing(pl.struct(pl.all()).shift())).to_series())
    group = np.zeros(len(part), dtype=np.int64)
    group[first[1:]] = 1
    group = np.cumsum(group)
    orders = np.bincount(group)
    gold = part["gold"].fill_null(-1).to_numpy()
    of_gold = np.where(gold >= 0, p[np.arange(len(p)), gold], np.nan)
    choice = np.round(p, 9).argmax(axis=1)
    votes = np.zeros((len(first), p.shape[1]))
    np.add.at(votes, (group, choice), 1.0)
    q = np.add.reduceat(p, first, axis=0) / orders[:, None]

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(group, values, len(first)) / orders

    several = orders > 1
    measures = {
        "gold_probability": mean(of_gold),
        "top_probability": mean(p.max(axis=1)),
        "entropy": entropy(q),
        "margin": margin(q),
        "order_sensitivity": np.where(several, 1.0 - votes.max(axis=1) / orders, np.nan),
    }
    error = np.full(len(first), np.nan)
    smooth: dict[str, Callable[[np.ndarray], np.ndarray]] = {"entropy": entropy, "margin": margin}
    if measure != "order_sensitivity" and several.any():
        # the measure without each order in turn
        rest = np.maximum(orders[group] - 1, 1)
        if measure in smooth:
            without = smooth[measure](np.maximum(q[group] * orders[group, None] - p, 0.0) / rest[:, None])
        else:
            single = of_gold if measure == "gold_probability" else p.max(axis=1)
            without = (measures[measure][group] * orders[group] - single) / rest
        square = np.bincount(group, (without - mean(without)[group]) ** 2, len(first))
        error = np.where(several, np.sqrt(square * (orders - 1) / orders), np.nan)
    return part[first].select(
        "example_id",
        "respondent_id",
        "options",
        pl.Series("orders", orders),
        pl.Series("mass", mean(part["mass"].to_numpy())),
        *[pl.Series(name, values) for name, values in measures.items()],
        pl.Series("right", np.where(gold[first] >= 0, mean((choice == gold).astype(np.float64)), np.nan)),
        pl.Series("error", error),
    )


def entropy(q: np.ndarray) -> np.ndarray:
    """Entropy of each row of (m, K) probabilities over that of the uniform distribution: (m,) in [0, 1]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(q > 0, q * np.log(q), 0.0)
    return np.asarray(np.clip(-terms.sum(axis=1) / np.log(q.shape[1]), 0.0, 1.0))


def margin(q: np.ndarray) -> np.ndarray:
    """Largest less second largest of each row of (m, K) probabilities: (m,) in [0, 1]."""
    two = np.partition(q, q.shape[1] - 2, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])

"""Gradient-weight alignment (GWA): does a step on this example strengthen what the last layer says already?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import ordered_sum
from gradatim.tasks.core.registry import register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.dynamics.result import NEEDS, cost, finish
from gradatim.tasks.difficulty.dynamics.table import TOLERANCE, Measure, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, Window, window
from gradatim.tasks.difficulty.result import Difficulty

SOURCE = (
    "F. A. Hölzl, D. Rueckert, G. Kaissis (2025). Gradient-weight alignment as a train-time proxy for generalization "
    "in classification tasks"
)
AGAINST = Measure("alignment", ("alignment",), -pl.col("alignment").cast(pl.Float64), -1.0, 1.0)
UNIFORM = 1.2  # the excess kurtosis of a uniform distribution is -1.2

Floats = NDArray[np.float64]


class GradientAlignmentConfig(DynamicsConfig):
    """Settings of `gradient_alignment`."""


def alignment(hidden: ArrayLike, error: ArrayLike, weights: ArrayLike) -> Floats:
    """Cosine of a step against the last layer's gradient and its weights.

    Parameters
    ----------
    hidden : array, shape (N, D)
        Input h of the last layer, or (D,) for one example.
    error : array, shape (N, C)
        e = softmax(logits) - onehot(gold), the gradient of cross-entropy with respect to the logits; or (C,).
    weights : array, shape (C, D)
        Weights W of the last layer, without the bias.

    Returns
    -------
    numpy.ndarray, shape (N,), float64
        gamma = -h' W' e / (|h| |e| |W|_F + 1e-12), in [-1, 1]. The gradient with respect to W is the outer product
        e h', so this is the cosine of its negative and W. Low or negative: hard, or mislabelled.

    Raises
    ------
    UsageError
        Shapes that do not fit.
    """
    h, e = np.atleast_2d(np.asarray(hidden, np.float64)), np.atleast_2d(np.asarray(error, np.float64))
    w = np.asarray(weights, np.float64)
    if w.ndim != 2 or h.ndim != 2 or e.ndim != 2 or len(h) != len(e) or w.shape != (e.shape[1], h.shape[1]):
        raise UsageError(
            f"hidden {h.shape}, error {e.shape}, weights {w.shape}",
            where="alignment",
            expected="(N, D), (N, C) and (C, D)",
        )
    size = np.sqrt(np.einsum("nd,nd->n", h, h) * np.einsum("nc,nc->n", e, e)) * math.sqrt(float((w * w).sum()))
    gamma: Floats = -np.einsum("nd,nd->n", h, e @ w) / (size + 1e-12)
    return gamma


def gwa(gamma: ArrayLike) -> float:
    """Mean alignment over (excess kurtosis + 1.2): one number for a data set at one epoch.

    Parameters
    ----------
    gamma : array, shape (N,)

    Returns
    -------
    float
        The same for any order. NaN without rows, for equal alignments (no kurtosis), and where the denominator is 0.
        The kurtosis is the fourth central moment over the squared second one, less 3 (biased, as in the authors' code);
        below -1.2 (two lumps) the denominator and with it the sign turn.
    """
    found = np.asarray(gamma, dtype=np.float64).ravel()
    if not len(found):
        return math.nan
    mean = ordered_sum(found) / len(found)
    away = found - mean
    second = ordered_sum(away**2) / len(found)
    if second <= 1e-30:
        return math.nan
    denominator = ordered_sum(away**4) / len(found) / second**2 - 3.0 + UNIFORM
    return mean / denominator if abs(denominator) > 1e-9 else math.nan


@register(
    "difficulty",
    "gradient_alignment",
    config=GradientAlignmentConfig,
    needs=(*NEEDS, "dynamics.alignment"),
    cost=cost,
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, Any], config: GradientAlignmentConfig, seed: int = 0) -> Difficulty:
    """Negative mean alignment of an example's gradient step with the last layer's weights (GWA).

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, alignment; run_id where there are several runs), a frame or lazy frame.
    config : GradientAlignmentConfig
    seed : int
        Seed of the random halves of the runs.

    Returns
    -------
    Difficulty
        value = -mean alignment over epochs, then over runs; raw the mean alignment. `statistics` hold GWA of each run
        and epoch.

    Raises
    ------
    UsageError, DataRefused
        As `dynamics_table.window` and `reduce`.
    """
    where = "difficulty gradient_alignment"
    chosen = window(tables, config, AGAINST.columns, where)
    cells = reduce(chosen, AGAINST, tables, where)
    mean, error = cells.over_runs(cells.mean, standard_error(cells))
    by_epoch = gwa_by_epoch(chosen)
    rows = [
        Statistic(f"epoch {epoch}" if len(chosen.runs) == 1 else f"{run}, epoch {epoch}", "gwa", value, n)
        for run, epoch, value, n in by_epoch.select("run", "epoch", "gwa", "n").iter_rows()
    ]
    known = by_epoch.drop_nulls("gwa").drop_nans("gwa")
    undefined = len(by_epoch) - len(known)
    picture = Picture(
        "Gradient-weight alignment of the training set by epoch; where it falls, the model begins to memorise.",
        partial(draw, known),
    )
    return finish(
        cells,
        config,
        name="gradient_alignment",
        title="gradient-weight alignment",
        scale="negative cosine",
        value=mean,
        raw=-mean,
        error=error,
        by_run=cells.mean,
        seed=seed,
        source=SOURCE,
        flags=[(mean > 0, "steps against the weights: hard, or mislabelled")],
        notes={"GWA at the last epoch": round(float(known["gwa"][-1]), 6)} if len(known) else {},
        warnings=[f"{undefined} epochs have no GWA: alignments are equal, or their kurtosis is -1.2"] * bool(undefined),
        statistics=statistics_table(rows, {"method": "gradient_alignment", **config.model_dump(mode="json")}),
        pictures={"epochs": picture} if len(known) else {},
    )


def gwa_by_epoch(chosen: Window) -> pl.DataFrame:
    """Return run, epoch, gwa and n (alignments that count) of each run and epoch, in that order."""
    usable = pl.col("alignment").cast(pl.Float64).is_between(-1 - TOLERANCE, 1 + TOLERANCE)
    rows = chosen.rows.select(pl.col("run").cast(pl.Int64), "code", pl.col("alignment").cast(pl.Float64), usable=usable)
    found = rows.filter(pl.col("usable").fill_null(False)).drop("usable").collect(engine="streaming")
    group = (found["run"] * len(chosen.epochs) + found["code"]).to_numpy()
    order = np.argsort(group, kind="stable")
    gamma, group = found["alignment"].to_numpy()[order], group[order]
    different, starts, sizes = np.unique(group, return_index=True, return_counts=True)
    values = [gwa(gamma[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    run, code = np.divmod(different, len(chosen.epochs))
    return pl.DataFrame(
        {
            "run": pl.Series(chosen.runs, dtype=pl.String).gather(run),
            "epoch": chosen.epochs[code],
            "gwa": pl.Series(values, dtype=pl.Float64),
            "n": sizes.astype(np.int64),
        }
    )


def draw(by_epoch: pl.DataFrame) -> Any:
    """Draw GWA over epochs, a line a run."""
    from gradatim.tasks.core.charts import lines

    several = by_epoch["run"].n_unique() > 1
    return lines(by_epoch, x="epoch", y="gwa", color="run" if several else None, title="Gradient-weight alignment")

"""Inductive bias of a task by sampling: how rarely a function that fits the training points does well on the others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.format import number
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.task_bias.classified import classified
from gradatim.tasks.difficulty.task_bias.gaussian_process import left_out_errors, median_distance, posterior_losses
from gradatim.tasks.difficulty.task_bias.intrinsic_dimension import sampled
from gradatim.tasks.difficulty.task_bias.noncentral_chi2 import ScaledChi2, fit, log_cdf

SOURCE = "A. Boopathy, W. Yue, J. Hwang, A. Iyer, I. Fiete (2024). Towards exact computation of inductive bias. IJCAI"
WHERE = "difficulty exact_inductive_bias"
MOST, REFITS = 3000, 20
LN2 = float(np.log(2))


class ExactInductiveBiasConfig(Config):
    """Settings of `exact_inductive_bias`."""

    features: str | None = Field(
        None, min_length=1, description="name of the vectors, as in the section features; in a notebook those given"
    )
    label: str = Field(min_length=1, description="column of the examples with the class")
    epsilon: float = Field(
        0.01,
        gt=0,
        allow_inf_nan=False,
        description="mean squared error over the classes' one-hot codes that is aimed at",
    )
    points: int = Field(MOST, ge=20, le=MOST, description="examples that are used; more are sampled")
    test: float = Field(0.5, gt=0, lt=1, description="share of them that is tested, the others are trained on")
    length_scale: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="length scale of the kernel; by default the median distance"
    )
    samples: int = Field(10_000, ge=100, le=1_000_000, description="functions that are drawn")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as there are different values, at most 10")


@register(
    "difficulty",
    "exact_inductive_bias",
    config=ExactInductiveBiasConfig,
    needs=("features_{features}.embedding", "examples.{label}"),
    cost=lambda rows, width: Cost(
        seconds=3 + 1.5e-9 * min(float(rows), MOST) ** 3 + 4e-6 * rows,
        bytes=2e8 + 60.0 * min(float(rows), MOST) ** 2 + 20.0 * rows * max(width, 1),
    ),
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: ExactInductiveBiasConfig, seed: int = 0) -> Difficulty:
    """Inductive bias by sampling Gaussian processes that fit the training points, for up to 3,000 examples.

    Parameters
    ----------
    tables : mapping
        ``features_NAME`` (example_id, embedding) and ``examples`` (example_id and the column `config.label`).
    config : ExactInductiveBiasConfig
    seed : int
        Chooses, with each id, the examples and those tested; and the functions drawn.

    Returns
    -------
    Difficulty
        statistics hold -ln P(test loss <= epsilon) (nats, bits) for functions from the posterior, at epsilon, half and
        twice of it, the law fitted to their losses, and the share that did so well. value of an example is the
        expected squared error at it under the posterior of all other examples used.

    Raises
    ------
    DataRefused, UsageError
        As `classified.classified`; where fewer than ten examples are left to train on or to test, or all losses are
        equal.

    Notes
    -----
    The classes' one-hot codes are the targets, the prior has mean 0 and a radial kernel. O(points^3).
    """
    data = classified(tables, config.features, config.label, WHERE)
    found = len(data.ids)
    order = sampled(data.ids, found, seed)[: config.points]
    cut = round(config.test * len(order))
    if min(cut, len(order) - cut) < 10:
        raise DataRefused(
            f"{len(order) - cut} examples to train on and {cut} to test",
            where=WHERE,
            expected="ten of each or more",
        )
    points = data.matrix.astype(np.float64)
    codes = np.eye(len(data.names))[data.classes]
    length = config.length_scale or median_distance(points[order])
    tested, trained = np.sort(order[:cut]), np.sort(order[cut:])
    random = np.random.Generator(
        np.random.PCG64(int(value_hash({"purpose": "exact_inductive_bias", "seed": seed}), 16))
    )
    losses = posterior_losses(
        points[trained], codes[trained], points[tested], codes[tested], length, samples=config.samples, random=random
    )
    law = fit(losses)
    kept = data.take(order, f"not among the {config.points:,} examples sampled")
    used = np.sort(order)
    value = left_out_errors(points[used], codes[used], length)
    bias = {factor: -log_cdf(factor * config.epsilon, law) for factor in (0.5, 2.0)}
    bias[1.0], error = inductive_bias_of(losses, config.epsilon, law)
    share = float((losses <= config.epsilon).mean())
    return build(
        method=method_name("exact_inductive_bias", config.model_dump(exclude={"bins"}), _defaults()),
        title=f"exact_inductive_bias of {config.label}: {number(bias[1.0] / LN2, 3)} bits",
        ids=kept.ids.to_list(),
        value=value,
        raw=value,
        scale="squared error",
        n=np.full(len(used), len(used) - 1, dtype=np.int64),
        bins=config.bins,
        warnings=_warnings(bias[1.0], share, config),
        excluded=kept.excluded,
        notes=_notes(bias[1.0], error, losses, law, share, length, len(trained), len(tested), found, config),
        statistics=_statistics(bias, error, losses, law, share, len(tested), config),
        source=SOURCE,
    )


def inductive_bias_of(losses: np.ndarray, epsilon: float, law: ScaledChi2 | None = None) -> tuple[float, float]:
    """Return -ln P(loss <= epsilon) in nats and its standard error over `REFITS` bootstrap samples of the losses.

    Parameters
    ----------
    losses : (n,) float64
        Test losses of hypotheses that fit the training data, however they were drawn.
    epsilon : float
        Loss that is aimed at, above 0.
    law : ScaledChi2, optional
        The law fitted to them, where it is known already.
    """
    law = fit(losses) if law is None else law
    ordered, random = np.sort(losses), np.random.Generator(np.random.PCG64(0))
    drawn = [
        -log_cdf(epsilon, fit(ordered[random.integers(0, len(ordered), len(ordered))], law)) for _ in range(REFITS)
    ]
    return -log_cdf(epsilon, law), float(np.std(drawn, ddof=1))


def _defaults() -> dict[str, object]:
    return {name: field.default for name, field in ExactInductiveBiasConfig.model_fields.items()}


def _warnings(bias: float, share: float, config: ExactInductiveBiasConfig) -> list[str]:
    if share * config.samples >= 10:
        return []
    return [
        f"at most {round(share * config.samples)} of {config.samples:,} functions did so well: {bias:.1f} nats rest on "
        "the tail of the fitted law"
    ]


def _notes(
    bias: float,
    error: float,
    losses: np.ndarray,
    law: ScaledChi2,
    share: float,
    length: float,
    trained: int,
    tested: int,
    found: int,
    config: ExactInductiveBiasConfig,
) -> dict[str, Cell]:
    return {
        "inductive bias (nats)": round(bias, 4),
        "inductive bias (bits)": round(bias / LN2, 4),
        "its standard error, of the fit (nats)": round(error, 4),
        "error aimed at": config.epsilon,
        "trained on": trained,
        "tested on": tested,
        "examples left out, beyond those sampled": found - trained - tested,
        "functions drawn": config.samples,
        "share of them that did so well": round(share, 6),
        "mean test loss": round(float(np.sort(losses).mean()), 6),
        "law of test losses": f"{law.scale:.4g} x chi-square of {law.df:.4g} degrees, non-centrality {law.nc:.4g}",
        "length scale": round(length, 6),
    }


def _statistics(
    bias: Mapping[float, float],
    error: float,
    losses: np.ndarray,
    law: ScaledChi2,
    share: float,
    tested: int,
    config: ExactInductiveBiasConfig,
) -> pl.DataFrame:
    numbers = {
        "inductive_bias_nats": bias[1.0],
        "inductive_bias_bits": bias[1.0] / LN2,
        "inductive_bias_nats_half_epsilon": bias[0.5],
        "inductive_bias_nats_twice_epsilon": bias[2.0],
        "share_below_epsilon": share,
        "mean_test_loss": float(np.sort(losses).mean()),
        "chi2_df": law.df,
        "chi2_noncentrality": law.nc,
        "chi2_scale": law.scale,
    }
    spread = {"inductive_bias_nats": 1.96 * error, "inductive_bias_bits": 1.96 * error / LN2}
    found = [
        Statistic("all", name, value, tested, value - spread[name], value + spread[name])
        if name in spread
        else Statistic("all", name, value, tested)
        for name, value in numbers.items()
    ]
    return statistics_table(found, config.model_dump(mode="json", exclude={"bins"}))

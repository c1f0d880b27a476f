"""Prequential description length: how many examples probes need before they predict this one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.registry import register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.dynamics.result import NEEDS, cost, finish, parameters
from gradatim.tasks.difficulty.dynamics.table import GOLD, Floats, reduce, standard_error
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, Window, window
from gradatim.tasks.difficulty.result import Difficulty

SOURCE = (
    "P. Hase, M. Bansal, P. Clark, S. Wiegreffe (2024). The unreasonable effectiveness of easy training data for hard "
    "tasks; E. Voita, I. Titov (2020). Information-theoretic probing with minimum description length"
)
LEVELS = (0.3, 0.7)
SMALLEST = 2.0**-126
"""Probabilities below (those that float32 calls 0) cost as many nats as this one, 87.3."""
LIKE_EPOCHS = (
    "the numbers in the column epoch follow one another as passes over the data do: here they should be the number of "
    "examples that each probe was trained on, such as 5, 10, 20; else use confidence"
)


class PrequentialConfig(DynamicsConfig):
    """Settings of `prequential`."""

    model: str = Field(
        r"^([^/]*)", description="pattern whose first group, found in run_id, names the model: runs of one are averaged"
    )
    classes: int | None = Field(
        None, ge=2, description="classes of the task: the first examples then cost its logarithm each"
    )

    @field_validator("model")
    @classmethod
    def _has_a_group(cls, found: str) -> str:
        try:
            groups = re.compile(found).groups
        except re.error as error:
            raise ValueError(f"the pattern does not parse: {error}") from None
        if groups < 1:
            raise ValueError("the pattern has no group: put what names the model in parentheses")
        return found


@register(
    "difficulty",
    "prequential",
    config=PrequentialConfig,
    needs=(*NEEDS, "dynamics.gold_probability"),
    cost=cost,
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: PrequentialConfig, seed: int = 0) -> Difficulty:
    """One minus the mean probability that probes trained on 5, 10, 20, ... examples give to the right answer.

    Parameters
    ----------
    tables : mapping
        ``dynamics`` of probes: run_id names the probe, its model before the first ``/`` (``model/prompt/seed``), epoch
        is the number of examples that it was trained on.
    config : PrequentialConfig
        `first_epoch` and `last_epoch` bound the number of training examples.
    seed : int
        Seed of the random halves of the models.

    Returns
    -------
    Difficulty
        raw is the mean probability over prompts, seeds and sizes, then over models; value is 1 - raw. Missing values
        are left out of the means. `details` hold the value stretched to [0, 1] over the set and the level: easy up to
        the 30th percentile, hard from the 70th. `statistics` hold the codelength of each probe in nats, and per
        example: a probe trained on n_i examples codes the n_(i+1) - n_i next ones at the mean loss that it had; the
        first n_1 are given, or cost log C each where `classes` is C. Where each example comes once in a run, the last
        size codes its rows too.

    Raises
    ------
    UsageError
        Where the pattern names no model in a run's name; and as `dynamics_window.window`.
    DataRefused
        As `dynamics_table.reduce`.
    """
    where = "difficulty prequential"
    probes = window(tables, config, GOLD.columns, where)
    # several probes of one model and size are no repeats of a row
    cells = replace(reduce(_by_model(probes, config, where), GOLD, tables, where), repeats=0)
    mean, error = cells.over_runs(cells.mean, standard_error(cells))
    value = 1.0 - mean
    online = _online(probes)
    like_epochs = len(probes.epochs) > 2 and bool((np.diff(probes.epochs) == 1).all()) and not all(online.values())
    return finish(
        cells,
        config,
        name="prequential",
        title="prequential description length",
        scale="probability",
        value=value,
        raw=mean,
        error=error,
        by_run=1.0 - cells.mean,
        seed=seed,
        source=SOURCE,
        notes={"runs": len(probes.runs), "models": len(cells.window.runs)},
        statistics=_codelengths(probes, online, config),
        warnings=[LIKE_EPOCHS] * like_epochs,
        details=_details(value),
    )


def _by_model(probes: Window, config: PrequentialConfig, where: str) -> Window:
    """Take the models for runs."""
    found = [re.search(config.model, name) for name in probes.runs]
    names = [match[1] if match else None for match in found]
    for probe, name in zip(probes.runs, names, strict=True):
        if not name:
            raise UsageError(
                f"the pattern {config.model!r} names no model in the run {probe!r}",
                where=f"{where}: model",
                expected="run_id such as model/prompt/seed",
                remedy="set model: a pattern with one group",
            )
    models = sorted({name for name in names if name})
    place = [models.index(name) for name in names if name]
    rows = probes.rows
    if len(probes.runs) > 1:
        rows = rows.with_columns(
            run=pl.col("run").replace_strict(list(range(len(place))), place, return_dtype=pl.UInt32)
        )
    sizes = _sizes(probes)
    expected = [len({size for p, size in sizes if place[p] == m}) for m in range(len(models))]
    last = [max(size for p, size in sizes if place[p] == m) for m in range(len(models))]
    return replace(probes, rows=rows, runs=tuple(models), expected=np.array(expected), last=np.array(last))


def _sizes(probes: Window) -> list[tuple[int, int]]:
    found = probes.rows.select("run", "code").unique().sort("run", "code").collect(engine="streaming")
    return [(int(run), int(code)) for run, code in found.iter_rows()]


def _details(value: Floats) -> pl.Series:
    """JSON of the value stretched to [0, 1] and its level: (N,)."""
    low, high = float(value.min()), float(value.max())
    stretched = (value - low) / (high - low) if high > low else np.zeros(len(value))
    easy, hard = np.quantile(value, LEVELS)
    level = np.where(value <= easy, "easy", "medium")
    level = np.where(value >= hard, np.where(level == "easy", "medium", "hard"), level)
    frame = pl.DataFrame({"min_max": np.round(stretched, 9), "level": level})
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series()


def _online(probes: Window) -> dict[int, bool]:
    """Say of each run whether each example comes once in it."""
    ids = pl.col("example_id")
    once = probes.rows.group_by("run").agg(once=ids.n_unique() == ids.len()).sort("run").collect(engine="streaming")
    return dict(once.iter_rows())


def _codelengths(probes: Window, online: Mapping[int, bool], config: PrequentialConfig) -> pl.DataFrame:
    """Codelength of each probe's run, in the schema of the table `statistics`."""
    gold = pl.col("gold_probability").cast(pl.Float64)
    fixed = (-gold.clip(SMALLEST, 1.0).log() * 2.0**32).round().cast(pl.Int128)
    losses = (
        probes.rows.filter(gold.is_finite())
        .group_by("run", "code")
        .agg(n=pl.len(), total=fixed.sum(), squares=(fixed * fixed).sum())
        .with_columns(
            mean=pl.col("total").cast(pl.Float64) / pl.col("n") / 2.0**32,
            spread=(pl.col("n").cast(pl.Int128) * pl.col("squares") - pl.col("total") * pl.col("total")).cast(
                pl.Float64
            )
            / 2.0**64,
        )
        .sort("run", "code")
        .collect(engine="streaming")
    )
    rows: list[Statistic] = []
    for place, name in enumerate(probes.runs):
        mine = losses.filter(pl.col("run") == place)
        if len(mine):
            rows += _codelength(name, mine, probes.epochs, online[place], config.classes)
    return statistics_table(rows, parameters("prequential", config))


def _codelength(
    name: str, steps: pl.DataFrame, sizes: Sequence[int] | np.ndarray, online: bool, classes: int | None
) -> list[Statistic]:
    """Codelength of one run from n, mean and spread (n times the sum of squares less the square of the sum) a size."""
    size = np.asarray(sizes)[steps["code"].to_numpy()]
    n, mean, spread = (steps[key].to_numpy().astype(np.float64) for key in ("n", "mean", "spread"))
    block = np.diff(size).astype(np.float64)
    if online:
        block = np.append(block, n[-1])
    coded = float(block.sum())
    total = float((block * mean[: len(block)]).sum())
    if classes is not None:
        total, coded = total + size[0] * float(np.log(classes)), coded + size[0]
    if coded <= 0:
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        of_mean = np.where(n > 1, spread / (n * n * (n - 1)), 0.0)[: len(block)]
    exact = n[: len(block)] == block  # the block itself was coded: nothing is estimated
    error = float(np.sqrt((np.where(exact, 0.0, of_mean) * block**2).sum()))
    low, high = total - 1.959964 * error, total + 1.959964 * error
    subset = f"run={name}"
    return [
        Statistic(subset, "codelength (nats)", total, round(coded), low, high),
        Statistic(subset, "codelength an example (nats)", total / coded, round(coded), low / coded, high / coded),
    ]

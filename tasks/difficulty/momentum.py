"""Momentum: the loss of an example beside a bank of recent losses says learn it, postpone it or drop it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import group_sums
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.dynamics.window import Names, check_numbers, check_whole, first_reason
from gradatim.tasks.difficulty.result import Difficulty, build, method_name

SOURCE = (
    "X. Jiang, J. Huang, S. Jin, S. Lu (2023). Domain generalization via balancing training difficulty and model "
    "capability (MoDify), arXiv 2309.00844; its policy only"
)
DECISIONS = ("drop", "learn", "postpone")


class MomentumConfig(Config):
    """Settings of `momentum`."""

    bank: Literal["presentations", "rounds", "example"] = Field(
        "presentations",
        description="what a loss is compared with: recent losses of the run in the order of training, mean losses of "
        "the rounds so far, or the example's own losses so far",
    )
    momentum: float = Field(0.99, ge=0, lt=1, description="weight of the bank when a loss joins it")
    low: float = Field(0.5, ge=0, allow_inf_nan=False, description="ratio below which an example is dropped")
    high: float = Field(2.0, gt=0, allow_inf_nan=False, description="ratio above which it is postponed")
    round: int | None = Field(None, description="epoch for which to decide; by default the last one")
    runs: Names = Field((), description="training runs that count, by run_id; all of them by default")
    bins: int | None = Field(None, ge=1, le=1000, description="as many as there are different values, at most 10")

    @model_validator(mode="after")
    def _in_order(self) -> MomentumConfig:
        if self.low >= self.high:
            raise ValueError(f"low: {self.low:g} is not below high, {self.high:g}")
        return self


class Rows(NamedTuple):
    """Presentations in order of training: run, example and epoch of each as numbers, its loss and the bank's."""

    run: NDArray[np.int64]
    item: NDArray[np.int64]
    epoch: NDArray[np.int64]
    loss: NDArray[np.float64]
    bank: NDArray[np.float64]


@register(
    "difficulty",
    "momentum",
    config=MomentumConfig,
    needs=(
        "dynamics.run_id?",
        "dynamics.position?",
        "dynamics.example_id",
        "dynamics.epoch",
        "dynamics.loss",
    ),
    cost=lambda rows, width: Cost(seconds=0.3 + 1e-6 * rows * max(width, 1), bytes=1e8 + 150.0 * rows * max(width, 1)),
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, Any], config: MomentumConfig, seed: int = 0) -> Difficulty:
    """Learn, postpone or drop each example by its loss beside a momentum average of recent losses (MoDify's policy).

    Parameters
    ----------
    tables : mapping
        ``dynamics`` (example_id, epoch, loss; run_id where there are several runs; position, for the bank of
        presentations), a DataFrame or LazyFrame; optionally ``examples`` (example_id).
    config : MomentumConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value is loss / bank in the round of the decision (mean over its presentations in all runs), raw the loss, n the
        rounds seen so far; details hold the decision and how often each was made; statistics the decisions of every
        round.

    Raises
    ------
    DataRefused
        If an id or epoch is null, a loss is negative, or none is finite.
    UsageError
        If a column, a run or the round is not there.

    Notes
    -----
    O(rows log rows); the bank is one pass in the order of training. The paper's momentum and thresholds are not
    verified: those here are settings to choose.
    """
    frame, notes = _read(tables["dynamics"], config)
    ids = frame["example_id"].unique().sort()
    rows = _rows(frame, ids, config)
    ratio = np.divide(rows.loss, rows.bank, out=np.zeros(len(rows.loss)), where=rows.bank > 0)
    found = _cells(rows, ratio)
    epochs = np.unique(found["epoch"])
    at = _round(epochs, config)
    found["decision"] = np.where(found["ratio"] < config.low, 0, np.where(found["ratio"] > config.high, 2, 1))
    past = {name: column[found["epoch"] <= at] for name, column in found.items()}
    last = np.flatnonzero(np.diff(past["item"], append=-1) != 0)  # cells are sorted by (item, epoch)
    item = past["item"][last]
    counts = np.stack([np.bincount(past["item"], past["decision"] == k, len(ids)) for k in range(3)], 1)[item]
    seen = past["epoch"][last]
    flag = [None if epoch == at else f"not seen in round {at}: decided in round {epoch}" for epoch in seen.tolist()]
    never = ids.filter(~pl.Series(np.isin(np.arange(len(ids)), item)))
    notes |= {"rounds": len(epochs), "decided for round": int(at), **_settings(config)}
    notes |= {name: int(k) for name, k in zip(DECISIONS, np.bincount(past["decision"][last], minlength=3), strict=True)}
    by_round = _by_round(found, epochs)
    return build(
        method=method_name("momentum", config.model_dump(exclude={"bins"}), MomentumConfig().model_dump()),
        title="momentum",
        ids=ids.gather(item).to_list(),
        value=past["ratio"][last],
        raw=past["loss"][last],
        scale="loss ratio",
        n=counts.sum(axis=1).astype(np.int64),
        flag=flag,
        details=_details(past["decision"][last], seen, counts),
        bins=config.bins,
        excluded=_excluded(tables, ids, never, at),
        notes=notes,
        statistics=_statistics(by_round, config),
        pictures={
            "rounds": Picture("What would be learned, postponed and dropped in each round.", partial(_draw, by_round))
        },
        source=SOURCE,
    )


def bank_of(loss: NDArray[np.float64], group: NDArray[np.int64], momentum: float) -> NDArray[np.float64]:
    """Momentum average of the losses of each group up to and with each: bank <- m bank + (1 - m) loss.

    Parameters
    ----------
    loss : (n,) float64, in the order of training
    group : (n,) int64, from 0
    momentum : float, in [0, 1)

    Returns
    -------
    (n,) float64
        Divided by the sum of the weights so far, so that the first bank is the first loss.
    """
    from scipy.signal import lfilter

    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    found = np.empty(len(loss))
    if len(sizes) <= sizes.max():  # few long groups: one after the other
        for start, size in zip(starts, sizes, strict=True):
            rows = order[start : start + size]
            found[rows] = lfilter([1 - momentum], [1, -momentum], loss[rows])
    else:  # many short ones: all first losses, all second ones, ...
        bank = np.zeros(len(sizes))
        for step in range(int(sizes.max())):
            there = np.flatnonzero(sizes > step)
            rows = order[starts[there] + step]
            bank[there] = found[rows] = momentum * bank[there] + (1 - momentum) * loss[rows]
    place = np.empty(len(loss))
    place[order] = np.arange(len(loss)) - np.repeat(starts, sizes)
    weight = -np.expm1((place + 1) * np.log(momentum)) if momentum > 0 else 1.0
    return np.asarray(found / weight)


def _read(dynamics: Any, config: MomentumConfig) -> tuple[pl.DataFrame, dict[str, Cell]]:
    """Return run_id, example_id, epoch, loss (finite) in the order of training, and what was left out."""
    where = "difficulty momentum"
    lazy = dynamics.lazy()
    have = lazy.collect_schema().names()
    for column in ("example_id", "epoch", "loss"):
        if column not in have:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, have)}",
                where="dynamics",
                expected="example_id, epoch, loss",
            )
    if config.bank == "presentations" and "position" not in have:
        raise UsageError(
            "without the position of each row, the order of training within an epoch is unknown",
            where=f"{where}: bank",
            expected="a column position",
            remedy="set  bank: rounds  or  bank: example",
        )
    check_numbers(lazy, ("epoch", "position", "loss"), where)
    frame = lazy.select(
        pl.col("run_id").cast(pl.String) if "run_id" in have else pl.lit("").alias("run_id"),
        pl.col("position") if "position" in have else pl.lit(0, pl.Int64).alias("position"),
        pl.col("example_id").cast(pl.String),
        pl.col("epoch"),
        pl.col("loss").cast(pl.Float64),
    ).collect()
    for column in ("epoch", "position"):
        check_whole(frame[column], column, where)
        frame = frame.with_columns(pl.col(column).cast(pl.Int64))
    runs = frame["run_id"].drop_nulls().unique().sort().to_list()
    if lacking := [name for name in config.runs if name not in runs]:
        raise UsageError(
            f"there is no run {lacking[0]!r}{nearest(lacking[0], runs)}",
            where=f"{where}: runs",
            expected="one of " + ", ".join(map(str, runs[:12])),
        )
    if config.runs and not frame["run_id"].null_count():
        frame, runs = frame.filter(pl.col("run_id").is_in(config.runs)), list(config.runs)
    for column in ("run_id", "example_id", "epoch"):
        if empty := frame[column].null_count():
            raise DataRefused(f"{empty:,} of {len(frame):,} rows have no {column}", where="dynamics", expected="one")
    usable = frame.filter(pl.col("loss").is_finite())
    if not len(usable):
        raise DataRefused("no row has a finite loss", where="dynamics: loss", expected="at least one")
    if (usable["loss"] < 0).any():
        negative = usable.filter(pl.col("loss") < 0)
        raise DataRefused(
            f"{len(negative):,} of {len(usable):,} losses are negative, first at example {negative['example_id'][0]!r}",
            where="dynamics: loss",
            expected="losses of 0 or more, so that a ratio means something",
        )
    notes: dict[str, Cell] = {"runs": len(runs), "presentations": len(usable)}
    if len(frame) > len(usable):
        notes["rows without a finite loss, left out"] = len(frame) - len(usable)
    return usable.sort(
        "run_id", "epoch" if config.bank != "presentations" else "position", "position", "example_id", "loss"
    ), notes


def _rows(frame: pl.DataFrame, ids: pl.Series, config: MomentumConfig) -> Rows:
    runs = frame["run_id"].unique().sort()
    run_ = frame["run_id"].cast(pl.Enum(runs)).to_physical().to_numpy().astype(np.int64)
    item = frame["example_id"].cast(pl.Enum(ids)).to_physical().to_numpy().astype(np.int64)
    epoch, loss = frame["epoch"].to_numpy(), frame["loss"].to_numpy()
    if config.bank == "presentations":
        bank = bank_of(loss, run_, config.momentum)
    elif config.bank == "example":
        _, own = np.unique(run_ * len(ids) + item, return_inverse=True)
        bank = bank_of(loss, own.ravel(), config.momentum)
    else:
        bank = _bank_of_rounds(run_, epoch, loss, config.momentum)
    return Rows(run_, item, epoch, loss, bank)


def _bank_of_rounds(
    run_: NDArray[np.int64], epoch: NDArray[np.int64], loss: NDArray[np.float64], momentum: float
) -> NDArray[np.float64]:
    """Let the mean loss of each round join the bank once, and give it to all rows of the round."""
    epochs, code = np.unique(epoch, return_inverse=True)
    rounds, place = np.unique(run_ * len(epochs) + code.ravel(), return_inverse=True)
    mean = group_sums(place, loss, len(rounds)) / np.bincount(place)
    return np.asarray(bank_of(mean, rounds // len(epochs), momentum)[place])


def _cells(rows: Rows, ratio: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Average over runs and presentations: item, epoch, ratio, loss, sorted by (item, epoch)."""
    epochs, code = np.unique(rows.epoch, return_inverse=True)
    cell, place = np.unique(rows.item * len(epochs) + code.ravel(), return_inverse=True)
    place = place.ravel()
    if len(cell) == len(place):  # one run, one presentation a round: nothing to average
        first = np.argsort(place)
        mean = {"ratio": ratio[first], "loss": rows.loss[first]}
    else:
        n = np.bincount(place)
        mean = {name: group_sums(place, of, len(cell)) / n for name, of in (("ratio", ratio), ("loss", rows.loss))}
    return {"item": cell // len(epochs), "epoch": epochs[cell % len(epochs)], **mean}


def _round(epochs: NDArray[np.int64], config: MomentumConfig) -> int:
    if config.round is None:
        return int(epochs[-1])
    if config.round not in epochs:
        raise UsageError(
            f"there is no epoch {config.round}",
            where="difficulty momentum: round",
            expected=f"one of the {len(epochs)} from {epochs[0]} to {epochs[-1]}",
        )
    return config.round


def _details(decision: NDArray[np.int64], seen: NDArray[np.int64], counts: NDArray[Any]) -> list[str]:
    names = pl.Series(DECISIONS, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "decision": names.gather(decision),
            "round": seen,
            **{f"rounds_{name}": counts[:, k].astype(np.int64) for k, name in enumerate(DECISIONS)},
        }
    )
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def _excluded(tables: Mapping[str, Any], ids: pl.Series, never: pl.Series, at: int) -> pl.DataFrame:
    decided = ids.filter(~ids.is_in(never.implode()))
    reasons = [
        (pl.LazyFrame({"example_id": never}), f"not seen up to round {at}"),
        (tables["dynamics"].lazy(), "no finite loss in the runs that count"),
        *([(tables["examples"].lazy(), "no row in the dynamics")] if "examples" in tables else []),
    ]
    return first_reason(reasons, decided)


def _settings(config: MomentumConfig) -> dict[str, Cell]:
    return {
        "bank": config.bank,
        "momentum": config.momentum,
        "postponed above, dropped below": f"{config.high:g}, {config.low:g} of the bank",
        "thresholds": "settings: the paper's own are not verified",
    }


def _by_round(found: Mapping[str, NDArray[Any]], epochs: NDArray[np.int64]) -> pl.DataFrame:
    place = np.searchsorted(epochs, found["epoch"])
    return pl.DataFrame(
        {
            "round": epochs,
            **{
                name: np.bincount(place, found["decision"] == k, len(epochs)).astype(np.int64)
                for k, name in enumerate(DECISIONS)
            },
        }
    )


def _statistics(by_round: pl.DataFrame, config: MomentumConfig) -> pl.DataFrame:
    rows = [
        Statistic(f"round={row['round']}", f"{name}_examples", float(row[name]), sum(row[d] for d in DECISIONS))
        for row in by_round.iter_rows(named=True)
        for name in DECISIONS
    ]
    return statistics_table(rows, {"method": "momentum", **config.model_dump(exclude={"bins", "round"}, mode="json")})


def _draw(by_round: pl.DataFrame) -> Any:
    from gradatim.tasks.core.charts import lines

    total = pl.sum_horizontal(DECISIONS)
    shares = by_round.select("round", *[(pl.col(name) / total).alias(name) for name in DECISIONS])
    long = shares.unpivot(index="round", variable_name="decision", value_name="share of the examples")
    return lines(long, x="round", y="share of the examples", color="decision", title="Decisions by round")

"""Momentum: the bank's recursion, the decisions, several runs, and what cannot be decided."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty.momentum import DECISIONS, MomentumConfig, run
from gradatim.tasks.difficulty.result import Difficulty


def _dynamics(losses: np.ndarray, run_id: str = "r") -> pl.DataFrame:
    """One row an epoch and example from an (epochs, examples) array of losses."""
    epochs, examples = losses.shape
    return pl.DataFrame(
        {
            "run_id": run_id,
            "position": np.arange(losses.size),
            "example_id": [f"e{i:03d}" for i in range(examples)] * epochs,
            "epoch": np.repeat(np.arange(epochs), examples),
            "loss": losses.ravel(),
        }
    )


def _run(dynamics: pl.DataFrame | pl.LazyFrame, **given_: object) -> Difficulty:
    more = {name: given_.pop(name) for name in ("examples",) if name in given_}
    return run({"dynamics": dynamics, **more}, MomentumConfig.model_validate(given_))


def _decisions(d: Difficulty) -> dict[str, str]:
    return {i: json.loads(text)["decision"] for i, text in d.table.select("example_id", "details").iter_rows()}


def _recursion(losses: list[float], m: float) -> list[float]:
    """The bank as a loop: average and weight both start empty."""
    bank = weight = 0.0
    found = []
    for loss in losses:
        bank, weight = m * bank + (1 - m) * loss, m * weight + (1 - m)
        found.append(bank / weight)
    return found


LOSSES = st.lists(st.lists(st.floats(0, 50, width=32), min_size=3, max_size=3), min_size=1, max_size=6)


@given(LOSSES, st.floats(0, 0.99))
@settings(max_examples=25)
def test_each_bank_is_the_loop_of_its_definition(losses: list[list[float]], m: float) -> None:
    array = np.array(losses)
    flat = array.ravel().tolist()
    rounds = np.repeat(_recursion(array.mean(axis=1).tolist(), m), 3)
    own = np.column_stack([_recursion(array[:, j].tolist(), m) for j in range(3)]).ravel()
    for bank, of in (("presentations", np.array(_recursion(flat, m))), ("rounds", rounds), ("example", own)):
        d = _run(_dynamics(array), bank=bank, momentum=m)
        last = of[-3:]
        expected = np.where(last > 0, array[-1] / np.where(last > 0, last, 1), 0)
        assert d.table["value"].to_numpy() == pytest.approx(expected, rel=1e-7, abs=1e-7), bank


def test_a_hard_example_is_postponed_an_easy_one_dropped_and_the_rest_learned() -> None:
    random = np.random.default_rng(0)
    losses = np.exp(0.05 * random.normal(size=(6, 60))) * np.linspace(2, 1, 6)[:, None]
    losses[:, 7] *= 5
    losses[:, 8] *= 0.05
    losses[3:, 9] *= 0.05  # learned from round 3 on
    d = _run(_dynamics(losses))
    said = _decisions(d)
    assert said["e007"] == "postpone"
    assert said["e008"] == said["e009"] == "drop"
    assert sum(x == "learn" for x in said.values()) == 57
    assert (d.notes["learn"], d.notes["postpone"], d.notes["drop"]) == (57, 1, 2)
    facts = json.loads(d.table.filter(pl.col("example_id") == "e009")["details"][0])
    assert (facts["rounds_learn"], facts["rounds_drop"], facts["round"]) == (3, 3, 5)
    early = _run(_dynamics(losses), round=1)
    assert _decisions(early)["e009"] == "learn"
    assert early.table["n"].unique().to_list() == [2]
    assert d.statistics is not None
    dropped = d.statistics.filter(pl.col("metric") == "drop_examples").sort("subset")["value"].to_list()
    assert dropped == [1, 1, 1, 2, 2, 2]
    assert "not verified" in str(d.notes["thresholds"])
    assert d.plot("rounds").to_dict()
    assert len(d.summary().charts) == 2


@given(st.floats(0.01, 100), st.integers(0, 1000))
@settings(max_examples=20)
def test_the_unit_of_loss_the_order_of_rows_and_laziness_do_not_matter(factor: float, seed: int) -> None:
    losses = np.random.default_rng(seed).exponential(size=(4, 20))
    frame = _dynamics(losses)
    d = _run(frame)
    assert _run(frame.sample(fraction=1, shuffle=True, seed=seed).lazy()).table.equals(d.table)
    scaled = _run(_dynamics(losses * factor))
    assert scaled.table["value"].to_numpy() == pytest.approx(d.table["value"].to_numpy())


def test_runs_have_banks_of_their_own_and_are_averaged() -> None:
    losses = np.random.default_rng(1).exponential(size=(3, 30))
    first, second = _dynamics(losses, "a"), _dynamics(losses[:, ::-1] * 9, "b")
    both = _run(pl.concat([first, second]))
    alone = [_run(frame).table["value"].to_numpy() for frame in (first, second)]
    assert both.table["value"].to_numpy() == pytest.approx(np.mean(alone, axis=0))
    assert _run(pl.concat([first, second]), runs=["a"]).table["value"].to_numpy() == pytest.approx(alone[0])
    with pytest.raises(UsageError, match="no run 'c'"):
        _run(first, runs=["c"])


def test_missing_epochs_lost_losses_and_unseen_examples_are_said() -> None:
    frame = _dynamics(np.ones((3, 4)))
    gone = (pl.col("example_id") == "e001") & (pl.col("epoch") == 2)
    late = (pl.col("example_id") == "e002") & (pl.col("epoch") < 2)
    frame = frame.filter(~gone & ~late).with_columns(
        loss=pl.when(pl.col("example_id") == "e003").then(float("nan")).otherwise("loss")
    )
    examples = pl.DataFrame({"example_id": [f"e{i:03d}" for i in range(4)]})
    d = _run(frame, examples=examples)
    assert d.table["flag"].to_list() == [None, "not seen in round 2: decided in round 1", None]
    assert d.excluded.rows() == [("e003", "no finite loss in the runs that count")]
    assert d.notes["rows without a finite loss, left out"] == 3
    assert ("e002", "not seen up to round 1") in _run(frame, examples=examples, round=1).excluded.rows()


def test_losses_of_nought_are_dropped_and_never_divide() -> None:
    d = _run(_dynamics(np.zeros((2, 3))))
    assert d.table["value"].to_list() == [0.0] * 3
    assert set(_decisions(d).values()) == {"drop"}


def test_bad_dynamics_and_settings_are_named() -> None:
    good = _dynamics(np.ones((2, 2)))
    for frame, given_, kind, said in (
        (good.with_columns(loss=-pl.col("loss")), {}, DataRefused, "negative"),
        (good.with_columns(loss=pl.lit(float("inf"))), {}, DataRefused, "no row has a finite loss"),
        (good.with_columns(epoch=pl.lit(None, pl.Int32)), {}, DataRefused, "have no epoch"),
        (good.rename({"loss": "lost"}), {}, UsageError, "did you mean 'lost'"),
        (good.drop("position"), {}, UsageError, "bank: rounds"),
        (good, {"round": 7}, UsageError, "no epoch 7"),
    ):
        with pytest.raises(kind) as caught:
            _run(frame, **given_)
        assert said in str(caught.value)
    assert len(_run(good.drop("position", "run_id"), bank="rounds").table) == 2
    for given_, said in (
        ({"low": 3.0}, "not below high"),
        ({"momentum": 1.0}, "momentum"),
        ({"bank": "all"}, "rounds"),
    ):
        with pytest.raises(UsageError) as caught:
            resolve("difficulty", Step(method="momentum", settings=given_))
        assert said in str(caught.value)
    assert DECISIONS == ("drop", "learn", "postpone")


@pytest.mark.parametrize("known", [True, False])
def test_whoever_has_no_loss_or_another_run_is_listed_with_or_without_the_examples(known: bool) -> None:
    frame = pl.DataFrame(
        {
            "run_id": ["r", "r", "r", "s"],
            "example_id": ["a", "b", "c", "d"],
            "epoch": [0] * 4,
            "position": [0, 1, 2, 0],
            "loss": [1.0, None, float("inf"), 1.0],
        }
    )
    more = {"examples": pl.DataFrame({"example_id": list("abcde")})} if known else {}
    absent = [("e", "no row in the dynamics")] if known else []
    found = _run(frame, runs=("r",), **more)
    assert found.excluded.rows() == [(i, "no finite loss in the runs that count") for i in "bcd"] + absent

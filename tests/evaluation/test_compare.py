"""Paired comparison of arms on the same examples."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.intervals import mcnemar
from gradatim.tasks.evaluation.compare import compare
from gradatim.tasks.evaluation.evaluate import evaluate
from gradatim.tasks.evaluation.result import Evaluation


def arm(right: np.ndarray, name: str = "the model", seeds: int = 1, groups: int = 0, **changes: object) -> Evaluation:
    rows = right.shape[-1]
    ids = [f"e{i:05d}" for i in range(rows)]
    runs = np.atleast_2d(right)
    frame = pl.concat(
        [
            pl.DataFrame(
                {"run_id": f"{name}-{seed}", "seed": seed, "example_id": ids, "correct": runs[seed % len(runs)]}
            )
            for seed in range(seeds)
        ]
    )
    places = pl.DataFrame(
        {"strategy": "length", "example_id": ids, "split": ["test"] * (rows // 2) + ["test_ood"] * (rows - rows // 2)}
    ).with_columns(**{column: pl.lit(value) for column, value in changes.items()})
    examples = pl.DataFrame({"example_id": ids, "group": [f"g{i % groups}" for i in range(rows)]}) if groups else None
    return evaluate(frame, places, examples, name=name)


def right(p: float, ood: float, rows: int = 1000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.r_[rng.random(rows // 2) < p, rng.random(rows // 2) < ood]


def test_differences_are_paired_and_have_intervals_tests_and_a_sentence() -> None:
    base = right(0.9, 0.2)
    better = base | (np.random.default_rng(1).random(1000) < np.r_[np.zeros(500), np.full(500, 0.1)])
    found = compare({"curriculum": arm(better, "the curriculum arm"), "random": arm(base, "the random arm")})
    assert found.baseline == "random"
    gain = int((better & ~base).sum()) / 500
    ood = found.difference("curriculum")
    assert ood.value == pytest.approx(gain)
    assert 0 < ood.low < gain < ood.high
    spread = 1.96 * np.sqrt(gain * (1 - gain) / 500)  # paired: only the gained rows vary
    assert (ood.high - ood.low) / 2 == pytest.approx(spread, rel=0.12)
    assert ood.p == pytest.approx(mcnemar(int((better & ~base).sum()), 0))
    assert found.difference("curriculum", "test").value == 0.0
    assert found.difference("curriculum", "gap").value == pytest.approx(-gain)
    sentence = found.sentence()
    assert sentence.startswith("Out of distribution the curriculum arm solves")
    assert "of the same 500 examples" in sentence
    assert sentence in repr(found)
    assert found.table["test"].to_list() == ["exact McNemar", "exact McNemar", "bootstrap"]


def test_several_arms_are_adjusted_by_holm_for_each_quantity() -> None:
    arms = {name: arm(right(0.9, p, seed=i)) for i, (name, p) in enumerate([("a", 0.2), ("b", 0.27), ("c", 0.4)])}
    found = compare(arms, "a").table.filter(pl.col("quantity") == "test_ood")
    p, adjusted = found["p"].to_list(), found["p_holm"].to_list()
    assert found["arm"].to_list() == ["b", "c"]
    assert adjusted[1] == pytest.approx(2 * p[1])
    assert adjusted[0] == pytest.approx(max(p[0], adjusted[1]))


def test_clusters_take_the_place_of_mcnemar() -> None:
    arms = {"a": arm(right(0.9, 0.2), groups=40), "b": arm(right(0.9, 0.4, seed=1), groups=40)}
    found = compare(arms)
    assert found.table["test"].unique().to_list() == ["bootstrap"]
    assert "40 clusters of group" in found.difference("b").method
    assert found.difference("b").p < 0.01


def test_runs_of_each_arm_widen_the_interval() -> None:
    runs = np.stack([right(0.9, p, seed=3) for p in (0.1, 0.2, 0.3, 0.4, 0.5)])
    base = right(0.9, 0.3, seed=4)
    several = compare({"base": arm(base), "many": arm(runs, seeds=5)}).difference("many")
    one = compare({"base": arm(base), "many": arm(runs[2])}).difference("many")
    assert several.value == pytest.approx(one.value, abs=0.02)
    assert several.high - several.low > 1.5 * (one.high - one.low)
    assert "runs x clusters" in several.method


def test_one_run_of_an_arm_is_said_to_tell_nothing_of_other_training_seeds() -> None:
    runs = np.stack([right(0.9, p, seed=3) for p in (0.1, 0.2, 0.3)])
    for arms in (
        {"a": arm(runs[0]), "b": arm(runs[1])},
        {"a": arm(runs, seeds=3), "b": arm(runs[1])},
    ):
        found = compare(arms)
        assert "one run only" in found.warnings[-1]
        assert found.warnings[-1] in found.summary().warnings
    several = compare({"a": arm(runs, seeds=3), "b": arm(runs[::-1], seeds=3)})
    assert not [warning for warning in several.warnings if "one run only" in warning]


def test_equal_arms_do_not_differ() -> None:
    same = right(0.5, 0.5)
    found = compare({"a": arm(same), "b": arm(same)})
    assert found.table["value"].to_list() == [0.0, 0.0, 0.0]
    assert (found.table["ci_low"] < 0).all()
    assert found.table["p_holm"].to_list() == [1.0, 1.0, 1.0]
    assert "(0.0 points, 95 %" in found.sentence()
    assert "0.0 to" not in found.sentence().replace(" 0.0 to", "")  # no sign before a zero


def test_the_arms_meet_on_the_examples_that_all_answered() -> None:
    first, second = arm(right(0.9, 0.3)), arm(right(0.9, 0.3, seed=1))
    fewer = second.scores.filter(pl.col("example_id") >= "e00100")
    short = Evaluation(second.table, fewer, "x", second.strategy, second.metric, second.clusters, second.checkpoint)
    found = compare({"a": first, "b": short})
    assert found.table.filter(pl.col("quantity") == "test")["n"].to_list() == [400]
    assert "100 examples that not every run answered" in found.warnings[0]


def test_the_rows_for_the_evaluation_table_are_in_its_schema() -> None:
    found = compare({"a": arm(right(0.9, 0.3)), "b": arm(right(0.9, 0.3, seed=1))}, split_version=3)
    assert found.evaluation.to_arrow().schema.names == spec("evaluation").schema.names
    assert found.evaluation["axis"].unique().to_list() == ["comparison"]
    assert found.evaluation["metric"].unique().to_list() == ["difference_from_a"]
    assert not found.evaluation.select(spec("evaluation").key).is_duplicated().any()


def test_a_split_without_ood_is_compared_in_distribution_only() -> None:
    arms = {n: arm(right(0.9, 0.3, seed=i), split="test") for i, n in enumerate("ab")}
    found = compare(arms)
    assert found.table["quantity"].to_list() == ["test"]
    assert "gap" not in found.sentence()


def test_what_cannot_be_compared_is_refused() -> None:
    one = arm(right(0.9, 0.3))
    with pytest.raises(UsageError, match="1 arm"):
        compare({"a": one})
    with pytest.raises(UsageError, match="did you mean 'random'"):
        compare({"random": one, "b": one}, "randm")
    with pytest.raises(UsageError, match="another split or cluster"):
        compare({"a": one, "b": arm(right(0.9, 0.3), split="test")})
    with pytest.raises(DataRefused, match="in common"):
        compare({"a": one, "b": arm(right(0.9, 0.3), split="train")})
    with pytest.raises(UsageError, match="no difference of 'x'"):
        compare({"a": one, "b": one}).difference("x")


def test_the_comparison_explains_itself() -> None:
    found = compare({"a": arm(right(0.9, 0.3)), "b": arm(right(0.9, 0.4, seed=1))})
    summary = found.summary()
    assert summary.headline == found.sentence()
    assert summary.charts[0].spec
    assert "McNemar (1947)" in found.cite()


def test_the_same_seed_gives_the_same_comparison_for_any_order_of_arms_rows() -> None:
    first, second = arm(right(0.9, 0.3)), arm(right(0.9, 0.4, seed=1))
    assert compare({"a": first, "b": second}).table.equals(compare({"a": first, "b": second}).table)
    swapped = compare({"b": second, "a": first}, "a")
    assert swapped.table.equals(compare({"a": first, "b": second}, "a").table)

"""Several estimators in one rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import norm, rankdata, spearmanr

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.combined import CombinedConfig, run
from gradatim.tasks.difficulty.result import Difficulty


def table(values: dict[str, np.ndarray], ids: list[str] | None = None) -> pl.DataFrame:
    frames = []
    for name, found in values.items():
        keep = np.isfinite(found)
        names = np.array(ids or [f"q{i:05d}" for i in range(len(found))], dtype=object)
        frames.append(
            pl.DataFrame({"example_id": names[keep].tolist(), "value": found[keep]}).with_columns(
                method=pl.lit(name), standard_error=pl.lit(None, pl.Float64)
            )
        )
    return pl.concat(frames)


def combined(frame: pl.DataFrame, **settings: Any) -> Difficulty:
    return run({"difficulty": frame}, CombinedConfig(**settings))


def noisy(seed: int, noise: dict[str, float], n: int = 2000) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n)
    return truth, {name: truth + scale * rng.normal(size=n) for name, scale in noise.items()}


def test_the_value_is_the_weighted_mean_of_rank_normal_scores() -> None:
    a, b = np.array([3.0, 1.0, 2.0, 2.0]), np.array([10.0, 0.0, 5.0, 7.0])
    found = combined(table({"a": a, "b": b}), weights={"a": 3, "b": 1})
    scores = [norm.ppf((rankdata(x) - 0.375) / (len(x) + 0.25)) for x in (a, b)]
    scores = [(s - s.mean()) / s.std() for s in scores]
    mean = 0.75 * scores[0] + 0.25 * scores[1]
    assert found.table["value"].to_numpy() == pytest.approx(mean, abs=1e-9)
    spread = (0.75 * (scores[0] - mean)) ** 2 + (0.25 * (scores[1] - mean)) ** 2
    assert found.table["standard_error"].to_numpy() == pytest.approx(np.sqrt(2 * spread), abs=1e-9)


def test_the_first_component_weighs_the_better_estimators_more_and_beats_each() -> None:
    truth, values = noisy(0, {"good": 0.5, "fair": 1.0, "poor": 2.0})
    found = combined(table(values), weights="component")
    of = {row["metric"]: row["value"] for row in found.statistics.iter_rows(named=True)}
    assert of["weight good"] > of["weight fair"] > of["weight poor"] > 0
    assert sum(of[f"weight {name}"] for name in values) == pytest.approx(1.0)
    rank = spearmanr(found.table["value"], truth).statistic
    assert rank > max(spearmanr(found_, truth).statistic for found_ in (values["fair"], values["poor"]))
    assert of["spearman good ~ poor"] == pytest.approx(spearmanr(values["good"], values["poor"]).statistic)


def test_alpha_is_cronbachs_of_the_scores_and_sets_the_bins() -> None:
    _, values = noisy(1, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, n=20_000)
    found = combined(table(values))
    assert found.reliability == pytest.approx(4 * 0.5 / (1 + 3 * 0.5), abs=0.02)  # Spearman-Brown of r = 1/2
    assert found.bins == 4


def test_an_estimator_that_runs_against_the_others_is_left_out_aloud() -> None:
    truth, values = noisy(2, {"a": 0.5, "b": 0.5})
    values["backwards"] = -truth
    found = combined(table(values), weights="component")
    assert any("backwards" in warning and "against" in warning for warning in found.warnings)
    assert spearmanr(found.table["value"], truth).statistic > 0.9


def test_nearly_unrelated_estimators_are_named() -> None:
    rng = np.random.default_rng(3)
    found = combined(table({"human": rng.normal(size=900), "model": rng.normal(size=900)}))
    assert any("nearly unrelated" in warning for warning in found.warnings)
    assert found.reliability is not None
    assert found.reliability < 0.2


def test_an_example_that_some_do_not_know_rests_on_the_others_and_says_so() -> None:
    _, values = noisy(4, {"a": 0.3, "b": 0.3, "c": 0.3}, n=50)
    values["a"][7] = np.nan
    values["a"][8] = values["b"][8] = np.nan
    found = combined(table(values)).table
    assert found["flag"][7] == "without a"
    assert found["n"][7] == 2
    assert found["flag"][8] == "rests on c alone"
    assert found["standard_error"][8] is None
    assert found["flag"].null_count() == 48


@pytest.mark.data
def test_irt_and_the_human_time_of_swe_bench_agree_as_published(data: Path) -> None:
    items = pl.read_csv(data / "agentbench" / "swebench_verified_items.csv")
    values = {"irt": items["b_1pl_pyirt"].to_numpy(), "human": items["human_minutes"].to_numpy()}
    found = combined(table(values, items["instance_id"].to_list()))
    of = dict(found.statistics.select("metric", "value").iter_rows())
    assert of["spearman human ~ irt"] == pytest.approx(0.44854, abs=1e-4)


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=25, deadline=None)
def test_order_of_rows_and_monotone_change_of_scale_change_nothing(seed: int, component: bool) -> None:
    rng = np.random.default_rng(seed)
    values = {name: rng.integers(0, 6, 30).astype(float) for name in "abc"}
    frame = table(values)
    how = "component" if component else "equal"
    try:
        one = combined(frame, weights=how).table
    except DataRefused:
        return
    stretched = frame.with_columns(
        pl.when(pl.col("method") == "a").then(pl.col("value").exp()).otherwise("value").alias("value")
    )
    other = combined(stretched.sample(fraction=1.0, shuffle=True, seed=seed), weights=how)
    assert other.table.equals(one)


def test_constant_single_unknown_and_negative_are_refused_with_a_word() -> None:
    a = np.arange(5.0)
    with pytest.raises(DataRefused, match="one estimator"):
        combined(table({"a": a}))
    with pytest.raises(DataRefused, match=r"'b'.*same"):
        combined(table({"a": a, "b": np.ones(5), "c": a}))
    with pytest.raises(UsageError, match="irtt"):
        combined(table({"irt": a, "b": a}), weights={"irtt": 1, "b": 1})
    with pytest.raises(ValidationError, match="weights"):
        combined(table({"irt": a, "b": a}), weights={"irt": -1, "b": 1})
    with pytest.raises(DataRefused, match="no example in common"):
        combined(pl.concat([table({"a": a}), table({"b": a}, [f"z{i}" for i in range(5)])]))


def test_estimators_of_which_no_majority_says_what_is_hard_are_refused_by_component_and_named_by_mean() -> None:
    left = np.random.default_rng(5).normal(size=50)
    ids = [f"q{i}" for i in range(50)]
    frames = [
        pl.DataFrame({"example_id": ids, "method": name, "value": value}) for name, value in (("a", left), ("b", -left))
    ]
    opposed = {"difficulty": pl.concat(frames)}
    with pytest.raises(DataRefused, match="a and the others run against each other"):
        run(opposed, CombinedConfig(weights="component"))
    assert any("a and b run against each other (-1)" in warning for warning in run(opposed, CombinedConfig()).warnings)


def test_names_given_twice_and_endless_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' is named twice"):
        CombinedConfig(of=["a", "a"])
    with pytest.raises(ValueError, match="less than or equal"):
        CombinedConfig(weights={"a": float("inf"), "b": 1.0})

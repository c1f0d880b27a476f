"""Difficulty from nearest labelled neighbours: equal to brute force, better than the mean, honest about its error."""

from __future__ import annotations

import json
import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.prediction.labelled import conformal, folds_of, spearman
from gradatim.tasks.difficulty.result import Difficulty


def _run(tables: dict[str, pl.DataFrame], seed: int = 0, **given_: object) -> Difficulty:
    given_ = {"features": "x", "column": "score", **given_}
    if "of" in given_:
        del given_["column"]
    plugin, config = resolve("difficulty", Step(method="knn", settings=given_))
    result = plugin.run(tables, config, seed)
    assert isinstance(result, Difficulty)
    return result


def _tables(matrix: np.ndarray, score: np.ndarray, **more: object) -> dict[str, pl.DataFrame]:
    ids = [f"e{i:05d}" for i in range(len(matrix))]
    vectors = pl.Series("embedding", np.asarray(matrix, np.float32), dtype=pl.Array(pl.Float32, matrix.shape[1]))
    return {
        "features_x": pl.DataFrame({"example_id": ids, "embedding": vectors}),
        "examples": pl.DataFrame({"example_id": ids, "score": score, **more}),
    }


def _clusters(n: int, labelled: int, seed: int = 0, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thirty clusters, each with a difficulty of its own: vectors, true difficulty, and it where it is known."""
    random = np.random.default_rng(seed)
    cluster = random.integers(0, 30, n)
    matrix = 4 * random.normal(size=(30, 12))[cluster] + random.normal(size=(n, 12))
    truth = random.normal(size=30)[cluster] + noise * random.normal(size=n)
    return matrix, truth, np.where(np.arange(n) < labelled, truth, np.nan)


@pytest.mark.parametrize("weighting", ["uniform", "similarity"])
def test_predictions_equal_brute_force(weighting: str) -> None:
    matrix, _, score = _clusters(300, 200)
    d = _run(_tables(matrix, score), k=7, weighting=weighting)
    unit = matrix.astype(np.float32).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = unit[200:] @ unit[:200].T
    near = np.argsort(-cosine, axis=1)[:, :7]
    weight = np.take_along_axis(cosine, near, axis=1) if weighting == "similarity" else np.ones((100, 7))
    expected = (weight * score[near]).sum(axis=1) / weight.sum(axis=1)
    assert d.table["value"].to_numpy()[200:] == pytest.approx(expected, abs=1e-8)
    assert d.table["value"].to_numpy()[:200] == pytest.approx(score[:200])
    details = [json.loads(text) for text in d.table["details"]]
    assert {row["origin"] for row in details[:200]} == {"own"}
    assert [row["nearest"] for row in details[200:]] == [f"e{j:05d}" for j in near[:, 0]]
    assert [row["similarity"] for row in details[200:]] == pytest.approx(cosine.max(axis=1), abs=1e-6)
    assert d.table["n"].to_list() == [1] * 200 + [7] * 100


def test_on_clusters_it_beats_the_global_mean_and_its_intervals_hold_what_they_say() -> None:
    matrix, truth, score = _clusters(3000, 1000)
    d = _run(_tables(matrix, score))
    value = d.table["value"].to_numpy()[1000:]
    error = np.mean((value - truth[1000:]) ** 2)
    assert error < 0.2 * np.mean((truth[1000:] - truth[:1000].mean()) ** 2)
    assert d.notes["held-out mean squared error"] == pytest.approx(error, rel=0.2)
    assert d.notes["the same of the global mean"] > 5 * d.notes["held-out mean squared error"]  # type: ignore[operator]
    assert spearman(value, truth[1000:]) == pytest.approx(d.notes["held-out rank correlation"], abs=0.03)
    assert d.reliability == pytest.approx(np.corrcoef(value, truth[1000:])[0, 1] ** 2, abs=0.04)
    assert d.intervals is not None
    low, high = d.intervals["low"].to_numpy()[1000:], d.intervals["high"].to_numpy()[1000:]
    assert np.mean((low <= truth[1000:]) & (truth[1000:] <= high)) == pytest.approx(0.95, abs=0.02)
    z = (value - truth[1000:]) / d.table["standard_error"].to_numpy()[1000:]
    assert np.mean(z**2) == pytest.approx(1, abs=0.25)
    assert not any("does not beat" in w for w in d.warnings)
    assert d.bins >= 4
    assert d.statistics is not None
    assert set(d.statistics["metric"]) == {
        "held-out spearman", "held-out r2", "held-out mse", "held-out mse of the mean",
    }  # fmt: skip


def test_noise_is_not_predicted_and_it_says_so() -> None:
    random = np.random.default_rng(0)
    score = np.where(np.arange(600) < 400, random.normal(size=600), np.nan)
    d = _run(_tables(random.normal(size=(600, 8)), score))
    assert any("does not beat the mean" in w for w in d.warnings)
    assert d.reliability == pytest.approx(0, abs=0.05)
    assert d.bins == 1


def test_few_neighbours_are_chosen_where_difficulty_is_fine_and_many_where_it_is_noisy() -> None:
    random = np.random.default_rng(1)
    angle = random.uniform(0, 2 * np.pi, 1500)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    fine = np.where(np.arange(1500) < 1200, np.sin(40 * angle), np.nan)
    noisy = np.where(np.arange(1500) < 1200, np.sin(angle) + 3 * random.normal(size=1500), np.nan)
    assert _run(_tables(circle, fine)).notes["k"] == 5
    assert _run(_tables(circle, noisy)).notes["k"] == 100
    d = _run(_tables(circle, noisy), candidates=[3, 1])
    assert d.notes["k"] == 3
    assert _run(_tables(circle, noisy), k=2).notes["k"] == 2
    assert set(d.pictures) == {"locality", "neighbours"}
    for name in d.pictures:
        assert "vega-lite" in d.plot(name).to_dict()["$schema"]


def test_difficulty_that_is_local_differs_less_between_neighbours() -> None:
    matrix, _, score = _clusters(800, 800)
    d = _run(_tables(matrix, score))
    assert any("nothing was left to predict" in w for w in d.warnings)
    assert d.reliability is None
    pairs = d.pictures["locality"].draw.args[0]  # type: ignore[attr-defined]
    near, random = (pairs.filter(pl.col("pairs") == kind) for kind in ("neighbours", "random pairs"))
    assert near["difference"].head(5).mean() < 0.6 * random["difference"].mean()
    assert near["cosine distance"].is_sorted()


def test_labelled_examples_may_be_predicted_too_each_without_itself() -> None:
    matrix, truth, score = _clusters(500, 300)
    d = _run(_tables(matrix, score), keep_labelled=False, k=1)
    value = d.table["value"].to_numpy()
    assert (value[:300] != truth[:300]).all()
    assert {json.loads(text)["origin"] for text in d.table["details"]} == {"predicted"}
    assert value[300:] == pytest.approx(_run(_tables(matrix, score), k=1).table["value"].to_numpy()[300:])
    assert spearman(value[:300], truth[:300]) == pytest.approx(d.notes["held-out rank correlation"], abs=1e-6)


def test_a_group_is_never_on_both_sides() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=(100, 8))
    matrix = np.repeat(base, 4, axis=0) + 1e-3 * random.normal(size=(400, 8))
    score = np.repeat(random.normal(size=100), 4)
    group = [f"g{i // 4}" for i in range(400)]
    leaking = _run(_tables(matrix, score), k=2)
    honest = _run(_tables(matrix, score, group=group), k=2)
    assert leaking.notes["held-out rank correlation"] > 0.8  # type: ignore[operator]
    assert abs(honest.notes["held-out rank correlation"]) < 0.3  # type: ignore[arg-type]


def test_an_earlier_difficulty_is_extended_with_its_scale_errors_and_flags() -> None:
    matrix, truth, _ = _clusters(200, 0)
    tables = _tables(matrix, truth)
    del tables["examples"]
    tables["difficulty"] = pl.DataFrame(
        {
            "example_id": [f"e{i:05d}" for i in range(120)] * 2,
            "method": ["irt"] * 120 + ["length"] * 120,
            "value": np.concatenate([truth[:120], np.zeros(120)]),
            "scale": ["logit"] * 120 + ["words"] * 120,
            "standard_error": [0.5, None] * 120,
            "flag": ["none right", None] * 120,
        }
    )
    d = _run(tables, of="irt")
    assert d.table["scale"].unique().to_list() == ["logit"]
    assert d.table["standard_error"].head(2).to_list() == [0.5, None]
    assert d.table["flag"].head(2).to_list() == ["none right", None]
    assert d.intervals is not None
    low, high = d.intervals.row(0)[1:]
    assert (high - low) == pytest.approx(2 * 1.96 * 0.5)
    assert "95 % interval" in d.explain("e00001")
    assert "origin own" in d.explain("e00001")
    assert "origin predicted" in d.explain("e00150")
    with pytest.raises(UsageError, match="did you mean 'irt'"):
        _run(tables, of="irtt")


def test_probabilities_stay_probabilities() -> None:
    matrix, truth, _ = _clusters(300, 0)
    tables = _tables(matrix, truth)
    rate = 1 / (1 + np.exp(-4 * truth))
    tables["difficulty"] = tables["examples"].select(
        "example_id", method=pl.lit("pass_rate"), value=pl.Series(rate), scale=pl.lit("probability")
    ).head(200)  # fmt: skip
    d = _run(tables, of="pass_rate")
    assert d.intervals is not None
    assert d.intervals["low"].min() >= 0  # type: ignore[operator]
    assert d.intervals["high"].max() <= 1  # type: ignore[operator]


def test_a_column_whose_higher_number_is_easier_turns_round() -> None:
    matrix, _, score = _clusters(200, 100)
    up, down = (_run(_tables(matrix, score), higher_is_harder=h) for h in (True, False))
    assert down.table["value"].to_numpy() == pytest.approx(-up.table["value"].to_numpy())
    assert down.table["raw"].to_numpy() == pytest.approx(up.table["value"].to_numpy())


def test_one_labelled_example_predicts_all_without_an_error() -> None:
    d = _run(_tables(np.eye(5), np.array([np.nan, 2.0, np.nan, np.nan, np.nan])))
    assert d.table["value"].to_list() == [2.0] * 5
    assert d.table["standard_error"].to_list() == [None] * 5
    assert d.intervals is None
    assert d.reliability is None
    assert any("nothing can be held out" in w for w in d.warnings)
    assert d.bins == 1


def test_equal_labels_give_that_label_and_say_that_there_is_nothing_to_learn() -> None:
    d = _run(_tables(np.random.default_rng(0).normal(size=(60, 4)), np.where(np.arange(60) < 40, 3.0, np.nan)))
    assert d.table["value"].to_list() == [3.0] * 60
    assert any("all labels are equal" in w for w in d.warnings)
    assert d.table["standard_error"].to_list()[40:] == [0.0] * 20


def test_k_larger_than_the_labelled_is_cut_and_said() -> None:
    matrix, _, score = _clusters(60, 10)
    d = _run(_tables(matrix, score), k=100)
    assert d.notes["k"] == 9
    assert any("cut to 9" in w for w in d.warnings)
    assert any("10 held-out examples support intervals of 90.9 %" in w for w in d.warnings)
    two = _run(_tables(matrix, np.where(np.arange(60) < 2, score, np.nan)))
    assert two.notes["k"] == 1


def test_duplicates_zeros_and_missing_vectors_are_answered() -> None:
    matrix = np.ones((30, 3))
    matrix[25:] = 0
    score = np.where(np.arange(30) < 20, np.arange(30.0), np.nan)
    tables = _tables(matrix, score)
    tables["features_x"] = tables["features_x"].slice(1, 28)  # the first, labelled, and the last, unlabelled, are gone
    d = _run(tables, k=4)
    value = dict(d.table.select("example_id", "value").iter_rows())
    assert value["e00000"] == 0  # its own value needs no vector
    assert value["e00022"] == pytest.approx(np.mean([1, 2, 3, 4]))  # all are as near: the first ids
    assert dict(d.excluded.iter_rows()) == {
        "e00025": "a vector of zeros in features x", "e00026": "a vector of zeros in features x",
        "e00027": "a vector of zeros in features x", "e00028": "a vector of zeros in features x",
        "e00029": "no vector in features x",
    }  # fmt: skip
    assert d.notes["labelled with a vector"] == 19
    assert "e00000" in _run(tables, k=4, keep_labelled=False).excluded["example_id"]


def test_what_lies_far_from_all_labels_is_flagged() -> None:
    matrix, _, score = _clusters(400, 300)
    matrix[-1] = -100 * matrix[:300].mean(axis=0)
    matrix[:300, 0] += 50
    d = _run(_tables(matrix, score))
    assert d.table["flag"][-1] == "farther from the labelled examples than any of these from the others"
    assert d.table["flag"].null_count() > 290


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    matrix, _, score = _clusters(120, 80)
    tables = _tables(matrix, score)
    shuffled = {name: frame.sample(fraction=1, shuffle=True, seed=seed) for name, frame in tables.items()}
    a, b = _run(tables), _run(shuffled)
    assert a.table.equals(b.table)
    assert a.reliability == b.reliability
    assert a.notes == b.notes


def test_a_further_unlabelled_example_moves_nobody() -> None:
    matrix, _, score = _clusters(200, 100)
    fewer = _run(_tables(matrix[:150], score[:150])).table
    more = _run(_tables(matrix, score)).table.head(150)
    assert more.select("example_id", "value", "standard_error").equals(
        fewer.select("example_id", "value", "standard_error")
    )


def test_the_result_survives_pickling_and_sums_itself_up() -> None:
    matrix, _, score = _clusters(200, 100)
    d = pickle.loads(pickle.dumps(_run(_tables(matrix, score), lists_probed=3)))
    assert d.title.startswith("knn of score by x, k = ")
    summary = d.summary()
    assert type(summary).from_dict(summary.to_dict()) == summary
    assert len(summary.charts) == 3
    assert "Li" in d.cite()
    assert any("crowd the middle" in w for w in d.warnings)
    plugin = plugins("difficulty")["knn"]
    assert plugin.maturity == "stable"
    assert plugin.cost(1_000_000, 256).seconds == pytest.approx(180, rel=0.3)


def test_wrong_use_is_named() -> None:
    tables = _tables(np.eye(3), np.array([1.0, np.nan, np.nan]), name=["a", "b", "c"])
    with pytest.raises(UsageError, match="either 'of'"):
        resolve("difficulty", Step(method="knn", settings={"features": "x"}))
    with pytest.raises(UsageError, match="type String"):
        _run(tables, column="name")
    with pytest.raises(UsageError, match="no features 'y'"):
        _run(tables, features="y")
    assert "by x" in _run(tables, features="").title
    with pytest.raises(UsageError, match="several features: x, y"):
        _run({**tables, "features_y": tables["features_x"]}, features="")
    with pytest.raises(UsageError, match="there are no features"):
        _run({"examples": tables["examples"]}, features="")
    with pytest.raises(UsageError, match="no difficulty 'irt' to learn from"):
        _run(tables, of="irt")
    with pytest.raises(DataRefused, match="no example has a value"):
        _run(_tables(np.eye(3), np.full(3, np.nan)))
    with pytest.raises(DataRefused, match="none of 1 examples"):
        _run({**tables, "features_x": tables["features_x"].tail(2)})


# --- what knn and probe share


def test_a_conformal_quantile_is_the_next_larger_rank() -> None:
    scores = np.arange(1.0, 100.0)
    assert conformal(scores) == (95.0, 0.95)
    assert conformal(scores[:19]) == (19.0, 0.95)
    assert conformal(scores[:4]) == (4.0, 0.8)


def test_folds_depend_on_the_family_alone() -> None:
    ids = pl.Series([f"e{i}" for i in range(500)])
    fold = folds_of(ids, 5, 0, "x")
    assert np.array_equal(folds_of(ids.reverse(), 5, 0, "x")[::-1], fold)
    assert np.bincount(fold).min() > 70
    assert np.array_equal(folds_of(ids.head(300), 5, 0, "x"), fold[:300])
    assert len(np.unique(folds_of(ids.head(7), 5, 0, "x"))) == 7

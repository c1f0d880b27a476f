"""The linear probe: scikit-learn's fits, a signal found, noise not, and a test part that chose nothing."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import uniform
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.prediction.labelled import spearman
from gradatim.tasks.difficulty.prediction.probe_fit import auc, logistic, platt, ridge
from gradatim.tasks.difficulty.result import Difficulty


def _run(tables: dict[str, pl.DataFrame], seed: int = 0, **given_: object) -> Difficulty:
    given_ = {"features": ["x"], "column": "score", **given_}
    if "of" in given_:
        del given_["column"]
    plugin, config = resolve("difficulty", Step(method="probe", settings=given_))
    result = plugin.run(tables, config, seed)
    assert isinstance(result, Difficulty)
    return result


def _vectors(matrix: np.ndarray) -> pl.DataFrame:
    kind = pl.Array(pl.Float32, matrix.shape[1])
    ids = [f"e{i:05d}" for i in range(len(matrix))]
    return pl.DataFrame({"example_id": ids, "embedding": pl.Series(matrix.astype(np.float32), dtype=kind)})


def _signal(
    n: int = 600, labelled: int = 400, width: int = 12, noise: float = 0.2, seed: int = 0
) -> tuple[dict[str, pl.DataFrame], np.ndarray]:
    """Hidden states whose difficulty is a linear function of them: tables, and the truth."""
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(n, width))
    truth = matrix @ random.normal(size=width) + noise * random.normal(size=n)
    frame = _vectors(matrix)
    score = np.where(np.arange(n) < labelled, truth, np.nan)
    return {"features_x": frame, "examples": frame.select("example_id", score=pl.Series(score))}, truth


# --- the fits


@pytest.mark.parametrize("shape", [(200, 15), (20, 60)])
def test_ridge_is_that_of_scikit_learn(shape: tuple[int, int]) -> None:
    from sklearn.linear_model import Ridge

    random = np.random.default_rng(0)
    matrix = (5 + random.normal(size=shape)).astype(np.float32)
    y = random.normal(size=shape[0])
    rows = np.arange(0, shape[0], 2)
    for alpha, found in zip((0.5, 100.0), ridge(matrix, rows, y[rows], (0.5, 100.0)), strict=True):
        peer = Ridge(alpha=alpha).fit(matrix[rows].astype(np.float64), y[rows])
        assert found.weights == pytest.approx(peer.coef_, abs=1e-8)
        assert found.intercept == pytest.approx(peer.intercept_, abs=1e-7)
        assert found.of(matrix, rows) == pytest.approx(peer.predict(matrix[rows].astype(np.float64)), abs=1e-8)


def test_logistic_is_that_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    matrix = (1 + random.normal(size=(300, 6))).astype(np.float32)
    y = (matrix @ random.normal(size=6) + random.normal(size=300) > 0).astype(float)
    for alpha, found in zip((1.0, 50.0), logistic(matrix, np.arange(300), y, (1.0, 50.0)), strict=True):
        peer = LogisticRegression(C=1 / alpha, tol=1e-10, max_iter=1000).fit(matrix.astype(np.float64), y)
        assert found.weights == pytest.approx(peer.coef_[0], abs=1e-5)
        assert found.intercept == pytest.approx(peer.intercept_[0], abs=1e-5)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    matrix, y = random.normal(size=(200, 5)).astype(np.float32), random.normal(size=200)
    whole = ridge(matrix, np.arange(200), y, (1.0,))[0]
    monkeypatch.setattr("gradatim.tasks.difficulty.prediction.probe_fit.BLOCK", 7)
    assert ridge(matrix, np.arange(200), y, (1.0,))[0].weights == pytest.approx(whole.weights, abs=1e-10)


def test_platts_scaling_finds_the_sigmoid_and_stays_finite_on_separated_classes() -> None:
    random = np.random.default_rng(0)
    score = random.normal(size=20_000)
    y = (random.random(20_000) < 1 / (1 + np.exp(-(2 * score - 1)))).astype(float)
    found = platt(score, y)
    assert (found.slope, found.intercept) == pytest.approx((2, -1), abs=0.08)
    apart = platt(np.array([-1.0, -1, 1, 1]), np.array([0.0, 0, 1, 1]))
    assert apart.of(np.array([-1.0, 1.0])) == pytest.approx([0.25, 0.75], abs=1e-6)  # (N+ + 1) / (N+ + 2)


def test_auc_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(0)
    score, y = random.integers(0, 6, 200).astype(float), random.integers(0, 2, 200).astype(float)
    assert auc(score, y) == pytest.approx(roc_auc_score(y, score))
    assert np.isnan(auc(score, np.ones(200)))


# --- the method


def test_a_linear_signal_is_found() -> None:
    tables, truth = _signal()
    d = _run(tables)
    value = d.table["value"].to_numpy()
    assert spearman(value[400:], truth[400:]) > 0.95
    assert d.notes["rank correlation, test part: probe"] > 0.95  # type: ignore[operator]
    assert value[:400] == pytest.approx(truth[:400])
    assert d.reliability is not None
    assert d.reliability > 0.9
    assert d.intervals is not None
    low, high = d.intervals["low"].to_numpy()[400:], d.intervals["high"].to_numpy()[400:]
    assert np.mean((low <= truth[400:]) & (truth[400:] <= high)) > 0.9
    assert [json.loads(text)["origin"] for text in d.table["details"]] == ["own"] * 400 + ["predicted"] * 200


def test_shuffled_labels_give_nothing() -> None:
    tables, truth = _signal(n=1600, labelled=1500)
    mixed = pl.Series(np.random.default_rng(1).permutation(truth))
    shuffled = tables["examples"].with_columns(pl.when(pl.col("score").is_not_nan()).then(mixed).alias("score"))
    d = _run({**tables, "examples": shuffled})
    assert abs(d.notes["rank correlation, test part: probe"]) < 0.15  # type: ignore[arg-type]
    assert d.reliability is not None
    assert d.reliability < 0.03
    assert d.bins == 1


def test_the_layer_and_penalty_are_chosen_on_the_validation_part() -> None:
    tables, _ = _signal()
    random = np.random.default_rng(3)
    for layer in range(3):
        tables[f"features_h{layer}"] = _vectors(random.normal(size=(600, 12)))
    d = _run(tables, features=["h0", "h1", "x", "h2"], alphas=[1.0, 1e6])
    assert d.notes["features"] == "x"
    assert d.notes["penalty"] == 1
    assert d.title == "ridge probe of score on x"
    assert "vega-lite" in d.plot("choice").to_dict()["$schema"]


def test_the_test_part_takes_no_part_in_fit_or_choice() -> None:
    tables, _ = _signal()
    ids = tables["examples"]["example_id"]
    inside = pl.Series(uniform(ids, 0, "probe/part") < 0.2)
    assert 50 < inside.head(400).sum() < 120
    turned = tables["examples"].with_columns(pl.when(inside).then(-pl.col("score")).otherwise(pl.col("score")))
    a, b = _run(tables), _run({**tables, "examples": turned.rename({"literal": "score"}, strict=False)})
    assert a.table["value"].to_numpy()[400:] == pytest.approx(b.table["value"].to_numpy()[400:])
    assert a.notes["rank correlation, validation part"] == b.notes["rank correlation, validation part"]
    assert b.notes["rank correlation, test part: probe"] < -0.9  # type: ignore[operator]


def test_two_labels_make_a_logistic_probe_with_probabilities() -> None:
    tables, truth = _signal(n=2000, labelled=1200, noise=1.5)
    binary = tables["examples"].with_columns(score=(pl.Series(truth) > 0).cast(pl.Float64)).with_columns(
        pl.when(pl.int_range(pl.len()) < 1200).then(pl.col("score"))
    )  # fmt: skip
    d = _run({**tables, "examples": binary})
    value, right = d.table["value"].to_numpy()[1200:], truth[1200:] > 0
    assert ((value > 0) & (value < 1)).all()
    assert auc(value, right.astype(float)) > 0.9
    for low, high in ((0, 0.2), (0.8, 1)):
        inside = (value >= low) & (value < high)
        assert np.mean(right[inside]) == pytest.approx(value[inside].mean(), abs=0.08)
    assert d.intervals is None
    assert d.notes["AUC, test part: probe"] > 0.9  # type: ignore[operator]
    scaled = binary.with_columns(pl.col("score") * 4 - 1)
    assert _run({**tables, "examples": scaled}).table["value"].to_numpy()[1200:] == pytest.approx(4 * value - 1)
    assert "ridge" in _run({**tables, "examples": binary}, model="ridge").title
    with pytest.raises(UsageError, match="different labels"):
        _run(tables, model="logistic")


def test_labelled_examples_may_be_predicted_by_a_fit_that_did_not_see_them() -> None:
    random = np.random.default_rng(0)
    matrix, noise = random.normal(size=(300, 200)), random.normal(size=300)
    tables = {"features_x": _vectors(matrix), "examples": _vectors(matrix).select("example_id", score=pl.Series(noise))}
    d = _run(tables, keep_labelled=False, alphas=[1.0])
    assert abs(spearman(d.table["value"].to_numpy(), noise)) < 0.2  # a fit that saw them would know them by heart
    assert {json.loads(text)["origin"] for text in d.table["details"]} == {"predicted"}


def test_baselines_of_words_and_length_are_told_and_warned_of() -> None:
    tables, truth = _signal()
    rank = np.argsort(np.argsort(truth))
    texts = ["hard " * (r // 20) + "end" for r in rank]
    d = _run({**tables, "examples": tables["examples"].with_columns(input=pl.Series(texts))})
    assert d.notes["rank correlation, test part: length"] > 0.95  # type: ignore[operator]
    assert d.notes["rank correlation, test part: tf-idf ridge"] > 0.5  # type: ignore[operator]
    noise = _vectors(np.random.default_rng(0).normal(size=(600, 12)))
    worse = _run({"features_x": noise, "examples": tables["examples"].with_columns(input=pl.Series(texts))})
    assert any("length" in w and "did as well or better" in w for w in worse.warnings)
    assert d.statistics is not None
    told = {metric: (value, low, high) for metric, value, low, high in
            d.statistics.select("metric", "value", "ci_low", "ci_high").iter_rows()}  # fmt: skip
    assert set(told) == {f"rank correlation: {name}" for name in ("probe", "length", "tf-idf ridge")}
    value, low, high = told["rank correlation: probe"]
    assert low < value < high
    silent = _run({**tables, "examples": tables["examples"].with_columns(input=pl.lit(""))})
    assert silent.notes["rank correlation, test part: length"] is None


def test_a_group_never_crosses_the_parts() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=(60, 30))
    frame = _vectors(np.repeat(base, 10, axis=0) + 1e-3 * random.normal(size=(600, 30)))
    score = pl.Series(np.repeat(random.normal(size=60), 10))
    examples = frame.select("example_id", score=score)
    honest = examples.with_columns(group=pl.Series([f"g{i // 10}" for i in range(600)]))
    leaking = _run({"features_x": frame, "examples": examples}, alphas=[1.0])
    fair = _run({"features_x": frame, "examples": honest}, alphas=[1.0])
    assert leaking.notes["rank correlation, test part: probe"] > 0.5  # type: ignore[operator]
    assert abs(fair.notes["rank correlation, test part: probe"]) < 0.5  # type: ignore[arg-type]


def test_the_order_of_rows_changes_nothing_and_the_result_survives_pickling() -> None:
    tables, _ = _signal()
    shuffled = {name: frame.sample(fraction=1, shuffle=True, seed=1) for name, frame in tables.items()}
    a, b = _run(tables), pickle.loads(pickle.dumps(_run(shuffled)))
    assert a.table.equals(b.table)
    assert a.notes == b.notes
    summary = a.summary()
    assert type(summary).from_dict(summary.to_dict()) == summary
    assert plugins("difficulty")["probe"].maturity == "experimental"


def test_degenerate_labels_and_missing_vectors_are_answered() -> None:
    tables, _ = _signal()
    equal = _run({**tables, "examples": tables["examples"].with_columns(score=pl.lit(2.0))}, keep_labelled=False)
    assert equal.table["value"].to_numpy() == pytest.approx(np.full(600, 2.0))
    assert any("nothing to learn" in w for w in equal.warnings)
    with pytest.raises(DataRefused, match="use knn"):
        _run({**tables, "examples": tables["examples"].head(20)})
    fewer = _run({**tables, "features_x": tables["features_x"].slice(1, 598)})
    assert fewer.excluded.rows() == [("e00599", "no vector in features x")]
    assert fewer.notes["labelled with all vectors"] == 399
    assert fewer.table["example_id"][0] == "e00000"
    whole, _ = _signal(n=400)
    known = _run(whole)
    assert any("nothing was left to predict" in w for w in known.warnings)
    assert known.reliability is None
    assert "on x" in _run(tables, features=[]).title
    with pytest.raises(UsageError, match="there are no features"):
        _run({"examples": tables["examples"]}, features=[])
    with pytest.raises(UsageError, match="no features 'y'"):
        _run(tables, features=["x", "y"])
    for wrong in ({"alphas": [0.0]}, {"features": ["x", "x"]}):
        with pytest.raises(UsageError):
            _run(tables, **wrong)


# --- what words know of difficulty


@pytest.mark.data
def test_on_gsm8k_vectors_of_words_know_less_than_the_length(data: Path) -> None:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    frame = pl.read_parquet(data / "gsm8k" / "test_4models_correct.parquet")
    models = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(frame["question"].to_list())
    matrix = TruncatedSVD(64, random_state=0).fit_transform(words)
    ids = frame["item"].cast(pl.String)
    vectors = pl.Series(matrix.astype(np.float32), dtype=pl.Array(pl.Float32, 64))
    failed = 1 - frame.select(pl.mean_horizontal(models)).to_series()
    tables = {
        "features_x": pl.DataFrame({"example_id": ids, "embedding": vectors}),
        "examples": pl.DataFrame({"example_id": ids, "score": failed, "input": frame["question"]}),
    }
    d = _run(tables)
    assert d.notes["rank correlation, test part: probe"] == pytest.approx(0.226, abs=0.03)
    assert d.notes["rank correlation, test part: length"] == pytest.approx(0.335, abs=0.001)
    assert any("length did as well or better" in w for w in d.warnings)
    plugin, config = resolve("difficulty", Step(method="knn", settings={"column": "score", "features": "x"}))
    assert plugin.run(tables, config, 0).notes["held-out rank correlation"] == pytest.approx(0.212, abs=0.03)

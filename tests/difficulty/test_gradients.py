"""Gradient-weight alignment and m-coherence: the authors' formulas, autograd, explicit outer products."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty.coherence import coherence
from gradatim.tasks.difficulty.gradient_alignment import alignment, gwa
from gradatim.tasks.difficulty.result import Difficulty


def _run(method: str, tables: dict[str, pl.DataFrame], **given_: object) -> Difficulty:
    plugin, config = resolve("difficulty", Step(method=method, settings=given_))
    result = plugin.run(tables, config, 0)
    assert isinstance(result, Difficulty)
    return result


def _errors(logits: np.ndarray, gold: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True) - np.eye(logits.shape[1])[gold]


# --- gradient-weight alignment


def test_the_fixture_has_alignment_one_half() -> None:
    weights, hidden = np.eye(2), np.array([[1.0, 0.0]])
    error = _errors(hidden @ weights.T, np.array([0]))
    assert error[0] == pytest.approx([-0.26894142, 0.26894142])
    assert alignment(hidden, error, weights) == pytest.approx([0.5], abs=1e-11)
    assert alignment(hidden[0], error[0], weights) == pytest.approx([0.5], abs=1e-11)
    wrong = _errors(hidden @ weights.T, np.array([1]))
    assert alignment(hidden, wrong, weights) == pytest.approx([-0.5], abs=1e-11)


@pytest.mark.train
def test_alignment_is_the_cosine_of_autograds_step_and_the_weights() -> None:
    import torch

    torch.manual_seed(0)
    weights = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    hidden, gold = torch.randn(12, 7, dtype=torch.float64), torch.randint(5, (12,))
    expected = []
    for row in range(12):
        loss = torch.nn.functional.cross_entropy(hidden[row : row + 1] @ weights.T, gold[row : row + 1])
        (gradient,) = torch.autograd.grad(loss, weights)
        cosine = torch.nn.functional.cosine_similarity(-gradient.flatten(), weights.flatten(), dim=0)
        expected.append(float(cosine.detach()))
    w = weights.detach().numpy()
    error = _errors(hidden.numpy() @ w.T, gold.numpy())
    assert alignment(hidden.numpy(), error, w) == pytest.approx(expected, abs=1e-10)


@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0.1, 10))
@settings(max_examples=20)
def test_alignment_is_a_cosine_that_no_scale_changes(seed: int, a: float, b: float) -> None:
    random = np.random.default_rng(seed)
    h, e, w = random.normal(size=(6, 4)), random.normal(size=(6, 3)), random.normal(size=(3, 4))
    found = alignment(h, e, w)
    assert (np.abs(found) <= 1).all()
    assert alignment(a * h, b * e, a * w) == pytest.approx(found, abs=1e-9)
    assert alignment(h, -e, w) == pytest.approx(-found)


def test_gwa_divides_the_mean_by_the_kurtosis_of_scipy() -> None:
    from scipy.stats import kurtosis

    gamma = np.random.default_rng(0).normal(0.02, 0.01, 500)
    assert gwa(gamma) == pytest.approx(gamma.mean() / (kurtosis(gamma) + 1.2), rel=1e-9)
    assert gwa(gamma[::-1]) == gwa(gamma)
    assert np.isnan(gwa([]))
    assert np.isnan(gwa([0.3] * 5))
    assert gwa([0.0, 1.0] * 50) == pytest.approx(0.5 / (-2 + 1.2))  # two lumps turn the sign


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(UsageError, match=r"weights \(3, 5\)"):
        alignment(np.ones((2, 4)), np.ones((2, 3)), np.ones((3, 5)))


def _dynamics(runs: int = 2, epochs: int = 4, examples: int = 50) -> pl.DataFrame:
    random = np.random.default_rng(0)
    rows = runs * epochs * examples
    epoch = np.tile(np.repeat(np.arange(epochs), examples), runs)
    example = np.tile(np.arange(examples), runs * epochs)
    return pl.DataFrame(
        {
            "run_id": np.repeat([f"run-{r}" for r in range(runs)], epochs * examples),
            "position": np.tile(np.arange(epochs * examples), runs),
            "example_id": [f"e{i:03d}" for i in example],
            "epoch": pl.Series(epoch, dtype=pl.Int32),
            "alignment": pl.Series(0.02 - 0.001 * example + 0.002 * random.normal(size=rows), dtype=pl.Float32),
        }
    )


def test_the_difficulty_is_the_negative_mean_and_gwa_is_told_by_run_and_epoch() -> None:
    dynamics = _dynamics()
    for frame in (dynamics, dynamics.sample(fraction=1, shuffle=True, seed=1), dynamics.lazy()):
        d = _run("gradient_alignment", {"dynamics": frame})  # type: ignore[dict-item]
        mean = dynamics.group_by("example_id").agg(pl.col("alignment").cast(pl.Float64).mean()).sort("example_id")
        assert d.table["value"].to_numpy() == pytest.approx(-mean["alignment"].to_numpy(), abs=1e-9)
        assert d.table["raw"].to_numpy() == pytest.approx(mean["alignment"].to_numpy(), abs=1e-9)
        assert d.statistics is not None
        assert len(d.statistics) == 8
        one = dynamics.filter((pl.col("run_id") == "run-1") & (pl.col("epoch") == 2))["alignment"].to_numpy()
        told = d.statistics.filter(pl.col("subset") == "run-1, epoch 2")
        assert told["value"].item() == pytest.approx(gwa(one), rel=1e-6)
        assert told["n"].item() == 50
    assert "steps against the weights" in d.table["flag"][-1]
    assert d.table["flag"][0] is None
    assert d.reliability is not None
    assert d.reliability > 0.9
    assert "vega-lite" in d.plot("epochs").to_dict()["$schema"]
    alone = _run("gradient_alignment", {"dynamics": _dynamics(1)})
    assert alone.statistics is not None
    assert alone.statistics["subset"].to_list() == [f"epoch {i}" for i in range(4)]


def test_alignments_that_are_missing_or_no_numbers_are_left_out_and_counted() -> None:
    dynamics = _dynamics(1)
    strange = pl.when(pl.col("example_id") == "e000").then(None).otherwise(pl.col("alignment"))
    nan = pl.when((pl.col("example_id") == "e001") & (pl.col("epoch") == 1)).then(float("nan")).otherwise(strange)
    d = _run("gradient_alignment", {"dynamics": dynamics.with_columns(alignment=nan)})
    assert d.excluded["example_id"].to_list() == ["e000"]
    assert "values left out" in d.table["flag"][0]
    assert d.table["n"].head(2).to_list() == [3, 4]
    equal = _run("gradient_alignment", {"dynamics": dynamics.with_columns(alignment=pl.lit(0.5, pl.Float32))})
    assert any("no GWA" in w for w in equal.warnings)
    assert equal.bins == 1
    with pytest.raises(DataRefused):
        _run("gradient_alignment", {"dynamics": dynamics.with_columns(alignment=pl.lit(2.0, pl.Float32))})
    with pytest.raises(UsageError, match="alignment"):
        _run("gradient_alignment", {"dynamics": dynamics.drop("alignment")})


# --- m-coherence


def test_equal_gradients_have_coherence_m_and_orthogonal_ones_1() -> None:
    equal = coherence(np.tile([1.0, 2.0], (7, 1)), np.tile([0.5, -0.5], (7, 1)))
    assert equal.m_coherence == pytest.approx(7)
    assert equal.alpha == pytest.approx(1)
    assert equal.cosine == pytest.approx(np.ones(7))
    orthogonal = coherence(np.eye(5), np.tile([0.5, -0.5], (5, 1)))
    assert orthogonal.m_coherence == pytest.approx(1)
    assert orthogonal.cosine == pytest.approx(np.full(5, 5**-0.5))


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=25)
def test_coherence_is_that_of_explicit_outer_products(seed: int, n: int, width: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    h, e = random.normal(size=(n, width)), random.normal(size=(n, classes))
    gradients = np.einsum("nc,nd->ncd", e, h).reshape(n, -1)
    mean = gradients.mean(axis=0)
    found = coherence(h, e)
    assert found.alpha == pytest.approx((mean @ mean) / (gradients**2).sum(axis=1).mean())
    assert found.m_coherence == pytest.approx(n * found.alpha)
    cosine = gradients @ mean / np.linalg.norm(gradients, axis=1) / np.linalg.norm(mean)
    assert found.cosine == pytest.approx(cosine, abs=1e-9)
    assert coherence(3 * h, e).m_coherence == pytest.approx(found.m_coherence)


def test_gradients_of_zero_and_those_that_cancel_are_answered() -> None:
    some = coherence(np.array([[1.0], [1.0], [0.0]]), np.array([[1.0], [1.0], [1.0]]))
    assert some.m == 2
    assert some.m_coherence == pytest.approx(2)
    assert np.isnan(some.cosine[2])
    cancel = coherence(np.ones((2, 1)), np.array([[1.0], [-1.0]]))
    assert cancel.cancelled
    assert cancel.m_coherence == 0
    with pytest.raises(DataRefused, match="every gradient is zero"):
        coherence(np.zeros((2, 1)), np.ones((2, 1)))
    with pytest.raises(UsageError, match="weights"):
        coherence(np.ones((1, 2**15)), np.ones((1, 2**14)))
    with pytest.raises(UsageError, match="expected"):
        coherence(np.ones((1, 2)), np.ones((2, 2)))


def _features(ids: list[str], matrix: np.ndarray) -> pl.DataFrame:
    kind = pl.Array(pl.Float32, matrix.shape[1])
    return pl.DataFrame({"example_id": ids, "embedding": pl.Series(matrix.astype(np.float32), dtype=kind)})


def test_mislabelled_examples_point_against_the_others() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 600)
    hidden = np.eye(3)[gold] + 0.1 * random.normal(size=(600, 3))
    shown = np.where(np.arange(600) < 60, (gold + 1) % 3, gold)
    error = _errors(0.5 * hidden, shown)
    ids = [f"e{i:03d}" for i in range(600)]
    tables = {"features_h": _features(ids, hidden), "features_e": _features(ids[::-1], error[::-1])}
    d = _run("coherence", tables, hidden="h", error="e")
    assert d.table.sort("value")["example_id"].tail(60).is_in(ids[:60]).mean() > 0.95
    found = coherence(hidden.astype(np.float32), error.astype(np.float32))
    assert d.table["value"].to_numpy() == pytest.approx(-found.cosine, abs=1e-9)
    assert d.statistics is not None
    told = dict(d.statistics.select("metric", "value").iter_rows())
    assert told == pytest.approx({"m_coherence": found.m_coherence, "alpha": found.alpha})
    assert d.notes["gradients"] == 600
    assert d.bins == 10


def test_examples_without_both_vectors_are_listed() -> None:
    ids = ["a", "b", "c"]
    tables = {
        "features_h": _features(ids, np.eye(3)),
        "features_e": _features(["b", "c", "d"], np.array([[1.0, -1.0], [0.0, 0.0], [1.0, -1.0]])),
    }
    d = _run("coherence", tables, hidden="h", error="e")
    assert d.table.select("example_id", "flag").rows() == [("b", None), ("c", "gradient of zero")]
    assert d.table["value"].to_list() == pytest.approx([-1.0, 0.0])
    assert d.excluded["example_id"].to_list() == ["a", "d"]
    with pytest.raises(DataRefused, match="no example has a vector both"):
        _run("coherence", {**tables, "features_e": _features(["z"], np.ones((1, 2)))}, hidden="h", error="e")

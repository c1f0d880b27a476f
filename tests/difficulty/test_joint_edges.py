"""Joint fits where the data say too little: what is climbed still rises, and nothing runs off without a word."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import gradatim as gd
from gradatim.tasks.difficulty.item_response.joint import Model, fit_joint
from gradatim.tasks.difficulty.item_response.specify import MODELS
from gradatim.tasks.difficulty.responses import from_matrix


def _answers(n: int, items: int, seed: int, missing: float = 0.0, guess: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    z = np.exp(0.4 * random.normal(size=items)) * (random.normal(size=(n, 1)) - random.normal(size=items))
    answers = (random.random((n, items)) < guess + (1 - guess) / (1 + np.exp(-z))).astype(float)
    answers[random.random(answers.shape) < missing] = np.nan
    return answers


def _climbed(answers: np.ndarray, a: np.ndarray, d: np.ndarray, theta: np.ndarray) -> float:
    """Value of the objective without priors of items, written down anew."""
    seen = np.isfinite(answers)
    z = theta[:, None] * a + d
    y = np.where(seen, answers, 0.0)
    cell = np.where(seen, y * z - np.logaddexp(0.0, z), 0.0)
    information = np.where(seen, a**2 / (2 + np.exp(z) + np.exp(-z)), 0.0).sum(axis=1)
    return float(cell.sum() - 0.5 * (theta**2).sum() - 0.5 * np.log1p(information).sum())


@pytest.mark.parametrize("seed", range(4))
def test_the_value_never_falls_also_where_slopes_run_to_their_bound(seed: int) -> None:
    answers = _answers(40, 30, seed, 0.2)
    fit = fit_joint(answers, "2pl", priors="none")
    rounding = 2e-12 * abs(fit.trace[-1])
    assert (np.diff(fit.trace) >= -rounding).all()
    inner = fit.extreme == 0
    at_end = _climbed(answers[:, inner], fit.a[inner], fit.d[inner], fit.abilities)
    assert fit.trace[-1] == pytest.approx(at_end, abs=1e-6)
    assert np.abs(fit.a).max() <= 30.0


@pytest.mark.parametrize(("model", "seed"), [("3pl", 0), ("4pl", 0), ("4pl", 1), ("4pl", 3)])
def test_the_value_never_falls_with_asymptotes(model: Model, seed: int) -> None:
    fit = fit_joint(_answers(150, 20, seed, 0.1, 0.2), model, errors=False)
    assert (np.diff(fit.trace) >= -2e-12 * abs(fit.trace[-1])).all()


SAME = np.array([np.roll([1.0, 1.0, 0.0, 0.0], k) for k in range(4)] * 3)
HALF = np.full((10, 6), 0.5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("answers", [SAME, HALF], ids=["as many right each", "half right each"])
def test_respondents_who_do_not_differ_take_slope_one_in_any_model(model: Model, answers: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_joint(answers, model)
    assert "do not differ" in fit.slope
    assert fit.converged
    assert fit.a == pytest.approx(np.ones(answers.shape[1]))
    assert np.abs(fit.b).max() < 2
    assert (fit.se_b < 3).all()
    # the slope is not estimated: intercepts, and asymptotes where the model has them
    assert fit.n_parameters == answers.shape[1] * {"1pl": 1, "2pl": 1, "3pl": 2, "4pl": 3}[model]
    d = gd.difficulty("irt", responses=from_matrix(answers), model=model, estimator="joint", splits=1)
    assert any("slope 1 instead of a free one" in w for w in d.warnings)


def test_items_that_hang_on_one_respondent_are_finite_in_every_model() -> None:
    random = np.random.default_rng(0)
    answers = np.full((40, 20), np.nan)
    answers[np.arange(40), np.arange(40) % 20] = random.random(40) < 0.5
    answers[0] = random.random(20) < 0.5  # all that joins them
    for model in MODELS:
        fit = fit_joint(answers, model)
        assert np.abs(fit.b).max() < 5
        assert fit.converged or fit.at_bound.any()


def test_a_hundred_thousand_items_of_three_respondents_are_finite_or_said() -> None:
    answers = (np.random.default_rng(1).random((3, 100_000)) < 0.5).astype(np.float64)
    for model in MODELS[:3]:
        d = gd.difficulty("irt", responses=from_matrix(answers), model=model, splits=0)
        assert d.notes["estimator"] == "joint MAP"
        assert d.table["value"].is_finite().all()
        assert d.table.filter(d.table["value"].abs() > 20)["flag"].null_count() == 0

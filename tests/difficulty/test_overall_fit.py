"""M2 against the reference's values, and how often good and bad models are refused."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from gradatim.tasks.difficulty.item_response.fit import fit_irt

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)
LSAT6, LSAT7, matrix, simulate = published.LSAT6, published.LSAT7, published.matrix, published.simulate


def test_m2_has_the_digits_of_the_reference() -> None:
    # R's mirt, its own tests
    two = fit_irt(matrix(LSAT7), "2pl").overall_fit(matrix(LSAT7))
    assert two.method == "M2"
    assert two.statistic == pytest.approx(11.93841, abs=1e-2)
    assert two.df == 5
    assert two.p == pytest.approx(0.0357, abs=3e-4)
    one = fit_irt(matrix(LSAT6)).overall_fit(matrix(LSAT6))
    assert one.statistic == pytest.approx(5.292566, abs=2e-3)
    assert one.df == 9
    assert one.rmsea == 0.0
    assert fit_irt(matrix(LSAT6), "2pl").overall_fit(matrix(LSAT6)).statistic == pytest.approx(4.737, abs=1e-2)


def test_good_models_are_refused_as_often_as_they_should_be_and_bad_ones_always() -> None:
    small = []
    for seed in range(30):
        answers, *_ = simulate(500, 10, seed)
        small.append(fit_irt(answers, "2pl", errors=False).overall_fit(answers).p)
    assert 0.3 < np.mean(small) < 0.7
    assert np.mean(np.array(small) < 0.1) < 0.25
    random = np.random.default_rng(0)
    theta = random.normal(size=(2, 1500))  # two abilities, five items each
    p = 1 / (1 + np.exp(-1.5 * np.repeat(theta, 5, axis=0).T))
    answers = (random.random(p.shape) < p).astype(float)
    found = fit_irt(answers, "2pl").overall_fit(answers)
    assert found.p < 1e-6
    assert found.rmsea > 0.05


def test_asymptotes_are_counted_and_fixed_slopes_are_not() -> None:
    random = np.random.default_rng(1)
    theta, b = random.normal(size=3000), np.linspace(-1, 2, 8)
    p = 0.25 + 0.75 / (1 + np.exp(-2 * (theta[:, None] - b)))
    answers = (random.random(p.shape) < p).astype(float)
    df = {}
    for name, settings in {
        "1pl": {}, "fixed": {"slope": "fixed"}, "2pl": {"model": "2pl"}, "3pl": {"model": "3pl"},
        "guessing": {"model": "2pl", "guessing": 0.25}, "common": {"model": "3pl", "slope": "common"},
    }.items():  # fmt: skip
        df[name] = fit_irt(answers, **settings).overall_fit(answers).df  # type: ignore[arg-type]
    assert df == {"1pl": 27, "fixed": 28, "2pl": 20, "3pl": 12, "guessing": 20, "common": 19}
    assert fit_irt(answers, guessing=0.25).overall_fit(answers).p > 1e-3 > fit_irt(answers).overall_fit(answers).p


def test_where_there_is_no_test_it_says_why() -> None:
    answers, *_ = simulate(100, 6, 0)
    fit = fit_irt(answers)
    assert fit_irt(answers[:, :3], "2pl").overall_fit(answers[:, :3]).method.startswith("none: no degree")
    holes, halves = answers.copy(), answers.copy()
    holes[0, 0], halves[0, 0] = np.nan, 0.5
    assert fit.overall_fit(holes).method == "none: cells are missing"
    assert fit.overall_fit(halves).method == "none: scores are fractions"
    many, *_ = simulate(60, 90, 1)
    assert fit_irt(many, errors=False).overall_fit(many).method == "none: too many items"

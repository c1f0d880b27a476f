"""Item fit: published S-X2 of LSAT7, brute force, and how often good and bad items are refused."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gradatim.tasks.difficulty.item_response import item_fit
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.fit import fit_irt
from gradatim.tasks.difficulty.item_response.marginal import Grid, group_patterns

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)
simulate = published.simulate


def test_sx2_of_lsat7_has_the_digits_of_the_reference() -> None:
    # R's mirt 1.x, its own tests; it stops its EM at a change of 1e-4, ours goes to the end
    answers = published.matrix(published.LSAT7)
    found = fit_irt(answers, "2pl").fit_test(answers)
    assert found.method == "S-X2"
    assert found.statistic == pytest.approx([4.749440, 14.451071, 1.270381, 5.237400, 0.941125], abs=5e-3)
    assert found.df.tolist() == [2] * 5
    assert found.p == pytest.approx([0.0930, 0.0007, 0.5298, 0.0729, 0.6247], abs=1e-3)


def test_expected_shares_are_those_of_all_patterns_written_out() -> None:
    a, b = np.array([0.7, 1.5, 3.0, 1.0, 0.4, 2.0]), np.array([-2.0, 0.0, 0.5, 2.5, -1.0, 1.0])
    g, u = np.array([0.0, 0.2, 0.1, 0.0, 0.3, 0.25]), np.array([1.0, 1.0, 0.9, 1.0, 1.0, 0.95])
    grid = Grid.of(81)
    shape = Curves(a, -a * b, g, u)
    p = shape.right_wrong(grid.nodes)[0]
    weight = np.exp(grid.log_weights)
    right, every = np.zeros((6, 7)), np.zeros(7)
    for pattern in product((0, 1), repeat=6):
        y = np.array(pattern)
        chance = np.where(y[:, None] == 1, p, 1 - p).prod(axis=0) @ weight
        every[y.sum()] += chance
        right[y == 1, y.sum()] += chance
    assert item_fit._expected_shares(shape, grid) == pytest.approx((right / every)[:, 1:6], abs=1e-12)


def test_an_item_can_be_taken_out_of_hundreds_without_losing_digits() -> None:
    random = np.random.default_rng(0)
    a, b = np.exp(0.4 * random.normal(size=300)), 2 * random.normal(size=300)
    grid = Grid.of(121)
    shape = Curves.plain(a, -a * b)
    shares = item_fit._expected_shares(shape, grid)
    # at each score the expected right answers of all items add up to the score
    assert shares.sum(axis=0) == pytest.approx(np.arange(1, 300), rel=1e-6)


def test_good_items_are_refused_as_often_as_they_should_be_and_bad_ones_more() -> None:
    small = total = 0
    for seed in range(6):
        answers, theta, *_ = simulate(800, 20, seed)
        found = fit_irt(answers, "2pl").fit_test(answers)
        small, total = small + int((found.p < 0.1).sum()), total + 20
    assert 0.03 < small / total < 0.2
    random = np.random.default_rng(1)
    # right in the middle only: no logistic curve
    answers[:, 5] = random.random(800) < np.where(np.abs(theta) < 0.7, 0.9, 0.2)
    fit = fit_irt(answers, "2pl")
    assert fit.fit_test(answers).p[5] < 1e-4
    answers[random.random(answers.shape) < 0.05] = np.nan
    missing = fit_irt(answers, "2pl").fit_test(answers)
    assert missing.method == "Q1"
    assert missing.p[5] < 1e-4
    assert missing.df.tolist() == [8] * 20


def test_guessing_is_seen_by_the_1pl_and_described_by_the_3pl() -> None:
    random = np.random.default_rng(3)
    theta, b = random.normal(size=3000), random.normal(size=15)
    p = 0.3 + 0.7 / (1 + np.exp(-2 * (theta[:, None] - b)))
    answers = (random.random(p.shape) < p).astype(float)
    bare, guessed = fit_irt(answers).fit_test(answers), fit_irt(answers, guessing=0.3).fit_test(answers)
    assert (bare.p < 0.01).sum() > 5
    assert (guessed.p < 0.01).sum() <= 1
    assert (guessed.df == bare.df).all() or np.abs(guessed.df - bare.df).max() <= 2


def test_outfit_is_more_sensitive_to_single_surprises_than_infit() -> None:
    answers, theta, *_ = simulate(1500, 20, 11, slopes=0.0)
    b_far = 1 / (1 + np.exp(-(theta + 3)))
    random = np.random.default_rng(0)
    easy = (random.random(1500) < b_far).astype(float)
    careless = easy.copy()
    careless[np.argsort(-theta)[:15]] = 0.0  # the ablest fail the easiest
    fit = fit_irt(np.column_stack([answers, easy]))
    assert np.abs(fit.outfit - 1).max() < 0.25
    odd = fit_irt(np.column_stack([answers, careless]))
    assert odd.outfit[20] > 1.4
    assert odd.outfit[20] > odd.infit[20] + 0.2


def test_mean_squares_are_averages_of_squared_residuals_over_the_posterior() -> None:
    answers, *_ = simulate(50, 8, 4)
    answers[0] = np.linspace(0.1, 0.9, 8)  # fractions count as shares
    answers[np.random.default_rng(2).random(answers.shape) < 0.2] = np.nan
    fit = fit_irt(answers)
    p = 1 / (1 + np.exp(-fit.a[:, None] * (fit.grid.nodes - fit.b[:, None])))
    seen = np.isfinite(answers)
    y = np.where(seen, answers, 0.0)
    log = y @ np.log(p) + (seen - y) @ np.log(1 - p) + fit.grid.log_weights
    mass = np.exp(log - log.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    residual = seen[:, :, None] * (y[:, :, None] - p) ** 2
    spread = p * (1 - p)
    infit = np.einsum("nq,njq->j", mass, residual) / np.einsum("nq,nj,jq->j", mass, seen.astype(float), spread)
    outfit = np.einsum("nq,njq->j", mass, residual / spread) / seen.sum(axis=0)
    assert fit.infit == pytest.approx(infit, rel=1e-9)
    assert fit.outfit == pytest.approx(outfit, rel=1e-9)


def test_where_there_is_no_test_it_says_why() -> None:
    answers, *_ = simulate(60, 6, 4)
    fit = fit_irt(answers)
    halves = answers.copy()
    halves[0, 0] = 0.5
    assert fit.fit_test(halves).method == "none: scores are fractions"
    assert np.isnan(fit.fit_test(halves).p).all()
    one = fit_irt(answers[:, :1], slope="fixed")
    assert one.fit_test(answers[:, :1]).method == "none: too few items"
    extreme = fit_irt(np.column_stack([answers, np.ones(60)]))
    assert np.isnan(extreme.fit_test(np.column_stack([answers, np.ones(60)])).p[-1])
    patterns = group_patterns(answers)
    many = item_fit.fit_test(patterns, fit.curves, fit.grid, np.full(6, 100))
    assert np.isnan(many.p).all()  # no degree of freedom left
    assert (many.df == 0).all()

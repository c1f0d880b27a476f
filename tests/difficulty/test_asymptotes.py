"""Guessing and slips: published 3PL fits, recovery, laws, and numbers against independent ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response import curves, observed
from gradatim.tasks.difficulty.item_response.abilities import modes
from gradatim.tasks.difficulty.item_response.asymptotes import Asymptotic
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.e_step import counted
from gradatim.tasks.difficulty.item_response.fit import IRTFit, fit_irt
from gradatim.tasks.difficulty.item_response.marginal import Grid, group_patterns, maximise

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)
LSAT6, LSAT7, matrix = published.LSAT6, published.LSAT7, published.matrix


def simulate(
    n: int, items: int, seed: int, *, g: float = 0.2, u: float = 1.0, slopes: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw answers (n, items) of a 3PL or 4PL, and its theta, a, b."""
    random = np.random.default_rng(seed)
    theta, b, a = random.normal(size=n), random.normal(size=items), 1.2 * np.exp(slopes * random.normal(size=items))
    p = g + (u - g) / (1 + np.exp(-a * (theta[:, None] - b)))
    return (random.random((n, items)) < p).astype(float), theta, a, b


def gauss_hermite(size: int) -> Grid:
    """The quadrature of the reference fits."""
    nodes, weights = np.polynomial.hermite.hermgauss(size)
    return Grid(nodes * np.sqrt(2), np.log(weights / np.sqrt(np.pi)))


# --- published digits


def test_lsat7_3pl_has_the_published_digits() -> None:
    fit = fit_irt(matrix(LSAT7), "3pl", priors="none")
    assert fit.converged
    assert fit.loglik == pytest.approx(-2658.05, abs=5e-3)
    # the likelihood is flat in item 2: the published runs stopped at d .094, g .295 and at d .082, g .298
    assert fit.d == pytest.approx([1.866, 0.082, 1.781, 0.482, 1.868], abs=2e-3)
    assert fit.b == pytest.approx([-1.853, -0.049, -1.068, -0.655, -2.436], abs=0.02)
    assert fit.g[1] == pytest.approx(0.298, abs=2e-3)
    assert fit.se_g[1] == pytest.approx(0.140, abs=3e-3)
    # the other four do not guess: logit g runs off, which is said, and has no error
    assert fit.asymptote_at_bound.tolist() == [True, False, True, True, True]
    assert np.delete(fit.g, 1) == pytest.approx([0.0] * 4, abs=1e-5)
    assert np.isnan(np.delete(fit.se_g, 1)).all()
    assert fit.n_parameters == 15


@pytest.mark.data
def test_the_reference_3pl_with_one_slope_is_reached_and_slightly_bettered(data: Path) -> None:
    reference = pl.read_csv(data / "irt_classic" / "reference_estimates.csv", null_values="NA").filter(
        pl.col("model") == "ltm_tpm_rasch"
    )
    theirs, (a, b, c) = reference["loglik"][0], reference.select(pl.col("a", "b", "c").cast(pl.Float64)).to_numpy().T
    patterns = group_patterns(matrix(LSAT6))
    at_theirs = Curves(a, -a * b, c, np.ones(5))
    assert counted(patterns, at_theirs, gauss_hermite(21)).loglik == pytest.approx(theirs, abs=1e-6)
    fit = fit_irt(matrix(LSAT6), "3pl", slope="common", priors="none")
    assert fit.n_parameters == reference["npar"][0]
    assert theirs < fit.loglik < theirs + 0.05
    # g may move by .2 at the cost of .02 in the log-likelihood, so that only the slope and two curves are comparable
    assert fit.a[0] == pytest.approx(a[0], abs=0.01)
    assert fit.b[[1, 2]] == pytest.approx(b[[1, 2]], abs=0.03)
    assert curves.probability(fit.a, fit.b, fit.g, fit.u, np.linspace(-2, 2, 9)) == pytest.approx(
        curves.probability(a, b, c, np.ones(5), np.linspace(-2, 2, 9)), abs=0.02
    )


# --- recovery


def test_locations_are_recovered_with_guessing_fixed_and_free_and_not_without() -> None:
    answers, theta, a, b = simulate(2000, 40, 1)
    fixed = fit_irt(answers, "2pl", guessing=0.2)
    free = fit_irt(answers, "3pl")
    bare = fit_irt(answers, "2pl")
    bias = {}
    for name, fit, correlation in (("fixed", fixed, 0.99), ("free", free, 0.985), ("bare", bare, 0.94)):
        assert fit.converged
        assert np.corrcoef(fit.b, b)[0, 1] > correlation
        assert np.corrcoef(fit.abilities, theta)[0, 1] > 0.9
        bias[name] = float(np.mean(fit.b - b))
    assert abs(bias["fixed"]) < 0.05
    assert abs(bias["free"]) < 0.1
    assert bias["bare"] < -0.3  # guesses make items look easy
    assert free.g.mean() == pytest.approx(0.2, abs=0.03)
    assert np.corrcoef(fixed.a, a)[0, 1] > 0.9
    for fit in (fixed, free):  # errors are honest: squared z average about one; a prior that is right makes it less
        z = (fit.b - b) / fit.se_b
        assert np.abs(z).max() < 4.5
        assert 0.3 < np.mean(z**2) < 1.6
    assert ((free.g - 0.2) / free.se_g).std() < 1.3


def test_slips_are_recovered_by_the_4pl() -> None:
    answers, _, _, b = simulate(4000, 25, 2, g=0.15, u=0.9)
    fit = fit_irt(answers, "4pl")
    assert fit.converged
    assert fit.u.mean() == pytest.approx(0.9, abs=0.03)
    assert fit.g.mean() == pytest.approx(0.15, abs=0.05)
    assert np.corrcoef(fit.b, b)[0, 1] > 0.97
    assert np.isfinite(fit.se_u).all()
    assert fit.n_parameters == 100


# --- laws


@pytest.mark.parametrize(
    "settings_",
    [
        {"model": "3pl"},
        {"model": "3pl", "priors": "none"},
        {"model": "4pl"},
        {"model": "3pl", "slope": "common"},
        {"model": "3pl", "slope": "fixed"},
        {"model": "1pl", "guessing": 0.25},
        {"model": "2pl", "guessing": 0.25},
        {"model": "4pl", "guessing": 0.1, "slope": 1.3},
    ],
)
def test_the_log_likelihood_never_falls_and_ends_at_a_maximum(settings_: dict[str, Any]) -> None:
    answers, *_ = simulate(250, 12, 3)
    answers[np.random.default_rng(1).random(answers.shape) < 0.1] = np.nan
    fit = fit_irt(answers, **settings_)
    assert fit.converged
    assert len(fit.trace) > 3
    assert (np.diff(fit.trace) >= -1e-11 * np.abs(fit.trace[1:])).all()  # values as they are: rounded
    prior = _log_prior(fit, settings_["model"])
    assert fit.loglik + prior == pytest.approx(fit.trace[-1], abs=1e-6)
    # no small change of what is free betters it
    patterns, random = group_patterns(answers), np.random.default_rng(0)
    free_g, free_u = fit.guessing == "free", settings_["model"] == "4pl"
    for _ in range(30):
        step = 0.01 * random.normal(size=(4, 12))
        if fit.slope != "free" or settings_["model"] == "1pl":
            step[0] = 0.0 if fit.slope in ("fixed", "given") else step[0, 0]
        g = 1 / (1 + np.exp(-np.log(fit.g / (1 - fit.g)) - step[2])) if free_g else fit.g
        u = 1 / (1 + np.exp(-np.log(fit.u / (1 - fit.u)) - step[3])) if free_u else fit.u
        moved = Curves(fit.a + step[0], fit.d + step[1], g, u)
        value = counted(patterns, moved, fit.grid).loglik
        assert value + _log_prior_of(moved, fit, settings_["model"]) < fit.trace[-1] + 1e-9


def _log_prior(fit: IRTFit, model: str) -> float:
    return _log_prior_of(fit.curves, fit, model)


def _log_prior_of(at: Curves, fit: IRTFit, model: str) -> float:
    """The weak priors as the documentation states them, K = 5."""
    if fit.priors == "none":
        return 0.0
    total = -0.5 * ((-at.d / at.a) / 2) ** 2
    if fit.slope == "free" and model != "1pl":
        total = total - 0.5 * (np.log(at.a) / 0.5) ** 2
    centre = np.log(0.2 / 0.8)
    if fit.guessing == "free":
        total = total - 0.5 * (np.log(at.g / (1 - at.g)) - centre) ** 2
    if model == "4pl":
        total = total - 0.5 * (np.log((1 - at.u) / at.u) - centre) ** 2
    return float(total.sum())


@pytest.mark.parametrize(("slope", "upper"), [("free", True), ("common", False), ("given", False)])
def test_the_observed_information_is_the_numerical_hessian_also_with_missing_cells(slope: Any, upper: bool) -> None:
    answers, *_ = simulate(80, 7, 2)
    answers[np.random.default_rng(0).random(answers.shape) < 0.2] = np.nan
    start = Curves(np.ones(7), np.zeros(7), np.full(7, 0.15), np.full(7, 0.95 if upper else 1.0))
    objective = Asymptotic(group_patterns(answers), slope, start, True, upper, True, True, np.full(7, np.log(0.25)))
    grid = Grid.of(61)
    end, information = observed.finish(objective, grid, maximise(objective, grid, objective.start(), tolerance=1e-3))
    assert end.settled
    assert information is not None

    def value(x: np.ndarray) -> float:
        return objective.expect(x, grid).loglik + objective.prior(x)

    size, h = len(end.x), 1e-3
    steps = np.eye(size) * h
    for i, j in ((0, 0), (0, size - 1), (size // 2, size // 2), (1, size - 3), (size - 1, size - 1), (3, 8)):
        numeric = (
            value(end.x + steps[i] + steps[j]) - value(end.x + steps[i] - steps[j])
            - value(end.x - steps[i] + steps[j]) + value(end.x - steps[i] - steps[j])
        ) / (4 * h * h)  # fmt: skip
        assert -numeric == pytest.approx(information[i, j], abs=2e-3 * (1 + abs(information[i, j])))


def test_errors_of_long_tests_agree_with_the_full_information(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, *_ = simulate(400, 60, 4)
    exact = fit_irt(answers, "3pl")
    monkeypatch.setattr(observed, "EXACT_OPERATIONS", 1e7)
    cheap = fit_irt(answers, "3pl")
    assert exact.errors == "observed information"
    assert cheap.errors == "observed information, quadratic in ability"
    assert cheap.b == pytest.approx(exact.b, abs=1e-3)
    for name in ("se_a", "se_b", "se_g"):
        ratio = getattr(cheap, name) / getattr(exact, name)
        assert np.median(np.abs(ratio - 1)) < 5e-3
        assert np.abs(ratio - 1).max() < 0.05
    monkeypatch.setattr(observed, "MOST_PARAMETERS", 1000)  # more respondents than that, too many parameters to invert
    monkeypatch.setattr(observed, "EXACT_OPERATIONS", 1e5)
    long = fit_irt(answers, "3pl")
    assert long.errors == "observed information, quadratic in ability"
    for name in ("se_a", "se_b", "se_g"):
        assert getattr(long, name) == pytest.approx(getattr(cheap, name), rel=1e-3)
    monkeypatch.setattr(observed, "MOST_PARAMETERS", 10)
    few = fit_irt(answers, "3pl")
    assert few.errors == "complete-data information: too small"
    assert (few.se_b < long.se_b).all()


def test_a_larger_model_is_never_less_likely() -> None:
    for seed in range(3):
        answers, *_ = simulate(300, 7, seed)
        two, three = fit_irt(answers, "2pl", priors="none"), fit_irt(answers, "3pl", priors="none")
        assert three.loglik > two.loglik - 1e-4
        one, common = fit_irt(answers), fit_irt(answers, "3pl", slope="common", priors="none")
        assert common.loglik > one.loglik - 1e-4


def test_to_ask_for_no_errors_changes_no_estimate() -> None:
    answers, *_ = simulate(300, 8, 1)
    for priors in ("none", "weak"):
        with_, without = (fit_irt(answers, "3pl", priors=priors, errors=e) for e in (True, False))  # type: ignore[arg-type]
        assert without.loglik == pytest.approx(with_.loglik, abs=1e-8)
        assert without.b == pytest.approx(with_.b, abs=1e-6)
        assert np.isnan(without.se_b).all()
    loose = fit_irt(answers, "3pl", errors=False, tolerance=1e-4)
    assert loose.loglik == pytest.approx(with_.loglik, abs=0.05)


def test_guessing_given_as_zero_is_no_guessing() -> None:
    answers = matrix(LSAT7)
    for model in ("1pl", "2pl"):
        plain, zero = fit_irt(answers, model), fit_irt(answers, model, guessing=0.0)  # type: ignore[arg-type]
        assert (plain.b == zero.b).all()
        assert zero.guessing == "none"
    two, three = fit_irt(answers, "2pl"), fit_irt(answers, "3pl", guessing=0.0, priors="none")
    assert three.b == pytest.approx(two.b, abs=1e-5)
    assert three.se_b == pytest.approx(two.se_b, rel=1e-4)


def test_a_4pl_of_mirrored_answers_is_the_mirror_image() -> None:
    answers, *_ = simulate(500, 10, 5, g=0.15, u=0.9)
    fit, mirror = fit_irt(answers, "4pl"), fit_irt(1 - answers, "4pl")
    assert mirror.loglik == pytest.approx(fit.loglik, abs=1e-6)
    assert mirror.b == pytest.approx(-fit.b, abs=1e-4)
    assert mirror.a == pytest.approx(fit.a, abs=1e-4)
    assert mirror.g == pytest.approx(1 - fit.u, abs=1e-4)
    assert mirror.abilities == pytest.approx(-fit.abilities, abs=1e-4)
    assert mirror.map_abilities == pytest.approx(-fit.map_abilities, abs=1e-4)


@given(st.integers(0, 10_000), st.sampled_from(["1pl", "2pl", "3pl", "4pl"]), st.floats(0, 0.4))
@settings(deadline=None, max_examples=20)
def test_order_of_respondents_changes_no_bit_and_everything_is_finite(seed: int, model: Any, missing: float) -> None:
    answers, *_ = simulate(40, 12, seed)
    random = np.random.default_rng(seed)
    answers[random.random(answers.shape) < missing] = np.nan
    answers[0] = np.round(random.random(12), 1)  # and every item is answered
    answers[1:3] = [[0.0] * 12, [1.0] * 12]
    guessing = {"1pl": 0.25, "2pl": 0.2}.get(model)
    fit = fit_irt(answers, model, guessing=guessing)
    rows = random.permutation(40)
    again = fit_irt(answers[rows], model, guessing=guessing)
    for name in ("a", "b", "g", "u", "se_b"):
        assert getattr(again, name).tobytes() == getattr(fit, name).tobytes()
    assert (again.abilities == fit.abilities[rows]).all()
    assert (again.map_abilities == fit.map_abilities[rows]).all()
    for name in ("a", "b", "g", "u", "abilities", "ability_se", "map_abilities", "map_se"):
        assert np.isfinite(getattr(fit, name)).all()
    assert fit.abilities[1] < fit.abilities[2]
    assert fit.map_abilities[1] < fit.map_abilities[2]


@given(st.integers(0, 10_000), st.sampled_from(["2pl", "3pl"]))
@settings(deadline=None, max_examples=8)
def test_doubling_every_respondent_keeps_ranks_of_locations(seed: int, model: Any) -> None:
    answers, *_ = simulate(300, 10, seed, slopes=0.1)
    once = fit_irt(answers, model, priors="none" if model == "2pl" else "auto", errors=False)
    twice = fit_irt(np.repeat(answers, 2, axis=0), model, priors=once.priors, errors=False)
    if model == "2pl":
        assert (np.argsort(once.b) == np.argsort(twice.b)).all()
        assert twice.loglik == pytest.approx(2 * once.loglik)
    else:  # twice the data halve the weight of the priors, which may exchange neighbours
        assert published.spearman(once.b, twice.b) > 0.9


# --- abilities


def test_modes_are_where_the_posterior_is_highest() -> None:
    answers, *_ = simulate(60, 15, 6)
    answers[np.random.default_rng(0).random(answers.shape) < 0.2] = np.nan
    fit = fit_irt(answers, "3pl")
    theta = np.linspace(-6, 6, 24001)
    p = fit.g[:, None] + (fit.u - fit.g)[:, None] / (1 + np.exp(-fit.a[:, None] * (theta - fit.b[:, None])))
    seen = np.isfinite(answers)
    y = np.where(seen, answers, 0.0)
    log = y @ np.log(p) + (seen - y) @ np.log(1 - p) - theta**2 / 2
    assert fit.map_abilities == pytest.approx(theta[log.argmax(axis=1)], abs=6e-4)
    assert fit.map(answers) == pytest.approx(fit.map_abilities, abs=1e-8)
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    assert fit.abilities == pytest.approx(weight @ theta, abs=1e-4)
    assert fit.ability_se**2 == pytest.approx(weight @ theta**2 - (weight @ theta) ** 2, abs=1e-4)


def test_the_error_of_a_mode_is_the_root_of_the_inverse_information_and_prior() -> None:
    fit = fit_irt(matrix(LSAT7), "2pl")
    assert fit.map_se == pytest.approx(1 / np.sqrt(fit.information(fit.map_abilities) + 1), rel=1e-9)


def test_the_highest_of_two_modes_is_found() -> None:
    # with guessing, one hard item right against many easy ones wrong pulls both ways
    a, b, g = np.array([3.0] * 6), np.array([-2.0, -2.0, -2.0, 2.0, 2.0, 2.0]), np.full(6, 0.3)
    shape = Curves(a, -a * b, g, np.ones(6))
    rows = np.array([[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0], [1, 1, 0, 1, 1, 1.0]])
    patterns = group_patterns(rows)
    theta, error = modes(patterns, shape, Grid.of(121))
    nodes = np.linspace(-6, 6, 120001)
    right, wrong = shape.right_wrong(nodes)
    log = rows @ np.log(right) + (1 - rows) @ np.log(wrong) - nodes**2 / 2
    assert theta[patterns.index] == pytest.approx(nodes[log.argmax(axis=1)], abs=2e-4)
    assert ((error > 0) & (error <= 1)).all()


# --- degenerate input


def test_an_item_that_fewer_solve_than_guess_it_stays_finite() -> None:
    answers, *_ = simulate(300, 12, 7)
    answers[:, 4] = np.random.default_rng(0).random(300) < 0.1  # K = 4 would give .25 to everyone
    for model in ("1pl", "2pl", "3pl"):
        fit = fit_irt(answers, model, guessing=0.25)  # type: ignore[arg-type]
        assert fit.priors == "weak"
        assert np.isfinite(fit.b).all()
        assert fit.b[4] > np.delete(fit.b, 4).max() - 0.5
        assert np.isfinite(fit.se_b).all()
    bare = fit_irt(answers, "1pl", guessing=0.25, priors="none")
    assert np.isfinite(bare.b).all()
    assert bare.at_bound[4]
    assert bare.b[4] == bare.b.max()


def test_negative_discrimination_is_kept_where_there_are_no_priors() -> None:
    answers, theta, *_ = simulate(800, 15, 6, g=0.0)
    answers[:, 3] = (np.random.default_rng(1).random(800) < 1 / (1 + np.exp(theta))).astype(float)
    for settings_ in ({"model": "2pl", "guessing": 0.05}, {"model": "3pl"}):
        fit = fit_irt(answers, priors="none", **settings_)  # type: ignore[arg-type]
        assert fit.a[3] < -0.4
        assert (np.delete(fit.a, 3) > 0).all()
    # the prior allows no a below 0: guessing takes such an item, whose curve is flat where respondents are
    weak = fit_irt(answers, "3pl")
    assert (weak.a > 0).all()
    flat = curves.probability(weak.a, weak.b, weak.g, weak.u, np.linspace(-1.5, 1.5, 7))
    assert np.ptp(flat[3]) < 0.15 < np.ptp(np.delete(flat, 3, axis=0), axis=1).min()


def test_extreme_items_are_placed_beyond_the_others_and_change_nothing_else() -> None:
    answers, *_ = simulate(134, 20, 9)
    plain = fit_irt(answers, "2pl", guessing=0.25)
    fit = fit_irt(np.column_stack([answers, np.zeros(134), np.ones(134)]), "2pl", guessing=np.full(22, 0.25))
    assert fit.extreme[-2:].tolist() == [-1, 1]
    assert fit.b[:-2] == pytest.approx(plain.b)
    assert fit.abilities == pytest.approx(plain.abilities)
    assert np.argmax(fit.b) == 20
    assert np.argmin(fit.b) == 21
    assert (fit.g == 0.25).all()
    free = fit_irt(np.column_stack([answers, np.zeros(134), np.ones(134)]), "3pl")
    assert np.isfinite(free.b).all()
    assert free.g[-2:].tolist() == [0.0, 0.0]
    assert np.isnan(free.se_g[-2:]).all()


@pytest.mark.parametrize("settings_", [{"model": "3pl"}, {"model": "4pl"}, {"model": "1pl", "guessing": 0.25}])
def test_a_respondent_without_an_answer_is_the_prior_and_few_respondents_stay_finite(settings_: dict[str, Any]) -> None:
    answers, *_ = simulate(60, 8, 1)
    answers[3] = np.nan
    fit = fit_irt(answers, **settings_)
    assert [fit.abilities[3], fit.map_abilities[3]] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert [fit.ability_se[3], fit.map_se[3]] == pytest.approx([1.0, 1.0], abs=1e-6)
    three = fit_irt(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]), **settings_)
    assert three.converged
    for name in ("a", "b", "g", "u", "se_b"):
        assert np.isfinite(getattr(three, name)).all()


def test_perfect_scales_stop_at_bounds_and_are_said() -> None:
    steps = np.repeat(np.tril(np.ones((9, 8)), -1), 5, axis=0)  # whoever solves an item solves all easier ones
    bare = fit_irt(steps, "3pl", priors="none")
    assert bare.at_bound.any()
    assert (np.diff(bare.b) > 0).all()
    weak = fit_irt(steps, "3pl")
    assert weak.converged
    assert not weak.at_bound.any()
    assert (np.diff(weak.b) > 0).all()


def test_the_number_of_threads_changes_no_bit() -> None:
    from threadpoolctl import threadpool_limits

    answers, *_ = simulate(300, 40, 8)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            fit = fit_irt(answers, "3pl")
            found.append(fit.b.tobytes() + fit.abilities.tobytes() + fit.se_b.tobytes())
    assert found[0] == found[1]


def test_respondents_that_do_not_differ_take_slope_one() -> None:
    answers = np.array([np.roll([1.0, 1.0, 0.0, 0.0], k) for k in range(4)] * 10)
    fit = fit_irt(answers, guessing=0.2, priors="none")
    assert "do not differ" in fit.slope
    assert np.isfinite(fit.b).all()
    weak = fit_irt(answers, guessing=0.2)  # the prior of b = -d / a holds the slope off 0
    assert 0.05 < weak.a[0] < 0.5
    assert np.isfinite(weak.b).all()


def test_one_item_and_two_respondents_are_enough_for_a_1pl_with_guessing() -> None:
    fit = fit_irt(np.array([[1.0], [0.0]]), guessing=0.25)
    assert np.isfinite(fit.b).all()
    assert np.isfinite(fit.map_abilities).all()


@pytest.mark.parametrize(
    ("settings_", "error", "said"),
    [
        ({"model": "3pl", "guessing": 1.0}, UsageError, "guessing"),
        ({"model": "3pl", "guessing": [0.1, 0.2]}, UsageError, "shape"),
        ({"model": "3pl", "guessing": np.nan}, UsageError, "guessing"),
        ({"model": "3pl", "choices": 1}, UsageError, "choices"),
        ({"model": "3pl", "slope": "wide"}, UsageError, "slope"),
        ({"model": "1pl", "slope": 0.0}, UsageError, "slope"),
        ({"model": "2pl", "slope": "common"}, UsageError, "2PL"),
        ({"model": "1pl", "priors": "weak"}, UsageError, "no priors"),
    ],
)
def test_wrong_settings_are_named(settings_: dict[str, Any], error: type, said: str) -> None:
    with pytest.raises(error) as caught:
        fit_irt(np.eye(4), **settings_)
    assert said in str(caught.value)


def test_too_few_items_for_asymptotes_are_refused() -> None:
    with pytest.raises(DataRefused, match="3PL"):
        fit_irt(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), "3pl", slope="common")

"""Joint estimation of items and abilities: against truth, published estimates and the marginal fit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response import joint
from gradatim.tasks.difficulty.item_response.calibration import calibrate, choose
from gradatim.tasks.difficulty.item_response.cells import Cells
from gradatim.tasks.difficulty.item_response.fit import fit_irt
from gradatim.tasks.difficulty.item_response.joint import JointFit, fit_joint
from gradatim.tasks.difficulty.item_response.joint_halves import locations_given
from gradatim.tasks.difficulty.item_response.joint_step import D_SD, LOG_A_SD
from gradatim.tasks.difficulty.item_response.orientation import score_correlations
from gradatim.tasks.difficulty.item_response.specify import MODELS
from gradatim.tasks.difficulty.responses import Responses, to_cells

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)
simulate, spearman = published.simulate, published.spearman


def _inner(fit: JointFit) -> np.ndarray:
    return np.flatnonzero(fit.extreme == 0)


def _sparse(n: int, items: int, share: float, seed: int) -> np.ndarray:
    answers = simulate(n, items, seed)[0]
    random = np.random.default_rng(seed + 1)
    answers[random.random(answers.shape) > share] = np.nan
    lacking = np.flatnonzero(~np.isfinite(answers).any(axis=0))
    answers[random.integers(0, n, len(lacking)), lacking] = 1.0
    return answers


# --- published numbers


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "all_items", "told_apart"),
    [
        ("swebench_verified", 0.9993, 0.9993),
        ("swebench_pro", 0.978, 0.994),  # py-irt orders the 250 items that none of 14 solved by chance
        ("gso", 0.968, 0.965),  # 36 of 102 items solved by none of 15
        ("terminalbench", 0.998, 0.998),
    ],
)
def test_agents_have_the_difficulties_that_py_irt_published(
    data: Path, name: str, all_items: float, told_apart: float
) -> None:
    folder = data / "agentbench"
    responses = to_cells(
        pl.read_parquet(folder / f"{name}_responses.parquet").select(
            respondent_id="submission", example_id="instance_id", score="resolved"
        )
    )
    theirs = pl.read_csv(folder / f"{name}_items.csv")
    joined = pl.DataFrame({"instance_id": responses.examples}).join(theirs, on="instance_id", maintain_order="left")
    b = joined["b_1pl_pyirt"].to_numpy()
    for fit in (fit_joint(responses.cells), fit_irt(responses.matrix, errors=False)):
        ours, inner = np.round(fit.b, 9), fit.extreme == 0
        assert spearman(ours, b) > all_items
        assert spearman(ours[inner], b[inner]) > told_apart


@pytest.mark.data
def test_four_readers_of_thirty_thousand_hans_items_are_ordered_by_what_they_solved(data: Path) -> None:
    table = pl.read_parquet(data / "hans_berts" / "hans_4models_correct.parquet")
    answers = table.select("bert", "decomp_attn", "esim", "spinn").to_numpy().T.astype(float)
    fit = fit_joint(answers)
    assert fit.converged
    assert np.argsort(fit.abilities).tolist() == np.argsort(answers.mean(axis=1)).tolist()
    rate, value = np.unique(answers.mean(axis=0)), np.unique(np.round(fit.b, 9))
    assert len(rate) == len(value) == 5  # a 1PL of complete data orders by the number of right answers alone
    assert np.corrcoef(np.round(fit.b, 9), -answers.mean(axis=0))[0, 1] > 0.95


@pytest.mark.parametrize(
    ("dependence", "rate", "located"),
    [(0.0, 0.876, 0.89), (1.0, 0.371, 0.89), (2.0, -0.017, 0.88)],
)
def test_routing_hard_items_to_able_models_ruins_the_pass_rate_and_not_the_model(
    dependence: float, rate: float, located: float
) -> None:
    random = np.random.default_rng(0)
    n, items, asked = 100, 1000, 15
    theta = random.normal(size=n)
    theta = (theta - theta.mean()) / theta.std()
    b = 1.1 * random.normal(size=items)
    answers = (random.random((n, items)) < 1 / (1 + np.exp(b - theta[:, None]))).astype(float)
    key = dependence * theta[:, None] * b + random.gumbel(size=answers.shape)
    answers[np.argsort(np.argsort(-key, axis=0), axis=0) >= asked] = np.nan
    fit = fit_joint(answers)
    assert fit.converged
    assert spearman(1 - np.nanmean(answers, axis=0), b) == pytest.approx(rate, abs=0.08)
    assert spearman(fit.b, b) == pytest.approx(located, abs=0.03)


def test_a_hundred_models_on_five_thousand_items_keep_a_hundred_abilities() -> None:
    answers, theta, _, b = simulate(100, 5000, 2)
    fit = fit_joint(answers, "2pl")
    assert len(np.unique(np.round(fit.abilities, 6))) == 100
    assert np.corrcoef(fit.abilities, theta)[0, 1] > 0.999
    assert spearman(fit.b, b) > 0.95


# --- beside the marginal fit


@pytest.mark.parametrize("model", ["1pl", "2pl"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_joint_and_marginal_agree_at_two_hundred_items(model: joint.Model, share: float) -> None:
    answers = _sparse(100, 200, share, 3)
    ours, marginal = fit_joint(answers, model), fit_irt(answers, model)
    assert spearman(np.round(ours.b, 6), np.round(marginal.b, 6)) > 0.999
    assert np.corrcoef(ours.abilities, marginal.abilities)[0, 1] > 0.9995
    if model == "1pl":  # the same likelihood, by Laplace's approximation or by quadrature
        assert ours.a[0] == pytest.approx(marginal.a[0], rel=1e-3)
        assert ours.b == pytest.approx(marginal.b, abs=0.01)
        assert ours.loglik == pytest.approx(marginal.loglik, abs=1.0)
        inner = _inner(ours)
        ratio = ours.se_b[inner] / marginal.se_b[inner]
        assert (ratio < 1.001).all()  # abilities and slope taken as known: too small, never too large
        assert (ratio > 0.6).all()


@pytest.mark.parametrize(
    ("model", "guessing", "least"), [("1pl", 0.25, 0.999), ("3pl", 0.25, 0.999), ("3pl", None, 0.99)]
)
def test_models_with_guessing_agree_with_the_marginal_fit(
    model: joint.Model, guessing: float | None, least: float
) -> None:
    random = np.random.default_rng(3)
    theta, b, a = random.normal(size=400), random.normal(size=60), np.exp(0.3 * random.normal(size=60))
    p = 0.25 + 0.75 / (1 + np.exp(-a * (theta[:, None] - b)))
    answers = (random.random(p.shape) < p).astype(float)
    ours, marginal = fit_joint(answers, model, guessing=guessing), fit_irt(answers, model, guessing=guessing)
    assert ours.converged
    assert spearman(ours.b, marginal.b) > least
    assert spearman(ours.b, b) > spearman(marginal.b, b) - 0.02
    assert ours.guessing == marginal.guessing
    if guessing is None:
        assert np.median(ours.g) == pytest.approx(np.median(marginal.g), abs=0.02)
        assert np.isfinite(ours.se_g[ours.extreme == 0]).mean() > 0.9


def test_the_estimator_is_chosen_by_size_and_says_why() -> None:
    assert choose("auto", 134, 500)[0] == "marginal"
    assert choose("auto", 100, 4999)[0] == "marginal"
    assert choose("auto", 100, 5000) == ("joint", "5,000 examples, 5,000 or more")
    assert choose("auto", 2000, 1000)[0] == "joint"
    assert choose("marginal", 100, 1_000_000) == ("marginal", "asked for")
    assert choose("joint", 10, 10) == ("joint", "asked for")
    # few examples: the marginal fit is quicker and better however many respondents, until the matrix is too large
    assert choose("auto", 100_000, 20) == ("marginal", "fewer than 200 examples")
    assert choose("auto", 10_000, 200)[0] == "joint"
    assert choose("auto", 1_000_000, 20) == ("joint", "1,000,000 respondents x 20 examples, 20,000,000 or more")


def test_a_matrix_that_does_not_fit_is_refused_before_it_is_made() -> None:
    frame = pl.DataFrame(
        {
            "respondent_id": [f"r{i}" for i in range(25_000)],
            "example_id": [f"e{i % 20_000}" for i in range(25_000)],
            "score": [i % 2 for i in range(25_000)],
        }
    )
    with pytest.raises(DataRefused, match="too many for a matrix"):
        calibrate(to_cells(frame), "marginal", {"model": "1pl"})


# --- what is climbed


def _climbed(answers: np.ndarray, a: np.ndarray, d: np.ndarray, theta: np.ndarray, own: bool) -> float:
    """Value of the objective, written down anew."""
    seen = np.isfinite(answers)
    z = theta[:, None] * a + d
    p = 1 / (1 + np.exp(-z))
    y = np.where(seen, answers, 0.0)
    cell = np.where(seen, y * np.log(p) + (1 - y) * np.log1p(-p), 0.0)
    information = np.where(seen, a**2 * p * (1 - p), 0.0).sum(axis=1)
    value = cell.sum() - 0.5 * (theta**2).sum() - 0.5 * np.log1p(information).sum()
    if own:
        log_a = np.log(a)
        middle = a * theta.mean() + d  # of the average respondent: the same wherever abilities are moved
        value -= 0.5 * (((log_a - log_a.mean()) / LOG_A_SD) ** 2).sum() + 0.5 * ((middle / D_SD) ** 2).sum()
    return float(value)


@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_the_fit_is_where_the_objective_has_no_slope(model: joint.Model) -> None:
    answers = _sparse(40, 30, 0.7, 8)
    fit = fit_joint(answers, model, tolerance=1e-10)
    inner = _inner(fit)
    answers, a, d, own = answers[:, inner], fit.a[inner], fit.d[inner], model == "2pl"
    assert fit.trace[-1] == pytest.approx(_climbed(answers, a, d, fit.abilities, own), abs=1e-8)
    step = 1e-5

    def slope(by_a: np.ndarray, by_d: np.ndarray, by_theta: np.ndarray) -> float:
        ends = [_climbed(answers, a + s * by_a, d + s * by_d, fit.abilities + s * by_theta, own) for s in (step, -step)]
        return (ends[0] - ends[1]) / (2 * step)

    items, people = np.eye(len(inner)), np.eye(len(fit.abilities))
    no_item, nobody = np.zeros(len(inner)), np.zeros(len(fit.abilities))
    for j in range(len(inner)):
        assert slope(no_item, items[j], nobody) == pytest.approx(0, abs=2e-4)
        if own:
            assert slope(items[j], no_item, nobody) == pytest.approx(0, abs=2e-4)
    if not own:
        assert slope(np.ones(len(inner)), no_item, nobody) == pytest.approx(0, abs=2e-4)
    for i in range(len(fit.abilities)):
        assert slope(no_item, no_item, people[i]) == pytest.approx(0, abs=2e-4)


def test_standard_errors_are_those_of_each_items_curvature() -> None:
    answers = simulate(200, 40, 4)[0]
    fit = fit_joint(answers, "2pl", priors="none")
    j, h = 7, 1e-4

    def loglik(a: float, d: float) -> float:
        p = 1 / (1 + np.exp(-(a * fit.abilities + d)))
        return float((answers[:, j] * np.log(p) + (1 - answers[:, j]) * np.log1p(-p)).sum())

    at, steps = np.array([fit.a[j], fit.d[j]]), h * np.eye(2)
    hessian = [
        [
            sum(s * t * loglik(*(at + s * steps[k] + t * steps[m])) for s in (1, -1) for t in (1, -1)) / (4 * h * h)
            for m in range(2)
        ]
        for k in range(2)
    ]
    covariance = np.linalg.inv(-np.array(hessian))
    assert (fit.se_a[j], fit.se_d[j]) == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-3)
    delta = np.array([fit.d[j] / fit.a[j] ** 2, -1 / fit.a[j]])
    assert fit.se_b[j] == pytest.approx(np.sqrt(delta @ covariance @ delta), rel=1e-3)


@given(st.integers(0, 10_000), st.sampled_from(["1pl", "2pl", "3pl", "4pl"]), st.floats(0.3, 1.0))
@settings(max_examples=20)
def test_what_is_climbed_never_falls_and_everything_stays_finite(seed: int, model: joint.Model, share: float) -> None:
    fit = fit_joint(_sparse(15, 12, share, seed), model, sweeps=60)
    assert (np.diff(fit.trace) >= -2e-12 * (1 + np.abs(fit.trace[1:]))).all()  # values as they are: rounded
    for value in (fit.a, fit.b, fit.d, fit.abilities, fit.ability_se, fit.loglik):
        assert np.isfinite(value).all()
    assert ((fit.g >= 0) & (fit.g < fit.u + 1e-9) & (fit.u <= 1)).all()


# --- laws


@given(st.integers(0, 10_000), st.sampled_from(["1pl", "2pl"]))
@settings(max_examples=15)
def test_order_layout_and_threads_change_nothing(seed: int, model: joint.Model) -> None:
    answers = _sparse(14, 25, 0.6, seed)
    fit = fit_joint(answers, model)
    random = np.random.default_rng(seed)
    rows, columns = random.permutation(14), random.permutation(25)
    again = fit_joint(answers[np.ix_(rows, columns)], model, dense=False)
    assert again.b == pytest.approx(fit.b[columns], abs=1e-6)
    assert again.abilities == pytest.approx(fit.abilities[rows], abs=1e-6)
    alone, three = (fit_joint(answers, model, workers=w) for w in (1, 3))
    assert alone.b.tobytes() == three.b.tobytes()
    assert alone.abilities.tobytes() == three.abilities.tobytes()


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_dense_and_sparse_blocks_of_any_number_and_precision_agree(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    answers = _sparse(60, 3000, share, 6)
    dense, sparse = (fit_joint(answers, "2pl", dense=d) for d in (True, False))
    assert dense.converged
    assert sparse.b == pytest.approx(dense.b, abs=1e-5)
    assert sparse.abilities == pytest.approx(dense.abilities, abs=1e-7)
    monkeypatch.setattr(joint, "SINGLE", 1)
    for layout in (True, False):
        single = fit_joint(answers, "2pl", dense=layout, workers=2)
        assert single.converged
        assert single.b == pytest.approx(dense.b, abs=5e-3)
        assert single.abilities == pytest.approx(dense.abilities, abs=1e-4)
        assert single.b.tobytes() == fit_joint(answers, "2pl", dense=layout, workers=1).b.tobytes()


def test_items_of_equal_totals_are_joined_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = simulate(30, 400, 9)[0]
    joined = fit_joint(answers)
    assert len(np.unique(joined.b)) == len(np.unique(answers.sum(axis=0)))
    monkeypatch.setattr(joint, "together", lambda cells, _: (cells, np.arange(cells.items), np.ones(cells.items)))
    alone = fit_joint(answers)
    assert joined.b == pytest.approx(alone.b, abs=1e-6)
    assert joined.loglik == pytest.approx(alone.loglik, abs=1e-6)
    assert joined.infit == pytest.approx(alone.infit, abs=1e-4, nan_ok=True)
    assert joined.se_b == pytest.approx(alone.se_b, abs=1e-6)


def test_a_fraction_counts_as_that_share_of_a_right_response() -> None:
    answers = simulate(30, 40, 10)[0]
    half = fit_joint((answers + simulate(30, 40, 11)[0]) / 2, "2pl")
    assert half.converged
    assert np.isfinite(half.b).all()
    whole = fit_joint(Cells.of(answers), "2pl")
    shares = Cells.of(answers)
    as_float = Cells(shares.pointer, shares.who, shares.score.astype(np.float64), shares.n)
    assert fit_joint(as_float, "2pl").b == pytest.approx(whole.b, abs=1e-9)


def test_negative_discriminations_are_kept_where_no_prior_forbids_them() -> None:
    answers, theta, _, _ = simulate(300, 40, 12)
    answers[:, 5] = (theta < np.random.default_rng(0).normal(size=300)).astype(float)
    fit = fit_joint(answers, "2pl", priors="none")
    assert fit.a[5] < -0.5
    assert (np.delete(fit.a, 5) > 0).all()
    assert fit_joint(answers, "2pl").a[5] > 0
    assert score_correlations(Cells.of(answers), fit.abilities)[5] < -0.3


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_correlations_with_ability_are_those_of_numpy(share: float) -> None:
    answers = _sparse(40, 20, share, 13)
    theta = np.random.default_rng(1).normal(size=40)
    found = score_correlations(Cells.of(answers), theta)
    for j in range(20):
        seen = np.isfinite(answers[:, j])
        y = answers[seen, j]
        expected = np.corrcoef(y, theta[seen])[0, 1] if np.ptp(y) > 0 and seen.sum() > 1 else 0.0
        assert found[j] == pytest.approx(expected, abs=1e-9)


def test_locations_at_the_abilities_of_the_fit_are_those_of_the_fit() -> None:
    answers = _sparse(60, 400, 0.8, 14)
    for model in MODELS[:2]:
        fit = fit_joint(answers, model)
        assert locations_given(Cells.of(answers), fit.abilities, fit) == pytest.approx(fit.b, abs=0.03)


@pytest.mark.parametrize("model", ["1pl", "2pl"])
def test_parts_that_share_nothing_settle_quickly_each_with_a_mean_of_its_own(model: joint.Model) -> None:
    answers = np.full((50, 500), np.nan)
    answers[:20, :300], answers[20:, 300:] = simulate(20, 300, 1)[0], simulate(30, 200, 2)[0]
    answers[20:, 300:] = np.maximum(answers[20:, 300:], np.random.default_rng(1).random((30, 200)) < 0.3)
    fit = fit_joint(answers, model)
    assert fit.converged
    assert fit.n_iter < 25
    assert (np.diff(fit.trace) >= -2e-12 * (1 + np.abs(fit.trace[1:]))).all()  # values as they are: rounded
    assert (fit.abilities[:20].mean(), fit.abilities[20:].mean()) == pytest.approx((0, 0), abs=1e-6)


def test_two_groups_that_five_responses_join_are_placed_as_by_the_marginal_fit() -> None:
    random = np.random.default_rng(0)
    theta, b = random.normal(size=60), random.normal(size=600)
    b[300:] += 1
    full = (random.random((60, 600)) < 1 / (1 + np.exp(b - theta[:, None]))).astype(float)
    answers = np.full_like(full, np.nan)
    answers[:30, :300], answers[30:, 300:], answers[0, 300:305] = full[:30, :300], full[30:, 300:], full[0, 300:305]
    fit, marginal = fit_joint(answers), fit_irt(answers, errors=False)
    assert fit.converged
    assert fit.n_iter < 60  # hundreds without acceleration
    apart = [x.b[300:].mean() - x.b[:300].mean() for x in (fit, marginal)]
    assert apart[0] == pytest.approx(apart[1], abs=2e-3)


# --- edges


def test_extreme_items_and_respondents_are_finite_and_lie_outside() -> None:
    answers = simulate(20, 50, 15)[0]
    answers[:, 0], answers[:, 1], answers[0], answers[1] = 1.0, 0.0, 1.0, 0.0
    answers[:, 0], answers[:, 1] = 1.0, 0.0
    fit = fit_joint(answers)
    assert fit.extreme[:2].tolist() == [1, -1]
    assert fit.b[0] == fit.b.min()
    assert fit.b[1] == fit.b.max()
    assert fit.abilities[0] == fit.abilities.max()
    assert fit.abilities[1] == fit.abilities.min()
    p = 1 / (1 + np.exp(-fit.a[0] * (fit.abilities - fit.b[0])))
    assert p.sum() == pytest.approx(19.5, abs=1e-6)
    assert np.isfinite(fit.se_b).all()
    assert np.isnan(fit.infit[:2]).all()


def test_nothing_but_extreme_items_is_placed_and_respondents_who_do_not_differ_get_slope_one() -> None:
    flat = fit_joint(np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]]))
    assert flat.extreme.tolist() == [1, -1, 1]
    assert np.isfinite(flat.b).all()
    assert flat.abilities.tolist() == [0.0, 0.0]
    random = np.random.default_rng(0)
    same = np.array([random.permutation(np.repeat([0.0, 1.0], 200)) for _ in range(8)])
    fit = fit_joint(same)
    assert fit.slope.startswith("fixed: the free one fell to")
    assert fit.a == pytest.approx(np.ones(400))


def test_one_item_of_several_respondents_is_fitted_with_slope_one() -> None:
    fit = fit_joint(np.array([[1.0], [0.0], [1.0]]))
    assert fit.slope.startswith("fixed: fewer than two")
    assert np.isfinite(fit.b).all()


@pytest.mark.parametrize(
    ("answers", "given_", "error", "said"),
    [
        (np.ones((1, 3)), {}, DataRefused, "pass_rate"),
        (np.array([[0.0, 2.0], [1.0, 1.0]]), {}, DataRefused, "outside"),
        (np.array([[0.0, np.inf], [1.0, 1.0]]), {}, DataRefused, "outside"),
        (np.array([[0.0, np.nan], [1.0, np.nan]]), {}, DataRefused, "item 1"),
        (np.ones(3), {}, UsageError, "shape"),
        (np.eye(2), {"model": "2pl"}, DataRefused, "2 of 2 items"),
        (np.eye(3), {"model": "5pl"}, UsageError, "5pl"),
        (np.eye(3), {"model": "2pl", "slope": "fixed"}, UsageError, "slope"),
        (np.eye(3), {"slope": "flat"}, UsageError, "flat"),
        (np.eye(3), {"slope": 0.0}, UsageError, "slope of 0"),
        (np.eye(3), {"priors": "strong"}, UsageError, "strong"),
        (np.eye(3), {"guessing": 1.2}, UsageError, "guessing"),
        (np.eye(3), {"guessing": np.zeros(2)}, UsageError, "guessing"),
        (np.eye(3), {"model": "3pl", "choices": 1}, UsageError, "choices"),
    ],
)
def test_wrong_data_and_settings_are_named(
    answers: np.ndarray, given_: dict[str, object], error: type, said: str
) -> None:
    with pytest.raises(error) as caught:
        fit_joint(answers, **given_)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_a_warm_start_ends_where_a_cold_one_does() -> None:
    answers = simulate(60, 300, 16)[0]
    fit = fit_joint(answers, "2pl")
    cold = fit_joint(answers[1:], "2pl")
    near = fit.curves, fit.abilities[1:], fit.ability_se[1:] ** 2
    warm = fit_joint(answers[1:], "2pl", start=near)
    assert warm.n_iter < cold.n_iter
    assert warm.b == pytest.approx(cold.b, abs=1e-5)


def test_two_hundred_thousand_items_take_seconds_and_little_memory() -> None:
    random = np.random.default_rng(0)
    n, items = 50, 200_000
    theta, b = random.normal(size=n), random.normal(size=items)
    score = (random.random((items, n)) < 1 / (1 + np.exp(b[:, None] - theta))).astype(np.uint8)
    who = np.tile(np.arange(n, dtype=np.uint16), items)
    cells = Cells(np.arange(items + 1, dtype=np.int64) * n, who, score.ravel(), n)
    fit = fit_joint(cells)
    assert fit.converged
    assert spearman(fit.b, b) > 0.93
    assert np.corrcoef(fit.abilities, theta)[0, 1] > 0.9999


def test_responses_of_a_part_keep_their_ids() -> None:
    frame = pl.DataFrame({"respondent_id": ["a", "b", "a"], "example_id": ["x", "x", "y"], "score": [1, 0, 1]})
    found: Responses = to_cells(frame).part(np.array([1]), np.array([0]))
    assert found.examples.to_list() == ["y"]
    assert found.respondents.to_list() == ["a"]

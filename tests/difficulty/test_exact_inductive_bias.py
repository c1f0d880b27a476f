"""Inductive bias by sampling: the law of losses and its tail, Gaussian processes, and the plug-in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ncx2

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty.exact_inductive_bias import ExactInductiveBiasConfig, inductive_bias_of, run
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.task_bias.gaussian_process import JITTER, kernel, left_out_errors, posterior_losses
from gradatim.tasks.difficulty.task_bias.noncentral_chi2 import ScaledChi2, fit, log_cdf, log_density, sankaran

# --- the law of losses


@given(st.floats(0.2, 400), st.floats(0.01, 400), st.floats(0.01, 50), st.floats(1e-6, 1))
@settings(max_examples=30)
def test_density_and_tail_are_those_of_scipy_where_it_has_them(df: float, nc: float, scale: float, q: float) -> None:
    law, x = ScaledChi2(df, nc, scale), float(ncx2.ppf(q, df, nc, scale=scale))
    if 0 < x < np.inf:
        assert log_cdf(x, law) == pytest.approx(ncx2.logcdf(x, df, nc, scale=scale), rel=1e-6, abs=1e-9)
        theirs = float(ncx2.logpdf(x, df, nc, scale=scale))
        if np.isfinite(theirs):
            assert log_density(x, law) == pytest.approx(theirs, rel=1e-6, abs=1e-8)


def test_the_tail_goes_on_where_scipy_ends() -> None:
    """A central chi-square of 2 m degrees: P(X <= x) = P(Poisson(x / 2) >= m), summed here in logarithms."""
    from scipy.special import gammaln, logsumexp

    m, x = 4000, 3000.0
    assert ncx2.logcdf(x, 2 * m, 1e-12) == -np.inf
    k = np.arange(m, m + 20_000)
    expected = logsumexp(k * np.log(x / 2) - x / 2 - gammaln(k + 1))
    assert log_cdf(x, ScaledChi2(2 * m, 0.0, 1.0)) == pytest.approx(expected, rel=1e-10)
    assert log_cdf(x * 7, ScaledChi2(2 * m, 0.0, 7.0)) == pytest.approx(expected, rel=1e-10)
    assert log_cdf(0.0, ScaledChi2(3, 1, 1)) == -np.inf


def test_the_normal_approximation_takes_over_smoothly() -> None:
    law = ScaledChi2(100.0, 3.9e6, 1.0)
    beyond = law._replace(nc=4.1e6)
    assert log_cdf(law.df + law.nc - 9e3, law) == pytest.approx(log_cdf(beyond.df + beyond.nc - 9e3, beyond), rel=0.15)
    assert sankaran(law.df + law.nc, law) == pytest.approx(0, abs=0.01)


@given(st.floats(0.5, 300), st.floats(0, 300), st.floats(0.01, 10))
@settings(max_examples=20)
def test_the_tail_is_monotone_in_the_error_aimed_at(df: float, nc: float, scale: float) -> None:
    law = ScaledChi2(df, nc, scale)
    at = [log_cdf(e * scale * (df + nc), law) for e in (1e-6, 1e-3, 0.03, 0.3, 0.9, 2.0, 50.0)]
    assert all(a <= b + 1e-12 for a, b in pairwise(at))
    assert at[0] < at[3] < 0


@pytest.mark.parametrize(("df", "nc", "scale"), [(5.0, 20.0, 2.5), (40.0, 5.0, 0.1), (300.0, 1000.0, 1e-4)])
def test_losses_of_a_known_law_give_its_tail_back(df: float, nc: float, scale: float) -> None:
    losses = ncx2.rvs(df, nc, scale=scale, size=10_000, random_state=3)
    true = ScaledChi2(df, nc, scale)
    law = fit(losses)
    assert log_density(losses, law).sum() >= log_density(losses, true).sum()
    for q, tolerance in ((1e-1, 0.02), (1e-2, 0.03), (1e-4, 0.1)):
        x = float(ncx2.ppf(q, df, nc, scale=scale))
        assert -log_cdf(x, law) == pytest.approx(-np.log(q), rel=tolerance)


def test_the_bias_of_losses_has_an_error_that_grows_into_the_tail_and_no_unit() -> None:
    losses = ncx2.rvs(5.0, 20.0, size=4000, random_state=3)
    x = float(ncx2.ppf(1e-2, 5.0, 20.0))
    found, error = inductive_bias_of(losses, x)
    assert found == pytest.approx(-np.log(1e-2), abs=3 * error)
    assert 0 < error < 0.3
    assert inductive_bias_of(losses * 9, x * 9)[0] == pytest.approx(found, rel=1e-3)
    deep, wide = inductive_bias_of(losses, x / 2)
    assert deep > found
    assert wide > error


def test_losses_without_a_law_are_refused() -> None:
    for losses in (
        np.ones(100),
        np.arange(5) + 1.0,
        np.append(np.ones(50), -1.0),
        np.append(np.arange(20) + 1.0, np.nan),
    ):
        with pytest.raises(DataRefused):
            fit(losses)
    with pytest.raises(UsageError):
        log_cdf(1.0, ScaledChi2(0.0, 1.0, 1.0))


# --- Gaussian processes


def _points(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 2))
    return x, np.eye(3)[(np.abs(x[:, 0]) * 2).astype(int) % 3]


def test_posterior_losses_are_those_of_functions_drawn_one_by_one() -> None:
    x, y = _points(60)
    train, test = slice(0, 40), slice(40, 60)
    k = kernel(x[train], x[train], 1.0) + JITTER * np.eye(40)
    across = kernel(x[train], x[test], 1.0)
    mean = across.T @ np.linalg.solve(k, y[train])
    covariance = kernel(x[test], x[test], 1.0) - across.T @ np.linalg.solve(k, across)
    random = np.random.default_rng(1)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(20))
    drawn = mean[None] + np.einsum("ab,sbc->sac", root, random.normal(size=(20_000, 20, 3)))
    direct = ((drawn - y[test]) ** 2).mean(axis=(1, 2))
    found = posterior_losses(x[train], y[train], x[test], y[test], 1.0, samples=20_000, random=random)
    assert found.mean() == pytest.approx(direct.mean(), rel=0.03)
    assert found.std() == pytest.approx(direct.std(), rel=0.06)
    assert np.quantile(found, [0.05, 0.5, 0.95]) == pytest.approx(np.quantile(direct, [0.05, 0.5, 0.95]), rel=0.05)


def test_errors_of_points_left_out_are_those_of_leaving_them_out() -> None:
    x, y = _points(30, 2)
    found = left_out_errors(x, y, 0.7)
    for i in (0, 7, 29):
        others = np.arange(30) != i
        k = kernel(x[others], x[others], 0.7) + JITTER * np.eye(29)
        across = kernel(x[others], x[[i]], 0.7)
        mean = across.T @ np.linalg.solve(k, y[others])
        variance = 1 + JITTER - across.T @ np.linalg.solve(k, across)
        assert found[i] == pytest.approx(((mean[0] - y[i]) ** 2).mean() + variance[0, 0], rel=1e-6)


# --- the plug-in


def _tables(n: int = 240, noise: float = 0.0) -> dict[str, pl.DataFrame]:
    """Two half planes; `noise` is the share of labels that chance decides."""
    random = np.random.default_rng(4)
    x = random.normal(size=(n, 2))
    label = np.where(random.random(n) < noise, random.integers(0, 2, n), x[:, 0] > 0)
    ids = pl.Series([f"e{i:05d}" for i in range(n)])
    return {
        "features_plane": pl.DataFrame({"example_id": ids, "embedding": x.astype(np.float32)}),
        "examples": pl.DataFrame({"example_id": ids, "side": label.astype(int)}),
    }


def _run(tables: dict[str, pl.DataFrame], **given_: object) -> Difficulty:
    settings_ = {"features": "plane", "label": "side", "samples": 2000, **given_}
    return run(tables, ExactInductiveBiasConfig.model_validate(settings_))


def _statistic(d: Difficulty, metric: str) -> float:
    assert d.statistics is not None
    return float(d.statistics.filter(pl.col("metric") == metric)["value"][0])


def test_a_task_of_chance_asks_for_more_bias_than_one_with_a_rule() -> None:
    rule, chance = _run(_tables(), epsilon=0.05), _run(_tables(noise=1.0), epsilon=0.05)
    assert _statistic(chance, "inductive_bias_nats") > 3 * _statistic(rule, "inductive_bias_nats")
    assert _statistic(rule, "inductive_bias_bits") == pytest.approx(_statistic(rule, "inductive_bias_nats") / np.log(2))
    assert rule.statistics is not None
    low, high = rule.statistics.filter(pl.col("metric") == "inductive_bias_nats").select("ci_low", "ci_high").row(0)
    assert low < _statistic(rule, "inductive_bias_nats") < high
    harder = _run(_tables(), epsilon=0.02)
    assert _statistic(harder, "inductive_bias_nats") > _statistic(rule, "inductive_bias_nats")
    assert _statistic(rule, "inductive_bias_nats_half_epsilon") > _statistic(rule, "inductive_bias_nats_twice_epsilon")
    assert any("rest on the tail" in w for w in chance.warnings)


def test_examples_at_the_border_are_harder_than_those_inside() -> None:
    tables = _tables(600)
    d = _run(tables)
    x = tables["features_plane"].sort("example_id")["embedding"].to_numpy()
    near, inside = np.abs(x[:, 0]) < 0.05, (np.abs(x[:, 0]) > 0.7) & (np.linalg.norm(x, axis=1) < 1.5)
    value = d.table["value"].to_numpy()
    assert np.median(value[near]) > 5 * np.median(value[inside])
    assert d.notes["trained on"] == d.notes["tested on"] == 300
    shuffled = {name: frame.sample(fraction=1, shuffle=True, seed=1) for name, frame in tables.items()}
    again = _run(shuffled)
    assert again.table.equals(d.table)
    assert again.statistics is not None
    assert again.statistics.equals(d.statistics)


def test_more_examples_than_points_are_sampled_and_listed() -> None:
    d = _run(_tables(200), points=100)
    assert len(d.table) == 100
    assert len(d.excluded) == 100
    assert d.excluded["reason"].unique().to_list() == ["not among the 100 examples sampled"]
    assert d.notes["examples left out, beyond those sampled"] == 100


def test_tasks_that_are_too_small_or_flat_are_refused() -> None:
    with pytest.raises(DataRefused, match="ten of each"):
        _run(_tables(16))
    flat = _tables(60)
    flat["features_plane"] = flat["features_plane"].with_columns(embedding=pl.lit([1.0, 1.0], pl.Array(pl.Float32, 2)))
    with pytest.raises(DataRefused, match="all vectors are equal"):
        _run(flat)
    with pytest.raises(UsageError, match="points"):
        resolve(
            "difficulty",
            Step(method="exact_inductive_bias", settings={"features": "f", "label": "l", "points": 5000}),
        )

"""Conditional maximum likelihood of the Rasch model against the reference fits."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response.conditional import fit_conditional
from gradatim.tasks.difficulty.item_response.fit import fit_irt

SETS = (
    "lsat6", "lsat7", "wirs", "abortion", "deayala", "sat12", "sirt_read", "verbal_aggression", "mathexam14w",
    "raschdat1",
)  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("dataset", SETS)
def test_every_conditional_reference_fit_is_reached(data: Path, dataset: str) -> None:
    reference = pl.read_csv(data / "irt_classic" / "reference_estimates.csv", null_values="NA").filter(
        (pl.col("dataset") == dataset) & (pl.col("model") == "eRm_cml_rasch")
    )
    answers = pl.read_csv(data / "irt_classic" / f"{dataset}.csv").select(reference["item"].to_list())
    fit = fit_conditional(answers.to_numpy().astype(float))
    assert fit.converged
    assert fit.loglik == pytest.approx(reference["loglik"][0], abs=1e-6)
    assert fit.b == pytest.approx(reference["b"].to_numpy(), abs=1e-4)
    assert fit.n_parameters == reference["npar"][0]
    # where abilities are about normal the marginal fit with slope 1 places items alike
    if dataset not in ("abortion", "wirs", "deayala", "verbal_aggression"):
        marginal = fit_irt(answers.to_numpy().astype(float), slope="fixed")
        assert marginal.b - marginal.b.mean() == pytest.approx(fit.b, abs=0.25)


def simulate(n: int, items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    theta, b = random.exponential(size=n) - 1, random.normal(size=items)
    return (random.random((n, items)) < 1 / (1 + np.exp(-(theta[:, None] - b)))).astype(float), b - b.mean()


def test_the_likelihood_is_that_of_patterns_given_their_sums() -> None:
    answers, _ = simulate(40, 5, 1)
    fit = fit_conditional(answers)
    expected = 0.0
    for row in answers:
        same = [p for p in product((0, 1), repeat=5) if sum(p) == row.sum()]
        expected += -row @ fit.b - np.log(sum(np.exp(-np.array(p) @ fit.b) for p in same))
    assert fit.loglik == pytest.approx(expected, abs=1e-9)
    assert fit.respondents == int(((answers.sum(axis=1) > 0) & (answers.sum(axis=1) < 5)).sum())


def test_locations_are_recovered_whatever_the_abilities_also_with_missing_cells() -> None:
    answers, b = simulate(3000, 15, 2)
    whole = fit_conditional(answers)
    random = np.random.default_rng(0)
    sparse = answers.copy()
    sparse[:1500, :4], sparse[1500:, 11:] = np.nan, np.nan  # two overlapping booklets
    sparse[random.random(len(sparse)) < 0.1, 7] = np.nan
    for fit in (whole, fit_conditional(sparse)):
        z = (fit.b - b) / fit.se_b
        assert np.abs(z).max() < 4
        assert 0.3 < np.mean(z**2) < 2.2
        assert fit.b.sum() == pytest.approx(0.0, abs=1e-8)


def test_extreme_items_have_no_place_and_change_nothing() -> None:
    answers, _ = simulate(100, 6, 3)
    plain = fit_conditional(answers)
    fit = fit_conditional(np.column_stack([answers, np.ones(100), np.zeros(100)]))
    assert np.isnan(fit.b[-2:]).all()
    assert fit.b[:-2] == pytest.approx(plain.b)
    assert fit.loglik == pytest.approx(plain.loglik)


def test_what_it_cannot_fit_is_named() -> None:
    with pytest.raises(DataRefused, match="neither 0 nor 1"):
        fit_conditional(np.array([[0.5, 1.0], [0.0, 1.0]]))
    with pytest.raises(DataRefused, match="neither 0 nor 1"):
        fit_conditional(np.array([[np.inf, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(DataRefused, match="tell respondents apart"):
        fit_conditional(np.array([[0.0, 1.0], [1.0, 1.0]]))
    with pytest.raises(UsageError, match="200 items"):
        fit_conditional(np.zeros((3, 201)))

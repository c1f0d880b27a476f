"""Leaving respondents out: at most 1e-4 logits from a fit from scratch, in fewer passes."""

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
from gradatim.tasks.difficulty.item_response.cells import Cells
from gradatim.tasks.difficulty.item_response.fit import fit_irt
from gradatim.tasks.difficulty.item_response.jackknife import BOUNDED, Full
from gradatim.tasks.difficulty.item_response.joint import fit_joint
from gradatim.tasks.difficulty.item_response.leave_out import groups_of, leave_out, leave_out_all

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)

MODELS: dict[str, dict[str, Any]] = {
    "1pl": {},
    "rasch": {"slope": "fixed"},
    "2pl weak": {"model": "2pl"},
    "2pl": {"model": "2pl", "priors": "none"},
    "1pl guessing": {"guessing": 0.2},
    "3pl": {"model": "3pl"},
    "3pl common": {"model": "3pl", "slope": "common"},
    "4pl": {"model": "4pl"},
}


def answers(n: int, items: int, seed: int, missing: float = 0.0) -> np.ndarray:
    """Draw answers; no item is extreme in the ones that the tests use."""
    matrix: np.ndarray = published.simulate(n, items, seed)[0]
    return np.where(np.random.default_rng(seed + 1).random(matrix.shape) < missing, np.nan, matrix)


def refit(matrix: np.ndarray, rows: Any, **how: Any) -> Any:
    """Fit from scratch without some respondents."""
    return fit_irt(np.delete(matrix, rows, axis=0), **how)


@pytest.mark.parametrize("how", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_locations_are_those_of_a_fit_from_scratch_within_the_bound(how: dict[str, Any], missing: float) -> None:
    matrix = answers(120, 25, 3, missing)
    fit = fit_irt(matrix, **how)
    full = Full.of(matrix, fit, **how)
    assert full.inverse is not None
    for rows in ([0], [3, 50, 119], np.arange(0, 120, 6)):
        scratch = refit(matrix, rows, **how)
        found = full.without(rows)
        assert (found.inner == np.flatnonzero(scratch.extreme == 0)).all()
        location = -found.curves.d / found.curves.a
        assert np.abs(location - scratch.b[found.inner]).max() < BOUNDED
        assert np.abs(location - fit.b[found.inner]).max() > 10 * BOUNDED  # or there was nothing to find
        assert found.steps <= (10 if len(rows) == 1 else 20)


def test_lsat7_without_any_one_pattern_is_the_fit_of_the_others() -> None:
    matrix = published.matrix(published.LSAT7)
    fit = fit_irt(matrix, "2pl")
    full = Full.of(matrix, fit, model="2pl")
    starts = np.cumsum([0, *published.patterns(published.LSAT7)[1][:-1]])
    for row in starts[[0, 5, 17, 31]]:
        found = full.without([row])
        scratch = refit(matrix, [row], model="2pl")
        assert -found.curves.d / found.curves.a == pytest.approx(scratch.b, abs=BOUNDED)
        assert found.curves.a == pytest.approx(scratch.a, abs=BOUNDED)
        assert found.steps <= 4


def test_a_smaller_bound_takes_more_steps_and_keeps_it() -> None:
    matrix = answers(80, 20, 5)
    full = Full.of(matrix, fit_irt(matrix, "2pl"), model="2pl")
    scratch = refit(matrix, [7, 8, 9], model="2pl")
    loose, tight = full.without([7, 8, 9], bound=1e-2), full.without([7, 8, 9], bound=1e-8)
    assert loose.steps < tight.steps
    distance = [np.abs(-s.curves.d / s.curves.a - scratch.b).max() for s in (loose, tight)]
    assert distance[0] < 1e-2
    assert distance[1] < 1e-7 < distance[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.sampled_from(["1pl", "2pl"]))
def test_any_part_of_the_respondents_can_go(seed: int, count: int, model: Any) -> None:
    matrix = answers(30, 12, seed, 0.1)
    matrix = matrix[:, np.isfinite(matrix).any(axis=0)]
    fit = fit_irt(matrix, model)
    rows = np.random.default_rng(seed).choice(30, count, replace=False)
    found, kept = leave_out(matrix, fit, rows, model=model)
    some = np.delete(matrix, rows, axis=0)[:, kept]
    scratch = fit_irt(some, model)
    told = scratch.extreme == 0
    assert (found.extreme == scratch.extreme).all()
    assert found.loglik == pytest.approx(scratch.loglik, abs=2e-3)
    steady = told & (np.abs(scratch.b) < 10)  # a slope near 0 leaves a location undetermined
    assert found.b[steady] == pytest.approx(scratch.b[steady], abs=BOUNDED)


def test_the_whole_fit_is_that_of_the_others_with_its_errors() -> None:
    matrix = answers(150, 20, 1)
    fit = fit_irt(matrix, "2pl")
    found, kept = leave_out(matrix, fit, [2, 3], model="2pl")
    scratch = refit(matrix, [2, 3], model="2pl")
    assert (kept == np.arange(20)).all()
    for name in ("a", "b", "d", "se_a", "se_b", "infit", "outfit", "abilities", "ability_se", "map_abilities"):
        assert getattr(found, name) == pytest.approx(getattr(scratch, name), abs=2 * BOUNDED), name
    assert found.loglik == pytest.approx(scratch.loglik, abs=1e-6)
    assert (found.n_respondents, found.converged, found.priors) == (148, True, scratch.priors)
    assert found.n_iter < scratch.n_iter
    bare, _ = leave_out(matrix, fit, [2, 3], model="2pl", errors=False)
    assert np.isnan(bare.se_b).all()


def test_items_that_only_the_left_out_told_apart_become_extreme() -> None:
    matrix = answers(60, 15, 2)
    matrix[:, 4] = 0.0
    matrix[9, 4] = 1.0
    matrix[:, 5] = 1.0
    fit = fit_irt(matrix)
    full = Full.of(matrix, fit)
    found = full.without([9])
    scratch = refit(matrix, [9])
    assert 4 not in found.inner
    assert 5 not in found.inner
    assert -found.curves.d / found.curves.a == pytest.approx(scratch.b[found.inner], abs=BOUNDED)
    whole, _ = leave_out(matrix, fit, [9], full=full)
    assert (whole.extreme == scratch.extreme).all()
    assert whole.b == pytest.approx(scratch.b, abs=BOUNDED)


def test_items_that_nobody_else_answered_go_with_the_respondents() -> None:
    matrix = answers(40, 12, 6)
    matrix[2:, 3] = np.nan
    matrix[:2, 3] = 0.0, 1.0
    fit = fit_irt(matrix)
    found, kept = leave_out(matrix, fit, [0, 1])
    assert kept.tolist() == [0, 1, 2, *range(4, 12)]
    assert found.b == pytest.approx(fit_irt(np.delete(matrix, 3, axis=1)[2:]).b, abs=BOUNDED)
    assert 3 not in Full.of(matrix, fit).without([0, 1]).inner


def test_settings_that_turn_with_the_number_of_respondents_turn() -> None:
    matrix = answers(250, 12, 4)
    fit = fit_irt(matrix, "2pl")
    found, _ = leave_out(matrix, fit, [0], model="2pl")
    assert (fit.priors, found.priors) == ("none", "weak")
    assert found.b == pytest.approx(refit(matrix, [0], model="2pl").b, abs=BOUNDED)
    few = Full.of(matrix, fit, model="2pl").without([0])
    assert -few.curves.d / few.curves.a == pytest.approx(refit(matrix, [0], model="2pl").b, abs=BOUNDED)


def test_given_numbers_an_item_go_with_their_items() -> None:
    matrix = answers(80, 12, 8)
    matrix[5:, 2] = np.nan
    matrix[:5, 2] = 0.0, 1.0, 0.0, 1.0, 1.0
    guessing = np.linspace(0.0, 0.3, 12)
    fit = fit_irt(matrix, "2pl", guessing=guessing)
    found, kept = leave_out(matrix, fit, np.arange(5), model="2pl", guessing=guessing)
    assert len(kept) == 11
    scratch = fit_irt(np.delete(matrix, 2, axis=1)[5:], "2pl", guessing=np.delete(guessing, 2))
    assert found.b == pytest.approx(scratch.b, abs=BOUNDED)


def test_where_the_information_is_no_help_a_warm_start_is_used() -> None:
    matrix = answers(40, 10, 9)
    matrix[:, 0] = (np.nanmean(matrix[:, 1:], axis=1) > 0.5).astype(float)  # separates perfectly: slope at its bound
    fit = fit_irt(matrix, "2pl", priors="none")
    full = Full.of(matrix, fit, model="2pl", priors="none")
    if fit.at_bound.any():
        assert full.inverse is None
    found, _ = leave_out(matrix, fit, [0], full=full, model="2pl", priors="none")
    scratch = refit(matrix, [0], model="2pl", priors="none")
    assert found.loglik == pytest.approx(scratch.loglik, abs=1e-3)
    same = np.tile([0.0, 1.0], (20, 5))  # respondents who do not differ: the slope is fixed
    fit = fit_irt(np.concatenate([same, 1 - same]))
    found, _ = leave_out(np.concatenate([same, 1 - same]), fit, [0])
    assert found.slope.startswith("fixed:")


def test_leaving_out_all_but_one_is_refused() -> None:
    matrix = answers(6, 8, 0)
    full = Full.of(matrix, fit_irt(matrix))
    with pytest.raises(DataRefused, match="1 of 6 respondents would stay"):
        full.without([0, 1, 2, 3, 4])
    with pytest.raises(DataRefused, match="respondents would stay"):
        leave_out(matrix, fit_irt(matrix), [0, 1, 2, 3, 4])


def test_nobody_left_out_changes_nothing() -> None:
    matrix = answers(50, 10, 0)
    fit = fit_irt(matrix)
    assert leave_out(matrix, fit, [])[0].b == pytest.approx(fit.b, abs=1e-7)


def test_influence_ranks_respondents_by_what_a_refit_would_change() -> None:
    matrix = answers(60, 30, 12)
    matrix[7] = 1 - matrix[7]  # one who answers the other way round
    fit = fit_irt(matrix, "2pl")
    groups: dict[str, Any] = {f"r{i}": [i] for i in range(60)}
    groups["family"] = np.arange(20, 40)
    groups["nearly all"] = np.arange(59)
    examples = [f"q{j}" for j in range(30)]
    table = leave_out_all(matrix, fit, groups, examples, model="2pl")
    assert table["name"][0] == "family"
    assert len(table) == 62
    for name in ("r7", "r12", "family"):
        scratch = refit(matrix, groups[name], model="2pl")
        told = scratch.extreme == 0
        change = np.abs(scratch.b - fit.b)[told]
        row = table.row(table["name"].to_list().index(name), named=True)
        assert row["change_largest"] == pytest.approx(change.max(), abs=BOUNDED)
        assert row["change_rms"] == pytest.approx(np.sqrt(np.mean(change**2)), abs=BOUNDED)
        assert row["moved_most"] == examples[int(np.flatnonzero(told)[change.argmax()])]
        rank = published.spearman(scratch.b[told], fit.b[told])
        assert row["rank_correlation"] == pytest.approx(rank, abs=2e-3)
        assert row["no_longer_told_apart"] == (~told).sum()
        after = (scratch.b - scratch.b.mean()) * fit.b.std() / scratch.b.std()
        apart = np.sqrt(np.mean((after - fit.b + fit.b.mean()) ** 2))
        assert row["change_linked"] == pytest.approx(apart, abs=BOUNDED) or (~told).any()
        assert row["change_linked"] < row["change_rms"] + 1e-9
    change = table.filter(table["name"].str.starts_with("r"))["change_linked"].to_list()
    assert change == sorted(change, reverse=True)
    last = table.row(-1, named=True)
    assert last["name"] == "nearly all"
    assert last["change_rms"] is None


def test_the_order_of_respondents_and_of_groups_does_not_matter() -> None:
    matrix = answers(40, 12, 3)
    fit = fit_irt(matrix, "2pl")
    turned = matrix[::-1]
    first = leave_out_all(matrix, fit, {"a": [0], "b": [1, 2]}, list("abcdefghijkl"), model="2pl")
    other = fit_irt(turned, "2pl")
    second = leave_out_all(turned, other, {"b": [38, 37], "a": [39]}, list("abcdefghijkl"), model="2pl")
    assert first.equals(second)


def test_respondents_and_families_are_groups_by_name() -> None:
    known = pl.DataFrame({"respondent_id": ["b", "a", "c", "x", "d"], "family": ["f", "f", "g", "f", "a"]})
    found = groups_of(["a", "b", "c", "d"], known)
    assert {name: rows.tolist() for name, rows in found.items()} == {
        "a": [0], "b": [1], "c": [2], "d": [3], "f": [0, 1],
    }  # fmt: skip
    assert list(groups_of(["a", "b"])) == ["a", "b"]
    assert list(groups_of(["a", "b"], known.drop("family"))) == ["a", "b"]


def test_where_no_item_tells_the_others_apart_all_are_placed() -> None:
    matrix = np.zeros((5, 3))
    matrix[0] = 1.0, 0.0, 1.0
    matrix[:, 1] = 1.0
    matrix[0, 1] = 0.0
    fit = fit_irt(matrix)
    assert len(Full.of(matrix, fit).without([0]).inner) == 0
    assert leave_out(matrix, fit, [0])[0].extreme.tolist() == [-1, 1, -1]
    table = leave_out_all(matrix, fit, {"first": [0]}, list("abc"))
    assert table["no_longer_told_apart"].to_list() == [3]
    assert table["change_rms"].to_list() == [None]


# --- joint fits


@pytest.mark.parametrize("how", [{}, {"slope": "fixed"}, {"model": "2pl"}, {"model": "2pl", "guessing": 0.2}], ids=str)
@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_a_joint_fit_goes_on_from_where_it_stood(how: dict[str, Any], missing: float) -> None:
    cells = Cells.of(answers(80, 300, 5, missing))
    fit = fit_joint(cells, **how)
    for rows in ([0], np.arange(0, 80, 8)):
        found, kept = leave_out(cells, fit, rows, errors=False, **how)
        some, stay = cells.among(np.setdiff1d(np.arange(80), rows))
        scratch = fit_joint(some, tolerance=1e-9, **how)
        assert (kept == stay).all()
        assert (found.extreme == scratch.extreme).all()
        assert found.b == pytest.approx(scratch.b, abs=BOUNDED)
        assert np.abs(found.b - fit.b[kept])[found.extreme == 0].max() > 10 * BOUNDED
        assert found.n_iter < scratch.n_iter


def test_a_joint_fit_with_estimated_asymptotes_is_fitted_again() -> None:
    matrix = answers(60, 40, 5)
    fit = fit_joint(matrix, "3pl")
    found, _ = leave_out(matrix, fit, [3], model="3pl")
    scratch = fit_joint(np.delete(matrix, 3, axis=0), "3pl")
    assert found.b == pytest.approx(scratch.b, abs=1e-9)
    assert found.se_b == pytest.approx(scratch.se_b, nan_ok=True)


def test_influence_on_a_joint_fit_is_that_of_a_refit() -> None:
    matrix = answers(40, 250, 6)
    fit = fit_joint(matrix, "2pl")
    examples = [f"q{j}" for j in range(250)]
    table = leave_out_all(matrix, fit, {"one": [4], "some": [1, 2, 3], "all": np.arange(39)}, examples, model="2pl")
    assert table["name"].to_list() == ["some", "one", "all"]
    assert table["change_linked"][0] > table["change_linked"][1]
    scratch = fit_joint(np.delete(matrix, 4, axis=0), "2pl")
    told = scratch.extreme == 0
    change = np.abs(scratch.b - fit.b)[told]
    row = table.row(1, named=True)
    assert row["change_largest"] == pytest.approx(change.max(), abs=2 * BOUNDED)
    assert row["moved_most"] == examples[int(np.flatnonzero(told)[change.argmax()])]
    assert table["change_rms"][2] is None
    with pytest.raises(DataRefused, match="1 of 40 respondents would stay"):
        leave_out(matrix, fit, np.arange(39), model="2pl")


def test_cells_and_a_matrix_of_them_are_the_same() -> None:
    matrix = answers(40, 15, 7, 0.2)
    fit = fit_irt(matrix, "2pl")
    one, _ = leave_out(Cells.of(matrix), fit, [2], model="2pl")
    other, _ = leave_out(matrix, fit, [2], model="2pl")
    assert (one.b == other.b).all()
    groups = {"a": [0], "b": [1, 2]}
    examples = [f"q{j}" for j in range(15)]
    assert leave_out_all(Cells.of(matrix), fit, groups, examples, model="2pl").equals(
        leave_out_all(matrix, fit, groups, examples, model="2pl")
    )


def test_a_joint_fit_of_few_respondents_keeps_the_bound() -> None:
    random = np.random.default_rng(1)
    theta, b, a = random.normal(size=12), random.normal(size=40), np.exp(0.4 * random.normal(size=40))
    matrix = (random.random((12, 40)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))).astype(float)
    fit = fit_joint(matrix, "2pl")
    for rows in ([k] for k in range(12)):
        found, kept = leave_out(matrix, fit, rows, model="2pl")
        settled = fit_joint(np.delete(matrix, rows, axis=0)[:, kept], "2pl", tolerance=1e-9, sweeps=3000)
        assert np.abs(found.b - settled.b).max() < 0.5 * BOUNDED


@pytest.mark.parametrize("estimate", [fit_irt, fit_joint])
def test_respondents_who_are_not_there_and_settings_of_another_model_are_refused(estimate: Any) -> None:
    matrix = answers(40, 12, 2)
    fit = estimate(matrix, "2pl")
    for rows in ([40], [-1], [0.5]):
        with pytest.raises(UsageError, match="found respondents"):
            leave_out(matrix, fit, rows, model="2pl")
    for settings_ in ({}, {"model": "2pl", "guessing": 0.2}):
        with pytest.raises(UsageError, match="tell another"):
            leave_out(matrix, fit, [0], **settings_)
    rasch = estimate(matrix, slope="fixed")
    with pytest.raises(UsageError, match="tell another slope"):
        leave_out_all(matrix, rasch, {"a": [0]}, [f"q{j}" for j in range(12)])
    assert leave_out(matrix, rasch, [0], slope="fixed")[0].n_respondents == 39

"""Diversity and correlation shift: the published checks, closed forms of densities, calibration, bad input."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import gaussian_kde

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.ood_shift import exact_shift
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity import kernel_density, ood_bench
from gradatim.tasks.diversity.ood_densities import Grid, calibrated
from gradatim.tasks.diversity.result import Diversity

A, B = "domain=a", "domain=b"
tables_of = arrays(np.int64, (4, 3), elements=st.integers(0, 20)).filter(lambda t: t.sum() > 0)


def run(tables: dict[str, pl.DataFrame], **settings: object) -> Diversity:
    plugin = get("diversity", "ood_bench")
    found: Diversity = plugin.run(tables, configure(plugin, settings), 0)
    assert found.summary().charts
    assert found.plot("plane") is not None
    return found


def coloured(n: int, left: float = 0.85, right: float = 0.10, seed: int = 0) -> tuple[pl.DataFrame, np.ndarray]:
    """Binary labels whose colour agrees with them at these rates in two environments."""
    rng = np.random.default_rng(seed)
    domain, label = np.arange(n) % 2, rng.integers(0, 2, n)
    colour = np.where(rng.random(n) < np.where(domain == 0, left, right), label, 1 - label)
    frame = pl.DataFrame(
        {
            "example_id": [f"e{i:06d}" for i in range(n)],
            "domain": np.array(["a", "b"])[domain],
            "output": label,
            "colour": np.array(["red", "blue"])[colour],
        }
    )
    return frame, colour


@pytest.mark.parametrize(("formula", "correlation"), [("original", 0.75), ("hellinger", 0.3410)])
def test_a_colour_that_agrees_with_the_label_at_other_rates_is_correlation_shift(formula, correlation) -> None:
    left, right = np.array([[85, 15], [15, 85]]), np.array([[10, 90], [90, 10]])
    found = exact_shift(left, right, formula)
    assert found.diversity == 0
    assert found.correlation == pytest.approx(correlation, abs=5e-5)


@pytest.mark.parametrize("formula", ["original", "hellinger"])
def test_half_of_each_side_on_private_support_is_diversity_shift(formula) -> None:
    found = exact_shift(np.array([[5, 5], [5, 5], [0, 0]]), np.array([[50, 50], [0, 0], [50, 50]]), formula)
    assert (found.diversity, found.correlation) == (pytest.approx(0.5), 0)


@settings(max_examples=30, deadline=None)
@given(tables_of, tables_of)
def test_both_shifts_keep_their_bounds_and_stay_below_the_hellinger_distance(left, right) -> None:
    found = exact_shift(left, right)
    p, q = left / left.sum(), right / right.sum()
    hellinger = ((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2
    assert 0 <= found.diversity <= 1 + 1e-12
    assert found.diversity + found.correlation <= hellinger + 1e-9
    reverse = exact_shift(right, left)
    assert (reverse.diversity, reverse.correlation) == pytest.approx((found.diversity, found.correlation))
    same = exact_shift(left, 3 * left)
    assert (same.diversity, same.correlation) == pytest.approx((0, 0), abs=1e-12)
    original = exact_shift(left, right, "original")
    assert 0 <= original.correlation <= 1 + 1e-9
    shared = np.array([row if row.any() else row + 1 for row in left])
    other = shared[:, ::-1]  # the same shares of categories: the distance is the sum of both
    both = exact_shift(shared, other)
    p, q = shared / shared.sum(), other / other.sum()
    assert both.diversity + both.correlation == pytest.approx(((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2)


def test_the_plugin_sums_over_categories_and_shows_what_chance_gives() -> None:
    frame, _ = coloured(8000)
    found = run({"examples": frame}, categories=["colour"], formula="original")
    assert found.value("diversity_shift", A, B) == 0
    assert found.value("correlation_shift", A, B) == pytest.approx(0.75, abs=0.02)
    assert found.value("correlation_shift_halves", A, B) < 0.03
    shuffled = run(
        {"examples": frame.sample(fraction=1, shuffle=True, seed=2)}, categories=["colour"], formula="original"
    )
    assert shuffled.statistics.equals(found.statistics)
    private = frame.with_columns(place=pl.when(pl.int_range(8000) % 4 < 2).then(pl.lit("both")).otherwise("domain"))
    assert run({"examples": private}, categories=["place"]).value("diversity_shift", A, B) == pytest.approx(0.5)
    two = run({"examples": private}, categories=["place", "colour"])
    assert two.value("diversity_shift", A, B) == pytest.approx(0.5)


@pytest.mark.parametrize(("formula", "expected"), [("original", 0.75), ("hellinger", 0.341)])
def test_densities_come_near_the_exact_number_in_low_and_in_high_dimensions(formula, expected) -> None:
    frame, colour = coloured(3000)
    settings = {"formula": formula, "repeats": 2, "rows": 1500, "points": 1500}
    for width in (2, 24):
        rows = np.random.default_rng(1).standard_normal((3000, width)) * 0.4
        rows[:, 0] += 3 * colour
        vectors = pl.Series("embedding", rows.astype(np.float32), dtype=pl.Array(pl.Float32, width))
        found = run({"examples": frame, "features_x": frame.select("example_id").with_columns(vectors)}, **settings)
        assert found.value("correlation_shift", A, B) == pytest.approx(expected, abs=0.06)
        assert found.value("diversity_shift", A, B) < 0.02


def test_environments_far_apart_are_all_diversity_and_equal_ones_nothing() -> None:
    frame, _ = coloured(1200, 0.5, 0.5)
    rows = np.random.default_rng(2).standard_normal((1200, 2))
    for moved, expected in ((0.0, 0.0), (25.0, 1.0)):
        shifted = rows + moved * (np.arange(1200) % 2)[:, None]
        vectors = pl.Series("embedding", shifted.astype(np.float32), dtype=pl.Array(pl.Float32, 2))
        tables = {"examples": frame, "features_x": frame.select("example_id").with_columns(vectors)}
        found = run(tables, repeats=2, points=2000)
        assert found.value("diversity_shift", A, B) == pytest.approx(expected, abs=0.05)
        assert found.value("correlation_shift", A, B) < 0.03


def test_the_density_is_scipys_and_its_draws_follow_it() -> None:
    rng = np.random.default_rng(0)
    rows, points = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3)), rng.standard_normal((50, 3))
    fitted = kernel_density.fit(rows)
    assert fitted is not None
    assert kernel_density.evaluate(fitted, points) == pytest.approx(gaussian_kde(rows.T)(points.T), rel=1e-3)
    drawn = kernel_density.draw(fitted, 20_000, rng)
    assert np.cov(drawn.T) == pytest.approx(np.cov(rows.T) * (1 + 400 ** (-2 / 7)), rel=0.15, abs=0.1)
    assert kernel_density.fit(rows[:4]) is None
    assert kernel_density.fit(np.ones((50, 3))) is None


def test_calibration_finds_thresholds_under_which_halves_score_as_asked() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.lognormal(-2, 2, 4000), rng.lognormal(-2, 2, 4000)
    halves = Grid(p, q, np.full(4000, 1.0), 0.2 * rng.random(4000), ())
    assert not 0.005 <= halves.correlation(5e-4) <= 0.01
    (div, cor), notes = calibrated(halves, "hellinger", (1e-12, 5e-4))
    assert 0 < div <= 0.01
    assert 0.005 <= halves.correlation(cor) <= 0.01
    assert not notes
    gone = np.where(rng.random(4000) < 0.5, 0.0, p)  # nothing at half of the points, whatever the threshold
    (lowest, _), notes = calibrated(Grid(gone, q, np.full(4000, 1.0), rng.random(4000), ()), "hellinger", (1e-12, 5e-4))
    assert lowest < 1e-50
    assert "so much is noise" in notes[0]
    silent = Grid(np.ones(10), np.ones(10), np.ones(10), np.zeros(10), ())
    assert calibrated(silent, "hellinger", (1e-12, 5e-4)) == ((1e-12, 5e-4), [])


def test_bad_input_is_answered() -> None:
    frame, _ = coloured(200)
    with pytest.raises(UsageError, match="did you mean 'colour'"):
        run({"examples": frame}, categories=["color"])
    blank = pl.when(pl.col("domain") == "a").then("colour")
    with pytest.raises(DataRefused, match="no example of domain=b"):
        run({"examples": frame.with_columns(colour=blank)}, categories=["colour"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ood_bench, "MOST_CELLS", 3)
        with pytest.raises(UsageError, match="2 categories and 2 labels"):
            run({"examples": frame}, categories=["colour"])
    lost = run(
        {"examples": frame.with_columns(output=pl.when(pl.int_range(200) > 9).then("output"))}, categories=["colour"]
    )
    assert "10 rows have no label" in lost.warnings[0]
    vectors = pl.Series("embedding", np.zeros((200, 2), dtype=np.float32), dtype=pl.Array(pl.Float32, 2))
    flat = run({"examples": frame, "features_x": frame.select("example_id").with_columns(vectors)})
    assert np.isnan(flat.value("diversity_shift", A, B))
    assert "nothing to tell" in flat.warnings[0]

"""Information of item curves: published areas, and the definition."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.tasks.difficulty.item_response import curves
from gradatim.tasks.difficulty.item_response.fit import fit_irt

_spec = importlib.util.spec_from_file_location("published", Path(__file__).with_name("published.py"))
assert _spec is not None
assert _spec.loader is not None
published = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(published)

parameters = st.tuples(
    st.one_of(st.floats(-3, -0.2), st.floats(0.2, 3)), st.floats(-2, 2), st.floats(0, 0.4), st.floats(0.7, 1.0)
)


def test_lsat6_information_areas_have_the_published_digits() -> None:
    fit = fit_irt(published.matrix(published.LSAT6))
    shape = (fit.a, fit.b, fit.g, fit.u)
    areas = [curves.information_area(*shape, *ends).sum() for ends in ((-4, 0), (0, 4), (-10, 10))]
    assert areas == pytest.approx([2.165, 0.768, 3.763], abs=1e-3)
    assert curves.information_area(*shape).sum() == pytest.approx(5 * fit.a[0])  # the limit: 3.776
    theta = np.linspace(-3, 3, 13)
    assert curves.test_information(*shape, theta) == pytest.approx(fit.information(theta))


@given(parameters, st.floats(-4, 4))
@settings(deadline=None, max_examples=30)
def test_information_is_the_expected_square_of_the_score(item: tuple[float, float, float, float], at: float) -> None:
    a, b, g, u = item
    h = 1e-5
    low, here, high = (g + (u - g) / (1 + np.exp(-a * (t - b))) for t in (at - h, at, at + h))
    expected = ((high - low) / (2 * h)) ** 2 / (here * (1 - here))
    found = curves.item_information(a, b, g, u, np.array([at]))
    assert found.shape == (1, 1)
    assert found[0, 0] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert curves.probability(a, b, g, u, np.array([at]))[0, 0] == pytest.approx(here, abs=1e-12)


@given(parameters, st.floats(-4, 0), st.floats(0.1, 4))
@settings(deadline=None, max_examples=30)
def test_the_area_is_the_integral(item: tuple[float, float, float, float], low: float, width: float) -> None:
    theta = np.linspace(low, low + width, 8001)
    integral = np.trapezoid(curves.item_information(*item, theta)[0], theta)
    assert curves.information_area(*item, low, low + width)[0] == pytest.approx(integral, rel=1e-5, abs=1e-9)
    whole = curves.information_area(*item)[0]
    assert whole >= integral - 1e-9
    assert whole <= abs(item[0]) + 1e-9  # guessing and slips only take away


def test_far_from_its_location_an_item_tells_nothing_and_nothing_overflows() -> None:
    found = curves.item_information(30.0, 0.0, 0.2, 0.9, np.array([-500.0, 500.0]))
    assert found.tolist() == [[0.0, 0.0]]
    assert curves.probability(30.0, 0.0, 0.2, 0.9, np.array([-500.0, 500.0]))[0] == pytest.approx([0.2, 0.9])

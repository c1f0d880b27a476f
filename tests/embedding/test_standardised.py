"""Columns on one scale: a peer's numbers, and numbers that are none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.embedding.standardised import MISSING, OTHER


def frame(**columns: Any) -> pl.DataFrame:
    size = len(next(iter(columns.values())))
    return pl.DataFrame({"example_id": [f"q{i:04d}" for i in range(size)], **columns})


def test_numbers_are_those_of_scikit_learns_scaler() -> None:
    rng = np.random.default_rng(0)
    rows = frame(a=rng.normal(5, 3, 500), b=rng.integers(0, 9, 500), c=rng.random(500) < 0.3)
    found = gd.embed(rows, "standardised", columns=["a", "b", "c"])
    peer = StandardScaler().fit_transform(rows.select(pl.col("a", "b", "c").cast(pl.Float64)).to_numpy())
    assert np.allclose(found.matrix, peer, atol=1e-6)
    assert found.counts == {}


def test_missing_numbers_become_the_mean_constant_columns_nothing_and_both_are_told() -> None:
    rows = frame(a=[1.0, None, 3.0, float("nan")], b=[0.1] * 4, c=[None] * 4)
    found = gd.embed(rows, "standardised", columns=["a", "b", "c"])
    assert found.matrix.tolist() == [[-1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert dict(found.counts) == {MISSING: 4}
    told = next(fact for fact in found.facts if fact.name == "columns of one value")
    assert (told.value, told.note) == (2, "0 for every row: b, c")


def test_categories_become_indicators_of_the_most_frequent() -> None:
    rows = frame(kind=["x", "y", "x", "z", None, "y", "x"], level=[1, 1, 2, 2, 2, 1, 1])
    found = gd.embed(rows, "standardised", categories=["kind", "level"], most=2)
    assert found.matrix.tolist() == [
        [1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [0, 1, 1, 0], [1, 0, 1, 0],
    ]  # fmt: skip
    assert dict(found.counts) == {OTHER: 2}
    later = found.embed(frame(kind=["new", "y"], level=[7, 2]))
    assert later.matrix.tolist() == [[0, 0, 0, 0], [0, 1, 0, 1]]


@settings(max_examples=25)
@given(
    st.lists(st.floats(-1e308, 1e308) | st.none(), min_size=2, max_size=40),
    st.randoms(use_true_random=False),
)
def test_the_scale_depends_on_the_numbers_alone_and_none_overflows(values: list[float | None], rng: Any) -> None:
    rows = frame(a=pl.Series(values, dtype=pl.Float64))
    found = gd.embed(rows, "standardised", columns=["a"])
    order = list(range(len(rows)))
    rng.shuffle(order)
    shuffled = frame(a=pl.Series([values[i] for i in order], dtype=pl.Float64))
    assert np.array_equal(gd.embed(shuffled, "standardised", columns=["a"]).fit["scales"], found.fit["scales"])
    there = [v for v in values if v is not None]
    if len(set(there)) > 1:
        there_z = found.matrix[[v is not None for v in values], 0].astype(float)
        assert abs(there_z.mean()) < 1e-5
        assert there_z.std() == pytest.approx(1, abs=1e-5)
    else:
        assert not found.matrix.any()


def test_decimals_and_the_smallest_numbers_are_numbers() -> None:
    rows = frame(a=[Decimal("1.5"), Decimal("2.5")], b=[5e-324, 1e-310])
    assert gd.embed(rows, "standardised", columns=["a", "b"]).matrix.round(5).tolist() == [[-1, -1], [1, 1]]


def test_what_is_no_number_or_infinite_is_refused_by_name() -> None:
    with pytest.raises(DataRefused, match="'q0001' has inf in the column 'a'"):
        gd.embed(frame(a=[1.0, float("inf")]), "standardised", columns=["a"])
    with pytest.raises(UsageError, match=r"'a' holds String") as error:
        gd.embed(frame(a=["1", "2"]), "standardised", columns=["a"])
    assert "categories: [a]" in error.value.remedy
    with pytest.raises(UsageError, match="'a' holds List"):
        gd.embed(frame(a=[[1], [2]]), "standardised", categories=["a"])
    with pytest.raises(UsageError, match="no column is named"):
        gd.embed(frame(a=[1]), "standardised")
    with pytest.raises(UsageError, match="'a' is named twice"):
        gd.embed(frame(a=[1]), "standardised", columns=["a"], categories=["a"])
    with pytest.raises(DataRefused, match="no category"):
        gd.embed(frame(a=[None, None]), "standardised", categories=["a"])
    fitted = gd.embed(frame(a=[0.0, 1e-30]), "standardised", columns=["a"])
    with pytest.raises(DataRefused, match="'q0000' holds NaN or infinity"):
        fitted.embed(frame(a=[1e30]))

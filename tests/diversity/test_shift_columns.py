"""Shift of columns: closed forms, peers, parts that merge, and bad input."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import wasserstein_distance

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity import column_counts
from gradatim.tasks.diversity.column_counts import merge, partial, values_of
from gradatim.tasks.diversity.column_shift import (
    compare,
    jensen_shannon,
    population_stability,
    quantile_bins,
    total_variation,
    total_variation_noise,
)
from gradatim.tasks.diversity.result import Diversity

counts = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=15).filter(
    lambda rows: sum(r[0] for r in rows) > 0 and sum(r[1] for r in rows) > 0
)


def examples(**columns: object) -> pl.DataFrame:
    frame = pl.DataFrame(columns, strict=False)
    return frame.with_columns(example_id=pl.format("e{}", pl.int_range(pl.len())))


def run(frame: pl.DataFrame, **settings: object) -> Diversity:
    plugin = get("diversity", "column_shift")
    found: Diversity = plugin.run({"examples": frame}, configure(plugin, settings), 0)
    return found


def at(found: Diversity, metric: str, left: str = "domain=a", right: str = "domain=b") -> float:
    return found.value(metric, left, right)


@settings(max_examples=30, deadline=None)
@given(counts)
def test_divergences_keep_their_bounds_and_are_symmetric(rows: list[tuple[int, int]]) -> None:
    left, right = np.array(rows).T
    p, q = left / left.sum(), right / right.sum()
    assert total_variation(left, right) == pytest.approx(np.abs(p - q).sum() / 2)
    assert jensen_shannon(left, right) == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-9)
    for measure in (total_variation, jensen_shannon, total_variation_noise):
        assert 0 <= measure(left, right) <= 1
        assert measure(left, right) == pytest.approx(measure(right, left), abs=1e-12)
    assert population_stability(left, right) >= 0
    assert total_variation(left, 3 * left) == pytest.approx(0, abs=1e-12)


def test_disjoint_sets_are_as_far_apart_as_can_be_and_the_index_follows_its_formula() -> None:
    assert (
        total_variation(np.array([5, 0]), np.array([0, 7])),
        jensen_shannon(np.array([5, 0]), np.array([0, 7])),
    ) == (1, 1)
    p, q = np.array([10.5, 30.5]) / 41, np.array([20.5, 20.5]) / 41
    assert population_stability(np.array([10, 30]), np.array([20, 20])) == pytest.approx(
        ((p - q) * np.log(p / q)).sum()
    )


def test_the_noise_is_what_samples_of_one_distribution_show() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(12))
    pairs = [(rng.multinomial(300, shares), rng.multinomial(800, shares)) for _ in range(300)]
    assert np.mean([total_variation(*pair) for pair in pairs]) == pytest.approx(
        np.mean([total_variation_noise(*pair) for pair in pairs]), rel=0.03
    )


def test_quantile_bins_hold_a_tenth_each_and_fewer_where_values_repeat() -> None:
    assert np.bincount(quantile_bins(np.ones(100, dtype=int))).tolist() == [10] * 10
    assert quantile_bins(np.array([95, 1, 1, 1, 1, 1])).tolist() == [0, 1, 1, 1, 1, 1]
    assert quantile_bins(np.array([7])).tolist() == [0]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_parts_merge_to_the_same_counts_in_any_order_and_grouping(found: list[float], random) -> None:
    column = pl.Series(found, dtype=pl.Float64)
    environment = pl.Series([random.randrange(3) for _ in found], dtype=pl.Int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_counts, "MOST_CELLS", 6)
        whole = partial(column, environment)
        cuts = sorted(random.randrange(len(found) + 1) for _ in range(3))
        parts = [partial(column[a:b], environment[a:b]) for a, b in zip([0, *cuts], [*cuts, len(found)], strict=True)]
        for order in list(permutations(range(4)))[::5]:
            one, two, three, four = (parts[i] for i in order)
            for merged in (merge([one, two, three, four]), merge([merge([one, two]), merge([three, four])])):
                assert (merged.kind, merged.level) == (whole.kind, whole.level)
                assert merged.cells.equals(whole.cells)
        again = partial(column[cuts[0] :], environment[cuts[0] :], parts[0].level)  # an earlier part's level as a start
        assert merge([parts[0], again]).cells.equals(whole.cells)


def test_cells_stand_for_numbers_near_their_own_and_few_numbers_are_exact() -> None:
    numbers = np.random.default_rng(0).standard_normal(200_000)
    counted = partial(pl.Series(numbers), pl.Series(np.zeros(len(numbers), dtype=np.int32)))
    assert counted.level > 0
    near = np.sort(values_of(counted.cells["cell"].to_numpy(), counted.level))
    assert len(near) <= column_counts.MOST_CELLS
    repeated = np.repeat(near, counted.cells.sort("cell")["rows"].to_numpy())
    assert np.abs(repeated / np.sort(numbers) - 1).max() < 1e-3
    few = np.array([-np.inf, -2.5, -0.0, 0.0, 1e-300, 3.0, np.inf])
    exact = partial(pl.Series(few), pl.Series([0] * 7, dtype=pl.Int32))
    assert values_of(exact.cells["cell"].to_numpy(), 0).tolist() == [-np.inf, -2.5, 0.0, 1e-300, 3.0, np.inf]
    assert exact.cells["rows"].to_list() == [1, 1, 2, 1, 1, 1]


def test_the_plugin_gives_every_measure_and_agrees_with_scipy() -> None:
    rng = np.random.default_rng(1)
    domain = np.array(["a", "b"])[rng.integers(0, 2, 3000)]
    x = rng.standard_normal(3000) + (domain == "b")
    colour = np.where(rng.random(3000) < np.where(domain == "a", 0.2, 0.6), "red", "blue")
    frame = examples(domain=domain, x=x, colour=colour, few=rng.integers(0, 5, 3000))
    found = run(frame)
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    assert at(found, "wasserstein(x)") == pytest.approx(
        wasserstein_distance(x[domain == "a"], x[domain == "b"]), rel=1e-9
    )
    assert at(found, "wasserstein(x)") == pytest.approx(1.0, abs=0.1)
    assert at(found, "tv(colour)") == pytest.approx(0.4, abs=0.05)
    assert at(found, "tv(few)") < 3 * at(found, "tv_noise(few)")
    assert found.value() == max(at(found, "tv(x)"), at(found, "tv(colour)"))
    shuffled = run(frame.sample(fraction=1, shuffle=True, seed=3))
    assert shuffled.statistics.equals(found.statistics)
    assert found.plot("columns") is not None
    assert "domain=b" in str(found.summary().tables[0].rows)


def test_each_label_is_compared_with_itself() -> None:
    domain = ["a"] * 100 + ["b"] * 100
    label = (["u"] * 80 + ["v"] * 20) + (["u"] * 20 + ["v"] * 80)
    colour = ["red" if name == "u" else "blue" for name in label]
    found = run(examples(domain=domain, label=label, colour=colour), label="label", columns=["colour"])
    assert at(found, "tv(colour)") == pytest.approx(0.6)
    assert at(found, "tv(colour)", "domain=a & label=u", "domain=b & label=u") == 0
    one_sided = run(
        examples(domain=domain, label=["u"] * 100 + ["v"] * 100, colour=colour), label="label", columns=["colour"]
    )
    assert not one_sided.statistics["subset"].str.contains("label=u").any()


def test_the_three_ways_to_compare_and_what_does_not_fit() -> None:
    frame = examples(domain=["a", "b", "c", None] * 30, x=[i / 2 for i in range(120)])
    pairs = [
        tuple(row)
        for row in run(frame)
        .statistics.filter(pl.col("reference") != "")
        .select("subset", "reference")
        .unique()
        .sort("subset", "reference")
        .rows()
    ]
    assert pairs == [("domain=a", "domain=b"), ("domain=a", "domain=c"), ("domain=b", "domain=c")]
    rest = run(frame, against="rest")
    assert "not domain=a" in rest.statistics["reference"].to_list()
    fixed = run(frame, reference="b")
    assert set(fixed.statistics["reference"]) == {"", "domain=b"}
    assert set(run(frame, left="c", right="a").statistics["subset"]) == {"all", "domain=c"}
    assert "30 rows have no environment" in run(frame).warnings[0]
    with pytest.raises(UsageError, match="go together"):
        run(frame, left="a")
    with pytest.raises(UsageError, match="three ways"):
        run(frame, left="a", right="b", reference="c")
    with pytest.raises(UsageError, match="no value 'z'"):
        run(frame, reference="z")
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        run(frame, environment="domains")
    with pytest.raises(DataRefused, match="1 value"):
        run(frame.filter(pl.col("domain") == "a"))
    with pytest.raises(UsageError, match="4,950 comparisons"):
        run(examples(domain=[f"d{i}" for i in range(100)], x=list(range(100))))


def test_missing_infinite_and_equal_values_dates_and_nested_columns_have_defined_numbers() -> None:
    day = date(2024, 1, 1)
    frame = examples(
        domain=["a", "a", "b", "b"],
        gap=[None, None, 1.0, float("nan")],
        far=[float("inf"), 1.0, 1.0, 2.0],
        same=[3, 3, 3, 3],
        day=[day, day, day + timedelta(days=2), day + timedelta(days=2)],
        hour=[datetime(2024, 1, 1)] * 2 + [datetime(2024, 1, 1, 1)] * 2,
        factors=[[{"key": "k", "value": v}] for v in "xxyy"],
        text=["", "", "", "x"],
    )
    found = run(frame, columns=["gap", "far", "same", "day", "hour", "factors", "text"])
    assert at(found, "tv(gap)") == 0.5
    assert found.statistics.filter(pl.col("metric") == "wasserstein(gap)").is_empty()
    assert at(found, "wasserstein(far)") == pytest.approx(0.5)  # of the finite ones
    assert "far" in found.warnings[0]
    assert (at(found, "tv(same)"), at(found, "wasserstein(same)"), at(found, "psi(same)")) == (0, 0, 0)
    assert (at(found, "wasserstein(day)"), at(found, "wasserstein(hour)")) == (2, 3600)
    assert (at(found, "tv(factors)"), at(found, "tv(text)")) == (1, 0.5)


def test_columns_of_ids_texts_and_vectors_are_left_out_with_the_reason() -> None:
    frame = examples(
        domain=["a", "b"] * 60,
        input=[f"text {i}" for i in range(120)],
        x=[1] * 120,
        measure=[i / 7 for i in range(120)],
        number=list(range(120)),
        nothing=[None] * 120,
        hours=[timedelta(hours=i % 3) for i in range(120)],
        vector=[[1.0, 2.0]] * 120,
        version=["3.1"] * 120,
        source_uri=["s.jsonl"] * 120,
        site=["a", "b"] * 60,
    )
    found = run(frame)
    assert found.parameters["columns"] == ["x", "measure", "hours", "version"]
    assert found.warnings == (
        "not compared: input (120 different values in 120 rows, as ids and free texts have); "
        "number (whole numbers that all differ, as ids do); vector (lists, vectors or records); "
        "site (the environments themselves)",
    )
    aside = dict(found.summary().tables[-1].rows)
    assert aside["nothing"] == "no value in any row"
    assert set(aside) == {"input", "number", "nothing", "vector", "site"}
    assert at(run(frame, columns=["input"]), "tv(input)") == 1
    assert run(frame, columns=["number"]).parameters["columns"] == ["number"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_counts, "MOST_CATEGORIES", 20)
        assert merge([partial(frame["input"], pl.Series([0] * 120, dtype=pl.Int32))] * 2).kind == "too many"
        with pytest.raises(UsageError, match="input: more than"):
            run(frame, columns=["input"])
    with pytest.raises(UsageError, match="no column 'missing'"):
        run(frame, columns=["missing"])
    with pytest.raises(UsageError, match="List"):
        run(frame, columns=["vector"])
    with pytest.raises(UsageError, match=r"no column can be compared .input"):
        run(frame.select("example_id", "domain", "input"))


def test_a_side_without_rows_is_not_compared() -> None:
    empty, one = np.zeros(2, dtype=int), np.array([1, 0])
    assert compare(None, empty, one, (0, 0)) == {}
    assert compare(np.array([1.0, 2.0]), empty, one, (3, 0))["tv"] == 1

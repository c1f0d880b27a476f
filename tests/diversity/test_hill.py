"""Hill numbers: laws, closed forms, and bad input."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import get
from gradatim.tasks.diversity.hill import HillConfig, hill, hill_number, hill_numbers, rarefied
from gradatim.tasks.diversity.result import Diversity

counts = st.lists(st.integers(1, 200), min_size=1, max_size=30)
orders = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, math.inf])


def examples(**columns: list[object]) -> pl.DataFrame:
    rows = len(next(iter(columns.values())))
    return pl.DataFrame({"example_id": [f"e{i:04d}" for i in range(rows)], **columns})


def run(frame: pl.DataFrame, **settings: object) -> Diversity:
    return hill({"examples": frame}, HillConfig.model_validate(settings), 0)


@given(counts, orders)
def test_pooling_disjoint_copies_multiplies_every_order(found: list[int], q: float) -> None:
    assert hill_number(found * 3, q) == pytest.approx(3 * hill_number(found, q), rel=1e-9)


@given(counts, orders, st.integers(1, 9))
def test_counting_every_row_several_times_changes_nothing(found: list[int], q: float, times: int) -> None:
    assert hill_number([times * c for c in found], q) == pytest.approx(hill_number(found, q), rel=1e-9)


@given(counts)
def test_higher_orders_are_never_larger(found: list[int]) -> None:
    values = [hill_number(found, q) for q in (math.inf, 50.0, 2.0, 1.0, 0.5, 0.0)]
    assert values == pytest.approx(sorted(values), abs=1e-9)
    assert values[0] >= 1 - 1e-12
    assert values[-1] == len(found)


@given(counts, orders, st.randoms(use_true_random=False))
def test_the_order_of_categories_changes_not_one_bit(found: list[int], q: float, random) -> None:
    shuffled = found[:]
    random.shuffle(shuffled)
    assert hill_number(shuffled, q) == hill_number(found, q)


def test_equal_categories_count_fully_at_every_order() -> None:
    for q in (0, 0.5, 1, 2, 7.5, math.inf):
        assert hill_number([4] * 12, q) == pytest.approx(12)
        assert hill_number([9], q) == pytest.approx(1)


def test_a_worked_example_gives_its_numbers() -> None:
    found = hill_numbers([6, 3, 1])
    entropy = -(0.6 * math.log(0.6) + 0.3 * math.log(0.3) + 0.1 * math.log(0.1))
    assert found["D0"] == 3
    assert found["D1"] == pytest.approx(math.exp(entropy))
    assert found["D2"] == pytest.approx(1 / 0.46)
    assert found["evenness"] == pytest.approx(math.exp(entropy) / 3)
    assert (found["top_share"], found["singletons"], found["coverage"]) == (0.6, 1.0, 0.9)


def test_corrections_follow_their_formulas_and_come_closer_to_the_truth() -> None:
    plain = hill_numbers([6, 3, 1])["entropy"]
    assert hill_numbers([6, 3, 1], "miller-madow")["entropy"] == pytest.approx(plain + 2 / 20)
    adjusted = [0.9 * p for p in (0.6, 0.3, 0.1)]
    expected = -sum(p * math.log(p) / (1 - (1 - p) ** 10) for p in adjusted)
    assert hill_numbers([6, 3, 1], "chao-shen")["entropy"] == pytest.approx(expected)
    rng = np.random.default_rng(0)
    drawn = [np.bincount(rng.integers(0, 200, 150), minlength=200) for _ in range(50)]
    error = {
        name: np.mean([hill_numbers(d, name)["entropy"] for d in drawn]) - math.log(200)
        for name in ("none", "miller-madow", "chao-shen")
    }
    assert error["none"] < error["miller-madow"] < -0.1  # nats; most of the 200 categories are unseen
    assert abs(error["chao-shen"]) < 0.1


def test_all_singletons_stay_finite_under_every_correction() -> None:
    for correction in ("none", "miller-madow", "chao-shen"):
        assert math.isfinite(hill_numbers([1, 1, 1], correction)["D1"])
        assert hill_numbers([1], correction)["D1"] == pytest.approx(1.0)
    assert hill_numbers([1, 1, 1], "chao-shen")["D1"] > 3
    assert hill_numbers([1, 1, 1])["coverage"] == 0.0


def test_rarefaction_is_the_mean_over_all_draws() -> None:
    from itertools import combinations

    rows = [0, 0, 0, 1, 1, 2]
    draws = [len(set(pick)) for pick in combinations(rows, 3)]
    assert rarefied([3, 2, 1], 3) == pytest.approx(np.mean(draws))
    assert rarefied([3, 2, 1], 6) == pytest.approx(3)
    assert rarefied([3, 2, 1], 1) == pytest.approx(1)
    with pytest.raises(UsageError, match="7 rows"):
        rarefied([3, 2, 1], 7)


@pytest.mark.parametrize("bad", [[], [0, 0], [-1, 2], [float("nan")]])
def test_counts_that_describe_nothing_are_refused(bad: list[float]) -> None:
    with pytest.raises(UsageError, match="counts"):
        hill_number(bad, 1)


def test_the_plugin_gives_both_tables_in_their_schema_and_each_subset() -> None:
    frame = examples(template=["a", "a", "b", "c", None], domain=["x", "x", "x", "y", "y"])
    found = run(frame, by="domain")
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    assert found.table.to_arrow().schema.names == spec("diversity").schema.names
    assert found.value("hill_D0") == 3
    assert found.value("hill_D0", "domain=x") == 2
    assert found.value("hill_rarefied", "domain=x") == pytest.approx(1.0)
    assert found.table["value"].to_list() == [0.5, 0.5, 0.25, 0.25]
    assert found.value("hill_D2") == pytest.approx(1 / found.table["value"].mean())
    assert found.statistics.filter(pl.col("subset") == "all")["n"].unique().to_list() == [4]
    assert "1 of 5 rows have no template" in found.warnings[0]


def test_shuffled_rows_give_the_same_tables() -> None:
    frame = examples(template=[f"t{i % 7}" for i in range(60)], domain=[f"d{i % 3}" for i in range(60)])
    one, other = run(frame, by="domain"), run(frame.sample(fraction=1, shuffle=True, seed=3), by="domain")
    assert one.statistics.equals(other.statistics)
    assert one.table.equals(other.table)


def test_masking_turns_texts_into_templates_and_leaves_apostrophes_alone() -> None:
    frame = examples(input=["add 3 to 4.5", "add 17 to 2", "say 'a b'  now", 'say "c" now', "don't and it's"])
    assert run(frame, column="input").value("hill_D0") == 5
    assert run(frame, column="input", mask=True).value("hill_D0") == 3


def test_factors_count_as_combinations_and_numbers_as_categories() -> None:
    factors = [[{"key": "op", "value": "add"}], [{"key": "op", "value": "add"}], [{"key": "op", "value": "sub"}], None]
    found = run(examples(factors=factors, size=[1, 2, 2, 2]), column="factors")
    assert found.value("hill_D0") == 2
    assert found.method == "hill(factors)"
    assert run(examples(size=[1, 2, 2, 2]), column="size").value("hill_D2") == pytest.approx(1 / (0.25**2 + 0.75**2))


def test_a_wrong_column_and_a_column_of_nulls_are_errors_that_say_so() -> None:
    with pytest.raises(UsageError, match="did you mean 'template'"):
        run(examples(template=["a"]), column="templat")
    with pytest.raises(DataRefused, match="no value in any of 2 rows"):
        run(examples(template=pl.Series([None, None], dtype=pl.String)))
    with pytest.raises(DataRefused, match="0 rows"):
        run(examples(template=pl.Series([], dtype=pl.String)))
    with pytest.raises(UsageError, match="hill_D1"):
        run(examples(template=["a"])).value("hill_D3")


def test_the_result_explains_itself() -> None:
    found = run(examples(template=["a", "b", "b", "c"], domain=["x", "y", "y", None]), by="domain")
    summary = found.summary()
    assert "hill_D1" in summary.headline
    assert summary.charts[0].spec
    assert "Hill (1973)" in found.cite()
    assert "hill_D1" in repr(found)
    assert any("coverage" in warning for warning in summary.warnings)


def test_the_registry_knows_the_measure_and_its_cost_grows_with_the_rows() -> None:
    plugin = get("diversity", "hill")
    assert plugin.run is hill
    assert plugin.cost(10**7, 0).seconds > plugin.cost(10**5, 0).seconds

"""Subsets: islands and shuffled ids, peers, closed forms, and what is degenerate."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.subsets import (
    SubsetsConfig,
    energy_distance,
    fragmentation,
    mutual_information,
    subsets,
)


def run(rows: np.ndarray, domain: list[str | None], seed: int = 0, **set_: object) -> Diversity:
    columns = {name: values for name, values in set_.items() if isinstance(values, list)}
    settings_ = {name: value for name, value in set_.items() if name not in columns}
    ids = [f"e{i:05d}" for i in range(len(rows))]
    table = pl.DataFrame({"example_id": ids, "v": np.asarray(rows, dtype=float).tolist(), "domain": domain, **columns})
    return subsets({"examples": table}, SubsetsConfig.model_validate({"column": "v", **settings_}), seed)


def islands(n: int = 400, groups: int = 4, spread: float = 0.01) -> tuple[np.ndarray, list[str | None]]:
    random = np.random.default_rng(0)
    group = np.arange(n) % groups
    return np.eye(8)[group] + spread * random.standard_normal((n, 8)), [f"d{g}" for g in group]


def test_islands_fall_apart_and_shuffled_ids_do_not() -> None:
    rows, domain = islands()
    apart = run(rows, domain, label="kind", kind=list(domain))
    assert apart.value("subset_fragmentation") > 0.99
    assert apart.value("subset_shortcut") == pytest.approx(1)
    assert apart.value("subset_label_known") == pytest.approx(1)
    assert apart.value("subset_disparity") == pytest.approx(2 * math.sqrt(2), rel=0.05)
    mixed = [domain[i] for i in np.random.default_rng(1).permutation(400)]
    shuffled = run(rows, mixed, label="kind", kind=list(domain))
    assert shuffled.value("subset_fragmentation") < 0.03
    assert shuffled.value("subset_fragmentation_adjusted") < 0.02
    assert shuffled.value("subset_shortcut") < 0.03
    assert shuffled.value("subset_shortcut_adjusted") < 0.02
    assert shuffled.value("subset_disparity") < 0.1
    # inside: an island holds one thing, a shuffled subset four
    assert apart.value("subset_vendi_q1", "domain=d0") < 1.1
    assert shuffled.value("subset_vendi_q1", "domain=d0") == pytest.approx(4, abs=0.2)


@settings(max_examples=25)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 999))
def test_fragmentation_is_the_share_of_variance_between_by_brute_force(n: int, groups: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, code = random.standard_normal((n, 3)), random.integers(0, groups, n)
    totals = np.stack([rows[code == g].sum(axis=0) for g in range(groups)])
    eta, adjusted = fragmentation(totals, float((rows**2).sum()), np.bincount(code, minlength=groups))
    mean = rows.mean(axis=0)
    within = sum(
        ((rows[code == g] - rows[code == g].mean(axis=0)) ** 2).sum() for g in range(groups) if (code == g).any()
    )
    assert eta == pytest.approx(1 - within / ((rows - mean) ** 2).sum(), abs=1e-9)
    assert 0 <= eta <= 1 + 1e-12
    assert math.isnan(adjusted) or 0 <= adjusted <= eta + 1e-12


def test_the_adjusted_share_is_near_nought_for_ids_without_meaning_also_where_subsets_are_many() -> None:
    random = np.random.default_rng(0)
    found = []
    for _ in range(50):
        rows, code = random.standard_normal((100, 2)), np.arange(100) % 50
        totals = np.stack([rows[code == g].sum(axis=0) for g in range(50)])
        found.append(fragmentation(totals, float((rows**2).sum()), np.bincount(code)))
    plain, adjusted = np.mean(found, axis=0)
    assert plain > 0.4
    assert adjusted < 0.1
    assert fragmentation(np.ones((2, 3)), 6.0, [1, 1]) == (0, 0)  # no variance


def test_the_energy_distance_has_its_known_values_and_is_that_of_scipy_in_one_dimension() -> None:
    from scipy.stats import energy_distance as peer

    random = np.random.default_rng(0)
    x, y = random.normal(size=60), random.normal(1, 2, size=80)
    assert energy_distance(x[:, None], y[:, None]) == pytest.approx(peer(x, y) ** 2, abs=1e-6)
    points = np.zeros((5, 2)), np.tile([3.0, 4.0], (7, 1))
    assert energy_distance(*points) == pytest.approx(10)
    assert energy_distance(x[:, None], x[:, None]) == 0


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(2, 4), st.integers(2, 4), st.integers(0, 999))
def test_mutual_information_is_that_of_scikit_learn(n: int, a: int, b: int, seed: int) -> None:
    from sklearn.metrics import normalized_mutual_info_score

    random = np.random.default_rng(seed)
    x, y = random.integers(0, a, n), random.integers(0, b, n)
    table = np.bincount(x * b + y, minlength=a * b).reshape(a, b)
    found = mutual_information(table)
    if len(set(x.tolist())) < 2 or len(set(y.tolist())) < 2:
        assert math.isnan(found["normalised"])
    else:
        assert found["normalised"] == pytest.approx(normalized_mutual_info_score(x, y), abs=1e-9)
        assert 0 <= found["known"] <= 1
    both = mutual_information(table[:, ::-1])
    assert both["normalised"] == pytest.approx(found["normalised"], abs=1e-12, nan_ok=True)


def test_a_nuisance_that_gives_the_label_away_is_known_but_a_finer_one_is_not_wholly_the_label() -> None:
    found = mutual_information([[10, 0], [10, 0], [0, 10], [0, 10]])
    assert found["known"] == pytest.approx(1)
    assert found["normalised"] == pytest.approx(2 * math.log(2) / (math.log(4) + math.log(2)))
    rows, domain = islands()
    colour = ["red" if d in ("d0", "d1") else "blue" for d in domain]
    told = run(rows, domain, label="class", nuisance="colour", colour=colour, **{"class": list(domain)})
    assert told.value("subset_label_known") == pytest.approx(0.5)


def test_the_order_of_rows_changes_nothing() -> None:
    rows, domain = islands(301, 3, 0.5)
    order = np.random.default_rng(0).permutation(301)
    ids = np.array([f"e{i:05d}" for i in range(301)])
    tables = [
        pl.DataFrame({"example_id": ids[o], "v": rows[o].tolist(), "domain": [domain[i] for i in o]})
        for o in (np.arange(301), order)
    ]
    one, other = (subsets({"examples": t}, SubsetsConfig(column="v", sample_size=50), 0) for t in tables)
    assert one.statistics.equals(other.statistics)


def test_each_two_subsets_are_compared_and_only_the_largest_where_there_are_many() -> None:
    rows, domain = islands(60, 4)
    found = run(rows, domain)
    pairs = found.statistics.filter(pl.col("metric") == "subset_energy_distance")
    assert pairs.select("subset", "reference").n_unique() == 6
    few = run(np.concatenate([rows, rows[:9]]), [*domain, *domain[:9]], largest=2)
    assert len(few.statistics.filter(pl.col("metric") == "subset_energy_distance")) == 1
    assert any("the 2 subsets with most rows of 4" in warning for warning in few.warnings)


def test_degenerate_and_bad_input() -> None:
    rows, domain = islands(12, 3)
    single = run(rows, domain, label="kind", kind=["one"] * 12)
    assert any("fewer than two values" in warning for warning in single.warnings)
    assert "subset_shortcut" not in single.statistics["metric"].to_list()
    assert single.statistics["value"].null_count() == 0
    tiny = run(rows[:2], ["a", "b"])
    assert tiny.value("subset_fragmentation") == pytest.approx(1)
    assert tiny.value("subset_vendi_q1", "domain=a") == 1
    assert tiny.summary().to_dict()
    assert any("2 rows have no domain" in w for w in run(rows, [None, None, *domain[2:]]).warnings)
    same = run(np.ones((6, 2)), ["a", "b"] * 3)
    assert same.value("subset_fragmentation") == 0
    assert same.value("subset_disparity") == pytest.approx(0, abs=1e-6)
    with pytest.raises(UsageError, match="domain has 5,001 values"):
        run(np.ones((5001, 2)), [str(i) for i in range(5001)])
    with pytest.raises(DataRefused, match="domain has 1 value"):
        run(rows, ["a"] * 12)
    with pytest.raises(DataRefused, match="'e00003' holds NaN"):
        run(np.where(np.arange(12)[:, None] == 3, math.nan, rows), domain)
    with pytest.raises(UsageError, match="no column 'label'"):
        run(rows, domain, label="label")
    with pytest.raises(UsageError, match="label is not"):
        run(rows, domain, nuisance="domain")
    with pytest.raises(UsageError, match="orders"):
        configure(get("diversity", "subsets"), {"orders": []})


def test_a_column_may_have_any_name() -> None:
    rows, domain = islands(40, 3)
    for by in ("n", "name", "distance"):
        found = run(rows, domain, by=by, **{by: list(domain)})
        assert found.summary().to_dict()


def test_the_pictures_draw() -> None:
    rows, domain = islands(40, 3)
    found = run(rows, domain)
    assert "d2" in str(found.plot("disparity").to_dict())
    assert "d2" in str(found.plot("inside").to_dict())
    assert found.plot().to_dict()

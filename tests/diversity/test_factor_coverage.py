"""Coverage of factor combinations: the published example, orthogonal arrays, brute force, and what is degenerate."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.factor_cells import count_cells, fewest_differences, missing_cells, read_factors
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.factor_coverage import FactorCoverageConfig, factor_coverage
from gradatim.tasks.diversity.result import Diversity


def frame(rows: list[tuple[object, ...]] | np.ndarray, **columns: object) -> pl.DataFrame:
    table = pl.DataFrame(np.asarray(rows), schema=[f"f{i}" for i in range(len(rows[0]))])
    return table.with_columns(example_id=pl.int_range(len(rows)).cast(pl.String).str.zfill(5)).with_columns(
        **{name: pl.Series(values) for name, values in columns.items()}
    )


def run(table: pl.DataFrame, **set_: object) -> Diversity:
    set_.setdefault("factors", [c for c in table.columns if c.startswith("f")])
    return factor_coverage({"examples": table}, FactorCoverageConfig.model_validate(set_), 0)


def test_the_four_tests_of_four_switches_of_the_source_cover_19_of_24_pairs() -> None:
    found = run(frame([(0, 0, 0, 0), (0, 1, 1, 0), (1, 0, 0, 1), (0, 1, 1, 1)]), ways=(2,))
    assert found.value("factor_coverage_2") == 19 / 24
    assert found.value("factor_missing_2") == 5
    assert found.value("factor_fully_covered_2") == 2 / 6
    cells = {pair for row in found.tables[0].rows for pair in [tuple(row)]}
    assert cells == {
        ("f0 × f1", "1 × 1"), ("f0 × f2", "1 × 1"), ("f0 × f3", "1 × 0"), ("f1 × f2", "0 × 1"), ("f1 × f2", "1 × 0")
    }  # fmt: skip


def test_an_orthogonal_array_of_four_runs_covers_all_pairs_and_half_of_all_triples() -> None:
    found = run(frame([(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]), ways=(1, 2, 3))
    assert [found.value(f"factor_coverage_{r}") for r in (1, 2, 3)] == [1, 1, 0.5]
    assert [found.value(f"factor_entropy_{r}") for r in (1, 2, 3)] == pytest.approx(
        [math.log(2), math.log(4), math.log(4)]
    )
    assert found.main == "factor_coverage_3"


@settings(max_examples=25)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 999))
def test_cells_are_those_of_brute_force_and_counts_of_parts_add(n: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 3, (n, m))
    found = read_factors(frame(rows), [f"f{i}" for i in range(m)])
    part = random.random(n) < 0.5
    for r in range(1, m + 1):
        sets = list(count_cells(found, r))
        first, second = list(count_cells(found, r, part)), list(count_cells(found, r, ~part))
        for cells, a, b, chosen in zip(sets, first, second, combinations(range(m), r), strict=True):
            seen = {tuple(row) for row in rows[:, chosen].tolist()}
            every = set(product(*(sorted(set(rows[:, f].tolist())) for f in chosen)))
            assert (cells.possible, len(cells.seen)) == (len(every), len(seen))
            assert cells.counts.sum() == n
            named = {tuple(map(int, cell)) for cell in missing_cells(found, cells, 1000)}
            assert named == every - seen
            assert missing_cells(found, cells, 1) == missing_cells(found, cells, 1000)[:1]
            both = np.zeros(cells.possible, dtype=int)
            both[a.seen] += a.counts
            both[b.seen] += b.counts
            assert np.array_equal(np.flatnonzero(both), cells.seen)
            assert np.array_equal(both[cells.seen], cells.counts)


@settings(max_examples=25)
@given(st.integers(1, 15), st.integers(1, 15), st.integers(1, 5), st.integers(0, 999))
def test_the_fewest_differences_are_those_of_brute_force(n: int, k: int, m: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    train, other = random.integers(-1, 3, (n, m)), random.integers(-1, 3, (k, m))
    brute = (other[:, None] != train).sum(axis=2).min(axis=1)
    assert fewest_differences(train, other).tolist() == brute.tolist()


def test_what_test_rows_have_that_training_rows_do_not_is_said() -> None:
    rows = [("red", "square"), ("red", "disc"), ("blue", "square"), ("blue", "disc"), ("red", "disc")]
    table = frame(rows, split=["train", "train", "train", "test", "test"])
    found = run(table, nearest=True)
    assert found.value("factor_unseen_1", "split=test") == 0
    assert found.value("factor_unseen_2", "split=test") == 1 / 2
    assert found.value("factor_rows_unseen_2", "split=test") == 1 / 2
    assert found.value("factor_coverage_2", "split=train") == 3 / 4
    assert found.value("factor_differences_mean", "split=test") == 1 / 2
    assert found.table.select("example_id", "value").rows() == [("00003", 1.0), ("00004", 0.0)]
    assert set(found.statistics.filter(pl.col("metric") == "factor_unseen_2")["reference"]) == {"split=train"}
    shuffled = run(table.sample(fraction=1, shuffle=True, seed=3), nearest=True)
    assert shuffled.statistics.equals(found.statistics)
    assert shuffled.table.equals(found.table)


def test_named_factors_in_a_map_a_list_or_a_struct_are_read_as_columns() -> None:
    pairs = [[("colour", "red"), ("shape", "disc")], [("colour", "blue")], None, []]
    long = pl.Series("factors", pairs, dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.String})))
    table = pl.DataFrame({"example_id": ["a", "b", "c", "d"], "factors": long})
    mapped = table.with_columns(pl.col("factors").cast(pl.Map(pl.String, pl.String)))
    one = run(table, factors=["factors"])
    assert run(mapped, factors=["factors"]).statistics.equals(one.statistics)
    assert one.parameters["names"] == ["colour", "shape"]
    assert one.value("factor_coverage_2") == 1 / 2
    assert any("3 of 4 rows lack a factor" in warning for warning in one.warnings)
    struct = pl.DataFrame({"example_id": ["a", "b"], "s": [{"x": 1, "y": 2}, {"x": 1, "y": 3}]})
    assert run(struct, factors=["s"]).value("factor_coverage_2") == 1


def test_very_many_possible_cells_are_counted_without_being_laid_out() -> None:
    rows = np.stack([np.arange(3000)] * 3, axis=1)
    found = run(frame(rows), ways=(3,))
    assert found.value("factor_missing_3") == 3000**3 - 3000
    assert found.tables[0].rows[0] == ("f0 × f1 × f2", "0 × 0 × 1")
    assert len(found.tables[0].rows) == 200
    assert "more are missing" in found.tables[0].note
    assert "grid" not in found.pictures


def test_degenerate_and_bad_input() -> None:
    one = run(frame([("a", "b")]))
    assert one.value() == 1
    assert one.tables[1].note == "none is missing"
    assert one.summary().to_dict()
    single = run(frame([("a",), ("b",)]))
    assert any("cells of 2 factors were left out: there are 1" in warning for warning in single.warnings)
    with pytest.raises(DataRefused, match="none of 2 rows has a value of f0"):
        run(pl.DataFrame({"example_id": ["a", "b"], "f0": [None, None]}, schema_overrides={"f0": pl.String}))
    with pytest.raises(UsageError, match="did you mean 'f0'"):
        run(frame([("a", "b")]), factors=["f00"])
    with pytest.raises(UsageError, match="holds List"):
        run(pl.DataFrame({"example_id": ["a"], "f": [[1, 2]]}))
    with pytest.raises(UsageError, match="ways 3 of 2 factors"):
        run(frame([("a", "b")]), ways=(3,))
    with pytest.raises(UsageError, match="sets of 4"):
        run(frame([tuple(range(40))]), ways=(4,))
    with pytest.raises(UsageError, match="nearest needs training rows"):
        run(frame([("a", "b")]), nearest=True)
    with pytest.raises(UsageError, match="20 factors"):
        fewest_differences(np.zeros((1, 20), dtype=np.int64), np.zeros((1, 20), dtype=np.int64))
    with pytest.raises(DataRefused, match="no row has fold = 'train'"):
        run(frame([("a", "b")], fold=["x"]), split="fold", factors=["f0", "f1"])
    with pytest.raises(UsageError, match="ways"):
        configure(get("diversity", "factor_coverage"), {"ways": [0]})


def test_the_pictures_show_the_sets_and_the_least_covered_pair() -> None:
    found = run(frame([("a", "x", "1"), ("b", "y", "1"), ("a", "y", "2")]))
    assert "f0" in str(found.plot("sets").to_dict())
    assert found.plot("grid").to_dict()
    assert run(frame([("a",), ("b",)])).plot("sets").to_dict()


def test_values_that_are_all_numbers_stand_in_their_order() -> None:
    frame = pl.DataFrame({"example_id": list("abcd"), "n": [10, 9, -2, 9], "size": ["10", "9", "two", "9"]})
    found = read_factors(frame, ["n", "size"])
    assert [level.to_list() for level in found.levels] == [["-2", "9", "10"], ["10", "9", "two"]]
    assert found.codes.T.tolist() == [[2, 1, 0, 1], [0, 1, 2, 1]]

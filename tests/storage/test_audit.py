"""Audits: both engines agree, every table has a suite, table-level checks find what they should."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.expectations import Expectation, Suite, suite
from gradatim.schemas.tables import SPLITS, TABLES, features_spec, spec
from gradatim.storage import checks
from gradatim.storage.audit import RowAudit, failing
from gradatim.storage.casting import conform
from gradatim.storage.checks import merge
from gradatim.storage.parts import write_part
from gradatim.storage.tables import Dataset

from .conftest import examples, made, never, want

ROWS = [
    Expectation("a", "not_null", "x"),
    Expectation("b", "finite", "x"),
    Expectation("c", "between", "x", {"low": 0, "high": 1}),
    Expectation("d", "between", "x", {"low": 0, "open_low": True}),
    Expectation("e", "between", "x", {"high": 1, "open_high": True}),
    Expectation("f", "ordered", "x", {"other": "y"}),
    Expectation("g", "in_set", "s", {"values": ["a", "b"]}),
    Expectation("h", "not_empty", "s"),
    Expectation("i", "matches", "s", {"pattern": "^[ab]+$"}),
    Expectation("j", "between", "n", {"low": 0, "high": 5}),
    Expectation("k", "not_null", "s"),
    Expectation("l", "ordered", "n", {"other": "m"}),
]
_floats = st.none() | st.sampled_from([0.0, -0.0, 0.5, 1.0, -1e-12, math.nan, math.inf, -math.inf, 5e-324, 1e308])
_texts = st.none() | st.sampled_from(["", "a", "b", "ab", "c", "ä"])
_ints = st.none() | st.integers(-1, 6)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(_floats, _floats, _texts, _ints, _ints), min_size=1, max_size=60))
def test_great_expectations_and_our_predicates_agree_on_every_value(tmp_path_factory: Any, rows: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("audit")
    x, y, s, n, m = zip(*rows, strict=True)
    columns = {"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64()), "s": pa.array(s, pa.string())}
    columns |= {"n": pa.array(n, pa.int32()), "m": pa.array(m, pa.int64())}
    table = examples(0, len(rows)).to_arrow()
    for name, column in columns.items():
        table = table.append_column(name, column)
    table = conform(table, spec("examples"))
    _, path = write_part(table, spec("examples"), folder, made("a"), 0)
    audit = RowAudit(Suite("examples", tuple(ROWS)), spec("examples"), folder)
    audit.check(path)  # raises where the two disagree on a count
    frame = pl.DataFrame(pl.from_arrow(table))
    for outcome, expectation in zip(audit.outcomes(), ROWS, strict=True):
        mask = frame.select(failing(expectation, frame.schema).fill_null(False)).to_series()
        assert outcome.failed == mask.sum() == sum(_breaks(expectation, row) for row in frame.to_dicts())


def _breaks(e: Expectation, row: Mapping[str, Any]) -> bool:
    """The expectations once more, a value at a time."""
    value, p = row[e.column], e.parameters
    if e.kind == "not_null" or value is None:
        return e.kind == "not_null" and value is None
    if e.kind == "finite":
        return not math.isfinite(value)
    if e.kind == "between":
        low, high = p.get("low", -math.inf), p.get("high", math.inf)
        above = value > low if p.get("open_low") else value >= low
        below = value < high if p.get("open_high") else value <= high
        return not (above and below)
    if e.kind == "ordered":
        return row[p["other"]] is not None and not value <= row[p["other"]]
    if e.kind == "in_set":
        return value not in p["values"]
    return value == "" if e.kind == "not_empty" else not (value and set(value) <= {"a", "b"})


@pytest.mark.parametrize("table", [*TABLES, "features_words"])
def test_every_table_has_a_suite_about_columns_that_it_has(table: str) -> None:
    contract = features_spec("words", 3) if table.startswith("features_") else spec(table)
    found = suite(table)
    names = [e.name for e in found.expectations]
    assert len(set(names)) == len(names)
    for expectation in found.expectations:
        assert set(expectation.columns) <= set(contract.schema.names), expectation
        assert set(expectation.parameters.get("by", [])) <= set(contract.schema.names)
        assert expectation.row_level or expectation.severity != "reject_rows"
    assert {e.column for e in found.row_level if e.kind == "not_null"} >= set(contract.key)
    assert "key_unique" in names
    numbers = [f.name for f in contract.schema if pa.types.is_floating(f.type)]
    checked = {e.column for e in found.row_level}
    unchecked = set(numbers) - checked - {"fit", "upper_error", "lower_error", "ci_low", "ci_high"}
    assert not unchecked, f"{table}: nothing is expected of {unchecked}"
    assert len(found.suite_hash()) == 32
    assert found.suite_hash() == suite(table).suite_hash()
    assert found.suite_hash() != found.tolerate(key_unique=0.5).suite_hash()


def _difficulty(ids: list[str], **columns: Any) -> pl.DataFrame:
    n = len(ids)
    base: dict[str, Any] = {
        "example_id": ids,
        "method": ["irt"] * n,
        "value": [0.5] * n,
        "scale": ["logit"] * n,
        "percentile": [(i + 1) / n for i in range(n)],
    }
    return pl.DataFrame(base | columns).with_columns(bin=pl.lit(0, pl.Int32))


@pytest.mark.parametrize(
    ("columns", "broken"),
    [
        ({"value": [math.nan, 1.0]}, "value_finite"),
        ({"value": [math.inf, 1.0]}, "value_finite"),
        ({"value": [None, 1.0]}, "value_not_null"),
        ({"percentile": [0.0, 1.0]}, "percentile_between"),
        ({"percentile": [0.5, 1.0000001]}, "percentile_between"),
        ({"standard_error": [-0.1, 1.0]}, "standard_error_between"),
    ],
)
def test_a_wrong_difficulty_is_refused(with_examples: Callable[[int], Dataset], columns: Any, broken: str) -> None:
    dataset = with_examples(2)
    with pytest.raises(DataRefused, match=f"{broken}: 1 of 2"):
        dataset.publish("difficulty", [want("d", _difficulty(["e000000", "e000001"], **columns))])


# --- table-level


def test_an_id_that_does_not_exist_is_refused(
    with_examples: Callable[[int], Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = with_examples(50)
    ids = [f"e{i:06d}" for i in range(48)] + ["ghost", "spook"]
    monkeypatch.setattr(checks, "_PASS", 7)  # several passes over hash partitions find the same
    with pytest.raises(DataRefused, match="example_id_exists: 2 of 50") as caught:
        dataset.publish("difficulty", [want("d", _difficulty(ids))], parents=["examples@0"])
    assert "ghost" in str(caught.value)
    assert "examples@0" in str(caught.value)
    dataset.publish("difficulty", [want("e", _difficulty(ids[:48]))], parents=["examples@0"])


def test_existence_is_looked_up_in_the_parent_version(with_examples: Callable[[int], Dataset]) -> None:
    dataset = with_examples(3)
    dataset.publish("examples", [want("more", examples(0, 4))])
    rows = _difficulty(["e000003"])
    with pytest.raises(DataRefused, match="not in examples@0"):
        dataset.publish("difficulty", [want("d", rows)], parents=["examples@0"])
    assert dataset.publish("difficulty", [want("d", rows)], parents=["examples@1"]).rows == 1


def test_what_cannot_be_checked_is_said(dataset: Dataset) -> None:
    published = dataset.publish("difficulty", [want("d", _difficulty(["q1"]))])
    assert published.audit is not None
    assert published.audit["example_id_exists"].holds is None
    assert "not checked" in str(published.audit)
    assert dataset.metadata("difficulty")["warnings"] == ["example_id_exists"]


def test_a_key_that_occurs_in_two_parts_is_found(dataset: Dataset) -> None:
    left, right = examples(0, 300), examples(299, 500)
    with pytest.raises(DataRefused, match="key_unique: 1 of 501") as caught:
        dataset.publish("examples", [want("a", left), want("b", right)], part_rows=50)
    assert "e000299" in str(caught.value)


def test_a_key_that_occurs_twice_in_one_part_or_in_an_old_one_is_found(dataset: Dataset) -> None:
    with pytest.raises(DataRefused, match="key_unique: 2 of 7"):
        dataset.publish("examples", [want("a", examples(0, 5), examples(1, 3))])
    dataset.publish("examples", [want("b", examples(0, 5))])
    with pytest.raises(DataRefused, match="key_unique: 1 of 6"):
        dataset.publish("examples", [want("b", examples(0, 5)), want("c", examples(2, 3))])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 6), st.text("abc", max_size=2)), max_size=30), min_size=1, max_size=4)
)
def test_a_merge_gives_every_row_in_key_order_and_never_parts_equal_keys(tmp_path_factory: Any, parts: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("merge")
    places = []
    for i, rows in enumerate(parts):
        if rows:
            pl.DataFrame(sorted(rows), schema=["k", "s"], orient="row").write_parquet(folder / f"{i}", row_group_size=5)
            places.append((str(folder / f"{i}"), len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "STEPS", (3, 4))
        blocks = [sorted(block.rows()) for block in merge(places, ["k", "s"])]
    assert [row for block in blocks for row in block] == sorted(row for rows in parts for row in rows)
    for before, after in pairwise(blocks):
        assert before[-1] < after[0]


def _splits(assignment: Mapping[str, str], **more: Any) -> pl.DataFrame:
    ids = list(assignment)
    n = len(ids)
    frame = pl.DataFrame(
        {
            "strategy": ["length"] * n,
            "seed": [0] * n,
            "example_id": ids,
            "split": list(assignment.values()),
            "reason": ["r"] * n,
        }
        | more
    )
    return frame.with_columns(fold=pl.lit(0, pl.Int32))


GOOD = {"e000000": "train", "e000001": "train", "e000002": "test", "e000003": "test_ood"}


def test_good_splits_pass(with_examples: Callable[[int], Dataset]) -> None:
    published = with_examples(4).publish("splits", [want("s", _splits(GOOD))], parents=["examples@0"])
    assert published.audit is not None
    assert not published.audit.warnings
    assert all(o.holds for o in published.audit.outcomes)


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (_splits(GOOD | {"e000003": "dev"}), "split_in_set: 1 of 4"),
        (_splits({k: v for k, v in GOOD.items() if k != "e000001"}), "every_example_once: 1 of 3"),
        (pl.concat([_splits(GOOD), _splits({"e000000": "test"})]), "splits_disjoint: 1 of 5"),
        (_splits(dict.fromkeys(GOOD, "train")), "train_and_test_filled: 1 of 4.*no rows in test"),
        (_splits(dict.fromkeys(GOOD, "test")), "train_and_test_filled: 1 of 4.*no rows in train"),
        (_splits(GOOD, component=["c1", None, "c1", None]), "component_kept_whole: 1 of 4.*length/0/0/c1"),
        (_splits(GOOD | {"e000003": "test"}, reason=["r", None, "r", "r"]), "reason_not_null: 1 of 4"),
    ],
)
def test_wrong_splits_are_refused(with_examples: Callable[[int], Dataset], rows: pl.DataFrame, broken: str) -> None:
    with pytest.raises(DataRefused, match=broken):
        with_examples(4).publish("splits", [want("s", rows)], parents=["examples@0"])


def test_excluded_rows_may_tear_a_component(with_examples: Callable[[int], Dataset]) -> None:
    rows = _splits(GOOD | {"e000001": "excluded"}, component=["c", "c", None, None])
    assert set(SPLITS) >= set(rows["split"])
    assert with_examples(4).publish("splits", [want("s", rows)]).rows == 4


def _order(positions: list[int], arm: str = "curriculum") -> pl.DataFrame:
    n = len(positions)
    frame = pl.DataFrame({"arm": [arm] * n, "seed": [0] * n, "position": positions, "example_id": ["e000000"] * n})
    return frame.with_columns(stage=pl.lit(0, pl.Int32), weight=pl.lit(1.0, pl.Float32))


@pytest.mark.parametrize(
    ("positions", "broken"),
    [
        ([0, 1, 3], "positions_contiguous: 1 of 6.*run from 0 to 3; expected 0 to 2"),
        ([1, 2, 3], "positions_contiguous: 1 of 6.*run from 1 to 3"),
        ([0, 1, 1], "key_unique: 1 of 6"),
        ([-1, 0, 1], "position_between: 1 of 6"),
    ],
)
def test_positions_with_a_gap_are_refused(
    with_examples: Callable[[int], Dataset], positions: list[int], broken: str
) -> None:
    dataset = with_examples(1)
    wanted = [want("r", _order([0, 1, 2], "random"), group="random"), want("c", _order(positions), group="curriculum")]
    with pytest.raises(DataRefused, match=broken):
        dataset.publish("curriculum", wanted)


def test_an_empty_table_of_examples_is_refused(dataset: Dataset) -> None:
    with pytest.raises(DataRefused, match="the table has no rows"):
        dataset.publish("examples", [want("a", examples(0, 0))])


def test_groups_that_are_passed_on_answer_to_the_examples_they_were_made_from(
    with_examples: Callable[[int], Dataset],
) -> None:
    def of(strategy: str, assignment: dict[str, str]) -> pl.DataFrame:
        return _splits(assignment).with_columns(strategy=pl.lit(strategy))

    dataset = with_examples(4)
    dataset.publish("splits", [want("group", of("group", GOOD), group="group")], parents=["examples@0"])
    other = of("length", GOOD)
    dataset.publish("splits", [want("length", other, group="length")], parents=["examples@0"], keep_others=True)

    # one row is gone and two are new: the strategies are built again one by one
    dataset.publish("examples", [want("later", examples(1, 6))])
    later = of("group", {f"e{i:06d}": "train" if i % 2 else "test" for i in range(1, 6)})
    published = dataset.publish(
        "splits", [want("group again", later, group="group")], parents=["examples@1"], keep_others=True
    )
    assert published.rows == 4 + 5
    # what is made now still answers to the examples of now
    stale = other.filter(pl.col("example_id") != "e000000")
    with pytest.raises(DataRefused, match="every_example_once"):
        dataset.publish("splits", [want("stale", stale, group="length")], parents=["examples@1"], keep_others=True)
    gone = later.with_columns(pl.col("example_id").replace("e000004", "e000000"), strategy=pl.lit("length"))
    with pytest.raises(DataRefused, match="example_id_exists"):
        dataset.publish("splits", [want("gone", gone, group="length")], parents=["examples@1"], keep_others=True)
    # and so does what is used again
    with pytest.raises(DataRefused, match="every_example_once"):
        dataset.publish("splits", [never("length", group="length")], parents=["examples@1"])

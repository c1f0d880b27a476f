"""Time splits never look ahead: boundaries, gaps, windows, groups, releases, and times that cannot be ordered."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import time_split
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.moments import moments, share_before

SIDE = {"train": "in", "validation": "in", "test": "in", "test_ood": "out", "excluded": "neither"}
START = datetime(2024, 1, 1, tzinfo=UTC)


def rows(n: int = 400, hours: int = 12) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "example_id": [f"r{i:04d}" for i in range(n)],
            "created_at": [START + timedelta(hours=hours * i) for i in range(n)],
            "patient": [f"p{i // 9}" for i in range(n)],
        }
    )


def test_the_rides_of_a_real_year_train_and_those_of_the_next_are_tested(data: Path) -> None:
    rides = pl.read_csv(data / "tabular_domains" / "bike_hourly.csv.gz").with_columns(
        example_id=pl.col("instant").cast(pl.String)
    )
    split = make("time", rides, column="dteday", before="2012-01-01", controls=False)
    second = rides.filter(pl.col("yr") == 1)["example_id"].sort()
    assert split.ids("test_ood").equals(second)
    assert split.certify(rides).holds
    by_share = make("time", rides, column="dteday", share=0.5, controls=False)
    days = rides.filter(pl.col("example_id").is_in(by_share.ids("test_ood").implode()))["dteday"]
    before = rides.filter(~pl.col("example_id").is_in(by_share.ids("test_ood").implode()))["dteday"]
    assert before.max() < days.min()  # a day is never cut in two
    assert 0 <= len(rides) / 2 - len(before) < 24
    by_index = make("time", rides, column="instant", share=0.5, controls=False)
    assert by_index.counts["test_ood"] == len(rides) - len(rides) // 2


@given(
    at=st.lists(st.integers(0, 12) | st.none(), min_size=40, max_size=90),
    group=st.lists(st.sampled_from("abcdefghijklmnop") | st.none(), min_size=90, max_size=90),
    share=st.sampled_from([0.3, 0.5, 0.75]),
    gap=st.integers(0, 3),
    validation=st.sampled_from([0.0, 0.3, 0.6]),
    windows=st.integers(1, 3),
    across=st.sampled_from(["test", "train"]),
    grouped=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_nothing_looks_ahead_and_every_row_is_where_brute_force_puts_it(
    at: list[int | None],
    group: list[str | None],
    share: float,
    gap: int,
    validation: float,
    windows: int,
    across: str,
    grouped: bool,
) -> None:
    data = pl.DataFrame(
        {"example_id": [f"r{i:03d}" for i in range(len(at))], "at": at, "g": group[: len(at)]},
        schema={"example_id": pl.String, "at": pl.Int64, "g": pl.String},
    )
    setting: dict[str, Any] = {
        "column": "at", "share": share, "windows": windows, "validation_ood": validation, "across": across,
        "test": 0.3, "validation": 0.0, "controls": False, "gap": str(gap) if gap else None,
        "keep_together": ["g"] if grouped else [],
    }  # fmt: skip
    try:
        split = make("time", data, **setting)
    except DataRefused:  # a split would be empty, or windows coincide
        return
    known = [value for value in at if value is not None]
    step = (1 - share) / windows
    starts = [time_split.boundary(known, share + step * i) for i in range(windows)]
    for fold, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
        inside = [v for v in known if v >= start + gap and (end is None or v < end)]
        test = time_split.boundary(inside, validation) if validation and len(set(inside)) > 1 else None
        expected = time_split.sides(
            data.to_dicts(), start, end, gap=gap, test=test, group="g" if grouped else None, across=across
        )
        block = split.main.filter(pl.col("fold") == fold).join(data, on="example_id")
        found = {i: SIDE.get(s, s) for i, s in block.select("example_id", "split").iter_rows()}
        assert found == expected
        latest = block.filter(pl.col("split").is_in(["train", "validation", "test"]))["at"].max()
        later = block.filter(pl.col("split").is_in(["validation_ood", "test_ood"]))["at"]
        assert latest + gap < later.min()
        if grouped:
            used = block.filter(pl.col("split") != "excluded").drop_nulls("g")
            assert (used.group_by("g").agg(pl.col("split").n_unique())["split"] == 1).all()
        assert split.select(fold=fold).certify(data).holds


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_the_boundary_of_a_share_is_that_of_brute_force(values: list[int], share: float) -> None:
    found = share_before(np.array(values), share)
    if len(set(values)) == 1:
        assert found is None
    else:
        assert found == time_split.boundary(values, share)
        assert 0 < sum(value < found for value in values) < len(values)


def test_reasons_say_on_which_side_of_what_a_row_is() -> None:
    split = make("time", rows(), before="2024-05-01", gap="2d", until="2024-06-01T00:00:00Z", keep_together=[])
    assert split.why("r0000").endswith("created_at 2024-01-01T00:00:00 < 2024-05-01T00:00:00+00:00")
    assert split.why("r0243") == (
        "excluded: created_at 2024-05-01T12:00:00 is in the gap of 2d after 2024-05-01T00:00:00+00:00"
    )
    assert split.why("r0250").startswith("validation_ood: created_at 2024-05-05")
    assert split.why("r0399") == "test_ood: created_at 2024-07-18T12:00:00 >= 2024-05-03T00:00:00+00:00"
    held = split.main["held_out"].drop_nulls().unique().to_list()
    assert held == ["created_at >= 2024-05-01T00:00:00+00:00; test from 2024-06-01T00:00:00+00:00"]


def test_an_entity_on_both_sides_stays_in_test_or_in_train_but_never_in_both() -> None:
    data = rows()
    straddling = data.filter(pl.col("patient") == "p26")  # rows 234 to 242: 2024-05-01 is row 242
    assert straddling["example_id"].to_list()[-1] == "r0242"
    tested = make("time", data, before="2024-05-01", keep_together="patient")
    assert tested.why("r0242").startswith("test_ood")
    assert tested.why("r0234").endswith("; its group p26 also has out-of-distribution rows")
    assert tested.why("r0234").startswith("excluded")
    trained = make("time", data, before="2024-05-01", keep_together="patient", across="train")
    assert trained.why("r0242") == (
        "excluded: created_at 2024-05-01T00:00:00 >= 2024-05-01T00:00:00+00:00; its group p26 also has rows before the "
        "boundary"
    )
    assert not trained.why("r0234").startswith("excluded")
    between = make("time", data, before="2024-05-01", until="2024-06-01", keep_together="patient", across="train")
    assert "also has rows in validation_ood" in "".join(between.main["reason"])
    for split in (tested, trained, between):
        assert split.certify(data).holds
        places = split.main.filter(pl.col("split") != "excluded").group_by("component").agg(pl.col("split").n_unique())
        assert (places["split"] == 1).all()


def test_groups_that_are_all_on_both_sides_are_refused_with_the_way_out() -> None:
    data = rows().with_columns(patient=pl.int_range(400) % 40)
    with pytest.raises(DataRefused, match=r"every row from 2024-05-01.* is of a group that stays elsewhere") as error:
        make("time", data, before="2024-05-01", keep_together="patient", across="train")
    assert "across: test" in error.value.remedy
    with pytest.raises(DataRefused, match="train and test would be empty") as error:
        make("time", data, before="2024-05-01", keep_together="patient")
    assert "keep together by a finer column" in error.value.remedy


def test_windows_grow_and_each_is_tested_on_what_follows_it() -> None:
    data = rows()
    split = make("time", data, share=0.4, windows=3, controls=False)
    sizes = split.sizes
    assert sizes["test_ood"].to_list() == [80, 80, 80]
    assert sizes["excluded"].to_list() == [160, 80, 0]
    assert (sizes["train"] + sizes["validation"] + sizes["test"]).to_list() == [160, 240, 320]
    tested = split.main.filter(pl.col("split") == "test_ood")
    assert tested["example_id"].n_unique() == len(tested) == 240
    named = make("time", data, before=["2024-05-01", "2024-03-01"], controls=False)
    assert named.sizes["held_out"].to_list() == [
        "created_at >= 2024-03-01T00:00:00+00:00, < 2024-05-01T00:00:00+00:00",
        "created_at >= 2024-05-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize("setting", [{}, {"windows": 2, "share": 0.5}, {"validation_ood": 0.4, "folds": 2}])
def test_a_released_boundary_stays_and_later_rows_are_tested(setting: dict[str, Any]) -> None:
    old, every = rows(300), rows(500)
    first = make("time", old, **setting, controls=False)
    later = make("time", {"examples": every, "frozen": first.main}, **setting, controls=False)
    last = int(first.main["fold"].max())  # type: ignore[arg-type]
    new = later.main.filter((pl.col("fold") == last) & ~pl.col("example_id").is_in(old["example_id"].implode()))
    assert new["split"].unique().to_list() == ["test_ood"]
    assert later.certify(every).holds
    both = first.main.join(later.main, on=["fold", "example_id"])
    assert (both["split"] == both["split_right"]).all()
    fresh = make("time", every, **setting, controls=False)
    moved = first.main.join(fresh.main, on=["fold", "example_id"]).filter(pl.col("split") != pl.col("split_right"))
    assert len(moved)  # without the release the boundary follows the rows
    early = every.with_columns(
        created_at=pl.when(pl.col("example_id") == "r0499").then(START - timedelta(days=9)).otherwise("created_at")
    )
    late = make("time", {"examples": early, "frozen": first.main}, **setting, controls=False)
    assert late.main.filter(example_id="r0499", fold=0)["split"][0] in ("train", "validation", "test")


def test_times_of_several_zones_types_and_texts_are_compared_as_instants() -> None:
    data = rows(60)
    tokyo = timezone(timedelta(hours=9))
    as_text = [
        moment.astimezone(tokyo if i % 2 else UTC).isoformat() for i, moment in enumerate(data["created_at"].to_list())
    ]
    expected = make("time", data, before="2024-01-20").main["split"]
    for column in (
        pl.Series("created_at", as_text),
        data["created_at"].dt.convert_time_zone("Asia/Tokyo"),
        data["created_at"].dt.replace_time_zone(None),
        data["created_at"].dt.cast_time_unit("ns"),
        data["created_at"].dt.strftime("%Y-%m-%dT%H:%M:%S"),
    ):
        changed = data.with_columns(column)
        split = make("time", changed, before=date(2024, 1, 20))
        assert split.main["split"].equals(expected)
        assert split.certify(changed).holds
    days = data.with_columns(pl.col("created_at").dt.date())
    for moment in ("2024-01-20", "2024-01-20T15:00:00+09:00", "2024-01-20T00:00:00+09:00"):
        assert make("time", days, before=moment, gap="3d").certify(days).holds


def test_times_that_cannot_be_ordered_are_refused_with_the_row() -> None:
    data = rows(60)
    with pytest.raises(DataRefused, match="all 60 rows have the same created_at"):
        make("time", data.with_columns(created_at=pl.lit(START)))
    mixed = data["created_at"].dt.strftime("%Y-%m-%dT%H:%M:%S").to_list()
    mixed[7] += "+09:00"
    with pytest.raises(DataRefused, match=r"some times have a zone and some have none, first .* of the row 'r0000'"):
        make("time", data.with_columns(pl.Series("created_at", mixed)))
    mixed[7] = "yesterday"
    with pytest.raises(DataRefused, match="'yesterday' of the row 'r0007' is no time"):
        make("time", data.with_columns(pl.Series("created_at", mixed)))
    for nothing in (pl.lit(None), pl.lit(None, pl.String), pl.lit(float("nan"))):
        with pytest.raises(DataRefused, match="no row has a value of 'created_at'"):
            make("time", data.with_columns(created_at=nothing))
    with pytest.raises(DataRefused, match="Boolean"):
        make("time", data.with_columns(created_at=pl.lit(True)))
    null = data.with_columns(pl.when(pl.col("example_id") != "r0005").then("created_at").alias("created_at"))
    assert make("time", null).why("r0005") == "excluded: created_at is null"
    infinite = data.with_columns(
        created_at=pl.when(pl.int_range(60) == 3).then(float("inf")).otherwise(pl.int_range(60))
    )
    assert make("time", infinite).why("r0003") == "excluded: created_at is null"
    half = data.with_columns(created_at=pl.int_range(60) // 30)
    with pytest.raises(DataRefused, match="two windows begin at 1"):
        make("time", half, windows=3)
    with pytest.raises(DataRefused, match="test_ood would be empty"):
        make("time", data, before="2030-01-01")
    with pytest.raises(DataRefused, match="train and test would be empty"):
        make("time", data, before="2020-01-01")


def test_settings_that_contradict_or_cannot_be_read_are_refused() -> None:
    plugin = get("split", "time")
    with pytest.raises(UsageError, match="windows are cut by share"):
        configure(plugin, {"before": "2024-01-01", "windows": 2})
    with pytest.raises(UsageError, match="'until' ends the validation of one fold"):
        configure(plugin, {"until": "2024-01-01", "validation_ood": 0.1})
    for setting, word in (({"gap": "soon"}, "like '30d'"), ({"gap": "30"}, "like '30d'"), ({"before": "7"}, "times")):
        with pytest.raises(UsageError, match=word):
            make("time", rows(60), **setting)
    numbers = rows(60).with_columns(created_at=pl.int_range(60))
    with pytest.raises(UsageError, match="numbers"):
        make("time", numbers, before="2024-01-01")
    assert make("time", numbers, before=50, gap=2).counts["excluded"] == 2
    written = numbers.with_columns(pl.col("created_at").cast(pl.String))  # as factors are
    split = make("time", written, before=50, gap=2)
    assert split.main["split"].equals(make("time", numbers, before=50, gap=2).main["split"])
    assert split.certify(written).holds
    with pytest.raises(UsageError, match="'1,5'"):
        make("time", numbers, before="1,5")


def test_odd_numbers_spans_and_ends_are_ordered_or_refused() -> None:
    data = rows(60)
    large = data.with_columns(created_at=pl.int_range(60).cast(pl.UInt64) * 10**12 + 2**63)
    assert make("time", large).counts["test_ood"] == 12
    assert make("time", large).certify(large).holds
    thirds = data.with_columns(created_at=(pl.int_range(60) / 3).cast(pl.Decimal(9, 3)))
    assert make("time", thirds, gap=0.5).counts["excluded"] == 2
    with pytest.raises(UsageError, match="9999999999w"):
        make("time", data, gap="9999999999w")
    with pytest.raises(UsageError, match="before it begins"):
        make("time", data, before="2024-01-20", gap="2d", until="2024-01-22")
    assert make("time", data, before=None).main.equals(make("time", data).main)


def test_a_moment_written_is_the_moment_read() -> None:
    column = pl.Series("t", [START + timedelta(microseconds=1), datetime(1931, 5, 1, tzinfo=UTC)])
    at = moments(column, pl.Series(["a", "b"]))
    assert [at.read(at.write(value)) for value in at.value] == at.value.tolist()
    numbers = moments(pl.Series("n", [0.1, -1e300]), pl.Series(["a", "b"]))
    assert [numbers.read(numbers.write(value)) for value in numbers.value.tolist()] == numbers.value.tolist()

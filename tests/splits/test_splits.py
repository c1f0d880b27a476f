"""Every strategy: sizes, rules, groups, determinism, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import difficulty, examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash, uniform
from gradatim.schemas.tables import SPLITS, spec
from gradatim.tasks.core.registry import configure, get

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_strategies.json"


SETTINGS: dict[str, dict[str, Any]] = {
    "random": {},
    "stratified": {"column": "domain"},
    "group": {"column": "template"},
    "leave_one_domain_out": {},
    "threshold": {"column": "n_steps", "train": "3..8", "gap": "== 9"},
    "length": {"train": "<= 30"},
}


@pytest.mark.parametrize("method", SETTINGS)
def test_each_id_comes_exactly_once_in_each_strategy_seed_and_fold_and_the_table_fits_its_contract(method: str) -> None:
    frame = examples()
    split = make(method, {"examples": frame, "difficulty": difficulty(frame)}, **SETTINGS[method], seeds=2)
    contract = spec("splits").schema
    assert split.table.columns == contract.names
    assert split.table.to_arrow().cast(contract).schema.names == contract.names
    assert split.table.equals(split.table.sort("strategy", "seed", "fold", "example_id"))
    for _, part in split.table.group_by("strategy", "seed", "fold"):
        assert part["example_id"].to_list() == frame["example_id"].to_list()
    assert set(split.table["split"]) <= set(SPLITS)
    assert split.table["seed"].unique().sort().to_list() == [0, 1]


@pytest.mark.parametrize("method", SETTINGS)
def test_the_content_is_the_golden_one_and_neither_row_order_nor_other_columns_change_it(method: str) -> None:
    frame = examples()
    tables = {"examples": frame, "difficulty": difficulty(frame)}
    found = content_hash(make(method, tables, **SETTINGS[method]).table.to_arrow())
    mixed = {
        "examples": frame.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1)),
        "difficulty": difficulty(frame).sample(fraction=1, shuffle=True, seed=4),
    }
    assert content_hash(make(method, mixed, **SETTINGS[method]).table.to_arrow()) == found
    golden = json.loads(GOLDEN.read_text())
    revision = get("split", method).revision
    assert golden[method] == {"revision": revision, "content": found}, "raise the revision, then the golden hash"


def test_the_scan_length_split_has_the_published_sizes(data: Path) -> None:
    scan = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").with_columns(
        pl.col("command").alias("example_id")
    )
    split = make("length", scan, column="n_actions", train="<= 22")
    counts = split.counts
    assert counts["train"] + counts["validation"] + counts["test"] == 16_990
    assert counts["test_ood"] == 3_920
    published = scan.filter(pl.col("split_length") == "test")["example_id"].sort()
    assert split.ids("test_ood").equals(published)


def test_the_cut_is_the_uniform_number_of_the_id_below_the_shares() -> None:
    frame = examples()
    draw = uniform(frame["example_id"], 5, "split random")
    expected = np.where(draw < 0.15, "test", np.where(draw < 0.15 + 0.2, "validation", "train"))
    split = make("random", frame, seed=5, test=0.15, validation=0.2)
    assert split.main["split"].to_list() == expected.tolist()


@given(st.integers(30, 300), st.integers(0, 2**31), st.sampled_from(["random", "length", "group"]))
@settings(max_examples=25, deadline=None)
def test_adding_rows_moves_nobody(n: int, seed: int, method: str) -> None:
    frame = examples(1200)
    few = frame.sample(fraction=n / 1200, seed=seed)
    setting = {**SETTINGS[method], "controls": False, "test": 0.3}
    try:
        before = make(method, few, seed=seed, **setting)
    except DataRefused:  # so few rows that a split is empty
        return
    after = make(method, frame, seed=seed, **setting)
    moved = before.main.join(after.main, on="example_id").filter(pl.col("split") != pl.col("split_right"))
    # only a group that is larger than the split that it was drawn for may move, and says so
    said = moved["reason"].str.contains("larger than the split") | moved["reason_right"].str.contains("larger than")
    assert said.all()
    if method != "group":
        assert moved.is_empty()


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from("abcde") | st.none(), st.sampled_from("vwxyz") | st.none()),
        min_size=40, max_size=200,
    ),
    seed=st.integers(0, 1000),
    keep=st.sampled_from([[], ["g"], ["g", "h"]]),
    share=st.sampled_from([0.0, 0.3]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_threshold_split_keeps_its_rule_its_groups_and_every_row(
    rows: list[tuple[int, str | None, str | None]], seed: int, keep: list[str], share: float
) -> None:
    frame = pl.DataFrame(rows, schema={"n": pl.Int64, "g": pl.String, "h": pl.String}, orient="row")
    frame = frame.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]))
    try:
        split = make("threshold", frame, seed=seed, column="n", train="<= 6", keep_together=keep, validation_ood=share)
    except DataRefused:  # a split would be empty; other tests read the words
        return
    for strategy in ("threshold", "threshold.random"):
        table = split.table.filter(pl.col("strategy") == strategy).join(frame, on="example_id")
        assert len(table) == len(frame)
        used = table.filter(pl.col("split") != "excluded")
        for column in keep:
            places = used.drop_nulls(column).group_by(column).agg(pl.col("split").n_unique())["split"]
            assert (places == 1).all()
    main = split.main.join(frame, on="example_id")
    assert (main.filter(pl.col("split").is_in(["train", "validation", "test"]))["n"] <= 6).all()
    assert (main.filter(pl.col("split").is_in(["test_ood", "validation_ood"]))["n"] > 6).all()
    assert (main.filter(pl.col("split") == "excluded")["n"] <= 6).all()  # only a group on both sides excludes here


def test_a_group_on_both_sides_leaves_its_in_distribution_rows_excluded_with_the_reason() -> None:
    frame = examples().with_columns(
        pl.when(pl.col("example_id").is_in(["q00000", "q00011"])).then(pl.lit("both")).alias("group")
    )
    split = make("threshold", frame, column="n_steps", train="<= 11", keep_together=["group"])
    values = frame.filter(pl.col("group") == "both")["n_steps"].to_list()
    assert values == [1, 6]
    frame = frame.with_columns(
        pl.when(pl.col("example_id") == "q00011").then(12).otherwise(pl.col("n_steps")).alias("n_steps")
    )
    split = make("threshold", frame, column="n_steps", train="<= 11")  # 'group' is kept together without being asked
    assert split.why("q00000") == "excluded: n_steps 1 <= 11; its group both also has out-of-distribution rows"
    assert split.why("q00011") == "test_ood: n_steps 12 > 11"
    assert split.main.filter(pl.col("example_id") == "q00000")["component"].to_list() == ["both"]
    apart = make("threshold", frame, column="n_steps", train="<= 11", keep_together=[])
    assert not apart.why("q00000").startswith("excluded")


def test_a_group_named_like_a_lone_row_does_not_tie_it() -> None:
    frame = examples(400).with_columns(
        pl.when(pl.col("example_id").is_in(["q00001", "q00003", "q00005"])).then(pl.lit("q00000")).alias("group")
    )
    places = set()
    for seed in range(40):
        main = make("random", frame, seed=seed, test=0.4).main
        where = dict(main.select("example_id", "split").iter_rows())
        assert where["q00001"] == where["q00003"] == where["q00005"]
        places.add(where["q00000"] == where["q00001"])
    assert places == {True, False}


def test_near_duplicates_and_chains_of_groups_stay_together() -> None:
    frame = (
        examples(400).select("example_id", "input").with_columns(a=pl.lit(None, pl.String), b=pl.lit(None, pl.String))
    )
    chain = {"q00001": ("x", None), "q00002": ("x", "y"), "q00003": (None, "y")}
    frame = frame.with_columns(
        *[
            pl.col("example_id").replace_strict({k: v[i] for k, v in chain.items()}, default=None).alias(name)
            for i, name in enumerate("ab")
        ]
    )
    pairs = pl.DataFrame({"left_id": ["q00003", "q00009"], "right_id": ["q00300", "gone"]})
    pairs = pairs.with_columns(kind=pl.lit("near_duplicate"))
    other = pairs.with_columns(left_id=pl.lit("q00200"), kind=pl.lit("contamination"))
    for seed in range(20):
        tables = {"examples": frame, "pairs": pl.concat([pairs, other])}
        split = make("random", tables, seed=seed, test=0.4, keep_together=["a", "b"])
        rows = split.main.filter(pl.col("example_id").is_in(["q00001", "q00002", "q00003", "q00300"]))
        assert rows["split"].n_unique() == 1
        assert rows["component"].unique().to_list() == ["q00001"]
    for lone in ("q00009", "q00200"):
        assert split.main.filter(pl.col("example_id") == lone)["component"].to_list() == [None]


def test_leave_one_domain_out_makes_a_fold_for_each_domain_and_one_cut_for_all() -> None:
    split = make("leave_one_domain_out", examples())
    held = split.main.filter(pl.col("split") == "test_ood")
    assert held.select("fold", "held_out").unique().sort("fold")["held_out"].to_list() == [
        "domain=astronomy", "domain=biology", "domain=chemistry", "domain=dance",
    ]  # fmt: skip
    joined = held.join(examples(), on="example_id")
    assert (joined["held_out"] == "domain=" + joined["domain"]).all()
    assert held["example_id"].n_unique() == len(held) == 1200
    inside = split.main.filter(pl.col("split") != "test_ood")
    assert (inside.group_by("example_id").agg(pl.col("split").n_unique())["split"] == 1).all()
    with pytest.raises(UsageError, match="4 seeds and folds"):
        _ = split.counts
    assert split.select(fold=2).counts["test_ood"] == 300
    assert split.why("q00000").splitlines()[0] == "seed 0 fold 0  test_ood: domain astronomy is held out"


def test_stratified_shares_are_exact_to_a_row_in_each_stratum_and_in_all() -> None:
    frame = examples(997).with_columns(pl.Series("kind", ["rare"] * 3 + ["odd"] * 94 + ["plain"] * 900))
    counts = make("stratified", frame, column="kind", test=0.2, validation=0.1).main.join(frame, on="example_id")
    assert counts["split"].value_counts().sort("split").rows() == [("test", 199), ("train", 698), ("validation", 100)]
    for (_,), part in counts.group_by("kind"):
        assert abs((part["split"] == "test").sum() - 0.2 * len(part)) <= 1


def test_strata_of_difficulty_bins_and_strata_of_one_class() -> None:
    frame = examples()
    tables = {"examples": frame, "difficulty": difficulty(frame)}
    main = make("stratified", tables).main.join(difficulty(frame), on="example_id")
    for (_,), part in main.group_by("bin"):
        assert abs((part["split"] == "test").sum() - 0.1 * len(part)) <= 1
    one = make("stratified", frame.with_columns(kind=pl.lit("same")), column="kind")
    assert one.counts == {"train": 960, "validation": 120, "test": 120}
    assert one.warnings == ("there is one stratum (kind same): this is a random split",)
    with pytest.raises(UsageError, match="nothing to stratify by"):
        make("stratified", frame)


def test_stratified_groups_stay_whole_and_a_group_larger_than_its_quota_is_trained_on() -> None:
    frame = examples().with_columns(group=pl.when(pl.int_range(1200) < 500).then(pl.lit("huge")).otherwise("template"))
    split = make("stratified", frame, column="domain")
    used = split.main.join(frame, on="example_id")
    assert (used.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()
    assert used.filter(pl.col("group") == "huge")["split"].unique().to_list() == ["train"]
    assert abs(split.counts["test"] - 120) <= 15


def test_a_group_larger_than_the_split_it_was_drawn_for_stays_in_train_and_says_so() -> None:
    frame = examples().with_columns(
        template=pl.when(pl.int_range(1200) < 500).then(pl.lit("huge")).otherwise(pl.col("template"))
    )
    said = 0
    for seed in range(30):
        main = make("group", frame, seed=seed, column="template", controls=False).main
        huge = main.filter(pl.col("component") == "huge")
        assert huge["split"].unique().to_list() == ["train"]
        drawn = uniform(["\x1fhuge"], seed, "split group")[0]
        words = "template huge drawn whole"
        if drawn < 0.2:
            words += "; its group of 500 rows is larger than the split it was drawn for"
            said += 1
        assert huge["reason"].unique().to_list() == [words]
    assert said > 0


@pytest.mark.parametrize(
    ("condition", "inside"),
    [
        ("<= 6", lambda v: v <= 6), ("< 6", lambda v: v < 6), (">= 3", lambda v: v >= 3), ("> 3", lambda v: v > 3),
        ("== 5", lambda v: v == 5), ("=5", lambda v: v == 5), ("!= 5", lambda v: v != 5),
        ("3..6", lambda v: (v >= 3) & (v <= 6)), ("<=6.5", lambda v: v <= 6),
    ],
)  # fmt: skip
def test_each_operator_parts_the_rows_as_it_says(condition: str, inside: Any) -> None:
    frame = examples()
    for kind in (pl.Int64, pl.Int16, pl.Float64, pl.String, pl.Decimal(10, 2)):
        column = frame.with_columns(pl.col("n_steps").cast(kind))
        split = make("threshold", column, column="n_steps", train=condition, controls=False)
        expected = frame.filter(inside(pl.col("n_steps")).not_())["example_id"]
        assert split.ids("test_ood").equals(expected)


def test_dates_part_rows_by_instant_in_utc() -> None:
    from datetime import UTC, datetime, timedelta

    start = datetime(2024, 1, 1)
    moments = [start + timedelta(hours=12 * i) for i in range(400)]
    frame = examples(400).with_columns(pl.Series("naive", moments))
    frame = frame.with_columns(
        pl.col("naive").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo").alias("zoned"),
        pl.col("naive").dt.strftime("%Y-%m-%dT%H:%M:%S").alias("text"),
    )
    cut = datetime(2024, 5, 1, tzinfo=UTC)
    expected = [f"q{i:05d}" for i, moment in enumerate(moments) if moment.replace(tzinfo=UTC) >= cut]
    for name in ("naive", "zoned", "text"):
        split = make("threshold", frame, column=name, train="< 2024-05-01", controls=False)
        assert split.ids("test_ood").to_list() == expected
        assert split.certify(frame.drop("input")).holds
    days = frame.with_columns(pl.col("naive").cast(pl.Date))
    split = make("threshold", days, column="naive", train="< 2024-05-01T00:00:00+00:00", controls=False)
    assert split.ids("test_ood").to_list() == expected


def test_the_gap_and_what_is_null_or_nan_are_excluded_with_the_reason() -> None:
    frame = examples().with_columns(
        pl.when(pl.col("example_id") == "q00000").then(None)
        .when(pl.col("example_id") == "q00001").then(float("nan")).otherwise(pl.col("n_steps")).alias("n_steps")
    )  # fmt: skip
    split = make("threshold", frame, column="n_steps", train="<= 6", gap="7..8")
    assert split.why("q00000") == "excluded: n_steps is null"
    assert split.why("q00001") == "excluded: n_steps is null"
    seven = frame.filter(pl.col("n_steps") == 7)["example_id"][0]
    assert split.why(seven) == "excluded: n_steps 7.0 is in the gap 7..8"
    out = split.main.filter(pl.col("split") == "test_ood").join(frame, on="example_id")["n_steps"]
    assert out.min() == 9
    assert set(split.main.filter(pl.col("held_out").is_not_null())["split"]) == {"test_ood"}


@pytest.mark.parametrize("text", ["=< 6", "six", "<= ", "6", "<= six", "8..3", "3..2024-01-01", "<= inf", ""])
def test_a_condition_that_cannot_be_read_is_answered_with_what_is_valid(text: str) -> None:
    with pytest.raises(UsageError) as error:
        configure(get("split", "threshold"), {"column": "n", "train": text})
    assert "train" in str(error.value)
    assert "'<= 6'" in str(error.value) or "range" in str(error.value) or "one end" in str(error.value)


def test_a_column_that_the_condition_cannot_be_compared_with_is_refused_with_the_row() -> None:
    frame = examples()
    text = frame.with_columns(
        pl.when(pl.col("example_id") == "q00007").then(pl.lit("many")).otherwise("n_steps").alias("n")
    )
    with pytest.raises(DataRefused, match="q00007"):
        make("threshold", frame.with_columns(n=text["n"].cast(pl.String)), column="n", train="<= 6")
    with pytest.raises(DataRefused, match="Boolean"):
        make("threshold", frame.with_columns(n=pl.lit(True)), column="n", train="<= 6")
    with pytest.raises(DataRefused, match="compares with times"):
        make("threshold", frame, column="n_steps", train="<= 2024-01-01")


def test_an_unknown_column_is_answered_with_the_nearest_one() -> None:
    for method, setting in (
        ("threshold", {"column": "n_step", "train": "<= 6"}),
        ("random", {"keep_together": ["templat"]}),
        ("group", {"column": "templat"}),
        ("stratified", {"column": "domains"}),
        ("leave_one_domain_out", {"column": "domian"}),
    ):
        with pytest.raises(UsageError, match="did you mean"):
            make(method, examples(), **setting)


def test_a_nested_column_is_refused() -> None:
    frame = examples().with_columns(nested=pl.concat_list("n_steps", "length_input"))
    for method, setting in (("group", {}), ("stratified", {}), ("threshold", {"train": "<= 6"})):
        with pytest.raises(UsageError, match=r"List\(Int64\)"):
            make(method, frame, column="nested", **setting)


@pytest.mark.parametrize(
    ("method", "setting", "words"),
    [
        ("length", {"train": "<= 400"}, "test_ood would be empty"),
        ("length", {"train": "<= 0"}, "train and test would be empty"),
        ("random", {"test": 0.0001}, "raise test above"),
        ("length", {"train": "<= 30", "validation_ood": 0.9999}, "lower validation_ood"),
        ("group", {"column": "domain"}, "the smallest group holds 300 of 1,200 rows"),
        ("length", {"train": "<= 30", "keep_together": "domain"}, "its|their group lies on both sides"),
    ],
)
def test_a_split_that_would_be_empty_is_refused_with_sizes_and_remedy(
    method: str, setting: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataRefused, match=words) as error:
        make(method, examples(), **setting)
    assert "would be empty" in error.value.what
    assert "train " in error.value.what
    assert error.value.remedy


def test_the_remedy_for_an_empty_test_is_the_smallest_share_that_works() -> None:
    with pytest.raises(DataRefused) as error:
        make("random", examples(30), seed=1, test=0.001)
    share = float(error.value.remedy.split("raise test above ")[1].split(" ")[0])
    assert make("random", examples(30), seed=1, test=share + 0.001).counts["test"] == 1


def test_domains_with_one_row_or_none_are_right_or_refused() -> None:
    frame = examples().with_columns(
        pl.when(pl.col("example_id") == "q00000").then(pl.lit("alone"))
        .when(pl.col("example_id") == "q00001").then(None).otherwise("domain").alias("domain")
    )  # fmt: skip
    split = make("leave_one_domain_out", frame)
    assert split.select(fold=0).counts["test_ood"] == 1
    assert "domain alone has 1 rows: too few to see a gap" in split.warnings
    assert split.select(fold=1).why("q00001") == "excluded: domain is null"
    fewer = make("leave_one_domain_out", frame, min_rows=2)
    assert fewer.main["fold"].unique().sort().to_list() == [1, 2, 3, 4]
    assert "excluded" not in fewer.select(fold=1).why("q00000")
    with pytest.raises(DataRefused, match="1 domains"):
        make("leave_one_domain_out", frame.with_columns(domain=pl.lit("one")))
    with pytest.raises(UsageError, match="did you mean 'biology'"):
        make("leave_one_domain_out", examples(), domains=["biologie"])
    with pytest.raises(DataRefused, match="no domain has 5000 rows"):
        make("leave_one_domain_out", examples(), min_rows=5000)


def test_rows_without_an_entity_are_excluded_and_one_entity_is_refused() -> None:
    frame = examples().with_columns(pl.when(pl.col("example_id") != "q00004").then("template").alias("template"))
    split = make("group", frame, column="template")
    assert split.why("q00004") == "excluded: template is null"
    with pytest.raises(DataRefused, match="1 entities"):
        make("group", frame.with_columns(template=pl.lit("x")), column="template")


def test_double_and_null_ids_and_no_rows_are_refused() -> None:
    frame = examples()
    with pytest.raises(DataRefused, match="'q00003' comes more than once"):
        make("random", pl.concat([frame, frame[3:4]]))
    with pytest.raises(DataRefused, match="1 rows have no id"):
        make(
            "random",
            frame.with_columns(pl.when(pl.col("example_id") != "q00003").then("example_id").alias("example_id")),
        )
    with pytest.raises(DataRefused, match="no rows"):
        make("random", frame.clear())


def test_shares_that_leave_nothing_for_train_are_refused() -> None:
    with pytest.raises(UsageError, match="leave nothing for train"):
        make("random", examples(), test=0.6, validation=0.4)


def test_the_result_explains_itself() -> None:
    split = make("length", examples(), column="n_steps", train="<= 6").named("steps")
    assert split.table["strategy"].unique().sort().to_list() == ["steps", "steps.random"]
    assert split.counts.keys() == {"train", "validation", "test", "test_ood"}
    assert split.train.equals(split.ids("train"))
    assert len(split.ids("test", control="random")) == split.counts["test"]
    assert "test_ood" in repr(split)
    assert "Lake & Baroni" in split.cite()
    summary = split.summary()
    assert summary.step == "split steps"
    assert summary.headline.startswith(f"train {split.counts['train']}")
    assert split.plot().to_dict()["mark"]
    with pytest.raises(UsageError, match="did you mean 'test_ood'"):
        split.ids("test_odd")
    with pytest.raises(UsageError, match="no row 'nobody'"):
        split.why("nobody")
    with pytest.raises(UsageError, match="no seed 9"):
        split.select(seed=9)


def test_ids_that_are_numbers_count_as_their_text() -> None:
    frame = examples(200).with_columns(example_id=pl.int_range(200))
    found = make("random", frame)
    assert found.table.equals(make("random", frame.cast({"example_id": pl.String})).table)
    assert found.why("17").startswith(found.main.filter(pl.col("example_id") == "17")["split"][0])


def test_a_single_row_is_refused_without_asking_for_the_impossible() -> None:
    with pytest.raises(DataRefused, match="test would be empty") as error:
        make("random", examples(1))
    assert error.value.remedy == "there are too few rows in distribution (1): add some, or take another seed"

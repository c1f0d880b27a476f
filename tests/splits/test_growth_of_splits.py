"""New rows move nobody: released components keep their names, and composed and balanced splits keep their promises."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import examples, make

from gradatim.schemas.errors import DataRefused


def moved(before: Any, after: Any) -> pl.DataFrame:
    both = before.main.join(after.main, on=["seed", "fold", "example_id"], suffix="_after")
    return both.filter(pl.col("split") != pl.col("split_after"))


def linked(first: str, second: str) -> pl.DataFrame:
    ends = pl.DataFrame({"left_id": [first], "right_id": [second]})
    return ends.with_columns(kind=pl.lit("near_duplicate"), similarity=0.9, threshold=0.8)


@given(st.integers(0, 50), st.integers(0, 399), st.sampled_from(["g", "h", "pair"]), st.sampled_from([1, 4]))
@settings(max_examples=30, deadline=None)
def test_a_new_row_with_the_smallest_id_joins_a_component_and_takes_nobody_with_it(
    seed: int, place: int, by: str, folds: int
) -> None:
    """Of groups that several columns tie, and of near-duplicates, the smallest id is the name until a release."""
    frame = examples(400).select("example_id", "n_steps").with_columns(
        g=pl.int_range(400) // 3, h=pl.when(pl.int_range(400) % 5 == 0).then(pl.int_range(400) // 40)
    )  # fmt: skip
    setting: dict[str, Any] = {"column": "n_steps", "train": "<= 9", "folds": folds, "test": 0.2, "controls": False}
    setting["keep_together"] = [] if by == "pair" else ["g", "h"]
    before = make("threshold", {"examples": frame, "pairs": linked("q00001", "q00002")}, seed=seed, **setting)
    other = frame[place]
    new = other.with_columns(example_id=pl.lit("a"), **{c: pl.lit(None, pl.Int64) for c in "gh" if c != by})
    more = {
        "examples": pl.concat([frame, new]),
        "pairs": pl.concat([linked("q00001", "q00002"), *([linked("a", other["example_id"][0])] * (by == "pair"))]),
        "frozen": before.released,
    }
    apart = moved(before, make("threshold", more, seed=seed, **setting))
    assert apart.filter(~pl.col("reason_after").str.contains("group|near-duplicate|larger")).is_empty()
    assert not apart["split"].is_in(["test", "test_ood"]).any()


@pytest.mark.parametrize("word", ["any", "all"])
@pytest.mark.parametrize("gap", [None, "10h"])
def test_a_time_rule_among_others_keeps_its_boundary_and_its_promise(word: str, gap: str | None) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    frame = examples(600).with_columns(at=pl.Series([start + timedelta(hours=i) for i in range(600)]))
    rules = [
        {"time": {"column": "at", "share": 0.6, "gap": gap}},
        {"holdout_values": {"column": "domain", "values": ["dance"]}},
    ]
    before = make("composed", frame[:500], **{word: rules})
    certificate = before.certify(frame[:500])
    assert certificate.holds
    assert "rules" in " ".join(certificate.table["check"])
    late = before.main.join(frame, on="example_id").filter((pl.col("split") == "train") & (pl.col("n_steps") > 0))
    wrong = before.table.with_columns(
        pl.when(pl.col("example_id") == before.ids("test_ood")[0])
        .then(pl.lit("train"))
        .otherwise("split")
        .alias("split")
    )
    assert len(late)
    assert not replace(before, table=wrong).certify(frame[:500]).holds
    after = make("composed", {"examples": frame, "frozen": before.released}, **{word: rules})
    assert moved(before, after).is_empty()
    assert after.certify(frame).holds


def test_balance_leaves_each_value_its_training_rows_or_is_refused() -> None:
    frame = examples(200).with_columns(
        rare=pl.when(pl.int_range(200) < 3).then(pl.lit("r")).otherwise(pl.format("c{}", pl.int_range(200) % 4)),
        other=pl.lit("o") + (pl.int_range(200) % 3).cast(pl.String),
    )  # fmt: skip
    for seed in range(8):
        split = make(
            "holdout_combinations", frame, seed=seed, columns=["rare", "other"], cells=[{"rare": "c0", "other": "o1"}],
            folds=4, balance=True, keep_values=1,
        )  # fmt: skip
        sizes = split.sizes.filter(pl.col("strategy") == split.strategy)
        assert sizes["train"].n_unique() == 1
        assert split.certify(frame).holds
    big = frame.with_columns(group=pl.when(pl.int_range(200) < 150).then(pl.lit("big")).otherwise("example_id"))
    two = big.with_columns(site=pl.when(pl.col("group") == "big").then(pl.lit("a")).otherwise(pl.lit("b")))
    two = pl.concat(
        [
            two,
            two[-40:].with_columns(
                example_id="z" + pl.col("example_id"), group="z" + pl.col("group"), site=pl.lit("c")
            ),
        ]
    )
    try:
        found = make("site", two, balance=True, test=0.2, validation=0.0)
    except DataRefused as error:
        assert "balance" in str(error)  # noqa: PT017
    else:
        assert (found.sizes.filter(strategy="site")["train"] > 0).all()


def test_no_group_stands_in_both_validation_ood_and_test_ood_where_two_rules_put_its_rows() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    frame = examples(400).with_columns(
        at=pl.Series([start + timedelta(hours=i * 7919 % 400) for i in range(400)]),
        g=pl.when(pl.int_range(400) % 10 < 2).then(pl.int_range(400) // 10),
    )
    rules = [
        {"time": {"column": "at", "share": 0.7}},
        {"holdout_values": {"column": "domain", "values": ["dance", "biology"]}},
    ]
    split = make("composed", frame, any=rules, validation_ood=0.4, keep_together=["g"])
    assert split.certify(frame).holds
    said = split.main.filter(pl.col("reason").str.ends_with(" also has rows in test_ood"))
    assert set(said["split"]) == {"excluded"}
    assert split.counts["validation_ood"] > 0


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("random", {}),
        ("stratified", {"column": "domain"}),
        ("group", {"column": "team"}),
        ("threshold", {"column": "n_steps", "train": "<= 8", "gap": "== 9"}),
        ("time", {"column": "length_input", "windows": 3, "share": 0.5}),
        ("holdout_values", {"column": "domain", "values": ["dance"]}),
        ("task_holdout", {"column": "template", "tasks": ["t1"], "category": "domain", "source": None}),
    ],
)  # fmt: skip
def test_a_row_that_is_put_anywhere_else_breaks_a_promise(method: str, setting: dict[str, Any]) -> None:
    frame = examples(300).with_columns(team=pl.when(pl.int_range(300) % 7 > 0).then(pl.int_range(300) // 4))
    split = make(method, frame, **setting, keep_together=[])
    fold = split.main.filter(pl.col("fold") == 0)
    for here in ("train", "test", "test_ood", "excluded"):
        for there in ("train", "test_ood"):
            ids = fold.filter(pl.col("split") == here)["example_id"]
            if here == there or not len(ids) or (here, there) == ("test", "train"):
                continue  # in distribution both: a share, not a rule
            moved_row = (pl.col("example_id") == ids[0]) & (pl.col("strategy") == method) & (pl.col("fold") == 0)
            place = pl.when(moved_row).then(pl.lit(there)).otherwise("split").alias("split")
            wrong = replace(split, table=split.table.with_columns(place))
            assert not wrong.certify(frame.drop("input")).holds, (here, there)

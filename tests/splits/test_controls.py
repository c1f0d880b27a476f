"""The random and the matched control, and what a release freezes."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits import controls
from gradatim.tasks.splits.result import Split


def make(method: str, tables: dict[str, pl.DataFrame], seed: int = 0, **setting: Any) -> Split:
    plugin = get("split", method)
    return plugin.run(tables, configure(plugin, setting), seed)


def rows(n: int, bins: int = 6) -> tuple[pl.DataFrame, pl.DataFrame]:
    number = np.arange(n)
    ids = pl.Series("example_id", [f"q{i:05d}" for i in number])
    frame = pl.DataFrame({"example_id": ids, "n": (number * 31) % 10, "length_input": (number * 7) % 23})
    bin_ = number * number // 7 % bins
    difficulty = pl.DataFrame({"example_id": ids, "method": "m", "value": bin_.astype(float), "bin": bin_})
    return frame, difficulty.with_columns(pl.col("bin").cast(pl.Int32))


def sizes(split: Split, name: str) -> dict[str, int]:
    part = split.table.filter(pl.col("strategy") == name)
    return dict(part.group_by("split").len().iter_rows())


@given(st.integers(40, 400), st.integers(0, 10_000), st.sampled_from(["<= 6", ">= 3", "2..8"]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_random_control_has_exactly_the_same_sizes_and_another_draw(
    n: int, seed: int, train: str, with_validation: bool
) -> None:
    frame, _ = rows(n)
    setting = {"column": "n", "train": train, "test": 0.3, "validation_ood": 0.3 if with_validation else 0.0}
    split = make("threshold", {"examples": frame}, seed, gap="== 1", **setting)
    assert sizes(split, "threshold") == sizes(split, "threshold.random")
    main, control = (split.table.filter(pl.col("strategy") == name) for name in ("threshold", "threshold.random"))
    assert main.filter(pl.col("split") == "excluded")["example_id"].equals(
        control.filter(pl.col("split") == "excluded")["example_id"]
    )
    assert control["held_out"].null_count() == n
    assert set(control["axis"]) == {"none"}


def test_the_random_control_does_not_follow_the_axis() -> None:
    frame, _ = rows(4000)
    split = make("threshold", {"examples": frame}, column="n", train="<= 6")
    out = split.table.filter((pl.col("strategy") == "threshold.random") & (pl.col("split") == "test_ood"))
    shares = out.join(frame, on="example_id")["n"].value_counts().sort("n")["count"] / len(out)
    assert len(shares) == 10
    assert (shares - 0.1).abs().max() < 0.03  # type: ignore[operator]


def test_the_random_control_keeps_groups_whole_and_its_sizes_within_half_a_group_at_each_end() -> None:
    frame, _ = rows(2000)
    frame = frame.with_columns(group=pl.Series([f"g{i % 250}" for i in range(2000)]))
    split = make("group", {"examples": frame}, column="group")
    control = split.table.filter(pl.col("strategy") == "group.random").join(frame, on="example_id")
    assert (control.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()
    asked, got = sizes(split, "group"), sizes(split, "group.random")
    assert all(abs(asked[name] - got[name]) <= 8 for name in asked)


@given(st.lists(st.integers(1, 40), min_size=4, max_size=9), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_random_control_of_few_groups_fills_every_split_that_the_strategy_fills(
    groups: list[int], seed: int
) -> None:
    group = [f"g{index}" for index, size in enumerate(groups) for _ in range(size)]
    level = [index % 4 for index, size in enumerate(groups) for _ in range(size)]
    frame = pl.DataFrame({"example_id": [f"q{i:03d}" for i in range(len(group))], "group": group, "n": level})
    try:
        split = make("threshold", {"examples": frame}, seed, column="n", train="<= 2", test=0.4, validation=0.2)
    except DataRefused:
        return  # the strategy itself has an empty split
    control = split.table.filter(pl.col("strategy") == "threshold.random").join(frame, on="example_id")
    assert set(control["split"]) == set(sizes(split, "threshold"))
    assert (control.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()


@given(st.integers(60, 600), st.integers(0, 1000), st.sampled_from(["difficulty", "length", "both"]))
@settings(max_examples=40, deadline=None)
def test_matched_test_and_test_ood_have_the_same_histogram_and_lose_no_pair(n: int, seed: int, on: str) -> None:
    frame, difficulty = rows(n)
    match = ["difficulty", "length"] if on == "both" else [on]
    split = make(
        "threshold", {"examples": frame, "difficulty": difficulty}, seed,
        column="n", train="<= 6", test=0.3, match=match,
    )  # fmt: skip
    matched = split.table.filter(pl.col("strategy") == "threshold.matched")
    cell = pl.col("reason").str.strip_prefix("matched on ")
    histograms = [
        dict(matched.filter(pl.col("split") == name).group_by(cell).len().iter_rows()) for name in ("test", "test_ood")
    ]
    assert histograms[0] == histograms[1]
    if matched.is_empty():
        assert n < 200
        return
    assert len(matched) == n
    for name in ("train", "validation"):
        assert matched.filter(pl.col("split") == name)["example_id"].equals(split.ids(name))
    if on == "difficulty":  # as many pairs as there can be
        main = split.main.join(difficulty, on="example_id")
        count = [
            dict(main.filter(pl.col("split") == s).group_by("bin").len().iter_rows()) for s in ("test", "test_ood")
        ]
        assert sum(histograms[0].values()) == sum(min(count[0].get(b, 0), count[1][b]) for b in count[1])


def test_where_no_difficulty_overlaps_there_is_no_matched_control_and_the_certificate_says_none() -> None:
    frame, _ = rows(1000)
    difficulty = frame.select("example_id", pl.lit("n").alias("method"), pl.col("n").cast(pl.Float64).alias("value"),
                              pl.col("n").cast(pl.Int32).alias("bin"))  # fmt: skip
    split = make("threshold", {"examples": frame, "difficulty": difficulty}, column="n", train="<= 6")
    assert split.table["strategy"].unique().sort().to_list() == ["threshold", "threshold.random"]
    certificate = split.certify(frame, difficulty)
    assert certificate.value("matched_rows") == 0
    assert certificate.value("matched_support") == 0
    warnings = certificate.summary().warnings
    assert warnings == ("only 0% of test_ood has an in-distribution row of the same difficulty",)


def test_rows_without_a_difficulty_are_not_matched() -> None:
    frame, difficulty = rows(600)
    difficulty = difficulty.filter(pl.col("example_id") >= "q00300")
    split = make("threshold", {"examples": frame, "difficulty": difficulty}, column="n", train="<= 6", test=0.3)
    early = split.table.filter((pl.col("strategy") == "threshold.matched") & (pl.col("example_id") < "q00300"))
    assert set(early["split"]) == {"train", "validation", "excluded"}
    assert set(early.filter(pl.col("split") == "excluded")["reason"]) == {"its difficulty is not known"}


def test_the_difficulty_to_match_on_is_chosen_by_name_and_said() -> None:
    frame, difficulty = rows(600)
    other = difficulty.with_columns(method=pl.lit("a"), bin=pl.lit(0, pl.Int32))
    both = {"examples": frame, "difficulty": pl.concat([difficulty, other])}
    split = make("threshold", both, column="n", train="<= 6")
    assert "uses the difficulty 'a'" in split.warnings[0]
    named = make("threshold", both, column="n", train="<= 6", difficulty="m")
    assert not named.warnings
    with pytest.raises(UsageError, match="no difficulty 'z'"):
        make("threshold", both, column="n", train="<= 6", difficulty="z")
    with pytest.raises(UsageError, match="length_input"):
        make("threshold", {**both, "examples": frame.drop("length_input")}, column="n", train="<= 6", match="length")


def test_controls_can_be_left_out() -> None:
    frame, difficulty = rows(600)
    tables = {"examples": frame, "difficulty": difficulty}
    split = make("threshold", tables, column="n", train="<= 6", controls=False)
    assert split.table["strategy"].unique().to_list() == ["threshold"]


# --- what a release freezes


def test_released_test_rows_stay_though_the_rule_would_move_them() -> None:
    frame, _ = rows(1000)
    before = make("threshold", {"examples": frame}, column="n", train="<= 6")
    tables = {"examples": frame, "frozen": before.table}
    after = make("threshold", tables, column="n", train="<= 4", test=0.3)
    outcome = after.frozen[0]
    for name in ("test", "test_ood"):
        assert set(before.ids(name)) <= set(after.ids(name))
    assert outcome.moved == outcome.left == outcome.excluded == 0
    assert outcome.frozen == before.counts["test"] + before.counts["test_ood"]
    assert outcome.joined == after.counts["test"] + after.counts["test_ood"] - outcome.frozen > 0
    held = before.main.filter(pl.col("split") == "test").join(frame.filter(pl.col("n") > 4), on="example_id")
    assert outcome.held == len(held) > 0
    assert after.why(held["example_id"][0]).startswith("test: kept from the released split; the rule now says: n ")
    certificate = after.certify(frame)
    assert certificate.holds
    assert certificate.value("released_rows_moved") == 0
    free = make("threshold", {"examples": frame}, column="n", train="<= 4", test=0.05)
    assert not set(before.ids("test")) <= set(free.ids("test"))


def test_rows_that_left_are_counted_and_new_rows_join() -> None:
    frame, _ = rows(1000)
    before = make("random", {"examples": frame[:800]})
    gone = before.ids("test")[:3]
    now = frame.filter(~pl.col("example_id").is_in(gone.implode()))
    after = make("random", {"examples": now, "frozen": before.table})
    outcome = after.frozen[0]
    assert (outcome.left, outcome.moved, outcome.held) == (3, 0, 0)
    assert outcome.joined == len(set(after.ids("test")) - set(before.ids("test"))) > 5


def test_a_twin_of_a_released_row_never_enters_train_even_when_that_row_is_gone() -> None:
    frame, _ = rows(1000)
    frame = frame.with_columns(group=pl.Series([f"g{i}" for i in range(1000)]))
    before = make("threshold", {"examples": frame}, column="n", train="<= 6")
    victim = before.ids("test_ood")[0]
    group = frame.filter(pl.col("example_id") == victim)["group"][0]
    twin = pl.DataFrame({"example_id": ["twin"], "n": [1], "length_input": [3], "group": [group]})
    for kept in (frame, frame.filter(pl.col("example_id") != victim)):
        tables = {"examples": pl.concat([kept, twin], how="vertical_relaxed"), "frozen": before.table}
        after = make("threshold", tables, column="n", train="<= 6")
        assert after.why("twin").startswith("excluded: ")
        free = make("threshold", {"examples": tables["examples"].filter(pl.col("example_id") != victim)},
                    column="n", train="<= 6", keep_together=[])  # fmt: skip
        assert not free.why("twin").startswith("excluded")
    assert after.why("twin") == f"excluded: its group {group} holds a released test row"
    assert after.frozen[0].excluded == 1


def test_a_near_duplicate_of_a_released_test_row_is_excluded_or_joins_it() -> None:
    frame, _ = rows(1000)
    before = make("random", {"examples": frame})
    old = before.ids("test")[0]
    twins = pl.DataFrame({"example_id": [f"x{i:02d}" for i in range(40)], "n": 1, "length_input": 3}).cast(frame.schema)
    pairs = pl.DataFrame({"left_id": twins["example_id"], "right_id": [old] * 40})
    after = make(
        "random", {"examples": pl.concat([frame, twins]), "frozen": before.table, "pairs": pairs}, keep_together=[]
    )
    where = set(after.main.filter(pl.col("example_id").str.starts_with("x"))["split"])
    assert where in ({"excluded"}, {"test"})
    assert after.main.filter(pl.col("example_id") == old)["split"].to_list() == ["test"]


def test_folds_of_released_domains_keep_their_number_when_a_domain_is_new() -> None:
    frame, _ = rows(900)
    frame = frame.with_columns(domain=pl.Series([("bee", "cow", "dog")[i % 3] for i in range(900)]))
    before = make("leave_one_domain_out", {"examples": frame})
    more = frame.with_columns(example_id="z" + pl.col("example_id"), domain=pl.lit("ant"))
    after = make("leave_one_domain_out", {"examples": pl.concat([frame, more]), "frozen": before.table})
    held = after.main.drop_nulls("held_out").select("fold", "held_out").unique().sort("fold")["held_out"]
    assert held.to_list() == ["domain=bee", "domain=cow", "domain=dog", "domain=ant"]
    assert all(outcome.moved == 0 for outcome in after.frozen)
    assert after.select(fold=0).frozen[0].frozen == before.select(fold=0).counts["test_ood"] + len(
        before.select(fold=0).ids("test")
    )


def test_a_release_that_mixes_strategies_or_lacks_a_column_is_refused() -> None:
    frame, _ = rows(300)
    released = make("random", {"examples": frame}).table
    mixed = pl.concat([released, released.with_columns(strategy=pl.lit("other"))])
    with pytest.raises(UsageError, match="mixes the strategies"):
        make("random", {"examples": frame, "frozen": mixed})
    with pytest.raises(UsageError, match="no column 'split'"):
        make("random", {"examples": frame, "frozen": released.drop("split")})


def test_both_difficulty_and_length_are_matched_where_half_of_test_ood_has_a_counterpart_else_difficulty_alone() -> (
    None
):
    number = np.arange(2_000)
    frame = pl.DataFrame(
        {
            "example_id": [f"q{i:04d}" for i in number],
            "domain": ["a" if i % 3 else "b" for i in number],
            "length_input": number * 7 % 50 + 1,
        }
    )
    known = pl.DataFrame(
        {
            "example_id": frame["example_id"],
            "method": "d",
            "value": number % 4 * 1.0,
            "bin": (number % 4).astype(np.int32),
        }
    )
    tables = {"examples": frame, "difficulty": known}
    both = make("leave_one_domain_out", tables, domains=["b"], test=0.4).table
    both = both.filter((pl.col("strategy") == "leave_one_domain_out.matched") & (pl.col("split") == "test_ood"))
    assert both["reason"].str.contains(r"matched on bin \d, length \d").all()
    apart = make("length", tables, train="<= 25", test=0.4).table
    apart = apart.filter((pl.col("strategy") == "length.matched") & (pl.col("split") == "test_ood"))
    assert apart["reason"].str.contains(r"matched on bin \d$").all()
    assert len(apart) > 0


@given(st.integers(1, 30), st.integers(0, 2**31), st.booleans())
def test_places_by_the_ends_of_splits_are_those_in_the_order_of_the_draws(n: int, seed: int, ties: bool) -> None:
    chance = np.random.default_rng(seed)
    size = chance.integers(0, 2, n)
    draw = chance.integers(0, n, n) / n if ties else chance.permutation(n) / n
    cuts = np.sort(chance.integers(0, size.sum() + 1, 4))
    asked = np.diff(np.concatenate([[0], cuts, [size.sum()]]))
    found = controls._exactly(draw, size, asked)
    if found is None:
        assert ties
        return
    order = np.argsort(draw, kind="stable")
    expected = np.repeat(np.arange(5), asked)
    assert found[order][size[order] > 0].tolist() == expected.tolist()
    assert controls._exactly(draw, size * 2 + 2, asked) is None

"""Non-leaking splits: nothing like is parted, sizes and strata hold, what was released stays, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import non_leaking
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import difficulty, examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash
from gradatim.tasks.core.leakage import row_leakage, vector_similarity
from gradatim.tasks.core.registry import get
from gradatim.tasks.splits.certificate import certify

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_non_leaking.json"
SMALL = {"clusters": 20, "test": 0.2}


def vectors(frame: pl.DataFrame, clusters: int = 20, width: int = 8, spread: float = 0.2) -> pl.DataFrame:
    number = frame["example_id"].str.slice(1).cast(pl.Int64).to_numpy()
    centre = np.random.default_rng(0).normal(size=(clusters, width))
    noise = np.random.default_rng(1).normal(size=(5_000, width))
    made = (centre[number // 6 % clusters] + spread * noise[number]).astype(np.float32)
    column = pl.Series("embedding", made, dtype=pl.Array(pl.Float32, width))
    return pl.DataFrame([frame["example_id"], column])


def chains(frame: pl.DataFrame, length: int = 3) -> pl.DataFrame:
    ids = frame["example_id"]
    at = np.flatnonzero(np.arange(len(ids) - 1) % (2 * length) < length - 1)
    near = pl.DataFrame({"left_id": ids.gather(at), "right_id": ids.gather(at + 1)})
    return near.with_columns(kind=pl.lit("near_duplicate"), similarity=pl.lit(0.9), threshold=pl.lit(0.8))


def given_tables(n: int = 1200) -> dict[str, pl.DataFrame]:
    frame = examples(n).with_columns(source=pl.format("s{}", pl.int_range(n) // 6))
    return {"examples": frame, "features_words": vectors(frame), "pairs": chains(frame)}


def tables_for(name: str, n: int = 1200) -> dict[str, pl.DataFrame]:
    tables = given_tables(n)
    if "features" not in SETTINGS[name]:  # the only features at hand would be taken
        del tables["features_words"]
    return tables


SETTINGS: dict[str, dict[str, Any]] = {
    "components": {"validation_ood": 0.25},
    "components.strata": {"stratify": "domain", "keep_together": "source"},
    "components.features": {"features": "words", "keep_together": "source"},
    "kmeans": {"by": "kmeans", "features": "words", "margin": 0.97, **SMALL},
    "kmeans.strata": {"by": "kmeans", "features": "words", "stratify": "n_steps", "delta": 0.5, "seeds": 2},
    "single": {"by": "single", "features": "words", "threshold": 0.97, "fraction": 0.3, "test": 0.2},
    "average": {"by": "average", "features": "words", "threshold": 0.8, "folds": 3},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_content_is_the_golden_one_and_neither_row_order_nor_other_columns_change_it(name: str) -> None:
    tables = tables_for(name)
    found = content_hash(make("non_leaking", tables, **SETTINGS[name]).table.to_arrow())
    mixed = {table: rows.sample(fraction=1, shuffle=True, seed=3) for table, rows in tables.items()}
    mixed["examples"] = mixed["examples"].with_columns(more=pl.lit(1))
    assert content_hash(make("non_leaking", mixed, **SETTINGS[name]).table.to_arrow()) == found
    golden = json.loads(GOLDEN.read_text())
    revision = get("split", "non_leaking").revision
    assert golden[name] == {"revision": revision, "content": found}, "raise the revision, then the golden hash"


@pytest.mark.parametrize("name", SETTINGS)
def test_near_duplicates_are_never_parted_the_certificate_holds_and_a_cluster_moved_in_part_breaks_it(
    name: str,
) -> None:
    tables = tables_for(name)
    split = make("non_leaking", tables, controls=False, **SETTINGS[name])
    for (_,), part in split.main.group_by("seed"):
        first = part.filter(pl.col("fold") == 0)
        assert len(first) == 1200
        ties = tables["pairs"].select("left_id", "right_id").rows()
        assert non_leaking.parted(first.rows(named=True), ties) == 0
    frame = tables["examples"].drop("input")  # the shift of texts takes long and says nothing here
    certificate = certify(split, frame)
    assert certificate.holds, certificate.failures
    out = split.main.filter(pl.col("split") == "test_ood").select("example_id", "reason")
    crowd = out.filter(pl.col("reason").is_duplicated())["example_id"][0]
    moved = split.table.with_columns(
        pl.when(pl.col("example_id") == crowd).then(pl.lit("train")).otherwise("split").alias("split")
    )
    broken = certify(type(split)(**{**vars(split), "table": moved}), frame)
    assert "constraint:clusters on two sides of the cut" in broken.failures["check"].to_list()


@pytest.mark.parametrize("name", ["components", "components.strata", "kmeans.strata", "single"])
def test_sizes_and_strata_are_within_their_tolerances(name: str) -> None:
    frame = examples()
    setting = SETTINGS[name]
    split = make("non_leaking", tables_for(name), controls=False, **{**setting, "seeds": 1})
    config = split.config
    rows = split.main.join(frame, on="example_id", how="left").with_columns(
        side=pl.when(pl.col("split").str.ends_with("ood")).then("split").otherwise(pl.lit("in"))
    )
    shares = dict(zip(("in", "test_ood", "validation_ood"), config.shares, strict=False))
    assert set(rows["side"]) == set(shares)
    for side, share in shares.items():
        here = rows.filter(pl.col("side") == side)
        assert len(here) >= math.floor(share * 0.95 * 1200)
        if config.stratify:
            for (value,), stratum in rows.group_by(config.stratify):
                found = here.filter(pl.col(config.stratify) == value)
                assert len(found) >= math.floor(share * (1 - config.delta) * len(stratum) + 1e-9)


def test_clusters_leak_less_than_the_random_control_of_the_same_sizes() -> None:
    tables = given_tables()
    split = make("non_leaking", tables, by="kmeans", features="words", **SMALL)
    unit = tables["features_words"]["embedding"].to_numpy()
    ratios = []
    for strategy in ("non_leaking", "non_leaking.random"):
        rows = split.table.filter(pl.col("strategy") == strategy)
        place = (rows["split"] == "test_ood").to_numpy().astype(int)
        ratios.append(row_leakage(place, rows["example_id"], vector_similarity(unit), pairs=10**6))
    assert all(one.exact for one in ratios)
    assert ratios[0].ratio < 0.75 * ratios[1].ratio  # type: ignore[operator]


def test_no_row_in_distribution_is_within_the_margin_of_a_row_held_out() -> None:
    tables = given_tables()
    split = make("non_leaking", tables, by="kmeans", features="words", margin=0.8, controls=False, **SMALL)
    made = tables["features_words"]["embedding"].to_numpy().astype(np.float64)
    unit = made / np.linalg.norm(made, axis=1)[:, None]
    side = split.main["split"].to_numpy()
    out = side == "test_ood"
    likest = (unit @ unit[out].T).max(axis=1)
    assert (likest[np.isin(side, ["train", "validation", "test"])] < 0.8).all()
    assert (likest[side == "excluded"] >= 0.8 - 1e-6).all()
    assert (side == "excluded").any()
    one = split.main.filter(pl.col("split") == "excluded")["example_id"][0]
    assert "; as like as 0.8" in split.why(one)
    assert split.why(one).endswith(", which is held out")


@given(
    sizes=st.lists(st.integers(1, 12), min_size=12, max_size=40),
    seed=st.integers(0, 50),
    share=st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=25, deadline=None)
def test_groups_are_whole_every_row_comes_once_and_sizes_hold_or_it_is_refused(
    sizes: list[int], seed: int, share: float
) -> None:
    groups = [f"g{number}" for number, size in enumerate(sizes) for _ in range(size)]
    frame = pl.DataFrame({"example_id": [f"r{i:03d}" for i in range(len(groups))], "group": groups})
    setting = {"validation_ood": share, "controls": False, "test": 0.3, "epsilon": 0.1, "oversize": "overflow"}
    try:
        split = make("non_leaking", frame, seed=seed, **setting)
    except DataRefused:  # too few rows for a split, or no group was drawn for test; other tests read the words
        return
    assert split.main["example_id"].to_list() == frame["example_id"].to_list()
    placed = split.main.join(frame, on="example_id")
    assert (placed.group_by("group").agg(pl.col("split").n_unique())["split"] == 1).all()
    assert certify(split, frame).holds
    sides = [split.main["split"].str.ends_with("ood").sum(), len(frame)]
    if max(sizes) <= 0.02 * len(frame):
        assert 0.18 - 1e-9 <= sides[0] / sides[1] <= 0.3


# --- what is too large


def test_a_component_larger_than_any_split_is_refused_overflows_or_is_cut_as_asked() -> None:
    frame = examples(600)
    ids = frame["example_id"]
    near = pl.DataFrame({"left_id": ids[:-1], "right_id": ids[1:]}).with_columns(kind=pl.lit("near_duplicate"))
    weak = pl.int_range(599) % 50 == 49
    near = near.with_columns(similarity=pl.when(weak).then(0.82).otherwise(0.95), threshold=pl.lit(0.8))
    giant = near.filter(pl.int_range(pl.len()) < 570)
    tables = {"examples": frame, "pairs": giant}
    with pytest.raises(DataRefused, match=r"'q00000' holds 571 of 600 rows \(95%\), more than any split") as error:
        make("non_leaking", tables)
    assert "oversize" in error.value.remedy
    big = {**tables, "pairs": near.filter(pl.int_range(pl.len()) < 499)}
    over = make("non_leaking", big, oversize="overflow", test=0.3, controls=False)
    assert over.counts["test_ood"] == 20  # a fifth of the other hundred rows
    assert over.main.filter(pl.col("component") == "q00000")["split"].unique().to_list() == ["train"]
    assert over.warnings == (
        "the cluster of 'q00000' holds 500 of 600 rows (83%), more than any split has room for: "
        "the shares are of the other 100 rows",
        "the largest cluster, of q00000, holds 83% of the rows",
    )
    assert certify(over, frame.drop("input")).holds
    cut = make("non_leaking", tables, oversize="cut", controls=False, epsilon=0.1, test=0.3)
    pieces = cut.main.drop_nulls("component").group_by("component").len()["len"]
    assert pieces.max() == 50
    side = dict(cut.main.select("example_id", pl.col("split").str.ends_with("ood")).iter_rows())
    across = sum(side[one] != side[two] for one, two in giant.select("left_id", "right_id").iter_rows())
    assert across > 0
    assert cut.warnings == (
        "1 components were larger than any split and cut at similarity 0.84: "
        f"{across} near-duplicate pairs stand across",
    )
    assert certify(cut, frame.drop("input")).holds
    with pytest.raises(UsageError, match="how similar pairs are"):
        make("non_leaking", {**tables, "pairs": giant.drop("similarity")}, oversize="cut")
    same = {**tables, "pairs": giant.with_columns(similarity=pl.lit(1.0))}
    with pytest.raises(DataRefused, match="571 of 600"):
        make("non_leaking", same, oversize="cut")


@pytest.mark.parametrize("by", ["kmeans", "average", "single"])
def test_a_cluster_of_vectors_that_is_too_large_is_clustered_again(by: str) -> None:
    frame = examples(600)
    near = vectors(frame, clusters=1, spread=0.3)
    opposite = pl.Series("embedding", -near["embedding"].to_numpy()[:40], dtype=pl.Array(pl.Float32, 8))
    far = pl.DataFrame([frame["example_id"][:40], opposite])  # 40 rows elsewhere
    near = pl.concat([far, near[40:]])
    setting = {"by": by, "features": "near", "clusters": 2, "threshold": 0.5, "test": 0.3, "controls": False}
    tables = {"examples": frame, "features_near": near}
    with pytest.raises(DataRefused, match=r"holds 5\d\d of 600 rows .*, more than any split"):
        make("non_leaking", tables, **setting)
    cut = make("non_leaking", tables, **setting, oversize="cut", epsilon=0.2)
    assert certify(cut, frame.drop("input")).holds
    assert 0.16 * 600 - 1 <= cut.counts["test_ood"] <= 0.36 * 600


def test_sizes_that_whole_groups_cannot_give_are_refused_with_the_nearest() -> None:
    frame = examples()
    with pytest.raises(DataRefused, match=r"in distribution has 900 of 1,200 rows, asked 80\.0% less epsilon 0\.05"):
        make("non_leaking", frame, keep_together="domain")
    near = make("non_leaking", frame, keep_together="domain", epsilon=0.1, test=0.4, controls=False)
    assert near.counts["test_ood"] == 300
    strata = frame.with_columns(kind=pl.when(pl.col("domain") == "dance").then(pl.lit("a")).otherwise(pl.lit("b")))
    with pytest.raises(DataRefused, match=r"has 0 of 300 rows of kind a, asked .* less delta 0\.2"):
        make("non_leaking", strata, keep_together="domain", epsilon=0.1, stratify="kind")


# --- released splits


@pytest.mark.parametrize("name", ["components", "kmeans", "single", "average"])
def test_what_was_released_stays_and_new_rows_join_the_place_of_their_cluster(name: str) -> None:
    setting = {**SETTINGS[name], "controls": False, "folds": 1}
    before = make("non_leaking", tables_for(name, 900), **setting)
    tables = tables_for(name)
    if name == "components":  # each new row is like one that was released, but for the last hundred
        ids = tables["examples"]["example_id"]
        more = pl.DataFrame({"left_id": ids[:200], "right_id": ids[900:1100]})
        tables["pairs"] = pl.concat([chains(examples(900)).select("left_id", "right_id"), more])
    after = make("non_leaking", {**tables, "frozen": before.main}, **setting)
    both = before.main.join(after.main, on="example_id", suffix="_after")
    assert len(both) == 900
    moved = both.filter(pl.col("split") != pl.col("split_after"))
    # training rows leave for "excluded" alone, for what joined test_ood; what was excluded was in no set
    assert set(moved["split"]) <= {"train", "validation", "excluded"}
    assert set(moved.filter(pl.col("split") != "excluded")["split_after"]) <= {"excluded"}
    old_ood = {split: rows["example_id"] for (split,), rows in before.main.group_by("split")}
    new = after.main.filter(~pl.col("example_id").is_in(before.main["example_id"].implode()))
    if name == "components":
        side = dict(after.main.select("example_id", "split").iter_rows())
        for one, two in more.iter_rows():
            assert side[one].endswith("ood") == side[two].endswith("ood") or "excluded" in (side[one], side[two])
    if name in ("kmeans", "average"):
        was = {int(i[1:]) // 6 % 20 for i in old_ood["test_ood"]}
        place = new.with_columns(cluster=pl.col("example_id").str.slice(1).cast(pl.Int64) // 6 % 20)
        joined = place.filter(pl.col("split") == "test_ood")
        assert len(joined) > 20
        assert set(joined["cluster"]) <= was
    assert set(new["split"]) >= {"train", "test_ood"}
    assert certify(after, tables["examples"].drop("input")).holds


def test_a_new_row_between_train_and_a_released_test_row_takes_that_training_row_out() -> None:
    frame = examples(300)
    tables = {"examples": frame, "pairs": chains(frame)}
    before = make("non_leaking", tables, controls=False)
    train, out = (before.ids(split)[0] for split in ("train", "test_ood"))
    grown = pl.concat([frame, frame[:1].with_columns(example_id=pl.lit("r_bridge"))])
    bridge = pl.DataFrame({"left_id": ["r_bridge", "r_bridge"], "right_id": [train, out]})
    pairs = pl.concat([tables["pairs"].select("left_id", "right_id"), bridge])
    after = make("non_leaking", {"examples": grown, "pairs": pairs, "frozen": before.main}, controls=False)
    assert after.why(out).startswith("test_ood: ")
    assert after.why(train).startswith("excluded: ")
    assert "this row was released in distribution" in after.why(train)
    assert after.why("r_bridge").startswith("test_ood: ")
    assert certify(after, grown.drop("input")).holds


# --- bad input


def test_rows_without_a_vector_or_with_one_of_zeros_are_excluded_with_the_reason() -> None:
    tables = given_tables()
    near = tables["features_words"].filter(pl.col("example_id") != "q00003")
    zero = pl.Series("embedding", np.zeros((1, 8), np.float32), dtype=pl.Array(pl.Float32, 8))
    near = pl.concat(
        [near.filter(pl.col("example_id") != "q00004"), pl.DataFrame([pl.Series("example_id", ["q00004"]), zero])]
    )
    tables["features_words"] = near
    split = make("non_leaking", {**tables, "pairs": tables["pairs"].clear()}, by="kmeans", features="words", **SMALL)
    assert split.why("q00003") == "excluded: no vector in the features words"
    assert split.why("q00004") == "excluded: its vector in the features words is zero"
    assert certify(split, tables["examples"].drop("input")).holds
    near = near.with_columns(
        pl.when(pl.col("example_id") == "q00009")
        .then(pl.lit([math.nan] * 8, pl.Array(pl.Float32, 8)))
        .otherwise("embedding")
        .alias("embedding")
    )
    with pytest.raises(DataRefused, match="'q00009' holds NaN"):
        make("non_leaking", {**tables, "features_words": near}, by="kmeans", features="words")
    nobody = pl.DataFrame([pl.Series("example_id", ["x"]), zero])
    with pytest.raises(DataRefused, match="none of 1,200 examples has a vector with a direction"):
        make("non_leaking", {**tables, "features_words": nobody}, by="kmeans", features="words")


def test_what_says_nothing_about_likeness_or_leaves_a_side_empty_is_refused() -> None:
    frame = examples()
    with pytest.raises(UsageError, match="nothing says which rows belong together"):
        make("non_leaking", frame)
    for setting in ({"by": "kmeans"}, {"by": "single"}, {"margin": 0.9}):
        with pytest.raises(UsageError, match="there are no features"):
            make("non_leaking", frame, keep_together="template", **setting)
        with pytest.raises(UsageError, match="one of other, words"):
            make("non_leaking", {**given_tables(), "features_other": vectors(frame)}, **setting)
    with pytest.raises(UsageError, match="did you mean 'words'"):
        make("non_leaking", given_tables(), by="kmeans", features="wrds")
    with pytest.raises(DataRefused, match="is none for test_ood"):
        make("non_leaking", frame, keep_together="template", fraction=0.0001)
    with pytest.raises(DataRefused, match="is none for validation_ood"):
        make("non_leaking", frame, keep_together="template", validation_ood=0.001)
    with pytest.raises(DataRefused, match="there is one cluster for 2 sets of rows"):
        make("non_leaking", frame.with_columns(one=pl.lit("x")), keep_together="one", oversize="overflow")
    with pytest.raises(UsageError, match="1,200 values"):
        make("non_leaking", frame, keep_together="template", stratify="example_id")
    many = examples(6_000)
    near = pl.Series("embedding", np.ones((6_000, 2), np.float32), dtype=pl.Array(pl.Float32, 2))
    tables = {"examples": many, "features_one": pl.DataFrame([many["example_id"], near])}
    with pytest.raises(UsageError, match="average linkage of 6,000 rows"):
        make("non_leaking", tables, by="average", features="one")


def test_equal_vectors_are_one_cluster_and_a_stratum_of_one_class_asks_for_nothing_more() -> None:
    frame = examples(200)
    same = pl.Series("embedding", np.ones((200, 3), np.float32), dtype=pl.Array(pl.Float32, 3))
    tables = {"examples": frame, "features_one": pl.DataFrame([frame["example_id"], same])}
    for by in ("kmeans", "single", "average"):
        with pytest.raises(DataRefused, match=r"one cluster for 2 sets|holds 200 of 200"):
            make("non_leaking", tables, by=by, features="one")
    one = make("non_leaking", examples().with_columns(kind=pl.lit("same")), keep_together="template", stratify="kind")
    assert one.counts["test_ood"] >= 228
    assert certify(one, examples().with_columns(kind=pl.lit("same")).drop("input")).holds


def test_a_difficulty_gives_a_matched_control_and_seeds_differ() -> None:
    tables = tables_for("components")
    frame = tables["examples"]
    split = make("non_leaking", {**tables, "difficulty": difficulty(frame)}, seeds=2)
    assert set(split.table["strategy"]) == {"non_leaking", "non_leaking.random", "non_leaking.matched"}
    held = [set(split.select(seed=seed).ids("test_ood")) for seed in (0, 1)]
    assert held[0] != held[1]
    assert split.select(seed=0).axis == "cluster"
    assert "DataSAIL" in split.cite()

"""Maximum compound divergence: published numbers, the search beside a plain one, groups, releases, bad input."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash, uniform
from gradatim.tasks.core.divergences import (
    Bag,
    Profile,
    divergences,
    factor_profile,
    split_divergences,
    text_profile,
    tree_profile,
)
from gradatim.tasks.core.registry import get
from gradatim.tasks.core.trees import parse
from gradatim.tasks.splits.constraints import constraint
from gradatim.tasks.splits.divergent.search import PRICE, UNUSED, Aim, search
from gradatim.tasks.splits.divergent.units import units_of
from gradatim.tasks.splits.inputs import with_factors
from gradatim.tasks.splits.result import Split

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_mcd.json"
_PLAIN = Path(__file__).parent / "brute_force" / "mcd.py"
_spec = importlib.util.spec_from_file_location("brute_force_mcd", _PLAIN)
assert _spec is not None
assert _spec.loader is not None
plain = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(plain)


@cache
def scan() -> pl.DataFrame:
    plugin = get("dataset", "scan")
    frame: pl.DataFrame = next(iter(plugin.run(plugin.config(), 0)))
    return frame


@cache
def scan_profile(max_size: int) -> Profile:
    return tree_profile(scan()["structure"], max_size)


def small(n: int = 1200) -> pl.DataFrame:
    """Every n-th row of SCAN, under short ids."""
    every = scan().gather_every(len(scan()) // n).head(n)
    return every.select("input", "output", "structure", "factors").with_columns(
        pl.Series("example_id", [f"q{i:05d}" for i in range(len(every))])
    )


def promised(split: Split, frame: pl.DataFrame) -> dict[str, float]:
    """What the strategy's own promise finds, in the worst of the folds; all of it holds."""
    found: dict[str, float] = {}
    frame = with_factors(frame, split.settings["factors"])
    for _, part in split.main.join(frame, on="example_id").group_by("seed", "fold"):
        for check in constraint("mcd", split.settings, part):
            assert check.holds is not False, check
            found[check.check] = max(check.value, found.get(check.check, 0.0))
    return found


SMALL: dict[str, Any] = {"atom_divergence": 0.05, "max_size": 3}


# --- the measure


def test_the_divergences_of_counts_are_the_golden_ones() -> None:
    rows = np.array([[3, 1, 0], [1, 1, 2]])
    line, code = np.nonzero(rows)
    start = np.array([0, 2, 5])
    bag = Bag(np.arange(2), start, code, rows[line, code] * 2**20, 3)
    found = divergences(Profile(bag, bag, "counts", 0), np.array([True, False]), np.array([False, True]))
    assert found.atom == pytest.approx(0.3169872981, abs=1e-10)
    assert found.compound == pytest.approx(0.4709692065, abs=1e-10)
    swapped = divergences(Profile(bag, bag, "counts", 0), np.array([False, True]), np.array([True, False]))
    assert swapped.atom == pytest.approx(found.atom, abs=1e-12)
    assert abs((swapped.compound or 0) - (found.compound or 0)) > 0.01


def test_public_splits_of_scan_differ_as_published_in_order_and_within_the_tolerance(data: Path) -> None:
    public = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    rows = scan().join(public, left_on="input", right_on="command", how="left", maintain_order="left")
    train = {
        "out-length": (rows["n_actions"] <= 22).to_numpy(),
        "in-length": (rows["n_words"] <= 8).to_numpy(),
        "random": uniform(rows["example_id"], 0, "random split") < 0.8,
    }
    assert train["out-length"].sum() == 16_990
    published = {"random": (0.000, 0.047), "out-length": (0.034, 0.437), "in-length": (0.106, 0.380)}
    by_size = {}
    for size in (3, 5, 7, 9):
        found = {name: divergences(scan_profile(size), rows, ~rows) for name, rows in train.items()}
        by_size[size] = {name: one.compound or 0.0 for name, one in found.items()}
        for name, (atom, _) in published.items():
            assert found[name].atom == pytest.approx(atom, abs=0.02)
    for name in published:  # larger compounds set any two sides further apart
        assert [by_size[size][name] for size in (3, 5, 7, 9)] == sorted(by_size[size][name] for size in (3, 5, 7, 9))
    assert all(found["random"] < found["in-length"] < found["out-length"] for found in by_size.values())
    assert by_size[9]["random"] == pytest.approx(0.047, abs=0.05)
    assert by_size[7]["random"] == pytest.approx(0.047, abs=0.05)
    assert by_size[9]["in-length"] == pytest.approx(0.380, abs=0.05)
    assert by_size[9]["out-length"] == pytest.approx(0.437, abs=0.1)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from("mn")), min_size=4, max_size=40),
    st.randoms(),
)
@settings(max_examples=40, deadline=None)
def test_the_divergences_of_factors_are_those_of_counters(rows: list[tuple[str, ...]], random: Any) -> None:
    frame = pl.DataFrame(rows, schema=["f", "g", "h"], orient="row")
    train = np.array([random.random() < 0.5 for _ in rows])
    train[:2] = True, False
    found = divergences(factor_profile(frame, ["f", "g", "h"]), train, ~train)
    sides = [
        [[dict(zip("fgh", row, strict=True))] for row, t in zip(rows, train, strict=True) if t == s] for s in (1, 0)
    ]
    atom, compound = plain.both(sides)
    assert found.atom == pytest.approx(max(atom, 0), abs=1e-12)
    assert found.compound == pytest.approx(max(compound, 0), abs=1e-12)


def test_only_the_compounds_of_the_greatest_weight_count() -> None:
    frame = pl.DataFrame({"f": list("aaab"), "g": list("xxyx")})
    whole, some = factor_profile(frame, ["f", "g"]), factor_profile(frame, ["f", "g"], top=1)
    assert (whole.compounds.size, whole.left_out) == (3, 0)
    assert (some.compounds.size, some.left_out) == (1, 2)
    assert some.compounds.totals().tolist() == [2.0]


def test_words_are_atoms_and_runs_of_words_compounds() -> None:
    profile = text_profile(pl.Series(["a b c", "a b", None, "", "c"]), 3)
    assert profile.atoms.line.tolist() == [0, 1, -1, -1, 4]
    assert sorted(profile.atoms.totals().tolist()) == [2, 2, 2]
    assert sorted(profile.compounds.totals().tolist()) == [1, 1, 2]  # a b c; b c; a b


# --- the search


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("grouped", [False, True])
def test_the_greedy_search_is_that_of_a_full_recount(seed: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {name: rng.choice(list(values), 40) for name, values in (("f", "abcd"), ("g", "xyz"), ("h", "mno"))}
    )
    unit = rng.integers(0, 22, 40) if grouped else np.arange(40)
    units = units_of(factor_profile(frame, ["f", "g", "h"]), unit, 40, (0.5, 0.1))
    rows = frame.to_dicts()
    members = [[rows[i] for i in np.flatnonzero(unit == u)] for u in range(40)]
    names = pl.Series([f"u{i}" for i in range(40)])
    aim = Aim(target=1.0, cap=0.02, quota=(18, 7), candidates=1000, starts=1, exchanges=0.0, least=0)
    found = search(units, names, np.full(40, UNUSED, np.int8), aim, seed)
    expected = plain.greedy(members, aim.quota, aim.target, aim.cap, PRICE)
    assert found.side.tolist() == expected
    sides = [[members[u] for u in range(40) if expected[u] == side] for side in (0, 1)]
    atom, compound = plain.both(sides)
    assert (found.atom, found.compound) == (pytest.approx(atom, abs=1e-9), pytest.approx(compound, abs=1e-9))


@pytest.mark.parametrize("target", [1.0, 0.3])
def test_exchanges_bring_the_sides_nearer_and_lose_no_weight(target: float) -> None:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({name: rng.integers(0, 6, 600).astype(str) for name in "fghi"})
    profile = factor_profile(frame, list("fghi"), (2, 3))
    unit = np.where(np.arange(600) < 200, rng.integers(0, 60, 600), np.arange(600))
    units = units_of(profile, unit, 600, (0.5, 0.1))
    names, fixed = pl.Series([f"u{i}" for i in range(600)]), np.full(600, UNUSED, np.int8)
    aim = {"target": target, "cap": 0.02, "quota": (240, 60), "candidates": 16, "starts": 1, "least": 1}
    before = search(units, names, fixed, Aim(**aim, exchanges=0.0), 0)
    after = search(units, names, fixed, Aim(**aim, exchanges=2.0), 0)
    assert after.exchanges > 0
    assert abs(after.compound - target) < abs(before.compound - target)
    assert after.atom <= 0.02
    side = np.where(unit >= 0, after.side[unit], UNUSED)
    recount = divergences(profile, side == 0, side == 1)
    assert after.compound == pytest.approx(recount.compound, abs=1e-9)
    assert after.atom == pytest.approx(recount.atom, abs=1e-9)
    assert (side == 0).sum() <= 240
    assert (side == 1).sum() <= 60


def test_scan_at_the_sizes_of_the_paper_reaches_the_paper_s_region_with_all_seeds() -> None:
    shares = {"in_distribution": 0.4, "out_of_distribution": 0.1}
    # half of the starts that are the default
    split = make("mcd", scan(), max_size=7, **shares, seeds=3, starts=4, controls=False)
    profile = scan_profile(7)
    for seed in range(3):
        side = scan().select("example_id").join(split.select(seed=seed).main, on="example_id", how="left",
                                                maintain_order="left")["split"]  # fmt: skip
        inside, outside = side.is_in(["train", "validation", "test"]).to_numpy(), (side == "test_ood").to_numpy()
        assert (inside.sum(), outside.sum()) == (8_364, 2_091)
        atoms, compounds = (
            [bag.totals(rows) for rows in (inside, outside)] for bag in (profile.atoms, profile.compounds)
        )
        (p, q), (r, s) = ((x / x.sum() for x in pair) for pair in (atoms, compounds))
        assert 1 - np.sum(np.sqrt(p * q)) <= 0.02
        assert 1 - np.sum(r**0.1 * s**0.9) >= 0.70


# --- the split


def test_the_content_is_the_golden_one_and_neither_row_order_nor_other_columns_change_it() -> None:
    frame = small()
    found = content_hash(make("mcd", frame, **SMALL, seeds=2).table.to_arrow())
    mixed = frame.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1))
    assert content_hash(make("mcd", mixed, **SMALL, seeds=2).table.to_arrow()) == found
    golden = json.loads(GOLDEN.read_text())
    expected = {"revision": get("split", "mcd").revision, "content": found}
    assert golden["mcd"] == expected, "raise the revision, then the golden hash"


def test_shares_are_those_asked_for_and_every_row_says_where_it_is_and_why() -> None:
    frame = small()
    split = make("mcd", frame, **SMALL, test=0.10)
    counts = split.counts
    assert counts["train"] + counts["validation"] + counts["test"] == 600
    assert counts["test_ood"] == 120
    assert counts["excluded"] == 480
    assert split.main["example_id"].to_list() == frame["example_id"].to_list()
    reasons = split.main.filter(pl.col("split") == "excluded")["reason"].unique().to_list()
    assert reasons == ["not used: left out to keep the compounds of train and test apart"]
    held = split.main["held_out"].drop_nulls().unique().to_list()
    assert len(held) == 1
    assert held[0].startswith("compounds (D_C 0.")
    certificate = split.certify(frame)
    assert certificate.holds
    assert certificate.value("constraint:atom divergence") <= 0.05  # type: ignore[operator]
    told = f"{certificate.value('constraint:compound divergence'):.3f}"
    assert told in held[0]


def test_seeds_give_different_splits_and_each_beats_its_random_control() -> None:
    frame = small()
    split = make("mcd", frame, **SMALL, seeds=3)
    sets = set()
    for seed in range(3):
        here = split.table.filter(pl.col("seed") == seed)
        found = {}
        for name in ("mcd", "mcd.random"):
            part = here.filter(pl.col("strategy") == name)
            rows = part.select("example_id").join(frame, on="example_id", how="left", maintain_order="left")
            found[name] = split_divergences(rows, part["split"], max_size=3)
        assert (found["mcd"].compound or 0) > 3 * (found["mcd.random"].compound or 0)
        sets.add(tuple(here.filter((pl.col("strategy") == "mcd") & (pl.col("split") == "test_ood"))["example_id"]))
    assert len(sets) == 3


@given(st.integers(0, 10_000), st.integers(2, 30))
@settings(max_examples=12, deadline=None)
def test_groups_and_near_duplicates_are_placed_whole(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame({name: rng.integers(0, 4, 300).astype(str) for name in "fgh"}).with_columns(
        pl.Series("example_id", [f"q{i:03d}" for i in range(300)]),
        pl.Series("group", [f"g{g}" if g < groups else None for g in rng.integers(0, 80, 300)]),
    )
    pairs = pl.DataFrame({"left_id": ["q000", "q001"], "right_id": ["q200", "q201"]})
    tables = {"examples": frame, "pairs": pairs}
    split = make("mcd", tables, seed, factors=["f", "g", "h"], atom_divergence=0.2, test=0.2)
    main = split.main.join(frame.select("example_id", "group"), on="example_id")
    assert (main.drop_nulls("component").group_by("component").agg(pl.col("split").n_unique())["split"] == 1).all()
    place = dict(main.select("example_id", "split").iter_rows())
    assert place["q000"] == place["q200"]
    assert place["q001"] == place["q201"]
    assert not main["reason"].str.contains("out-of-distribution rows").any()
    assert split.certify(frame).holds


def test_released_rows_keep_their_side_and_new_ones_are_added() -> None:
    frame = small()
    old = frame.sample(800, seed=1).sort("example_id")
    before = make("mcd", old, **SMALL)
    after = make("mcd", {"examples": frame, "frozen": before.table}, **SMALL)
    joined = before.main.join(after.main, on="example_id", suffix="_after")
    assert (joined["split"] == joined["split_after"]).all()
    counts, size = after.counts, before.counts
    assert counts["test_ood"] == 120
    assert counts["train"] + counts["validation"] + counts["test"] == 600
    assert counts["test_ood"] > size["test_ood"]
    assert promised(after, frame)["constraint:atom divergence"] <= 0.05
    other = make("mcd", {"examples": frame, "frozen": before.table}, seed=9, **SMALL)
    assert other.main["split"].to_list() == make("mcd", frame, seed=9, **SMALL).main["split"].to_list()


def with_rare_words(seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    words, share = [f"w{i}" for i in range(120)], 1 / np.arange(1, 121)
    texts = [" ".join(rng.choice(words, 4, p=share / share.sum())) for _ in range(220)]
    return pl.DataFrame({"example_id": [f"q{i:03d}" for i in rng.permutation(220)], "text": texts})


@pytest.mark.parametrize(("seed", "least", "folds"), [(18, 2, 1), (32, 1, 1), (29, 2, 3)])
def test_no_new_row_is_tested_on_words_that_a_release_keeps_out_of_train(seed: int, least: int, folds: int) -> None:
    frame = with_rare_words(seed)
    setting: dict[str, Any] = {
        "text": "text", "max_size": 2, "atom_divergence": 0.3, "test": 0.3, "min_atom_count": least, "starts": 2,
        "folds": folds,
    }  # fmt: skip
    before = make("mcd", frame.head(120), **setting)
    after = make("mcd", {"examples": frame, "frozen": before.table}, **setting)
    assert promised(after, frame)[f"constraint:test_ood atoms in fewer than {least} train rows"] == 0
    kept = before.main.filter(pl.col("split").is_in(["test", "test_ood"])).select("fold", "example_id", "split")
    assert kept.join(after.main, on=["fold", "example_id", "split"]).height == len(kept)
    if least == 2 and folds == 1:
        assert after.main["reason"].str.contains("too rare in train beside the rows that are released").any()


def test_a_new_row_joins_its_released_group_on_the_group_s_side() -> None:
    frame = small().with_columns(
        group=pl.when(pl.int_range(1200) % 3 == 0).then(pl.format("g{}", pl.int_range(1200) // 12))
    )
    old = frame.filter(pl.int_range(1200) % 12 != 3)
    before = make("mcd", old, **SMALL)
    after = make("mcd", {"examples": frame, "frozen": before.table}, **SMALL)
    places = after.main.filter(pl.col("split") != "excluded").drop_nulls("component").group_by("component")
    assert (places.agg(pl.col("split").n_unique())["split"] == 1).all()
    kept = before.main.filter(pl.col("split").is_in(["test", "test_ood"])).join(after.main, on="example_id")
    assert (kept["split"] == kept["split_right"]).all()


@pytest.mark.parametrize("least", [1, 3])
def test_each_atom_of_the_test_stands_in_train(least: int) -> None:
    rng = np.random.default_rng(least)
    words = [f"w{i}" for i in range(60)]
    share = 1 / np.arange(1, 61)
    texts = [" ".join(rng.choice(words, 5, p=share / share.sum())) for _ in range(600)]
    frame = pl.DataFrame({"example_id": [f"q{i:03d}" for i in range(600)], "text": texts})
    split = make("mcd", frame, text="text", max_size=2, min_atom_count=least, test=0.3, atom_divergence=0.1)
    rows = split.main.join(frame, on="example_id")
    train: dict[str, int] = {}
    for text in rows.filter(pl.col("split") == "train")["text"]:
        for word in set(text.split()):
            train[word] = train.get(word, 0) + 1
    tested = {word for text in rows.filter(pl.col("split") == "test_ood")["text"] for word in text.split()}
    assert tested
    assert min(train.get(word, 0) for word in tested) >= least
    assert split.certify(frame).holds


def test_factors_of_a_map_are_atoms_too() -> None:
    frame = small()
    split = make("mcd", frame, factors="factors", ways=[2, 3], atom_divergence=0.05)
    assert split.counts["test_ood"] == 120
    assert promised(split, frame)["constraint:atom divergence"] <= 0.05
    named = make("mcd", frame, factors=["primitive1", "direction1", "modifier1"], atom_divergence=0.05, target=0.2)
    assert promised(named, frame)["constraint:compound divergence"] == pytest.approx(0.2, abs=0.02)


# --- bad input


def trees(*texts: str | None) -> pl.DataFrame:
    read, _ = parse(pl.Series(list(texts), dtype=pl.String))
    return pl.DataFrame({"example_id": [f"q{i:04d}" for i in range(len(texts))], "structure": read})


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([(0, -1, "a"), (1, 2, "b"), (2, 1, "c")], "a cycle"),
        ([(0, -1, "a"), (1, -1, "b")], "2 roots"),
        ([(0, -1, "a"), (1, 7, "b")], "a parent that is not there"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_row(nodes: list[tuple[int, int, str]], words: str) -> None:
    frame = small(300)
    bad = [{"node": n, "parent": p, "label": label} for n, p, label in nodes]
    broken = frame.with_columns(
        pl.Series("structure", [bad if i == 7 else tree for i, tree in enumerate(frame["structure"].to_list())],
                  dtype=frame["structure"].dtype)
    )  # fmt: skip
    with pytest.raises(DataRefused, match=rf"{words} \(example 'q00007'\)"):
        make("mcd", broken, **SMALL)


def test_rows_without_a_tree_are_not_used_and_say_so() -> None:
    frame = small().with_columns(structure=pl.when(pl.int_range(1200) >= 100).then("structure"))
    split = make("mcd", frame, **SMALL)
    assert split.why("q00000") == "excluded: not used: structure null or empty"
    assert split.counts["test_ood"] == 110
    with pytest.raises(DataRefused, match="none of 5 rows has a structure"):
        make("mcd", trees(None, None, None, None, None))


def test_single_nodes_have_no_compounds() -> None:
    with pytest.raises(DataRefused, match="no row has a compound"):
        make("mcd", trees(*["(a)"] * 50))
    mixed = trees(*["(a)", "(b)"] * 40, *["(a (b))", "(a (a))", "(b (a))", "(b (b))"] * 40)
    assert make("mcd", mixed, atom_divergence=0.1).certify(mixed).holds


def test_equal_trees_split_at_random_and_say_so() -> None:
    split = make("mcd", trees(*["(a (b) (c))"] * 200))
    assert "seed 0: compounds hardly differ (D_C 0.000, D_A 0.000); look at the random control" in split.warnings


def test_shares_that_leave_nothing_are_refused() -> None:
    frame = small()
    with pytest.raises(DataRefused, match=r"out_of_distribution 0\.0001 of 1,200 rows is none"):
        make("mcd", frame, out_of_distribution=0.0001)
    with pytest.raises(UsageError, match=r"in_distribution 0.8 \+ out_of_distribution 0.3 is more than all rows"):
        make("mcd", frame, in_distribution=0.8, out_of_distribution=0.3)
    with pytest.raises(UsageError, match="not both"):
        make("mcd", frame, factors=["primitive1"], text="input")
    with pytest.raises(UsageError, match="there is no column 'structure'"):
        make("mcd", frame.drop("structure"))


def test_atoms_that_cannot_be_alike_are_refused_with_the_remedy() -> None:
    frame = pl.DataFrame({"example_id": [f"q{i}" for i in range(40)], "text": [f"a{i} b{i}" for i in range(40)]})
    with pytest.raises(DataRefused, match="atoms are too rare in train"):
        make("mcd", frame, text="text")
    with pytest.raises(DataRefused, match=r"the atom divergence is 1\.0000 at best") as refused:
        make("mcd", frame, text="text", min_atom_count=0)
    assert "raise atom_divergence" in str(refused.value)


def test_a_group_larger_than_the_test_is_refused_where_nothing_else_is_left() -> None:
    frame = small().with_columns(group=pl.format("g{}", pl.int_range(1200) // 400))
    with pytest.raises(DataRefused, match="the smallest group holds 400"):
        make("mcd", frame, **SMALL)


def test_a_target_that_is_not_reached_is_told() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"example_id": [f"q{i:03d}" for i in range(300)], "f": rng.choice(["a", "b"], 300),
                          "g": rng.choice(["x", "y"], 300)})  # fmt: skip
    split = make("mcd", frame, factors=["f", "g"], target=0.9)
    assert any("the compound divergence is 0." in text and "asked 0.9" in text for text in split.warnings)


def test_the_certificate_of_any_split_of_trees_measures_atoms_and_compounds_beside_the_control() -> None:
    frame = small().with_columns(n_words=pl.col("input").str.count_matches(" ") + 1)
    split = make("threshold", frame, column="n_words", train="<= 7")
    table = split.certify(frame.drop("input", "output")).table.filter(pl.col("check").str.ends_with("_divergence"))
    assert table["check"].to_list() == ["atom_divergence", "compound_divergence"]
    assert (table["value"] > table["control_value"]).all()
    rows = split.main.select("example_id").join(frame, on="example_id", how="left", maintain_order="left")
    found = split_divergences(rows, split.main["split"])
    assert table["value"].to_list() == [found.atom, found.compound]
    assert split.certify(frame.select("example_id", "n_words").with_columns(structure=pl.lit("(a)"))).holds

"""Rows that stay together keep the name by which they are drawn, whoever joins, merges or leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.growth import Grown, grow_components
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.together import near_duplicates, together

KNOWN = {"example_id": pl.String, "component": pl.String, "absorbed": pl.String}
PAIR = {"left_id": pl.String, "right_id": pl.String, "similarity": pl.Float64}


def rows(ids: list[str], **more: Any) -> pl.DataFrame:
    return pl.DataFrame({"example_id": sorted(ids), **more}, schema_overrides={"example_id": pl.String})


def pairs(*found: tuple[str, str]) -> pl.DataFrame:
    return pl.DataFrame([(*sorted(pair), 0.93) for pair in found], schema=PAIR, orient="row")


def night(known: pl.DataFrame, ids: list[str], *tied: tuple[str, str], frozen: tuple[str, ...] = ()) -> Grown:
    return grow_components(known, pairs(*tied), pl.Series(ids), pl.Series(frozen, dtype=pl.String))


def split(frame: pl.DataFrame, method: str = "random", seed: int = 0, **more: Any) -> Split:
    """Split by settings and tables."""
    tables = {name: value for name, value in more.items() if isinstance(value, pl.DataFrame)}
    chosen = {name: value for name, value in more.items() if name not in tables}
    plugin = get("split", method)
    made: Split = plugin.run({"examples": frame, **tables}, configure(plugin, {"controls": False, **chosen}), seed)
    return made


def places(made: Split) -> dict[str, str]:
    return dict(made.main.select("example_id", "split").iter_rows())


IDS = [f"q{i:04d}" for i in range(400)]


def test_a_smaller_id_a_merge_and_a_row_that_leaves_move_nobody_else() -> None:
    tied = [(IDS[i], IDS[i + 1]) for i in range(0, 100, 2)]
    first = night(pl.DataFrame(schema=KNOWN), IDS, *tied).table
    one = split(rows(IDS), components=first)
    # a smaller id joins the component q0000, the first row of another is gone, and two become one
    ids = [i for i in ["a", *IDS] if i != "q0010"]
    more = [pair for pair in tied if "q0010" not in pair] + [("a", "q0000"), ("q0021", "q0040")]
    second = night(first, ids, *more)
    named = dict(second.table.select("example_id", "component").iter_rows())
    assert (named["a"], named["q0001"], named["q0011"], named["q0041"]) == ("q0000", "q0000", "q0010", "q0020")
    assert second.merges.rows() == [("q0020", "q0040", [])]
    assert second.table.filter(pl.col("absorbed").is_not_null()).select("example_id", "absorbed").rows() == [
        ("q0040", "q0040"), ("q0041", "q0040"),
    ]  # fmt: skip
    before, after = places(one), places(split(rows(ids), components=second.table))
    assert {i for i in before.keys() & after.keys() if before[i] != after[i]} <= {"q0040", "q0041"}
    assert after["a"] == before["q0000"]
    assert after["q0040"] == after["q0041"] == before["q0020"]
    component = dict(split(rows(ids), components=second.table).main.select("example_id", "component").iter_rows())
    assert (component["q0011"], component["q0300"]) == ("q0010", None)
    # a night without news changes nothing, and what was absorbed is still told
    third = night(second.table, ids, *more)
    assert third.table.equals(second.table)
    assert third.merges.is_empty()


@given(seed=st.integers(0, 10**6), night_rows=st.integers(1, 30))
@settings(max_examples=20)
def test_a_row_that_was_alone_stays_where_it_is_when_others_join_it(seed: int, night_rows: int) -> None:
    frame = rows(IDS[:200])
    first = night(pl.DataFrame(schema=KNOWN), IDS[:200]).table
    before = places(split(frame, seed=seed))
    assert places(split(frame, seed=seed, components=first)) == before
    chosen = np.random.default_rng(seed).integers(0, 200, night_rows)
    new = [f"{'az'[k % 2]}{k}" for k in range(night_rows)]
    grown = night(first, [*IDS[:200], *new], *[(new[k], IDS[row]) for k, row in enumerate(chosen)])
    after = places(split(rows([*IDS[:200], *new]), seed=seed, components=grown.table))
    merged = set(grown.merges["absorbed"])
    sizes = grown.table.group_by("component").len().filter(pl.col("len") > 3)["component"]  # may outgrow its split
    names = dict(grown.table.select("example_id", "component").iter_rows())
    for row in IDS[:200]:
        if row not in merged and names[row] not in set(sizes):
            assert after[row] == before[row]


def test_pairs_alone_do_in_a_notebook_and_those_below_their_threshold_tie_nothing() -> None:
    found = pairs(("q0001", "q0007"), ("q0003", "q0009"), ("q0001", "gone")).with_columns(
        kind=pl.lit("near_duplicate"), threshold=pl.Series([0.8, 0.95, 0.8])
    )
    other = found.with_columns(right_id=pl.lit("q0002"), kind=pl.lit("contamination"))
    assert near_duplicates(pl.concat([found, other])).select("left_id", "right_id").rows() == [
        ("q0001", "q0007"), ("gone", "q0001"),
    ]  # fmt: skip
    whole = together(rows(IDS[:20]), [], {"pairs": pl.concat([found, other])})
    assert whole.component.drop_nulls().to_list() == ["q0001", "q0001"]
    assert whole.key[9] == "q0009"


def test_groups_that_near_duplicates_link_are_one_and_bear_the_smallest_group_name() -> None:
    frame = rows(["a", "b", "c", "d", "e", "f"], group=["h", "g", None, None, None, "h"])
    tied = {"components": pl.DataFrame({"example_id": ["b", "c", "d", "e"], "component": ["b", "b", "g", "g"]})}
    whole = together(frame, ["group"], tied)
    assert whole.component.to_list() == ["h", "g", "g", "g (near-duplicates)", "g (near-duplicates)", "h"]
    assert whole.key.to_list() == ["\x1fh", "\x1fg", "\x1fg", "g", "g", "\x1fh"]
    linked = {"pairs": pairs(("a", "b"))}
    assert together(frame, ["group"], linked).component.to_list() == ["g", "g", None, None, None, "g"]
    assert together(frame, [], {}).component.null_count() == 6
    tied_up = together(frame, ["group"], linked, tied=pl.Series("component", ["x", None, None, None, None, "x"]))
    assert tied_up.component.to_list() == ["x", None, None, None, None, "x"]


def test_no_row_is_no_error() -> None:
    none = rows([])
    for tables in ({}, {"pairs": pairs()}, {"components": pl.DataFrame(schema=KNOWN)}):
        assert len(together(none, [], tables).key) == 0
    assert night(pl.DataFrame(schema=KNOWN), []).table.is_empty()
    assert "0 components" in night(pl.DataFrame(schema=KNOWN), []).summary().headline


# --- frozen evaluation


@pytest.fixture
def released() -> tuple[pl.DataFrame, Split]:
    first = night(pl.DataFrame(schema=KNOWN), IDS).table
    return first, split(rows(IDS), components=first)


def test_a_near_duplicate_of_a_released_test_row_joins_it_or_is_kept_out_with_partner_and_similarity(
    released: tuple[pl.DataFrame, Split],
) -> None:
    first, before = released
    draw = dict(zip(IDS, uniform(IDS, 0, "split random"), strict=True))
    test = next(i for i in before.ids("test") if draw[i] > 0.05)
    tied = [("new", test), ("newer", "new"), ("other", before.train[0])]
    grown = night(first, [*IDS, "new", "newer", "other"], *tied, frozen=(test,))
    assert grown.joined.rows() == [("new", test, True), ("newer", test, True), ("other", before.train[0], False)]
    frame, tables = rows([*IDS, "new", "newer", "other"]), {"components": grown.table, "pairs": pairs(*tied)}
    # drawn by the name of their component they are where the test row is
    after = split(frame, frozen=before.table, **tables)
    assert {after.why(i).split(":")[0] for i in ("new", "newer")} == {"test"}
    assert (after.frozen[0].joined, after.frozen[0].excluded) == (2, 0)
    assert "test frozen: 0 left, 0 moved, 2 joined" in after.summary().headline
    assert {fact.name: fact.value for fact in after.summary().facts}["kept together"] == "near-duplicates"
    # where the recipe now asks for a smaller test they would be elsewhere, so they are kept out
    smaller = split(frame, frozen=before.table, test=0.05, **tables)
    assert smaller.why("new") == f"excluded: near-duplicate of {test} (similarity .93), a released test row"
    assert smaller.why("newer") == (
        f"excluded: near-duplicate of new (similarity .93), and its group {test} holds a released test row"
    )
    outcome = smaller.frozen[0]
    assert (outcome.excluded, outcome.added, outcome.twins, outcome.moved) == (2, 2, 2, 0)
    assert smaller.summary().headline.endswith("excluded +2 (near-duplicates of frozen test rows)")
    # the next release has them excluded: nothing is added
    again = split(frame, frozen=smaller.table, test=0.05, **tables).frozen[0]
    assert (again.excluded, again.added) == (2, 0)


def test_a_near_duplicate_on_the_other_side_of_the_rule_is_kept_out_of_train_by_name() -> None:
    first = night(pl.DataFrame(schema=KNOWN), IDS).table
    frame = rows(IDS, n=[i % 10 for i in range(400)])
    settings = {"column": "n", "train": "<= 6"}
    before = split(frame, "threshold", components=first, **settings)
    more = pl.concat([frame, pl.DataFrame({"example_id": ["new"], "n": [2]})])
    tied = [("new", "q0009")]
    tables = {"components": night(first, [*IDS, "new"], *tied).table, "pairs": pairs(*tied)}
    after = split(more, "threshold", frozen=before.table, **settings, **tables)
    assert after.why("new") == "excluded: near-duplicate of q0009 (similarity .93), a released test row"
    assert (after.frozen[0].added, after.frozen[0].twins) == (1, 1)
    draft = split(more, "threshold", **settings, **tables)
    assert draft.why("new") == "excluded: n 2 <= 6; its group q0009 also has out-of-distribution rows"


def test_without_a_similarity_or_pairs_the_reason_says_what_is_known(released: tuple[pl.DataFrame, Split]) -> None:
    first, before = released
    draw = dict(zip(IDS, uniform(IDS, 0, "split random"), strict=True))
    test = next(i for i in before.ids("test") if draw[i] > 0.05)
    frame, grown = rows([*IDS, "new"]), night(first, [*IDS, "new"], ("new", test)).table
    bare = pairs(("new", test)).drop("similarity")
    told = split(frame, frozen=before.table, test=0.05, components=grown, pairs=bare).why("new")
    assert told == f"excluded: near-duplicate of {test}, a released test row"
    alone = split(frame, frozen=before.table, test=0.05, components=grown)
    assert alone.why("new") == f"excluded: its group {test} holds a released test row"
    assert alone.summary().headline.endswith("excluded +1 (groups of frozen test rows)")


def test_a_merge_with_a_frozen_row_takes_rows_out_of_train_and_is_reported(
    released: tuple[pl.DataFrame, Split],
) -> None:
    first, before = released
    test, train = before.ids("test")[3], before.train[0]
    tied = [("new", test), ("new", train)]
    grown = night(first, [*IDS, "new"], *tied, frozen=tuple(before.ids("test")))
    component, absorbed = sorted([test, train])
    assert grown.merges.rows() == [(component, absorbed, [test])]
    about = grown.summary()
    assert about.tables[0].rows == ((component, absorbed, 1, test),)
    assert f"{component!r} took in {absorbed!r}, with 1 frozen test rows" in about.warnings[0]
    assert "merged 1, 1 of them with frozen test rows" in about.headline
    frame = rows([*IDS, "new"])
    after = split(frame, components=grown.table, pairs=pairs(*tied), frozen=before.table)
    assert after.why(test).startswith("test")
    assert places(after)[train] in ("test", "excluded")
    moved = {i for i, place in places(before).items() if places(after)[i] != place}
    assert moved == {train}
    assert after.certify(frame).holds


def test_many_frozen_ids_are_cut_at_200_and_merges_of_none_are_only_counted() -> None:
    known = pl.DataFrame({"example_id": IDS, "component": ["a"] * 300 + IDS[300:], "absorbed": None}, schema=KNOWN)
    grown = night(known, IDS, (IDS[0], IDS[300]), (IDS[301], IDS[302]), frozen=tuple(IDS[:300]))
    about = grown.summary()
    assert len(grown.merges) == 2
    assert about.tables[0].rows[0][:3] == ("a", IDS[300], 300)
    assert len(str(about.tables[0].rows[0][3]).split(", ")) == 201

"""Duplicates over parts, and versions against each other."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradatim.tasks.ingest import identity
from gradatim.tasks.ingest.identity import compare_versions, resolve_duplicates

ROWS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), max_size=25)


def part(rows: list[tuple[str, str]], uri: str, start: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "example_id": pl.Series([r[0] for r in rows], dtype=pl.String),
            "content_hash": pl.Series([r[1] for r in rows], dtype=pl.String),
            "source_uri": pl.Series([uri] * len(rows), dtype=pl.String),
            "source_row": pl.Series(range(start, start + len(rows)), dtype=pl.Int64),
        }
    )


def by_hand(rows: list[tuple[str, str, str, int]], rule: str) -> tuple[set[tuple[str, int]], int, int]:
    """Rows that stay, number of re-delivered, number of rejected: the rule, one id at a time."""
    kept, again, rejected = set(), 0, 0
    for name in {r[0] for r in rows}:
        same = sorted((r for r in rows if r[0] == name), key=lambda r: (r[2], r[3]))
        contents = {r[1] for r in same}
        if len(contents) > 1 and rule == "reject":
            rejected += len(same)
            continue
        stays = same[-1] if len(contents) > 1 and rule == "last" else same[0]
        kept.add((stays[2], stays[3]))
        again += sum(r[1] == stays[1] for r in same) - 1
        rejected += sum(r[1] != stays[1] for r in same)
    return kept, again, rejected


@given(st.lists(ROWS, max_size=4), st.sampled_from(["first", "last", "reject"]), st.randoms(use_true_random=False))
def test_the_rule_holds_for_any_order_of_parts_and_rows(found, rule, random) -> None:  # type: ignore[no-untyped-def]
    parts = [part(rows, f"file{i}") for i, rows in enumerate(found)]
    everything = [row for p in parts for row in p.rows()]
    kept, again, rejected = by_hand(everything, rule)
    shuffled = [p.sample(fraction=1, shuffle=True, seed=random.randrange(1000)) for p in parts]
    random.shuffle(shuffled)
    resolution = resolve_duplicates(shuffled, rule)
    stays: set[tuple[str, int]] = set()
    for p, drop in zip(shuffled, resolution.drop, strict=True):
        gone = set(drop.tolist())
        stays |= {(uri, row) for i, (_, _, uri, row) in enumerate(p.rows()) if i not in gone}
    assert stays == kept
    assert (resolution.redelivered, len(resolution.rejects)) == (again, rejected)


def test_rejects_say_what_and_where() -> None:
    resolution = resolve_duplicates([part([("a", "x"), ("b", "y")], "one"), part([("a", "z")], "two")], "reject", "id")
    assert resolution.rejects.rows() == [
        ("one", 0, "the id comes with 2 different contents", "id", "a"),
        ("two", 0, "the id comes with 2 different contents", "id", "a"),
    ]
    first = resolve_duplicates([part([("a", "x")], "one"), part([("a", "z")], "two")], "first")
    assert [d.tolist() for d in first.drop] == [[], [0]]
    assert first.rejects["reason"].to_list() == ["the id comes with 2 different contents; the first stays"]


def test_buckets_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part([(f"id{i % 40}", "x" if i % 3 else "y") for i in range(100)], f"f{k}") for k in range(3)]
    whole = resolve_duplicates(parts, "first")
    monkeypatch.setattr(identity, "BUCKET", 7)
    cut = resolve_duplicates(parts, "first")
    assert [d.tolist() for d in cut.drop] == [d.tolist() for d in whole.drop]
    assert cut.rejects.equals(whole.rejects)
    assert cut.redelivered == whole.redelivered > 0


def test_no_parts_and_empty_parts_are_fine() -> None:
    assert resolve_duplicates([]).drop == []
    resolution = resolve_duplicates([part([], "a"), part([("a", "x")], "b")])
    assert [len(d) for d in resolution.drop] == [0, 0]


def test_versions_are_compared_id_by_id() -> None:
    before = part([("a", "1"), ("b", "1"), ("c", "1")], "f")
    now = part([("b", "1"), ("c", "2"), ("d", "1"), ("e", "1")], "f")
    seen = compare_versions(before, now)
    assert (seen.new, seen.same, seen.changed, seen.vanished) == (2, 1, 1, 1)
    assert seen.states.rows() == [("a", "vanished"), ("b", "same"), ("c", "changed"), ("d", "new"), ("e", "new")]
    assert compare_versions(None, now).new == 4

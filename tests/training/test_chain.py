"""The audit chain depends on what was trained in each step, and on nothing else."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.training.audit import compare
from gradatim.tasks.training.chain import Link, expected_chain, place, read_links, step_digest, write_links
from gradatim.tasks.training.manifest import Manifest, build, id_hashes, load
from gradatim.tasks.training.order import Plan, World, positions

IDS = [f"e{i}" for i in range(10)]


def manifest(row: list[int] | None = None, weight: float = 1.0) -> Manifest:
    rows = np.array(row if row is not None else [*range(10), *range(9, -1, -1), 3], dtype=np.int64)
    return build(rows, id_hashes(IDS)[rows], np.full(len(rows), weight))


def delivered(found: Manifest, plan: Plan, ranks: int) -> list[Link]:
    """The chain as ranks would build it, each step's parts gathered in any order."""
    digest, links = found.hash, []
    rng = np.random.default_rng(ranks)
    for step in range(plan.steps):
        taken = rng.permutation(
            np.concatenate([p for r in range(ranks) for p in positions(plan, step, World(r, ranks))])
        )
        digest = step_digest(digest, step, taken, found.hashes[taken])
        links.append(Link(step, len(taken), digest))
    return links


def test_the_chain_of_any_number_of_ranks_is_the_manifests() -> None:
    found, plan = manifest(), Plan(21, 6, 1)
    right = list(expected_chain(found, plan))
    assert [link.n for link in right] == [6, 6, 6, 3]
    for ranks in (1, 2, 3, 6):
        assert delivered(found, plan, ranks) == right


def test_the_chain_is_the_documented_bytes() -> None:
    """Written anew from the documentation, and pinned: a run's chain must be checkable for years."""

    def id_digest(name: str) -> bytes:
        cell = struct.pack("<I", 10) + b"example_id" + b"s" + struct.pack("<q", len(name)) + name.encode()
        return b"".join(half.to_bytes(8, "little") for half in divmod(xxhash.xxh3_128_intdigest(cell), 2**64))

    row = [*range(10), *range(9, -1, -1), 3]
    digest = xxhash.xxh3_128_digest(
        b"gradatim order 1" + b"".join(id_digest(IDS[r]) + struct.pack("<f", 1) for r in row)
    )
    found = manifest()
    assert found.hash == digest.hex() == "517be6ffd1c499563565da4212b4d9a1"
    for step, span in enumerate([(0, 12), (12, 21)]):
        taken = b"".join(struct.pack("<q", p) + id_digest(IDS[row[p]]) for p in range(*span))
        digest = xxhash.xxh3_128_digest(digest + struct.pack("<q", step) + taken)
    assert list(expected_chain(found, Plan(21, 12, 1)))[-1].digest == digest.hex() == "50e140d72c7e11dea5547433ac9ef78c"


def test_a_chain_goes_on_from_any_link() -> None:
    found, plan = manifest(), Plan(21, 6, 1)
    right = list(expected_chain(found, plan))
    assert list(expected_chain(found, plan, start=2, before=right[1].digest)) == right[2:]


@pytest.mark.parametrize("change", ["swap", "repeat", "other example", "missing"])
def test_every_kind_of_wrong_step_is_named(change: str) -> None:
    found, plan = manifest(), Plan(21, 6, 1)
    taken = [np.arange(*plan.span(step)) for step in range(plan.steps)]
    hashes = [found.hashes[t].copy() for t in taken]
    if change == "swap":
        taken[1][0], taken[2][5] = taken[2][5], taken[1][0]
        hashes[1], hashes[2] = found.hashes[taken[1]], found.hashes[taken[2]]
    elif change == "repeat":
        taken[1][1] = taken[1][0]
    elif change == "other example":  # the right position, but the loader read another row
        hashes[1][2] = hashes[1][3]
    else:
        taken[1], hashes[1] = taken[1][1:], hashes[1][1:]
    digest, links = found.hash, []
    for step, (t, h) in enumerate(zip(taken, hashes, strict=True)):
        digest = step_digest(digest, step, t, h)
        links.append(Link(step, len(t), digest))
    result = compare("run", found, plan, links)
    assert (result.verdict, result.first, result.audited) == ("differs", 1, 1)
    assert result.reason.startswith("5 examples were trained, the manifest has 6" if change == "missing" else "other")
    assert "step 1" in str(result)
    assert result.summary().headline == str(result)


def test_an_unfinished_chain_is_incomplete_and_a_long_one_differs() -> None:
    found, plan = manifest(), Plan(21, 6, 1)
    right = list(expected_chain(found, plan))
    assert compare("run", found, plan, right).holds
    assert compare("run", found, plan, right[:2]).verdict == "incomplete"
    assert "first 2 of 4 steps" in str(compare("run", found, plan, right[:2]))
    assert compare("run", found, plan, []).verdict == "incomplete"
    assert compare("run", found, plan, [*right, Link(4, 6, "00")]).first == 4
    assert "step 1 belongs" in compare("run", found, plan, [right[0], right[2]]).reason


def test_the_manifest_hash_is_that_of_the_ordered_ids_and_weights() -> None:
    base = manifest()
    assert manifest().hash == base.hash
    assert manifest([*range(10), *range(9, -1, -1), 4]).hash != base.hash
    assert manifest([1, 0, *range(2, 10), *range(9, -1, -1), 3]).hash != base.hash
    assert manifest(weight=0.5).hash != base.hash
    # where the rows lie in a cache does not matter
    moved = build(base.row + 7, base.hashes, base.weight)
    assert moved.hash == base.hash


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    base = manifest()
    base.save(tmp_path / "order.arrow")
    found = load(tmp_path / "order.arrow")
    for name in ("row", "hashes", "weight", "epoch"):
        np.testing.assert_array_equal(getattr(found, name), getattr(base, name))
    assert found.hash == base.hash
    assert pl.read_ipc(tmp_path / "order.arrow").columns == ["row", "id_hash", "weight", "epoch"]
    assert found.epoch.tolist() == [0] * 10 + [1] * 10 + [2]
    with pytest.raises(UsageError, match="no order here"):
        load(tmp_path / "absent.arrow")


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(DataRefused, match="the weight is"):
        manifest(weight=weight)


def test_an_empty_order_is_refused() -> None:
    with pytest.raises(DataRefused, match="no positions"):
        manifest([])


@given(st.lists(st.text(max_size=20), max_size=5))
def test_few_ids_hash_like_many(names: list[str]) -> None:
    few = id_hashes(pa.array(names, pa.string()))
    many = id_hashes(pa.array(names + [f"more {i}" for i in range(2000)], pa.large_string()))
    assert few.tolist() == many[: len(names)].tolist()
    assert few.shape == (len(names), 2)


def test_examples_that_come_twice_in_a_step_get_both_positions() -> None:
    expected = id_hashes(["a", "b", "a", "c"])
    assert place(id_hashes(["c", "a", "b", "a"]), expected, 100).tolist() == [103, 100, 101, 102]
    assert place(id_hashes(["a", "a", "a", "x"]), expected, 0).tolist() == [0, 2, -1, -1]


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    links = list(expected_chain(manifest(), Plan(21, 6, 1)))
    path = tmp_path / "chain.jsonl"
    assert read_links(path) == []
    write_links(path, links[:2])
    write_links(path, links[2:])
    assert read_links(path) == links
    path.write_text(path.read_text()[:-20])
    assert read_links(path) == links[:-1]

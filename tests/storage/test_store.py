"""Stores: safe paths, atomic objects, staging."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gradatim.schemas.errors import UsageError
from gradatim.storage.store import Store


@pytest.mark.parametrize(
    "name", ["..", ".", "", "a/b", "/etc", "../x", "a\\b", "a\x00", "a\n", ".hidden", "x" * 201, "café", "~", "%2e%2e"]
)
def test_a_name_that_could_leave_the_root_is_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="cannot stand in a path"):
        store.key("arith", name)


@pytest.mark.parametrize("name", ["..", "Upper", "a/b", "", "_x", "a" * 65, "a\n"])
def test_a_dataset_needs_a_plain_name(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a dataset"):
        store.dataset(name)


def test_a_link_out_of_the_root_is_neither_read_nor_written(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    assert store.root is not None
    (store.root / "evil").symlink_to(outside)
    (store.root / "arith").mkdir()
    (store.root / "arith" / "examples").symlink_to(outside)
    for act in (
        lambda: store.get("evil/secret"),
        lambda: store.put("evil/new", b"x"),
        lambda: store.create("evil/new", b"x"),
        lambda: store.sizes("evil"),
        lambda: store.dataset("evil"),
        lambda: store.dataset("arith").log("examples"),
        lambda: store.dataset("arith").publish("examples", []),
    ):
        with pytest.raises(UsageError, match="leads out of the store"):
            act()
    assert sorted(p.name for p in outside.iterdir()) == ["secret"]


def test_a_link_to_the_root_itself_and_inside_it_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    store = Store.open(tmp_path / "alias")
    store.put("a/b", b"1")
    assert (tmp_path / "real" / "a" / "b").read_bytes() == b"1"


def test_objects_are_made_once(store: Store) -> None:
    assert store.create("d/x.json", b"1")
    assert not store.create("d/x.json", b"2")
    assert store.get("d/x.json") == b"1"
    store.put("d/x.json", b"3")
    assert store.get("d/x.json") == b"3"
    assert store.get("d/none") is None
    assert store.sizes("d") == {"x.json": 1}
    assert store.sizes("nothing") == {}


def test_a_file_moves_into_the_store_whole(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "part"
    source.write_bytes(b"abc")
    store.put_file("d/t/part", source)
    assert store.get("d/t/part") == b"abc"
    assert not source.exists()


def test_staging_is_gone_afterwards_and_sweeps_what_a_killed_process_left(store: Store) -> None:
    assert store.root is not None
    left = store.root / "arith" / "_staging" / "dead"
    left.mkdir(parents=True)
    (left / "x").write_text("x")
    recent = left.with_name("alive")
    recent.mkdir()
    old = time.time() - 2 * 24 * 3600
    os.utime(left, (old, old))
    with pytest.raises(RuntimeError, match="inside"), store.staging("arith") as folder:  # noqa: PT012
        (folder / "y").write_text("y")
        raise RuntimeError("inside")
    assert [p.name for p in left.parent.iterdir()] == ["alive"]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://key:secret@bucket/prefix", "must not hold credentials"),
        ("s3://bucket/../other", "leaves its bucket"),
        ("ftp://host/x", "is no store"),
    ],
)
def test_a_wrong_store_url_is_explained(location: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Store.open(location)
    assert "secret" not in str(caught.value)


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="no folder that can be written"):
        Store.open(tmp_path / "file")


def test_a_file_url_and_a_path_are_the_same_store(tmp_path: Path) -> None:
    Store.open(f"file://{tmp_path}/s").put("a", b"1")
    assert Store.open(str(tmp_path / "s")).get("a") == b"1"


def test_datasets_are_listed(store: Store) -> None:
    assert store.datasets() == []
    store.put("b/x", b"1")
    store.put("a/x", b"1")
    assert store.datasets() == ["a", "b"]

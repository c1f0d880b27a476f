"""Releases: tables become visible together, once, and splits never on top of another release."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gradatim.schemas.errors import DataRefused, TryAgain, UsageError
from gradatim.storage.releases import released_splits
from gradatim.storage.tables import Dataset

from .conftest import examples, want
from .test_audit import GOOD, _splits


@pytest.fixture
def ready(with_examples: Callable[[int], Dataset]) -> Dataset:
    dataset = with_examples(4)
    dataset.publish("splits", [want("s", _splits(GOOD))], parents=["examples@0"])
    return dataset


def test_a_release_maps_tables_to_versions_and_current_follows_it(ready: Dataset) -> None:
    assert ready.latest_release() is None
    assert released_splits(ready) is None
    first = ready.release({"examples": 0, "splits": 0}, based_on=None, metadata={"recipe": "abc"})
    assert (first.number, first.tables, first.based_on) == (1, {"examples": 0, "splits": 0}, None)
    assert (first.rows["splits"], first.metadata["recipe"]) == (4, "abc")
    assert first.content["examples"] == ready.content_hash("examples@0")
    ready.publish("examples", [want("more", examples(0, 9))])
    assert ready.resolve("examples@current") == ("examples", 0)
    assert ready.resolve("examples") == ("examples", 1)  # a draft: a version without a release
    second = ready.release({"examples": 1}, based_on=1)
    assert second.tables == {"examples": 1, "splits": 0}
    assert (second.number, second.based_on) == (2, 1)
    assert ready.version("examples@current").rows == 9
    assert ready.read_release(1).tables["examples"] == 0
    assert ready.releases() == [1, 2]
    frozen = released_splits(ready)
    assert frozen is not None
    assert frozen.collect().height == 4


def test_splits_are_not_released_on_top_of_another_release(ready: Dataset) -> None:
    ready.release({"examples": 0, "splits": 0}, based_on=None)
    with pytest.raises(TryAgain, match="release 1 came first, and splits depends on what is released") as caught:
        ready.release({"splits": 0}, based_on=None)
    assert caught.value.exit_code == 4
    assert ready.release({"examples": 0}, based_on=None).number == 2  # a table without state may follow
    assert ready.release({"splits": 0}, based_on=2).number == 3


def test_of_two_releases_in_one_moment_one_wins(ready: Dataset) -> None:
    gate = threading.Barrier(4)
    outcomes: list[str] = []

    def act() -> None:
        gate.wait()
        try:
            ready.release({"examples": 0, "splits": 0}, based_on=None)
            outcomes.append("won")
        except TryAgain:
            outcomes.append("again")

    threads = [threading.Thread(target=act) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["again", "again", "again", "won"]
    assert ready.releases() == [1]


def test_a_release_of_what_is_not_there_is_refused(ready: Dataset) -> None:
    with pytest.raises(UsageError, match="no version splits@9"):
        ready.release({"splits": 9}, based_on=None)
    with pytest.raises(UsageError, match="at least one table"):
        ready.release({}, based_on=None)
    with pytest.raises(UsageError, match="there is no release 7"):
        ready.read_release(7)
    ready.release({"examples": 0}, based_on=None)
    with pytest.raises(UsageError, match="release 1 has no splits"):
        ready.resolve("splits@current")


def test_a_damaged_release_file_is_refused(ready: Dataset) -> None:
    ready.release({"examples": 0}, based_on=None)
    ready.store.put("arith/_releases/000001.json", b'{"number": 1')
    with pytest.raises(DataRefused, match="release file is damaged"):
        ready.latest_release()

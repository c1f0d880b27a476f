"""Races and kills: of two publishers one wins and nothing is lost; a killed one leaves nothing half visible."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from gradatim.schemas.errors import TryAgain
from gradatim.storage.casting import Frame
from gradatim.storage.delta import Log
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset

from .conftest import examples, made, never, want


@pytest.mark.parametrize("first", [True, False], ids=["first version", "later version"])
def test_of_two_racing_publishers_one_wins_and_the_other_is_told(dataset: Dataset, first: bool) -> None:
    if not first:
        dataset.publish("examples", [want("old", examples(100, 105))])
    gate = threading.Barrier(2)
    outcomes: dict[str, str] = {}

    def act(name: str, start: int) -> None:
        def produce() -> Iterable[Frame]:
            gate.wait(60)  # both have read the same version by now
            return [examples(start, start + 5)]

        try:
            dataset.publish("examples", [Wanted(made(name), produce, name)], keep_others=True)
            outcomes[name] = "won"
        except TryAgain as error:
            outcomes[name] = "again" if "another publisher came first" in str(error) else str(error)

    threads = [threading.Thread(target=act, args=(name, start)) for name, start in (("a", 0), ("b", 50))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes.values()) == ["again", "won"]
    loser, start = ("a", 0) if outcomes["a"] == "again" else ("b", 50)
    before = 5 if first else 10
    assert dataset.version("examples").rows == before
    dataset.publish("examples", [want(loser, examples(start, start + 5), group=loser)], keep_others=True)
    assert dataset.scan("examples").collect()["example_id"].n_unique() == before + 5
    assert pl.scan_delta(dataset.log("examples").uri).collect().height == before + 5


def test_a_commit_whose_answer_was_lost_is_recognised(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.publish("examples", [want("a", examples(0, 5))])
    real = Log._commit

    def lands_but_fails(self: Log, *args: object) -> None:
        real(self, *args)  # type: ignore[arg-type]
        raise OSError("connection reset")

    monkeypatch.setattr(Log, "_commit", lands_but_fails)
    assert dataset.publish("examples", [never("a"), want("b", examples(5, 6))]).version == 1
    monkeypatch.setattr(Log, "_commit", lambda self, *args: (_ for _ in ()).throw(CommitFailedError("no answer")))
    with pytest.raises(TryAgain, match="the store did not take the commit: no answer"):
        dataset.publish("examples", [never("a"), want("c", examples(7, 8))])
    assert dataset.version("examples").number == 1


_CHILD = """
import os, sys, time
from gradatim.storage import publish as p, store as s
from gradatim.storage.store import Store
sys.path.insert(0, {tests!r})
from storage.conftest import examples, want
when = {when!r}
def stop(*_, **__):
    open({flag!r}, "w").close()
    time.sleep(600)
if when == "writing":
    real = p._validate
    p._validate = stop
elif when == "moving":
    real_put, count = s.Store.put_file, [0]
    def put_file(self, key, source):
        count[0] += 1
        if count[0] == 2:
            stop()
        real_put(self, key, source)
    s.Store.put_file = put_file
else:
    p.Log.commit = stop
wanted = [want("a", examples(0, 5)), want("b", examples(5, 500))]
Store.open({root!r}).dataset("arith").publish("examples", wanted, part_rows=100)
"""


@pytest.mark.parametrize("when", ["writing", "moving", "committing"])
def test_a_publisher_killed_at_any_moment_leaves_nothing_half_visible(
    dataset: Dataset, tmp_path: Path, when: str
) -> None:
    dataset.publish("examples", [want("a", examples(0, 5))])
    flag = tmp_path / "reached"
    code = _CHILD.format(
        tests=str(Path(__file__).parents[1]), when=when, flag=str(flag), root=str(dataset.store.location)
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 300
    while not flag.exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert flag.exists(), f"the child ended with {child.poll()} before it reached the moment"
    child.kill()
    child.wait()
    assert [v.number for v in dataset.versions("examples")] == [0]
    assert dataset.scan("examples").collect().height == 5
    assert DeltaTable(dataset.log("examples").uri).version() == 0
    dataset.verify("examples")
    again = dataset.publish("examples", [never("a"), want("b", examples(5, 500))], part_rows=100)
    assert (again.version, again.rows) == (1, 500)
    dataset.verify("examples")
    assert pl.scan_delta(dataset.log("examples").uri).collect()["example_id"].n_unique() == 500

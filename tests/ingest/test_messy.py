"""Nasty files of public test suites: every one is read or answered with one error, never with a crash."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gradatim.tasks.ingest.reading import Reject

CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
from pathlib import Path
from gradatim.schemas.errors import DataRefused
from gradatim.tasks.ingest.reading import ReadOptions, read_shard, shard_schema, source_schema
from gradatim.tasks.ingest.sources import Shard
for name in sys.stdin.read().splitlines():
    print("start", name, flush=True)
    path = Path(name)
    shard = Shard(path.name, path, path.suffix[1:], path.stat().st_size, "")
    try:
        schema = source_schema({shard.uri: shard_schema(shard, ReadOptions())})
        rows = sum(len(batch.rows) for batch in read_shard(shard, ReadOptions(schema=schema)))
        print("rows", rows, flush=True)
    except DataRefused as error:
        print("refused", json.dumps(str(error)), flush=True)
"""


def _children(files: list[Path], seconds: float = 120) -> dict[str, str]:
    """What became of each file, read in a child process with a memory limit; a crash ends the child, not the test."""
    outcome: dict[str, str] = {}
    left = [str(file) for file in files]
    while left:
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            input="\n".join(left),
            capture_output=True,
            text=True,
            timeout=seconds,
            env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        current = ""
        for line in done.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word == "start":
                current = rest
                outcome[current] = "crashed"
            else:
                outcome[current] = f"{word} {rest}"
        if outcome.get(current) == "crashed":
            outcome[current] = f"crashed {done.returncode} {done.stderr[-300:]}"
        assert current, done.stderr
        left = left[left.index(current) + 1 :]
    return outcome


@pytest.fixture(scope="module")
def outcome(data: Path) -> dict[str, str]:
    return _children(sorted((data / "messy" / "parquet_testing").rglob("*.parquet")))


def test_every_parquet_file_of_the_suite_is_read_or_refused_by_name(data: Path, outcome: dict[str, str]) -> None:
    crashed = {name: what for name, what in outcome.items() if what.startswith("crashed")}
    assert not crashed
    assert len(outcome) > 50
    for name, what in outcome.items():
        if what.startswith("refused"):
            assert Path(name).name in what
    index = {row["path"]: row for row in csv.DictReader((data / "messy" / "INDEX.csv").open())}
    read = {name: int(what.split()[1]) for name, what in outcome.items() if what.startswith("rows")}
    wrong = {
        Path(name).name: (rows, expected)
        for name, rows in read.items()
        if (expected := index[Path(name).relative_to(data / "messy").as_posix()]["rows"]) and int(expected) != rows
    }
    assert not wrong
    assert len(read) > 40


def test_the_suite_s_bad_parquet_files_are_refused(data: Path, outcome: dict[str, str]) -> None:
    files = sorted((data / "messy" / "parquet_testing" / "bad_data").glob("*.parquet"))
    index = {row["path"]: row for row in csv.DictReader((data / "messy" / "INDEX.csv").open())}
    bad = [f for f in files if index[f.relative_to(data / "messy").as_posix()]["status_here"] != "ok"]
    assert bad
    for file in bad:
        assert outcome[str(file)].startswith("refused"), (file.name, outcome[str(file)])


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_random_damage_is_read_or_refused_and_never_crashes(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame(
        {
            "id": [f"q{i}" for i in range(300)],
            "x": [i / 7 for i in range(300)],
            "nested": [{"a": [i, i + 1], "b": "z" * (i % 5)} for i in range(300)],
        }
    )
    buffer = io.BytesIO()
    (frame.write_ipc if kind == "arrow" else frame.write_parquet)(buffer)
    whole, dice = buffer.getvalue(), random.Random(7)
    for number in range(60):
        damaged = bytearray(whole)
        for _ in range(dice.choice([1, 3, 20])):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (tmp_path / f"{number:02}.{kind}").write_bytes(damaged)
    if kind == "arrow":  # a column's name that is no UTF-8
        (tmp_path / "name.arrow").write_bytes(whole.replace(b"nested", b"n\xffsted"))
    outcome = _children(sorted(tmp_path.iterdir()))
    assert {what.split()[0] for what in outcome.values()} == {"rows", "refused"}, outcome
    assert all(Path(name).name in what for name, what in outcome.items() if what.startswith("refused"))


def test_csv_spectrum_is_read_as_its_json_says(data: Path, read_path: Callable[..., Any]) -> None:
    folder = data / "messy" / "csv_spectrum"
    files = sorted((folder / "csvs").glob("*.csv"))
    assert len(files) == 12
    for file in files:
        expected = json.loads((folder / "json" / f"{file.stem}.json").read_text())
        expected = expected if isinstance(expected, list) else [expected]
        names = frozenset(expected[0])
        table, _, rejects = read_path(file, text_columns=names)
        found = [{k: "" if v is None else v for k, v in row.items()} for row in table.to_pylist()]
        if file.stem == "location_coordinates":  # the suite masks a number in its JSON that its CSV still has
            expected = [row | {"Contact Phone Number": found[0]["Contact Phone Number"]} for row in expected]
        # the suite's expectation of a line break inside quotes is the file's own
        assert [{k: v.replace("\r\n", "\n") for k, v in row.items()} for row in found] == [
            {k: v.replace("\r\n", "\n") for k, v in row.items()} for row in expected
        ], file.name
        assert rejects == []


def test_json_suite_as_the_values_of_a_line(data: Path, tmp_path: Path, read_path: Callable[..., Any]) -> None:
    folder = data / "messy" / "json_test_suite" / "test_parsing"
    seen = {"y": 0, "n": 0}
    for file in sorted(folder.glob("[yn]_*.json")):
        content = file.read_bytes()
        if b"\n" in content or b"\r" in content:
            continue  # one value over several lines is no line
        kind = file.name[0]
        (tmp_path / "a.jsonl").write_bytes(b'{"first": 0}\n{"v": ' + content + b"}\n")
        table, rows, rejects = read_path(tmp_path / "a.jsonl")
        bad: list[Reject] = rejects
        assert len(rows) + len(bad) == 2, file.name
        if kind == "n" and content.strip() and not _closes_the_object(content):
            assert [r.row for r in bad] == [1], file.name
        if kind == "y":
            assert rows == [0, 1], file.name
            parsed = json.loads(content)
            value = table["v"].to_pylist()[1] if "v" in table.schema.names else None
            if isinstance(parsed, str):
                assert value == parsed, file.name
        seen[kind] += 1
    assert seen["y"] > 80
    assert seen["n"] > 150


def _closes_the_object(content: bytes) -> bool:
    """Whether a bad document becomes a good one inside our braces, such as ``1,"a":2`` or ``1 }``-like tails."""
    try:
        json.loads(b'{"v": ' + content + b"}", parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError, RecursionError):
        return False
    return True

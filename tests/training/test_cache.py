"""The memory-mapped examples."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.training import cache
from gradatim.tasks.training.cache import Cache


def frame(n: int = 150_000) -> pl.DataFrame:
    return pl.DataFrame({"example_id": [f"e{i:06d}" for i in range(n)], "input": [f"text {i}" for i in range(n)]})


def test_rows_come_in_the_order_asked_for_across_batches(tmp_path: Path) -> None:
    found = Cache(cache.write(frame(), ["input"], tmp_path))
    rows = np.array([140_000, 3, 70_000, 3, 149_999])
    assert found.take(rows)["input"].to_pylist() == [f"text {i}" for i in rows]
    assert found.take(np.array([], dtype=np.int64)).num_rows == 0
    assert len(found) == 150_000
    assert sum(len(part) for part in found.batches(rows)) == 4, "some rows are distinct rows"
    assert pickle.loads(pickle.dumps(found)).take(rows)["example_id"].to_pylist()[0] == "e140000"


def test_the_same_rows_in_any_order_share_one_file(tmp_path: Path) -> None:
    some = frame(100)
    path = cache.write(some, ["input"], tmp_path)
    changed = path.stat().st_mtime_ns
    assert cache.write(some.sample(fraction=1, shuffle=True, seed=3).lazy(), ["input"], tmp_path) == path
    assert path.stat().st_mtime_ns == changed, "written once"
    assert cache.write(some, [], tmp_path) != path
    assert cache.write(some.head(99), ["input"], tmp_path) != path
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".arrow"] * 3


def test_ids_are_found_and_strangers_refused(tmp_path: Path) -> None:
    found = Cache(cache.write(frame(10), ["input"], tmp_path))
    assert found.rows_of(pl.Series(["e000004", "e000001", "e000004"]), where="x").tolist() == [4, 1, 4]
    with pytest.raises(DataRefused, match="1 ids are not among the examples, first 'zz'"):
        found.rows_of(pl.Series(["e000004", "zz"]), where="curriculum")


def test_bad_ids_and_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column 'inptu' \\(did you mean 'input'"):
        cache.write(frame(3), ["inptu"], tmp_path)
    with pytest.raises(DataRefused, match="'e000000' stands twice"):
        cache.write(pl.concat([frame(2), frame(1)]), ["input"], tmp_path)
    with pytest.raises(DataRefused, match="1 rows have no id"):
        cache.write(frame(2).with_columns(example_id=pl.Series(["a", None])), ["input"], tmp_path)
    with pytest.raises(UsageError, match="cache file is gone"):
        Cache(tmp_path / "absent.arrow").take(np.array([0]))

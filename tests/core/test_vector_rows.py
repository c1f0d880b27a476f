"""Vectors that are read some rows at a time: as NumPy would, from memory or disk, in any order of parts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core import mapped, nearest_by_part, vector_rows
from gradatim.tasks.core.embeddings import placed_rows, vectors_of
from gradatim.tasks.core.mapped import collected
from gradatim.tasks.core.neighbour_parts import norms_of, scaled
from gradatim.tasks.core.neighbours import NearestNeighbours
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.core.vector_rows import VectorRows, rows_together, scratch


def normal(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def ids_of(n: int) -> pl.Series:
    return pl.Series("example_id", [f"e{i:05d}" for i in range(n)])


@given(st.integers(0, 60), st.integers(1, 5), st.integers(0, 9), st.booleans(), st.integers(1, 70))
@settings(max_examples=60, deadline=None)
def test_rows_of_rows_are_those_of_numpy(n: int, d: int, seed: int, unit: bool, step: int) -> None:
    random = np.random.default_rng(seed)
    source = normal(n, d, seed)
    source[random.random(n) < 0.1] = 0
    first, second = random.integers(0, max(n, 1), n // 2) if n else np.zeros(0, dtype=np.int64), random.random(n) < 0.5
    expected = scaled(source, norms_of(source)) if unit else source
    rows = VectorRows(source, unit=unit)
    for found, want in (
        (rows, expected),
        (rows.view(first), expected[first]),
        (rows.view(second), expected[second]),
        (rows.view(second).view(np.arange(int(second.sum()))[::-1]), expected[second][::-1]),
    ):
        assert found.shape == want.shape
        assert np.array_equal(found.whole(), want)
        assert np.array_equal(found[2:5], want[2:5])
        assert np.array_equal(np.concatenate([want[:0], *(part for _, part in found.slices(step))]), want)
    assert np.array_equal(rows[second], expected[second])


@pytest.mark.parametrize("n", [1, 10, 8192, 20_000])
def test_the_mean_row_is_that_of_numpy_whatever_the_slices(n: int) -> None:
    source = normal(n, 3) * 1000
    order = np.random.default_rng(1).permutation(n)
    assert np.array_equal(VectorRows(source).mean(), source.mean(axis=0, dtype=np.float64))
    assert np.array_equal(VectorRows(source, order).mean(), source[order].mean(axis=0, dtype=np.float64))
    assert VectorRows(source[:0]).mean().tolist() == [0, 0, 0]


def test_wide_vectors_are_read_in_smaller_slices() -> None:
    assert rows_together(64, 65_536) == rows_together(256, 65_536) == 65_536
    assert rows_together(1024, 65_536) == 16_384
    assert rows_together(10**6, 65_536) == 1024
    steps = [len(part) for _, part in VectorRows(np.zeros((5_000, 8192), dtype=np.float32)).slices()]
    assert steps == [2048, 2048, 904]


def test_a_view_of_all_rows_is_the_rows_themselves_and_copies_nothing() -> None:
    source = normal(50, 4)
    rows = VectorRows(source)
    assert rows.view(np.ones(50, dtype=bool)) is rows
    assert np.shares_memory(rows.whole(), source)
    assert np.shares_memory(rows[10:20], source)
    assert not np.shares_memory(rows.view(np.arange(49)).whole(), source)


def test_what_is_too_large_for_memory_lies_on_disk_and_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_rows, "HELD", 0)
    before = len(list(Path(vector_rows.tempfile.gettempdir()).glob("gradatim-*")))
    made = scratch(100, 3)
    made[:] = 7
    assert made.sum() == 2100
    assert len(list(Path(vector_rows.tempfile.gettempdir()).glob("gradatim-*"))) == before  # it has no name

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UsageError, match=r"(?s)no room for 0\.0 GB of vectors: No space left on device.*TMPDIR"):
        scratch(100, 3)


@pytest.mark.parametrize("nulls", [False, True])
def test_a_table_on_disk_is_the_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nulls: bool) -> None:
    vectors: list[list[float] | None] = [list(row) for row in normal(500, 3).astype(float)]
    if nulls:
        vectors[7] = vectors[450] = None
    kind = pl.Array(pl.Float32, 3)
    table = pl.DataFrame({"example_id": ids_of(500), "embedding": pl.Series(vectors, dtype=kind)})
    mixed = table.sample(fraction=1, shuffle=True, seed=1)
    for start in range(0, 500, 100):
        mixed[start : start + 100].write_parquet(tmp_path / f"{start}.parquet")
    scan = pl.scan_parquet(tmp_path / "*.parquet")
    assert collected(scan).equals(table)
    monkeypatch.setattr(mapped, "HELD", 0)
    monkeypatch.setattr(vector_rows, "HELD", 0)
    found = collected(scan)
    assert found.equals(table)
    ids, rows, lacking = placed_rows({"features_x": found}, "x", "test")
    source = np.frombuffer(found["embedding"].to_arrow().values.buffers()[1], dtype=np.float32)
    assert np.shares_memory(rows.source, source)  # nothing was copied
    whole, plain = vectors_of({"features_x": found}, "x", "test"), vectors_of({"features_x": mixed}, "x", "test")
    assert np.array_equal(whole.matrix, plain.matrix)
    assert np.array_equal(rows.whole(), plain.matrix)
    assert ids.equals(plain.ids)
    assert lacking.to_list() == plain.lacking.to_list() == (["e00007", "e00450"] if nulls else [])


def test_lists_and_doubles_are_read_as_before_and_nan_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "HELD", 0)
    frame = pl.DataFrame({"example_id": ["b", "a"], "embedding": [[1.0, 2.0], [3.0, 4.0]]})
    assert collected(frame.lazy()).equals(frame.sort("example_id"))
    holds = pl.Series([[1.0, 2.0], [3.0, float("nan")]], dtype=pl.Array(pl.Float32, 2))
    with pytest.raises(DataRefused, match="'a' holds NaN"):
        placed_rows({"features_x": collected(frame.with_columns(embedding=holds).lazy())}, "x", "test")
    lacks = pl.Series([[1.0, None], None], dtype=pl.Array(pl.Float32, 2))
    with pytest.raises(DataRefused, match="'b' holds a null"):
        placed_rows({"features_x": frame.with_columns(embedding=lacks)}, "x", "test")


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("base", [7, 64, 1000])
def test_the_nearest_by_parts_is_the_nearest_of_all(metric: str, base: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(3).integers(-2, 3, (300, 3)).astype(np.float32)  # many ties, equal rows and zeros
    among, rows = np.arange(0, 300, 2), np.arange(0, 300, 3)
    ids = ids_of(300)
    near = NearestNeighbours(vectors[among], ids.gather(among), metric=metric)  # type: ignore[arg-type]
    whole = near.search(vectors[rows], 1, ids=ids.gather(rows))
    monkeypatch.setattr(nearest_by_part, "rows_together", lambda _, most: base if most > 65_536 else 11)
    index, measure = nearest_by_part.nearest_by_part(VectorRows(vectors), ids, among, rows, metric=metric)  # type: ignore[arg-type]
    found = whole.index[:, 0] >= 0
    assert np.array_equal(index >= 0, found)
    assert np.allclose(measure, whole.measure[:, 0], rtol=0, atol=1e-8, equal_nan=True)
    if metric == "cosine":
        assert np.array_equal(index[found], among[whole.index[found, 0]])
        assert np.array_equal(measure[found], whole.measure[found, 0])
    none = nearest_by_part.nearest_by_part(VectorRows(vectors), ids, among[:0], rows)
    assert (none[0] == -1).all()


def test_texts_are_not_read_where_vectors_are_named() -> None:
    for name in ("vendi", "coverage", "subsets", "domain_bands", "semdedup", "embedding_shift", "ood_bench"):
        plugin = get("diversity", name)
        more = {"environment": "domain"} if "environment" in plugin.config.model_fields else {}
        texts = plugin.columns(configure(plugin, {"column": "input", **more}))
        vectors = plugin.columns(configure(plugin, {"column": "input", "features": "x", **more}))
        assert any(need.startswith("examples.input") for need in texts), name
        assert not any(need.startswith("examples.input") for need in vectors), name
        assert "features_x.embedding" in vectors

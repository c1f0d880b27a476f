"""Measures of vectors come out the same wherever the vectors lie and however many are read together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gradatim as gd
from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import mapped, nearest_by_part, redundancy, row_numbers, vector_rows
from gradatim.tasks.core.mapped import collected
from gradatim.tasks.core.registry import configure, get

ROWS, WIDTH = 300, 6
BETWEEN = {"environment": "domain", "permutations": 19}
MEASURES: list[tuple[str, dict[str, Any]]] = [
    ("vendi", {"by": "domain"}),
    ("coverage", {}),
    ("coverage", {"metric": "euclidean", "split": "none", "clusters": 9}),
    ("subsets", {}),
    ("domain_bands", {"score": "entropy"}),
    ("semdedup", {"clusters": 5, "largest": 50}),
    ("embedding_shift", BETWEEN),
    ("conditional_wasserstein", {"environment": "domain"}),
]


def rows_of() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Examples and vectors: some equal, some of zeros, some that one side lacks, ids in no order."""
    random = np.random.default_rng(0)
    vectors = (3 * np.eye(WIDTH)[random.integers(0, WIDTH, ROWS)] + random.standard_normal((ROWS, WIDTH))).astype("f4")
    vectors[10:20], vectors[30] = vectors[9], 0
    ids = pl.Series("example_id", [f"e{i:04d}" for i in random.permutation(ROWS)])
    domain = pl.Series("domain", np.array(["a", "b", "c"])[random.integers(0, 3, ROWS)])
    split = pl.Series("split", np.array(["train", "test"])[random.integers(0, 2, ROWS)])
    output = pl.Series("output", np.array(["yes", "no"])[random.integers(0, 2, ROWS)])
    words = pl.Series("input", [f"word{i % 40} and word{i % 7} of {i % 11}" for i in range(ROWS)])
    embedding = pl.Series("embedding", vectors, dtype=pl.Array(pl.Float32, WIDTH))
    return pl.DataFrame([ids, domain, split, output, words]), pl.DataFrame([ids, embedding])[:-20]


def smaller(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Read so many rows together, and keep nothing in memory that could lie on disk."""
    for module in (mapped, row_numbers, vector_rows):
        monkeypatch.setattr(module, "HELD", 0)
    monkeypatch.setattr(row_numbers, "SLICE", rows)
    for module in (vector_rows, nearest_by_part, mapped):
        monkeypatch.setattr(module, "rows_together", lambda _, most: rows)
    monkeypatch.setattr(redundancy, "GATHERED", 2 * rows)


@pytest.mark.parametrize(
    ("name", "settings", "features"),
    [*((name, settings, "x") for name, settings in MEASURES), ("vendi", {}, ""), ("semdedup", {"clusters": 5}, "")],
)
def test_a_measure_is_the_same_on_disk_and_in_small_slices(
    name: str, settings: dict[str, Any], features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, vectors = rows_of()
    if "split" in settings:
        examples, settings = examples.drop("split"), {**settings, "split": ""}
    plugin = get("diversity", name)
    config = configure(plugin, {**settings, "features": features})
    for start in range(0, len(vectors), 100):
        vectors[start : start + 100].write_parquet(tmp_path / f"{start}.parquet")
    scan = pl.scan_parquet(tmp_path / "*.parquet")
    held = plugin.run({"examples": examples} | ({"features_x": vectors} if features else {}), config, 0)
    smaller(monkeypatch, 61)
    mixed = {"examples": collected(examples.lazy())} | ({"features_x": collected(scan)} if features else {})
    found = plugin.run(mixed, config, 0)
    if settings.get("metric") == "euclidean":  # a part of the rows has another largest distance, by which is rounded
        numbers = ["value", "nearest_similarity"]
        assert found.table.drop(numbers).equals(held.table.drop(numbers))
        assert np.allclose(found.table.select(numbers), held.table.select(numbers), rtol=0, atol=1e-7, equal_nan=True)
        assert np.allclose(found.statistics["value"], held.statistics["value"], rtol=1e-7)
    else:
        assert found.table.equals(held.table)
        assert found.statistics.equals(held.statistics)
    assert found.warnings == held.warnings
    assert found.centroids is None or found.centroids.equals(held.centroids)


@pytest.mark.parametrize("measure", ["vendi", "coverage", "near_duplicates", "embedding_shift"])
@pytest.mark.parametrize("matrix", [True, False])
def test_examples_without_ids_beside_vectors_are_told(measure: str, matrix: bool) -> None:
    examples = pl.DataFrame({"input": ["x", "y"], "domain": ["a", "b"]})
    table = pl.DataFrame({"example_id": ["a", "b"], "embedding": [[1.0, 0.0], [0.0, 1.0]]})
    with pytest.raises(UsageError, match="examples has no column 'example_id'"):
        gd.diversity(examples, measure, features={"x": np.eye(2) if matrix else table})

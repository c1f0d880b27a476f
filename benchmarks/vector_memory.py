"""Peak memory of the measures of vectors at one and at five million rows, and the bytes a row that it grows by."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS, WIDTH, CENTRES, DOMAINS, CLUSTERS = 1_000_000, 64, 2_000, 20, 200
PART = 500_000
MEASURES: dict[str, dict[str, Any]] = {
    "reading": {},
    "vendi": {"by": "domain"},
    "k-means": {},
    "coverage": {"clusters": CLUSTERS, "queries": 2_000},
    "subsets": {},
    "domain_bands": {},
    "semdedup": {},
    "embedding_shift": {"environment": "domain", "left": "d00", "right": "d01", "permutations": 19},
}
"""Measures with their settings; reading is part of each, k-means of some."""
GROWTH = 1.15
"""Most that anonymous memory may grow; vectors in memory would be 256 bytes a row, a column of ids 16."""


def write(folder: Path, rows: int) -> None:
    """Write examples and vectors in parts, whose ids lie across each other."""
    import numpy as np
    import polars as pl

    centres = np.random.default_rng(0).standard_normal((CENTRES, WIDTH), dtype=np.float32)
    for start in range(0, rows, PART):
        random = np.random.default_rng(start + 1)
        number = np.arange(start, start + PART)
        vectors = random.standard_normal((PART, WIDTH), dtype=np.float32)
        vectors += centres[random.integers(0, CENTRES, PART)]
        ids = pl.Series("example_id", number * 7_919 % rows).cast(pl.String).str.zfill(9)
        domain = pl.Series("domain", random.integers(0, DOMAINS, PART)).cast(pl.String).str.zfill(2)
        frame = pl.DataFrame({"example_id": ids, "domain": "d" + domain})
        embedding = pl.Series("embedding", vectors, dtype=pl.Array(pl.Float32, WIDTH))
        frame.write_parquet(folder / f"examples-{start}.parquet")
        frame.select("example_id").with_columns(embedding).write_parquet(
            folder / f"features-{start}.parquet", row_group_size=131_072, compression="uncompressed"
        )


def measure(name: str, folder: str) -> dict[str, float]:
    """Take one measure in this process as a step does; returns the seconds that it takes."""
    import polars as pl

    from gradatim.tasks.core.clusters import k_means
    from gradatim.tasks.core.mapped import collected
    from gradatim.tasks.core.registry import configure, get
    from gradatim.tasks.diversity.vectors import locate

    start = time.perf_counter()
    tables = {
        name: collected([pl.scan_parquet(file) for file in sorted(Path(folder).glob(f"{files}-*.parquet"))])
        for name, files in (("examples", "examples"), ("features_x", "features"))
    }
    read = time.perf_counter()
    if name == "k-means":
        found = locate(tables, "x", "", "benchmark")
        k_means(found.matrix, CLUSTERS, ids=found.ids).assign(found.matrix)
    elif name != "reading":
        plugin = get("diversity", name)
        plugin.run(tables, configure(plugin, {"features": "x", **MEASURES[name]}), 0)
    return {"reading (s)": read - start, "seconds": time.perf_counter() - read}


def run(measures: str = "") -> dict[str, Any]:
    """Run each in child processes; `measures` names some of them, with commas."""
    from benchmarks.memory import watched

    figures: dict[str, Any] = {name: {} for name in measures.split(",") if name} or {name: {} for name in MEASURES}
    for rows in (ROWS, 5 * ROWS):
        with tempfile.TemporaryDirectory(prefix="vectors-") as folder:
            write(Path(folder), rows)
            for name in figures:
                call = f"measure({name!r}, {folder!r})"
                code = f"import json; from benchmarks.vector_memory import *; print(json.dumps({call}))"
                said, peak = watched([sys.executable, "-c", code], Path(__file__).parents[1])
                told = {**json.loads(said.splitlines()[-1]), "peak MB": peak / 1e6}
                figures[name][f"{rows:,} x {WIDTH}"] = told
                print(name, f"{rows:,}", told, file=sys.stderr, flush=True)
    for found in figures.values():
        few, many = (part["peak MB"] for part in found.values())
        found["ratio"] = many / few
        found["bytes a row"] = (many - few) * 1e6 / (4 * ROWS)
        found[f"5M within {GROWTH:g} times the memory of 1M"] = found["ratio"] <= GROWTH
    return figures


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:]), indent=1))

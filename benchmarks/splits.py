"""Rule splits of ten million rows: seconds and peak memory of each, in a child process of its own.

Ids of twelve signs, three factors of 20 values and a whole number; with the random control, without difficulty. The
rows are there when the clock starts; the memory is that of the whole process, rows included.
`python -m benchmarks.splits ROWS` takes another number of rows.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.memory import peak_memory

ROWS = 10_000_000
SECONDS, MEMORY = 15.0, 3.0
RULES: dict[str, dict[str, Any]] = {
    "threshold": {"column": "n_steps", "train": "<= 9"},
    "holdout_values": {"column": "colour", "fraction": 0.2},
    "holdout_combinations": {"columns": ["colour", "shape", "size"], "r": 2, "fraction": 0.05, "keep_values": 10},
    "grid": {"columns": ["colour", "shape"], "k": 12},
    "subspace": {"train": "n_steps <= 9 and colour not in ['colour 3', 'colour 7']"},
}


def frame(rows: int) -> pl.DataFrame:
    """Return rows with three factors and a number."""
    chance = np.random.default_rng(0)
    columns = {"example_id": pl.int_range(rows, eager=True).cast(pl.String).str.zfill(12)}
    for name in ("colour", "shape", "size"):
        values = pl.Series([f"{name} {i}" for i in range(20)])
        columns[name] = values.gather(pl.Series(chance.integers(0, 20, rows, dtype=np.uint32)))
    columns["n_steps"] = pl.Series(chance.integers(1, 13, rows))
    return pl.DataFrame(columns)


def one(name: str, rows: int) -> tuple[float, float]:
    """Build one split in this process; returns seconds and peak memory in GB."""
    from gradatim.tasks.core.registry import configure, get

    examples = frame(rows)
    plugin = get("split", name)
    config = configure(plugin, RULES[name])
    start = time.perf_counter()
    split = plugin.run({"examples": examples}, config, 0)
    seconds = time.perf_counter() - start
    assert len(split.main) == rows
    return seconds, peak_memory() / 1e9


def run(rows: int = ROWS) -> dict[str, float | bool]:
    """Return seconds and memory of each rule, and whether all keep the limits."""
    figures: dict[str, float | bool] = {"rows": rows}
    for name in RULES:
        code = f"from benchmarks.splits import one; print(*one({name!r}, {rows}))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
        )
        figures[f"{name} (s)"], figures[f"{name} (GB)"] = map(float, done.stdout.splitlines()[-1].split())
    slowest = max(float(figures[f"{name} (s)"]) for name in RULES)
    most = max(float(figures[f"{name} (GB)"]) for name in RULES)
    return {**figures, f"under {SECONDS:g} s": slowest < SECONDS, f"under {MEMORY:g} GB": most < MEMORY}


if __name__ == "__main__":
    for figure, value in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS).items():
        print(f"{figure:32} {value}")

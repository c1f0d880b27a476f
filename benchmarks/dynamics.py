"""Training dynamics of a million examples over ten epochs, beside the usual way: a dict of lists filled row by row.

The peer does what published scripts do: it collects each example's values in a dict and takes mean and standard
deviation one example at a time. It is run on a subset of the examples and its time is scaled by the rows, which favours
it: a larger dict is slower.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

EXAMPLES, EPOCHS, SUBSET = 1_000_000, 10, 50_000
LONGEST, LARGEST, LEAST_SPEEDUP = 10.0, 4e9, 3.0


def write(path: Path, examples: int = EXAMPLES) -> None:
    """Write dynamics in random order inside of each epoch, as training leaves them."""
    random = np.random.default_rng(0)
    ids = pl.Series([f"{i * 2654435761 % 2**64:032x}" for i in range(examples)])
    parts = []
    for epoch in range(EPOCHS):
        p = random.random(examples, dtype=np.float32)
        parts.append(
            pl.DataFrame(
                {
                    "run_id": pl.repeat("run", examples, eager=True),
                    "position": np.arange(examples) + epoch * examples,
                    "example_id": ids.gather(random.permutation(examples)),
                    "epoch": pl.repeat(epoch, examples, dtype=pl.Int32, eager=True),
                    "gold_probability": p,
                    "correct": p > 0.5,
                    "error_norm": np.float32(1.414) * (1 - p),
                }
            )
        )
    pl.concat(parts).write_parquet(path, row_group_size=131_072)


def ours(path: Path, method: str) -> dict[str, float]:
    """Measure one method in a fresh process: seconds without imports, peak memory in bytes."""
    code = (
        "import sys, time, polars as pl\n"
        "from gradatim.tasks.core.registry import get\n"
        "from benchmarks.memory import peak_memory\n"
        "plugin = get('difficulty', sys.argv[2])\n"
        "tables = {'dynamics': pl.scan_parquet(sys.argv[1])}\n"
        "start = time.perf_counter()\n"
        "found = plugin.run(tables, plugin.config(), 0)\n"
        "print(time.perf_counter() - start, peak_memory(), found.table['value'].sum())\n"
    )
    found = subprocess.run([sys.executable, "-c", code, str(path), method], capture_output=True, text=True, check=True)
    seconds, memory, total = map(float, found.stdout.split()[-3:])
    return {"seconds": seconds, "memory": memory, "sum": total}


def peer(path: Path) -> tuple[float, float]:
    """Collect values in a dict of lists, row by row: seconds, and the sum of 1 - confidence."""
    start = time.perf_counter()
    values: dict[str, list[float]] = {}
    right: dict[str, list[bool]] = {}
    rows = pl.read_parquet(path, columns=["example_id", "gold_probability", "correct"])
    for example, p, correct in rows.iter_rows():
        values.setdefault(example, []).append(p)
        right.setdefault(example, []).append(correct)
    total = 0.0
    for example, found in values.items():
        confidence, _variability, _count = float(np.mean(found)), float(np.std(found)), sum(right[example])
        total += 1.0 - confidence
    return time.perf_counter() - start, total


def run() -> dict[str, Any]:
    """Run both and compare."""
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder, "whole.parquet"), Path(folder, "part.parquet")
        write(whole)
        write(part, SUBSET)
        mine = {method: ours(whole, method) for method in ("confidence", "forgetting", "el2n")}
        their_seconds, their_sum = peer(part)
        same = abs(ours(part, "confidence")["sum"] - their_sum) < 1e-6 * SUBSET
    scaled = their_seconds * EXAMPLES / SUBSET
    found: dict[str, Any] = {
        f"{method}, 1M x 10": {"seconds": told["seconds"], "peak memory (GB)": told["memory"] / 1e9}
        for method, told in mine.items()
    }
    ratio = scaled / mine["confidence"]["seconds"]
    return {
        **found,
        "dict of lists, scaled (s)": scaled,
        "ratio": ratio,
        "same sum": same,
        f"each within {LONGEST:g} s": all(told["seconds"] <= LONGEST for told in mine.values()),
        f"each within {LARGEST / 1e9:g} GB": all(told["memory"] <= LARGEST for told in mine.values()),
        f"at least {LEAST_SPEEDUP:g} times as fast": ratio >= LEAST_SPEEDUP,
    }


if __name__ == "__main__":
    told = run()
    print(told)
    sys.exit(1 if any(value is False for value in told.values()) else 0)

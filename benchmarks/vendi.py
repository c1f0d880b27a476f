"""The Vendi score of a million vectors in the dual form, beside NumPy in one run, and its memory at 1M and 5M rows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS, WIDTH = 1_000_000, 256
LIMIT = 2.0
"""Seconds on two cores, beyond reading."""
GROWTH = 1.1
"""Peak memory of five million rows over that of one million."""


def streamed(rows: int) -> Iterator[Any]:
    """Give rows batch by batch, as a reader of Parquet does."""
    import numpy as np

    for start in range(0, rows, 50_000):
        yield np.random.default_rng(start).standard_normal((min(50_000, rows - start), WIDTH), dtype=np.float32)


def stream(rows: int) -> dict[str, float]:
    """Score a stream in this process; returns the score and the peak memory in MB."""
    from benchmarks.memory import peak_memory
    from gradatim.tasks.core.reduce import moments
    from gradatim.tasks.diversity.spectra import vendi_score_moments
    from gradatim.tasks.diversity.vectors import directed

    score = vendi_score_moments(moments(streamed(rows), prepare=directed))
    return {"score": score, "peak MB": peak_memory() / 1e6}


def side_by_side() -> dict[str, float]:
    """Score a million rows in memory with ours and with NumPy's whole product in float64: seconds and agreement."""
    import numpy as np

    from gradatim.tasks.core.reduce import moments
    from gradatim.tasks.diversity.spectra import vendi_score_moments
    from gradatim.tasks.diversity.vectors import directed

    rows = np.concatenate(list(streamed(ROWS)))

    def ours() -> float:
        return vendi_score_moments(moments([rows], prepare=directed))

    def numpy() -> float:
        unit = rows.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        share = np.linalg.eigvalsh(unit.T @ unit / len(unit))
        return float(np.exp(-np.sum(share * np.log(share))))

    figures: dict[str, float] = {}
    for name, score in (("ours", ours), ("numpy", numpy)):
        wall, busy, found = [], [], 0.0
        for _ in range(3):
            start, process = time.perf_counter(), time.process_time()
            found = score()
            wall.append(time.perf_counter() - start)
            busy.append(time.process_time() - process)
        figures |= {f"{name} (s)": min(wall), f"{name} (s of both cores)": min(busy), f"{name} score": found}
    return figures


def run() -> dict[str, Any]:
    """Run in child processes, whose memory is told."""
    figures = {}
    for name, call in (("1M", f"stream({ROWS})"), ("5M", f"stream({5 * ROWS})"), ("in memory", "side_by_side()")):
        command = [sys.executable, "-c", f"import json; from benchmarks.vendi import *; print(json.dumps({call}))"]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        figures[name] = json.loads(said.stdout.splitlines()[-1])
    both = figures["in memory"]
    return {
        f"{ROWS:,} x {WIDTH}": both,
        "ratio to numpy": both["numpy (s)"] / both["ours (s)"],
        "difference from numpy": abs(both["ours score"] - both["numpy score"]),
        f"within {LIMIT:g} s": both["ours (s)"] <= LIMIT,
        "streamed 1M": figures["1M"],
        "streamed 5M": figures["5M"],
        "memory does not grow": figures["5M"]["peak MB"] <= GROWTH * figures["1M"]["peak MB"],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

"""What `import gradatim` costs, beside `import polars`: each in fresh interpreters, in turn."""

from __future__ import annotations

import statistics
import subprocess
import sys

REPEATS = 5
LIMIT = 0.5  # seconds
_CODE = "import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"


def seconds(name: str) -> float:
    """Time one import in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", _CODE.format(name=name)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def run() -> dict[str, float | bool]:
    """Return medians over interleaved repeats, their ratio, and whether the limit holds."""
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(seconds("gradatim"))
        theirs.append(seconds("polars"))
    gradatim, polars = statistics.median(ours), statistics.median(theirs)
    return {
        "gradatim (s)": gradatim,
        "polars (s)": polars,
        "ratio to polars": gradatim / polars,
        f"under {LIMIT} s": gradatim < LIMIT,
    }

"""k-means of a million vectors into a thousand, beside faiss in one run, and its memory at 1M and 5M streamed rows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS, WIDTH, K = 1_000_000, 256, 1_000
LIMIT = 180.0
"""Seconds on two cores, with the cluster of every row."""
GROWTH = 1.1
"""Peak memory of five million rows over that of one million."""


def streamed(rows: int, step: int = 50_000) -> Iterator[Any]:
    """Give rows around a thousand centres, batch by batch."""
    import numpy as np

    centres = np.random.default_rng(0).standard_normal((K, WIDTH), dtype=np.float32)
    for start in range(0, rows, step):
        random = np.random.default_rng(start + 1)
        batch = random.standard_normal((min(step, rows - start), WIDTH), dtype=np.float32)
        batch += centres[random.integers(0, K, len(batch))]
        yield batch


def stream(rows: int) -> dict[str, float]:
    """Fit a hashed sample of a stream, then give each batch its clusters: entropy of their sizes and peak memory."""
    import numpy as np
    import polars as pl

    from benchmarks.memory import peak_memory
    from gradatim.schemas.hashing import uniform
    from gradatim.tasks.core.clusters import k_means, occupancy_entropy

    share, kept, ids, first = 100 * K / rows, [], [], 0
    for batch in streamed(rows):
        names = pl.int_range(first, first + len(batch), eager=True).cast(pl.String).str.zfill(9)
        picks = np.flatnonzero(uniform(names, 0, "benchmark") < share)
        kept, ids, first = [*kept, batch[picks]], [*ids, *names.gather(picks)], first + len(batch)
    found = k_means(np.concatenate(kept), K, ids=ids)
    size = np.zeros(len(found), dtype=np.int64)
    for batch in streamed(rows):
        size += np.bincount(found.assign(batch)[0], minlength=len(found))
    return {"occupancy entropy": occupancy_entropy(size), "peak MB": peak_memory() / 1e6}


def side_by_side() -> dict[str, float]:
    """Cluster a million rows in memory with ours and with faiss: seconds and inertia over all rows."""
    import faiss
    import numpy as np

    from gradatim.tasks.core.clusters import k_means

    rows = np.concatenate(list(streamed(ROWS)))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    start, process = time.perf_counter(), time.process_time()
    found = k_means(rows, K)
    fitted = time.perf_counter()
    _, cosine = found.assign(rows)
    seconds, busy = time.perf_counter() - start, time.process_time() - process
    begin = time.perf_counter()
    peer = faiss.Kmeans(WIDTH, K, niter=25, spherical=True, max_points_per_centroid=100, seed=0)
    peer.train(rows)
    theirs, _ = peer.index.search(rows, 1)
    ended = time.perf_counter()
    return {
        "ours (s)": seconds,
        "of which fit (s)": fitted - start,
        "ours (s of both cores)": busy,
        "iterations": found.iterations,
        "ours inertia": float((2 - 2 * cosine).mean()),
        "faiss (s)": ended - begin,
        "faiss inertia": float((2 - 2 * theirs).mean()),
    }


def run() -> dict[str, Any]:
    """Run in child processes, whose memory is told."""
    figures = {}
    for name, call in (("1M", f"stream({ROWS})"), ("5M", f"stream({5 * ROWS})"), ("in memory", "side_by_side()")):
        command = [sys.executable, "-c", f"import json; from benchmarks.clusters import *; print(json.dumps({call}))"]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        figures[name] = json.loads(said.stdout.splitlines()[-1])
    both = figures["in memory"]
    return {
        f"{ROWS:,} x {WIDTH} into {K:,}": both,
        f"within {LIMIT:g} s": both["ours (s)"] <= LIMIT,
        "inertia at most that of faiss": both["ours inertia"] <= 1.005 * both["faiss inertia"],
        "streamed 1M": figures["1M"],
        "streamed 5M": figures["5M"],
        "memory does not grow": figures["5M"]["peak MB"] <= GROWTH * figures["1M"]["peak MB"],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

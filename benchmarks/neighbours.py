"""`knn` of a million examples against 50,000 labelled ones, and the search beside scikit-learn and NumPy in one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROWS, LABELLED, WIDTH, K = 1_000_000, 50_000, 256, 50
PEER_QUERIES = 8_192
LIMIT = 180.0
"""Seconds that the whole method may take on two cores."""
LEAST_SPEEDUP = 1.5
"""Over NumPy's product and argpartition."""


def vectors(rows: int, seed: int = 0) -> Any:
    """Draw clustered vectors: (rows, WIDTH) float32, and each one's cluster."""
    import numpy as np

    random = np.random.default_rng(seed)
    cluster = random.integers(0, 1000, rows)
    matrix = random.standard_normal((rows, WIDTH), dtype=np.float32)
    matrix += random.standard_normal((1000, WIDTH), dtype=np.float32)[cluster]
    return matrix, cluster


def whole() -> dict[str, float]:
    """Predict a million difficulties in this process: seconds, peak memory and how well."""
    import numpy as np
    import polars as pl

    import gradatim as gd
    from benchmarks.memory import peak_memory

    matrix, cluster = vectors(ROWS)
    truth = np.random.default_rng(1).normal(size=1000)[cluster] + 0.3 * np.random.default_rng(2).normal(size=ROWS)
    ids = pl.int_range(ROWS, eager=True).cast(pl.String).str.zfill(7)
    score = pl.Series(truth).scatter(np.arange(LABELLED, ROWS), None)
    examples = pl.DataFrame({"example_id": ids, "score": score})
    embedding = pl.Series("embedding", matrix, dtype=pl.Array(pl.Float32, WIDTH))
    features = pl.DataFrame({"example_id": ids, "embedding": embedding})
    before = peak_memory()
    start, busy = time.perf_counter(), time.process_time()
    d = gd.difficulty("knn", examples=examples, features={"x": features}, column="score", k=K)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    value = d.table["value"].to_numpy()[LABELLED:]
    return {
        "seconds": seconds,
        "seconds of both cores": busy,
        "peak GB": peak_memory() / 1e9,
        "of which data GB": before / 1e9,
        "correlation with the truth": float(np.corrcoef(value, truth[LABELLED:])[0, 1]),
    }


def beside_peers() -> dict[str, float | bool]:
    """Search for some thousand queries with ours, scikit-learn and NumPy: seconds, ratios, and whether all agree."""
    import numpy as np
    from sklearn.neighbors import NearestNeighbors as Peer

    from gradatim.tasks.core.neighbours import NearestNeighbours

    labelled, _ = vectors(LABELLED)
    queries, _ = vectors(PEER_QUERIES, seed=3)

    def ours() -> Any:
        return NearestNeighbours(labelled).search(queries, K).index

    unit = labelled / np.linalg.norm(labelled, axis=1, keepdims=True)
    asked = queries / np.linalg.norm(queries, axis=1, keepdims=True)

    def scikit_learn() -> Any:
        return Peer(n_neighbors=K, algorithm="brute").fit(unit).kneighbors(asked, return_distance=False)

    def numpy() -> Any:
        parts = []
        for start in range(0, PEER_QUERIES, 1024):
            away = -(asked[start : start + 1024] @ unit.T)
            parts.append(np.argpartition(away, K, axis=1)[:, :K])
        return np.concatenate(parts)

    seconds, found = {}, {}
    for name, search in (("ours", ours), ("scikit-learn", scikit_learn), ("numpy argpartition", numpy)):
        times = []
        for _ in range(2):
            start = time.perf_counter()
            found[name] = np.sort(search(), axis=1)
            times.append(time.perf_counter() - start)
        seconds[name] = min(times)
    same = float(np.mean(found["ours"] == found["scikit-learn"]))
    return {
        **{f"{name} (s)": value for name, value in seconds.items()},
        "ratio to scikit-learn": seconds["scikit-learn"] / seconds["ours"],
        "ratio to numpy argpartition": seconds["numpy argpartition"] / seconds["ours"],
        "share of neighbours equal to scikit-learn's": same,
        f"at least {LEAST_SPEEDUP:g} times numpy": seconds["numpy argpartition"] >= LEAST_SPEEDUP * seconds["ours"],
    }


def run() -> dict[str, Any]:
    """Search beside the peers here, then predict a million difficulties in a child process, whose memory is told."""
    peers = beside_peers()
    command = [sys.executable, "-c", "import json; from benchmarks.neighbours import whole; print(json.dumps(whole()))"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    figures = json.loads(said.stdout.splitlines()[-1])
    words = f"knn of {ROWS:,} x {WIDTH} against {LABELLED:,}"
    return {f"{PEER_QUERIES:,} queries": peers, words: figures, f"within {LIMIT:g} s": figures["seconds"] <= LIMIT}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

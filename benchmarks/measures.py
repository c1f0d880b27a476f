"""What measures say they take, as `gradatim plan` reads it, beside what they take: each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROWS, WIDTH = 100_000, 64
SETTINGS: dict[str, dict[str, Any]] = {
    "contamination": {"evaluation": "split"},
    "hill": {"column": "template"},
    "factor_coverage": {"factors": ["template", "label"]},
    "ood_bench": {"label": "label"},
    "label_shift": {"label": "label"},
    "conditional_wasserstein": {"label": "label"},
    "nico": {"label": "label"},
    "embedding_shift": {"label": ""},
    "subsets": {"label": "label", "nuisance": "template"},
}
CHILD = """
import json, os, resource, sys, time
import numpy as np
import polars as pl
import gradatim as gd
from gradatim.tasks.core.registry import plugins
name, rows, width, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
rng = np.random.default_rng(0)
place = np.arange(rows)
words = np.array([f"w{i}" for i in range(5000)])[(rng.pareto(1.0, (rows, 15)) * 20).astype(int) % 5000]
frame = pl.DataFrame({
    "example_id": [f"e{i:07d}" for i in range(rows)],
    "input": [" ".join(row) for row in words],
    "domain": np.array(["web", "books", "code"])[place % 3],
    "label": np.array(["u", "v"])[place // 3 % 2],
    "template": [f"t{i}" for i in rng.integers(0, 300, rows)],
    "split": np.where(place % 50 == 0, "test", "train"),
    "n_steps": rng.integers(0, 40, rows), "score": rng.random(rows),
})
plugin = plugins("diversity")[name]
features, answers = None, None
if width:
    vectors = rng.standard_normal((rows, width)).astype(np.float32)
    features = {"own": frame.select("example_id", embedding=pl.Series(vectors, dtype=pl.Array(pl.Float32, width)))}
if name == "domain_agreement":
    answers = pl.concat([
        frame.select("example_id", respondent_id=pl.lit(f"r{r}"), score=pl.Series(rng.integers(0, 2, rows) * 1.0))
        for r in range(3)
    ])
before = resource.getrusage(resource.RUSAGE_SELF)
start, used = time.perf_counter(), time.process_time()
gd.diversity(frame, name, features=features, responses=answers, **settings)
wall, cpu = time.perf_counter() - start, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
cost = plugin.cost(rows, width)
told = {"wall": wall, "cpu": cpu, "grown": peak - before.ru_maxrss * 1024}
print(json.dumps({**told, "seconds": cost.seconds, "bytes": cost.bytes}))
"""


def run() -> dict[str, Any]:
    """Take every measure of 100,000 texts, and those of vectors on vectors too; compare with their costs."""
    from gradatim.tasks.core.registry import plugins

    found: dict[str, Any] = {"rows": ROWS}
    within = True
    for name, plugin in plugins("diversity").items():
        widths = [0, WIDTH] if any("features_" in need for need in plugin.needs) else [0]
        for width in widths:
            told = measured(name, width)
            ratio = told["seconds"] / told["wall"]
            label = f"{name}{f' of {width} numbers' if width else ''}"
            found[label] = {"planned s": told["seconds"], "real s": told["wall"], "processor s": told["cpu"]}
            found[label] |= {"planned MB": told["bytes"] / 1e6, "more MB": told["grown"] / 1e6}
            within = within and (0.5 <= ratio <= 2 or max(told["seconds"], told["wall"]) < 2)
    found["every time within a factor of two, or below two seconds"] = within
    return found


def measured(name: str, width: int, rows: int = ROWS) -> dict[str, float]:
    """Take one measure in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", CHILD, name, str(rows), str(width), json.dumps(SETTINGS.get(name, {}))]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=900)
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

"""What `gradatim plan` foretells beside what a run takes: seconds and peak memory, each within a factor of two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS = 300_000
RECIPE = """
dataset: planned
store: runs/
examples: {from: items.jsonl, id: id, input: question, output: answer, domain: kind}
difficulty:
  - length
diversity:
  - hill: {column: domain}
splits:
  - length: {column: n_steps, train: "<= 6"}
curriculum: {by: length, arms: [curriculum, random], passes: 2}
"""
CHILD = """
import json
from gradatim.flows.runtime import quiet_prefect
from pathlib import Path
quiet_prefect(Path("runs/.prefect"), ignore_server=True)
from gradatim.flows.local import run_flow
run_flow("curate", "recipe.yaml", quiet=True, verbose=False)
from benchmarks.memory import peak_memory
print(json.dumps(peak_memory()))
"""


def run() -> dict[str, Any]:
    """Plan a recipe over 300,000 rows, run it in a process of its own, and compare."""
    from gradatim.flows.plan import plan_recipe

    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        with (base / "items.jsonl").open("w", encoding="utf-8") as file:
            for i in range(ROWS):
                row = {
                    "id": f"q{i:07d}",
                    "question": f"what is {i} plus {i * 7 % 1001} and {'one more ' * (i % 9)}",
                    "answer": str(i),
                    "n_steps": 1 + i % 9,
                    "kind": f"kind-{i % 50}",
                }
                file.write(json.dumps(row) + "\n")
        (base / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
        planned = plan_recipe(str(base / "recipe.yaml"), str(base / "runs"), None).extra
        start = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            cwd=base,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=900,
        )
        seconds, memory = time.perf_counter() - start, json.loads(done.stdout.splitlines()[-1])
    time_ratio, memory_ratio = planned["seconds"] / seconds, planned["bytes"] / memory
    return {
        "rows": ROWS,
        "planned rows": planned["rows"],
        "planned seconds": round(planned["seconds"], 1),
        "real seconds": round(seconds, 1),
        "planned MB": round(planned["bytes"] / 1e6),
        "real MB": round(memory / 1e6),
        "time within a factor of two": 0.5 <= time_ratio <= 2,
        "memory within a factor of two": 0.5 <= memory_ratio <= 2,
    }


if __name__ == "__main__":
    print(run())

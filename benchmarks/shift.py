"""Shift of every column of ten million rows, of embeddings, and the memory that counting by parts takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROWS = 10_000_000
LIMIT = 20.0
"""Seconds in which every column of ten million rows should be compared on two cores."""
GROWTH = 1.15
"""Times by which peak memory may grow from one to five million rows that are counted part by part."""
VECTORS, WIDTH = 100_000, 256


def part(rows: int, number: int) -> Any:
    """Make a part of a table with the columns that such tables have."""
    import numpy as np
    import polars as pl

    random = np.random.default_rng(number)
    domain = random.integers(0, 3, rows)
    steps = random.poisson(6 + domain)
    return pl.DataFrame(
        {
            "example_id": pl.Series(np.arange(rows) + number * rows).cast(pl.String),
            "domain": pl.Series(np.array(["web", "books", "code"])[domain]),
            "template": pl.Series(np.array([f"t{i}" for i in range(2000)])[random.integers(0, 2000, rows)]),
            "output": pl.Series(np.array([str(i) for i in range(100)])[random.integers(0, 100, rows)]),
            "level": steps.astype(np.int32),
            "length_input": random.lognormal(5 + 0.1 * domain, 1, rows).astype(np.int64),
            "length_output": random.lognormal(3, 1, rows).astype(np.int64),
            "loss": random.standard_normal(rows) + 0.2 * domain,
            "created_at": random.integers(1_600_000_000, 1_700_000_000, rows),
        }
    )


def columns() -> dict[str, float]:
    """Compare every column of the whole table in this process: seconds and peak memory."""
    import polars as pl

    import gradatim as gd
    from benchmarks.memory import peak_memory

    frame = pl.concat([part(1_000_000, i) for i in range(ROWS // 1_000_000)])
    before = peak_memory()
    start = time.perf_counter()
    found = gd.diversity(frame, "column_shift")
    seconds = time.perf_counter() - start
    assert found.value("wasserstein(loss)", "domain=books", "domain=web") > 0.1
    return {
        "seconds": seconds,
        "columns": float(len(found.parameters["columns"])),
        "peak GB": peak_memory() / 1e9,
        "of which data GB": before / 1e9,
    }


def streamed(rows: int) -> dict[str, float]:
    """Count the columns of a table that is made part by part, so that no more than a part is in memory."""
    import polars as pl

    from benchmarks.memory import peak_memory
    from gradatim.tasks.diversity.column_counts import Counts, merge, partial
    from gradatim.tasks.diversity.environments import codes

    whole: dict[str, Counts] = {}
    for number in range(rows // 500_000):
        frame = part(500_000, number)
        environment = codes(frame["domain"], ["books", "code", "web"])
        for name in frame.columns[2:]:
            counted = partial(frame[name], pl.Series(environment), whole[name].level if name in whole else 0)
            whole[name] = merge([whole[name], counted]) if name in whole else counted
    return {"peak GB": peak_memory() / 1e9}


def embeddings() -> dict[str, float]:
    """Compare 100,000 vectors of 256 numbers: classifier, discrepancies with 199 permutations, Fréchet distance."""
    import numpy as np
    import polars as pl

    import gradatim as gd

    random = np.random.default_rng(0)
    ids = pl.int_range(VECTORS, eager=True).cast(pl.String).str.zfill(6)
    domain = np.arange(VECTORS) % 2
    matrix = random.standard_normal((VECTORS, WIDTH), dtype=np.float32)
    matrix[:, 0] += 0.5 * domain
    examples = pl.DataFrame({"example_id": ids, "domain": pl.Series(domain).cast(pl.String)})
    start = time.perf_counter()
    found = gd.diversity(examples, "embedding_shift", features={"x": matrix})
    return {"seconds": time.perf_counter() - start, "AUC": found.value("c2st_auc")}


def child(call: str) -> dict[str, float]:
    """Run a function of this module in a fresh process, for its peak memory."""
    code = f"import json; from benchmarks import shift; print(json.dumps(shift.{call}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run() -> dict[str, Any]:
    """Return times, peak memory and whether the bounds hold."""
    whole = child("columns()")
    one, five = child("streamed(1_000_000)")["peak GB"], child("streamed(5_000_000)")["peak GB"]
    return {
        "every column of 10M rows": whole,
        f"within {LIMIT:.0f} s": whole["seconds"] <= LIMIT,
        "peak GB by parts, 1M rows": one,
        "peak GB by parts, 5M rows": five,
        f"memory grows by less than {GROWTH}": five <= GROWTH * one,
        f"embeddings of {VECTORS:,} x {WIDTH}": child("embeddings()"),
    }

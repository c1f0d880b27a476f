"""What publishing with audit costs, beside a bare Parquet write of the same rows; and its memory for 20M positions.

Five columns of the table `difficulty`, sorted, in one result: conformed, cut, written with zstd, hashed, validated by
Great Expectations, checked for unique keys and committed. Importing Great Expectations (some 4 s, once a process) is
left out. The memory is that of a child process that publishes 20 million positions of one arm as an ordered stream:
1.09 GB on two cores shared with other work.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from benchmarks.memory import peak_memory
from gradatim.storage.audit import warm_up
from gradatim.storage.parts import ROW_GROUP, fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.store import Store

ROWS = 2_000_000
POSITIONS = 20_000_000
LIMIT = 300_000  # rows a second
MEMORY = 1.5  # GB


def frame(rows: int) -> pl.DataFrame:
    """Return difficulties of one method: example_id, method, value, percentile, bin, and the scale that each needs."""
    value = np.random.default_rng(0).normal(size=rows)
    rank = np.empty(rows)
    rank[np.argsort(value)] = np.arange(rows)
    return pl.DataFrame(
        {
            "example_id": pl.int_range(rows, eager=True).cast(pl.String).str.zfill(12),
            "method": pl.repeat("irt", rows, eager=True),
            "value": value,
            "scale": pl.repeat("logit", rows, eager=True),
            "percentile": (rank + 1) / rows,
            "bin": (rank * 10 // rows).astype(np.int32),
        }
    )


def positions(rows: int) -> Iterator[pl.DataFrame]:
    """Stream one arm of a curriculum in training order."""
    step = 500_000
    for start in range(0, rows, step):
        position = pl.int_range(start, min(rows, start + step), eager=True)
        yield pl.DataFrame({"position": position}).select(
            pl.lit("curriculum").alias("arm"),
            pl.lit(0, pl.Int64).alias("seed"),
            "position",
            ((pl.col("position") * 7_919) % rows).cast(pl.String).str.zfill(12).alias("example_id"),
            (pl.col("position") * 10 // rows).cast(pl.Int32).alias("stage"),
            pl.lit(1.0, pl.Float32).alias("weight"),
        )


def publish_positions(folder: str, rows: int) -> float:
    """Publish one arm in this process; returns its peak memory in GB."""
    dataset = Store.open(folder).dataset("bench")
    wanted = Wanted(fingerprint("curriculum", 1, str(rows), []), lambda: positions(rows), "curriculum", ordered=True)
    assert dataset.publish("curriculum", [wanted]).rows == rows
    return peak_memory() / 1e9


def run() -> dict[str, float | bool]:
    """Return rows a second of both, their ratio, the peak memory, and whether the limits hold."""
    rows = frame(ROWS)
    warm_up()
    rates: dict[str, list[float]] = {"publish": [], "bare": []}
    for turn in range(3):
        with tempfile.TemporaryDirectory() as folder:
            dataset = Store.open(folder).dataset("bench")
            start = time.perf_counter()
            dataset.publish("difficulty", [Wanted(fingerprint("bench", 1, str(turn), []), lambda: [rows])])
            rates["publish"].append(ROWS / (time.perf_counter() - start))
            start = time.perf_counter()
            pq.write_table(rows.to_arrow(), Path(folder) / "bare.parquet", compression="zstd", row_group_size=ROW_GROUP)
            rates["bare"].append(ROWS / (time.perf_counter() - start))
    publish, bare = max(rates["publish"]), max(rates["bare"])
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        code = f"from benchmarks.publish import publish_positions as p; print(p({folder!r}, {POSITIONS}))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
        )
        seconds = time.perf_counter() - start
    peak = float(done.stdout.splitlines()[-1])
    return {
        "rows": ROWS,
        "publish (rows/s)": publish,
        "bare Parquet write (rows/s)": bare,
        "ratio to the bare write": bare / publish,
        f"at least {LIMIT:,} rows/s": publish >= LIMIT,
        "20M positions (GB)": peak,
        "20M positions (s)": seconds,
        f"under {MEMORY} GB": peak < MEMORY,
    }

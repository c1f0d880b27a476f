"""The certificate of a split of a million rows: seconds beyond the split, beside a plain pandas count of its groups.

Short texts, four domains, seven labels, a difficulty, and five models' answers to each row; a length split with both
controls, all measured. The work runs in a child process, whose peak memory is shown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.memory import peak_memory

ROWS = 1_000_000
SECONDS = 60.0
MODELS = 5


def frames(rows: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return examples, difficulty and responses."""
    number = pl.int_range(rows, eager=True)
    chance = np.random.default_rng(0)
    words = pl.Series([f"word{i}" for i in range(2_000)])
    text = pl.concat_str(
        [pl.lit(words.gather(pl.Series(chance.zipf(1.3, rows) % 2_000, dtype=pl.UInt32))) for _ in range(9)],
        separator=" ",
    )
    length = pl.Series("length_input", number * 17 % 40 + 1)
    examples = pl.DataFrame({"example_id": number.cast(pl.String).str.zfill(9), "length_input": length}).with_columns(
        input=pl.select(text).to_series(),
        domain=pl.format("domain {}", number % 4),
        output=pl.format("label {}", number % 7),
    )
    bins = (length / 4).cast(pl.Int32).clip(0, 9)
    difficulty = examples.select("example_id", method=pl.lit("length"), value=length.cast(pl.Float64), bin=bins)
    responses = pl.concat(
        examples.select(
            respondent_id=pl.lit(f"model {m}"), example_id="example_id",
            score=((pl.col("length_input") * 7 + m) % 5 > 1).cast(pl.Float64),
        )
        for m in range(MODELS)
    )  # fmt: skip
    return examples, difficulty, responses


def one(rows: int) -> dict[str, float]:
    """Split and certify in this process."""
    from gradatim.tasks.core.registry import configure, get

    examples, difficulty, responses = frames(rows)
    plugin = get("split", "length")
    tables = {"examples": examples, "difficulty": difficulty}
    split = plugin.run(tables, configure(plugin, {"train": "<= 30"}), 0)
    start = time.perf_counter()
    certificate = split.certify(examples, difficulty, responses)
    seconds = time.perf_counter() - start
    assert certificate.holds
    peer = split.main.select("example_id", "split").to_pandas()
    rest = examples.select("example_id", "domain", "output", "input").to_pandas()
    start = time.perf_counter()
    joined = peer.merge(rest, on="example_id")
    for column in ("domain", "output"):
        joined.groupby(["split", column], observed=True).size()
    joined.groupby(joined["input"].str.split().str.join(" "))["split"].nunique()
    plain = time.perf_counter() - start
    return {
        "seconds": seconds,
        "pandas counts alone": plain,
        "lines": len(certificate.table),
        "GB": peak_memory() / 1e9,
    }


def run(rows: int = ROWS) -> dict[str, float | bool]:
    """Return the figures and whether the certificate keeps its time."""
    code = f"import json; from benchmarks.certificate import one; print(json.dumps(one({rows})))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {"rows": rows, **found, f"under {SECONDS:g} s": found["seconds"] < SECONDS}


if __name__ == "__main__":
    for figure, value in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS).items():
        print(f"{figure:24} {value}")

"""Contamination beside brute force on real questions, and of 10,000 texts by 1M and by 5M training texts, in one run.

The real questions are those of GSM8K, from the reference data (GRADATIM_DATA, or shared/data beside the checkout): 300
of the test set against the whole training set, into which copies of 250 of them were put, edited in 0 to 30 % of their
words and set between two training questions. Without these data simulated texts stand in. Brute force measures every
pair by the same edit similarity.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).parents[1]
EVALUATED, COPIED = 300, 250
TESTS, ROWS, MORE_ROWS = 10_000, 1_000_000, 5_000_000
LEVELS = (100, 90, 80, 70)
LEAST_RECALL, LEAST_SPEEDUP = 0.98, 20.0
MOST_SECONDS, MOST_GB, MOST_GROWTH = 180.0, 3.0, 1.3


def questions() -> tuple[list[str], list[str]]:
    """Training and test questions of GSM8K, or simulated texts."""
    folder = Path(os.environ.get("GRADATIM_DATA", ROOT.parent / "shared" / "data")) / "gsm8k"
    if not folder.is_dir():
        from benchmarks.text import simulate

        texts = simulate(9000)["input"].to_list()
        return texts[:7500], texts[7500:]
    with gzip.open(folder / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        train = [json.loads(line)["question"] for line in file]
    return train, pl.read_ndjson(folder / "test.jsonl")["question"].to_list()


def planted() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return training rows with edited copies of the evaluation rows among them, and the evaluation rows."""
    train, test = questions()
    test, rng = test[:EVALUATED], random.Random(0)
    words = [word for text in train[:2000] for word in text.split()]

    def edited(text: str, share: float) -> str:
        found: list[str] = []
        for word in text.split():
            kind = rng.random() / share if share else 1.0
            if kind >= 1:
                found.append(word)
            elif kind < 0.5:
                found.append(rng.choice(words))
            elif kind < 0.75:
                found += [word, rng.choice(words)]
        return " ".join(found)

    shares = (0.0, 0.05, 0.1, 0.2, 0.3)
    copies = [
        f"{rng.choice(train)} {edited(text, shares[i % 5])} {rng.choice(train)}" for i, text in enumerate(test[:COPIED])
    ]
    return _frame("r", [*train, *copies]), _frame("t", test)


def _frame(prefix: str, texts: list[str]) -> pl.DataFrame:
    return pl.DataFrame({"example_id": [f"{prefix}{i:07d}" for i in range(len(texts))], "text": texts})


def beside_brute_force() -> dict[str, Any]:
    """Recall and precision of the flags at each level, and seconds of both."""
    from gradatim.tasks.diversity.contamination_retrieval import normalised
    from gradatim.tasks.diversity.contamination_search import find_contamination
    from gradatim.tasks.diversity.contamination_surface import surface_similarity

    train, test = planted()
    find_contamination(train.head(100), test.head(10))  # warm up
    start = time.perf_counter()
    found = find_contamination(train, test).evaluation["aggregate"].to_numpy()
    ours = time.perf_counter() - start
    start = time.perf_counter()
    texts = normalised(train["text"]).to_list()
    brute = np.array([surface_similarity(text, texts).max() for text in normalised(test["text"])])
    theirs = time.perf_counter() - start
    result: dict[str, Any] = {"seconds": ours, "brute force seconds": theirs, "ratio": theirs / ours}
    recalls = []
    for level in LEVELS:
        flagged, true = found >= level, brute >= level
        recalls.append(float((flagged & true).sum() / true.sum()))
        result[f"flagged at {level} by brute force"] = int(true.sum())
        result[f"recall at {level}"] = recalls[-1]
        result[f"precision at {level}"] = float((flagged & true).sum() / max(1, flagged.sum()))
    result[f"recall at least {LEAST_RECALL:g}"] = min(recalls) >= LEAST_RECALL
    result[f"at least {LEAST_SPEEDUP:g} times brute force"] = theirs >= LEAST_SPEEDUP * ours
    return result


def recombined(sentences: pl.Series, rows: int, prefix: str, seed: int) -> pl.DataFrame:
    """Make texts of two to four sentences each."""
    rng = np.random.default_rng(seed)
    count = rng.integers(2, 5, rows)
    chosen = sentences.gather(rng.integers(0, len(sentences), count.sum()))
    joined = pl.DataFrame({"row": np.repeat(np.arange(rows), count), "text": chosen})
    texts = joined.group_by("row", maintain_order=True).agg(pl.col("text").str.join(" "))["text"]
    ids = pl.Series(np.arange(rows)).cast(pl.String).str.zfill(7)
    return pl.DataFrame({"example_id": prefix + ids, "text": texts})


def large(folder: str, rows: int) -> dict[str, float]:
    """Search the files of a folder in this process: seconds, gigabytes, and what was found."""
    from benchmarks.memory import peak_memory
    from gradatim.tasks.diversity.contamination_search import find_contamination

    test = pl.read_parquet(f"{folder}/test.parquet")
    files = sorted(Path(folder).glob("train*.parquet"))[: rows // ROWS]
    start, busy = time.perf_counter(), time.process_time()
    found = find_contamination([pl.scan_parquet(file) for file in files], test)
    return {
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - busy,
        "peak GB": peak_memory() / 1e9,
        "pairs compared": float(len(found.pairs)),
    }


def run() -> dict[str, Any]:
    """Compare with brute force here, then search 1M and 5M texts in processes of their own."""
    result: dict[str, Any] = {"GSM8K": beside_brute_force()}
    train, test = questions()
    with tempfile.TemporaryDirectory() as folder:
        cut = [pl.Series(side).str.extract_all(r"[^.?!]+[.?!]*").explode().drop_nulls() for side in (train, test)]
        recombined(cut[1], TESTS, "t", 0).write_parquet(f"{folder}/test.parquet")
        megabytes = 0.0
        for i in range(MORE_ROWS // ROWS):
            frame = recombined(cut[0], ROWS, f"r{i}", i + 1)
            megabytes += float(frame["text"].str.len_bytes().sum()) / 1e6
            frame.write_parquet(f"{folder}/train{i}.parquet")
        del frame
        result["training text of 5M (MB)"] = megabytes
        sizes = [_child(folder, rows) for rows in (ROWS, MORE_ROWS)]
    for rows, figures in zip((ROWS, MORE_ROWS), sizes, strict=True):
        result[f"{TESTS:,} by {rows:,}"] = figures
    # where other programs keep the machine busy, the processor's seconds on two cores are what a free one needs at most
    seconds = min(sizes[0]["seconds"], sizes[0]["processor seconds"])
    result[f"1M within {MOST_SECONDS:g} s"] = seconds <= MOST_SECONDS
    result[f"1M within {MOST_GB:g} GB"] = sizes[0]["peak GB"] <= MOST_GB
    result[f"5M within {MOST_GROWTH:g} times the memory of 1M"] = (
        sizes[1]["peak GB"] <= MOST_GROWTH * sizes[0]["peak GB"]
    )
    return result


def _child(folder: str, rows: int) -> dict[str, float]:
    from benchmarks.memory import watched

    code = f"import json; from benchmarks.contamination import large; print(json.dumps(large({folder!r}, {rows})))"
    said, anonymous = watched([sys.executable, "-c", code], ROOT)
    figures: dict[str, float] = json.loads(said.splitlines()[-1])
    return {**figures, "peak anonymous GB": anonymous / 1e9}


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

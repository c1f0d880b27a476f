"""Near-duplicates of a million short texts, of 1M and 5M in files, and beside datasketch, rensa and semhash.

The peers are not installed with the package; they are measured where they are: ``pip install datasketch rensa semhash``
into an environment of their own, named by ``GRADATIM_PEERS`` (its python), or into this one.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROWS, PEER_ROWS, VECTORS, WIDTH = 1_000_000, 50_000, 100_000, 256
MORE_ROWS = 5_000_000
SECONDS, BYTES, SPEEDUP, LEVEL, GROWTH = 60.0, 4e9, 10.0, 1.0, 1.3
REAL, RECALL = 5_000, 0.995
SETTINGS = (
    (5, "words", 0.8),
    (5, "words", 0.6),
    (3, "words", 0.5),
    (2, "words", 0.7),
    (5, "characters", 0.8),
    (5, "characters", 0.6),
)
ROOT = Path(__file__).parents[1]


def texts(rows: int, seed: int = 0) -> list[str]:
    """Make texts of 8 to 24 words by Zipf's law; one in ten is an earlier one with a word added or changed, or none."""
    import numpy as np

    random = np.random.default_rng(seed)
    vocabulary = np.array([f"w{i:x}" for i in range(50_000)])
    length = random.integers(8, 25, rows)
    words = vocabulary[np.minimum(random.zipf(1.2, int(length.sum())) - 1, 49_999)]
    ends = np.cumsum(length)
    made = [" ".join(words[end - n : end]) for end, n in zip(ends.tolist(), length.tolist(), strict=True)]
    for row in range(9, rows, 10):
        kind = row // 10 % 3
        earlier = made[row - 5]
        made[row] = earlier if kind == 0 else earlier + " more" if kind == 1 else "Also " + earlier.split(" ", 1)[1]
    return made


def vectors(rows: int, seed: int = 0) -> Any:
    """Draw vectors of which a fifth are near an earlier one (cosine about .95)."""
    import numpy as np

    random = np.random.default_rng(seed)
    topic = random.standard_normal((500, WIDTH), dtype=np.float32)
    made = random.standard_normal((rows, WIDTH), dtype=np.float32) + topic[random.integers(0, 500, rows)]
    made[4::5] = made[3::5] + 0.33 * random.standard_normal(made[4::5].shape, dtype=np.float32)
    return made


def whole(rows: int = ROWS) -> dict[str, float]:
    """Find the near-duplicates of `rows` texts in this process: seconds, memory, recall of the made ones."""
    import polars as pl

    import gradatim as gd
    from benchmarks.memory import peak_memory

    ids = pl.int_range(rows, eager=True).cast(pl.String).str.zfill(8)
    examples = pl.DataFrame({"example_id": ids, "input": texts(rows)})
    before = peak_memory()
    start, busy = time.perf_counter(), time.process_time()
    d = gd.diversity(examples, "near_duplicates")
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    return {
        "seconds": seconds,
        "seconds of both cores": busy,
        "peak GB": peak_memory() / 1e9,
        "of which data GB": before / 1e9,
        "pairs": d.value("near_duplicates_pairs"),
        "pairs measured": d.value("near_duplicates_candidates"),
    }


def write(folder: str, number: int) -> dict[str, float]:
    """Write the part of a number: a million texts."""
    import polars as pl

    ids = pl.int_range(number * ROWS, (number + 1) * ROWS, eager=True).cast(pl.String).str.zfill(8)
    made = pl.DataFrame({"example_id": ids, "text": texts(ROWS, seed=number)})
    made.write_parquet(f"{folder}/part{number}.parquet", row_group_size=2**17)
    return {}


def streamed(folder: str, rows: int) -> dict[str, float]:
    """Find the near-duplicates of the texts in the files of a folder, which are never in memory as a whole."""
    import polars as pl

    from benchmarks.memory import peak_memory
    from gradatim.tasks.core.near_duplicates import Scheme, compare, signatures

    scheme = Scheme()
    # one file after the other: a scan of several reads ahead in all of them
    files = [pl.scan_parquet(f"{folder}/part{number}.parquet") for number in range(rows // ROWS)]

    def parts() -> Iterator[pl.DataFrame]:
        return (part for file in files for part in file.collect_batches(chunk_size=2**17))

    def read(ids: pl.Series) -> pl.DataFrame:
        return pl.concat([part.join(ids.to_frame("example_id"), on="example_id", how="semi") for part in parts()])

    start, busy = time.perf_counter(), time.process_time()
    kept = (signatures(part, scheme) for part in parts())
    found = compare(kept, read, scheme)
    return {
        "seconds": time.perf_counter() - start,
        "seconds of both cores": time.process_time() - busy,
        "peak GB": peak_memory() / 1e9,
        "pairs": float(len(found.pairs)),
        "pairs measured": float(found.candidates),
    }


def ours(rows: int) -> dict[str, float]:
    """Find pairs of texts, and of vectors."""
    import polars as pl

    import gradatim as gd

    ids = pl.int_range(rows, eager=True).cast(pl.String).str.zfill(8)
    examples = pl.DataFrame({"example_id": ids, "input": texts(rows)})
    gd.diversity(examples[:100], "near_duplicates")  # imports
    start = time.perf_counter()
    d = gd.diversity(examples, "near_duplicates")
    return {"seconds": time.perf_counter() - start, "removed": d.value() * rows}


def ours_by_vectors(rows: int) -> dict[str, float]:
    """Remove near-duplicates of given vectors by lists, as beyond 50,000 rows."""
    import polars as pl

    import gradatim as gd

    ids = pl.int_range(rows, eager=True).cast(pl.String).str.zfill(8)
    examples = pl.DataFrame({"example_id": ids})
    embedding = pl.Series("embedding", vectors(rows), dtype=pl.Array(pl.Float32, WIDTH))
    features = pl.DataFrame({"example_id": ids, "embedding": embedding})
    start = time.perf_counter()
    d = gd.diversity(examples, "near_duplicates", features={"x": features})
    return {"seconds": time.perf_counter() - start, "removed": d.value() * rows}


def datasketch(rows: int) -> dict[str, float]:
    """The peer's own way: MinHash of 5-word shingles, 128 permutations, LSH at .8, candidates not verified."""
    from datasketch import MinHash, MinHashLSH

    made = texts(rows)
    start = time.perf_counter()
    lsh, removed = MinHashLSH(threshold=0.8, num_perm=128), 0
    for row, text in enumerate(made):
        words = text.lower().split()
        minhash = MinHash(num_perm=128)
        minhash.update_batch([" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))])
        removed += bool(lsh.query(minhash))
        lsh.insert(row, minhash)
    return {"seconds": time.perf_counter() - start, "removed": float(removed)}


def rensa(rows: int) -> dict[str, float]:
    """The same with rensa's signatures and index."""
    from rensa import RMinHash, RMinHashLSH

    made = texts(rows)
    start = time.perf_counter()
    lsh, removed = RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16), 0
    for row, text in enumerate(made):
        words = text.lower().split()
        minhash = RMinHash(num_perm=128, seed=42)
        minhash.update([" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4))])
        removed += bool(lsh.query(minhash))
        lsh.insert(row, minhash)
    return {"seconds": time.perf_counter() - start, "removed": float(removed)}


def semhash(rows: int) -> dict[str, float]:
    """The peer's own task: its index over given vectors, and what it removes at .9."""
    from semhash import SemHash

    made = vectors(rows)
    records = [str(i) for i in range(rows)]
    start = time.perf_counter()
    found = SemHash.from_embeddings(made, records, model=None).self_deduplicate(threshold=0.9)
    return {"seconds": time.perf_counter() - start, "removed": float(rows - len(found.selected))}


def child(call: str, python: str = sys.executable) -> dict[str, float]:
    """Call a function of this module in a process of its own."""
    from benchmarks.memory import watched

    code = f"import json; from benchmarks.near_duplicates import *; print(json.dumps({call}))"
    said, anonymous = watched([python, "-c", code], ROOT)
    figures: dict[str, float] = json.loads(said.splitlines()[-1])
    return {**figures, "peak anonymous GB": anonymous / 1e9}


def by_files() -> dict[str, Any]:
    """Measure 1M and 5M texts in files."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MORE_ROWS // ROWS):
            child(f"write({folder!r}, {number})")
        one, more = (child(f"streamed({folder!r}, {rows})") for rows in (ROWS, MORE_ROWS))
    growth = more["peak anonymous GB"] / max(1e-9, one["peak anonymous GB"])
    return {
        f"{ROWS:,} texts in files": one,
        f"{MORE_ROWS:,} texts in files": more,
        "times the anonymous memory": growth,
        "times the resident memory, mapped files in it": more["peak GB"] / one["peak GB"],
        "bytes a further row": 1e9 * (more["peak anonymous GB"] - one["peak anonymous GB"]) / (MORE_ROWS - ROWS),
        f"{MORE_ROWS:,} within {GROWTH:g} times the anonymous memory": growth <= GROWTH,
    }


def real_texts() -> list[str]:
    """Make 5,000 texts, each once: WinoGrande sentences, GSM8K questions, and edits of them; none without the data."""
    import numpy as np
    import polars as pl

    folder = Path(os.environ.get("GRADATIM_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "gsm8k").is_dir():
        return []
    winogrande = pl.read_parquet(folder / "cartography_winogrande" / "winogrande_xl_train.parquet", n_rows=2700)
    with gzip.open(folder / "gsm8k" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        questions = [json.loads(line)["question"] for line in file][:1500]
    base = list(dict.fromkeys(" ".join(text.split()) for text in [*winogrande["sentence"], *questions]))[:4000]
    random, edits = np.random.default_rng(0), []
    for row in random.choice(len(base), 1200, replace=False):
        words = base[row].split(" ")
        for _ in range(int(random.integers(1, 3))):
            kind, place = random.integers(4), int(random.integers(len(words)))
            if kind == 0:
                words[place] = "other"
            elif kind == 1:
                words.insert(place, "very")
            elif kind == 2 and len(words) > 3:
                del words[place]
            else:
                words.append("Indeed.")
        edits.append(" ".join(words))
    return list(dict.fromkeys([*base, *edits]))[:REAL]


def every_pair(texts: list[str], unit: str, size: int, threshold: float) -> set[tuple[int, int]]:
    """Find the pairs of at least a Jaccard similarity by brute force: sets of tuples, and a sparse product."""
    import numpy as np
    from scipy.sparse import csr_array

    code: dict[tuple[str, ...], int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for row, text in enumerate(texts):
        units = text.lower().split(" ") if unit == "words" else list(text.lower())
        for shingle in {tuple(units[i : i + size]) for i in range(max(1, len(units) - size + 1))}:
            rows.append(row)
            columns.append(code.setdefault(shingle, len(code)))
    held = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(code)))
    count = np.bincount(rows, minlength=len(texts))
    both = (held @ held.T).tocoo()
    similarity = both.data / (count[both.row] + count[both.col] - both.data)
    true = (both.row < both.col) & (similarity >= threshold - 1e-9)
    return set(zip(both.row[true].tolist(), both.col[true].tolist(), strict=True))


def near_vectors(vectors: Any, threshold: float) -> set[tuple[int, int]]:
    """Find the pairs of at least a cosine by brute force in float64."""
    import numpy as np

    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    unit = wide / np.where(norms > 0, norms, 1)[:, None]
    left, right = np.nonzero(np.triu(np.round(unit @ unit.T, 9) >= threshold - 1e-9, 1))
    return set(zip(left.tolist(), right.tolist(), strict=True))


def recall() -> dict[str, Any]:
    """Recall and precision against brute force over all pairs of 5,000 real texts, by shingles and by vectors."""
    import polars as pl

    import gradatim as gd
    from gradatim.tasks.diversity.vectors import hashed_ngrams

    made = real_texts()
    if not made:
        return {"real texts": "not there"}
    ids = pl.int_range(len(made), eager=True).cast(pl.String).str.zfill(8)
    examples = pl.DataFrame({"example_id": ids, "input": made})
    out: dict[str, Any] = {"texts": len(made)}
    least = 1.0

    def compared(name: str, d: Any, true: set[tuple[int, int]]) -> None:
        nonlocal least
        found = {(int(a), int(b)) for a, b in d.pairs.select("left_id", "right_id").rows()}
        out[name] = {
            "true pairs": len(true),
            "recall": len(found & true) / len(true),
            "precision": len(found & true) / max(1, len(found)),
        }
        least = min(least, *list(out[name].values())[1:])

    for size, unit, threshold in SETTINGS:
        d = gd.diversity(examples, "near_duplicates", shingle=size, unit=unit, threshold=threshold)
        compared(f"{size} {unit}, {threshold:g}", d, every_pair(made, unit, size, threshold))
    embedding = hashed_ngrams(made, WIDTH).astype("float32")
    table = pl.DataFrame({"example_id": ids, "embedding": pl.Series(embedding, dtype=pl.Array(pl.Float32, WIDTH))})
    true = near_vectors(embedding, 0.9)
    for probed in (0, 8):
        d = gd.diversity(examples, "near_duplicates", features={"x": table}, threshold=0.9, lists_probed=probed)
        compared(f"vectors, cosine .9, lists probed {probed or 'all'}", d, true)
    return {**out, f"recall and precision at least {RECALL:g}": least >= RECALL}


def installed(package: str, python: str) -> bool:
    """Whether a python has a package."""
    return subprocess.run([python, "-c", f"import {package}"], check=False, capture_output=True).returncode == 0


def run() -> dict[str, Any]:
    """Measure a million texts, then each peer that is installed and ours on the same rows."""
    peers = os.environ.get("GRADATIM_PEERS", sys.executable)
    million = child("whole()")
    out: dict[str, Any] = {
        f"{ROWS:,} texts": million,
        f"within {SECONDS:g} s": million["seconds"] <= SECONDS,
        f"within {BYTES / 1e9:g} GB": million["peak GB"] <= BYTES / 1e9,
        **by_files(),
        "real texts beside brute force": recall(),
    }
    mine = child(f"ours({PEER_ROWS})")
    out[f"{PEER_ROWS:,} texts ours"] = mine
    for peer in ("datasketch", "rensa"):
        if not installed(peer, peers):
            out[peer] = "not installed"
            continue
        figures = child(f"{peer}({PEER_ROWS})", peers)
        out[f"{PEER_ROWS:,} texts {peer}"] = figures
        out[f"times {peer}"] = figures["seconds"] / mine["seconds"]
    if "times datasketch" in out:
        out[f"at least {SPEEDUP:g} times datasketch"] = out["times datasketch"] >= SPEEDUP
    mine = child(f"ours_by_vectors({VECTORS})")
    out[f"{VECTORS:,} vectors ours"] = mine
    if not installed("semhash", peers):
        return {**out, "semhash": "not installed"}
    figures = child(f"semhash({VECTORS})", peers)
    out[f"{VECTORS:,} vectors semhash"] = figures
    out["times semhash"] = figures["seconds"] / mine["seconds"]
    out["level with semhash"] = figures["seconds"] >= LEVEL * mine["seconds"]
    return out


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))

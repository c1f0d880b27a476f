"""Structure of a million small trees beside a walk over each row in Python, in one run.

SCAN's 20,910 derivations are repeated to 1M rows. "Shared" leaves them as they are; "different" gives each label of
each row one of 50 endings by a hash of the row, so that nearly all million trees are different, of some 900 labels. The
peer walks over the rows of a sample, taken out of the same column: counters of tuples for the structures, growth from
the leaves for the compounds. Each of ours runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.compounds import compounds
from gradatim.tasks.core.local_structures import local_structures
from gradatim.tasks.core.registry import get
from gradatim.tasks.core.trees import Forest, flatten

ROWS = 1_000_000
SAMPLE = 20_000
LARGEST = 5
LEAST = {"n-LS shared": 5.0, "n-LS different": 2.0, "compounds shared": 10.0, "compounds different": 2.0}
MEMORY = 8.0  # GB

Node = dict[str, Any]


def column(rows: int, different: bool) -> pl.Series:
    """Return SCAN's trees, repeated."""
    plugin = get("dataset", "scan")
    scan: pl.Series = next(iter(plugin.run(plugin.config(), 0)))["structure"]
    trees = pl.concat([scan] * (rows // len(scan) + 1)).head(rows)
    if not different:
        return trees
    forest = flatten(trees)
    bits = random_bits((str(row) for row in range(rows)), 0, "benchmark")
    place = np.arange(len(forest.parent), dtype=np.uint64)
    ending = pl.Series(((bits[forest.tree] >> (place % np.uint64(48))) % np.uint64(50)).astype(np.int64))
    return Forest(forest.offsets, forest.parent, forest.label + "#" + ending.cast(pl.String)).to_series()


def walk(tree: list[Node]) -> Counter[tuple[str, str, str]]:
    """Local structures of two symbols, the plain way."""
    found: Counter[tuple[str, str, str]] = Counter()
    last: dict[int, str] = {}
    for node in tree:
        parent, label = node["parent"], node["label"]
        found["parent", tree[parent]["label"] if parent >= 0 else "<s>", label] += 1
        if parent in last:
            found["sibling", last[parent], label] += 1
        last[parent] = label
    return found


def grow(tree: list[Node], most: int) -> Counter[str]:
    """Compounds of 2 to `most` nodes, the plain way: sub-graphs below each node from those of its children."""
    children: list[list[int]] = [[] for _ in tree]
    for place, node in enumerate(tree):
        if node["parent"] >= 0:
            children[node["parent"]].append(place)
    parts: list[list[tuple[int, str]]] = [[] for _ in tree]
    found: Counter[str] = Counter()
    for place in reversed(range(len(tree))):
        mine = [(1, tree[place]["label"])]
        for child in children[place]:
            mine += [(m + n, f"{a}({b})") for m, a in mine for n, b in parts[child] if m + n <= most]
        parts[place] = mine
        found.update(name for size, name in mine if size > 1)
    return found


def ours(what: str) -> float:
    """Return seconds of one of ours on the million rows."""
    trees = column(ROWS, what.endswith("different"))
    start = time.perf_counter()
    if what.startswith("n-LS"):
        local_structures(trees, 2)
    else:
        compounds(trees, LARGEST, weights="weighted" in what)
    return time.perf_counter() - start


def unobserved(rows: int = ROWS) -> float:
    """Return seconds of the whole estimator on different trees, each left out in turn."""
    plugin = get("difficulty", "unobserved_structures")
    frame = pl.DataFrame(
        {
            "example_id": pl.int_range(rows, eager=True).cast(pl.String).str.zfill(7),
            "structure": column(rows, True),
        }
    )
    start = time.perf_counter()
    plugin.run({"examples": frame}, plugin.config(), 0)
    return time.perf_counter() - start


def _child(code: str) -> tuple[float, float]:
    """Run an expression in a process of its own; returns its value and its peak memory in GB."""
    program = f"from benchmarks import memory, structure; print(structure.{code}, memory.peak_memory() / 1e9)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    seconds, memory = done.stdout.split()[-2:]
    return float(seconds), float(memory)


def run() -> dict[str, Any]:
    """Return seconds and peak memory for 1M rows, ratios to the peer scaled to 1M rows, and whether the limits hold."""
    found: dict[str, Any] = {}
    for what, least in LEAST.items():
        sample = column(SAMPLE, what.endswith("different"))
        start = time.perf_counter()
        for tree in sample.to_list():
            if what.startswith("n-LS"):
                walk(tree)
            else:
                grow(tree, LARGEST)
        theirs = (time.perf_counter() - start) * ROWS / SAMPLE
        seconds, memory = _child(f"ours({what!r})")
        found[what] = {"s": seconds, "GB": memory, "peer s, scaled": theirs, "ratio": theirs / seconds}
        found[f"{what}: at least {least:g} times"] = theirs / seconds >= least
        found[f"{what}: under {MEMORY:g} GB"] = memory < MEMORY
    for what in ("weighted compounds shared", "weighted compounds different"):
        found[what] = dict(zip(("s", "GB"), _child(f"ours({what!r})"), strict=True))
    found["unobserved_structures different"] = dict(zip(("s", "GB"), _child("unobserved()"), strict=True))
    return found

"""Non-leaking split of a million rows, and its leakage and seconds beside PyPI datasail and astartes, in one run.

A peer runs in an environment of its own, whose folder an environment variable or an argument names; one that is absent
is skipped with a message::

    python3.11 -m venv peers/datasail && peers/datasail/bin/pip install datasail==1.4.0
    python3.11 -m venv peers/astartes && peers/astartes/bin/pip install astartes==1.3.3
    python -m benchmarks.non_leaking --datasail peers/datasail --astartes peers/astartes
    GRADATIM_PEER_DATASAIL=peers/datasail python -m benchmarks non_leaking
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROWS, LIMIT = 1_000_000, 30.0
SHARES = (0.7, 0.2, 0.1)
EPSILON = 0.05
MORE_LEAKAGE = 1.005
"""How much more than the solver's leakage counts as equal."""
SOLVER_SECONDS = 60

_DATASAIL = """
import sys, time, json
import numpy as np
from datasail.sail import datasail
found = np.load(sys.argv[1])
names = [f"c{i:03d}" for i in range(len(found["mass"]))]
start = time.perf_counter()
splits, _, _ = datasail(
    techniques=["C1e"], splits=found["shares"].tolist(), names=["a", "b", "c"], epsilon=float(found["epsilon"]),
    runs=1, solver="SCIP", max_sec=int(found["seconds"]), verbose="E", e_type="O",
    e_data={name: name for name in names}, e_weights=dict(zip(names, found["mass"].astype(float).tolist())),
    e_sim=(names, found["similarity"]), e_clusters=len(names),
)
seconds = time.perf_counter() - start
where = splits["C1e"][0]
place = [["a", "b", "c"].index(where[name]) if where[name] in ("a", "b", "c") else -1 for name in names]
print(json.dumps({"seconds": seconds, "place": place}))
"""
_ASTARTES = """
import sys, time, json
import numpy as np
from astartes import train_test_split
found = np.load(sys.argv[1])
start = time.perf_counter()
train, test = train_test_split(
    found["vectors"], train_size=0.8, test_size=0.2, sampler="kmeans", random_state=0,
    hopts={"n_clusters": int(found["clusters"])}, return_indices=True,
)[-2:]
seconds = time.perf_counter() - start
place = np.zeros(len(found["vectors"]), int)
place[np.asarray(test, int)] = 1
print(json.dumps({"seconds": seconds, "place": place.tolist()}))
"""


def run(environments: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Split a million rows of given components; then pack and cluster beside the peers that there are.

    Parameters
    ----------
    environments : mapping, optional
        Folders of Python environments by peer; by default from GRADATIM_PEER_DATASAIL and GRADATIM_PEER_ASTARTES.
    """
    if environments is None:
        environments = {name: os.environ.get(f"GRADATIM_PEER_{name.upper()}", "") for name in ("datasail", "astartes")}
    result: dict[str, Any] = {"1M rows, components given": million()}
    for count in (12, 30, 50):
        result[f"{count} clusters beside datasail"] = beside_datasail(environments.get("datasail", ""), count)
    result["5,000 rows beside astartes kmeans"] = beside_astartes(environments.get("astartes", ""))
    return result


def million() -> dict[str, Any]:
    """Split a million rows in components of a geometric size, by two sets of shares and strata, controls included."""
    from gradatim.tasks.core.registry import configure, get

    random = np.random.default_rng(0)
    size = random.geometric(0.25, ROWS // 3)
    component = np.repeat(np.arange(len(size)), size)[:ROWS]
    ids = pl.int_range(ROWS, eager=True).cast(pl.String).str.zfill(7)
    examples = pl.DataFrame(
        {
            "example_id": ids.gather(random.permutation(ROWS)),
            "group": pl.Series(component).cast(pl.String),
            "domain": pl.Series(component * 7919 % 11).cast(pl.String),
        }
    )
    plugin = get("split", "non_leaking")
    found: dict[str, Any] = {}
    for name, setting in (("plain", {}), ("strata", {"stratify": "domain", "delta": 0.05, "validation_ood": 0.3})):
        config = configure(plugin, {**setting, "epsilon": 0.01})
        start = time.perf_counter()
        split = plugin.run({"examples": examples}, config, 0)
        seconds = time.perf_counter() - start
        out = split.main["split"].is_in(["test_ood", "validation_ood"]).mean()
        found[f"{name} (s)"] = seconds
        found[f"{name} share held out"] = out
        found[f"{name} in {LIMIT:g} s"] = seconds <= LIMIT
    return found


def problem(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw clusters around a few topics: similarity (count, count) and rows (count,)."""
    random = np.random.default_rng(seed)
    topic = random.normal(size=(max(3, count // 5), 8))
    middle = topic[random.integers(0, len(topic), count)] + 0.8 * random.normal(size=(count, 8))
    middle /= np.linalg.norm(middle, axis=1)[:, None]
    similarity = np.round(np.clip(middle @ middle.T, 0, 1), 6)
    np.fill_diagonal(similarity, 1.0)
    return np.maximum(similarity, similarity.T), random.integers(20, 200, count)


def beside_datasail(environment: str, count: int) -> dict[str, Any] | str:
    """Pack clusters into three splits: leakage ratio and seconds of ours and of the solver."""
    from gradatim.tasks.core.leakage import cluster_leakage
    from gradatim.tasks.splits.packing import pack
    from gradatim.tasks.splits.packing_search import Units

    similarity, mass = problem(count)
    names = pl.Series([f"c{i:03d}" for i in range(count)])
    units = Units(names, mass[:, None], SHARES, EPSILON, 0.2, np.full(count, -1), mass, similarity)
    start = time.perf_counter()
    ours = pack(units, 0, "benchmark")
    seconds = time.perf_counter() - start
    random = np.random.default_rng(0).choice(3, count, p=SHARES)
    found: dict[str, Any] = {
        "ours (s)": seconds,
        "ours leakage": cluster_leakage(similarity, mass, ours.place).ratio,
        "random leakage": cluster_leakage(similarity, mass, random).ratio,
        "sizes within epsilon": not ours.missing.any(),
    }
    given = {"similarity": similarity, "mass": mass, "shares": SHARES, "epsilon": EPSILON, "seconds": SOLVER_SECONDS}
    theirs = _peer(environment, "datasail", _DATASAIL, given)
    if theirs is None:
        return {**found, "datasail": "skipped"}
    place = np.array(theirs["place"])
    load = np.array([mass[place == split].sum() for split in range(3)])
    leaked = cluster_leakage(similarity, mass, place).ratio
    return {
        **found,
        "datasail (s)": theirs["seconds"],
        "datasail leakage": leaked,
        "datasail sizes within epsilon": f"{bool((load >= units.least[:, 0]).all())} {load.tolist()}",
        "as little leakage": bool(found["ours leakage"] <= (leaked or 0) * MORE_LEAKAGE),
        "times as fast": theirs["seconds"] / seconds,
    }


def beside_astartes(environment: str) -> dict[str, Any]:
    """Split vectors by k-means into four fifths and one: leakage of rows and seconds of ours and of astartes."""
    from gradatim.tasks.core.leakage import row_leakage, vector_similarity
    from gradatim.tasks.core.registry import configure, get

    random = np.random.default_rng(0)
    count, clusters = 5_000, 40
    topic = random.normal(size=(12, 32))
    middle = topic[random.integers(0, 12, clusters)] + 0.7 * random.normal(size=(clusters, 32))
    vectors = (middle[random.integers(0, clusters, count)] + 0.5 * random.normal(size=(count, 32))).astype(np.float32)
    ids = pl.int_range(count, eager=True).cast(pl.String).str.zfill(5).alias("example_id")
    table = pl.DataFrame([ids, pl.Series("embedding", vectors, dtype=pl.Array(pl.Float32, 32))])
    plugin = get("split", "non_leaking")
    config = configure(plugin, {"by": "kmeans", "features": "v", "clusters": clusters, "controls": False})
    start = time.perf_counter()
    split = plugin.run({"examples": ids.to_frame(), "features_v": table}, config, 0)
    seconds = time.perf_counter() - start
    out = (split.main["split"] == "test_ood").to_numpy().astype(int)

    def leaks(place: np.ndarray) -> float | None:
        return row_leakage(place, ids, vector_similarity(vectors), pairs=1_000_000).ratio

    found = {
        "ours (s)": seconds,
        "ours share held out": float(out.mean()),
        "ours leakage": leaks(out),
        "random leakage": leaks(random.permutation(out)),
    }
    theirs = _peer(environment, "astartes", _ASTARTES, {"vectors": vectors, "clusters": clusters})
    if theirs is None:
        return {**found, "astartes": "skipped"}
    place = np.array(theirs["place"])
    return {
        **found,
        "astartes (s)": theirs["seconds"],
        "astartes share held out": float(place.mean()),
        "astartes leakage": leaks(place),
        "less leakage": bool((found["ours leakage"] or 0) < (leaks(place) or 0)),
    }


def _peer(environment: str, name: str, code: str, arrays: Mapping[str, Any]) -> dict[str, Any] | None:
    """Run a peer in its environment; None, with a message, where it is absent."""
    python = Path(environment) / "bin" / "python"
    if not environment or not python.exists():
        print(f"{name}: skipped: name an environment with it in GRADATIM_PEER_{name.upper()}")
        return None
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/given.npz", **arrays)
        said = subprocess.run(
            [str(python.absolute()), "-W", "ignore", "-c", code, f"{folder}/given.npz"],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
        )
        answer: dict[str, Any] = json.loads(said.stdout.strip().splitlines()[-1])
    return answer


def main(arguments: list[str]) -> int:
    """Run with the environments that the command line names; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("datasail", "astartes"):
        default = os.environ.get(f"GRADATIM_PEER_{name.upper()}", "")
        parser.add_argument(f"--{name}", default=default, help="folder of its environment")
    result = run(vars(parser.parse_args(arguments)))
    print(json.dumps(result, indent=2))
    return int(any(value is False for found in result.values() for value in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""2PL on 500 respondents x 1,000 items beside PyPI mirt, in one run; both fits scored on one 401-node grid."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

PEER = "mirt==1.2.0"
RESPONDENTS, ITEMS, NODES, REPEATS = 500, 1000, 401, 3
LEAST_SPEEDUP, LARGEST_LOSS = 5.0, 0.05

_PEER_CODE = """
import json, sys, time
import numpy as np, mirt
answers = np.load(sys.argv[1]).astype(int)
mirt.fit_mirt(answers[:, :10], "2PL")  # warm up
found = {}
for name, settings in json.loads(sys.argv[3]).items():
    seconds = []
    for _ in range(int(sys.argv[4])):
        start = time.perf_counter()
        fit = mirt.fit_mirt(answers, "2PL", **settings)
        seconds.append(time.perf_counter() - start)
    found[name] = min(seconds)
    np.savez(sys.argv[2] + name, a=fit.model.parameters["discrimination"], b=fit.model.parameters["difficulty"])
print(json.dumps(found))
"""
_PEER_SETTINGS = {"defaults": {}, "nodes61": {"n_quadpts": 61, "compute_standard_errors": False}}


def simulate(seed: int = 0) -> np.ndarray:
    """Draw a matrix of 0 and 1 from a 2PL with theta, b ~ N(0, 1), log a ~ N(0, .3^2)."""
    random = np.random.default_rng(seed)
    theta, b = random.normal(size=RESPONDENTS), random.normal(size=ITEMS)
    a = np.exp(0.3 * random.normal(size=ITEMS))
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    return (random.random((RESPONDENTS, ITEMS)) < p).astype(np.float64)


def run() -> dict[str, Any]:
    """Fit both, print a small table, and return seconds, log-likelihoods, ratios and whether the target is met.

    The peer is installed into an environment of its own in a temporary folder. Two comparisons are made: each with its
    defaults (both with standard errors), and both without standard errors, the peer on its 61-node grid.
    """
    from gradatim.tasks.difficulty.fit import fit_irt
    from gradatim.tasks.difficulty.marginal import Grid, expectation, group_patterns

    answers = simulate()
    data, grid = group_patterns(answers), Grid.of(NODES)

    def score(a: np.ndarray, b: np.ndarray) -> float:
        return expectation(data, a, -a * b, grid).loglik

    fit_irt(answers[:, :10], "2pl")  # warm up
    ours: dict[str, tuple[float, float]] = {}
    for name, errors in (("defaults", True), ("nodes61", False)):
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            fit = fit_irt(answers, "2pl", errors=errors)
            seconds.append(time.perf_counter() - start)
        ours[name] = min(seconds), score(fit.a, fit.b)
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "peer" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        venv.create(Path(folder) / "peer", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True, stderr=subprocess.DEVNULL)
        np.save(Path(folder) / "answers.npy", answers)
        said = subprocess.run(
            [python, "-c", _PEER_CODE, f"{folder}/answers.npy", f"{folder}/", json.dumps(_PEER_SETTINGS), "2"],
            check=True,
            capture_output=True,
            text=True,
        )
        theirs = {}
        for name, seconds_taken in json.loads(said.stdout).items():
            with np.load(f"{folder}/{name}.npz") as found:
                theirs[name] = seconds_taken, score(found["a"], found["b"])
    result: dict[str, Any] = {"benchmark": "irt 2pl 500 x 1000", "peer": PEER}
    print(f"{'2PL, 500 x 1,000':34} {'ours s':>8} {PEER + ' s':>14} {'ratio':>7} {'ours logL':>13} {'theirs logL':>13}")
    for name, words in (("defaults", "with standard errors"), ("nodes61", "without, peer on 61 nodes")):
        (our_time, our_loglik), (their_time, their_loglik) = ours[name], theirs[name]
        ratio = their_time / our_time
        print(f"{words:34} {our_time:8.2f} {their_time:14.2f} {ratio:7.1f} {our_loglik:13.3f} {their_loglik:13.3f}")
        result[name] = {
            "seconds": our_time, "peer_seconds": their_time, "ratio": ratio,
            "loglik": our_loglik, "peer_loglik": their_loglik,
        }  # fmt: skip
    result["met"] = all(
        result[name]["ratio"] >= LEAST_SPEEDUP and result[name]["loglik"] >= result[name]["peer_loglik"] - LARGEST_LOSS
        for name in ours
    )
    return result


if __name__ == "__main__":
    sys.exit(0 if run()["met"] else 1)

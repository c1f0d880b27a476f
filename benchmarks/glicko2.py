"""Glicko-2 of a million attempts beside PyPI glicko2, which updates one player at a time, in one run."""

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

PEER = "glicko2==2.1.0"
ATTEMPTS, RESPONDENTS, ITEMS, PERIODS = 1_000_000, 1000, 100_000, 52
MOST_SECONDS, LEAST_SPEEDUP = 10.0, 5.0

_PEER_CODE = """
import sys, time
from collections import defaultdict
import numpy as np, glicko2
with np.load(sys.argv[1]) as log:
    period, first, second, score = (log[name].tolist() for name in ("period", "first", "second", "score"))
start = time.perf_counter()
players, games = {}, defaultdict(lambda: defaultdict(list))
for t, a, b, s in zip(period, first, second, score):
    games[t][a].append((b, s))
    games[t][b].append((a, 1 - s))
for t in sorted(games):
    before = {}
    for p in games[t]:
        player = players.setdefault(p, glicko2.Player())
        before[p] = player.rating, player.rd
    for p, played in games[t].items():
        players[p].update_player([before[o][0] for o, _ in played], [before[o][1] for o, _ in played],
                                 [s for _, s in played])
    if t == min(games):
        early = {p: player.rating for p, player in players.items()}
seconds = time.perf_counter() - start
np.savez(sys.argv[2], seconds=seconds, ids=sorted(early), rating=[early[p] for p in sorted(early)])
"""


def simulate(seed: int = 0) -> dict[str, np.ndarray]:
    """Draw attempts of respondents at items over periods: ability and difficulty ~ N(0, 1)."""
    random = np.random.default_rng(seed)
    theta, b = random.normal(size=RESPONDENTS), random.normal(size=ITEMS)
    who, item = random.integers(0, RESPONDENTS, ATTEMPTS), random.integers(0, ITEMS, ATTEMPTS)
    score = (random.random(ATTEMPTS) < 1 / (1 + np.exp(b[item] - theta[who]))).astype(float)
    return {"period": random.integers(0, PERIODS, ATTEMPTS), "first": who, "second": item + RESPONDENTS, "score": score}


def run() -> dict[str, Any]:
    """Rate the same attempts with both; returns seconds, their ratio and the largest difference."""
    from gradatim.tasks.difficulty.ratings import rate

    log = simulate()
    rate(*(column[:1000] for column in log.values()))  # warm up
    start = time.perf_counter()
    rate(**log)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "peer" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        venv.create(Path(folder) / "peer", with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", PEER, "numpy"], check=True, stderr=subprocess.DEVNULL, cwd=folder
        )
        np.savez(f"{folder}/log.npz", **log)  # type: ignore[arg-type]
        subprocess.run([python, "-c", _PEER_CODE, f"{folder}/log.npz", f"{folder}/found.npz"], check=True, cwd=folder)
        with np.load(f"{folder}/found.npz") as found:
            theirs, rating, ids = float(found["seconds"]), found["rating"], found["ids"]
    # the peer leaves the deviation of the idle as it is, so that only the first period must be the same
    first = log["period"] == log["period"].min()
    early = rate(*(column[first] for column in log.values()))
    assert np.array_equal(ids, early.players)
    return {
        "attempts": ATTEMPTS,
        "seconds": seconds,
        f"{PEER} seconds": theirs,
        "ratio": theirs / seconds,
        "largest difference in rating after one period": float(np.abs(rating - early.rating).max()),
        f"under {MOST_SECONDS:g} s": seconds < MOST_SECONDS,
        f"at least {LEAST_SPEEDUP:g} times as fast": theirs / seconds >= LEAST_SPEEDUP,
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

"""2PL of 1,000,000 examples x 100 respondents by joint MAP, time and peak memory, beside L-BFGS on the same model.

The peer is what one writes without a library: `scipy.optimize.minimize` (L-BFGS-B) over all parameters at once, with
the gradient in NumPy. It gets a subsample of the examples and stops when its log-likelihood is within 1 in 10,000 of
ours, or after 500 iterations; its time a cell is compared with ours. (py-irt takes 1000 epochs of such gradients.)
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

ITEMS, RESPONDENTS, SUBSAMPLE = 1_000_000, 100, 20_000
SECONDS, BYTES, LEAST_SPEEDUP = 180.0, 6e9, 5.0
SPARSE_RESPONDENTS, SPARSE_SHARE = 1_000, 0.1

_CHILD = """
import json, sys, time
import numpy as np
from benchmarks.joint import simulate
from benchmarks.memory import peak_memory
from gradatim.tasks.difficulty.item_response.joint import fit_joint
items, respondents, share, model = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
cells, theta, b = simulate(items, respondents, share)
before = peak_memory()
start = time.perf_counter()
fit = fit_joint(cells, model)
took = time.perf_counter() - start
inner = fit.extreme == 0
rank = lambda v: np.argsort(np.argsort(v))
print(json.dumps({
    "cells": cells.size, "seconds": took, "peak GB": peak_memory() / 1e9, "of which data": before / 1e9,
    "sweeps": fit.n_iter, "converged": bool(fit.converged),
    "rank correlation with truth": float(np.corrcoef(rank(fit.b[inner]), rank(b[inner]))[0, 1]),
    "abilities with truth": float(np.corrcoef(fit.abilities, theta)[0, 1]),
}))
"""


def simulate(items: int, respondents: int, share: float = 1.0, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """Draw the cells of a 2PL (theta ~ N(0, 1), b ~ N(0, 1.5^2), log a ~ N(.4, .3^2)), theta and b."""
    from gradatim.tasks.difficulty.item_response.cells import Cells, index_type

    random = np.random.default_rng(seed)
    theta = random.normal(size=respondents).astype(np.float32)
    b = 1.5 * random.normal(size=items).astype(np.float32)
    a = np.exp(0.4 + 0.3 * random.normal(size=items)).astype(np.float32)
    counts, who, score = [], [], []
    size = max(1, 5_000_000 // respondents)
    for start in range(0, items, size):
        part = slice(start, start + size)
        chance = 1 / (1 + np.exp(-a[part, None] * (theta - b[part, None])))
        right = random.random(chance.shape, dtype=np.float32) < chance
        there = random.random(chance.shape, dtype=np.float32) < share
        there[:, 0] = True
        counts.append(there.sum(axis=1))
        who.append(np.nonzero(there)[1].astype(index_type(respondents)))
        score.append(right[there].astype(np.uint8))
    pointer = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    return Cells(pointer, np.concatenate(who), np.concatenate(score), respondents), theta, b


def lbfgs(answers: np.ndarray, enough: float, iterations: int = 500) -> tuple[float, float]:
    """Fit a 2PL to an (n, J) matrix of 0 and 1 by L-BFGS over all parameters: seconds, and the penalised value reached.

    Stops as soon as the value is `enough`.
    """
    from scipy.optimize import minimize

    n, items = answers.shape
    best = [-np.inf]

    class Enough(Exception):
        pass

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        theta, log_a, d = x[:n], x[n : n + items], x[n + items :]
        a = np.exp(log_a)
        z = theta[:, None] * a + d
        p = 1 / (1 + np.exp(-z))
        residual = answers - p
        away = log_a - log_a.mean()
        total = (answers * z - np.logaddexp(0, z)).sum() - 0.5 * (theta**2).sum()
        total -= 0.5 * ((away / 0.5) ** 2).sum() + 0.5 * ((d / 3) ** 2).sum()
        best[0] = max(best[0], total)
        if total >= enough:
            raise Enough
        gradient = np.concatenate(
            [residual @ a - theta, (residual.T @ theta) * a - away / 0.25, residual.sum(axis=0) - d / 9]
        )
        return -total, -gradient

    rate = np.clip(answers.mean(axis=0), 0.02, 0.98)
    able = answers.mean(axis=1)
    start = np.concatenate([(able - able.mean()) / able.std(), np.zeros(items), np.log(rate / (1 - rate))])
    begun = time.perf_counter()
    with contextlib.suppress(Enough):
        minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return time.perf_counter() - begun, best[0]


def run() -> dict[str, Any]:
    """Fit both, print a small table, and return seconds, peak memory, ratios and whether the targets are met.

    GRADATIM_BENCHMARK_ITEMS makes it smaller: the bounds on time and memory shrink with it.
    """
    from gradatim.tasks.difficulty.item_response.joint import fit_joint

    items = int(os.environ.get("GRADATIM_BENCHMARK_ITEMS", ITEMS))
    scale = items / ITEMS
    result: dict[str, Any] = {"benchmark": f"joint MAP, {items:,} examples"}
    for name, respondents, share, model in (
        ("2pl, 100 respondents, complete", RESPONDENTS, 1.0, "2pl"),
        ("1pl, 100 respondents, complete", RESPONDENTS, 1.0, "1pl"),
        ("2pl, 1,000 respondents, a tenth of the cells", SPARSE_RESPONDENTS, SPARSE_SHARE, "2pl"),
    ):
        said = subprocess.run(
            [sys.executable, "-c", _CHILD, str(items), str(respondents), str(share), model],
            check=True,
            capture_output=True,
            text=True,
        )
        found = json.loads(said.stdout)
        result[name] = found
        print(f"{name:46} {found['seconds']:7.1f} s   peak {found['peak GB']:5.2f} GB   {found['sweeps']} sweeps")
    some, _, _ = simulate(min(SUBSAMPLE, items), RESPONDENTS)
    answers = some.matrix()
    inner = np.flatnonzero((answers.min(axis=0) < 1) & (answers.max(axis=0) > 0))
    answers = answers[:, inner]
    start = time.perf_counter()
    fit = fit_joint(some.take(inner), "2pl", errors=False)
    ours = time.perf_counter() - start
    information = (fit.a**2 * _weight(fit.a, fit.d, fit.abilities)).sum(axis=1)
    reached = fit.trace[-1] + 0.5 * np.log1p(information).sum()  # the peer knows no log-determinant
    theirs, value = lbfgs(answers, reached - 1e-4 * abs(reached))
    ratio = theirs / ours
    print(f"{'same model, ' + format(len(inner), ',') + ' examples: ours':46} {ours:7.2f} s")
    print(f"{'L-BFGS over all parameters':46} {theirs:7.2f} s   ratio {ratio:.1f}")
    result["peer"] = {
        "seconds": ours,
        "L-BFGS seconds": theirs,
        "ratio": ratio,
        "value": float(reached),
        "L-BFGS value": float(value),
    }
    full = result["2pl, 100 respondents, complete"]
    result["met"] = {
        "time": full["seconds"] <= max(SECONDS * scale, 5.0),
        "memory": full["peak GB"] * 1e9 <= max(BYTES * scale, 1e9),
        "converged": all(result[name]["converged"] for name in list(result)[1:4]),
        "faster than L-BFGS": ratio >= LEAST_SPEEDUP,
    }
    return result


def _weight(a: np.ndarray, d: np.ndarray, theta: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-(theta[:, None] * a + d)))
    return np.asarray(p * (1 - p))


if __name__ == "__main__":
    sys.exit(0 if all(run()["met"].values()) else 1)

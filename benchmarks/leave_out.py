"""Leaving 60 respondents out of a fit one by one, beside 60 fits from scratch: CPU time and the largest distance."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ONE_BY_ONE = 60
BOUND = 1e-4
CASES: dict[str, tuple[int, int, dict[str, Any], bool]] = {
    "1pl 134 x 500": (134, 500, {"model": "1pl"}, False),
    "2pl 134 x 500": (134, 500, {"model": "2pl"}, False),
    "2pl 500 x 1,000": (500, 1000, {"model": "2pl"}, False),
    "2pl 1,000 x 100": (1000, 100, {"model": "2pl"}, False),
    "3pl 500 x 40": (500, 40, {"model": "3pl"}, False),
    "joint 2pl 100 x 20,000": (100, 20_000, {"model": "2pl"}, True),
}


def simulate(n: int, items: int) -> np.ndarray:
    """Draw answers of a 2PL with theta, b ~ N(0, 1), log a ~ N(0, .3^2)."""
    random = np.random.default_rng(0)
    theta, b = random.normal(size=n), random.normal(size=items)
    a = np.exp(0.3 * random.normal(size=items))
    return (random.random((n, items)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))).astype(np.float64)


def compare(n: int, items: int, how: dict[str, Any], joint: bool) -> dict[str, float]:
    """Time both ways, without standard errors; the preparation of the quick one counts."""
    from gradatim.tasks.difficulty.item_response.fit import fit_irt
    from gradatim.tasks.difficulty.item_response.jackknife import Full
    from gradatim.tasks.difficulty.item_response.joint import fit_joint
    from gradatim.tasks.difficulty.item_response.leave_out import leave_out

    answers = simulate(n, items)
    fit_of: Callable[..., Any] = fit_joint if joint else fit_irt
    rows = range(3 if joint else ONE_BY_ONE)
    fit = fit_of(answers, **how)
    start = time.process_time()
    scratch = [fit_of(np.delete(answers, row, axis=0), **how, errors=False) for row in rows]
    slow = time.process_time() - start
    start = time.process_time()
    if joint:
        left = [leave_out(answers, fit, [row], errors=False, **how)[0] for row in rows]
        found = [(f.b[f.extreme == 0], np.flatnonzero(f.extreme == 0)) for f in left]
    else:
        full = Full.of(answers, fit, times=len(rows), **how)
        found = [(-s.curves.d / s.curves.a, s.inner) for s in (full.without([row]) for row in rows)]
    quick = time.process_time() - start
    distance = max(float(np.abs(b - s.b[inner]).max()) for (b, inner), s in zip(found, scratch, strict=True))
    moved = max(float(np.abs(fit.b[inner] - b).max()) for b, inner in found)
    count = len(rows)
    return {
        "refit_s": slow / count, "left_out_s": quick / count, "ratio": slow / quick,
        "distance": distance, "moved": moved,
    }  # fmt: skip


def run() -> dict[str, Any]:
    """Compare all cases, print a table, and return the numbers and whether each keeps its bounds."""
    print(f"{'':24}{'refit s':>10}{'left out s':>12}{'ratio':>8}{'distance':>11}{'moved':>8}")
    result: dict[str, Any] = {"benchmark": "leave_out"}
    for name, case in CASES.items():
        compare(case[0], min(case[1], 200), *case[2:]) if name == next(iter(CASES)) else None  # warm up
        found = compare(*case)
        print(
            f"{name:24}{found['refit_s']:10.4f}{found['left_out_s']:12.4f}{found['ratio']:8.1f}"
            f"{found['distance']:11.1e}{found['moved']:8.3f}"
        )
        result[name] = found
        result[f"{name}: within {BOUND:g} logits"] = found["distance"] <= BOUND
        result[f"{name}: no slower"] = found["ratio"] >= 1.0
    return result


if __name__ == "__main__":
    sys.exit(0 if all(v for v in run().values() if isinstance(v, bool)) else 1)

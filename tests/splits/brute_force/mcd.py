"""Maximum compound divergence the plain way: counters of rows, a full recount for every candidate."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any


def atoms(row: dict[str, str]) -> Counter[Any]:
    """Values of a row of factors."""
    return Counter(row.items())


def compounds(row: dict[str, str]) -> Counter[Any]:
    """Pairs of values."""
    return Counter(combinations(sorted(row.items()), 2))


def divergence(train: Counter[Any], test: Counter[Any], alpha: float) -> float:
    """1 - sum of p^alpha q^(1 - alpha); 0 where a side is empty."""
    p, q = sum(train.values()), sum(test.values())
    if not p or not q:
        return 0.0
    return 1 - math.fsum((train[k] / p) ** alpha * (test[k] / q) ** (1 - alpha) for k in train.keys() & test.keys())


def both(sides: list[list[list[dict[str, str]]]]) -> tuple[float, float]:
    """Atom and compound divergence of two sides, each a list of units, each a list of rows."""
    counts = [
        [sum((of(row) for unit in side for row in unit), Counter()) for side in sides] for of in (atoms, compounds)
    ]
    return divergence(*counts[0], 0.5), divergence(*counts[1], 0.1)


def objective(sides: list[list[list[dict[str, str]]]], target: float, cap: float, price: float) -> int:
    """What the search minimises while the sides grow, in steps of 1e-9."""
    atom, compound = both(sides)
    return math.floor((abs(compound - target) + (price * (atom - cap) if atom > cap else 0.0)) * 1e9 + 0.5)


def greedy(
    units: list[list[dict[str, str]]], quota: tuple[int, int], target: float, cap: float, price: float
) -> list[int]:
    """Add the best of all units to the emptier side in turn; returns 0 (V), 1 (W) or 2 of each unit."""
    side, sides, filled, closed = [2] * len(units), [[], []], [0, 0], set()
    while len(closed) < 2 and 2 in side:
        which = 0 if filled[0] * quota[1] <= filled[1] * quota[0] else 1
        which = 1 - which if which in closed else which
        fits = [u for u, unit in enumerate(units) if side[u] == 2 and 0 < len(unit) <= quota[which] - filled[which]]
        if not fits:
            closed.add(which)
            continue

        def value(u: int, which: int = which) -> tuple[int, int]:
            tried = [[*sides[0]], [*sides[1]]]
            tried[which].append(units[u])
            return objective(tried, target, cap, price), u

        best = min(fits, key=value)
        side[best] = which
        sides[which].append(units[best])
        filled[which] += len(units[best])
    return side

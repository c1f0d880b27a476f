"""The best of all assignments of clusters to splits, by trying every one; and what a split says, row by row."""

from __future__ import annotations

import itertools
import math
from typing import Any


def best(
    rows: list[list[int]], shares: list[float], epsilon: float, delta: float, similarity: list[list[float]]
) -> tuple[int, float]:
    """Return the fewest rows missing to the tolerances, and the least leakage with so few.

    `rows` has for each cluster all its rows, then those of each stratum.
    """
    count, splits, columns = len(rows), len(shares), len(rows[0])
    total = [sum(row[c] for row in rows) for c in range(columns)]
    least = [
        [math.floor(round(share * total[c] * (1 - (delta if c else epsilon)), 6)) for c in range(columns)]
        for share in shares
    ]
    for split in range(splits):
        least[split][0] = max(1, least[split][0])
    found: tuple[int, float] | None = None
    for place in itertools.product(range(splits), repeat=count):
        load = [[0] * columns for _ in range(splits)]
        for cluster, split in enumerate(place):
            for c in range(columns):
                load[split][c] += rows[cluster][c]
        missing = sum(max(0, least[s][c] - load[s][c]) for s in range(splits) for c in range(columns))
        if found is not None and missing > found[0]:
            continue
        leaked = leakage(rows, place, similarity)
        if found is None or (missing, leaked) < found:
            found = missing, leaked
    assert found is not None
    return found


def leakage(rows: list[list[int]], place: Any, similarity: list[list[float]]) -> float:
    """Add up weight times weight times similarity of clusters in different splits."""
    return sum(
        rows[i][0] * rows[j][0] * similarity[i][j] for i in range(len(rows)) for j in range(i) if place[i] != place[j]
    )


def parted(rows: list[dict[str, Any]], ties: list[tuple[str, str]]) -> int:
    """Count tied pairs of rows of which one is held out, or held out for another purpose, and the other is not."""
    side = {
        row["example_id"]: row["split"] if row["split"].endswith("ood") else "in"
        for row in rows
        if row["split"] != "excluded"
    }
    return sum(1 for one, two in ties if one in side and two in side and side[one] != side[two])

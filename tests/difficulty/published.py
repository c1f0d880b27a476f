"""Published tables of response patterns, and small helpers. LSAT6 and LSAT7: R. D. Bock, M. Lieberman (1970)."""

from __future__ import annotations

import numpy as np
import polars as pl

LSAT6 = """00000:3 00001:6 00010:2 00011:11 00100:1 00101:1 00110:3 00111:4 01000:1 01001:8 01011:16 01101:3 01110:2
01111:15 10000:10 10001:29 10010:14 10011:81 10100:3 10101:28 10110:15 10111:80 11000:16 11001:56 11010:21 11011:173
11100:11 11101:61 11110:28 11111:298"""
LSAT7 = """00000:12 00001:19 00010:1 00011:7 00100:3 00101:19 00110:3 00111:17 01000:10 01001:5 01010:3 01011:7 01100:7
01101:23 01110:8 01111:28 10000:7 10001:39 10010:11 10011:34 10100:14 10101:51 10110:15 10111:90 11000:6 11001:25
11010:7 11011:35 11100:18 11101:136 11110:32 11111:308"""


def patterns(table: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the patterns (P, 5) and their counts (P,)."""
    pairs = [cell.split(":") for cell in table.split()]
    return np.array([[float(c) for c in p] for p, _ in pairs]), np.array([int(n) for _, n in pairs])


def matrix(table: str) -> np.ndarray:
    """Return one row a respondent, in the order of the table."""
    rows, counts = patterns(table)
    return np.repeat(rows, counts, axis=0)


def simulate(
    n: int, items: int, seed: int, *, spread: float = 1.0, slopes: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw answers (n, items) of a 2PL, and its theta, a, b."""
    random = np.random.default_rng(seed)
    theta, b = random.normal(size=n), spread * random.normal(size=items)
    a = np.exp(slopes * random.normal(size=items))
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    return (random.random((n, items)) < p).astype(float), theta, a, b


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation with average ranks."""
    rank = [pl.Series(v).rank().to_numpy() for v in (x, y)]
    return float(np.corrcoef(*rank)[0, 1])

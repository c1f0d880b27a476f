"""Diversity and correlation shift of continuous features: a low-dimensional projection, densities, calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.distances import generator
from gradatim.tasks.core.ood_shift import Formula
from gradatim.tasks.core.reduce import one_thread
from gradatim.tasks.core.vector_rows import AnyVectors
from gradatim.tasks.diversity import kernel_density

EPS_DIV, EPS_COR = 1e-12, 5e-4
WIDTH = 8
"""Dimensions in which densities are estimated."""
EPOCHS, AVERAGED_FROM = 10, 5
LOW, HIGH, STEPS = 0.005, 0.01, 20
"""What random halves should score after calibration, and how many bisections look for it."""
MOST_LABELS = 50
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """Densities of two sides at points drawn from the pooled density, with importance weights that average over them.

    `differ` is ``Σ_y`` of the differences of p(y|z) and q(y|z); `skipped` are labels with too few rows on a side.
    """

    p: Floats
    q: Floats
    weight: Floats
    differ: Floats
    skipped: tuple[int, ...]

    def diversity(self, eps: float, formula: Formula) -> float:
        """Return the diversity shift where densities below `eps` count as nothing."""
        apart = np.abs(self.p - self.q) if formula == "original" else (np.sqrt(self.p) - np.sqrt(self.q)) ** 2
        alone = (self.p < eps) | (self.q < eps)
        return float(np.where(alone, apart * self.weight, 0.0).mean()) / 2

    def covered(self, eps: float) -> float:
        """Return the share of what both sides have in common that lies where both densities are above `eps`."""
        common = np.sqrt(self.p * self.q) * self.weight
        both = (self.p > eps) & (self.q > eps)
        total = float(common.sum())
        return float(common[both].sum()) / total if total > 0 else 1.0

    def correlation(self, eps: float) -> float:
        """Return the correlation shift where both densities are above `eps`."""
        both = (self.p > eps) & (self.q > eps)
        return float(np.where(both, np.sqrt(self.p * self.q) * self.weight * self.differ, 0.0).mean()) / 2


def density_shift(
    matrix: AnyVectors,
    label: NDArray[np.int32],
    ids: pl.Series,
    sides: list[Integers],
    *,
    formula: Formula,
    rows: int,
    points: int,
    repeats: int,
    calibrate: bool,
    eps: tuple[float, float],
    seed: int,
) -> tuple[dict[str, tuple[float, float | None, float | None]], list[str]] | None:
    """Estimate both shifts of two sides by kernel densities.

    Parameters
    ----------
    matrix, label, ids
        Vectors, labels and ids of all rows, in canonical order.
    sides : two arrays of positions
    formula, rows, points, repeats, calibrate, eps, seed
        As the settings of `ood_bench`.

    Returns
    -------
    (dict, list of str) or None
        Values with the ends of their intervals (of the mean over repeats) by metric, and what to read with care. None
        where a side has too few rows.
    """
    if min(map(len, sides)) < 3 * (min(matrix.shape[1], WIDTH) + 2):
        return None
    found: list[tuple[float, float]] = []
    notes: list[str] = []
    with one_thread():
        for number in range(repeats):
            rng = generator(seed, f"ood bench {number}")
            drawn = [_drawn(ids, side, rows, seed, number) for side in sides]
            both = np.concatenate(drawn)
            side = np.repeat(np.array([1, 0]), [len(part) for part in drawn])
            order = np.argsort(both, kind="stable")
            both, side = both[order], side[order]
            z = project(matrix[both], label[both], side, int(rng.integers(2**31)))
            if z is None:
                return None
            y = label[both].astype(np.int64)
            if number == 0 and calibrate:
                half = _halves(ids[both], seed)
                halves = grid(z, y, half, points, formula, generator(seed, "ood bench halves"))
                if halves is not None:
                    eps, notes = calibrated(halves, formula, eps)
            measured = grid(z, y, side, points, formula, rng)
            if measured is None:
                return None
            if number == 0 and measured.skipped:
                notes.append(f"{len(measured.skipped)} labels have too few rows on a side for the correlation shift")
            if number == 0 and measured.covered(eps[1]) < 0.5:
                share = f"{measured.covered(eps[1]):.0%}"
                notes.append(
                    f"only {share} of what both sides have in common lies where both densities are above {eps[1]:.2g}; "
                    "the correlation shift leaves out the rest"
                )
            found.append((measured.diversity(eps[0], formula), measured.correlation(eps[1])))
    values: dict[str, tuple[float, float | None, float | None]] = {}
    for name, column in zip(("diversity_shift", "correlation_shift"), np.array(found).T, strict=True):
        # drawn points may put a mean a little above 1
        mean, spread = min(1.0, float(column.mean())), float(column.std(ddof=1)) if repeats > 1 else 0.0
        reach = 1.959963984540054 * spread / np.sqrt(repeats)
        ends = (max(0.0, mean - reach), min(1.0, mean + reach)) if repeats > 1 else (None, None)
        values[name] = (mean, *ends)
        values[f"{name}_sd"] = (spread, None, None)
    values["eps_div"], values["eps_cor"] = (eps[0], None, None), (eps[1], None, None)
    return values, notes


def project(vectors: NDArray[np.floating], label: NDArray[Any], side: Integers, seed: int) -> Floats | None:
    """Return standardised features of at most eight dimensions; None where nothing varies.

    Vectors of more dimensions go through the bottleneck of a small network that learns to tell the combinations of
    environment and label apart (ten epochs of stochastic gradient descent, rate .05, weights averaged from the fifth):
    what it keeps is what both shifts are made of. It has one dimension fewer than there are combinations, at most
    eight: more would only add noise to the densities.
    """
    rows = _standardised(np.asarray(vectors, dtype=np.float64))
    if rows.shape[1] <= WIDTH:
        return rows if rows.shape[1] else None
    from sklearn.neural_network import MLPClassifier

    kept = np.bincount(label).argsort(kind="stable")[::-1][:MOST_LABELS]
    target = np.where(np.isin(label, kept), label, -1) * 2 + side
    classes = np.unique(target)
    width = max(1, min(WIDTH, len(classes) - 1))
    net = MLPClassifier(
        (width,), activation="tanh", solver="sgd", learning_rate_init=0.05, momentum=0.0, batch_size=64,
        random_state=seed,
    )  # fmt: skip
    weights, biases = np.zeros((rows.shape[1], width)), np.zeros(width)
    for epoch in range(EPOCHS):
        net.partial_fit(rows, target, classes=classes)
        if epoch >= AVERAGED_FROM:
            weights += net.coefs_[0] / (EPOCHS - AVERAGED_FROM)
            biases += net.intercepts_[0] / (EPOCHS - AVERAGED_FROM)
    z = _standardised(np.tanh(rows @ weights + biases))
    return z if z.shape[1] else None


def grid(
    z: Floats, label: Integers, side: Integers, points: int, formula: Formula, rng: np.random.Generator
) -> Grid | None:
    """Compare the densities of two sides at points drawn from the density of both.

    p(y|z) rests on densities of each label, fitted to equally many rows of it on both sides and weighted by their
    number.
    """
    parts = [z[side == value] for value in (1, 0)]
    fitted = [kernel_density.fit(part) for part in parts]
    pooled = kernel_density.fit(z)
    if pooled is None or fitted[0] is None or fitted[1] is None:
        return None
    at = kernel_density.draw(pooled, points, rng)
    p, q = (kernel_density.evaluate(density, at) for density in fitted if density is not None)
    weight = 1 / np.maximum(kernel_density.evaluate(pooled, at), 1e-300)
    given: list[list[Floats]] = [[], []]
    skipped = []
    for one in np.unique(label):
        here = [np.flatnonzero((side == value) & (label == one)) for value in (1, 0)]
        size = min(map(len, here))
        densities = [kernel_density.fit(z[rng.permutation(rows)[:size]]) for rows in here]
        if densities[0] is None or densities[1] is None:
            skipped.append(int(one))
            continue
        for place, density in enumerate(densities):
            assert density is not None
            given[place].append(size * kernel_density.evaluate(density, at))
    if not given[0]:
        return Grid(p, q, weight, np.zeros(points), tuple(skipped))
    share = [np.array(side_) / np.maximum(np.sum(side_, axis=0), 1e-300) for side_ in given]
    if formula == "original":
        differ = np.abs(share[0] - share[1]).sum(axis=0)
    else:
        differ = ((np.sqrt(share[0]) - np.sqrt(share[1])) ** 2).sum(axis=0)
    return Grid(p, q, weight, differ, tuple(skipped))


def calibrated(halves: Grid, formula: Formula, eps: tuple[float, float]) -> tuple[tuple[float, float], list[str]]:
    """Choose the thresholds under which two random halves score between .005 and .01, by bisection.

    That of diversity goes no further than a hundredth of the median density of both: more is not nearly nought. Where
    halves score less whatever the threshold, the given one stays; where they score more, the one that scores least is
    taken, and noted.
    """
    typical = float(np.median(1 / halves.weight))
    div = _bisect(lambda e: halves.diversity(e, formula), eps[0], typical / 100, rising=True)
    cor = _bisect(halves.correlation, eps[1], 1e6, rising=False)
    notes = [
        f"random halves score {score:.2g} in {name} shift, above the .01 that calibration aims at: so much is noise"
        for name, score in (("diversity", halves.diversity(div, formula)), ("correlation", halves.correlation(cor)))
        if score > HIGH
    ]
    return (div, cor), notes


def _bisect(score: Callable[[float], float], start: float, most: float, *, rising: bool) -> float:
    """Find a threshold of at most `most`, on the scale of logarithms, whose score lies between the bounds."""
    begun = score(start)
    if LOW <= begun <= HIGH:
        return start
    low, high = -60.0, float(np.log10(max(most, 1e-50)))
    for _ in range(STEPS):
        middle = (low + high) / 2
        value = score(10.0**middle)
        if LOW <= value <= HIGH:
            return float(10.0**middle)
        if (value < LOW) == rising:
            low = middle
        else:
            high = middle
    return start if begun <= HIGH else float(10.0 ** (low if rising else high))


def _standardised(rows: Floats) -> Floats:
    rows = rows - rows.mean(axis=0)
    spread = rows.std(axis=0)
    kept = spread > 1e-9 * np.abs(rows).max(initial=1e-300)
    return np.asarray(rows[:, kept] / spread[kept])


def _drawn(ids: pl.Series, side: Integers, most: int, seed: int, number: int) -> Integers:
    if len(side) <= most:
        return side
    bits = random_bits(ids[side], seed, f"ood bench rows {number}")
    return np.sort(side[np.argsort(bits, kind="stable")[:most]])


def _halves(ids: pl.Series, seed: int) -> Integers:
    order = np.argsort(random_bits(ids, seed, "ood bench halves"), kind="stable")
    half = np.zeros(len(ids), dtype=np.int64)
    half[order[: len(ids) // 2]] = 1
    return half

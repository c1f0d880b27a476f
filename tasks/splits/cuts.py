"""How a pool of in-distribution rows is cut into train, validation and test: by the draw, or by a quota a stratum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits.config import SplitConfig

TRAIN, VALIDATION, VALIDATION_OOD, TEST, TEST_OOD, EXCLUDED = range(len(SPLITS))


@dataclass(frozen=True)
class Pool:
    """What a cut works on: the in-distribution rows of one fold and seed.

    Attributes
    ----------
    rows : numpy.ndarray of bool, (rows of examples,)
        Members of the pool.
    code : numpy.ndarray of int64, (rows of examples,)
        Component of each row, from 0.
    draw : numpy.ndarray of float64, (components,)
        The component's uniform number.
    size : numpy.ndarray of int64, (components,)
        Its rows in the pool.
    """

    rows: np.ndarray
    code: np.ndarray
    draw: np.ndarray
    size: np.ndarray


Cut = Callable[[Pool, SplitConfig], np.ndarray]
"""Assigns TRAIN, VALIDATION or TEST (uint8) to each component of a pool."""


def cut_by_draw(pool: Pool, config: SplitConfig) -> np.ndarray:
    """Cut by thresholds on the uniform number.

    A component with more rows than the split asked for stays in train; with `folds`, where each component is to be
    tested once, it does not.
    """
    rows = int(pool.rows.sum())
    chosen = np.full(len(pool.draw), TRAIN, np.uint8)
    test = config.test_share
    for split, low, high in ((TEST, 0.0, test), (VALIDATION, test, test + config.validation)):
        fits = (pool.size <= max(1.0, (high - low) * rows)) | (config.folds > 1 and split == TEST)
        chosen[(pool.draw >= low) & (pool.draw < high) & fits] = split
    return chosen


def cut_by_strata(stratum: np.ndarray, strata: int) -> Cut:
    """Return the cut that gives each stratum the same shares; `stratum` as in `cut_by_quota`."""

    def cut(pool: Pool, config: SplitConfig) -> np.ndarray:
        if config.folds == 1:
            return cut_by_quota(pool, config, stratum, strata)
        return cut_by_draw(pool, config)  # the draws are places within strata already: see `within_strata`

    return cut


def within_strata(pool: Pool, stratum: np.ndarray, strata: int) -> Pool:
    """Put each component's place in its stratum, as a share of the stratum's rows, in place of its draw."""
    home = _majority(pool, stratum, strata)
    present = np.flatnonzero(pool.size > 0)
    order = present[np.lexsort((pool.draw[present], home[present]))]
    size, owner = pool.size[order], home[order]
    total = np.bincount(owner, weights=size, minlength=strata)
    start = np.concatenate([[0.0], np.cumsum(total)])
    draw = np.ones(len(pool.draw))
    draw[order] = (np.cumsum(size) - size / 2 - start[owner]) / total[owner]
    return replace(pool, draw=draw)


def rotated(pool: Pool, fold: int, folds: int) -> Pool:
    """Turn the draws so that the components of test are those of the fold's own share."""
    return replace(pool, draw=(pool.draw - fold / folds) % 1.0) if fold else pool


def cut_by_quota(pool: Pool, config: SplitConfig, stratum: np.ndarray, strata: int) -> np.ndarray:
    """Fill each stratum's quota of test, then validation, in the order of the draws.

    A component belongs to the stratum of most of its rows (the first of equals). A quota is share x rows, rounded by
    largest remainders, so that the whole is right to a row. A component larger than its quota stays in train, and so
    does one that would overfill it by more than half of its own size.

    Parameters
    ----------
    pool : Pool
    config : SplitConfig
    stratum : numpy.ndarray of int64, (rows of examples,)
        From 0 to strata - 1.
    strata : int

    Returns
    -------
    numpy.ndarray of uint8, (components,)
    """
    chosen = np.full(len(pool.draw), TRAIN, np.uint8)
    home = _majority(pool, stratum, strata)
    present = np.flatnonzero(pool.size > 0)
    rows = np.bincount(home[present], weights=pool.size[present], minlength=strata)
    order = present[np.lexsort((pool.draw[present], home[present]))]
    for split, share in ((TEST, config.test), (VALIDATION, config.validation)):
        quota = largest_remainders(share * rows)
        candidates = order[pool.size[order] <= np.maximum(1, quota[home[order]])]
        size, owner = pool.size[candidates], home[candidates]
        filled = np.cumsum(size) - size / 2
        start = np.concatenate([[0.0], np.cumsum(np.bincount(owner, weights=size, minlength=strata))])
        taken = filled - start[owner] <= quota[owner]
        chosen[candidates[taken]] = split
        order = order[chosen[order] == TRAIN]
    return chosen


def largest_remainders(wanted: np.ndarray) -> np.ndarray:
    """Round to whole numbers whose sum is the rounded sum."""
    wanted = np.round(wanted, 9)
    whole: np.ndarray = np.floor(wanted)
    more = round(float(wanted.sum())) - int(whole.sum())
    whole[np.argsort(-(wanted - whole), kind="stable")[:more]] += 1
    return whole


def _majority(pool: Pool, stratum: np.ndarray, strata: int) -> np.ndarray:
    """Return the stratum that most of a component's rows in the pool have."""
    pairs, counts = np.unique(pool.code[pool.rows] * strata + stratum[pool.rows], return_counts=True)
    order = np.lexsort((-pairs, counts))  # the last write wins: most rows, then the smaller stratum
    home = np.zeros(len(pool.draw), np.int64)
    home[pairs[order] // strata] = pairs[order] % strata
    return home

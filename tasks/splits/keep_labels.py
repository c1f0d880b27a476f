"""What a rule promises of train beyond its sides: each value, or cell, has a few rows there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.splits.cuts import TRAIN, Pool
from gradatim.tasks.splits.values import Coded


@dataclass(frozen=True)
class Kept:
    """Labels of rows (values, cells), each of which is to have at least `least` rows in train."""

    labels: Coded
    least: int = 1


def keep_labels(pool: Pool, chosen: np.ndarray, kept: Sequence[Kept], where: str) -> np.ndarray:
    """Put components back into train until each label has its rows there; those drawn furthest from test go first.

    Parameters
    ----------
    pool : Pool
    chosen : numpy.ndarray of uint8, (components,)
        The cut; changed in place.
    kept : sequence of Kept
        Labels that some row of examples has, in the pool or not, are wanted.
    where : str
        For the error.

    Returns
    -------
    numpy.ndarray of bool, (components,)
        Those that were put back.

    Raises
    ------
    DataRefused
        Where the pool has fewer rows of a label.
    """
    moved = np.zeros(len(chosen), np.bool_)
    for one in kept:
        labels, least = one.labels, one.least
        inside = pool.rows & (labels.codes >= 0)
        in_pool = np.bincount(labels.codes[inside], minlength=len(labels.levels))
        lacking = np.flatnonzero((in_pool < least) & (labels.counts > 0))
        if len(lacking):
            first = int(lacking[0])
            more = f" and {len(lacking) - 1:,} more like it" if len(lacking) > 1 else ""
            raise DataRefused(
                f"{labels.levels[first]} has {labels.counts[first]:,} rows, of which {in_pool[first]:,} stay in "
                f"distribution; train is to have {least:,}{more}",
                where=where,
                expected=f"at least {least:,} in-distribution rows of each value",
                remedy="hold out less, ask for fewer rows of each value, or leave rows with this value out",
            )
        trained = inside & (chosen[pool.code] == TRAIN)
        have = np.bincount(labels.codes[trained], minlength=len(labels.levels))
        short = np.append((have < least) & (labels.counts > 0), False)
        rows = np.flatnonzero(inside & ~trained & short[labels.codes])
        if not len(rows):
            continue
        order = rows[np.lexsort((pool.code[rows], -pool.draw[pool.code[rows]], labels.codes[rows]))]
        label = labels.codes[order]
        starts = np.flatnonzero(np.append(True, label[1:] != label[:-1]))
        place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        back = pool.code[order[place < least - have[label]]]
        chosen[back] = TRAIN
        moved[back] = True
    return moved

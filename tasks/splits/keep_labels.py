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
                remedy="hold out less, ask for fewer rows of each value, or leave rows with this value out; where its "
                "group has out-of-distribution rows too, keep together by a finer column",
            )
        trained = inside & (chosen[pool.code] == TRAIN)
        have = np.bincount(labels.codes[trained], minlength=len(labels.levels))
        short = np.append((have < least) & (labels.counts > 0), False)
        rows = np.flatnonzero(inside & ~trained & short[labels.codes])
        if not len(rows):
            continue
        back = first_of_each(rows, labels.codes, pool.code, -pool.draw, least - have)
        chosen[back] = TRAIN
        moved[back] = True
    return moved


def first_of_each(
    rows: np.ndarray, label: np.ndarray, code: np.ndarray, draw: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Return the components of as many rows of each label as are wanted, in the order of their draw.

    Parameters
    ----------
    rows : numpy.ndarray of int64
        Places of rows to choose from, each with a label.
    label, code : numpy.ndarray of int64, (rows of examples,)
    draw : numpy.ndarray of float64, (components,)
    wanted : numpy.ndarray of int64, (labels,)
    """
    order = rows[np.lexsort((code[rows], draw[code[rows]], label[rows]))]
    of_row = label[order]
    starts = np.flatnonzero(np.append(True, of_row[1:] != of_row[:-1])) if len(order) else np.empty(0, np.int64)
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    components: np.ndarray = code[order[place < wanted[of_row]]]
    return components

"""Refuses a split of which a part would be empty, and says what would fill it."""

from __future__ import annotations

import numpy as np

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import TEST, TEST_OOD, TRAIN, VALIDATION_OOD, Pool


def refuse_empty(
    split: np.ndarray, pool: Pool, config: SplitConfig, where: str, held_out: str, straddling: int
) -> None:
    """Raise `DataRefused` where train, test or (of a fold that holds something out) test_ood has no row.

    Parameters
    ----------
    split : numpy.ndarray of uint8, (rows,)
    pool : Pool
    config : SplitConfig
    where : str
        Strategy and fold.
    held_out : str
        The rule in a few words; empty where nothing is held out.
    straddling : int
        In-distribution rows that are excluded since their group lies on both sides.
    """
    counts = np.bincount(split, minlength=len(SPLITS))
    needed = [TRAIN, TEST, TEST_OOD] if held_out else [TRAIN, TEST]
    empty = [index for index in needed if counts[index] == 0]
    if not empty:
        return
    sizes = ", ".join(f"{SPLITS[index]} {counts[index]:,}" for index in range(len(SPLITS)))
    if TEST_OOD in empty:
        if counts[VALIDATION_OOD]:
            remedy = f"lower validation_ood (now {config.validation_ood:g})"
        else:
            remedy = f"no row is out of distribution ({held_out}): move the boundary"
    elif not pool.rows.any():
        remedy = "no row is left in distribution: move the boundary"
    elif TEST in empty:
        present = pool.size > 0
        share = np.maximum(pool.draw, pool.size / pool.rows.sum())[present].min()
        enough = np.ceil(share * 1000) / 1000
        if enough + config.validation < 1:
            remedy = f"raise test above {enough:g} (now {config.test:g}), or take another seed"
        else:
            kind = "groups" if (pool.size > 1).any() else "rows"
            remedy = f"there are too few {kind} in distribution ({present.sum():,}): add some, or take another seed"
        if (pool.size > 1).any():
            remedy += f"; the smallest group holds {pool.size[present].min():,} of {pool.rows.sum():,} rows"
    else:
        remedy = f"lower test (now {config.test:g}) or validation (now {config.validation:g})"
    if straddling:
        remedy += (
            f"; {straddling:,} rows are excluded since their group lies on both sides: keep together by a finer column"
        )
    raise DataRefused(
        f"{' and '.join(SPLITS[index] for index in empty)} would be empty ({sizes})", where=where, remedy=remedy
    )

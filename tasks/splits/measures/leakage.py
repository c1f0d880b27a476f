"""How much of all likeness of training and test rows lies between them."""

from __future__ import annotations

import numpy as np

from gradatim.tasks.core.leakage import row_leakage, text_similarity
from gradatim.tasks.splits.measures.block import Block, Measured


def leakage(block: Block) -> Measured:
    """Measure the leakage ratio of train and test_ood (test where there is none) by pairs of their texts.

    Returns
    -------
    dict
        ``leakage``, and the ends of its 95 % interval as ``leakage_low`` and ``leakage_high``; the number is that of
        rows. Nothing where there are no inputs.
    """
    if not block.has("input") or not len(block.train) or not len(block.compared):
        return {}
    rows = block.rows
    other = block.compared["split"][0]
    place = rows["split"].replace_strict({"train": 0, other: 1}, default=-1).to_numpy()
    found = row_leakage(place, rows["example_id"], text_similarity(rows["input"]), seed=block.seed)
    used = int(np.count_nonzero(place >= 0))
    return {"leakage": (found.ratio, used), "leakage_low": (found.low, used), "leakage_high": (found.high, used)}

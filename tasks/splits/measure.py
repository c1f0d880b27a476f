"""All that a certificate measures on one split, in one order."""

from __future__ import annotations

from gradatim.tasks.splits.measures.balance import balance
from gradatim.tasks.splits.measures.block import Block, Measured
from gradatim.tasks.splits.measures.difficulty import difficulty
from gradatim.tasks.splits.measures.duplicates import duplicates
from gradatim.tasks.splits.measures.leakage import leakage
from gradatim.tasks.splits.measures.ood_shift import ood_shift
from gradatim.tasks.splits.measures.scores import scores
from gradatim.tasks.splits.measures.shift import Told, shift
from gradatim.tasks.splits.measures.structure import structure


def measure(block: Block, told: Told | None) -> Measured:
    """Measure one split.

    Parameters
    ----------
    block : Block
    told : Told or None
        The classifier between train and test_ood, see `measures.shift.told_of`.

    Returns
    -------
    dict
        Value (None where there is none) and number of rows by the name of the check.
    """
    return {
        **balance(block),
        **duplicates(block),
        **leakage(block),
        **difficulty(block),
        **scores(block),
        **shift(told),
        **ood_shift(block, told),
        **structure(block),
    }

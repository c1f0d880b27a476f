"""The public functions: the notebook's way to every method, with no store, no server and no recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.recipe import Examples, Responses, Step
from gradatim.tasks.core import registry

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset
    from gradatim.tasks.curriculum.result import CurriculumOrder
    from gradatim.tasks.difficulty.result import Difficulty
    from gradatim.tasks.diversity.result import Diversity
    from gradatim.tasks.evaluation.result import Comparison, Evaluation
    from gradatim.tasks.splits.certificate import Certificate
    from gradatim.tasks.splits.result import Split

Frame = Any
"""Polars DataFrame or LazyFrame, pandas DataFrame, Arrow table, or a path to one of the formats that `read` takes."""


def read(path: str | Path, **columns: Any) -> pl.DataFrame:
    """Read examples from a file, glob or folder (CSV, JSON Lines, Parquet, Arrow IPC).

    Parameters
    ----------
    path : str or Path
    **columns
        The keys of a recipe's section `examples`: ``id="id", input="question", output="answer", group="template"``.

    Returns
    -------
    polars.DataFrame
        The table `examples`, payload columns kept; one row an example, sorted by example_id.

    Raises
    ------
    UsageError
        For an unknown key or column.
    DataRefused
        For a file that cannot be read. Rejected rows are counted in a warning; a recipe keeps them as a table.
    """
    import warnings

    from gradatim.tasks.ingest.examples import read_examples

    settings = registry.validated(Examples, {"from": str(path), **columns}, where="read")
    ingested = read_examples(settings, base=Path())
    if ingested.counts.rejected:
        reasons = ingested.rejects.group_by("reason").len().sort("len", descending=True)
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.head(3).iter_rows())
        warnings.warn(f"{ingested.counts.rejected} of {ingested.counts.rows_in} rows rejected: {listed}", stacklevel=2)
    return ingested.table

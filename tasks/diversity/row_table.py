"""The table `diversity` of a measure of vectors, made some rows at a time, and on disk where rows are many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.mapped import mapped
from gradatim.tasks.core.row_numbers import slices


def row_table(
    method: str,
    ids: pl.Series,
    value: NDArray[np.float64],
    cluster: NDArray[Any],
    nearest: NDArray[Any] | None = None,
    similarity: Callable[[slice], NDArray[np.float64]] | None = None,
) -> pl.DataFrame:
    """Return a measure's values of rows in the schema of the table `diversity`.

    Parameters
    ----------
    method : str
    ids : polars.Series of str, length N
    value : numpy.ndarray, shape (N,)
        NaN for none.
    cluster : numpy.ndarray of int, shape (N,)
    nearest : numpy.ndarray of int, shape (N,), optional
        Place in `ids` of each row's nearest, -1 for none.
    similarity : callable, optional
        Gives the similarity of a slice of rows to their nearest, NaN for none.
    """

    def parts() -> Iterator[pl.DataFrame]:
        for part in slices(len(ids)):
            near = pl.lit(None)
            if nearest is not None:
                place = nearest[part]
                near = pl.lit(ids.gather(np.maximum(place, 0)).set(pl.Series(place < 0), None))
            yield pl.DataFrame({"example_id": ids[part], "cluster": cluster[part]}).with_columns(
                method=pl.lit(method),
                value=pl.lit(pl.Series(value[part]).fill_nan(None)),
                nearest_id=near,
                nearest_similarity=pl.lit(pl.Series(similarity(part)).fill_nan(None) if similarity else None),
            )

    return mapped(parts(), polars_schema("diversity"))

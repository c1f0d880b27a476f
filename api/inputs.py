"""What users hand in, in any of the usual forms, as the tables that methods take."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest


def as_frame(found: Any, what: str) -> pl.DataFrame:
    """Take a table in any of the usual forms, or a result with `.table`."""
    found = getattr(found, "table", found)
    if isinstance(found, pl.LazyFrame):
        return found.collect()
    if isinstance(found, pl.DataFrame):
        return found
    if type(found).__module__.split(".")[0] in ("pandas", "pyarrow"):
        frame = pl.DataFrame(found)
        return frame
    raise UsageError(f"found {type(found).__name__}", where=what, expected="a Polars, pandas or Arrow table")


def as_responses(found: Any) -> dict[str, pl.DataFrame]:
    """Take responses as a long table or as a matrix; a column `family` becomes the table `respondents`."""
    if isinstance(found, np.ndarray | list | tuple):
        frame = _from_matrix(np.asarray(found, dtype=np.float64))
    else:
        frame = as_frame(found, "responses")
        long = {"respondent_id", "example_id", "score"} & set(frame.columns)
        if not long:
            frame = _from_wide(frame)
        elif len(long) < 3:
            missing = sorted({"respondent_id", "example_id", "score"} - long)
            raise UsageError(
                f"there is no column {missing[0]!r}{nearest(missing[0], frame.columns)}",
                where="responses",
                expected="respondent_id, example_id, score; or a matrix, respondents x examples",
            )
    tables = {"responses": frame}
    if "family" in frame.columns:
        tables["respondents"] = (
            frame.select("respondent_id", "family").unique("respondent_id", keep="any").sort("respondent_id")
        )
    return tables


def _from_matrix(matrix: np.ndarray) -> pl.DataFrame:
    if matrix.ndim != 2:
        raise UsageError(
            f"found an array of {matrix.ndim} dimensions", where="responses", expected="respondents x examples"
        )
    wide = pl.DataFrame(matrix, schema=[str(i) for i in range(matrix.shape[1])])
    return _from_wide(wide)


def _from_wide(wide: pl.DataFrame) -> pl.DataFrame:
    """Turn respondents x examples into a long table; names are numbers with as many digits as they need."""
    names = wide.columns
    if names == [str(i) for i in range(len(names))]:
        names = [f"example-{i:0{len(str(max(len(names) - 1, 0)))}d}" for i in range(len(names))]
    digits = len(str(max(len(wide) - 1, 0)))
    who = pl.Series("respondent_id", [f"respondent-{i:0{digits}d}" for i in range(len(wide))], dtype=pl.String)
    named = wide.cast(pl.Float64, strict=False).rename(dict(zip(wide.columns, names, strict=True)))
    long = named.with_columns(who).unpivot(index="respondent_id", variable_name="example_id", value_name="score")
    return long.filter(pl.col("score").is_not_nan())

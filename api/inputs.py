"""What users hand in, in any of the usual forms, as the tables that methods take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.explain import explain
from gradatim.schemas.recipe import Step

Model = TypeVar("Model", bound=BaseModel)

LONG = ("respondent_id", "example_id", "score")
"""Columns of a long table of responses."""


def as_frame(found: Any, what: str) -> pl.DataFrame:
    """Take a table in any of the usual forms, or a result with `.table`."""
    found = getattr(found, "table", found)
    if isinstance(found, pl.LazyFrame):
        return found.collect()
    if isinstance(found, pl.DataFrame):
        return found
    if type(found).__module__.split(".")[0] in ("pandas", "pyarrow"):
        try:
            frame = pl.DataFrame(found)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:  # a column that holds several types
            raise UsageError(str(error), where=what, expected="columns of one type each") from None
        return frame
    raise UsageError(f"found {type(found).__name__}", where=what, expected="a Polars, pandas or Arrow table")


def as_examples(found: Any) -> pl.DataFrame:
    """Take examples as a table; raises `DataRefused` where an example_id is null or stands twice."""
    frame = as_frame(found, "examples")
    if "example_id" in frame.columns:
        ids = frame["example_id"]
        if ids.null_count() or ids.n_unique() < len(ids):
            what = "is null" if ids.null_count() else f"{ids.filter(ids.is_duplicated())[0]!r} stands twice"
            raise DataRefused(f"an example_id {what}", where="examples", expected="a unique id a row")
    return frame


def as_responses(found: Any) -> dict[str, pl.DataFrame]:
    """Take responses as a long table or as a matrix; a column `family` becomes the table `respondents`."""
    if isinstance(found, np.ndarray | list | tuple):
        frame = _from_matrix(found)
    else:
        frame = as_frame(_with_index(found), "responses")
        missing = [name for name in LONG if name not in frame.columns]
        if len(missing) == 3 or missing == ["example_id", "score"]:
            frame = _from_wide(frame)
        elif missing:
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


def as_features(found: Any, examples: pl.DataFrame | None, name: str) -> pl.DataFrame:
    """Take vectors as a table of example_id and embedding, or as a matrix whose rows are those of the examples."""
    where = f"features {name}"
    if examples is not None and "example_id" not in examples.columns:
        raise UsageError(
            f"examples has no column 'example_id'{nearest('example_id', examples.columns)}",
            where=where,
            expected="examples with ids, which say whose vectors these are",
        )
    if not isinstance(found, np.ndarray | list | tuple):
        frame = as_frame(found, where)
        for column in ("example_id", "embedding"):
            if column not in frame.columns:
                raise UsageError(
                    f"there is no column {column!r}{nearest(column, frame.columns)}",
                    where=where,
                    expected="a table of example_id and embedding, or a matrix",
                )
        return frame
    try:
        matrix = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError):
        raise UsageError(
            "found no matrix of numbers", where=where, expected="rows of numbers, all of one length"
        ) from None
    if matrix.ndim != 2:
        raise UsageError(f"found an array of {matrix.ndim} dimensions", where=where, expected="examples x dimensions")
    if examples is None or len(examples) != len(matrix):
        have = "no examples" if examples is None else f"{len(examples)} examples"
        raise UsageError(
            f"{len(matrix)} vectors and {have}",
            where=where,
            expected="a vector an example, in the order of examples=...",
            remedy="give a table of example_id and embedding",
        )
    vectors = pl.Series("embedding", matrix, dtype=pl.Array(pl.Float32, matrix.shape[1]))
    return examples.select(pl.col("example_id").cast(pl.String)).with_columns(vectors).sort("example_id")


def as_difficulties(found: Any) -> pl.DataFrame:
    """Take one or several difficulties as one table; where two have the same name, the second gets a number."""
    if not isinstance(found, list | tuple):
        return as_frame(found, "difficulties")
    frames, names = [], set[str]()
    for one in found:
        frame = as_frame(one, "difficulties")
        methods = frame["method"].unique().to_list() if "method" in frame.columns else []
        if len(methods) == 1 and methods[0] in names:
            name = next(f"{methods[0]} {i}" for i in range(2, len(names) + 3) if f"{methods[0]} {i}" not in names)
            frame = frame.with_columns(pl.lit(name).alias("method"))
        names |= set(frame["method"].unique()) if "method" in frame.columns else set()
        frames.append(frame)
    if not frames:
        raise UsageError("there is none", where="difficulties", expected="one or more difficulties")
    return pl.concat(frames, how="diagonal_relaxed")


def _with_index(found: Any) -> Any:
    """Keep what only the index of a pandas frame says: a column of a long table, or who the rows of a matrix are."""
    if type(found).__module__.split(".")[0] != "pandas" or not hasattr(found, "index"):
        return found
    index, columns = found.index, set(map(str, found.columns))
    named = [name for name in index.names if name is not None]
    if set(named) & set(LONG) - columns:
        return found.reset_index(level=[name for name in named if name in LONG and name not in columns])
    if set(LONG) & columns or (not named and list(index) == list(range(len(found)))):
        return found
    if index.nlevels > 1:
        raise UsageError(
            f"found an index of {index.nlevels} levels", where="responses", expected="one that names the respondents"
        )
    named_by_index = found.reset_index(drop=True)
    named_by_index.insert(0, "respondent_id", index.map(str))
    return named_by_index


def _from_matrix(found: Any) -> pl.DataFrame:
    if isinstance(found, np.ma.MaskedArray):
        found = np.ma.filled(found.astype(np.float64), np.nan)  # what is masked was not attempted
    try:
        matrix = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"found no matrix of numbers ({error})",
            where="responses",
            expected="respondents x examples, rows of equal length, scores in [0, 1], NaN where not attempted",
        ) from None
    if matrix.ndim != 2:
        raise UsageError(
            f"found an array of {matrix.ndim} dimensions", where="responses", expected="respondents x examples"
        )
    return _from_wide(pl.DataFrame(matrix, schema=[str(i) for i in range(matrix.shape[1])]))


def _from_wide(wide: pl.DataFrame) -> pl.DataFrame:
    """Turn respondents x examples into a long table; names are numbers with as many digits as they need."""
    who = _names(wide)
    if who is None:
        digits = len(str(max(len(wide) - 1, 0)))
        who = pl.Series([f"respondent-{i:0{digits}d}" for i in range(len(wide))], dtype=pl.String)
    else:
        wide = wide.drop(who.name)
    names = wide.columns
    if names == [str(i) for i in range(len(names))]:
        names = [f"example-{i:0{len(str(max(len(names) - 1, 0)))}d}" for i in range(len(names))]
    scores = [_scores(column).alias(name) for column, name in zip(wide, names, strict=True)]
    long = pl.DataFrame([who.cast(pl.String).alias("respondent_id"), *scores]).unpivot(
        index="respondent_id", variable_name="example_id", value_name="score"
    )
    return long.filter(pl.col("score").is_not_nan())


def _names(wide: pl.DataFrame) -> pl.Series | None:
    """Find the column that names the respondents: respondent_id, else the only one of texts that are no numbers."""
    if "respondent_id" in wide.columns:
        who = wide["respondent_id"]
    else:
        texts = [column for column in wide if _is_text(column) and len(_no_numbers(column))]
        whole = [column for column in texts if len(_no_numbers(column)) == len(column) - column.null_count()]
        if len(texts) != 1 or not whole:
            return None  # `_scores` names what is no number
        who = whole[0]
    if who.null_count() or who.is_duplicated().any():
        twice = who.filter(who.is_duplicated())
        found = f"{twice[0]!r} twice" if len(twice) and not who.null_count() else "a row without a name"
        raise UsageError(
            f"found {found}",
            where=f"responses: column {who.name!r}",
            expected="a name for each respondent in one column, and scores in the others",
        )
    return who


def as_seed(found: Any, where: str) -> int:
    """Take a seed as a recipe does: it stands in columns of 64 bits."""
    if isinstance(found, bool) or not isinstance(found, int | np.integer) or not 0 <= found < 2**63:
        raise UsageError(f"found the seed {found!r}", where=where, expected="a whole number from 0 to 2^63 - 1")
    return int(found)


def as_settings(model: type[Model], found: Mapping[str, Any], where: str) -> Model:
    """Validate the keys of a recipe's section; raises `UsageError` that says what is valid."""
    given = {key: value for key, value in found.items() if value is not None}
    if isinstance(given.get("generate"), str):
        given["generate"] = Step(method=given["generate"])
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise explain(error, model, where=where) from None


def _is_text(column: pl.Series) -> bool:
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _no_numbers(column: pl.Series) -> pl.Series:
    """Values of a text column that are no numbers."""
    texts = column.cast(pl.String)
    return texts.filter(texts.is_not_null() & texts.cast(pl.Float64, strict=False).is_null())


def _scores(column: pl.Series) -> pl.Series:
    if _is_text(column):
        bad = _no_numbers(column)
        if len(bad):
            raise _no_score(column, repr(bad[0]))
        return column.cast(pl.String).cast(pl.Float64)
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        raise _no_score(column, f"the type {column.dtype}")
    return column.cast(pl.Float64)


def _no_score(column: pl.Series, found: str) -> UsageError:
    return UsageError(
        f"found {found}",
        where=f"responses: column {column.name!r}",
        expected="a score in [0, 1]; only one column may hold text, the respondents' names",
        remedy="drop the column, or name the columns respondent_id, example_id, score",
    )

"""From a long table of responses to a matrix: checks, attempts, connection, and who can be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest


@dataclass(frozen=True)
class Responses:
    """A matrix of scores and what its rows and columns are.

    Attributes
    ----------
    matrix : (n, J) float64 or float32 above 20 million cells; NaN where not attempted
        A respondent's attempts at one example are averaged: together they count as one (fractional) response.
    respondents, examples : tuple of str
        Ids of rows and columns, sorted.
    attempts : int
        Responses read, attempts counted singly.
    repeated : int
        Cells with more than one attempt.
    missing : int
        Rows of the table without a score, which count as not attempted.
    fractional : int
        Cells whose score is neither 0 nor 1.
    """

    matrix: np.ndarray
    respondents: tuple[str, ...]
    examples: tuple[str, ...]
    attempts: int
    repeated: int
    missing: int
    fractional: int


def checked(frame: pl.DataFrame) -> pl.DataFrame:
    """Return respondent_id, example_id, score (Float64) of a table of responses; rows without a score stay, as null.

    Raises
    ------
    DataRefused
        If an id is null, a score lies outside of [0, 1], or there is no row.
    UsageError
        If a column is missing or a score is no number.
    """
    for column in ("respondent_id", "example_id", "score"):
        if column not in frame.columns:
            raise UsageError(
                f"there is no column {column!r}{nearest(column, frame.columns)}",
                where="responses",
                expected="respondent_id, example_id, score",
                remedy="name your columns in the recipe's section 'responses', or rename them",
            )
    kind = frame.schema["score"]
    if not (kind.is_numeric() or kind in (pl.Boolean, pl.Null)):
        raise UsageError(f"the score is of type {kind}", where="responses: score", expected="a number or true/false")
    frame = frame.select(
        pl.col("respondent_id", "example_id").cast(pl.String), pl.col("score").cast(pl.Float64).fill_nan(None)
    )
    for column in ("respondent_id", "example_id"):
        if empty := frame[column].null_count():
            raise DataRefused(f"{empty} of {len(frame)} rows have no {column}", where="responses", expected="an id")
    outside = frame.filter(~pl.col("score").is_between(0.0, 1.0))
    if len(outside):
        respondent, example, score = outside.row(0)
        raise DataRefused(
            f"{len(outside)} of {len(frame)} scores lie outside of [0, 1], first {score:g}",
            where=f"responses: respondent {respondent!r}, example {example!r}",
            expected="scores in [0, 1]",
            remedy="divide by the largest score, or drop these rows",
        )
    if frame["score"].null_count() == len(frame):
        raise DataRefused("there is no response with a score", where="responses", expected="at least one")
    return frame


def to_matrix(frame: pl.DataFrame) -> Responses:
    """Build the matrix of a table of responses, in any order of rows; raises as `checked`.

    O(rows log rows) and 8 bytes a cell (4 above 20 million cells).
    """
    frame = checked(frame)
    scored = frame.drop_nulls("score")
    cells = scored.group_by("respondent_id", "example_id").agg(
        pl.col("score").sort().mean(),
        pl.len().alias("attempts"),  # sorted: a sum in any other order could differ
    )
    respondents = cells["respondent_id"].unique().sort()
    examples = cells["example_id"].unique().sort()
    if len(respondents) * len(examples) > 4_000_000_000:
        raise DataRefused(
            f"{len(respondents):,} respondents x {len(examples):,} examples do not fit in memory",
            where="responses",
            remedy="use pass_rate, which keeps no matrix",
        )
    kind = np.float64 if len(respondents) * len(examples) <= 20_000_000 else np.float32
    matrix = np.full((len(respondents), len(examples)), np.nan, dtype=kind)
    row = cells["respondent_id"].cast(pl.Enum(respondents)).to_physical().to_numpy()
    column = cells["example_id"].cast(pl.Enum(examples)).to_physical().to_numpy()
    score = cells["score"].to_numpy()
    matrix[row, column] = score
    return Responses(
        matrix,
        tuple(respondents),
        tuple(examples),
        attempts=len(scored),
        repeated=int((cells["attempts"] > 1).sum()),
        missing=len(frame) - len(scored),
        fractional=int(((score > 0) & (score < 1)).sum()),
    )


def from_matrix(
    matrix: np.ndarray, respondents: Sequence[str] | None = None, examples: Sequence[str] | None = None
) -> pl.DataFrame:
    """Turn an (n, J) matrix of scores, NaN where not attempted, into a table of responses.

    Ids default to ``respondent-000``, ... and ``example-000``, ..., wide enough to sort as numbers.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2:
        raise UsageError(
            f"found an array of shape {matrix.shape}", where="responses", expected="(respondents, examples)"
        )
    names = []
    for given, count, kind in ((respondents, matrix.shape[0], "respondent"), (examples, matrix.shape[1], "example")):
        if given is not None and len(given) != count:
            raise UsageError(f"{len(given)} {kind} ids for {count} in the matrix", where="responses")
        width = max(3, len(str(max(count - 1, 0))))
        names.append(pl.Series(given if given is not None else [f"{kind}-{i:0{width}d}" for i in range(count)]))
    row, column = np.nonzero(~np.isnan(matrix))
    return pl.DataFrame(
        {
            "respondent_id": names[0].cast(pl.String).gather(row),
            "example_id": names[1].cast(pl.String).gather(column),
            "attempt": np.zeros(len(row), dtype=np.int32),
            "score": matrix[row, column],
        }
    )


def connected(responses: Responses) -> tuple[int, tuple[int, ...], str]:
    """Count the parts of the graph of respondents and examples joined by responses.

    Returns
    -------
    parts : int
    sizes : tuple of int
        Examples in each part, largest first.
    apart : str
        One example outside of the largest part, or an empty string.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n, items = responses.matrix.shape
    row, column = np.nonzero(np.isfinite(responses.matrix))
    graph = csr_array((np.ones(len(row), dtype=np.int8), (row, n + column)), shape=(n + items, n + items))
    parts, label = connected_components(graph, directed=False)
    counts = np.bincount(label[n:], minlength=parts)
    apart = np.flatnonzero(label[n:] != counts.argmax())
    sizes = tuple(int(c) for c in np.sort(counts)[::-1])
    return int(parts), sizes, responses.examples[int(apart[0])] if len(apart) else ""


def without(frame: pl.DataFrame, respondents: pl.DataFrame | None, name: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Drop a respondent, or all of a family, from a table of responses.

    Parameters
    ----------
    frame : polars.DataFrame
        Responses.
    respondents : polars.DataFrame or None
        respondent_id and family, where families are known.
    name : str
        A respondent_id or, where none is so called, a family.

    Returns
    -------
    polars.DataFrame, tuple of str
        What stays, and the ids that were dropped.

    Raises
    ------
    UsageError
        If nobody and no family is so called.
    """
    known = frame["respondent_id"].cast(pl.String).unique()
    if name in known:
        gone = [name]
    else:
        families = respondents if respondents is not None and "family" in respondents.columns else None
        gone = []
        if families is not None:
            members = families.filter(pl.col("family").cast(pl.String) == name)["respondent_id"].cast(pl.String)
            gone = sorted(set(members) & set(known))
        if not gone:
            valid = [*known.sort(), *(families["family"].drop_nulls().unique().sort() if families is not None else [])]
            raise UsageError(
                f"no respondent and no family is called {name!r}{nearest(name, valid)}",
                where="leave_out",
                expected="one of " + ", ".join(valid[:12]) + (", ..." if len(valid) > 12 else ""),
            )
    return frame.filter(~pl.col("respondent_id").cast(pl.String).is_in(gone)), tuple(gone)

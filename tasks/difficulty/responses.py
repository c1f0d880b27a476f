"""From a long table of responses to cells: checks, codes for ids, attempts, connected parts, who can be left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.difficulty.item_response.cells import Cells, compact, index_type

CHUNK = 1 << 22
WHOLE = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
SMALL = 8192
"""Respondents up to which the graph of who shares an example is kept as a square table: 64 MB at most."""


@dataclass(frozen=True)
class Responses:
    """Scores as cells, and what their rows and columns are.

    Attributes
    ----------
    cells : Cells
        Item by item; 3 bytes a cell of 0 or 1 with up to 65,536 respondents. A respondent's attempts at one example are
        averaged: together they count as one (fractional) response.
    respondents, examples : polars.Series of String
        Ids, sorted; cells hold their numbers.
    attempts : int
        Responses read, attempts counted singly.
    repeated : int
        Cells with more than one attempt.
    missing : int
        Rows of the table without a score, which count as not attempted.
    fractional : int
        Cells whose score is neither 0 nor 1.
    """

    cells: Cells
    respondents: pl.Series
    examples: pl.Series
    attempts: int
    repeated: int
    missing: int
    fractional: int

    @property
    def matrix(self) -> np.ndarray:
        """The (n, J) matrix of scores, NaN where not attempted, made anew; float32 above 20 million cells."""
        large = self.cells.n * self.cells.items > 20_000_000
        return self.cells.matrix(np.float32 if large else np.float64)

    def part(self, items: np.ndarray, respondents: np.ndarray) -> Responses:
        """Keep some examples, given by rising indices, and the cells of some respondents in them."""
        cells, stay = self.cells.take(items).among(respondents)
        score = cells.score
        fractional = 0 if cells.binary else int(((score > 0) & (score < 1)).sum())
        ids = self.examples.gather(items[stay])
        return Responses(cells, self.respondents.gather(respondents), ids, cells.size, 0, 0, fractional)


def checked(frame: pl.DataFrame) -> pl.DataFrame:
    """Return respondent_id, example_id, score (Float64) of a table of responses; rows without a score stay, as null.

    Raises
    ------
    DataRefused
        If an id is null, a score lies outside of [0, 1], or there is no row.
    UsageError
        If a column is missing or a score is no number.
    """
    return _valid(frame).select(pl.col("respondent_id", "example_id").cast(pl.String), pl.col("score").cast(pl.Float64))


def _valid(frame: pl.DataFrame) -> pl.DataFrame:
    """Check a table as `checked` does, but leave the types of ids and scores; a score of NaN becomes null."""
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
    score = pl.col("score").cast(pl.UInt8) if kind in (pl.Boolean, pl.Null) else pl.col("score")
    score = score.fill_nan(None) if kind.is_float() else score
    frame = frame.select("respondent_id", "example_id", score)
    for column in ("respondent_id", "example_id"):
        if empty := frame[column].null_count():
            raise DataRefused(f"{empty} of {len(frame)} rows have no {column}", where="responses", expected="an id")
    outside = frame.filter(~pl.col("score").is_between(0, 1))
    if len(outside):
        respondent, example, first = outside.row(0)
        raise DataRefused(
            f"{len(outside)} of {len(frame)} scores lie outside of [0, 1], first {first:g}",
            where=f"responses: respondent {str(respondent)!r}, example {str(example)!r}",
            expected="scores in [0, 1]",
            remedy="divide by the largest score, or drop these rows",
        )
    if frame["score"].null_count() == len(frame):
        raise DataRefused("there is no response with a score", where="responses", expected="at least one")
    return frame


def to_cells(frame: pl.DataFrame) -> Responses:
    """Build the cells of a table of responses, in any order of rows; raises as `checked`.

    Ids may be text, whole numbers or categories. O(rows log rows), rows in order are not sorted again; some 20 bytes a
    row on the way, 3 bytes a cell in the end (10 where scores are fractions). No (n, J) matrix is made.
    """
    found = _valid(frame)
    missing = found["score"].null_count()
    found = found.filter(pl.col("score").is_not_null()) if missing else found
    respondents, who = encode(found["respondent_id"])
    examples, item = encode(found["example_id"])
    n = len(respondents)
    if n * len(examples) >= 1 << 62:
        raise DataRefused(f"{n:,} respondents x {len(examples):,} examples are too many to number", where="responses")
    key = item.astype(np.uint64)
    key *= np.uint64(n)
    key += who
    del item, who
    score = found["score"]
    attempts = len(score)
    whole = bool(((score == 0) | (score == 1)).all())
    values = (score.cast(pl.UInt8) if whole else score.cast(pl.Float64)).to_numpy()
    del found, score
    key, values = _in_order(key, values)
    key, values, repeated = _averaged(key, values)
    values = compact(values)
    pointer = np.searchsorted(key, np.arange(len(examples) + 1, dtype=np.uint64) * np.uint64(n)).astype(np.int64)
    holder: np.ndarray = np.empty(len(key), dtype=index_type(n))
    for start in range(0, len(key), CHUNK):
        holder[start : start + CHUNK] = key[start : start + CHUNK] % np.uint64(n)
    fractional = 0 if values.dtype == np.uint8 else int(((values > 0) & (values < 1)).sum())
    return Responses(Cells(pointer, holder, values, n), respondents, examples, attempts, repeated, missing, fractional)


def encode(ids: pl.Series) -> tuple[pl.Series, np.ndarray]:
    """Number ids by their order as text: the sorted different ids (String), and each row's number (uint32).

    Neighbouring rows with one id are looked up once.
    """
    if len(ids) > 1 and not ids.dtype.is_nested():
        heads = (ids != ids.shift(1)).fill_null(True)
        count = int(heads.sum())
        if 4 * count <= len(ids):
            unique, code = _encode(ids.filter(heads))
            return unique, np.repeat(code, np.diff(np.append(np.flatnonzero(heads.to_numpy()), len(ids))))
    return _encode(ids)


def _encode(ids: pl.Series) -> tuple[pl.Series, np.ndarray]:
    if ids.dtype in (pl.Categorical, pl.Enum) or ids.dtype in WHOLE:
        raw = ids.to_physical().to_numpy()
        low, high = int(raw.min()), int(raw.max())
        if high - low <= 4 * len(raw) + 1024:
            raw = (raw - raw.dtype.type(low)).astype(np.int64)
            row = np.full(high - low + 1, -1, dtype=np.int64)
            row[raw] = np.arange(len(raw))
            present = np.flatnonzero(row >= 0)
            number = np.zeros(len(row), dtype=np.int64)
            number[present] = np.arange(len(present))
            return _through(ids.gather(row[present]).cast(pl.String), number[raw])
        different = ids.unique().sort()
        return _through(different.cast(pl.String), np.searchsorted(different.to_physical().to_numpy(), raw))
    text = ids.cast(pl.String)
    unique = text.unique().sort()
    return unique.alias(ids.name), text.cast(pl.Enum(unique)).to_physical().to_numpy().astype(np.uint32, copy=False)


def _through(names: pl.Series, code: np.ndarray) -> tuple[pl.Series, np.ndarray]:
    """Renumber codes of different names by the names' order."""
    order = names.arg_sort().to_numpy()
    place = np.empty(len(order), dtype=np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    return names.gather(order), place[code]


def _in_order(key: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort cells by (key, value)."""
    if (key[1:] > key[:-1]).all():
        return key, values
    if values.dtype == np.uint8:  # the score rides in the last bit
        key <<= np.uint64(1)
        key |= values
        key.sort()
        values = (key & np.uint64(1)).astype(np.uint8)
        key >>= np.uint64(1)
        return key, values
    done = pl.DataFrame({"key": key, "value": values}).sort("key", "value")
    return done["key"].to_numpy(), done["value"].to_numpy()


def _averaged(key: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Average the values of equal keys; returns how many keys stood more than once as well."""
    first = np.append(True, key[1:] != key[:-1])
    if first.all():
        return key, values, 0
    starts = np.flatnonzero(first)
    count = np.diff(np.append(starts, len(key)))
    return key[starts], np.add.reduceat(values, starts, dtype=np.float64) / count, int((count > 1).sum())


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


@dataclass(frozen=True)
class Parts:
    """The parts of the graph of respondents and examples joined by responses, largest (in examples) first.

    Attributes
    ----------
    count : int
    sizes : tuple of int
        Examples in each part.
    item : (J,) int64
    respondent : (n,) int64
        The part of each example and of each respondent.
    """

    count: int
    sizes: tuple[int, ...]
    item: np.ndarray
    respondent: np.ndarray


def find_parts(cells: Cells) -> Parts:
    """Find the parts that share neither respondents nor examples.

    O(cells): an example joins its respondents one to the next, so the graph is one of respondents. 1 byte a pair of
    respondents up to 8,192 of these, 8 bytes a cell above.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    graph: csr_array | coo_array
    if cells.n <= SMALL:
        joined = np.zeros((cells.n, cells.n), dtype=bool)
        for one, next_ in _neighbours(cells):
            joined[one, next_] = True
        graph = csr_array(joined)
    else:
        pairs = np.unique(np.concatenate([one.astype(np.int64) * cells.n + next_ for one, next_ in _neighbours(cells)]))
        ones = np.ones(len(pairs), dtype=np.int8)
        graph = coo_array((ones, (pairs // cells.n, pairs % cells.n)), shape=(cells.n, cells.n))
    count, label = connected_components(graph, directed=False)
    item = label[cells.who[cells.pointer[:-1]]]
    sizes = np.bincount(item, minlength=count)
    order = np.argsort(-sizes, kind="stable")
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    return Parts(int(count), tuple(int(s) for s in sizes[order]), place[item], place[label])


def _neighbours(cells: Cells) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, by chunks, the pairs of respondents whose cells stand side by side in an item."""
    ends = np.zeros(cells.size + 1, dtype=bool)
    ends[cells.pointer] = True
    for start in range(0, cells.size, CHUNK):
        stop = min(start + CHUNK, cells.size - 1)
        same = ~ends[start + 1 : stop + 1]
        yield cells.who[start:stop][same].astype(np.int64), cells.who[start + 1 : stop + 1][same].astype(np.int64)


def without(frame: pl.DataFrame, respondents: pl.DataFrame | None, name: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Drop a respondent, or all of a family, from a table of responses.

    Parameters
    ----------
    frame : polars.DataFrame
        Responses.
    respondents : polars.DataFrame or None
        respondent_id and family, where families are known.
    name : str
        A respondent_id or, where none is so called, a family; a number stands for its text, as in ids.

    Returns
    -------
    polars.DataFrame, tuple of str
        What stays, and the ids that were dropped.

    Raises
    ------
    UsageError
        If nobody and no family is so called.
    """
    name, known = str(name), frame["respondent_id"].cast(pl.String).unique()
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

"""From long responses to a matrix."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty import responses
from gradatim.tasks.difficulty.item_response.cells import Cells
from gradatim.tasks.difficulty.responses import checked, encode, find_parts, from_matrix, to_cells, without


def _frame(rows: list[tuple[str, str, float | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["respondent_id", "example_id", "score"], orient="row")


def test_attempts_at_one_example_are_averaged_into_one_response() -> None:
    found = to_cells(_frame([("b", "x", 1), ("a", "x", 1), ("a", "x", 0), ("a", "y", 0), ("b", "y", None)]))
    assert found.respondents.to_list() == ["a", "b"]
    assert found.examples.to_list() == ["x", "y"]
    assert found.matrix[0].tolist() == [0.5, 0.0]
    assert found.matrix[1, 0] == 1.0
    assert np.isnan(found.matrix[1, 1])
    assert (found.attempts, found.repeated, found.missing, found.fractional) == (4, 1, 1, 1)


def test_rows_in_any_order_give_the_same_bits() -> None:
    random = np.random.default_rng(0)
    frame = from_matrix(np.where(random.random((12, 30)) < 0.2, np.nan, random.random((12, 30))))
    frame = pl.concat([frame, frame.with_columns(attempt=pl.lit(1, pl.Int32), score=pl.col("score") / 3)])
    first, second = to_cells(frame), to_cells(frame.sample(fraction=1, shuffle=True, seed=1))
    assert first.matrix.tobytes() == second.matrix.tobytes()
    assert first.examples.equals(second.examples)


def test_a_matrix_goes_there_and_back() -> None:
    matrix = np.array([[0.0, np.nan, 1.0], [0.25, 1.0, np.nan]])
    frame = from_matrix(matrix)
    assert frame.columns == ["respondent_id", "example_id", "attempt", "score"]
    assert np.array_equal(to_cells(frame).matrix, matrix, equal_nan=True)
    named = to_cells(from_matrix(matrix, ["m", "k"], ["c", "b", "a"]))
    assert named.respondents.to_list() == ["k", "m"]
    assert named.matrix[1].tolist()[1:] == pytest.approx([np.nan, 0.0], nan_ok=True)
    with pytest.raises(UsageError, match="2 example ids for 3"):
        from_matrix(matrix, None, ["a", "b"])


def test_booleans_and_integers_are_scores_and_nan_is_not_attempted() -> None:
    frame = pl.DataFrame({"respondent_id": ["a", "b"], "example_id": ["x", "x"], "score": [True, False]})
    assert to_cells(frame).matrix.tolist() == [[1.0], [0.0]]
    assert checked(_frame([("a", "x", float("nan")), ("a", "y", 1.0)]))["score"].null_count() == 1


@pytest.mark.parametrize(
    ("frame", "error", "said"),
    [
        (_frame([("a", "x", 1.5)]), DataRefused, "'a', example 'x'"),
        (_frame([("a", "x", -0.1)]), DataRefused, "outside"),
        (_frame([("a", "x", float("inf"))]), DataRefused, "outside"),
        (_frame([("a", "x", None)]), DataRefused, "no response"),
        (_frame([]).cast({"score": pl.Float64}), DataRefused, "no response"),
        (pl.DataFrame({"respondent_id": [None], "example_id": ["x"], "score": [1]}), DataRefused, "no respondent_id"),
        (pl.DataFrame({"respondent": ["a"], "example_id": ["x"], "score": [1]}), UsageError, "respondent_id"),
        (pl.DataFrame({"respondent_id": ["a"], "example_id": ["x"], "score": ["good"]}), UsageError, "String"),
    ],
)
def test_wrong_responses_are_named(frame: pl.DataFrame, error: type, said: str) -> None:
    with pytest.raises(error) as caught:
        to_cells(frame)
    assert said in str(caught.value)


def test_parts_without_a_common_respondent_or_example_are_found() -> None:
    rows = [("a", "x", 1.0), ("a", "y", 0.0), ("b", "y", 1.0), ("c", "z", 1.0), ("d", "z", 0.0)]
    found = find_parts(to_cells(_frame(rows)).cells)
    assert (found.count, found.sizes) == (2, (2, 1))
    assert found.item.tolist() == [0, 0, 1]
    assert found.respondent.tolist() == [0, 0, 1, 1]
    assert find_parts(to_cells(_frame([*rows, ("d", "x", 1.0)])).cells).count == 1


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=30)
def test_parts_are_those_of_the_graph_of_all_cells(seed: int, many: bool) -> None:
    random = np.random.default_rng(seed)
    matrix = np.where(random.random((12, 15)) < 0.12, 1.0, np.nan)
    matrix = matrix[:, np.isfinite(matrix).any(axis=0)]
    cells = Cells.of(matrix)
    row, column = np.nonzero(np.isfinite(matrix))
    n, items = matrix.shape
    edges = coo_array((np.ones(len(row)), (row, n + column)), shape=(n + items, n + items))
    count, label = connected_components(edges, directed=False)
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(responses, "SMALL", 1)
        found = find_parts(cells)
    assert found.count == count
    ours = np.concatenate([found.respondent, found.item])
    assert len(set(zip(ours.tolist(), label.tolist(), strict=True))) == count
    assert list(found.sizes) == sorted(found.sizes, reverse=True)
    assert [int((found.item == k).sum()) for k in range(count)] == list(found.sizes)


@given(st.integers(0, 10_000), st.sampled_from(["binary", "share", "repeated"]))
@settings(max_examples=30)
def test_cells_are_the_matrix_of_the_scores_in_any_order_of_rows(seed: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    matrix = random.integers(0, 2, (7, 9)).astype(float) if kind != "share" else random.random((7, 9))
    matrix = np.where(random.random(matrix.shape) < 0.4, np.nan, matrix)
    matrix[0], matrix[:, 0] = 1.0, 0.0
    frame = from_matrix(matrix)
    if kind == "repeated":
        frame = pl.concat([frame, frame.with_columns(score=1 - pl.col("score"))])
        matrix = np.where(np.isfinite(matrix), 0.5, np.nan)
    found = to_cells(frame.sample(fraction=1, shuffle=True, seed=seed))
    assert np.array_equal(found.matrix, matrix, equal_nan=True)
    assert found.cells.binary == (kind == "binary")
    assert found.cells.size == int(np.isfinite(matrix).sum())
    keep, some = np.flatnonzero(random.random(9) < 0.6), np.array([1, 2, 4])
    part = found.part(keep, some)
    smaller = matrix[np.ix_(some, keep)]
    stay = np.isfinite(smaller).any(axis=0)
    assert np.array_equal(part.matrix, smaller[:, stay], equal_nan=True)
    assert part.examples.to_list() == found.examples.gather(keep[stay]).to_list()


@pytest.mark.parametrize(
    "ids",
    [
        pl.Series([10, 9, -1, 9, 10]),
        pl.Series([2**62, 5, 2**40, 5]),
        pl.Series(["b", "a", "B", "a"]),
        pl.Series(["b", "a", "B", "a"], dtype=pl.Categorical),
        pl.Series(["b", "a", "b"], dtype=pl.Enum(["z", "b", "a"])),
        pl.Series(["b", "b", "b", "b", "a", "a", "a", "a"]),
        pl.Series([], dtype=pl.String),
        pl.Series(["x"]),
    ],
)
def test_ids_of_any_type_are_numbered_by_their_order_as_text(ids: pl.Series) -> None:
    names, code = encode(ids)
    text = ids.cast(pl.String).to_list()
    assert names.to_list() == sorted(set(text))
    assert [names[int(k)] for k in code] == text


def test_a_cell_of_zero_or_one_takes_three_bytes() -> None:
    cells = to_cells(from_matrix(np.random.default_rng(0).integers(0, 2, (50, 400)).astype(float))).cells
    assert cells.who.nbytes + cells.score.nbytes == 3 * cells.size
    assert cells.complete


def test_a_respondent_or_a_family_can_be_left_out_and_a_wrong_name_is_answered() -> None:
    frame = _frame([("m-1", "x", 1.0), ("m-2", "x", 0.0), ("other", "x", 1.0)])
    families = pl.DataFrame({"respondent_id": ["m-1", "m-2", "other"], "family": ["m", "m", None]})
    assert without(frame, None, "other")[0]["respondent_id"].to_list() == ["m-1", "m-2"]
    kept, gone = without(frame, families, "m")
    assert kept["respondent_id"].to_list() == ["other"]
    assert gone == ("m-1", "m-2")
    with pytest.raises(UsageError, match="did you mean 'other'"):
        without(frame, families, "othr")


def test_respondents_with_numbers_for_ids_are_left_out_by_number_or_text() -> None:
    frame = _frame([("7", "x", 1.0), ("8", "x", 0.0)]).with_columns(pl.col("respondent_id").cast(pl.Int64))
    for name in (7, "7"):
        assert without(frame, None, name)[0]["respondent_id"].to_list() == [8]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="called '9'"):
        without(frame, None, 9)  # type: ignore[arg-type]

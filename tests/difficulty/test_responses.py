"""From long responses to a matrix."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.responses import checked, connected, from_matrix, to_matrix, without


def _frame(rows: list[tuple[str, str, float | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["respondent_id", "example_id", "score"], orient="row")


def test_attempts_at_one_example_are_averaged_into_one_response() -> None:
    found = to_matrix(_frame([("b", "x", 1), ("a", "x", 1), ("a", "x", 0), ("a", "y", 0), ("b", "y", None)]))
    assert found.respondents == ("a", "b")
    assert found.examples == ("x", "y")
    assert found.matrix[0].tolist() == [0.5, 0.0]
    assert found.matrix[1, 0] == 1.0
    assert np.isnan(found.matrix[1, 1])
    assert (found.attempts, found.repeated, found.missing, found.fractional) == (4, 1, 1, 1)


def test_rows_in_any_order_give_the_same_bits() -> None:
    random = np.random.default_rng(0)
    frame = from_matrix(np.where(random.random((12, 30)) < 0.2, np.nan, random.random((12, 30))))
    frame = pl.concat([frame, frame.with_columns(attempt=pl.lit(1, pl.Int32), score=pl.col("score") / 3)])
    first, second = to_matrix(frame), to_matrix(frame.sample(fraction=1, shuffle=True, seed=1))
    assert first.matrix.tobytes() == second.matrix.tobytes()
    assert first.examples == second.examples


def test_a_matrix_goes_there_and_back() -> None:
    matrix = np.array([[0.0, np.nan, 1.0], [0.25, 1.0, np.nan]])
    frame = from_matrix(matrix)
    assert frame.columns == ["respondent_id", "example_id", "attempt", "score"]
    assert np.array_equal(to_matrix(frame).matrix, matrix, equal_nan=True)
    named = to_matrix(from_matrix(matrix, ["m", "k"], ["c", "b", "a"]))
    assert named.respondents == ("k", "m")
    assert named.matrix[1].tolist()[1:] == pytest.approx([np.nan, 0.0], nan_ok=True)
    with pytest.raises(UsageError, match="2 example ids for 3"):
        from_matrix(matrix, None, ["a", "b"])


def test_booleans_and_integers_are_scores_and_nan_is_not_attempted() -> None:
    frame = pl.DataFrame({"respondent_id": ["a", "b"], "example_id": ["x", "x"], "score": [True, False]})
    assert to_matrix(frame).matrix.tolist() == [[1.0], [0.0]]
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
        to_matrix(frame)
    assert said in str(caught.value)


def test_parts_without_a_common_respondent_or_example_are_counted() -> None:
    rows = [("a", "x", 1.0), ("a", "y", 0.0), ("b", "y", 1.0), ("c", "z", 1.0), ("d", "z", 0.0)]
    assert connected(to_matrix(_frame(rows))) == (2, (2, 1), "z")
    assert connected(to_matrix(_frame([*rows, ("d", "x", 1.0)]))) == (1, (3,), "")


def test_a_respondent_or_a_family_can_be_left_out_and_a_wrong_name_is_answered() -> None:
    frame = _frame([("m-1", "x", 1.0), ("m-2", "x", 0.0), ("other", "x", 1.0)])
    families = pl.DataFrame({"respondent_id": ["m-1", "m-2", "other"], "family": ["m", "m", None]})
    assert without(frame, None, "other")[0]["respondent_id"].to_list() == ["m-1", "m-2"]
    kept, gone = without(frame, families, "m")
    assert kept["respondent_id"].to_list() == ["other"]
    assert gone == ("m-1", "m-2")
    with pytest.raises(UsageError, match="did you mean 'other'"):
        without(frame, families, "othr")

"""Responses as long tables and wide matrices."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Responses
from gradatim.schemas.tables import TABLES
from gradatim.tasks.ingest.responses import read_responses
from gradatim.tasks.ingest.settle import Responded

FRAME = pl.DataFrame(
    {
        "respondent_id": ["m1", "m1", "m2", "m2"],
        "example_id": ["a", "b", "a", "b"],
        "score": [1.0, 0.0, 0.25, 1.0],
    }
)


def read(folder: Path, content: pl.DataFrame | str, name: str = "r.csv", **section: Any) -> Responded:
    keep = {k: section.pop(k) for k in ("examples", "joined") if k in section}
    if isinstance(content, pl.DataFrame):
        buffer = io.BytesIO()
        {
            "csv": content.write_csv,
            "jsonl": content.write_ndjson,
            "parquet": content.write_parquet,
            "arrow": content.write_ipc,
        }[name.split(".")[1]](buffer)
        (folder / name).write_bytes(buffer.getvalue())
    else:
        (folder / name).write_text(content)
    return read_responses(Responses.model_validate({"from": name} | section), base=folder, **keep)


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.parquet", "r.arrow"])
def test_every_format_gives_one_table(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, FRAME, name)
    assert found.responses.columns == TABLES["responses"].schema.names
    assert found.responses.select("respondent_id", "example_id", "attempt", "score").rows() == [
        ("m1", "a", 0, 1.0),
        ("m1", "b", 0, 0.0),
        ("m2", "a", 0, 0.25),
        ("m2", "b", 0, 1.0),
    ]
    assert found.respondents.columns == TABLES["respondents"].schema.names
    assert found.respondents.select("respondent_id", "n").rows() == [("m1", 2), ("m2", 2)]
    assert str(found).startswith("4 responses of 2 respondents to 2 examples; 100 % joined")


def test_columns_are_named_by_the_recipe_and_true_false_are_scores(tmp_path: Path) -> None:
    text = "model,item,ok,fam,when,week\nm1,007,true,f,2024-01-02,3\nm2,007,False,,2024-01-03,\n"
    found = read(
        tmp_path, text, respondent="model", example="item", score="ok", family="fam", attempted_at="when", period="week"
    )
    assert found.responses.select("example_id", "score", "period").rows() == [("007", 1.0, 3), ("007", 0.0, None)]
    assert found.responses["attempted_at"][0].isoformat() == "2024-01-02T00:00:00+00:00"
    assert found.respondents["family"].to_list() == ["f", None]


def test_bad_rows_are_rejected_with_reason_and_place(tmp_path: Path) -> None:
    rows = [
        {"respondent_id": "m", "example_id": "a", "score": 1},
        {"respondent_id": "m", "example_id": "b", "score": 1.5},
        {"respondent_id": "m", "example_id": "c", "score": -0.1},
        {"respondent_id": "m", "example_id": "d", "score": "good"},
        {"respondent_id": "m", "example_id": "e", "score": None},
        {"respondent_id": None, "example_id": "f", "score": 1},
        {"respondent_id": "m", "example_id": " ", "score": 1},
    ]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)) + "\nno json\n", "r.jsonl")
    assert len(found.responses) == 1
    assert found.rejects.columns == TABLES["rejects"].schema.names
    assert found.rejects.select("source_row", "reason", "column", "value").rows()[:6] == [
        (1, "the score is outside [0, 1]", "score", "1.5"),
        (2, "the score is outside [0, 1]", "score", "-0.1"),
        (3, "the score is no number and not true or false", "score", "good"),
        (4, "the score is no number and not true or false", "score", None),
        (5, "the respondent is empty", "respondent", None),
        (6, "the example is empty", "example", " "),
    ]
    assert found.rejects["source_row"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    assert found.rows_in == 8


def test_repeated_pairs_are_attempts_in_their_order(tmp_path: Path) -> None:
    found = read(tmp_path, "respondent_id,example_id,score\nm,a,0\nm,b,1\nm,a,1\n")
    assert found.responses.select("example_id", "attempt", "score").rows() == [
        ("a", 0, 0.0),
        ("a", 1, 1.0),
        ("b", 0, 1.0),
    ]


def test_a_column_of_attempts_is_kept_equal_rows_collapse_and_conflicts_are_rejected(tmp_path: Path) -> None:
    text = "respondent_id,example_id,score,try\nm,a,0,1\nm,a,0,1\nm,a,1,2\nm,b,0,0\nm,b,1,0\nm,c,1,x\n"
    found = read(tmp_path, text, attempt="try")
    assert found.responses.select("example_id", "attempt", "score").rows() == [("a", 1, 0.0), ("a", 2, 1.0)]
    assert found.redelivered == 1
    assert found.rejects.select("source_row", "reason").rows() == [
        (3, "the attempt comes with different results"),
        (4, "the attempt comes with different results"),
        (5, "the attempt is no number from 0"),
    ]


@pytest.mark.parametrize("by", ["respondent", "example"])
def test_a_wide_matrix_is_read_either_way_and_its_empty_cells_are_no_responses(tmp_path: Path, by: str) -> None:
    text = f"{by}_id,x,y\np,1,0\nq,,1\nr,2,0.5\n"
    found = read(tmp_path, text)
    rows = {("p", "x", 1.0), ("p", "y", 0.0), ("q", "y", 1.0), ("r", "y", 0.5)}
    expected = rows if by == "respondent" else {(other, one, score) for one, other, score in rows}
    assert set(found.responses.select("respondent_id", "example_id", "score").rows()) == expected
    assert found.rejects.select("source_row", "value").rows() == [(4, "2")]  # third line, first cell: 2 * 2 + 0


def test_a_respondent_of_two_families_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataRefused, match="'m' has the families f, g"):
        read(tmp_path, "respondent_id,example_id,score,fam\nm,a,1,f\nm,b,1,g\n", family="fam")


def test_a_missing_column_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'scor'.*did you mean 'score'"):
        read(tmp_path, FRAME, score="scor")


def test_too_few_joined_are_refused_and_few_unjoined_are_listed(tmp_path: Path) -> None:
    examples = pl.DataFrame({"example_id": ["a", "c"]})
    with pytest.raises(
        DataRefused, match=r"50\.0% of the responses match an example; 1 names match none: 'b'"
    ) as error:
        read(tmp_path, FRAME, examples=examples)
    assert "'a', 'c'" in error.value.expected
    found = read(tmp_path, FRAME, examples=examples, joined=0.5)
    assert found.unjoined.rows() == [("b", 2)]
    assert found.joined == 0.5
    assert len(found.responses) == 2


@pytest.mark.parametrize("text", ["", "respondent_id,example_id,score\n", "respondent_id,example_id,score\nm,a,7\n"])
def test_no_usable_response_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataRefused, match=r"no usable response|no response"):
        read(tmp_path, text)


def test_the_order_of_shards_changes_nothing(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    halves = FRAME[:2], FRAME[2:]
    for i, half in enumerate(halves):
        half.write_csv(tmp_path / "x" / f"{i}.csv")
        half.write_csv(tmp_path / "y" / f"{1 - i}.csv")
    one, two = (read_responses(Responses.model_validate({"from": name}), base=tmp_path) for name in ("x", "y"))
    assert one.responses.equals(two.responses)
    assert one.respondents.equals(two.respondents)


def test_swe_bench_s_real_responses(data: Path) -> None:
    section = {
        "from": str(data / "agentbench" / "swebench_verified_responses.parquet"),
        "respondent": "submission",
        "example": "instance_id",
        "score": "resolved",
    }
    found = read_responses(Responses.model_validate(section))
    assert (len(found.responses), len(found.respondents), len(found.rejects)) == (67_000, 134, 0)
    assert found.responses["score"].mean() == pytest.approx(0.514701, abs=5e-7)

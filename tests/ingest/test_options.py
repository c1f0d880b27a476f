"""Probabilities of options in whatever form they come."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Options
from gradatim.schemas.tables import TABLES
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.ingest.options import check_options, read_options

ROWS = [
    {"respondent_id": "m1", "example_id": "007", "order": 0, "perm": [0, 1, 2], "probabilities": [0.5, 0.25, 0.125]},
    {"respondent_id": "m1", "example_id": "007", "order": 1, "perm": [2, 0, 1], "probabilities": [0.25, 0.5, 0.0]},
    {"respondent_id": "m2", "example_id": "b", "order": 0, "perm": [1, 0], "probabilities": [0.75, 0.25]},
]
GOLD = [1, 1, None]


def _read(folder: Path, content: pl.DataFrame | str, name: str = "o.jsonl", **section: Any) -> pl.DataFrame:
    if isinstance(content, pl.DataFrame):
        buffer = io.BytesIO()
        {"parquet": content.write_parquet, "arrow": content.write_ipc, "jsonl": content.write_ndjson}[
            name.split(".")[1]
        ](buffer)
        (folder / name).write_bytes(buffer.getvalue())
    else:
        (folder / name).write_text(content)
    options = Options.model_validate({"from": name} | section)
    check_options(options, folder)
    return read_options(options, folder)


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet", "o.arrow", "o.csv"])
def test_every_format_gives_one_table(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame(ROWS).with_columns(gold=pl.Series(GOLD))
    content: pl.DataFrame | str = frame
    if name == "o.csv":
        content = "respondent_id,example_id,order,perm,probabilities,gold\n" + "".join(
            f'{r["respondent_id"]},{r["example_id"]},{r["order"]},"{r["perm"]}","{r["probabilities"]}",'
            f"{'' if g is None else g}\n"
            for r, g in zip(ROWS, GOLD, strict=True)
        )
    found = _read(tmp_path, content, name, order="order", permutation="perm")
    assert found.columns == TABLES["options"].schema.names
    assert found.schema == polars_schema("options")
    assert found.rows() == [
        ("m1", "007", 0, [0, 1, 2], [0.5, 0.25, 0.125], 1),
        ("m1", "007", 1, [2, 0, 1], [0.25, 0.5, 0.0], 1),
        ("m2", "b", 0, [1, 0], [0.75, 0.25], None),
    ]


def test_columns_of_the_options_letters_and_ragged_questions(tmp_path: Path) -> None:
    text = "model,item,p_a,p_b,p_c,shown,key\nm,x,.5,.25,.25,CAB,b\nm,y,.9,.1,,B A,(A)\nm,z,.2,,.8,,2\n"
    found = _read(
        tmp_path,
        text,
        "o.csv",
        respondent="model",
        example="item",
        probabilities=["p_a", "p_b", "p_c"],
        permutation="shown",
        gold="key",
    )
    assert found["probabilities"].to_list() == [
        pytest.approx([0.5, 0.25, 0.25]),
        pytest.approx([0.9, 0.1]),
        [pytest.approx(0.2), None, pytest.approx(0.8)],  # a hole is not the end: for the estimator to judge
    ]
    assert found["permutation"].to_list() == [[2, 0, 1], [1, 0], None]
    assert found["gold"].to_list() == [1, 0, 2]


@pytest.mark.parametrize(
    ("scale", "given", "expected"),
    [
        ("logprobs", [math.log(0.5), math.log(0.125)], [0.5, 0.125]),
        ("logits", [1000.0, 1000.0 + math.log(3)], [0.25, 0.75]),
        ("logits", [-1000.0, -1000.0], [0.5, 0.5]),
        ("probabilities", [0.7, 0.9], [0.7, 0.9]),
    ],
)
def test_log_probabilities_and_logits_become_probabilities(
    tmp_path: Path, scale: str, given: list[float], expected: list[float]
) -> None:
    row = {"respondent_id": "m", "example_id": "a", "probabilities": given}
    found = _read(tmp_path, json.dumps(row), scale=scale)
    assert found["probabilities"][0].to_list() == pytest.approx(expected, rel=1e-6)
    assert found["gold"].to_list() == [None]


def test_without_an_order_rows_are_numbered_as_they_come(tmp_path: Path) -> None:
    given = [("b", 0.1), ("a", 0.2), ("b", 0.3)]
    rows = [{"respondent_id": "m", "example_id": e, "probabilities": [p, 1 - p]} for e, p in given]
    (tmp_path / "x1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "x2.jsonl").write_text(json.dumps({**rows[1], "probabilities": [0.4, 0.6]}))
    found = read_options(Options.model_validate({"from": "x*.jsonl"}), tmp_path)
    assert found.select("example_id", "order", pl.col("probabilities").list.first().round(3)).rows() == [
        ("a", 0, pytest.approx(0.2)),
        ("a", 1, pytest.approx(0.4)),
        ("b", 0, pytest.approx(0.1)),
        ("b", 1, pytest.approx(0.3)),
    ]
    with pytest.raises(DataRefused, match="order 0 comes more than once") as error:
        _read(tmp_path, "\n".join(json.dumps({**row, "k": 0}) for row in rows), order="k")
    assert "o.jsonl: row 0" in str(error.value)


@pytest.mark.parametrize(
    ("change", "said", "where"),
    [
        ({"gold": "ABC"}, "'ABC' is no place", "row 1, column 'gold'"),
        ({"gold": -1}, "is no place", "row 1, column 'gold'"),
        ({"gold": 1.5}, "is no place", "row 1, column 'gold'"),
        ({"perm": [0, "?"]}, "names no options", "row 1, column 'perm'"),
        ({"probabilities": ["high", "low"]}, "is no list of numbers", "row 1, column 'probabilities'"),
        ({"example_id": " "}, "is empty", "row 1, column 'example_id'"),
        ({"respondent_id": None}, "is empty", "row 1, column 'respondent_id'"),
        ({"order": "first"}, "is no place", "row 1, column 'order'"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(tmp_path: Path, change: dict[str, Any], said: str, where: str) -> None:
    row = {"respondent_id": "m", "example_id": "a", "order": 0, "perm": ["0", "1"], "gold": "A"}
    good = {**row, "probabilities": ["0.5", "0.5"]}
    bad = {**good, "order": 1, **change}
    text = "\n".join(json.dumps(r) for r in (good, bad))
    with pytest.raises(DataRefused, match=said) as error:
        _read(tmp_path, text, order="order", permutation="perm")
    assert where in str(error.value)


def test_columns_that_are_not_there_and_columns_of_another_kind(tmp_path: Path) -> None:
    text = "respondent_id,example_id,p,q,key\nm,a,0.5,x,A\n"
    with pytest.raises(UsageError, match="no column 'probabilities'") as error:
        _read(tmp_path, text, "o.csv")
    assert "options.probabilities" in str(error.value)
    assert "one of respondent_id, example_id, p, q, key" in error.value.expected
    with pytest.raises(UsageError, match="one number a row"):
        _read(tmp_path, text, "o.csv", probabilities="p")
    with pytest.raises(DataRefused, match="'x' is no number"):
        _read(tmp_path, text, "o.csv", probabilities=["p", "q"])
    with pytest.raises(UsageError, match="no column 'keys' \\(did you mean 'key'"):
        _read(tmp_path, text, "o.csv", probabilities=["p", "q"], gold="keys")
    with pytest.raises(DataRefused, match="no row"):
        _read(tmp_path, "", "o.csv")
    with pytest.raises(DataRefused, match="no row"):
        _read(tmp_path, "respondent_id,example_id,probabilities\n", "o.csv")
    with pytest.raises(DataRefused):
        _read(tmp_path, '{"respondent_id": "m"\n')


def test_log_probabilities_too_small_for_float32_keep_how_the_options_compare(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "respondent_id": ["m"] * 3,
            "example_id": ["a", "b", "c"],
            "probabilities": [[-120.0, -121.0], [-1.0, -900.0], [-math.inf, -math.inf]],
        }
    )
    far, near, none = _read(tmp_path, frame, "o.parquet", scale="logprobs")["probabilities"].to_list()
    assert far[1] / far[0] == pytest.approx(math.exp(-1), rel=1e-5)
    assert 0 < far[0] < 1e-26
    assert near == [pytest.approx(math.exp(-1)), 0.0]
    assert none == [0.0, 0.0]


@pytest.mark.parametrize(("columns", "said"), [([], "no column is named"), (["a", "b", "a"], "'a' is named twice")])
def test_columns_of_probabilities_are_one_or_more_different_ones(columns: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        _read(tmp_path, "respondent_id,example_id,a,b\nm,1,0.5,0.5\n", "o.csv", probabilities=columns)

"""Training dynamics of other trainers: cartography's logits, tables of figures, lists of logits and probabilities."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Dynamics
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.ingest.dynamics import read_dynamics
from gradatim.tasks.ingest.dynamics_figures import from_logits, from_probabilities


def _read(source: Path, **given_: Any) -> pl.DataFrame:
    """Read without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_dynamics(Dynamics.model_validate({"from": str(source), **given_}))


def _write(folder: Path, frame: pl.DataFrame, format: str = "parquet") -> Path:
    path = folder / f"dynamics.{format}"
    if format == "parquet":
        frame.write_parquet(path)
    elif format == "csv":
        lists = [name for name, kind in frame.schema.items() if kind.is_nested()]
        text = [pl.Series(name, [json.dumps(v) for v in frame[name].to_list()]) for name in lists]
        frame.with_columns(text).write_csv(path)
    elif format == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_ipc(path)
    return path


FIGURES = pl.DataFrame(
    {
        "example_id": ["a", "b", "a", "b"],
        "epoch": [0, 0, 1, 1],
        "gold_probability": [0.5, 0.25, 0.75, 1.0],
        "correct": [True, False, True, True],
        "loss": [0.693, 1.386, 0.288, 0.0],
        "margin": [0.5, -1.0, 1.5, 20.0],
        "error_norm": [0.7, 1.06, 0.35, 0.0],
    }
)

LOGITS = pl.DataFrame(
    {
        "name": ["a", "b", "b", "c"],
        "step": [0, 0, 1, 1],
        "z": [[1.0, 2.0, 3.0], [6.0, 5.0, 4.0], [7.0, 8.0, 9.0], [12.0, 11.0, 10.0]],
        "label": [1, 0, 2, 1],
    }
)
ASKED = {"example": "name", "epoch": "step", "logits": "z", "gold": "label"}


# --- published numbers and fixtures


@pytest.mark.data
@pytest.mark.parametrize("format", [None, "cartography"])
def test_the_sample_of_cartography_gives_its_reference_metrics(data: Path, format: str | None, tmp_path: Path) -> None:
    folder = data / "cartography_winogrande" / "sample_training_dynamics"
    source = folder if format else folder / "dynamics_epoch_*.jsonl"
    table = _read(source, **({"format": format} if format else {}))
    assert table.schema == polars_schema("dynamics")
    assert table["epoch"].value_counts().sort("epoch").rows() == [(e, 10) for e in range(5)]
    reference = pl.read_csv(folder / "reference_metrics.csv").with_columns(pl.col("guid").cast(pl.String))
    both = reference.join(table, left_on="guid", right_on="example_id")
    assert len(both) == len(table) == 50
    assert both["gold_probability"].to_numpy() == pytest.approx(both["confidence"].to_numpy(), abs=1e-7)
    assert both["correct"].cast(pl.Int64).to_list() == both["correctness"].to_list()
    assert table["position"].to_list() == list(range(50))
    assert table["run_id"].unique().to_list() == ["run"]


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl", "arrow"])
def test_the_fixture_of_the_aum_library_in_every_format(format: str, tmp_path: Path) -> None:
    table = _read(_write(tmp_path, LOGITS, format), **ASKED)
    areas = table.group_by("example_id").agg(pl.col("margin").mean()).sort("example_id")
    assert areas.rows() == [("a", -1.0), ("b", 1.0), ("c", -1.0)]
    assert table["correct"].to_list() == [False, True, True, False]
    p = np.exp(2) / np.exp([1, 2, 3]).sum()
    assert table["gold_probability"][0] == pytest.approx(p, abs=1e-7)
    assert table["loss"][0] == pytest.approx(-np.log(p), abs=1e-6)
    error = np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum() - [0, 1, 0]
    assert table["error_norm"][0] == pytest.approx(np.linalg.norm(error), abs=1e-6)


# --- figures from lists


@given(
    st.lists(
        st.lists(st.floats(-50, 50), min_size=2, max_size=5).flatmap(
            lambda z: st.tuples(st.just(z), st.integers(0, len(z) - 1))
        ),
        min_size=1,
        max_size=12,
    )
)
@settings(deadline=None, max_examples=30)
def test_figures_equal_those_of_a_plain_loop(rows: list[tuple[list[float], int]]) -> None:
    values, lengths = np.concatenate([z for z, _ in rows]), np.array([len(z) for z, _ in rows])
    gold = np.array([g for _, g in rows])
    found = from_logits(values, lengths, gold)
    chances = []
    for place, (z, g) in enumerate(rows):
        p = np.exp(np.array(z) - max(z))
        p /= p.sum()
        chances.append(p)
        others = [value for k, value in enumerate(z) if k != g]
        assert found.gold_probability[place] == pytest.approx(p[g], abs=1e-12)
        assert found.margin[place] == z[g] - max(others)
        assert found.correct[place] == (z[g] > max(others))
        assert found.error_norm[place] == pytest.approx(np.linalg.norm(p - np.eye(len(z))[g]), abs=1e-12)
        assert np.exp(-found.loss[place]) == pytest.approx(p[g], abs=1e-12)
        if len(z) == 2:
            assert found.error_norm[place] == pytest.approx(np.sqrt(2) * (1 - p[g]), abs=1e-12)
    again = from_probabilities(np.concatenate(chances), lengths, gold)
    assert again.gold_probability == pytest.approx(found.gold_probability, abs=1e-12)
    usual = np.isfinite(again.margin) & (np.abs(found.margin) < 30)
    assert again.margin[usual] == pytest.approx(found.margin[usual], abs=1e-6)


def test_huge_logits_do_not_overflow_and_a_tie_is_wrong(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"name": ["a", "b", "c"], "step": 0, "z": [[1e4, -1e4], [-1e4, 1e4], [3.0, 3.0]], "label": [0, 0, 0]}
    )
    table = _read(_write(tmp_path, frame), **ASKED)
    assert table["gold_probability"].to_list() == [1.0, 0.0, 0.5]
    assert table["loss"].to_list() == pytest.approx([0.0, 2e4, np.log(2)])
    assert table["correct"].to_list() == [True, False, False]
    assert table["margin"].to_list() == [2e4, -2e4, 0.0]


def test_rows_with_logits_that_are_not_finite_have_no_figures_and_are_counted(tmp_path: Path) -> None:
    lists = [[1.0, 2.0], [float("nan"), 2.0], [float("inf"), 0.0], None, [None, 1.0]]
    frame = pl.DataFrame(
        {
            "name": list("abcde"),
            "step": 0,
            "z": pl.Series(lists, dtype=pl.List(pl.Float64)),
            "label": [1, 0, 0, None, 0],
        }
    )
    with pytest.warns(UserWarning, match="4 of 5 rows have figures that are missing or not finite"):
        table = read_dynamics(Dynamics.model_validate({"from": str(_write(tmp_path, frame)), **ASKED}))
    for name in ("gold_probability", "correct", "loss", "margin", "error_norm"):
        assert table[name].is_null().to_list() == [False, True, True, True, True]


def test_probabilities_serve_instead_of_logits_and_fixed_size_lists_as_well(tmp_path: Path) -> None:
    chances = LOGITS.with_columns(
        z=pl.Series([list(np.exp(z) / np.exp(z).sum()) for z in LOGITS["z"].to_list()], dtype=pl.Array(pl.Float32, 3))
    )
    asked = {**ASKED, "probabilities": "z"}
    del asked["logits"]
    table = _read(_write(tmp_path, chances), **asked)
    again = _read(_write(tmp_path, LOGITS), **ASKED)
    for name in ("gold_probability", "loss", "margin", "error_norm"):
        assert table[name].to_numpy() == pytest.approx(again[name].to_numpy(), abs=1e-5)
    assert table["correct"].equals(again["correct"])


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([[0.5, 0.5], [0.6, 0.6]], "sum to 1.2"),
        ([[0.5, 0.5], [2.0, 5.0]], "sum to 7"),
        ([[0.5, 0.5], [-0.1, 1.1]], "a probability below 0"),
        ([[0.5, 0.5], [1.0]], "a list of 1 probabilities"),
        ([[0.5, 0.5], []], "a list of 0 probabilities"),
    ],
)
def test_lists_that_are_no_probabilities_are_refused_with_their_row(
    lists: list[list[float]], said: str, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"example_id": ["a", "b"], "epoch": 0, "p": lists, "gold": 0})
    with pytest.raises(DataRefused) as caught:
        _read(_write(tmp_path, frame), probabilities="p", gold="gold")
    assert said in str(caught.value)
    assert "row 1" in str(caught.value)


def test_figures_that_are_given_count_more_than_those_of_logits(tmp_path: Path) -> None:
    frame = LOGITS.with_columns(loss=pl.lit(9.0), hidden_norm=pl.lit(2.5))
    table = _read(_write(tmp_path, frame), **ASKED)
    assert table["loss"].unique().to_list() == [9.0]
    assert table["hidden_norm"].unique().to_list() == [2.5]
    assert table["margin"].to_list() == [-1.0, 1.0, 1.0, -1.0]


# --- tables of figures


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl", "arrow"])
def test_a_table_of_figures_is_read_in_every_format(format: str, tmp_path: Path) -> None:
    table = _read(_write(tmp_path, FIGURES, format))
    assert table.schema == polars_schema("dynamics")
    assert table["position"].to_list() == [0, 1, 2, 3]
    for name in FIGURES.columns:
        assert table[name].cast(FIGURES.schema[name]).to_list() == pytest.approx(FIGURES[name].to_list(), abs=1e-6)
    assert table["hidden_norm"].null_count() == 4


def test_columns_are_named_and_rows_come_in_the_order_of_epochs(tmp_path: Path) -> None:
    frame = FIGURES.select(
        guid="example_id", e="epoch", p="gold_probability", model=pl.Series(["y", "y", "x", "x"]), right=pl.lit("True")
    ).reverse()
    table = _read(
        _write(tmp_path, frame, "csv"), example="guid", epoch="e", gold_probability="p", run="model", correct="right"
    )
    assert table.select("run_id", "position", "example_id", "epoch").rows() == [
        ("x", 0, "b", 1),
        ("x", 1, "a", 1),
        ("y", 0, "b", 0),
        ("y", 1, "a", 0),
    ]
    assert table["correct"].all()
    assert table["loss"].null_count() == 4


def test_positions_are_kept_and_may_not_clash(tmp_path: Path) -> None:
    frame = FIGURES.with_columns(place=pl.Series([7, 3, 12, 9]), model=pl.lit("m"))
    table = _read(_write(tmp_path, frame), position="place", run="model")
    assert table["position"].to_list() == [3, 7, 9, 12]
    assert table["example_id"].to_list() == ["b", "a", "b", "a"]
    with pytest.raises(DataRefused, match="two rows at position 3, of the examples 'b' and 'a'"):
        _read(_write(tmp_path, frame.with_columns(place=pl.Series([7, 3, 3, 9]))), position="place")


def test_several_files_are_one_table_and_ids_keep_their_zeros(tmp_path: Path) -> None:
    for epoch in (1, 0):
        part = FIGURES.filter(epoch=epoch).with_columns(example_id=pl.Series(["007", "7"]))
        part.write_csv(tmp_path / f"part-{1 - epoch}.csv")
    table = _read(tmp_path)
    assert table.select("example_id", "epoch").rows() == [("007", 0), ("7", 0), ("007", 1), ("7", 1)]


def test_figures_that_are_not_finite_become_null_and_are_counted(tmp_path: Path) -> None:
    frame = FIGURES.with_columns(loss=pl.Series([0.1, float("inf"), float("nan"), None]))
    with pytest.warns(UserWarning, match="3 of 4 rows"):
        table = read_dynamics(Dynamics.model_validate({"from": str(_write(tmp_path, frame))}))
    assert table["loss"].is_null().to_list() == [False, True, True, True]


def test_lines_that_are_no_json_are_counted(tmp_path: Path) -> None:
    path = _write(tmp_path, FIGURES, "jsonl")
    path.write_text(path.read_text() + '{"example_id": "c", "epoch": 0, "loss": NaN}\n')
    with pytest.warns(UserWarning, match="left out: 1 line cannot be read, first row 4"):
        table = read_dynamics(Dynamics.model_validate({"from": str(path)}))
    assert len(table) == 4


@pytest.mark.parametrize(
    ("frame", "given_", "error", "said"),
    [
        (FIGURES.drop("example_id"), {}, UsageError, "no column 'example_id'"),
        (FIGURES, {"epoch": "epochs"}, UsageError, "did you mean 'epoch'"),
        (FIGURES, {"loss": "losses"}, UsageError, "did you mean 'loss'"),
        (FIGURES.select("example_id", "epoch"), {}, UsageError, "no figure"),
        (LOGITS, {"example": "name", "epoch": "step", "logits": "z"}, UsageError, "need the right class"),
        (LOGITS, {**ASKED, "probabilities": "z"}, UsageError, "both logits and probabilities"),
        (LOGITS.with_columns(z="label"), ASKED, UsageError, "no lists of numbers"),
        (LOGITS.with_columns(step=pl.Series([0, 2**31, 0, 0])), ASKED, DataRefused, "epoch is 2.14748e+09"),
        (LOGITS.with_columns(name=pl.Series(["a", " ", "b", "c"])), ASKED, DataRefused, "is empty"),
        (LOGITS.with_columns(label=pl.Series([1, 3, 0, 0])), ASKED, DataRefused, "right class is 3 of 3"),
        (LOGITS.with_columns(label=pl.Series([1, None, 0, 0])), ASKED, DataRefused, "row 1"),
        (LOGITS.with_columns(step=pl.Series([0, -1, 0, 0])), ASKED, DataRefused, "epoch is -1"),
        (LOGITS.with_columns(step=pl.Series([0, None, 0, 0])), ASKED, DataRefused, "epoch is missing"),
        (LOGITS.with_columns(name=pl.Series(["a", None, "b", "c"])), ASKED, DataRefused, "is null"),
        (
            FIGURES.with_columns(gold_probability=pl.Series([0.5, 1.5, 0, 0])),
            {},
            DataRefused,
            "gold_probability is 1.5",
        ),
        (FIGURES.with_columns(correct=pl.Series([0.5, 1, 0, 0])), {}, DataRefused, "0 or 1, true or false"),
        (FIGURES.with_columns(correct=pl.Series(["yes", "no"] * 2)), {}, DataRefused, "holds 'yes'"),
        (FIGURES.with_columns(loss=pl.Series([[1.0]] * 4)), {}, UsageError, "is of type"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(
    frame: pl.DataFrame, given_: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        _read(_write(tmp_path, frame), **given_)
    assert said in str(caught.value)


def test_a_source_without_rows_or_maps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataRefused, match="no row in the whole source"):
        _read(_write(tmp_path, FIGURES.head(0)))
    with pytest.raises(UsageError, match="dynamics_epoch_N"):
        _read(tmp_path / "dynamics.parquet", format="cartography")
    (tmp_path / "dynamics_epoch_0.jsonl").write_text('{"guid": 1, "logits": [0, 1], "gold": 0}\n')
    with pytest.raises(UsageError, match="no column logits_epoch_N"):
        _read(tmp_path / "dynamics_epoch_0.jsonl")


def test_logits_of_a_hundred_thousand_rows_are_read_at_once(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    z = random.normal(size=(100_000, 3))
    gold = random.integers(0, 3, 100_000)
    frame = pl.DataFrame(
        {
            "example_id": np.arange(100_000).astype(str),
            "epoch": 0,
            "z": pl.Series(z, dtype=pl.Array(pl.Float64, 3)),
            "y": gold,
        }
    )
    table = _read(_write(tmp_path, frame), logits="z", gold="y").sort(pl.col("example_id").cast(pl.Int64))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert table["gold_probability"].to_numpy() == pytest.approx(p[np.arange(100_000), gold], abs=1e-6)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("1.0 2.0", "row 1: the column 'z' holds '1.0 2.0'"),
        ("[1.0, x]", "holds '[1.0, x]'"),
        ("[1e999, 0]", "no lists"),
    ],
)
def test_a_text_that_is_no_list_is_named_with_its_row(cell: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(f'name,step,z,label\na,0,"[0.5, 1e-3]",1\nb,0,"{cell}",1\n')
    with pytest.raises((DataRefused, UsageError)) as caught:
        _read(path, **ASKED)
    assert said in str(caught.value)


def test_logits_that_python_wrote_as_nan_or_infinity_leave_their_row_without_figures(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text('name,step,z,label\na,0,"[0, 0]",1\nb,0,"[NaN, 1.0]",1\nc,0,"[1.0, -Infinity]",0\nd,0,,0\n')
    with pytest.warns(UserWarning, match="3 of 4 rows have figures that are missing or not finite"):
        table = read_dynamics(Dynamics.model_validate({"from": str(path), **ASKED}))
    assert table["gold_probability"].to_list() == [0.5, None, None, None]

"""Charts of the house: right values, bounded size, no network, the same picture for the same data."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
import sys
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import chart_parts, charts


def values(drawn: Any) -> list[dict[str, Any]]:
    """Return the rows that a chart embeds."""
    (rows,) = drawn.to_dict()["datasets"].values()
    return list(rows)


@pytest.fixture
def arms() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "bin": [1, 2, 3] * 2,
            "arm": ["curriculum"] * 3 + ["random"] * 3,
            "accuracy": [0.9, 0.7, 0.4, 0.8, 0.6, 0.3],
            "low": [0.8, 0.6, 0.3, 0.7, 0.5, 0.2],
            "high": [0.95, 0.8, 0.5, 0.9, 0.7, 0.4],
        }
    )


def test_importing_the_charts_does_not_import_altair() -> None:
    code = "import gradatim.tasks.core.charts, sys; print('altair' in sys.modules, 'vl_convert' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]


def test_a_histogram_counts_each_finite_value_once_and_embeds_only_its_bins() -> None:
    numbers = np.concatenate([np.random.default_rng(0).normal(size=100_000), [math.nan, math.inf]])
    drawn = charts.histogram(numbers, title="Difficulty", x="logit", bins=25)
    rows = values(drawn)
    assert len(rows) == 25
    assert sum(row["y"] for row in rows) == 100_000
    assert drawn.to_dict()["title"]["subtitle"] == "n = 100,000, 2 missing left out"


@pytest.mark.parametrize("numbers", [[], [math.nan], [3.0], [3.0] * 50, pl.Series([1, None, 2]), pl.Series(["1", "x"])])
def test_a_histogram_of_few_or_equal_values_is_drawn(numbers: Any) -> None:
    drawn = charts.histogram(numbers, title="t", x="v")
    finite = [v for v in pl.Series(numbers).cast(pl.Float64, strict=False).to_list() if v is not None and v == v]
    assert sum(row["y"] for row in values(drawn)) == len(finite)
    assert charts.to_png(charts.chart(drawn, "c").spec).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "numbers", [[1.7917594692280550, 1.7917594692280552], [1e16, 1e16 + 2], [1e300, 1e300], [-1e308, 1e308]]
)
def test_a_histogram_of_values_closer_or_further_than_bins_can_be_is_drawn(numbers: list[float]) -> None:
    drawn = charts.histogram(numbers, title="t", x="v")
    assert sum(row["y"] for row in values(drawn)) == 2
    assert charts.to_png(charts.chart(drawn, "c").spec).startswith(b"\x89PNG")


def test_values_on_a_few_even_steps_have_a_bar_each_with_the_value_in_its_middle() -> None:
    rows = values(charts.histogram([0.0, 0.1, 0.1, 0.3, 1.0], title="t", x="v"))
    assert [row["y"] for row in rows] == [1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert [(row["x"] + row["x2"]) / 2 for row in rows] == pytest.approx([i / 10 for i in range(11)])


def test_counts_that_are_more_than_bars_fall_evenly_into_them() -> None:
    rows = values(charts.histogram(np.repeat(np.arange(31.0), 7), title="t", x="v", bins=30))
    assert [row["y"] for row in rows] == [14] * 15 + [7]  # two counts a bar, and the last one


def test_bars_keep_the_order_and_the_values_of_the_frame(arms: pl.DataFrame) -> None:
    drawn = charts.bars(arms.reverse(), x="bin", y="accuracy", color="arm", low="low", high="high", title="t")
    spec = drawn.to_dict()
    assert spec["layer"][0]["encoding"]["x"]["sort"] == ["3", "2", "1"]
    assert [row["y"] for row in values(drawn)] == arms["accuracy"].reverse().to_list()
    assert [row["low"] for row in values(drawn)] == arms["low"].reverse().to_list()
    svg = charts.to_svg(spec)
    assert svg.count('aria-roledescription="bar"') == 6
    assert svg.index(">3<") < svg.index(">2<") < svg.index(">1<")


def test_bars_with_long_names_lie_and_names_alike_in_their_beginning_stay_apart() -> None:
    frame = pl.DataFrame({"name": ["x" * 80 + "a", "x" * 80 + "b", None], "n": [1, 2, 3]})
    drawn = charts.bars(frame, x="name", y="n", title="t")
    assert len({row["x"] for row in values(drawn)}) == 3
    assert drawn.to_dict()["encoding"]["y"]["type"] == "nominal"


def test_two_rows_for_one_bar_or_cell_are_refused(arms: pl.DataFrame) -> None:
    with pytest.raises(UsageError, match="more than one row"):
        charts.bars(arms, x="bin", y="accuracy", title="t")
    with pytest.raises(UsageError, match="more than one row"):
        charts.heatmap(pl.concat([arms, arms]), x="bin", y="arm", value="accuracy", title="t")


def test_a_missing_column_is_named_with_the_nearest_one(arms: pl.DataFrame) -> None:
    with pytest.raises(UsageError, match=r"'accurcy'.*did you mean 'accuracy'"):
        charts.lines(arms, x="bin", y="accurcy", title="t")


def test_many_points_are_thinned_to_the_same_ones_in_any_order() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=30_000), "y": rng.normal(size=30_000)})
    drawn = charts.points(frame, x="x", y="y", title="t")
    shuffled = charts.points(frame.sample(fraction=1, shuffle=True, seed=1), x="x", y="y", title="t")
    rows = values(drawn)
    assert len(rows) == chart_parts.POINTS
    assert rows == values(shuffled)
    assert drawn.to_dict()["title"]["subtitle"] == "5,000 of 30,000 points shown"
    assert min(row["x"] for row in rows) == frame["x"].min()
    assert max(row["x"] for row in rows) == frame["x"].max()


def test_too_many_categories_and_series_are_cut_and_counted() -> None:
    frame = pl.DataFrame({"x": [f"c{i}" for i in range(100)], "y": list(range(100))})
    drawn = charts.bars(frame, x="x", y="y", title="t")
    assert [row["x"] for row in values(drawn)] == frame["x"].head(60).to_list()
    assert "the first 60 of 100" in drawn.to_dict()["title"]["subtitle"]
    drawn = charts.lines(frame, x="y", y="y", color="x", title="t")
    assert len(values(drawn)) == 12
    assert "the first 12 of 100" in drawn.to_dict()["title"]["subtitle"]


def test_series_differ_in_more_than_colour(arms: pl.DataFrame) -> None:
    line = charts.lines(arms, x="bin", y="accuracy", color="arm", low="low", high="high", title="t").to_dict()
    assert any("strokeDash" in layer["encoding"] for layer in line["layer"])
    assert "shape" in charts.points(arms, x="bin", y="accuracy", color="arm", title="t").to_dict()["encoding"]


def test_names_of_columns_are_data_not_expressions(arms: pl.DataFrame) -> None:
    odd = arms.rename({"accuracy": "a.b[0]:Q", "arm": "datum['x']", "bin": "sum(bin):N"})
    drawn = charts.lines(odd, x="sum(bin):N", y="a.b[0]:Q", color="datum['x']", title="t")
    assert [row["y"] for row in values(drawn)] == [0.9, 0.8, 0.7, 0.6, 0.4, 0.3]
    assert "a.b[0]:Q" in charts.to_svg(drawn.to_dict())


def test_a_heatmap_writes_its_numbers_into_a_small_grid(arms: pl.DataFrame) -> None:
    svg = charts.to_svg(charts.heatmap(arms, x="bin", y="arm", value="accuracy", title="t").to_dict())
    assert all(f">{text}<" in svg for text in (".9", ".7", ".4", ".8", ".6", ".3"))


def test_correlations_are_written_with_two_decimals_and_white_at_nought() -> None:
    frame = pl.DataFrame({"x": ["a", "b", "a", "b"], "y": ["a", "a", "b", "b"], "r": [1.0, -0.004, -0.291, None]})
    spec = charts.heatmap(frame, x="x", y="y", value="r", title="t", correlations=True).to_dict()
    svg = charts.to_svg(spec)
    assert all(f">{text}<" in svg for text in ("1.00", ".00", "-.29", "–"))
    assert spec["layer"][1]["encoding"]["color"]["scale"]["range"][1] == "#FFFFFF"
    assert svg.count('fill="#e6e8eb"') == 4  # below all, so that a missing one is told from nought


@pytest.mark.parametrize("kind", ["bars", "lines", "points"])
def test_an_empty_frame_is_drawn_as_no_data(arms: pl.DataFrame, kind: str) -> None:
    drawn = getattr(charts, kind)(arms.clear(), x="bin", y="accuracy", color="arm", low="low", high="high", title="t")
    assert ">no data<" in charts.to_svg(drawn.to_dict())
    assert ">no data<" in charts.to_svg(
        charts.heatmap(arms.clear(), x="bin", y="arm", value="low", title="t").to_dict()
    )


def test_values_that_json_does_not_know_are_embedded_as_missing() -> None:
    frame = pl.DataFrame({"x": [1, 2**60], "y": [math.nan, math.inf]})
    spec = charts.bars(frame, x="x", y="y", title="\ud800\x00 t\nu").to_dict()
    json.dumps(spec, allow_nan=False).encode("utf-8")
    assert spec["title"]["text"] == "\ufffd\ufffd t u"
    assert charts.to_png(spec).startswith(b"\x89PNG")


def test_dates_are_drawn_in_utc_whatever_the_machine_says() -> None:
    frame = pl.DataFrame({"day": [date(2026, 1, 1), date(2026, 1, 2)], "n": [1, 2]})
    drawn = charts.lines(frame, x="day", y="n", title="t")
    assert [row["x"] for row in values(drawn)] == [1767225600000, 1767312000000]
    assert "utc" in json.dumps(drawn.to_dict())


def test_the_same_frame_gives_the_same_bytes(arms: pl.DataFrame) -> None:
    first, second = (charts.bars(arms, x="bin", y="accuracy", color="arm", title="t").to_dict() for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert charts.to_svg(first) == charts.to_svg(second)
    assert charts.to_png(first) == charts.to_png(second)


def test_a_png_has_the_size_that_it_should(arms: pl.DataFrame) -> None:
    made = charts.chart(charts.bars(arms, x="bin", y="accuracy", color="arm", title="Accuracy by bin"), "It falls.")
    png = charts.to_png(made.spec, scale=2)
    width, height = struct.unpack(">II", png[16:24])
    assert (made.title, made.caption) == ("Accuracy by bin", "It falls.")
    assert width > 1_100
    assert height > 500
    assert len(png) > 5_000


@pytest.mark.parametrize("draw", [charts.to_svg, charts.to_png])
def test_drawing_never_opens_a_connection(draw: Any) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(0.3)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/data.json"
        image = {"data": {"values": [{"u": url}]}, "mark": "image", "encoding": {"url": {"field": "u"}}}
        for spec in ({"data": {"url": url}, "mark": "point", "encoding": {}}, image):
            with pytest.raises(UsageError):
                draw(spec)
        with pytest.raises(TimeoutError):
            server.accept()

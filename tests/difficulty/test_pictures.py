"""Pictures of a calibration: what they show, and that they stay small."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from gradatim.tasks.core.charts import to_svg
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.difficulty.item_response.pictures import irt_pictures, link_picture, linked_pictures, shares, spread
from gradatim.tasks.difficulty.reliability import growth, spearman_brown


def items(count: int, seed: int = 0) -> pl.DataFrame:
    """Draw item parameters with a fit."""
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "example_id": [f"q{j:07d}" for j in range(count)],
            "discrimination": np.exp(0.3 * random.normal(size=count)),
            "location": random.normal(size=count),
            "lower": np.zeros(count),
            "upper": np.ones(count),
            "fit": np.exp(0.1 * random.normal(size=count)),
        }
    )


def people(count: int) -> pl.DataFrame:
    """Draw abilities."""
    names = [f"r{i}" for i in range(count)]
    return pl.DataFrame({"respondent_id": names, "ability": np.random.default_rng(1).normal(size=count)})


def answers(table: pl.DataFrame, ability: np.ndarray) -> np.ndarray:
    """Draw scores (n, J)."""
    a, b = table["discrimination"].to_numpy(), table["location"].to_numpy()
    return (
        np.random.default_rng(2).random((len(ability), len(a))) < 1 / (1 + np.exp(-a * (ability[:, None] - b)))
    ) * 1.0


def embedded(chart: Any) -> list[dict[str, Any]]:
    """Return all rows that a chart carries."""
    found: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for name, value in node.items():
                if name == "values" and value and isinstance(value[0], dict):
                    found.extend(value)
                elif name == "datasets":
                    found.extend(row for rows in value.values() for row in rows)
                else:
                    walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(chart.to_dict())
    return found


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    table, who = items(60), people(200)
    scores = answers(table, who["ability"].to_numpy())
    ids = who["respondent_id"].to_list()
    measured = growth(lambda rows: -scores[rows].mean(axis=0), ids, seed=0, overall=0.95)
    return irt_pictures(table, who, scores=lambda rows: scores[:, rows], reliability=measured, overall=0.95)


def test_every_picture_is_drawn_and_has_a_caption(pictures: dict[str, Picture]) -> None:
    assert list(pictures) == ["curves", "wright", "information", "item_information", "reliability"]
    for picture in pictures.values():
        assert picture.caption.endswith((".", "?"))
        svg = to_svg(picture.draw().to_dict())
        assert svg.startswith("<svg")
        assert "NaN" not in svg


def test_curves_pass_half_at_the_location_of_their_item() -> None:
    table = items(60)
    rows = spread(table)
    drawn = embedded(irt_pictures(table, people(9))["curves"].draw())
    for example, a, b in table[rows].select("example_id", "discrimination", "location").iter_rows():
        line = [(r["theta"], r["value"]) for r in drawn if r.get("item") == example]
        theta, value = np.array(line).T
        assert value == pytest.approx(1 / (1 + np.exp(-a * (theta - b))), abs=1e-5)


def test_a_spread_of_items_runs_from_easy_to_hard_and_has_the_worst_fitting_one() -> None:
    table = items(101)
    table = table.with_columns(
        fit=pl.when(pl.col("example_id") == "q0000042").then(9.0).otherwise(pl.col("fit")),
        location=pl.when(pl.col("example_id") == "q0000007").then(99.0).otherwise(pl.col("location")),
    ).with_columns(fit=pl.when(pl.col("example_id") == "q0000007").then(None).otherwise(pl.col("fit")))
    rows = spread(table)
    assert 42 in rows
    assert 7 not in rows  # extreme: no fit
    order = table["location"].to_numpy()[rows[:5]]
    assert (np.diff(order) > 0).all()
    assert np.mean(table["location"].to_numpy() < order[0]) == pytest.approx(0.05, abs=0.02)
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=3)
    assert shuffled["example_id"].gather(spread(shuffled)).to_list() == table["example_id"].gather(rows).to_list()
    assert len(spread(table.head(1))) == 1
    assert len(spread(table.head(0))) == 0
    assert len(spread(table.with_columns(fit=pl.lit(None, dtype=pl.Float64)))) == 5


def test_observed_shares_are_means_of_groups_of_like_ability() -> None:
    ability = np.arange(40.0)
    scores = np.stack([(ability >= 20) * 1.0, np.where(ability < 5, 1.0, np.nan)], axis=1)
    found = shares(["a", "b"], scores, ability)
    first = found.filter(pl.col("item") == "a")
    assert first["value"].to_list() == [0.0] * 4 + [1.0] * 4
    assert first["theta"].to_list() == [2.0 + 5 * k for k in range(8)]
    assert (first["low"] <= first["value"]).all()
    assert first["high"][0] == pytest.approx(0.4345, abs=1e-3)  # Wilson's interval of none in five
    second = found.filter(pl.col("item") == "b")
    assert second.select("theta", "value", "n").rows() == [(2.0, 1.0, 5)]
    assert len(shares(["a"], np.full((4, 1), np.nan), np.arange(4.0))) == 0


def test_a_wright_map_shows_everyone_and_every_example_once(pictures: dict[str, Picture]) -> None:
    drawn = embedded(pictures["wright"].draw())
    for side, sign in (("respondents", -1), ("examples", 1)):
        cells = [r for r in drawn if r.get("side") == side]
        assert sign * sum(r["end"] for r in cells) == pytest.approx(1.0)
    far = items(60).with_columns(location=pl.when(pl.col("example_id") == "q0000003").then(80.0).otherwise("location"))
    chart = irt_pictures(far, people(50))["wright"].draw()
    assert max(r["high"] for r in embedded(chart) if "high" in r) < 10
    assert "1 far ones" in json.dumps(chart.to_dict())


def test_information_is_the_sum_over_items_also_from_a_sample() -> None:
    table = items(60)
    rows = [r for r in embedded(irt_pictures(table, people(9))["information"].draw()) if "information" in r]
    theta = np.array([r["theta"] for r in rows])
    a, b = table["discrimination"].to_numpy(), table["location"].to_numpy()
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    total = (a**2 * p * (1 - p)).sum(axis=1)
    assert [r["information"] for r in rows] == pytest.approx(list(total))
    assert [r["standard_error"] for r in rows] == pytest.approx(list(1 / np.sqrt(1 + total)))
    many = items(50_000)
    drawn = irt_pictures(many, people(9))["information"].draw()
    rows = [r for r in embedded(drawn) if "information" in r]
    a, b = many["discrimination"].to_numpy(), many["location"].to_numpy()
    middle = min(rows, key=lambda r: abs(r["theta"]))
    p = 1 / (1 + np.exp(-a * (middle["theta"] - b)))
    assert middle["information"] == pytest.approx((a**2 * p * (1 - p)).sum(), rel=0.01)
    assert "even sample of 20,000" in json.dumps(drawn.to_dict())


def test_reliability_is_drawn_with_the_prediction_through_the_whole(pictures: dict[str, Picture]) -> None:
    rows = embedded(pictures["reliability"].draw())
    line = {int(r["respondents"]): r["value"] for r in rows if "respondents" in r and "low" not in r}
    for count, value in line.items():
        assert value == pytest.approx(spearman_brown(0.95, count / 200))
    points = [r for r in rows if "low" in r]
    assert [int(r["respondents"]) for r in points] == [4, 8, 16, 32, 64, 200]
    assert "10 bins" in {r.get("label") for r in rows}


def test_pictures_of_a_million_items_are_small() -> None:
    table, who = items(1_000_000), people(100)
    drawn = irt_pictures(table, who, scores=lambda rows: answers(table[rows], who["ability"].to_numpy()))
    for picture in drawn.values():
        assert len(json.dumps(picture.draw().to_dict())) < 120_000


def test_a_calibration_of_one_item_or_nobody_is_drawn() -> None:
    for table, who in ((items(1), people(1)), (items(0), people(0)), (items(3), people(0))):
        for picture in irt_pictures(table, who, scores=lambda rows: np.ones((1, len(rows)))).values():
            if len(who) or not len(table):
                to_svg(picture.draw().to_dict())


def test_chosen_items_are_drawn_and_unknown_ones_are_not() -> None:
    drawn = embedded(irt_pictures(items(20), people(9), chosen=["q0000003", "nowhere"])["curves"].draw())
    assert {r["item"] for r in drawn if "item" in r} == {"q0000003"}


def test_the_picture_of_a_link_tells_used_from_drifted() -> None:
    table = pl.DataFrame(
        {
            "example_id": ["a", "b", "c"],
            "linked": [0.0, 1.0, np.nan],
            "old": [0.1, 3.0, 1.0],
            "used": [True, False, False],
            "reason": [None, "drifted", "without finite parameters"],
        }
    )
    chart = link_picture(table, 1.25, -0.5)
    rows = [r for r in embedded(chart) if "kind" in r]
    assert sorted((r["kind"], r["x"], r["y"]) for r in rows) == [("drifted", 1.0, 3.0), ("used", 0.0, 0.1)]
    assert "old = 1.250 new - 0.500; 2 common examples" in json.dumps(chart.to_dict())
    to_svg(chart.to_dict())


def test_influence_is_worked_out_when_it_is_drawn_and_shows_the_largest() -> None:
    calls = []

    def influence() -> pl.DataFrame:
        calls.append(1)
        change = [None, *(0.01 * k for k in range(30))]
        return pl.DataFrame(
            {"name": [f"r{k}" for k in range(31)], "respondents": [1] * 30 + [4], "change_linked": change},
            schema_overrides={"change_linked": pl.Float64},
        )

    drawn = irt_pictures(items(9), people(9), influence=influence)
    assert not calls
    chart = drawn["influence"].draw()
    assert len(calls) == 1
    rows = [r for r in embedded(chart) if "x" in r]
    assert [r["x"] for r in rows] == ["r30 (4 respondents)", *(f"r{k}" for k in range(29, 15, -1))]
    assert "the largest of 30" in json.dumps(chart.to_dict())
    to_svg(chart.to_dict())


def test_pictures_that_depend_on_the_scale_are_made_anew_on_another(pictures: dict[str, Picture]) -> None:
    moved = items(60).with_columns(pl.col("location") + 2)
    again = linked_pictures(pictures, moved, people(200))
    assert set(again) == {"curves", "wright", "information", "item_information", "reliability"}
    assert again["reliability"] is pictures["reliability"]
    peak = max((r for r in embedded(again["information"].draw()) if "information" in r), key=lambda r: r["information"])
    assert peak["theta"] == pytest.approx(2.0, abs=0.5)
    assert list(linked_pictures(pictures, None, None)) == ["reliability"]

"""Glicko-2: Glickman's example, a reference implementation on six seasons of football, and the laws of ratings."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty import ratings
from gradatim.tasks.difficulty.glicko2 import Glicko2Config, run
from gradatim.tasks.difficulty.ratings import SCALE, new_volatility, rate
from gradatim.tasks.difficulty.responses import from_matrix
from gradatim.tasks.difficulty.result import Difficulty

SEASONS = [
    ("afl_glicko2_defaults", {"rating": 2200, "deviation": 300, "volatility": 0.15, "tau": 1.2}),
    ("afl_glicko2_init1500_350_006_tau05", {"rating": 1500, "deviation": 350, "volatility": 0.06, "tau": 0.5}),
]


def _run(responses: pl.DataFrame, **given_: object) -> Difficulty:
    more = {name: given_.pop(name) for name in ("examples", "respondents") if name in given_}
    return run({"responses": responses, **more}, Glicko2Config.model_validate(given_))  # type: ignore[dict-item]


def _example() -> ratings.Ratings:
    return rate(
        [1, 1, 1],
        ["a", "a", "a"],
        ["b", "c", "d"],
        [1, 0, 0],
        rating=[1500, 1400, 1550, 1700],
        deviation=[200, 30, 100, 300],
    )


# --- published numbers


def test_glickmans_worked_example_has_its_printed_numbers() -> None:
    found = _example()
    assert found.rating[0] == pytest.approx(1464.06, abs=0.02)  # printed from rounded intermediate values
    assert found.deviation[0] == pytest.approx(151.52, abs=0.01)
    assert found.volatility[0] == pytest.approx(0.05999, abs=1e-5)


def test_the_opponents_of_the_worked_example_are_updated_from_the_values_before_the_period() -> None:
    found = _example()
    assert found.rating == pytest.approx([1464.050671, 1398.143558, 1570.394741, 1784.421790], abs=2e-6)
    assert found.deviation == pytest.approx([151.516521, 31.67021, 97.70917, 251.56556], abs=1e-5)


def _afl(data: Path) -> tuple[np.ndarray, ...]:
    games = pl.read_csv(data / "ratings_reference" / "aflodds.csv", null_values="NA", infer_schema_length=None)
    week = games["Week"].rank("dense").to_numpy().astype(np.int64)  # the reference counts only weeks with a game
    return week, games["HomeTeam"].to_numpy(), games["AwayTeam"].to_numpy(), games["Score"].to_numpy()


@pytest.mark.data
@pytest.mark.parametrize(("file", "start"), SEASONS)
def test_every_team_of_the_afl_seasons_is_rated_as_by_the_reference(
    data: Path, file: str, start: dict[str, float]
) -> None:
    reference = pl.read_csv(data / "ratings_reference" / f"{file}.csv").sort("Player")
    found = rate(*_afl(data), **start, most=350)
    assert list(found.players) == reference["Player"].to_list()
    # the reference stops its search for ln(volatility^2) within 1.2e-4, ours at 1e-9: seven digits are left of it
    assert found.rating == pytest.approx(reference["Rating"].to_numpy(), abs=4e-3)
    assert found.deviation == pytest.approx(reference["Deviation"].to_numpy(), abs=3e-3)
    assert found.volatility == pytest.approx(reference["Volatility"].to_numpy(), abs=1e-5)
    assert found.games.tolist() == reference["Games"].to_list()
    assert (97 - found.last).tolist() == reference["Lag"].to_list()


@pytest.mark.data
@pytest.mark.parametrize(("file", "start"), SEASONS)
def test_with_the_references_loose_search_all_its_printed_digits_are_met(
    data: Path, monkeypatch: pytest.MonkeyPatch, file: str, start: dict[str, float]
) -> None:
    """R's `optimize` with its default tolerance on ln(volatility^2) within 4 tau: what the reference documents."""
    from scipy.optimize import fminbound

    def loose(delta: np.ndarray, phi: np.ndarray, v: np.ndarray, sigma: np.ndarray, tau: float) -> np.ndarray:
        def one(d: float, p: float, v_: float, s: float) -> float:
            at = 2 * np.log(s)

            def deviance(x: float) -> float:
                total = p**2 + v_ + np.exp(x)
                return float((x - at) ** 2 / tau**2 + np.log(total) + d**2 / total)

            return float(np.exp(fminbound(deviance, at - 4 * tau, at + 4 * tau, xtol=np.finfo(float).eps ** 0.25) / 2))

        return np.array([one(*row) for row in zip(delta, phi, v, sigma, strict=True)])

    monkeypatch.setattr(ratings, "new_volatility", loose)
    reference = pl.read_csv(data / "ratings_reference" / f"{file}.csv").sort("Player")
    found = rate(*_afl(data), **start, most=350)
    assert found.rating == pytest.approx(reference["Rating"].to_numpy(), rel=1e-9)
    assert found.deviation == pytest.approx(reference["Deviation"].to_numpy(), rel=1e-9)
    assert found.volatility == pytest.approx(reference["Volatility"].to_numpy(), rel=1e-8)


# --- laws

GAMES = st.lists(
    st.tuples(
        st.integers(0, 6), st.integers(0, 3), st.integers(4, 8), st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)
    ),
    min_size=1,
    max_size=40,
)


@given(GAMES)
@settings(max_examples=30)
def test_swapped_sides_mirror_and_the_order_of_games_changes_no_bit(games: list[tuple[int, int, int, float]]) -> None:
    period, first, second, score = (np.array(column) for column in zip(*games, strict=True))
    found, mirrored = rate(period, first, second, score), rate(period, second, first, 1 - score)
    assert mirrored.rating == pytest.approx(found.rating, abs=1e-8)
    assert mirrored.deviation == pytest.approx(found.deviation, abs=1e-8)
    against = rate(period, first, second, 1 - score)
    assert against.rating - 1500 == pytest.approx(1500 - found.rating, abs=1e-6)
    order = np.random.default_rng(len(games)).permutation(len(games))
    again = rate(period[order], first[order], second[order], score[order])
    for name in ("rating", "deviation", "volatility", "games", "last"):
        assert np.array_equal(getattr(again, name), getattr(found, name))


@given(GAMES)
@settings(max_examples=30)
def test_a_game_always_makes_a_deviation_smaller_than_it_would_be_without(
    games: list[tuple[int, int, int, float]],
) -> None:
    period, first, second, score = (np.array(column) for column in zip(*games, strict=True))
    before, now = period < period.max(), int(period.max())
    if not before.any():
        return
    earlier, later = (rate(*(a[rows] for a in (period, first, second, score))) for rows in (before, period <= now))
    for player in np.unique(np.concatenate([first[~before], second[~before]])):
        if player in earlier.players:
            at, to = np.searchsorted(earlier.players, player), np.searchsorted(later.players, player)
            idle = earlier.deviation_at(now - 1)[at] / SCALE
            assert later.deviation[to] / SCALE < np.sqrt(idle**2 + later.volatility[to] ** 2)
    assert (later.deviation_at(now + 5) >= later.deviation).all()
    assert (later.deviation_at(10**6) == 350).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(0, 11), st.floats(0, 1))
@settings(max_examples=30)
def test_a_better_score_never_lowers_a_rating(scores: list[float], at: int, better: float) -> None:
    n, at = len(scores), at % len(scores)
    raised = [*scores[:at], max(scores[at], better), *scores[at + 1 :]]
    low, high = (rate([0] * n, ["me"] * n, [f"x{i:02d}" for i in range(n)], s, tau=0.0) for s in (scores, raised))
    assert high.rating[0] >= low.rating[0]
    assert high.rating[at + 1] <= low.rating[at + 1]
    assert np.array_equal(np.delete(high.rating, [0, at + 1]), np.delete(low.rating, [0, at + 1]))


def test_wins_against_equals_raise_a_rating_period_by_period() -> None:
    found = [rate(np.arange(n), ["a"] * n, [f"b{i:02d}" for i in range(n)], np.ones(n)).rating[0] for n in range(1, 20)]
    assert (np.diff(found) > 0).all()


@given(st.floats(0, 60), st.floats(0.05, 3), st.floats(0.01, 60), st.floats(0.001, 2), st.floats(0.1, 2))
@settings(max_examples=60)
def test_the_new_volatility_is_the_minimum_of_glickmans_posterior(
    delta: float, phi: float, v: float, sigma: float, tau: float
) -> None:
    from scipy.optimize import brentq

    at = 2 * np.log(sigma)

    def slope(x: float) -> float:
        total = phi**2 + v + np.exp(x)
        return float(np.exp(x) * (delta**2 - total) / (2 * total**2) - (x - at) / tau**2)

    found = new_volatility(*(np.array([x]) for x in (delta, phi, v, sigma)), tau)[0]
    assert 2 * np.log(found) == pytest.approx(brentq(slope, at - 200, at + 200, xtol=1e-12), abs=1e-7)


def test_a_player_without_volatility_stays_certain_while_idle() -> None:
    period, first, second, score = [0, 0, 50], ["s", "t", "t"], ["item", "item", "other"], [1, 0, 1]
    found = rate(period, first, second, score, volatility=[0.0, 0.0, 0.06, 0.06])  # item, other, s, t
    assert found.volatility[:2].tolist() == [0.0, 0.0]
    grown = found.deviation_at(50)
    assert grown[0] == found.deviation[0]
    assert grown[2] > found.deviation[2]


def test_wrong_games_are_named() -> None:
    for games, said in (
        (([0], ["a"], ["a"], [1]), "plays itself"),
        (([0], ["a"], ["b"], [1.5]), "outside"),
        (([0], ["a"], ["b"], [np.nan]), "outside"),
        (([], [], [], []), "no game"),
    ):
        with pytest.raises(DataRefused, match=said):
            rate(*games)
    for given_, said in (
        ({"period": [0.5]}, "whole"),
        ({"tau": -1.0}, "tau"),
        ({"deviation": 0.0}, "more than 0"),
        ({"rating": [1.0, 2.0, 3.0]}, "2 players"),
        ({"score": [1.0, 0.0]}, "one length"),
    ):
        with pytest.raises(UsageError) as caught:
            rate(**{"period": [0], "first": ["a"], "second": ["b"], "score": [1.0], **given_})  # type: ignore[arg-type]
        assert said in str(caught.value)


# --- the plug-in


def _log(weeks: int = 12, seed: int = 0) -> pl.DataFrame:
    """Thirty items, of which weak respondents try the easy and strong ones the hard ones."""
    random = np.random.default_rng(seed)
    ability, difficulty = np.linspace(-2, 2, 20), np.linspace(-2, 2, 30)
    rows = []
    for week in range(weeks):
        for i in range(20):
            for j in random.choice(30, 6, p=_near(difficulty, ability[i])):
                right = random.random() < 1 / (1 + np.exp(difficulty[j] - ability[i]))
                rows.append((f"r{i:02d}", f"i{j:02d}", float(right), week))
    frame = pl.DataFrame(rows, schema=["respondent_id", "example_id", "score", "period"], orient="row")
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return frame.with_columns(attempted_at=pl.lit(start) + pl.duration(days=7 * pl.col("period")))


def _near(difficulty: np.ndarray, ability: float) -> np.ndarray:
    weight = np.exp(-2 * (difficulty - ability) ** 2)
    return np.asarray(weight / weight.sum())


def test_ratings_recover_a_difficulty_that_pass_rates_hide() -> None:
    log = _log(60)
    d = _run(log)
    true = np.arange(30)
    rate_ = log.group_by("example_id").agg(pl.col("score").mean()).sort("example_id")
    assert np.corrcoef(true, d.table["value"])[0, 1] > 0.9
    assert abs(np.corrcoef(true, 1 - rate_["score"].to_numpy())[0, 1]) < 0.7
    assert d.respondents is not None
    assert np.corrcoef(np.arange(20), d.respondents["ability"])[0, 1] > 0.9
    assert d.table["scale"].unique().to_list() == ["glicko"]
    assert d.table["n"].sum() == len(log)
    assert '"volatility":0.0' in d.table["details"][0]
    assert d.notes["periods"] == 60
    assert "volatility" in d.explain("i03")
    assert d.summary().headline.startswith("glicko2, 20 respondents")


def test_weeks_of_time_stamps_are_the_same_periods_as_their_numbers() -> None:
    log = _log()
    numbered = _run(log.drop("attempted_at"))
    for period in ("1w", "7d"):  # both start on a day on which no attempt lies across
        timed = _run(log.drop("period"), period=period)
        assert timed.table.drop("method", "details").equals(numbered.table.drop("method", "details"))
    assert timed.method == "glicko2 period=7d"
    assert _run(log.drop("period"), period="4w").notes["periods"] in (3, 4)


def test_periods_that_are_missing_or_unreadable_are_named() -> None:
    log = _log(2)
    one = _run(log.drop("period", "attempted_at"))
    assert one.notes["periods"] == 1
    assert any("one period" in w and "irt" in w for w in one.warnings)
    assert any("set period" in w for w in _run(log.drop("period")).warnings)
    for frame, given_, kind, said in (
        (log.drop("attempted_at"), {"period": "7d"}, UsageError, "attempted_at"),
        (log.with_columns(pl.when(pl.col("period") > 0).then("period")), {}, DataRefused, "have no period"),
        (log.with_columns(pl.col("period") + 0.5), {}, UsageError, "whole numbers"),
    ):
        with pytest.raises(kind) as caught:
            _run(frame, **given_)
        assert said in str(caught.value)


def test_a_period_of_another_unit_is_a_wrong_setting() -> None:
    with pytest.raises(UsageError, match="12h, 7d or 2w"):
        resolve("difficulty", Step(method="glicko2", settings={"period": "7m"}))


def test_items_that_do_not_change_keep_their_deviation_while_nobody_tries_them() -> None:
    late = pl.DataFrame({"respondent_id": ["r00"], "example_id": ["late"], "score": [1.0], "period": [400]})
    log = pl.concat([_log(2).drop("attempted_at"), late])
    moving, still = (_run(log, **settings_) for settings_ in ({}, {"item_volatility": 0.0}))
    early = pl.col("example_id") != "late"
    errors = [d.table.filter(early)["standard_error"].to_numpy() for d in (moving, still)]
    assert (errors[0] > errors[1] + 50).all()
    assert "item_volatility=0.0" in still.method


def test_parts_that_nothing_joins_are_flagged_or_refused() -> None:
    log = _log(3).drop("attempted_at")
    other = log.filter(pl.col("example_id") < "i03").with_columns(pl.col("respondent_id", "example_id") + "-other")
    d = _run(pl.concat([log, other]))
    flagged = d.table.filter(pl.col("flag").is_not_null())["example_id"]
    assert flagged.to_list() == sorted(set(other["example_id"]))
    assert any("2 parts" in w for w in d.warnings)
    with pytest.raises(DataRefused, match="2 parts"):
        _run(pl.concat([log, other]), disconnected="refuse")


def test_without_a_respondent_or_family_the_rest_is_rated_alone() -> None:
    log = _log(3)
    people = pl.DataFrame({"respondent_id": ["r00", "r01", "r02"], "family": ["f", "f", "g"]})
    d = pickle.loads(pickle.dumps(_run(log, respondents=people)))
    alone = _run(log.filter(~pl.col("respondent_id").is_in(["r00", "r01"])))
    assert d.leave_out("f").table.equals(alone.table)
    assert d.respondents["family"].to_list()[:4] == ["f", "f", "g", None]


def test_edges_one_attempt_draws_rows_without_score_and_examples_that_nobody_tried() -> None:
    one = _run(from_matrix(np.array([[1.0]])))
    assert one.table["value"][0] < 1500
    draws = _run(from_matrix(np.full((4, 3), 0.5)))
    assert draws.table["value"].to_list() == [1500.0] * 3
    assert draws.notes["attempts between right and wrong, such as draws"] == 12
    frame = from_matrix(np.array([[1.0, 0.0], [1.0, 0.0]])).with_columns(
        score=pl.when(pl.int_range(pl.len()) > 0).then("score")
    )
    d = _run(frame, examples=pl.DataFrame({"example_id": ["example-000", "example-001", "example-002"]}))
    assert d.notes["rows without a score, not attempted"] == 1
    assert d.excluded["example_id"].to_list() == ["example-002"]


def test_a_period_that_holds_all_attempts_is_told_to_be_too_long() -> None:
    responses = pl.DataFrame(
        {
            "respondent_id": ["a", "a"],
            "example_id": ["x", "y"],
            "score": [0.0, 1.0],
            "attempted_at": [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2)],
        }
    )
    found = run({"responses": responses}, Glicko2Config(period="52w"))
    assert any("set a period shorter than 52w" in warning for warning in found.warnings)

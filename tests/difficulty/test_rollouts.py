"""Rollouts: the GSM8K histogram of a public repository, exact levels, closed-form errors, and selection."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty import rollout_measures as measures
from gradatim.tasks.difficulty import selection
from gradatim.tasks.difficulty.levels import LEVELS, clpo_levels, hase_levels
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.rollouts import RolloutsConfig, run

GSM8K = [396, 106, 80, 56, 47, 50, 40, 50, 47, 96, 351]  # Qwen3-4B on GSM8K test: examples at 0, 1, ... 10 of 10


def _counts() -> pl.DataFrame:
    s = np.repeat(np.arange(11), GSM8K)
    return pl.DataFrame({"example_id": [f"q{i:04d}" for i in range(len(s))], "solved": s, "tried": 10})


def _run(examples: pl.DataFrame | None = None, responses: pl.DataFrame | None = None, **given_: object) -> Difficulty:
    tables = {"examples": examples, "responses": responses}
    config = RolloutsConfig.model_validate(given_)
    return run({name: frame for name, frame in tables.items() if frame is not None}, config)


def _gsm8k(**given_: object) -> Difficulty:
    return _run(_counts(), successes="solved", attempts="tried", **given_)


def _statistic(d: Difficulty, metric: str) -> float:
    assert d.statistics is not None
    return float(d.statistics.filter(pl.col("metric") == metric)["value"][0])


# --- published numbers


def test_the_gsm8k_rollouts_have_their_levels_mean_rate_and_chance_of_a_mixed_group() -> None:
    d = _gsm8k()
    assert [_statistic(d, f"{level}_examples") for level in ("hard", "medium", "easy")] == [638, 187, 494]
    assert _statistic(d, "mean_pass_rate") == pytest.approx(0.47096, abs=5e-6)
    assert _statistic(d, "mean_mixed_group") == pytest.approx(0.34550, abs=5e-6)
    levels = [json.loads(text)["level"] for text in d.table["details"]]
    assert [levels.count(level) for level in LEVELS] == [494, 187, 638]
    assert d.notes["levels (CLPO, at rates .3 and .7)"] == "easy 494, medium 187, hard 638"
    assert d.table["value"].to_numpy() == pytest.approx(1 - _counts()["solved"].to_numpy() / 10)
    assert d.table["n"].unique().to_list() == [10]


def test_the_same_rollouts_one_by_one_give_the_same_difficulty() -> None:
    counts = _counts()
    row, attempt = np.repeat(np.arange(len(counts)), 10), np.tile(np.arange(10), len(counts))
    single = pl.DataFrame(
        {
            "respondent_id": "model",
            "example_id": counts["example_id"].gather(row),
            "attempt": attempt,
            "score": (attempt < counts["solved"].to_numpy()[row]).astype(float),
        }
    ).sample(fraction=1, shuffle=True, seed=1)
    d = _run(responses=single)
    assert d.table.drop("method").equals(_gsm8k().table.drop("method"))
    other = single.head(50).with_columns(respondent_id=pl.lit("other"), score=1.0)
    both = pl.concat([single, other])
    assert _run(responses=both, respondent="model").table.drop("method").equals(d.table.drop("method"))
    assert any("2 models" in w for w in _run(responses=both).warnings)
    with pytest.raises(UsageError, match="did you mean 'model'"):
        _run(responses=both, respondent="modell")


def test_levels_of_hase_lie_at_the_percentiles_30_and_70() -> None:
    s = _counts()["solved"].to_numpy()
    level = hase_levels(s, np.full(len(s), 10))
    failure = 1 - s / 10
    low, high = np.quantile(failure, [0.3, 0.7])
    assert np.bincount(level).tolist() == [(failure <= low + 1e-9).sum(), 1319 - 447 - 396, (failure >= high).sum()]
    assert np.bincount(level).tolist() == [447, 476, 396]
    assert _statistic(_gsm8k(levels="hase"), "medium_examples") == 476


# --- laws

PAIRS = st.lists(
    st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=60
)


@given(PAIRS)
@settings(max_examples=30)
def test_levels_are_those_of_exact_fractions(pairs: list[tuple[int, int]]) -> None:
    s, n = (np.array(column) for column in zip(*pairs, strict=True))
    for found, (a, b) in zip(clpo_levels(s, n), pairs, strict=True):
        rate = Fraction(a, b)
        assert LEVELS[found] == ("hard" if rate <= Fraction(3, 10) else "medium" if rate <= Fraction(7, 10) else "easy")
    failure = sorted(1 - Fraction(a, b) for a, b in pairs)
    cuts = []
    for tenths in (3, 7):
        at, rest = divmod(tenths * (len(failure) - 1), 10)
        after = failure[min(at + 1, len(failure) - 1)]
        cuts.append(failure[at] + (after - failure[at]) * Fraction(rest, 10))
    for found, (a, b) in zip(hase_levels(s, n), pairs, strict=True):
        easy, hard = 1 - Fraction(a, b) <= cuts[0], 1 - Fraction(a, b) >= cuts[1]
        assert LEVELS[found] == ("medium" if easy == hard else "easy" if easy else "hard")


@given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
@settings(max_examples=30)
def test_pass_at_k_is_the_share_of_k_subsets_with_a_success(case: tuple[int, int, int]) -> None:
    s, n, k = case
    found = measures.pass_at_k(np.array([s]), np.array([n]), k)[0]
    assert found == pytest.approx(1 - math.comb(n - s, k) / math.comb(n, k), abs=1e-12)


@pytest.mark.parametrize(("s", "n"), [(0, 4), (3, 4), (4, 4), (30, 64)])
def test_errors_are_the_standard_deviations_of_the_posterior(s: int, n: int) -> None:
    draws = np.random.default_rng(0).beta(s + 0.5, n - s + 0.5, 400_000)
    of = {
        "failure": 1 - draws,
        "learnability": draws * (1 - draws),
        "mixed_group": 1 - draws**8 - (1 - draws) ** 8,
        "pass_at_k": 1 - (1 - draws) ** 3,
    }
    for name, sample in of.items():
        found = measures.posterior_error(np.array([s]), np.array([n]), name, group=8, k=3)[0]
        assert found == pytest.approx(sample.std(), rel=0.01), name


@given(
    PAIRS,
    st.sampled_from(["failure", "learnability", "mixed_group", "pass_at_k"]),
    st.sampled_from(["jeffreys", "wilson"]),
)
@settings(max_examples=30)
def test_every_measure_lies_in_its_interval_and_between_nought_and_one(
    pairs: list[tuple[int, int]], measure: str, interval: str
) -> None:
    s, n = zip(*pairs, strict=True)
    frame = pl.DataFrame({"example_id": [f"{i:02d}" for i in range(len(s))], "s": s, "n": n})
    d = _run(frame, successes="s", attempts="n", measure=measure, interval=interval, group_size=4)
    assert d.intervals is not None
    both = d.table.join(d.intervals, on="example_id")
    assert ((both["low"] >= 0) & (both["low"] <= both["value"]) & (both["value"] <= both["high"])).all()
    assert (both["high"] <= 1).all()
    assert (d.table["standard_error"] > 0).all()
    shuffled = _run(frame.reverse(), successes="s", attempts="n", measure=measure, interval=interval, group_size=4)
    assert shuffled.table.equals(d.table)


def test_other_measures_are_values_of_their_own() -> None:
    s = _counts()["solved"].to_numpy()
    p = s / 10
    learnability, mixed, best = (_gsm8k(measure=m, k=4) for m in ("learnability", "mixed_group", "pass_at_k"))
    assert learnability.table["value"].to_numpy() == pytest.approx(p * (1 - p))
    assert mixed.table["value"].mean() == pytest.approx(0.34550, abs=5e-6)
    expected = [1 - math.comb(10 - x, 4) / math.comb(10, 4) for x in s]
    assert best.table["raw"].to_numpy() == pytest.approx(expected)
    assert best.table["value"].to_numpy() == pytest.approx(1 - best.table["raw"].to_numpy())
    assert any("no difficulty" in w for w in learnability.warnings)
    assert mixed.method == "rollouts attempts=tried k=4 measure=mixed_group successes=solved"


# --- bad input


def test_counts_that_cannot_be_are_refused_and_lacking_ones_set_apart() -> None:
    good = pl.DataFrame({"example_id": ["a", "b", "c", "d"], "s": [1, 0, None, 2], "n": [2, 0, 3, None]})
    d = _run(good, successes="s", attempts="n")
    assert d.table["example_id"].to_list() == ["a"]
    assert d.excluded.rows() == [("b", "no rollout"), ("c", "no count"), ("d", "no count")]
    for s, n, said in (
        ([3], [2], "more successes"),
        ([-1], [2], "negative"),
        ([0.5], [2.0], "no whole number"),
        ([0], [0], "no example"),
    ):
        with pytest.raises(DataRefused, match=said):
            _run(pl.DataFrame({"example_id": ["x"], "s": s, "n": n}), successes="s", attempts="n")
    with pytest.raises(UsageError, match="did you mean 's'"):
        _run(good, successes="ss", attempts="n")
    with pytest.raises(UsageError, match="type String"):
        _run(good.with_columns(s=pl.lit("1")), successes="s", attempts="n")
    assert _run(good, successes="s", samples=4).table["n"].to_list() == [4, 4, 4]


def test_settings_that_contradict_each_other_are_named() -> None:
    for given_, said in (
        ({"attempts": "n"}, "without a column of successes"),
        ({"successes": "s"}, "column of attempts or a number"),
        ({"successes": "s", "attempts": "n", "samples": 3}, "column of attempts or a number"),
        ({"successes": "s", "samples": 3, "respondent": "m"}, "no respondent"),
        ({"measure": "failures"}, "failure"),
    ):
        with pytest.raises(UsageError) as caught:
            resolve("difficulty", Step(method="rollouts", settings=given_))
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="neither counts nor responses"):
        _run()


def test_fractions_need_a_threshold_and_few_rollouts_no_pass_at_k() -> None:
    responses = pl.DataFrame(
        {"respondent_id": "m", "example_id": ["a", "a", "b"], "score": [0.4, 1.0, None], "attempt": [0, 1, 0]}
    )
    examples = pl.DataFrame({"example_id": ["a", "b", "c"]})
    with pytest.raises(DataRefused, match="threshold"):
        _run(examples, responses)
    d = _run(examples, responses, threshold=0.4)
    assert d.table["raw"].to_list() == [1.0]
    assert d.excluded["example_id"].to_list() == ["b", "c"]
    assert d.notes["rows without a score, no rollout"] == 1
    frame = pl.DataFrame({"example_id": ["a", "b"], "s": [1, 1], "n": [4, 2]})
    best = _run(frame, successes="s", attempts="n", measure="pass_at_k", k=4)
    assert best.table["raw"].to_list() == [1.0]
    assert best.excluded.rows() == [("b", "fewer than 4 rollouts")]


def test_a_million_counts_take_seconds() -> None:
    s = np.repeat([0, 0, 1, 3, 8], 200_000)
    frame = pl.DataFrame({"example_id": pl.Series(np.arange(1_000_000)).cast(pl.String), "s": s})
    d = _run(frame, successes="s", samples=8)
    assert len(d.table) == 1_000_000
    assert _statistic(d, "hard_examples") == 600_000


# --- selection


def test_selections_are_the_published_ones_and_depend_on_nothing_but_the_rows() -> None:
    table = _gsm8k().table
    shuffled = table.sample(fraction=1, shuffle=True, seed=5)
    for name in selection.STRATEGIES:
        found = selection.select(table, name, size=132, seed=3)
        assert len(found) == len(set(found)) == 132, name
        assert selection.select(shuffled, name, size=132, seed=3) == found
    value = dict(table.select("example_id", "value").iter_rows())
    assert {value[i] for i in selection.select(table, "hard", size=132)} == {1.0}
    assert {value[i] for i in selection.select(table, "hard_nonzero", size=100)} == {0.9}
    assert {value[i] for i in selection.select(table, "easy", size=132)} == {0.0}
    middle = [value[i] for i in selection.select(table, "medium", size=133)]
    ranked = np.sort(table["value"].to_numpy())
    assert sorted(middle) == pytest.approx(ranked[593:726].tolist())
    assert {round(value[i], 1) for i in selection.select(table, "max_learnability", size=50)} == {0.5}
    assert selection.select(table, "random", size=132, seed=3) != selection.select(table, "random", size=132, seed=4)


def test_bands_strata_and_mixtures_keep_their_bounds_and_shares() -> None:
    table = _gsm8k().table
    rate = dict(table.select("example_id", "raw").iter_rows())
    band = selection.band(table, low=0.2, high=0.8)
    assert len(band) == sum(GSM8K[2:9])
    assert all(0.2 <= rate[i] <= 0.8 for i in band)
    strata = selection.stratified(table, size=100, strata=4, seed=0)
    order = table.sort("value", "example_id")["example_id"].to_list()
    quarters = [sum(i in set(order[k * 1319 // 4 : (k + 1) * 1319 // 4]) for i in strata) for k in range(4)]
    assert quarters == [25, 25, 25, 25]
    quotas = selection.stratified(table, size=10, strata=2, quotas=[1, 4], seed=0)
    assert sum(i in set(order[: 1319 // 2]) for i in quotas) == 2
    mixed = selection.mixture(table, {"hard": 3.0, "easy": 1.0}, size=40)
    assert sum(rate[i] == 0 for i in mixed) == 30
    assert sum(rate[i] == 1 for i in mixed) == 10


def test_selections_that_cannot_be_made_are_named() -> None:
    table = _gsm8k().table
    for act, said in (
        (lambda: selection.select(table, "harder", size=3), "did you mean 'hard'"),
        (lambda: selection.select(table, "hard", size=0), "size"),
        (lambda: selection.band(table, low=0.8, high=0.2), "low"),
        (lambda: selection.stratified(table, size=3, strata=2, quotas=[1]), "quotas"),
        (lambda: selection.mixture(table, {"hard": -1.0}, size=3), "weight"),
    ):
        with pytest.raises(UsageError) as caught:
            act()
        assert said in str(caught.value)
    assert len(selection.select(table, "hard", size=5000)) == 1319


def test_an_example_whose_responses_have_no_score_is_listed() -> None:
    responses = pl.DataFrame({"respondent_id": ["m"] * 3, "example_id": ["a", "a", "b"], "score": [None, None, 1.0]})
    for method in ("rollouts", "pass_rate", "glicko2"):
        plugin, config = resolve("difficulty", Step(method=method))
        found = plugin.run({"responses": responses}, config, 0)
        assert found.excluded.rows() == [("a", "no response with a score")]
        examples = pl.DataFrame({"example_id": ["a", "b", "c"]})
        found = plugin.run({"responses": responses, "examples": examples}, config, 0)
        assert found.excluded.rows() == [("a", "no response with a score"), ("c", "no response")]


def test_an_unknown_respondent_is_answered_where_it_stands() -> None:
    responses = pl.DataFrame({"respondent_id": ["gpt", "m"], "example_id": ["a", "a"], "score": [1.0, 0.0]})
    with pytest.raises(UsageError, match="there is no respondent 'gtp'") as error:
        run({"responses": responses}, RolloutsConfig(respondent="gtp"))
    assert "rollouts: respondent" in str(error.value)


def test_one_rollout_each_may_be_true_or_false() -> None:
    examples = pl.DataFrame({"example_id": ["a", "b"], "solved": [True, False]})
    assert run({"examples": examples}, RolloutsConfig(successes="solved", samples=1)).table["value"].to_list() == [0, 1]


def test_a_selection_takes_the_result_itself_and_answers_what_it_cannot_take() -> None:
    examples = pl.DataFrame({"example_id": ["a", "b", "c"], "s": [0, 3, 9]})
    found = run({"examples": examples}, RolloutsConfig(successes="s", samples=10))
    for name in selection.STRATEGIES:
        assert selection.select(found, name, size=2) == selection.select(found.table, name, size=2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no column 'raw'"):
        selection.select(found.table.drop("raw"), "max_learnability", size=1)
    with pytest.raises(UsageError, match=r"a selection of size 1\.5"):
        selection.select(found.table, "hard", size=1.5)  # type: ignore[arg-type]

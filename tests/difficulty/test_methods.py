"""The difficulty plug-ins and the result that explains itself."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.schemas.tables import spec
from gradatim.tasks.core.intervals import jeffreys as scalar_jeffreys
from gradatim.tasks.core.intervals import wilson as scalar_wilson
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.choose import default_method
from gradatim.tasks.difficulty.item_response.fit import fit_irt
from gradatim.tasks.difficulty.item_response.joint import fit_joint
from gradatim.tasks.difficulty.item_response.linking import linked
from gradatim.tasks.difficulty.pass_rate import jeffreys, wilson
from gradatim.tasks.difficulty.responses import from_matrix
from gradatim.tasks.difficulty.result import Difficulty, build


def _run(method: str, tables: dict[str, pl.DataFrame], seed: int = 0, **given_: object) -> Difficulty:
    plugin, config = resolve("difficulty", Step(method=method, settings=given_))
    result = plugin.run(tables, config, seed)
    assert isinstance(result, Difficulty)
    return result


def _answers(n: int, items: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    z = random.normal(size=n)[:, None] - random.normal(size=items)
    return (random.random((n, items)) < 1 / (1 + np.exp(-z))).astype(float)


ANSWERS = _answers(9, 60)
RESPONSES = from_matrix(ANSWERS)
EXAMPLES = pl.DataFrame(
    {
        "example_id": ["q1", "q2", "q3", "q4"],
        "input": ["one two  three", "", None, "don't stop, él"],
        "level": ["High", "Low", None, "Medium"],
        "rating": [3.5, float("nan"), None, -1.0],
        "steps": [2, 1, 1, 3],
    }
)


def _is_the_contract(frame: pl.DataFrame, table: str) -> bool:
    contract = spec(table)
    ours = frame.to_arrow().cast(pa.schema([f.remove_metadata().with_nullable(True) for f in contract.schema]))
    key = list(contract.key)
    return (
        frame.columns == contract.schema.names
        and len(ours) == len(frame)
        and frame.select(key).equals(frame.select(key).sort(key))
        and frame.select(key).n_unique() == len(frame)
    )


# --- all methods


@pytest.mark.parametrize(
    ("method", "given_"),
    [
        ("irt", {}),
        ("irt", {"model": "2pl"}),
        ("irt", {"slope": "fixed"}),
        ("irt", {"estimator": "joint"}),
        ("irt", {"model": "3pl", "guessing": 0.25, "estimator": "joint", "splits": 1}),
        ("irt", {"model": "4pl", "splits": 0}),
        ("pass_rate", {"interval": "wilson"}),
        ("length", {"unit": "characters"}),
        ("column", {"column": "steps"}),
    ],
)
def test_every_method_gives_the_table_of_the_contract_and_explains_itself(
    method: str, given_: dict[str, object]
) -> None:
    tables = {"responses": RESPONSES, "examples": EXAMPLES}
    d = _run(method, tables, **given_)
    assert _is_the_contract(d.table, "difficulty")
    if method == "irt":
        assert d.item_parameters is not None
        assert d.respondents is not None
        assert _is_the_contract(d.item_parameters, "item_parameters")
        assert _is_the_contract(d.respondents, "respondents")
    assert repr(d).startswith(f"difficulty {d.title}, ")
    assert d.bins == d.table["bin"].max() + 1  # type: ignore[operator]
    summary = d.summary()
    assert d.title in summary.headline
    assert type(summary).from_dict(summary.to_dict()) == summary
    assert "vega-lite" in d.plot().to_dict()["$schema"]
    some = d.table["example_id"][0]
    assert d.explain(some).startswith(f"{some}: ")
    with pytest.raises(UsageError, match="no example 'nobody'"):
        d.explain("nobody")
    rows = {name: frame.sample(fraction=1, shuffle=True, seed=3) for name, frame in tables.items()}
    again = _run(method, rows, **given_)
    assert again.table.equals(d.table)
    assert again.reliability == d.reliability


def test_all_methods_are_registered_with_their_facts() -> None:
    found = plugins("difficulty")
    assert set(found) >= {"irt", "pass_rate", "length", "column"}
    for name in ("irt", "pass_rate", "length", "column"):
        plugin = found[name]
        assert plugin.summary.endswith(".") or plugin.summary
        assert plugin.cost(1000, 10).bytes > 0
        assert plugin.source
        assert plugin.row_wise == (name in ("length", "column"))


def test_the_default_is_irt_from_eight_respondents_on() -> None:
    assert [default_method(n) for n in (0, 1, 7, 8, 100)] == ["length", "pass_rate", "pass_rate", "irt", "irt"]


# --- irt


def test_irt_says_in_one_line_what_it_found() -> None:
    d = _run("irt", {"responses": RESPONSES})
    assert repr(d).startswith("difficulty irt 1pl, 9 respondents, reliability .")
    assert ": supports " in repr(d)
    assert d.table["value"].to_numpy() == pytest.approx(fit_irt(ANSWERS).b)
    assert d.table["n"].to_list() == [9] * 60
    assert d.notes["not attempted"] == 0
    assert "Bock" in d.cite()


def test_irt_without_a_respondent_is_the_fit_of_the_others_and_survives_pickling() -> None:
    d = _run("irt", {"responses": RESPONSES})
    left = pickle.loads(pickle.dumps(d)).leave_out("respondent-004")
    alone = fit_irt(np.delete(ANSWERS, 4, axis=0))
    assert left.table["value"].to_numpy() == pytest.approx(alone.b)
    assert left.respondents is not None
    assert "respondent-004" not in left.respondents["respondent_id"].to_list()
    assert not left.table.equals(d.table)


def test_irt_without_a_family_leaves_all_its_members_out() -> None:
    people = pl.DataFrame(
        {"respondent_id": [f"respondent-{i:03d}" for i in range(9)], "family": ["small"] * 3 + ["big"] * 6}
    )
    d = _run("irt", {"responses": RESPONSES, "respondents": people})
    assert d.respondents is not None
    assert d.respondents["family"].to_list() == ["small"] * 3 + ["big"] * 6
    left = d.leave_out("small")
    assert left.table["value"].to_numpy() == pytest.approx(fit_irt(ANSWERS[3:]).b)
    with pytest.raises(UsageError, match="did you mean 'small'"):
        d.leave_out("smal")


def test_irt_refuses_parts_that_cannot_be_compared_unless_told_to_flag_them() -> None:
    other = RESPONSES.with_columns(pl.col("respondent_id", "example_id") + "-other")
    tables = {"responses": pl.concat([RESPONSES, other])}
    with pytest.raises(DataRefused, match="2 parts") as caught:
        _run("irt", tables)
    assert "disconnected: flag" in str(caught.value)
    d = _run("irt", tables, disconnected="flag")
    assert any("2 parts" in w for w in d.summary().warnings)


def test_irt_flags_extreme_backward_and_unanswered_examples_and_few_respondents() -> None:
    theta = np.linspace(-2, 2, 40)
    answers = np.column_stack([_answers(40, 30, 1) * 0 + (theta[:, None] > np.linspace(-1.5, 1.5, 30)), np.zeros(40)])
    answers = np.abs(answers - (np.random.default_rng(0).random(answers.shape) < 0.1))
    answers[:, 30], answers[:, 0] = 0.0, (theta < 0).astype(float)
    examples = pl.DataFrame({"example_id": [f"example-{i:03d}" for i in range(32)]})
    d = _run("irt", {"responses": from_matrix(answers), "examples": examples}, model="2pl")
    flags = dict(d.table.select("example_id", "flag").iter_rows())
    assert "none right" in flags["example-030"]
    assert "negative discrimination" in flags["example-000"]
    assert d.table["value"].is_finite().all()
    assert d.excluded.rows() == [("example-031", "no response")]
    warnings = " ".join(d.summary().warnings)
    assert "2pl of 40 respondents" in warnings
    assert "without a difficulty: 1 example" in warnings
    assert d.explain("example-031") == "example-031: no difficulty, no response"
    assert "read with care" in d.explain("example-030")


def test_irt_flags_locations_that_no_discrimination_holds() -> None:
    answers = _answers(300, 8, 4)
    answers[:, 3] = np.arange(300) % 4 > 0  # three in four, whoever they are: no slope, so no location
    d = _run("irt", {"responses": from_matrix(answers)}, model="2pl", priors="none", splits=0)
    row = d.table.row(3, named=True)
    assert row["standard_error"] > 10
    assert "hardly any discrimination" in row["flag"]
    assert d.table["flag"].drop_nulls().len() == 1


def test_irt_says_who_is_all_right_or_all_wrong() -> None:
    answers = np.vstack([ANSWERS, np.ones(60), np.zeros(60)])
    d = _run("irt", {"responses": from_matrix(answers)})
    assert d.respondents is not None
    ability = d.respondents["ability"].to_list()
    assert max(ability) == ability[9]
    assert min(ability) == ability[10]
    assert sum("of 11 respondents have" in w for w in d.warnings) == 2


def test_irt_averages_attempts_and_says_so() -> None:
    doubled = pl.concat([RESPONSES, RESPONSES.with_columns(attempt=pl.lit(1, pl.Int32))])
    once, twice = _run("irt", {"responses": RESPONSES}), _run("irt", {"responses": doubled})
    assert twice.table.drop("method").equals(once.table.drop("method"))
    assert twice.notes["cells with several attempts, averaged"] == 540


def test_irt_of_one_respondent_points_to_pass_rate() -> None:
    with pytest.raises(DataRefused, match="pass_rate"):
        _run("irt", {"responses": from_matrix(np.array([[1.0, 0.0]]))})


def test_wrong_irt_settings_are_named() -> None:
    for given_, said in (
        ({"model": "2pll"}, "2pll"),
        ({"model": "2pl", "slope": "fixed"}, "slope"),
        ({"bns": 3}, "bins"),
        ({"guessing": "1/K"}, "choices"),
        ({"guessing": 1.5}, "guessing"),
        ({"estimator": "map"}, "joint"),
        ({"model": "3pl", "choices": "options"}, "no column 'options'"),
        ({"anchor": "newest"}, "anchor"),
    ):
        with pytest.raises(UsageError) as caught:
            _run("irt", {"responses": RESPONSES}, **given_)
        assert said in str(caught.value)


def test_irt_by_either_estimator_gives_the_same_difficulties_and_says_which_it_took() -> None:
    joint, marginal = (_run("irt", {"responses": RESPONSES}, estimator=name) for name in ("joint", "marginal"))
    assert joint.table["value"].to_numpy() == pytest.approx(marginal.table["value"].to_numpy(), abs=0.05)
    assert joint.table["percentile"].equals(marginal.table["percentile"])
    assert (joint.notes["estimator"], marginal.notes["estimator"]) == ("joint MAP", "marginal ML")
    assert joint.notes["estimator chosen because"] == "asked for"
    assert _run("irt", {"responses": RESPONSES}).notes["estimator chosen because"] == (
        "fewer than 5,000 examples and 2,000,000 respondents x examples"
    )
    assert joint.method == "irt estimator=joint"
    assert "Mislevy" in joint.cite()
    assert joint.notes["standard errors"] == "given the abilities: too small"
    left = pickle.loads(pickle.dumps(joint)).leave_out("respondent-004")
    alone = fit_joint(np.delete(ANSWERS, 4, axis=0))
    assert left.table["value"].to_numpy() == pytest.approx(alone.b, abs=1e-4)
    assert left.notes["reliability is"] == "that of all respondents, stepped down"
    assert left.reliability < joint.reliability  # type: ignore[operator]


def test_irt_of_five_thousand_examples_is_joint_and_as_reliable_as_by_fits_of_halves() -> None:
    answers = from_matrix(_answers(24, 5000, 7))
    d = _run("irt", {"responses": answers}, splits=2)
    assert d.notes["estimator"] == "joint MAP"
    assert d.notes["estimator chosen because"] == "5,000 examples, 5,000 or more"
    few = answers.filter(pl.col("example_id") < "example-0800")
    joint, marginal = (
        _run("irt", {"responses": few}, splits=2, estimator=name).reliability for name in ("joint", "marginal")
    )
    assert joint == pytest.approx(marginal, abs=0.01)
    assert d.reliability == pytest.approx(marginal, abs=0.04)


def test_irt_keeps_guessing_at_one_over_the_number_of_choices() -> None:
    random = np.random.default_rng(5)
    theta, b, k = random.normal(size=300), random.normal(size=40), np.repeat([2.0, 4.0, 5.0, np.nan], 10)
    g = np.nan_to_num(1 / k)
    p = g + (1 - g) / (1 + np.exp(b - theta[:, None]))
    responses = from_matrix((random.random(p.shape) < p).astype(float))
    examples = pl.DataFrame({"example_id": responses["example_id"].unique().sort(), "options": k}).with_columns(
        pl.col("options").fill_nan(None)
    )
    tables = {"responses": responses, "examples": examples}
    d = _run("irt", tables, guessing="1/K", choices="options", splits=0)
    assert d.item_parameters is not None
    assert d.item_parameters["lower"].to_numpy() == pytest.approx(g)
    assert d.notes["guessing"] == "given"
    plain = _run("irt", tables, splits=0)
    errors = [float(np.abs(x.table["value"].to_numpy() - b)[:10].mean()) for x in (d, plain)]
    assert errors[0] < 0.5 * errors[1]  # of two choices: without, half of the right answers look like skill
    assert np.corrcoef(d.table["value"], b)[0, 1] > 0.95
    for wrong, said in ((1.0, "no number of choices of 2 or more"), (0.0, "no number of choices")):
        bad = examples.with_columns(pl.lit(wrong).alias("options"))
        with pytest.raises(DataRefused, match=said):
            _run("irt", {**tables, "examples": bad}, guessing="1/K", choices="options")
    with pytest.raises(DataRefused, match="'example-005' is not among the examples"):
        _run("irt", {**tables, "examples": examples.slice(0, 5)}, guessing="1/K", choices="options")
    free = _run("irt", tables, model="3pl", choices="options", splits=0)
    assert free.item_parameters is not None
    assert free.notes["guessing"] == "free"
    assert free.item_parameters["lower_error"].null_count() < 20


def test_irt_warns_of_discriminations_below_50_and_asymptotes_below_200_respondents() -> None:
    answers = from_matrix(_answers(60, 30, 2))
    few = from_matrix(_answers(40, 30, 2))

    def warned(responses: pl.DataFrame, **given_: object) -> str:
        return " ".join(_run("irt", {"responses": responses}, splits=0, **given_).warnings)

    assert "2pl of 40 respondents says little about discriminations" in warned(few, model="2pl")
    assert "says little" not in warned(answers, model="2pl")
    assert "3pl of 60 respondents says little about asymptotes" in warned(answers, model="3pl")
    assert "4pl of 60 respondents" in warned(answers, model="4pl", guessing=0.2)
    assert "says little" not in warned(answers, model="3pl", guessing=0.2)
    assert "3pl of 40 respondents says little about discriminations" in warned(few, model="3pl", guessing=0.2)
    assert "says little" not in warned(few)


def test_irt_gives_parts_scales_of_their_own_where_asked_and_lists_those_too_small() -> None:
    other = from_matrix(_answers(6, 20, 4)).with_columns(pl.col("respondent_id", "example_id") + "-other")
    lonely = pl.DataFrame({"respondent_id": ["x"], "example_id": ["only"], "attempt": [0], "score": [1.0]})
    tables = {"responses": pl.concat([RESPONSES, other, lonely.cast({"attempt": pl.Int32})])}
    d = _run("irt", tables, disconnected="separate")
    alone = _run("irt", {"responses": RESPONSES}), _run("irt", {"responses": other})
    values = pl.concat([part.table for part in alone]).sort("example_id")
    assert d.table["example_id"].equals(values["example_id"])
    assert d.table["value"].to_numpy() == pytest.approx(values["value"].to_numpy(), abs=1e-9)
    flags = d.table["flag"].to_list()
    assert sum("part 1 of 2" in f for f in flags) == 60
    assert sum("part 2 of 2" in f for f in flags) == 20
    assert d.excluded["example_id"].to_list() == ["only"]
    assert "cannot be fitted" in d.excluded["reason"][0]
    assert d.notes["scales"] == 2
    assert any("3 parts" in w and "ranks across parts mean nothing" in w for w in d.warnings)
    assert d.respondents is not None
    assert len(d.respondents) == 15
    left = d.leave_out("respondent-004")
    assert left.respondents is not None
    assert len(left.respondents) == 14


def test_an_anchor_that_is_not_there_or_cannot_hold_is_said() -> None:
    new = _run("irt", {"responses": RESPONSES}, splits=0, anchor="current")
    assert "no release" in str(new.notes["linked to"])
    with pytest.raises(UsageError, match="no item parameters of release 3") as refused:
        _run("irt", {"responses": RESPONSES}, splits=0, anchor=3)
    assert "linked(new, old)" in refused.value.remedy
    assert new.item_parameters is not None
    other = RESPONSES.with_columns(pl.col("respondent_id", "example_id") + "-other")
    tables = {"responses": pl.concat([RESPONSES, other]), "anchor": new.item_parameters}
    with pytest.raises(DataRefused, match="2 parts on scales of their own"):
        _run("irt", tables, splits=0, anchor=3, disconnected="separate")


def test_the_common_discrimination_that_is_told_is_that_of_the_table_on_an_anchors_scale() -> None:
    old = _run("irt", {"responses": RESPONSES}, splits=0)
    assert old.item_parameters is not None
    half = old.item_parameters.with_columns(pl.col("location") / 2, pl.col("discrimination") * 2)
    for made in (
        _run("irt", {"responses": RESPONSES, "anchor": half}, splits=0, anchor=3),
        linked(old, replace(old, item_parameters=half)),
    ):
        assert made.item_parameters is not None
        told = made.notes["discrimination"]
        assert told == pytest.approx(made.item_parameters["discrimination"][0], abs=1e-4)
        assert told == pytest.approx(2 * float(str(old.notes["discrimination"])), abs=1e-3)


@pytest.mark.parametrize("estimator", ["marginal", "joint"])
def test_irt_puts_a_new_calibration_onto_the_scale_of_an_anchor(estimator: str) -> None:
    random = np.random.default_rng(6)
    b = random.normal(size=80)
    nights = []
    for shift in (0.0, 1.0):  # the second night's respondents are abler
        z = shift + random.normal(size=(150, 1)) - b
        nights.append(from_matrix((random.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)))
    first = _run("irt", {"responses": nights[0]}, splits=0, estimator=estimator)
    assert first.item_parameters is not None
    common = first.item_parameters.filter(pl.col("example_id") < "example-050")
    tables = {"responses": nights[1], "anchor": common}
    free = _run("irt", tables, splits=0, estimator=estimator)
    kept = _run("irt", tables, splits=0, estimator=estimator, anchor="current")
    before = first.table["value"].to_numpy()
    assert np.median(free.table["value"].to_numpy() - before) < -0.7
    assert np.median(kept.table["value"].to_numpy() - before) == pytest.approx(0, abs=0.15)
    assert kept.respondents is not None
    assert kept.respondents["ability"].mean() == pytest.approx(1.0, abs=0.2)
    assert kept.table["percentile"].equals(free.table["percentile"])
    assert kept.item_parameters is not None
    assert kept.item_parameters["location"].equals(kept.table["value"].rename("location"))
    assert "anchor current" in str(kept.notes["linked to"])
    assert "link" in kept.pictures
    assert kept.plot("link").to_dict()
    with pytest.raises(DataRefused, match="0 of 0 common items"):
        _run("irt", {**tables, "anchor": common.head(0)}, splits=0, estimator=estimator, anchor="current")
    left = kept.leave_out("respondent-004")
    assert "anchor current" in str(left.notes["linked to"])


def test_swe_bench_supports_ten_bins_and_both_methods_agree(data: Path) -> None:
    responses = pl.read_parquet(data / "agentbench" / "swebench_verified_responses.parquet").select(
        respondent_id="submission", example_id="instance_id", score="resolved"
    )
    d = _run("irt", {"responses": responses}, splits=1)
    assert d.bins == 10
    assert d.reliability == pytest.approx(0.99, abs=0.01)
    p = _run("pass_rate", {"responses": responses})
    assert p.notes["mean rate"] == pytest.approx(0.514701, abs=1e-6)
    assert np.corrcoef(d.table["percentile"], p.table["percentile"])[0, 1] > 0.999


# --- pass rate

GSM8K_ROLLOUTS = [396, 106, 80, 56, 47, 50, 40, 50, 47, 96, 351]  # examples at 0, 1, ... 10 right of 10


def _rollouts() -> pl.DataFrame:
    right = np.repeat(np.arange(11), GSM8K_ROLLOUTS)
    row, attempt = np.repeat(np.arange(len(right)), 10), np.tile(np.arange(10), len(right))
    return pl.DataFrame(
        {
            "respondent_id": pl.repeat("model", len(row), eager=True),
            "example_id": pl.Series(row).cast(pl.String).str.zfill(4),
            "attempt": pl.Series(attempt, dtype=pl.Int32),
            "score": (attempt < right[row]).astype(float),
        }
    )


def test_rollouts_of_one_model_have_the_published_mean_and_histogram() -> None:
    d = _run("pass_rate", {"responses": _rollouts()})
    assert d.table["raw"].mean() == pytest.approx(0.47096, abs=5e-6)
    counts = (d.table["raw"] * 10).round().cast(pl.Int64).value_counts().sort("raw")["count"].to_list()
    assert counts == GSM8K_ROLLOUTS
    rate = d.table["raw"].to_numpy()
    assert np.mean(1 - rate**8 - (1 - rate) ** 8) == pytest.approx(0.34550, abs=5e-6)
    assert d.notes["mean learnability p(1-p)"] == pytest.approx(np.mean(rate * (1 - rate)), abs=1e-6)
    assert d.table["n"].unique().to_list() == [10]
    assert d.table["value"].to_numpy() == pytest.approx(1 - rate)
    assert d.notes["reliability is"] == "from standard errors"
    assert d.reliability is not None
    assert d.reliability > 0.8
    assert d.bins <= 10


def test_the_errors_of_rollouts_are_those_of_the_posterior_and_never_zero() -> None:
    d = _run("pass_rate", {"responses": from_matrix(np.tile([0.0, 1.0, 0.5], (4, 1)))})
    s, n = np.array([0.0, 4.0, 2.0]), 4
    alpha, beta = s + 0.5, n - s + 0.5
    assert d.table["standard_error"].to_numpy() == pytest.approx(np.sqrt(alpha * beta / 25 / 6))
    assert d.table["flag"].to_list() == ["none right", "all right", None]


@given(st.integers(1, 60), st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_intervals_equal_the_shared_ones_and_hold_the_rate(n: int, share: float) -> None:
    s = round(share * n)
    for ours, theirs in ((jeffreys, scalar_jeffreys), (wilson, scalar_wilson)):
        low, high = ours(np.array([float(s)]), np.array([n]))
        expected = theirs(s, n)
        assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))
        assert 0 <= low[0] <= s / n <= high[0] <= 1


def test_intervals_are_those_of_value() -> None:
    d = _run("pass_rate", {"responses": RESPONSES})
    assert d.intervals is not None
    both = d.table.join(d.intervals, on="example_id")
    assert ((both["low"] <= both["value"] + 1e-12) & (both["value"] <= both["high"] + 1e-12)).all()
    assert "95 % interval" in d.explain(d.table["example_id"][0])


def test_pass_rate_without_a_respondent_is_the_rate_of_the_others() -> None:
    left = _run("pass_rate", {"responses": RESPONSES}).leave_out("respondent-004")
    assert left.table["raw"].to_numpy() == pytest.approx(np.delete(ANSWERS, 4, axis=0).mean(axis=0))


def test_pass_rate_warns_where_not_everyone_tried_everything() -> None:
    assert not _run("pass_rate", {"responses": RESPONSES}).warnings
    d = _run("pass_rate", {"responses": RESPONSES.head(400)})
    assert any("irt does not" in w for w in d.warnings)
    assert d.notes["not attempted"] == 7 * 60 - 400


def test_one_attempt_by_one_model_makes_two_bins_at_most() -> None:
    d = _run("pass_rate", {"responses": from_matrix(np.array([[1.0, 0.0, 1.0, 0.0, 1.0]]))})
    assert d.bins <= 2


# --- length and column


def test_length_counts_in_each_unit_and_sets_empty_apart() -> None:
    lengths = {
        unit: dict(_run("length", {"examples": EXAMPLES}, unit=unit).table.select("example_id", "value").iter_rows())
        for unit in ("characters", "words", "tokens")
    }
    assert lengths["characters"] == {"q1": 14, "q2": 0, "q4": 14}
    assert lengths["words"] == {"q1": 3, "q2": 0, "q4": 3}
    assert lengths["tokens"] == {"q1": 3, "q2": 0, "q4": 6}  # don ' t stop , él
    d = _run("length", {"examples": EXAMPLES})
    assert d.excluded.rows() == [("q3", "no text in 'input'")]
    assert d.table["scale"].unique().to_list() == ["words"]
    assert repr(d) == "difficulty length of input in words, 3 examples: 2 bins"


def test_length_of_a_number_or_of_nothing_is_named() -> None:
    with pytest.raises(UsageError, match=r"column: \{column: steps\}"):
        _run("length", {"examples": EXAMPLES}, of="steps")
    with pytest.raises(UsageError, match="did you mean 'input'"):
        _run("length", {"examples": EXAMPLES}, of="inputs")


def test_scan_commands_have_their_known_lengths(data: Path) -> None:
    frame = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").with_row_index("example_id")
    d = _run("length", {"examples": frame}, of="actions")
    assert d.table["value"].mean() == pytest.approx(14.318, abs=5e-4)
    assert (d.table["value"].min(), d.table["value"].max()) == (1, 48)
    assert (d.table["value"] <= 22).sum() == 16_990
    assert d.bins == 10
    assert d.table.group_by("bin").len()["len"].to_list() == [2091] * 10


def test_a_column_of_numbers_counts_up_or_down() -> None:
    d = _run("column", {"examples": EXAMPLES}, column="rating")
    assert dict(d.table.select("example_id", "value").iter_rows()) == {"q1": 3.5, "q4": -1.0}
    assert d.excluded["example_id"].to_list() == ["q2", "q3"]
    down = _run("column", {"examples": EXAMPLES}, column="rating", higher_is_harder=False)
    assert dict(down.table.select("example_id", "value").iter_rows()) == {"q1": -3.5, "q4": 1.0}
    assert down.table["raw"].to_list() == [3.5, -1.0]
    assert down.method == "column column=rating higher_is_harder=false"


def test_a_column_of_words_needs_their_order() -> None:
    d = _run("column", {"examples": EXAMPLES}, column="level", order=["Low", "Medium", "High"])
    assert dict(d.table.select("example_id", "value").iter_rows()) == {"q1": 2.0, "q2": 0.0, "q4": 1.0}
    assert d.bins == 3
    for given_, said in (
        ({}, "'High', 'Low', 'Medium'"),
        ({"order": ["Low", "Hihg", "Medium"]}, "did you mean 'Hihg'"),
    ):
        with pytest.raises(UsageError) as caught:
            _run("column", {"examples": EXAMPLES}, column="level", **given_)
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="stands twice"):
        _run("column", {"examples": EXAMPLES}, column="level", order=["Low", "Low"])
    with pytest.raises(UsageError, match="leave order out"):
        _run("column", {"examples": EXAMPLES}, column="steps", order=["1"])


def test_human_labels_of_arc_are_kept_as_ordered_words(data: Path) -> None:
    frame = pl.read_csv(data / "arc_easy2hard" / "arc_annotations.csv").with_row_index("example_id")
    d = _run("column", {"examples": frame}, column="difficulty", order=["Low", "Medium", "High"])
    assert d.table["value"].value_counts().sort("value")["count"].to_list() == [1118, 3324, 678]
    assert d.bins == 3


def test_a_method_without_respondents_cannot_leave_one_out() -> None:
    with pytest.raises(UsageError, match="does not depend on respondents"):
        _run("length", {"examples": EXAMPLES}).leave_out("a")


def test_bins_by_force_are_said_and_never_empty() -> None:
    d = _run("irt", {"responses": RESPONSES}, bins=8)
    assert d.bins == 8
    assert any("8 bins were asked for, but the reliability supports 3" in w for w in d.warnings)
    few = _run("column", {"examples": EXAMPLES}, column="steps", bins=8)
    assert few.bins == 3
    assert any("only 3 different values" in w for w in few.warnings)


def test_no_row_with_a_value_is_refused() -> None:
    with pytest.raises(DataRefused, match="no example has a difficulty"):
        _run("column", {"examples": EXAMPLES.with_columns(none=pl.lit(None, pl.Float64))}, column="none")


def test_equal_values_get_one_bin() -> None:
    d = build(
        method="m", title="m", ids=["a", "b"], value=np.ones(2), raw=np.ones(2), scale="x", n=np.ones(2, dtype=np.int64)
    )
    assert d.table["bin"].to_list() == [0, 0]


def test_a_million_lengths_are_ranked_in_seconds() -> None:
    frame = pl.DataFrame({"example_id": pl.Series(np.arange(1_000_000)).cast(pl.String)}).with_columns(
        input="a b c " + pl.col("example_id").str.replace_all("0", " ")
    )
    d = _run("length", {"examples": frame})
    assert len(d.table) == 1_000_000


def test_an_explanation_tells_who_is_as_hard_and_takes_a_number_for_an_id() -> None:
    examples = pl.DataFrame({"example_id": [1, 2, 3, 4], "level": [0.0, 1.0, 1.0, 2.0]})
    plugin, config = resolve("difficulty", Step(method="column", settings={"column": "level"}))
    found = plugin.run({"examples": examples}, config, 0)
    assert "harder than 1 of 4 examples, as hard as 1 other, bin" in found.explain("2")
    assert found.explain(3).startswith("3: 1 ")
    assert "harder than 3 of 4 examples, bin" in found.explain("4")
    with pytest.raises(UsageError, match="there is no example '7'"):
        found.explain(7)


def test_an_item_that_fewer_get_right_than_guess_is_flagged_by_its_location() -> None:
    rng = np.random.default_rng(0)
    chance = 0.5 + 0.5 / (1 + np.exp(np.linspace(-1, 1, 12) - rng.normal(size=(400, 1))))
    right = (rng.random((400, 12)) < chance).astype(float)
    right[:, 3] = rng.random(400) < 0.1
    tables = {"responses": from_matrix(right)}
    flag = _run("irt", tables, model="2pl", guessing=0.5, priors="none", splits=0).table["flag"][3]
    assert flag == "fewer are right than guess: location at its bound"

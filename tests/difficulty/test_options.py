"""Uncertainty of models about multiple-choice questions, by construction: no paper prints a number to check."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.options import orders
from gradatim.tasks.difficulty.result import Difficulty

MEASURES = ("gold", "top", "entropy", "margin", "sensitivity")
Row = tuple[str, str, int, list[int] | None, list[float], int | None]


def _table(rows: list[Row]) -> pl.DataFrame:
    names = ["respondent_id", "example_id", "order", "permutation", "probabilities", "gold"]
    kinds = [pl.String, pl.String, pl.Int32, pl.List(pl.Int32), pl.List(pl.Float32), pl.Int32]
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def _run(options: pl.DataFrame, **given_: Any) -> Difficulty:
    more = {name: given_.pop(name) for name in ("examples", "respondents") if name in given_}
    plugin, config = resolve("difficulty", Step(method="option_uncertainty", settings=given_))
    result = plugin.run({"options": options, **more}, config, 0)
    assert isinstance(result, Difficulty)
    return result


def _value(options: pl.DataFrame, measure: str) -> float:
    return float(_run(options, measure=measure).table["value"][0])


def _shown(p: list[float], gold: int | None = 0, respondent: str = "m", example: str = "q") -> list[Row]:
    """All orders of the options, each with the same probability by option."""
    orders = itertools.permutations(range(len(p)))
    return [(respondent, example, o, list(perm), [p[k] for k in perm], gold) for o, perm in enumerate(orders)]


def _random(seed: int, examples: int = 12, respondents: int = 3, orders: int = 4) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    rows: list[Row] = []
    for e in range(examples):
        options, gold = int(random.integers(2, 6)), int(random.integers(0, 2))
        for r, o in itertools.product(range(respondents), range(orders)):
            p = random.dirichlet(np.ones(options)) * random.uniform(0.3, 1)
            rows.append((f"m{r}", f"q{e:02d}", o, random.permutation(options).tolist(), p.tolist(), gold))
    return _table(rows)


# --- by construction


@pytest.mark.parametrize("options", [2, 3, 4])
def test_a_uniform_model_has_entropy_one_margin_zero_and_insists_on_nothing(options: int) -> None:
    table = _table(_shown([1 / options] * options))
    assert _value(table, "entropy") == pytest.approx(1.0)
    assert _value(table, "margin") == pytest.approx(1.0)
    assert _value(table, "gold") == pytest.approx(1 - 1 / options)
    assert _value(table, "top") == pytest.approx(1 - 1 / options)
    assert _value(table, "sensitivity") == 0.0


def test_a_model_that_sees_options_not_places_is_not_sensitive_to_order() -> None:
    table = _table(_shown([0.5, 0.3, 0.2], gold=1))
    assert _value(table, "sensitivity") == 0.0
    assert _value(table, "gold") == pytest.approx(0.7)
    assert _value(table, "top") == pytest.approx(0.5)
    assert _value(table, "margin") == pytest.approx(0.8)
    assert _value(table, "entropy") == pytest.approx(-sum(p * math.log(p) for p in (0.5, 0.3, 0.2)) / math.log(3))
    d = _run(table)
    assert d.table["standard_error"][0] == pytest.approx(0.0, abs=1e-7)
    assert d.table["n"][0] == 6


def test_a_model_that_always_takes_the_first_place_is_as_sensitive_as_can_be() -> None:
    rows = [(r, e, o, perm, [0.7, 0.2, 0.1], 0) for r, e, o, perm, _, _ in _shown([1.0, 0.0, 0.0])]
    table = _table(rows)
    assert _value(table, "sensitivity") == pytest.approx(1 - 2 / 6)  # each option is first in two orders of six
    assert _value(table, "entropy") == pytest.approx(1.0)
    assert _value(table, "top") == pytest.approx(0.3)  # sure of itself every time
    assert _value(table, "gold") == pytest.approx(2 / 3)


def test_a_sure_and_wrong_model_is_hard_by_gold_and_easy_by_all_else() -> None:
    table = _table(_shown([0.0, 1.0], gold=0))
    assert {m: _value(table, m) for m in MEASURES} == {"gold": 1, "top": 0, "entropy": 0, "margin": 0, "sensitivity": 0}
    warnings = _run(table, measure="entropy").warnings
    assert any("not how wrong" in warning for warning in warnings)


def test_letters_are_mapped_back_by_the_permutation() -> None:
    # place 0 shows option 2, place 1 option 0, place 2 option 1
    table = _table([("m", "q", 0, [2, 0, 1], [0.6, 0.3, 0.1], 2)])
    assert _value(table, "gold") == pytest.approx(0.4)
    as_they_come = _table([("m", "q", 0, None, [0.6, 0.3, 0.1], 2)])
    assert _value(as_they_come, "gold") == pytest.approx(0.9)
    bare = as_they_come.select("respondent_id", "example_id", "probabilities")
    assert _value(bare, "top") == pytest.approx(0.4)


def test_first_token_mass_below_one_is_rescaled_counted_and_flagged() -> None:
    table = _table([("m", "a", 0, None, [0.3, 0.1], 0), ("m", "b", 0, None, [0.5, 0.5], 0)])
    d = _run(table)
    assert d.table["value"].to_list() == pytest.approx([0.25, 0.5])
    assert d.table["flag"].to_list() == ["most of the probability lies outside of the options", None]
    assert d.notes["rows that did not add up to one, rescaled"] == 1
    assert d.notes["mean probability on the options"] == pytest.approx(0.7)


# --- means, errors, who is left out


def test_respondents_count_alike_whatever_their_orders() -> None:
    table = _table([*_shown([0.8, 0.2], respondent="m1"), ("m2", "q", 0, None, [0.4, 0.6], 0)])
    d = _run(table)
    assert d.table["value"][0] == pytest.approx(1 - (0.8 + 0.4) / 2)
    assert d.table["standard_error"][0] == pytest.approx(np.std([0.8, 0.4], ddof=1) / math.sqrt(2), rel=1e-6)
    assert d.table["n"][0] == 3
    facts = json.loads(d.table["details"][0])
    assert facts == {
        "options": 2, "respondents": 2, "orders": 1.5, "gold_probability": 0.6, "top_probability": 0.7, "right": 0.5,
        "entropy": pytest.approx(0.84644, abs=1e-5), "margin": 0.4, "order_sensitivity": 0.0, "mass": 1.0,
    }  # fmt: skip
    assert "gold_probability .6" in d.explain("q")
    alone = d.leave_out("m2")
    assert alone.table["value"][0] == pytest.approx(0.2)
    people = pl.DataFrame({"respondent_id": ["m1", "m2"], "family": ["old", "new"]})
    assert _run(table, respondents=people).leave_out("old").table["value"][0] == pytest.approx(0.6)


@pytest.mark.parametrize("measure", ["gold", "top", "entropy", "margin"])
def test_the_error_of_one_respondent_is_the_jackknife_over_orders(measure: str) -> None:
    table = _random(5, examples=4, respondents=1, orders=5)
    d = _run(table, measure=measure)
    for example, error in d.table.select("example_id", "standard_error").iter_rows():
        mine = table.filter(pl.col("example_id") == example)
        without = np.array([_value(mine.filter(pl.col("order") != o), measure) for o in range(5)])
        assert error == pytest.approx(math.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum()), rel=1e-6)
        if measure == "gold":  # of a mean it is the textbook's
            parts = np.array([_value(mine.filter(pl.col("order") == o), measure) for o in range(5)])
            assert error == pytest.approx(parts.std(ddof=1) / math.sqrt(5), rel=1e-6)


def test_without_the_right_option_there_are_the_other_measures() -> None:
    table = _table([*_shown([0.6, 0.4], gold=None, example="a"), *_shown([0.9, 0.1], gold=0, example="b")])
    d = _run(table)
    assert d.table["example_id"].to_list() == ["b"]
    assert d.excluded.rows() == [("a", "the right option is not known")]
    assert len(_run(table, measure="entropy").table) == 2
    with pytest.raises(DataRefused, match="the right option is not known") as error:
        _run(table.filter(pl.col("example_id") == "a"))
    assert "measure: entropy" in error.value.remedy
    assert json.loads(_run(table, measure="entropy").table["details"][0])["gold_probability"] is None


def test_gold_of_one_row_is_that_of_the_example() -> None:
    rows = _shown([0.6, 0.4], gold=None)
    rows[1] = (*rows[1][:5], 1)
    assert _value(_table(rows), "gold") == pytest.approx(0.6)


def test_one_order_says_nothing_of_sensitivity() -> None:
    table = _table([("m", "a", 0, None, [0.6, 0.4], 0), *_shown([0.6, 0.4], example="b")])
    d = _run(table, measure="sensitivity")
    assert d.table["example_id"].to_list() == ["b"]
    assert d.excluded.rows() == [("a", "shown in one order only")]
    single = _table([("m", "a", 0, None, [0.6, 0.4], 0)])
    with pytest.raises(DataRefused, match="one order only"):
        _run(single, measure="sensitivity")
    assert any("one order" in warning for warning in _run(single).warnings)
    assert _run(single).table["standard_error"].to_list() == [None]


def test_examples_that_nobody_was_shown_are_listed() -> None:
    d = _run(_table(_shown([0.6, 0.4])), examples=pl.DataFrame({"example_id": ["q", "r"]}))
    assert d.excluded.rows() == [("r", "no option probabilities")]


# --- bad input


@pytest.mark.parametrize(
    ("permutation", "probabilities", "gold", "said"),
    [
        (None, [0.9, 0.2], 0, "add up to 1.1"),
        (None, [1.1, -0.1], 0, "negative, null or not finite"),
        (None, [math.nan, 0.1], 0, "negative, null or not finite"),
        (None, [math.inf, 0.1], 0, "negative, null or not finite"),
        (None, [None, 0.1], 0, "negative, null or not finite"),
        (None, [0.0, 0.0], 0, "all probabilities are zero"),
        (None, [], 0, "there are no probabilities"),
        (None, None, 0, "there are no probabilities"),
        (None, [1.0], 0, "one option only"),
        ([0, 0], [0.5, 0.5], 0, "does not name each option"),
        ([1, 2], [0.5, 0.5], 0, "does not name each option"),
        ([0, 1, 2], [0.5, 0.5], 0, "does not name each option"),
        ([0, None], [0.5, 0.5], 0, "does not name each option"),
        (None, [0.5, 0.5], 2, "gold is option 2"),
        (None, [0.5, 0.5], -1, "gold is option -1"),
    ],
)
def test_a_row_that_cannot_be_is_named_or_left_out_and_counted(
    permutation: Any, probabilities: Any, gold: int, said: str
) -> None:
    rows: list[Row] = [*_shown([0.9, 0.1], example="a"), ("m", "a", 7, permutation, probabilities, gold)]
    table = _table([*rows, ("m2", "b", 0, permutation, probabilities, gold)])
    with pytest.raises(DataRefused, match=said) as error:
        _run(table)
    assert "respondent 'm', example 'a', order 7" in str(error.value)
    assert "2 of 4 rows" in str(error.value)
    d = _run(table, invalid="exclude")
    assert d.table["value"].to_list() == pytest.approx([0.1])
    assert d.table["flag"].to_list() == ["some rows were left out"]
    assert d.excluded["example_id"].to_list() == ["b"]
    assert said in d.excluded["reason"][0]
    assert sum(n for note, n in d.notes.items() if note.startswith("left out")) == 2  # type: ignore[misc]


def test_sums_that_exceed_one_by_rounding_are_no_error() -> None:
    assert _value(_table([("m", "q", 0, None, [0.5004, 0.5004], 0)]), "gold") == pytest.approx(0.5)


def test_contradictions_between_rows_are_refused() -> None:
    two = _shown([0.5, 0.5])
    with pytest.raises(DataRefused, match="different numbers of options, the first 2 and 3"):
        _run(_table([*two, ("n", "q", 0, None, [0.2, 0.3, 0.5], 0)]))
    with pytest.raises(DataRefused, match="different right options, the first 0 and 1"):
        _run(_table([*two, ("n", "q", 0, None, [0.5, 0.5], 1)]), invalid="exclude")
    with pytest.raises(DataRefused, match="share respondent, example and order"):
        _run(_table([*two, two[0]]))
    with pytest.raises(DataRefused, match="have no example_id"):
        _run(_table([(*two[0][:1], None, *two[0][2:])]))  # type: ignore[list-item]
    with pytest.raises(DataRefused, match="no row of options"):
        _run(_table([]))
    with pytest.raises(UsageError, match="no column 'probabilities'"):
        _run(_table(two).drop("probabilities"))
    with pytest.raises(UsageError, match="of type String"):
        _run(_table(two).with_columns(probabilities=pl.lit("0.5")))


# --- laws


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(MEASURES))
def test_showing_everything_in_another_order_changes_nothing(seed: int, measure: str) -> None:
    table = _random(seed)
    random = np.random.default_rng(seed + 1)
    rows = []
    for who, what, order, places, chances, gold in table.iter_rows():
        new = random.permutation(len(places))
        rows.append((who, what, order, [places[i] for i in new], [chances[i] for i in new], gold))
    random.shuffle(rows)
    d, again = _run(table, measure=measure), _run(_table(rows), measure=measure)
    assert again.table.equals(d.table)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_measures_keep_within_their_bounds_and_follow_each_other(seed: int) -> None:
    found = {m: _run(_random(seed), measure=m).table["value"].to_numpy() for m in MEASURES}
    for value in found.values():
        assert ((value >= 0) & (value <= 1)).all()
    assert (found["gold"] >= found["top"] - 1e-9).all()


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _random(3, examples=40)
    d = _run(table)
    for rows in (1, 7, 50):
        monkeypatch.setattr(orders, "BLOCK", rows)
        assert _run(table).table.equals(d.table)


def test_reliability_is_split_half_with_four_respondents_and_rises_with_agreement() -> None:
    random = np.random.default_rng(0)
    sure = random.uniform(0.05, 0.95, 60)
    tables = {}
    for noise in (0.01, 0.3):
        rows: list[Row] = []
        for e, r in itertools.product(range(60), range(6)):
            p = float(np.clip(sure[e] + noise * random.normal(), 0.01, 0.99))
            rows.append((f"m{r}", f"q{e:02d}", 0, None, [p, 1 - p], 0))
        tables[noise] = _run(_table(rows))
    assert tables[0.01].notes["reliability is"] == "split-half"
    assert tables[0.01].reliability > 0.99 > tables[0.3].reliability + 0.05  # type: ignore[operator]
    assert tables[0.01].bins == 10


def test_the_plug_in_states_its_facts_and_its_table_is_the_contracts() -> None:
    plugin = plugins("difficulty")["option_uncertainty"]
    assert plugin.maturity == "experimental"
    assert "Zotos" in plugin.source
    d = _run(_random(1))
    assert d.table.columns == spec("difficulty").schema.names
    assert d.table["example_id"].is_sorted()
    assert d.summary().headline.startswith("option_uncertainty gold, 3 respondents")
    assert "experimental" not in repr(d)


def test_whole_numbers_of_any_type_are_taken_and_others_answered() -> None:
    table = _random(3)
    plain = _run(table)
    floats = table.with_columns(
        pl.col("gold", "order").cast(pl.Float64), pl.col("permutation").cast(pl.List(pl.Float64))
    )
    assert _run(floats).table.equals(plain.table)
    some = pl.when(pl.col("order") == 0).then(pl.col("gold")).cast(pl.Float64).fill_null(math.nan)  # as pandas has it
    assert _run(table.with_columns(gold=some)).table.equals(plain.table)
    for column, broken in (("gold", 0.5), ("order", 0.5)):
        with pytest.raises(DataRefused, match=f"'{column}' are not whole, first 0.5"):
            _run(table.with_columns(pl.lit(broken).alias(column)))
    with pytest.raises(DataRefused, match="'permutation' are not whole"):
        _run(floats.with_columns(pl.col("permutation").list.eval(pl.element() + 0.5)))
    with pytest.raises(UsageError, match="order is of type String"):
        _run(table.with_columns(order=pl.lit("a")))
    for permutation in (pl.lit("0,1"), pl.concat_list(pl.lit("A"), pl.lit("B"))):
        with pytest.raises(UsageError, match="permutation is of type"):
            _run(table.with_columns(permutation=permutation))


def test_what_is_expected_belongs_to_what_is_wrong() -> None:
    with pytest.raises(DataRefused) as error:
        _run(_table([("m", "q", 0, [1, 2], [0.5, 0.5], 0)]))
    assert "each of them once, from 0" in str(error.value)
    with pytest.raises(DataRefused) as error:
        _run(_table([("m", "q", 0, [0, 1], [0.5, 0.5], 7)]))
    assert "the right option before permutation" in str(error.value)
    with pytest.raises(DataRefused, match="no row of options can be used: there is one option only"):
        _run(_table([("m", "q", 0, [0], [0.5], 0)]), invalid="exclude")


def test_a_model_that_is_never_right_says_so() -> None:
    assert _run(_table([("m", "q", 0, [0, 1], [0.9, 0.1], 1)])).notes["share right"] == 0

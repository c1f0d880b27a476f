"""Presets of papers on generalisation: sizes and oracles, loops over dicts, golden contents, releases, bad input."""

from __future__ import annotations

import gzip
import json
import math
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import presets_generalisation as loops
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash, uniform
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.core.templates import mask
from gradatim.tasks.core.trees import parse
from gradatim.tasks.splits.constraints import constraint
from gradatim.tasks.splits.hard_rates import hard_rates
from gradatim.tasks.splits.result import Split

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_presets_generalisation.json"
BASE = {"visual": "easy", "redundancy": "rd", "layout": "mid"}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "omega": (
        "omega",
        {"regimes": ["exploratory", "compositional", "transformative"], "level": "n_steps", "train": "<= 6"},
    ),
    "omega pairs": (
        "omega",
        {
            "regimes": "compositional", "skills": ["first", "second"], "pairs": [["a", "b"], ["b", "c"]],
            "keep_skills": 5,
        },
    ),
    "gotu": (
        "gotu",
        {
            "regions": ["half_space", "hamming_weight", "f1", "f2", "f3", "f4"], "coordinates": [0, 3],
            "weights": [2, 4],
        },
    ),
    "gotu columns": ("gotu", {"inputs": ["x0", "x1", "x2"], "regions": ["half_space", "f1"], "coordinates": 2}),
    "super_clevr": ("super_clevr", {"base": BASE, "min_rows": 5}),
    "factor_world": ("factor_world", {"factors": ["visual", "redundancy", "layout"], "fraction": 0.3, "pairs": True}),
    "factor_world values": (
        "factor_world",
        {"factors": ["visual", "layout"], "train_values": {"visual": ["easy", "mid"], "layout": "mid"}},
    ),
    "math_levels": ("math_levels", {}),
    "math_levels subjects": ("math_levels", {"level": "grade", "train": "< 3", "subject": "domain"}),
    "gsm8k_steps": ("gsm8k_steps", {"train": "<= 3"}),
    "gsm8k_steps calculations": ("gsm8k_steps", {"train": "<= 2", "count": "calculations"}),
    "gsm8k_steps column": ("gsm8k_steps", {"train": "<= 8", "steps": "n_steps"}),
    "train_short_test_long": ("train_short_test_long", {"train": [10, 20]}),
    "train_short_test_long slices": (
        "train_short_test_long",
        {"train": [10, 20], "lengths": [24, "30..35", "> 38"], "column": "length_input"},
    ),
    "template_split": ("template_split", {}),
    "template_split constants": ("template_split", {"column": "input", "mask": "constants", "fraction": 0.4}),
    "template_split skeleton": ("template_split", {"column": "structure", "mask": "skeleton", "fraction": 0.4}),
    "holdout_label_pairs": ("holdout_label_pairs", {"fraction": 0.2, "keep_labels": 20}),
    "holdout_label_pairs named": ("holdout_label_pairs", {"pairs": ["a", "b; + c"], "validation_ood": 0.3}),
    "n_ls": ("n_ls", {"fraction": 0.15, "keep_symbols": 10}),
    "n_ls of three": ("n_ls", {"fraction": 0.15, "n": 3, "band": [0.01, 0.1], "keep_together": "template"}),
    "n_ls named": ("n_ls", {"structures": "parent 'f', child 'y'"}),
}  # fmt: skip


@cache
def frame(n: int = 1200) -> pl.DataFrame:
    """Rows with the columns of every preset; each depends on the number of the row alone."""
    number = np.arange(n)
    draw = [uniform([f"{i}" for i in number], 7, f"test {k}") for k in range(12)]
    labels = np.array(["a", "b; + c", "c", "d", "e"])
    skill = np.array(["a", "b", "c", "d"])
    bits = np.stack([np.where(draw[k] < 0.5, -1, 1) for k in range(6)], axis=1)
    words = ["f", "g", "h"], ["x", "y", "z"]
    trees = []
    for i in range(n):
        one, two, left, right = (int(draw[k][i] * 3) for k in range(4))
        trees.append(f"({words[0][one]} ({words[0][two]} {words[1][left]}) {words[1][right]})")
    structure, wrong = parse(pl.Series("structure", trees))
    assert wrong.null_count() == n
    answers = [
        "\n".join(f"so {i} + {k} = <<{i}+{k}={i + k}>>{i + k}" for k in range(int(1 + draw[0][i] * 6))) for i in number
    ]
    first = skill[(draw[8] * 4).astype(int)]
    second = np.where(draw[9] < 0.6, None, skill[(draw[10] * 4).astype(int)])
    return examples(n).with_columns(
        level=pl.Series([f"Level {int(1 + u * 5)}" for u in draw[0]]).set(pl.Series(number == 3), "Level ?"),
        skills=pl.Series([[a] if b is None else [a, b, a] for a, b in zip(first, second, strict=True)]),
        first=pl.Series(first),
        second=pl.Series(second.tolist(), dtype=pl.String),
        new_strategy=pl.Series(draw[1] < 0.2).set(pl.Series(number == 5), None),
        x=pl.Series([None if i == 4 else row for i, row in enumerate(bits.tolist())], dtype=pl.List(pl.Int8)),
        x0=pl.Series(bits[:, 0]),
        x1=pl.Series(bits[:, 1]).cast(pl.Float64),
        x2=pl.Series(bits[:, 2]),
        visual=pl.Series([("easy", "mid", "hard")[int(u * 3)] if i != 9 else None for i, u in enumerate(draw[2])]),
        redundancy=pl.Series([("rd-", "rd", "rd+")[int(u * 3)] for u in draw[3]]),
        layout=pl.Series([("low", "mid", "high", "top")[int(u * 4)] for u in draw[4]]),
        grade=pl.Series([int(1 + u * 5) for u in draw[5]]),
        output=pl.Series(answers) + "\n#### 7",
        labels=pl.Series(
            [None if i == 6 else [str(one) for one in labels[[u[i] < 0.4 for u in draw[2:7]]]] for i in number],
            dtype=pl.List(pl.String),
        ),
        structure=structure,
        input=pl.Series(
            [f"{('take', 'put', 'move', 'lift', 'drop')[i % 5]} {i} times, {'again' * (i % 3)}" for i in number]
        ),
    )


def rows_of(split: Split, rows: pl.DataFrame, fold: int = 0) -> list[dict[str, Any]]:
    return split.select(fold=fold).main.join(rows, on="example_id").to_dicts()


def axes(split: Split) -> list[tuple[int, str]]:
    return split.main.select("fold", "axis").unique().sort("fold").rows()


def holds(split: Split, rows: pl.DataFrame) -> bool:
    good = True
    for fold, _ in axes(split):
        checks = constraint(split.method, split.settings, split.select(fold=fold).main.join(rows, on="example_id"))
        assert len([check for check in checks if check.holds is not None]) >= 2
        good &= all(check.holds is not False for check in checks)
    return good


# --- every preset


@pytest.mark.parametrize("name", SETTINGS)
def test_the_content_is_the_golden_one_whatever_the_order_and_the_promise_holds(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame()
    split = make(method, rows, **setting)
    found = content_hash(split.table.to_arrow())
    mixed = rows.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1))
    assert content_hash(make(method, mixed, **setting).table.to_arrow()) == found
    assert holds(split, rows)
    for _, part in split.table.group_by("strategy", "fold"):
        assert part["example_id"].to_list() == rows["example_id"].to_list()
    golden = json.loads(GOLDEN.read_text())
    assert golden[name] == {"revision": get("split", method).revision, "content": found}, "raise the revision first"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_row_on_the_wrong_side_fails_the_promise(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame()
    split = make(method, rows, **setting, controls=False)
    for fold, axis in axes(split):
        here = split.select(fold=fold).main.join(rows, on="example_id")
        for wrong, right in (("train", "test_ood"), ("test_ood", "train")):
            first = here.filter(pl.col("split") == right)["example_id"][0]
            label = here["held_out"].drop_nulls()[0]
            moved = here.with_columns(
                pl.when(pl.col("example_id") == first).then(pl.lit(wrong)).otherwise("split").alias("split"),
                pl.when(pl.col("example_id") == first).then(pl.lit(label)).otherwise("held_out").alias("held_out"),
            )
            failed = [check.check for check in constraint(method, split.settings, moved) if check.holds is False]
            assert failed, (axis, wrong, right)


@pytest.mark.parametrize("name", SETTINGS)
def test_rows_that_come_after_a_release_move_nobody_and_folds_keep_their_numbers(name: str) -> None:
    method, setting = SETTINGS[name]
    setting = {**setting, "keep_together": [], "controls": False, "validation_ood": 0.0}
    rows = frame()
    before = make(method, rows.sample(fraction=0.7, seed=1), **setting)
    after = make(method, {"examples": rows, "frozen": before.main}, **setting)
    assert axes(before) == axes(after)
    both = before.main.join(after.main, on=["fold", "example_id"])
    assert len(both) == len(before.main)
    used = both.filter(pl.col("split") != "excluded")
    assert (used["split"].is_in(["test_ood"]) == used["split_right"].is_in(["test_ood"])).all()
    assert used["held_out"].equals(used["held_out_right"])
    assert all(outcome.moved == 0 and outcome.held == 0 for outcome in after.frozen)
    assert holds(after, rows)


def test_names_of_regimes_keep_the_numbers_of_their_folds_when_others_come() -> None:
    rows = frame()
    before = make("omega", rows, regimes="compositional", controls=False)
    wider = {"regimes": ["exploratory", "compositional"], "level": "n_steps", "train": "<= 6", "controls": False}
    after = make("omega", {"examples": rows, "frozen": before.main}, **wider)
    assert axes(after) == [(0, "compositional"), (1, "exploratory")]
    short = make("train_short_test_long", rows, train=20, controls=False)
    more = make("train_short_test_long", {"examples": rows, "frozen": short.main}, train=[10, 20], controls=False)
    assert axes(more) == [(0, "length_input <= 20"), (1, "length_input <= 10")]


# --- OMEGA


@given(
    st.lists(
        st.tuples(st.sampled_from("tuv") | st.none(), st.sampled_from([1.0, 2.0, 3.0, 4.0, float("nan")]) | st.none()),
        min_size=40,
        max_size=90,
    ),
    st.integers(0, 99),
)
@settings(max_examples=15)
def test_levels_beyond_those_of_a_template_are_out_only_where_it_is_trained_on(
    rows: list[tuple[str | None, float | None]], seed: int
) -> None:
    table = pl.DataFrame(rows, schema={"template": pl.String, "level": pl.Float64}, orient="row", strict=False)
    table = table.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]))
    try:
        split = make("omega", table, seed=seed, train="<= 2", test=0.3)
    except DataRefused:
        return
    loops.exploratory(rows_of(split, table), "template", "level", 2)
    assert holds(split, table)


def test_a_template_without_lower_levels_is_left_out_and_says_so() -> None:
    rows = frame().with_columns(template=pl.when(pl.col("n_steps") == 12).then(pl.lit("late")).otherwise("template"))
    split = make("omega", rows, level="n_steps", train="<= 6")
    late = rows.filter(pl.col("n_steps") == 12)["example_id"][0]
    assert split.why(late) == "excluded: n_steps 12 > 6 of template late; no row of the template is n_steps <= 6"
    low = rows.filter(pl.col("n_steps") == 2)[0]
    assert split.why(low["example_id"][0]).endswith(f": n_steps 2 <= 6 of template {low['template'][0]}")


@given(
    st.lists(st.lists(st.sampled_from("abcd") | st.none(), max_size=3) | st.none(), min_size=60, max_size=120),
    st.sampled_from([[], [("a", "b")], [("a", "b"), ("d", "c")]]),
    st.integers(0, 99),
)
@settings(max_examples=15)
def test_joined_skills_are_out_where_each_is_trained_alone(
    rows: list[list[str | None] | None], pairs: list[tuple[str, str]], seed: int
) -> None:
    table = pl.DataFrame({"skills": pl.Series(rows, dtype=pl.List(pl.String))})
    table = table.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]))

    def skills_of(row: dict[str, Any]) -> set[str] | None:
        return None if row["skills"] is None else set(row["skills"]) - {None}

    try:
        split = make("omega", table, seed=seed, regimes="compositional", pairs=pairs, test=0.3, keep_skills=2)
    except (DataRefused, UsageError):
        return
    loops.compositional(rows_of(split, table), skills_of, pairs, 2)
    assert holds(split, table)


def test_skills_in_two_columns_are_those_of_a_list() -> None:
    rows = frame()
    wide = make("omega", rows, regimes="compositional", skills=["first", "second"])
    listed = make("omega", rows, regimes="compositional")
    assert wide.main["split"].equals(listed.main["split"])
    assert wide.main["held_out"].equals(listed.main["held_out"])

    def skills_of(row: dict[str, Any]) -> set[str]:
        return {row["first"], row["second"]} - {None}

    loops.compositional(rows_of(wide, rows), skills_of, [], 1)


def test_what_needs_a_new_strategy_is_what_the_column_marks() -> None:
    rows = frame()
    split = make("omega", rows, regimes="transformative")
    assert split.ids("test_ood").equals(rows.filter("new_strategy")["example_id"])
    assert split.why("q00005") == "excluded: new_strategy is null"
    assert split.why(split.ids("test_ood")[0]) == "test_ood: needs a new strategy"
    assert split.why(split.train[0]) == "train: new_strategy does not mark it"
    text = make("omega", rows, regimes="transformative", strategy="visual", marked="hard")
    assert text.ids("test_ood").equals(rows.filter(pl.col("visual") == "hard")["example_id"])


# --- generalisation on the unseen


@cache
def whole_cube(d: int = 15) -> pl.DataFrame:
    points = 1 - 2 * ((np.arange(2**d)[:, None] >> np.arange(d)) & 1)
    return pl.DataFrame(
        {
            "example_id": [f"p{i:05d}" for i in range(2**d)],
            "x": pl.Series(points.astype(np.int8), dtype=pl.Array(pl.Int8, d)),
        }
    )


def least_degree(points: np.ndarray, values: np.ndarray, most: int) -> tuple[int, dict[tuple[int, ...], float]]:
    """Find the polynomial of the least degree through values on some points of the cube, and its coefficients."""
    d = points.shape[1]
    for degree in range(most + 1):
        terms = [one for size in range(degree + 1) for one in combinations(range(d), size)]
        basis = np.stack([points[:, list(term)].prod(axis=1) for term in terms], axis=1).astype(float)
        found, *_ = np.linalg.lstsq(basis, values, rcond=None)
        if np.abs(basis @ found - values).max() < 1e-8:
            return degree, {t: c for t, c in zip(terms, found, strict=True) if abs(c) > 1e-8}
    raise AssertionError("no interpolator of so low a degree")


def test_the_oracle_of_f2_and_f1_on_the_unseen_of_the_whole_cube() -> None:
    rows = whole_cube()
    split = make("gotu", rows, regions=["f2", "f1"], controls=False)
    points = np.stack(rows["x"].to_list())
    x = points.astype(float)
    truths = {
        "the region of f2 is seen": x[:, 0] * x[:, 1],
        "the region of f1 is seen": x[:, 0] * x[:, 1] - 1.25 * x[:, 1] * x[:, 2] + 1.5 * x[:, 2] * x[:, 0],
    }
    expected = {
        # x0 + x1 - 1: -3 where the truth is 1; a quarter of the cube is unseen
        "the region of f2 is seen": ({(0,): 1, (1,): 1, (): -1}, 16.0, 4.0, 2**13),
        # where x0 x1 x2 = 1, x0 x1 is x2, and so on; where it is -1 each term has the other sign
        "the region of f1 is seen": ({(2,): 1, (0,): -1.25, (1,): 1.5}, 4 * (1 + 1.25**2 + 1.5**2), None, 2**14),
    }
    assert [axis for _, axis in axes(split)] == list(expected)
    for fold, axis in axes(split):
        side = split.select(fold=fold).main["split"].to_numpy()
        seen, unseen = side != "test_ood", side == "test_ood"
        coefficients, mse, whole, size = expected[axis]
        assert unseen.sum() == size
        truth = truths[axis]
        degree, found = least_degree(points[seen], truth[seen], 2)
        assert degree == 1
        assert found == pytest.approx(coefficients)
        value = sum(c * x[:, list(term)].prod(axis=1) for term, c in found.items())
        assert np.mean((value - truth)[unseen] ** 2) == pytest.approx(mse)
        if whole is not None:
            assert np.mean((value - truth) ** 2) == pytest.approx(whole)


def test_the_sizes_of_regions_of_the_cube_are_binomial_sums() -> None:
    rows = whole_cube()
    weights = [6, 7, 8, 9, 10]
    split = make(
        "gotu", rows, regions=["half_space", "hamming_weight"], coordinates=14, weights=weights, controls=False
    )
    outside = split.main.group_by("fold").agg((pl.col("split") == "test_ood").sum()).sort("fold")["split"].to_list()
    assert outside == [2**14] + [sum(math.comb(15, k) for k in range(most + 1, 16)) for most in weights]
    # every point is seen at weight d, and nothing is left to test
    with pytest.raises(DataRefused, match="no row is out of distribution"):
        make("gotu", rows, regions="hamming_weight", weights=15)


@pytest.mark.parametrize("name", ["gotu", "gotu columns"])
def test_regions_of_the_cube_are_those_of_loops(name: str) -> None:
    _, setting = SETTINGS[name]
    rows = frame()
    split = make("gotu", rows, **setting, controls=False)
    for fold, axis in axes(split):
        here = rows_of(split, rows, fold)
        points = [[row["x0"], row["x1"], row["x2"]] if name == "gotu columns" else row["x"] for row in here]
        loops.cube(here, points, axis)


def test_points_that_are_none_of_the_cube_are_refused() -> None:
    rows = frame()
    with pytest.raises(DataRefused, match="the row 'q00007' has the coordinate 3"):
        make(
            "gotu",
            rows.with_columns(x0=pl.when(pl.col("example_id") == "q00007").then(3).otherwise("x0")),
            inputs=["x0"],
        )
    bad = rows.with_columns(
        x=pl.when(pl.col("example_id") == "q00007").then(pl.lit([1, 0, 1, 1, 1, 1], pl.List(pl.Int8))).otherwise("x")
    )
    with pytest.raises(DataRefused, match="the row 'q00007' has the coordinate 0"):
        make("gotu", bad)
    short = rows.with_columns(
        x=pl.when(pl.col("example_id") == "q00007").then(pl.lit([1, 1], pl.List(pl.Int8))).otherwise("x")
    )
    with pytest.raises(DataRefused, match="the row 'q00007' has 2 coordinates, others 6"):
        make("gotu", short)
    with pytest.raises(UsageError, match="no coordinate 6: rows have 6"):
        make("gotu", rows, coordinates=6)
    with pytest.raises(DataRefused, match="coordinate 'hard'"):
        make("gotu", rows, inputs="visual")
    hole = rows.with_columns(
        x=pl.when(pl.col("example_id") == "q00007").then(pl.lit([1, None, 1, 1, 1, 1], pl.List(pl.Int8))).otherwise("x")
    )
    assert make("gotu", hole).why("q00007") == "excluded: a coordinate is null"


# --- Super-CLEVR and Factor World


def test_every_level_is_trained_on_once_and_tested_from_every_other() -> None:
    rows = frame()
    split = make("super_clevr", rows, **SETTINGS["super_clevr"][1], controls=False)
    assert [axis for _, axis in axes(split)] == [
        f"{name}: trained on {level}"
        for name, levels in (
            ("layout", ("high", "low", "mid", "top")),
            ("redundancy", ("rd", "rd+", "rd-")),
            ("visual", ("easy", "hard", "mid")),
        )
        for level in levels
    ]
    for fold, axis in axes(split):
        loops.one_level(rows_of(split, rows, fold), BASE, axis)
    # a row is cut alike in each fold that trains on its level, so that the columns of the matrix are comparable
    inner = split.main.filter(pl.col("split").is_in(["train", "validation", "test"]))
    assert inner.group_by("example_id").agg(pl.col("split").n_unique())["split"].max() == 1


def test_a_plan_of_twelve_thousand_scenes_has_the_sizes_of_its_design() -> None:
    # four factors of three levels, shifted one at a time from a common base: 1 + 4 * 2 sets of 100 scenes
    factors = [f"factor{k}" for k in range(4)]
    sets = [dict.fromkeys(factors, "mid")] + [
        {**dict.fromkeys(factors, "mid"), name: level} for name in factors for level in ("low", "high")
    ]
    rows = pl.DataFrame([one for one in sets for _ in range(100)]).with_row_index("example_id")
    rows = rows.with_columns(pl.col("example_id").cast(pl.String))
    split = make("super_clevr", rows, base=dict.fromkeys(factors, "mid"), controls=False)
    sizes = split.main.group_by("fold").agg(
        (pl.col("split") == "test_ood").sum().alias("out"), (pl.col("split") == "excluded").sum().alias("rest")
    )
    assert len(sizes) == 12
    assert set(sizes["out"]) == {200}
    assert set(sizes["rest"]) == {600}


@pytest.mark.parametrize("seed", range(3))
def test_new_values_of_one_factor_or_of_two_are_those_of_loops(seed: int) -> None:
    rows = frame()
    factors = ["visual", "redundancy", "layout"]
    split = make("factor_world", rows, seed=seed, factors=factors, fraction=0.3, pairs=True, controls=False)
    new: dict[str, set[str]] = {}
    for name in factors:
        levels = rows[name].drop_nulls().unique().sort()
        draw = dict(zip(levels, uniform(levels, seed, f"split factor_world {name}"), strict=True))
        drawn = {value for value, u in draw.items() if u < 0.3} or {min(draw, key=lambda value: draw[value])}
        new[name] = drawn if len(drawn) < len(levels) else drawn - {max(draw, key=lambda value: draw[value])}
    assert [axis for _, axis in axes(split)] == [
        "layout", "redundancy", "visual", "layout + redundancy", "layout + visual", "redundancy + visual"
    ]  # fmt: skip
    for fold, axis in axes(split):
        loops.new_values(rows_of(split, rows, fold), new, axis)
    assert split.select(fold=0).why("q00009").startswith("excluded: ")


def test_values_that_are_named_are_trained_on_and_all_others_are_new() -> None:
    rows = frame()
    split = make("factor_world", rows, **SETTINGS["factor_world values"][1], controls=False)
    for fold, axis in axes(split):
        loops.new_values(rows_of(split, rows, fold), {"visual": {"hard"}, "layout": {"low", "high", "top"}}, axis)
    both = rows.filter((pl.col("visual") == "hard") & (pl.col("layout") == "top"))["example_id"][0]
    assert split.select(fold=0).why(both) == (
        "excluded: layout top is new; visual hard is new; this fold is about layout alone"
    )


# --- levels, steps, lengths


def test_levels_of_texts_are_read_and_those_of_subjects_are_apart() -> None:
    rows = frame()
    split = make("math_levels", rows)
    here = rows_of(split, rows)
    loops.up_to(here, [loops.level_number(row["level"]) for row in here], 3)
    assert split.why("q00003") == "excluded: level is null or not known"
    assert set(split.main["held_out"].drop_nulls()) == {"level=4", "level=5"}
    parts = make("math_levels", rows, level="grade", train="< 3", subject="domain", controls=False)
    for fold, axis in axes(parts):
        one = rows_of(parts, rows, fold)
        subject = axis.removeprefix("level, domain ")
        loops.up_to(one, [row["grade"] if row["domain"] == subject else None for row in one], 2)
    with pytest.raises(DataRefused, match="the row 'q00002' has the level 'Stage 2'"):
        make("math_levels", rows.with_columns(level=pl.lit("Stage 2").str.head(7)).sort("example_id")[2:])
    one_sided = rows.with_columns(grade=pl.when(pl.col("domain") == "dance").then(1).otherwise("grade"))
    left = make("math_levels", one_sided, level="grade", subject="domain", controls=False)
    assert left.warnings[0] == "domain dance has levels on one side of <= 3 alone: no fold"
    assert len(axes(left)) == 3


@pytest.mark.data
def test_steps_of_gsm8k_are_the_published_counts_and_the_gap_is_there(data: Path) -> None:
    test = pl.read_ndjson(data / "gsm8k" / "test.jsonl").with_row_index("item")
    train = pl.read_ndjson(gzip.decompress((data / "gsm8k" / "train.jsonl.gz").read_bytes()))
    assert (len(train), len(test)) == (7_473, 1_319)
    # lines of the test set that are not empty: one answer of six lines has an empty one
    lines = {2: 326, 3: 370, 4: 298, 5: 175, 6: 87, 7: 40, 8: 20, 9: 2, 11: 1}
    rows = test.with_columns(example_id=pl.format("g{}", pl.col("item").cast(pl.String).str.zfill(4)))
    split = make("gsm8k_steps", rows, answer="answer", train="<= 4", controls=False)
    assert split.counts["test_ood"] == sum(count for n, count in lines.items() if n > 4)
    told = dict(split.main["held_out"].drop_nulls().value_counts().iter_rows())
    assert told == {f"steps={n}": count for n, count in lines.items() if n > 4}
    here = rows_of(split, rows)
    loops.up_to(here, [loops.answer_lines(row["answer"]) for row in here], 4)
    marked = make("gsm8k_steps", rows, answer="answer", train="<= 4", count="calculations", controls=False)
    assert marked.counts["excluded"] == 18
    assert marked.counts["test_ood"] == 138 + 57 + 21 + 9
    whole = train.with_columns(example_id=pl.int_range(pl.len()).cast(pl.String).str.zfill(4))
    wide = make("gsm8k_steps", whole, answer="answer", train="<= 4", controls=False)
    assert wide.counts["test_ood"] == 954 + 419 + 228 + 90 + 13
    # four models of the literature are worse beyond four lines, by what the lines of the whole set say
    scores = pl.read_parquet(data / "gsm8k" / "test_4models_correct.parquet")
    models = [name for name in scores.columns if name[0] in "61"]
    mean = rows.join(scores.with_columns(score=pl.mean_horizontal(models)), on="question").select("example_id", "score")
    at = dict(split.main.join(mean, on="example_id").group_by("split").agg(pl.col("score").mean()).iter_rows())
    assert at["test_ood"] < 0.2 < 0.4 < at["test"]


@pytest.mark.parametrize(
    ("answer", "steps"),
    [
        ("a\nb\n#### 3", 2), ("a\n\n  \nb\n#### 3", 2), ("#### 3", None), ("a\nb", 2), ("", None), (None, None),
        ("a\n#### 3\nafterwards", 1), ("one #### two\nb\n####3", 2),
    ],
)  # fmt: skip
def test_steps_are_the_lines_before_the_final_answer(answer: str | None, steps: int | None) -> None:
    rows = examples(200).with_columns(
        output=pl.when(pl.col("n_steps") > 2).then(pl.lit("a\n#### 1")).otherwise(pl.lit("\n".join("abcd")))
    )
    rows = rows.with_columns(
        output=pl.when(pl.col("example_id") == "q00000").then(pl.lit(answer, pl.String)).otherwise("output")
    )
    split = make("gsm8k_steps", rows, train="<= 1")
    assert split.why("q00000").split(": ")[1].split(" ")[:2] == (
        ["output", "shows"] if steps is None else ["steps", str(steps)]
    )
    assert loops.answer_lines(answer) == steps
    assert holds(split, rows)


def test_prefix_sums_are_trained_on_up_to_32_bits_and_tested_at_each_published_length() -> None:
    lengths = [16, 20, 24, 28, 32, 36, 40, 44, 48, 512]
    rows = pl.DataFrame({"length": [n for n in lengths for _ in range(100)]}).with_row_index("example_id")
    rows = rows.with_columns(pl.col("example_id").cast(pl.String).str.zfill(4))
    split = make(
        "train_short_test_long", rows, column="length", train=[24, 32], lengths=[40, 44, 48, 512], controls=False
    )
    for fold, most in ((0, 24), (1, 32)):
        here = rows_of(split, rows, fold)
        loops.up_to(here, [row["length"] for row in here], most, {40, 44, 48, 512})
        told = dict(split.select(fold=fold).main["held_out"].drop_nulls().value_counts().iter_rows())
        assert told == {f"length={n}": 100 for n in (40, 44, 48, 512)}
    assert split.select(fold=1).why("0500") == "excluded: length 36 > 32, and not a length that is tested"
    inner = split.main.filter(pl.col("split").is_in(["train", "validation", "test"]))
    assert inner.group_by("example_id").agg(pl.col("split").n_unique())["split"].max() == 1
    more = make("train_short_test_long", rows, column="length", train=32, lengths=[40, "44..48", 100], controls=False)
    assert set(more.main["held_out"].drop_nulls()) == {"length=40", "length 44..48"}
    assert more.warnings == ("length <= 32: no row is tested with length == 100",)
    with pytest.raises(DataRefused, match="no row has length > 512"):
        make("train_short_test_long", rows, column="length", train=512)


# --- templates


def test_questions_of_one_template_are_on_one_side(data: Path) -> None:
    # a stand-in for query splits: 40 programs, each column with constants of its kind
    kinds = {"state": ["'Texas'", '"new york"', "'x'"], "mouth": ["'a b'", '"c"'], "size": ["12", "-3.5", "1,000"]}
    kinds |= {"year": ["1999", "2001"], "len": ["1", "0.5"]}
    programs = [
        (f"SELECT {a} FROM {t} WHERE {c} = ", kinds[c])
        for a in ("name", "MAX(age)", "COUNT(*)", "id, name")
        for t in ("river", "city")
        for c in kinds
    ]
    which = [(i * 7 + i // 40 * 3) % 40 for i in range(900)]
    rows = pl.DataFrame(
        {
            "example_id": [f"r{i:03d}" for i in range(900)],
            "sql": [programs[k][0] + programs[k][1][i % len(programs[k][1])] for i, k in enumerate(which)],
            "which": which,
        }
    )
    split = make("template_split", rows, column="sql", mask="constants", entities=False, controls=False)
    trained, tested = loops.no_shared(rows_of(split, rows), lambda row: row["which"])
    assert trained + tested == rows["which"].n_unique()
    assert tested > 0
    assert "SELECT" not in " ".join(split.main["held_out"].drop_nulls().unique()), "texts stay with the examples"
    plain = make("random", rows, controls=False)
    shared = set(rows.filter(pl.col("example_id").is_in(plain.train.implode()))["which"]) & set(
        rows.filter(pl.col("example_id").is_in(plain.ids("test").implode()))["which"]
    )
    assert shared, "a question split shares templates"
    questions = pl.read_ndjson(data / "gsm8k" / "test.jsonl").with_row_index("example_id")
    questions = questions.with_columns(pl.col("example_id").cast(pl.String).str.zfill(4))
    real = make("template_split", questions, column="question", mask="constants", controls=False)
    named = questions.with_columns(template=mask(questions["question"]))
    loops.no_shared(rows_of(real, named), lambda row: row["template"])


def test_skeletons_of_trees_are_on_one_side() -> None:
    rows = frame()
    split = make("template_split", rows, **SETTINGS["template_split skeleton"][1], controls=False)

    def skeleton(row: dict[str, Any]) -> str:
        nodes = row["structure"]
        inner = {node["parent"] for node in nodes}
        return " ".join(f"{n['parent']}:{n['label'] if n['node'] in inner else '_'}" for n in nodes)

    assert sum(loops.no_shared(rows_of(split, rows), skeleton)) == 9


# --- pairs of labels


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "c", 'd"; +']) | st.none(), max_size=4) | st.none(),
        min_size=60,
        max_size=140,
    ),
    st.integers(0, 99),
    st.sampled_from([0.2, 0.5]),
    st.integers(1, 6),
)
@settings(max_examples=15)
def test_labels_of_held_out_pairs_are_trained_on_apart(
    rows: list[list[str | None] | None], seed: int, fraction: float, least: int
) -> None:
    table = pl.DataFrame({"labels": pl.Series(rows, dtype=pl.List(pl.String))})
    table = table.with_columns(
        pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]), g=pl.int_range(pl.len()) // 3
    ).with_columns(pl.col("g").cast(pl.String))
    for together in ([], "g"):
        try:
            split = make(
                "holdout_label_pairs",
                table,
                seed=seed,
                fraction=fraction,
                keep_labels=least,
                test=0.3,
                keep_together=together,
            )
        except DataRefused:
            continue
        here = rows_of(split, table)
        if not together:
            loops.label_pairs(here, "labels", least)
        trained: dict[str, int] = {}
        for row in here:
            for label in {*(row["labels"] or ())} - {None}:
                trained[label] = trained.get(label, 0) + (row["split"] == "train")
        whole = table.explode("labels").drop_nulls("labels").unique(["example_id", "labels"])["labels"].value_counts()
        assert all(trained[label] >= min(least, count) for label, count in whole.iter_rows())
        assert holds(split, table)


def test_a_pair_that_would_empty_a_label_is_passed_over_or_refused_by_name() -> None:
    lists = [["a", "b"]] * 50 + [["a"]] * 100 + [["c", "a"]] * 50 + [["c"]] * 50
    rows = pl.DataFrame({"labels": lists, "example_id": [f"r{i:03d}" for i in range(250)]})
    for seed in range(5):
        split = make("holdout_label_pairs", rows, seed=seed, fraction=0.9, controls=False)
        assert loops.label_pairs(rows_of(split, rows), "labels", 1) == {("a", "c")}, "b is never without a"
        assert split.warnings == ("1 drawn pairs would have taken the last rows of a label",) or seed
    with pytest.raises(DataRefused, match="a label would keep too few rows"):
        make("holdout_label_pairs", rows, pairs=["a", "b"])
    with pytest.raises(UsageError, match=r"no label 'cc' .did you mean 'c'"):
        make("holdout_label_pairs", rows, pairs=[["a", "cc"]])
    with pytest.raises(DataRefused, match="no row has two labels"):
        make("holdout_label_pairs", rows.with_columns(labels=pl.lit(["a"], pl.List(pl.String))), fraction=0.5)
    apart = make("holdout_label_pairs", rows, pairs=[["c", "a"], ["b", "c"]], controls=False)
    assert apart.warnings == ("no row has b + c: it is held out already",)


# --- local structures


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_each_test_row_has_a_structure_that_train_lacks_and_every_symbol_stays(n: int, seed: int) -> None:
    rows = frame()
    split = make("n_ls", rows, seed=seed, n=n, fraction=0.2, tolerance=0.05, keep_symbols=30, controls=False)
    loops.held_structures(rows_of(split, rows), n, 30)
    share = split.counts["test_ood"] / len(rows)
    assert 0.2 <= share <= 0.25 or split.warnings
    told = hard_rates(split, rows, n=[n]).filter(pl.col("split") == "test_ood")
    assert told.select("rows", "hard", "rate").rows() == [(split.counts["test_ood"], split.counts["test_ood"], 1.0)]


def test_named_structures_are_held_out_and_frequency_bands_are_kept() -> None:
    rows = frame()
    split = make("n_ls", rows, structures="parent 'f', child 'y'", controls=False)
    has = [
        any(node["label"] == "y" and nodes[node["parent"]]["label"] == "f" for node in nodes)
        for nodes in rows["structure"].to_list()
    ]
    assert split.ids("test_ood").equals(rows.filter(pl.Series(has))["example_id"])
    assert split.why(split.ids("test_ood")[0]) == "test_ood: holds parent 'f', child 'y'"
    banded = make("n_ls", rows, fraction=0.3, n=3, band=[0.02, 0.05], controls=False)
    own = [loops.structures(nodes, 3) for nodes in rows["structure"].to_list()]
    for piece in {p for text in banded.main["held_out"].drop_nulls().unique() for p in text.split("; ")}:
        holders = banded.main.filter(pl.col("held_out").str.contains(piece, literal=True)).height
        assert 0.02 <= holders / len(rows) <= 0.05 + 1e-9, piece
    assert len(own) == len(rows)
    with pytest.raises(UsageError, match=r"no row has the structure .*did you mean"):
        make("n_ls", rows, structures="parent 'f', child 'yy'")
    with pytest.raises(DataRefused, match=r"none of the .* structures can be held out"):
        make("n_ls", rows, fraction=0.01, tolerance=0.0)
    with pytest.raises(DataRefused, match="a symbol of the held-out structures would keep fewer than 1 rows"):
        make("n_ls", rows, structures=[f"parent '{up}', child 'y'" for up in "fgh"])
    with pytest.raises(DataRefused, match="no row has a tree"):
        make("n_ls", rows.with_columns(structure=pl.lit(None, rows.schema["structure"])), fraction=0.1)


def command_tree(command: str) -> str:
    """A SCAN command in brackets: conjunction, repetition, modifier (D a direction, V none), words."""
    joins = next((word for word in ("and", "after") if f" {word} " in command), "")
    clauses = []
    for clause in command.split(f" {joins} ") if joins else [command]:
        words = clause.split()
        times = words.pop() if words[-1] in ("twice", "thrice") else "once"
        kind = words.pop(1) if len(words) == 3 else {1: "V", 2: "D"}[len(words)]
        clauses.append(f"({times} ({kind} {' '.join(words)}))")
    return f"({joins or 'C'} {' '.join(clauses)})"


@pytest.mark.data
def test_the_rule_on_the_public_splits_of_scan_is_the_known_table(data: Path) -> None:
    public = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    trees, wrong = parse(pl.Series("structure", [command_tree(command) for command in public["command"]]))
    assert wrong.null_count() == len(public) == 20_910
    rows = public.with_columns(trees, example_id="command")
    known = {
        "simple": (0, 0), "addprim_turn_left": (0, 0), "addprim_jump": (0.871, 0.958), "template_around_right": (1, 1),
        "template_jump_around_right": (0, 1), "length": (0, 0.802),
    }  # fmt: skip
    for name, (two, three) in known.items():
        place = rows.select("example_id", split=pl.col(f"split_{name}"))
        told = dict(hard_rates(place, rows).select("n", "rate").iter_rows())
        assert told == pytest.approx({2: two, 3: three}, abs=6e-4), name


# --- what cannot be meant


@pytest.mark.parametrize(
    ("method", "setting", "words"),
    [
        ("omega", {}, "exploratory needs 'train'"),
        ("omega", {"train": "about 3"}, "valid is a condition"),
        ("omega", {"regimes": ["compositional", "compositional"]}, "comes twice"),
        ("omega", {"regimes": "compositional", "pairs": [["a", "a"]]}, "is one skill"),
        ("gotu", {"regions": "hamming_weight"}, "needs 'weights'"),
        ("gotu", {"coordinates": -1}, "count from 0"),
        ("super_clevr", {}, "base"),
        ("factor_world", {"factors": ["visual", "layout"]}, "name the train_values of 'visual'"),
        ("factor_world", {"factors": "visual", "train_values": {"layuot": "mid"}}, "not among the factors"),
        ("gsm8k_steps", {}, "train"),
        ("train_short_test_long", {"train": 3, "lengths": "about 4"}, "valid is a condition"),
        ("template_split", {"mask": "all"}, "mask"),
        ("holdout_label_pairs", {}, "either the 'pairs'"),
        ("n_ls", {}, "either the 'structures'"),
        ("n_ls", {"fraction": 0.1, "band": [0.5, 0.1]}, "no range of shares"),
    ],
)
def test_settings_that_say_too_little_are_answered(method: str, setting: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        configure(get("split", method), setting)


@pytest.mark.parametrize(
    ("method", "setting", "words"),
    [
        ("omega", {"train": "<= 3", "level": "structure"}, "holds List"),
        ("omega", {"regimes": "compositional", "pairs": [["a", "bb"]]}, "no skill 'bb' .did you mean 'b'"),
        ("omega", {"regimes": "compositional", "skills": "structure"}, "single values, or lists of them"),
        ("omega", {"regimes": "compositional", "skills": "visual"}, "no row joins two skills"),
        ("omega", {"regimes": "transformative", "strategy": "visual", "marked": "hrad"}, "did you mean 'hard'"),
        ("super_clevr", {"base": {"visual": "eesy"}}, "no level 'eesy' .did you mean 'easy'"),
        ("super_clevr", {"base": BASE, "min_rows": 5000}, "no level of layout, redundancy, visual has 5000 rows"),
        ("factor_world", {"factors": "visual", "train_values": {"visual": ["esay"]}}, "did you mean 'easy'"),
        ("factor_world", {"factors": ["one", "visual"], "fraction": 0.5}, "'one' has 1 values"),
        ("math_levels", {"level": "n_steps", "subject": "example_id"}, "no example_id has levels on both sides"),
        ("gsm8k_steps", {"train": "<= 3", "answer": "n_steps"}, "worked answers"),
        ("train_short_test_long", {"train": 3, "column": "domain"}, "compares with numbers"),
        ("template_split", {"column": "n_steps", "mask": "constants"}, "holds Int64"),
        ("template_split", {"column": "structure"}, "holds List"),
        ("template_split", {"column": "one"}, "has 1 templates"),
        (
            "template_split",
            {"fraction": 0.0001},
            "(?s)split template_split: none of the .* raise fraction above .*, or take another seed",
        ),
        ("math_levels", {"train": "<= 5"}, "no row has level > 5: they have 1 to 5"),
        ("gsm8k_steps", {"train": "> 40", "steps": "n_steps"}, "no row has n_steps > 40: they have 1 to 12"),
    ],
)
def test_rows_that_cannot_be_split_so_are_refused_with_what_would_do(
    method: str, setting: dict[str, Any], words: str
) -> None:
    rows = frame().with_columns(one=pl.lit("x"))
    with pytest.raises((UsageError, DataRefused), match=words):
        make(method, rows, **setting)


@pytest.mark.parametrize("method", sorted({method for method, _ in SETTINGS.values()} | {"holdout_values", "mcd"}))
def test_one_column_to_keep_together_needs_no_list(method: str) -> None:
    setting = {**next((s for m, s in SETTINGS.values() if m == method), {}), "keep_together": "template"}
    if method == "holdout_values":
        setting |= {"column": "domain", "values": "dance"}
    assert configure(get("split", method), setting).keep_together == ("template",)


@pytest.mark.parametrize(
    "name", ["math_levels", "gsm8k_steps", "template_split constants", "super_clevr", "factor_world"]
)
def test_categories_are_read_as_texts(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame()
    plain = make(method, rows, **setting, controls=False)
    sorts = rows.with_columns(pl.col(pl.String).exclude("example_id").cast(pl.Categorical))
    split = make(method, sorts, **setting, controls=False)
    assert split.main["split"].equals(plain.main["split"])
    assert holds(split, sorts)


@pytest.mark.parametrize("name", SETTINGS)
def test_few_rows_or_none_and_rows_of_nulls_are_refused_and_never_crash(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame()
    nothing = rows.with_columns(
        pl.lit(None, kind).alias(column) for column, kind in rows.schema.items() if column != "example_id"
    )
    untyped = rows.with_columns(pl.lit(None).alias(column) for column in rows.columns if column != "example_id")
    alike = pl.concat([rows[:1]] * 60).with_columns(example_id=pl.int_range(60).cast(pl.String).str.zfill(2))
    for few in (rows[:0], rows[:1], nothing, untyped, alike):
        with pytest.raises((DataRefused, UsageError)) as error:
            make(method, few, **setting)
        assert error.value.what


def test_presets_of_one_fold_can_be_composed() -> None:
    rows = frame()
    rules = [{"math_levels": {}}, {"train_short_test_long": {"train": 20}}]
    split = make("composed", rows, any=rules)
    assert split.counts["test_ood"] > 0
    with pytest.raises(UsageError, match="'gotu' has 2 folds here"):
        make("composed", rows, any=[{"gotu": {"coordinates": [0, 1]}}])


def released_in_test() -> tuple[pl.DataFrame, str]:
    """Rows of which one is the only lower level of its template and the only one of its skill, and is drawn to test."""
    many = pl.DataFrame(
        {
            "example_id": [f"m{i:03d}" for i in range(80)],
            "template": ["usual"] * 80,
            "level": [1 + i % 5 for i in range(80)],
            "skills": [["a"], ["b"], ["a", "b"], ["b"]] * 20,
        }
    )
    for i in range(200):
        row = {"example_id": [f"r{i}"], "template": ["rare"], "level": [1], "skills": [["rare"]]}
        rows = pl.concat([many, pl.DataFrame(row)])
        drawn = make("omega", rows, train="<= 3", regimes=["exploratory", "compositional"], controls=False)
        places = drawn.main.filter(pl.col("example_id") == f"r{i}")["split"].to_list()
        if places == ["test", "test"]:
            return rows, f"r{i}"
    raise AssertionError("no row was drawn to test")


def test_what_a_release_holds_in_test_trains_no_template_and_no_skill() -> None:
    rows, rare = released_in_test()
    setting: dict[str, Any] = {"train": "<= 3", "regimes": ["exploratory", "compositional"]}
    before = make("omega", rows, **setting)
    late = pl.DataFrame({"example_id": ["late"], "template": ["rare"], "level": [5], "skills": [["a", "rare"]]})
    later = pl.concat([rows, late])
    after = make("omega", {"examples": later, "frozen": before.table}, **setting)
    told = after.main.filter(pl.col("example_id") == "late").sort("fold")
    assert told["split"].to_list() == ["excluded", "excluded"]
    assert told["reason"].to_list() == [
        "level 5 > 3 of template rare; each level <= 3 of the template is released in test",
        "joins a + rare; nowhere alone in train: rare",
    ]
    assert after.main.filter(pl.col("example_id") == rare)["split"].to_list() == ["test", "test"]
    assert holds(after, later)
    assert axes(after) == [(0, "exploratory"), (1, "compositional")]
    # without the release the row is trained on, and what is late is tested
    assert set(make("omega", later, **setting).main.filter(pl.col("example_id") == "late")["split"]) == {"test_ood"}


@pytest.mark.parametrize("name", ["omega", "gotu", "super_clevr", "factor_world", "train_short_test_long"])
def test_a_release_with_its_controls_numbers_the_folds_as_one_without(name: str) -> None:
    method, setting = SETTINGS[name]
    every = frame()
    before = make(method, every.head(900), **setting)
    assert before.table["strategy"].n_unique() > 1
    after, plain = (make(method, {"examples": every, "frozen": one}, **setting) for one in (before.table, before.main))
    assert after.table.equals(plain.table)
    assert set(axes(before)) <= set(axes(after))


def test_a_factor_of_the_map_keeps_rows_together_and_certifies() -> None:
    rows = frame(300)
    maps = [[{"key": "template", "value": name}] for name in rows["template"]]
    inside = rows.drop("template").with_columns(factors=pl.Series(maps))
    setting: dict[str, Any] = {"train": [20], "keep_together": "template", "test": 0.3}
    split = make("train_short_test_long", inside, **setting)
    assert split.table.equals(make("train_short_test_long", rows, **setting).table)
    certificate = split.certify(inside)
    assert certificate.holds
    assert certificate.table["check"].str.contains("template").any()

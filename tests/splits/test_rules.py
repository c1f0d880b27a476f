"""Rules over values: held-out values, combinations, grids and what composes them, against loops over dicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import rules as loops
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash, uniform
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits import factor_tables
from gradatim.tasks.splits.constraints import constraint
from gradatim.tasks.splits.grid import in_band
from gradatim.tasks.splits.result import Split

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_rules.json"
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "values": ("holdout_values", {"column": "domain", "values": ["dance"]}),
    "values drawn": ("holdout_values", {"column": "size", "fraction": 0.3}),
    "labels drawn": ("holdout_values", {"column": "tags", "fraction": 0.3}),
    "cells": ("holdout_combinations", {"columns": ["colour", "shape"], "cells": [{"colour": "red", "shape": "disc"}]}),
    "pairs drawn": (
        "holdout_combinations",
        {
            "columns": ["colour", "shape", "size"],
            "r": 2,
            "fraction": 0.1,
            "keep_values": 7,
            "keep_together": "template",
        },
    ),
    "grid": ("grid", {"columns": ["colour", "size"], "k": 3}),
    "grid of three": ("grid", {"columns": ["colour", "domain", "four"], "k": 2}),
    "subspace": ("subspace", {"train": "1 < n_steps <= 9 and (size != '3' or len(tags) < 2)"}),
    "composed": (
        "composed",
        {
            "any": [
                {"threshold": {"column": "n_steps", "train": "<= 9"}},
                {"holdout_values": {"column": "tags", "values": "a"}},
            ]
        },
    ),
}


def factors(n: int = 1200) -> pl.DataFrame:
    number = np.arange(n)
    return examples(n).with_columns(
        colour=pl.Series([("red", "green", "blue", "a; b")[(i * 13 + i // 7) % 4] for i in number]),
        shape=pl.Series([("square", "disc", "star")[(i * 5 + i // 11) % 3] for i in number]),
        size=pl.Series([str((i * 7 + i // 4) % 6) for i in number]),
        four=pl.Series((number // 16) % 4),
        tags=pl.Series([["abcde"[(i + j) % 5] for j in range(i % 4)] for i in number], dtype=pl.List(pl.String)),
    )


def holds(split: Split, frame: pl.DataFrame) -> bool:
    """Whether the strategy's own promise holds; without the rest of the certificate, which takes a second a split."""
    checks = constraint(split.method, split.settings, split.main.join(frame, on="example_id"))
    assert len([check for check in checks if check.holds is not None]) >= 2
    return all(check.holds is not False for check in checks)


def rows_of(split: Split, frame: pl.DataFrame) -> list[dict[str, Any]]:
    return split.main.join(frame, on="example_id").to_dicts()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_content_is_the_golden_one_whatever_the_order_and_the_promise_holds(name: str) -> None:
    method, setting = SETTINGS[name]
    frame = factors()
    split = make(method, frame, **setting)
    found = content_hash(split.table.to_arrow())
    mixed = frame.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1))
    assert content_hash(make(method, mixed, **setting).table.to_arrow()) == found
    assert holds(split, frame)
    golden = json.loads(GOLDEN.read_text())
    assert golden[name] == {"revision": get("split", method).revision, "content": found}, "raise the revision first"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_row_on_the_wrong_side_fails_the_promise(name: str) -> None:
    method, setting = SETTINGS[name]
    frame = factors()
    split = make(method, frame, **setting, controls=False)
    rows = split.main.join(frame, on="example_id")
    assert all(check.holds is not False for check in constraint(method, split.settings, rows))
    for wrong, right in (("train", "test_ood"), ("test_ood", "train")):
        first = rows.filter(pl.col("split") == right)["example_id"][0]
        moved = rows.with_columns(
            pl.when(pl.col("example_id") == first).then(pl.lit(wrong)).otherwise("split").alias("split")
        )
        assert any(check.holds is False for check in constraint(method, split.settings, moved)), (wrong, right)


values = st.sampled_from("abc") | st.none()


@given(
    rows=st.lists(
        st.tuples(values, st.lists(st.sampled_from("abcd") | st.none(), max_size=3) | st.none()),
        min_size=30,
        max_size=80,
    ),
    seed=st.integers(0, 50),
    fraction=st.sampled_from([None, 0.4]),
    share=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=15)
def test_held_out_values_and_labels_are_those_of_loops(
    rows: list[tuple[str | None, list[str | None] | None]], seed: int, fraction: float | None, share: float
) -> None:
    frame = pl.DataFrame(rows, schema={"value": pl.String, "labels": pl.List(pl.String)}, orient="row")
    frame = frame.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]))
    for column in ("value", "labels"):
        choice: dict[str, Any] = {"values": ["a"]} if fraction is None else {"fraction": fraction}
        try:
            split = make("holdout_values", frame, seed=seed, column=column, validation_ood=share, test=0.3, **choice)
        except (DataRefused, UsageError):
            continue
        held = {"a"}
        if fraction is not None:
            draw = dict(zip("abcd", uniform("abcd", seed, "split holdout_values values"), strict=True))
            held = {value for value, number in draw.items() if number < fraction}
        loops.holdout_values(rows_of(split, frame), column, held)


@given(
    rows=st.lists(
        st.tuples(values, values, st.sampled_from([1.5, 2.0, float("nan")]), st.sampled_from("ghijk") | st.none()),
        min_size=40,
        max_size=120,
    ),
    seed=st.integers(0, 50),
    r=st.sampled_from([2, 3]),
    fraction=st.sampled_from([0.1, 0.4, 0.8]),
    least=st.sampled_from([1, 3]),
    group=st.sampled_from([None, "g"]),
)
@settings(max_examples=25)
def test_held_out_combinations_leave_every_value_in_train_as_loops_count(
    rows: list[tuple[str | None, str | None, float, str | None]],
    seed: int,
    r: int,
    fraction: float,
    least: int,
    group: str | None,
) -> None:
    frame = pl.DataFrame(rows, schema={"p": pl.String, "q": pl.String, "x": pl.Float64, "g": pl.String}, orient="row")
    frame = frame.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]))
    setting = {"columns": ["q", "p", "x"], "r": r, "fraction": fraction, "keep_values": least, "test": 0.3}
    try:
        split = make("holdout_combinations", frame, seed=seed, keep_together=[group] if group else [], **setting)
    except DataRefused:  # too few rows; other tests read the words
        return
    loops.holdout_combinations(rows_of(split, frame), ["p", "q", "x"], r, least, group)
    assert holds(split, frame)


def test_a_combination_that_would_take_the_last_rows_of_a_value_is_swapped_for_the_next_in_the_draw() -> None:
    # p has ten values of two q each; every cell drawn below .5 would leave some p with nothing
    pairs = [(f"p{i}", f"q{j}") for i in range(10) for j in (i % 3, (i + 1) % 3)]
    frame = pl.DataFrame(pairs * 10, schema={"p": pl.String, "q": pl.String}, orient="row")
    frame = frame.with_columns(pl.Series("example_id", [f"r{i:03d}" for i in range(len(frame))]))
    swapped = 0
    for seed in range(12):
        split = make("holdout_combinations", frame, seed=seed, columns=["p", "q"], fraction=0.4, keep_together=[])
        names = sorted({f"p={p}, q={q}" for p, q in pairs})
        draw = uniform(["\x1f".join([name]) for name in names], seed, "split holdout_combinations cells")
        left = {value: 2 for value, _ in pairs} | {f"q{j}": sum(q == f"q{j}" for _, q in pairs) for j in range(3)}
        held, wanted = set(), int((draw < 0.4).sum())
        for _, name in sorted(zip(draw, names, strict=True)):
            p, q = (part.split("=")[1] for part in name.split(", "))
            if len(held) < wanted and left[p] > 1 and left[q] > 1:
                held.add(name)
                left[p], left[q] = left[p] - 1, left[q] - 1
        assert set(split.main["held_out"].drop_nulls()) == held
        swapped += any("others are held out in their place" in warning for warning in split.warnings)
    assert swapped


def test_a_value_that_cannot_stay_is_refused_with_its_counts() -> None:
    frame = factors()
    cells = [{"colour": "red", "shape": shape} for shape in ("square", "disc", "star")]
    with pytest.raises(DataRefused, match="colour=red keeps 0 of its 343 rows, and train is to have 2") as error:
        make("holdout_combinations", frame, columns=["colour", "shape"], cells=cells, keep_values=2)
    assert "keep_values" in error.value.remedy
    with pytest.raises(
        DataRefused, match=r"keeps [0-9]+ of its [0-9]+ rows, and train is to have 400: that is all it has"
    ):
        make("holdout_combinations", frame, columns=["colour", "shape"], fraction=0.1, keep_values=400)
    # a group that straddles takes the last in-distribution rows of a value with it
    tied = frame.with_columns(g=pl.when(pl.col("colour") == "red").then(pl.lit("all red")))
    with pytest.raises(DataRefused, match=r"colour=red keeps 0 of its 343 rows.*with the groups that they share"):
        make("holdout_combinations", tied, columns=["colour", "shape"], cells=cells[:1], keep_together="g")


def test_a_rare_value_whose_row_was_drawn_for_test_is_kept_in_train_and_says_so() -> None:
    frame = factors().with_columns(
        colour=pl.when(pl.col("example_id") == "q00077").then(pl.lit("rare")).otherwise("colour")
    )
    said = 0
    for seed in range(30):
        setting = {"columns": ["colour", "shape"], "fraction": 0.5, "controls": False, "test": 0.3}
        split = make("holdout_combinations", frame, seed=seed, **setting)
        assert split.why("q00077").startswith("train: colour=rare")
        said += split.why("q00077").endswith("; kept in train for the sake of its values")
    assert said > 3


@pytest.mark.parametrize(
    ("sizes", "k"),
    [([5, 5], 2), ([7, 7], 6), ([3, 8], 3), ([8, 3], 1), ([9, 4], 3), ([4, 4, 4], 1), ([5, 5, 5, 5], 3), ([12, 5], 2)],
)
def test_the_band_has_exactly_k_cells_a_row_and_columns_as_even_as_can_be(sizes: list[int], k: int) -> None:
    cells = np.stack(np.meshgrid(*[np.arange(size) for size in sizes], indexing="ij"), axis=-1).reshape(-1, len(sizes))
    chosen = cells[in_band(cells, sizes, k)]
    for place in range(len(sizes)):
        count = np.bincount(chosen[:, place], minlength=sizes[place])
        if len(sizes) == 2:
            share = k * sizes[0] / sizes[place]
            assert set(count) <= {int(np.floor(share)), int(np.ceil(share))}
        else:  # every choice of the other columns has exactly k values of this one
            assert set(count) == {k * sizes[0] ** (len(sizes) - 2)}
            others = np.delete(chosen, place, axis=1)
            assert set(np.unique(others, axis=0, return_counts=True)[1]) == {k}
    assert len(chosen) / len(cells) == pytest.approx(k / sizes[-1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("columns", "k"),
    [(["colour", "domain"], 1), (["colour", "size"], 2), (["size", "colour"], 3), (["colour", "domain", "four"], 1)],
)
def test_grids_are_those_of_loops_and_differ_from_seed_to_seed(columns: list[str], k: int, seed: int) -> None:
    frame = factors(4800).with_columns(domain=pl.Series(np.random.default_rng(1).permutation(4800) % 4).cast(pl.String))
    frame = frame.with_columns(colour=pl.when(pl.col("example_id") != "q00003").then("colour"))
    split = make("grid", frame, seed=seed, columns=columns, k=k, controls=False)
    loops.grid(rows_of(split, frame), columns, k)
    assert split.why("q00003") == "excluded: colour is null"
    other = make("grid", frame, seed=seed + 10, columns=columns, k=k, controls=False)
    assert not other.main["split"].equals(split.main["split"])


def test_grids_that_cannot_be_are_refused_with_what_would_do() -> None:
    frame = factors()
    for columns, k, words in (
        (["colour", "size"], 6, "nothing would be held out"),
        (["shape", "size"], 1, "3 values of 'size' are never in train"),
        (["colour", "shape", "size"], 1, "different numbers of values"),
    ):
        with pytest.raises(UsageError, match=words):
            make("grid", frame, columns=columns, k=k)
    with pytest.raises(DataRefused, match="two values or more"):
        make("grid", frame.with_columns(one=pl.lit("x")), columns=["colour", "one"], k=1)
    gone = frame.filter(~((pl.col("colour") == "red") & (pl.col("size").is_in(["0", "1", "2", "3", "4"]))))
    with pytest.raises(DataRefused, match=r"of the 8 combinations meant for train have no row"):
        make("grid", gone, columns=["colour", "size"], k=2)
    split = make("grid", gone, columns=["colour", "size"], k=2, complete=False)
    assert holds(split, gone)


@pytest.mark.parametrize("name", ["values drawn", "labels drawn", "pairs drawn", "grid"])
def test_rows_that_come_after_a_release_move_nobody(name: str) -> None:
    method, setting = SETTINGS[name]
    setting = {**setting, "keep_together": [], "controls": False}
    frame = factors()
    before = make(method, frame.sample(fraction=0.8, seed=1), **setting)
    # new values come too, and one of them is drawn
    late = factors(1500)[1200:].with_columns(
        size=pl.when(pl.col("n_steps") < 4).then(pl.concat_str(pl.lit("new "), "n_steps")).otherwise("size"),
        tags=pl.when(pl.col("n_steps") < 4)
        .then(pl.concat_list(pl.lit("n"), pl.lit("m"), pl.lit("o")))
        .otherwise("tags"),
    )
    tables = {"examples": pl.concat([frame, late]), "frozen": before.main}
    after = make(method, tables, **setting)
    both = before.main.join(after.main, on="example_id")
    assert len(both) == len(before.main)
    inner = ["train", "validation", "test"]
    assert (both["split"].is_in(inner) == both["split_right"].is_in(inner)).all()
    assert both["held_out"].equals(both["held_out_right"])
    assert after.frozen[0].held == 0
    assert holds(after, tables["examples"])
    if name == "grid":
        assert after.warnings[0].endswith("have a value that came after the release; they are excluded")
        assert "came after the release" in after.why(late.filter(pl.col("n_steps") == 1)["example_id"][0])


def test_a_grid_whose_released_value_vanished_is_refused() -> None:
    frame, setting = factors(), SETTINGS["grid"][1]
    before = make("grid", frame, **setting)
    tables = {"examples": frame.filter(pl.col("size") != "3"), "frozen": before.main}
    with pytest.raises(DataRefused, match="the value '3' of 'size', of the released grid, has no rows any more"):
        make("grid", tables, **setting)


def test_composed_rules_say_out_where_any_or_all_do_and_join_their_reasons() -> None:
    frame = factors().with_columns(n_steps=pl.when(pl.col("example_id") != "q00004").then("n_steps"))
    rules = [
        {"threshold": {"column": "n_steps", "train": "<= 6"}},
        {"holdout_values": {"column": "domain", "values": "dance"}},
    ]
    kinds = {"any": pl.any_horizontal, "all": pl.all_horizontal}
    for word, joins in kinds.items():
        split = make("composed", frame, **{word: rules})
        out = frame.filter(joins(pl.col("n_steps") > 6, pl.col("domain") == "dance") & pl.col("n_steps").is_not_null())
        assert split.ids("test_ood").equals(out["example_id"])
        assert split.why("q00004") == "excluded: n_steps is null"
        assert holds(split, frame)
    split = make("composed", frame, any=rules)
    both = frame.filter((pl.col("n_steps") == 10) & (pl.col("domain") == "dance"))["example_id"][0]
    assert split.why(both) == "test_ood: n_steps 10 > 6; domain dance is held out"
    assert split.main.filter(pl.col("example_id") == both)["held_out"][0] == "n_steps > 6; domain=dance"
    dance = frame.filter((pl.col("n_steps") == 2) & (pl.col("domain") == "dance"))["example_id"][0]
    assert split.why(dance) == "test_ood: domain dance is held out"
    inside = frame.filter((pl.col("n_steps") == 1) & (pl.col("domain") != "dance"))["example_id"][0]
    assert split.why(inside).endswith(": n_steps 1 <= 6; domain astronomy is not held out")


def test_composed_combinations_keep_their_values_in_train_though_another_rule_takes_rows() -> None:
    frame = factors()
    combinations = {"holdout_combinations": {"columns": ["colour", "shape"], "fraction": 0.2, "keep_values": 3}}
    rules = [combinations, {"subspace": {"train": "n_steps <= 8"}}]
    split = make("composed", frame, any=rules)
    train = split.main.filter(pl.col("split") == "train").join(frame, on="example_id")
    assert train["colour"].value_counts()["count"].min() >= 3
    assert holds(split, frame)
    with pytest.raises(DataRefused, match="colour=red has 343 rows, of which 0 stay in distribution"):
        make("composed", frame, any=[combinations, {"subspace": {"train": "colour != 'red'"}}])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"any": [{"threshold": {"colum": "n"}}]}, r"any\[0\].threshold.*unknown key 'colum' .did you mean 'column'"),
        ({"any": [{"thresold": {}}]}, r"any\[0\]: there is no split 'thresold' .did you mean 'threshold'"),
        ({"all": [{"stratified": {}}]}, r"all\[0\]: 'stratified' is more than a rule"),
        ({"any": [{"threshold": {"column": "n", "train": "<= 3", "test": 0.2}}]}, r"'test' is said once for the whole"),
        ({"any": [{"composed": {"all": [{"subspace": {"train": "a <"}}]}}]}, r"any\[0\].composed.*all\[0\].subspace"),
        ({}, "either 'any' or 'all'"),
        ({"any": [{"random": {}}], "all": [{"random": {}}]}, "either 'any' or 'all'"),
    ],
)
def test_errors_in_nested_rules_name_the_path(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match="(?s)" + words):
        configure(get("split", "composed"), setting)


def test_rules_with_several_folds_are_not_composed() -> None:
    with pytest.raises(UsageError, match="'leave_one_domain_out' has 4 folds here") as error:
        make("composed", factors(), any=[{"leave_one_domain_out": {}}])
    assert "holdout_values" in error.value.remedy


@pytest.mark.parametrize(
    ("method", "setting", "words"),
    [
        ("holdout_values", {"column": "domain", "values": ["danse"]}, "no value 'danse' .did you mean 'dance'"),
        ("holdout_values", {"column": "domain"}, "either the 'values'"),
        (
            "holdout_values",
            {"column": "domain", "values": ["astronomy", "biology", "chemistry", "dance"]},
            "every value",
        ),
        ("holdout_values", {"column": "domain", "fraction": 0.0001}, "none of the 4 values .* is drawn"),
        ("holdout_combinations", {"columns": ["colour", "shape"], "r": 3, "fraction": 0.1}, "r is 3"),
        (
            "holdout_combinations",
            {"columns": ["colour", "shape"], "fraction": 0.0001},
            "none of the 12 combinations is drawn",
        ),
        ("holdout_combinations", {"columns": ["colour", "colour"], "fraction": 0.1}, "comes twice"),
        (
            "holdout_combinations",
            {"columns": ["colour", "shape"], "cells": [{"color": "red", "shape": "disc"}]},
            "did you mean 'colour'",
        ),
        (
            "holdout_combinations",
            {"columns": ["colour", "shape"], "cells": [{"colour": "rad", "shape": "disc"}]},
            "did you mean 'red'",
        ),
        ("holdout_combinations", {"columns": ["colour", "shape"]}, "either the 'cells'"),
        ("holdout_combinations", {"columns": ["tags", "shape"], "fraction": 0.1}, r"List\(String\)"),
        ("grid", {"columns": ["colour", "shap"], "k": 1}, "did you mean 'shape'"),
    ],
)
def test_what_cannot_be_meant_is_answered(method: str, setting: dict[str, Any], words: str) -> None:
    with pytest.raises((UsageError, DataRefused), match=words):
        make(method, factors(), **setting)


def test_values_of_other_kinds_than_text_are_named_as_a_recipe_writes_them() -> None:
    frame = factors().with_columns(
        number=(pl.col("n_steps") % 4).cast(pl.Float64),
        truth=pl.col("n_steps") > 3,
        kind=pl.col("domain").cast(pl.Categorical),
    )
    for column, value, mask in (
        ("number", 3, pl.col("number") == 3),
        ("truth", True, pl.col("truth")),
        ("n_steps", [1, 2], pl.col("n_steps") <= 2),
        ("kind", "dance", pl.col("domain") == "dance"),
    ):
        split = make("holdout_values", frame, column=column, values=value)
        assert split.ids("test_ood").equals(frame.filter(mask)["example_id"])
        assert holds(split, frame)


def test_coverage_distance_and_held_out_cells_of_a_grid() -> None:
    frame = factors()
    split = make("grid", frame, columns=["colour", "size"], k=3)
    covered = factor_tables.coverage(split, frame, ["colour", "size"])
    assert covered.select("factors", "possible", "seen", "coverage").rows() == [("colour, size", 24, 12, 0.5)]
    train = split.main.filter(pl.col("split") == "train").join(frame, on="example_id")
    shares = train.group_by("colour", "size").len()["len"].to_numpy() / len(train)
    assert covered["entropy"][0] == pytest.approx(-(shares * np.log(shares)).sum())
    away = factor_tables.nearest_train(split, frame, ["colour", "size"])
    # in a grid with k >= 1 a held-out cell has a trained neighbour in its row
    assert away["distance"].unique().to_list() == [1]
    assert away["example_id"].sort().equals(split.ids("test_ood"))
    cells = factor_tables.held_out_cells(split)
    assert len(cells) == 12
    assert cells["rows"].sum() == split.counts["test_ood"]


def test_scan_primitives_held_out_by_value_and_by_expression_agree(data: Path) -> None:
    scan = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").with_columns(
        pl.col("command").alias("example_id")
    )
    scan = scan.with_columns(words=pl.col("command").str.split(" "))
    jump = make("holdout_values", scan, column="words", values=["jump"], controls=False)
    # 7,706 test rows of the published split, and the bare primitive, which that one trains on
    assert jump.counts["test_ood"] == 7_707
    assert len(jump.main) - 7_707 == 13_204 - 1
    long = make("subspace", scan, train="n_actions <= 22", controls=False)
    assert long.counts["test_ood"] == 3_920

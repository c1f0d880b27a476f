"""Compositional presets: published sizes and sets of rows, brute force, numbers of the definitions, what is refused."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import presets_compositional as loops
from compositional_rows import (
    ENDINGS,
    OF_ATTRIBUTE,
    OPERATORS,
    ORDER,
    SKILLS,
    STARTS,
    cogs,
    gcog,
    med_mat,
    pgm,
    skill_mix,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash
from gradatim.tasks.core.registry import get
from gradatim.tasks.core.trees import TREE_DTYPE, parse
from gradatim.tasks.ingest.scan import ScanConfig, scan
from gradatim.tasks.splits import pgm_structures
from gradatim.tasks.splits.constraints import constraint
from gradatim.tasks.splits.pgm import REGIMES as PGM_REGIMES
from gradatim.tasks.splits.pgm import held_out
from gradatim.tasks.splits.result import Split

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_presets_compositional.json"
SIDE = {
    "train": "in",
    "validation": "in",
    "test": "in",
    "test_ood": "out",
    "validation_ood": "out",
    "excluded": "neither",
}
TARGET = {"modality": "CT", "anatomy": "Lung", "task": "Cancer"}
EVERY_MED_MAT = ["related", "unrelated", "without_modality", "without_anatomy", "without_task", "all"]
EVERY_GCOG = ["distractor", "systematic_depth1", "systematic_depth3", "productive"]


def scan_rows() -> pl.DataFrame:
    return next(iter(scan(ScanConfig()))).select("example_id", "input", "output")


FRAMES = {"scan": scan_rows, "cogs": cogs, "gcog": gcog, "skill_mix": skill_mix, "med_mat": med_mat, "pgm": pgm}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "scan": ("scan", {}),
    "cogs": ("cogs", {}),
    "cogs.kinds": ("cogs", {"by": "kind", "validation_ood": 0.3}),
    "cogs.case": ("cogs", {"by": "case", "cases": ["cp_recursion", "active_to_passive"]}),
    "gcog": ("gcog", {"regimes": EVERY_GCOG}),
    "skill_mix": ("skill_mix", {}),
    "skill_mix.categories": (
        "skill_mix",
        {"regimes": ["k", "category", "both"], "held_out": ["literary", "rhetorical"], "categories": SKILLS,
         "train_k": [1, 2], "test_k": [3, 4], "mixed": "test"},
    ),
    "med_mat": ("med_mat", {"targets": [TARGET], "regimes": EVERY_MED_MAT}),
    "pgm": ("pgm", {"regimes": list(PGM_REGIMES)}),
}  # fmt: skip


def sides(split: Split, fold: int) -> dict[str, str]:
    rows = split.main.filter(pl.col("fold") == fold)
    return {name: SIDE[where] for name, where in rows.select("example_id", "split").iter_rows()}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_content_is_the_golden_one_whatever_the_order_and_the_other_columns(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = FRAMES[method]()
    split = make(method, rows, **setting)
    found = content_hash(split.table.to_arrow())
    mixed = rows.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1))
    assert content_hash(make(method, mixed, **setting).table.to_arrow()) == found
    for _, part in split.main.group_by("seed", "fold"):
        assert part["example_id"].to_list() == rows["example_id"].sort().to_list()
    golden = json.loads(GOLDEN.read_text())
    assert golden[name] == {"revision": get("split", method).revision, "content": found}, "raise the revision first"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_promise_holds_in_each_fold_and_a_row_moved_breaks_it(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = FRAMES[method]()
    split = make(method, rows, **setting, controls=False)
    table = split.main.join(rows, on="example_id", how="left", maintain_order="left")
    for _, part in table.group_by("fold", maintain_order=True):
        checks = constraint(method, split.settings, part)
        assert checks
        assert all(check.holds is not False for check in checks), [check for check in checks if check.holds is False]
        for here, there in (("test_ood", "train"), ("train", "test_ood")):
            own = part.filter(pl.col("split") == here)
            if own.is_empty() or part["held_out"].null_count() == len(part):
                continue
            label = part["held_out"].drop_nulls()[0] if there == "test_ood" else None
            first = pl.col("example_id") == own["example_id"][0]
            moved = part.with_columns(
                pl.when(first).then(pl.lit(there)).otherwise("split").alias("split"),
                pl.when(first).then(pl.lit(label, pl.String)).otherwise("held_out").alias("held_out"),
            )
            broken = constraint(method, split.settings, moved)
            assert any(check.holds is False for check in broken), (part["axis"][0], here, there)


@pytest.mark.parametrize("name", SETTINGS)
def test_adding_rows_moves_nobody(name: str) -> None:
    method, setting = SETTINGS[name]
    every = FRAMES[method]()
    few = every.sample(fraction=0.7, seed=5)
    if method in ("scan", "cogs"):  # what training has to see is among them
        seen = pl.col("input").is_in(["jump", "turn left"]) if method == "scan" else pl.col("type") != "in_distribution"
        few = pl.concat([few, every.filter(seen)]).unique("example_id")
    before, after = (make(method, rows, controls=False, **setting) for rows in (few, every))
    both = before.main.join(after.main, on=["fold", "example_id"])
    assert len(both) == len(before.main)
    assert (both["split"] == both["split_right"]).all()
    assert both["held_out"].equals(both["held_out_right"].alias("held_out"), null_equal=True)
    # and a release keeps its test rows where they are
    later = make(method, {"examples": every, "frozen": before.main}, controls=False, **setting)
    kept = before.main.filter(pl.col("split").is_in(["test", "test_ood"])).select("fold", "example_id", "split")
    assert kept.join(later.main, on=["fold", "example_id", "split"]).height == len(kept)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "scan" and not name.startswith("cogs")])
def test_groups_stay_whole_in_every_fold_and_what_is_tested_is_still_new(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = FRAMES[method]().with_columns(group=pl.format("g{}", pl.int_range(pl.len()) // 2))
    split = make(method, rows, controls=False, folds=2, **setting)
    both = split.main.join(rows, on="example_id")
    used = both.filter(pl.col("split") != "excluded").group_by("fold", "group").agg(pl.col("split").n_unique())
    assert used["split"].max() == 1
    for _, part in both.group_by("fold"):
        assert all(check.holds is not False for check in constraint(method, split.settings, part))


# --- SCAN

PUBLISHED = {
    1: ("length", 16_990, 3_920),
    2: ("addprim_jump", 13_204, 7_706),
    3: ("addprim_turn_left", 19_702, 1_208),
    4: ("template_around_right", 15_225, 4_476),
    5: ("template_jump_around_right", 18_528, 1_173),
}
FOLDS = ["simple", "length", "jump", "turn left", "around right", "jump around right"]


def test_scan_gives_the_published_sets_of_rows_exactly(data: Path) -> None:
    rows = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    rows = rows.with_columns(example_id=pl.format("s{}", pl.int_range(pl.len())), input="command", output="actions")
    split = make("scan", rows, controls=False)
    joined = split.main.join(rows, on="example_id")
    for fold, (name, train, test) in PUBLISHED.items():
        here = joined.filter(pl.col("fold") == fold)
        # what the papers train on is train, validation and test here
        mine = here["split"].replace({"validation": "train", "test": "train", "test_ood": "test", "excluded": ""})
        assert (mine == here[f"split_{name}"]).all(), name
        assert ((mine == "train").sum(), (mine == "test").sum()) == (train, test)
    assert joined.filter(fold=4)["split"].value_counts().filter(split="excluded")["count"].item() == 1_209
    # the lines of the paper's files: the bare primitive is repeated to a tenth of them
    for name, copies, lines, warning in (
        ("jump", 1_467, 14_670, split.warnings[1]), ("turn left", 2_189, 21_890, split.warnings[2]),
    ):  # fmt: skip
        column = f"ntrain_addprim_{name.replace(' ', '_')}"
        assert rows.filter(pl.col("input") == name)[column].item() == copies
        assert rows[column].sum() == lines
        assert f"{copies:,} times" in warning
    simple = joined.filter(fold=0)
    test = int((simple["split"] == "test").sum())
    assert abs(test - 4_182) < 4 * np.sqrt(20_910 * 0.2 * 0.8)
    assert "no rule gives back" in split.warnings[0]


def test_generated_scan_is_split_as_the_published_one_and_certified() -> None:
    rows = scan_rows()
    split = make("scan", rows, controls=False)
    sizes = {
        row["fold"]: (row["train"] + row["validation"] + row["test"], row["test_ood"])
        for row in split.sizes.filter(strategy="scan").iter_rows(named=True)
    }
    assert sizes == {0: (20_910, 0), **{fold: (train, test) for fold, (_, train, test) in PUBLISHED.items()}}
    some = pl.concat([rows.filter(pl.col("input") == "jump"), rows.sample(500, seed=1)]).unique("example_id")
    small = make("scan", some, kinds="add_primitive", primitives="jump")
    certificate = small.certify(some)
    assert certificate.holds, certificate.failures
    assert certificate.value("constraint:jump by itself is not trained on") == 0


WORDS = st.lists(st.sampled_from(["jump", "walk", "turn", "left", "right", "around", "after"]), min_size=1, max_size=5)


@given(
    rows=st.lists(st.tuples(WORDS | st.none(), st.integers(1, 40) | st.none()), min_size=120, max_size=160),
    seed=st.integers(0, 50),
)
@settings(max_examples=12, deadline=None)
def test_scan_rules_are_those_of_loops_over_words(rows: list[tuple[list[str] | None, int | None]], seed: int) -> None:
    bare = [(["jump"], 1), (["turn", "left"], 1), (["run", "around", "right"], 3), (["jump", "around", "right"], 30)]
    frame = pl.DataFrame(
        {
            "example_id": [f"c{place:03d}" for place in range(len(rows) + len(bare))],
            "input": [None if words is None else "  ".join(words) for words, _ in [*bare, *rows]],
            "output": [None if count is None else " ".join(["I_JUMP"] * count) for _, count in [*bare, *rows]],
        },
        schema_overrides={"input": pl.String, "output": pl.String},
    )
    try:
        split = make("scan", frame, seed=seed, controls=False)
    except DataRefused:  # a split would be empty
        return
    for fold, name in enumerate(FOLDS):
        assert sides(split, fold) == {row["example_id"]: loops.scan(row, name) for row in frame.to_dicts()}, name
    for fold in (2, 3):
        trained = split.main.filter(pl.col("fold") == fold, pl.col("split") == "train").join(frame, on="example_id")
        assert FOLDS[fold] in trained["input"].str.replace_all("  ", " ").to_list()
    checks = constraint("scan", split.settings, split.select(fold=4).main.join(frame, on="example_id"))
    assert all(check.holds for check in checks)


def test_scan_folds_keep_their_numbers_and_wrong_commands_are_refused() -> None:
    rows = scan_rows()
    one = make("scan", rows, kinds="template", templates="jump_around_right", controls=False)
    assert one.main["fold"].unique().to_list() == [5]
    assert one.counts["test_ood"] == 1_173
    name = rows.filter(pl.col("input") == "turn around right")["example_id"][0]
    assert "in neither set of the paper" in one.why(name)
    without = rows.filter(pl.col("input") != "jump")
    with pytest.raises(DataRefused, match="no row is the command 'jump' by itself"):
        make("scan", without, kinds="add_primitive", primitives="jump")
    with pytest.raises(DataRefused, match="would be empty"):
        make("scan", rows.with_columns(input=pl.lit("walk")), kinds="template")
    with pytest.raises(UsageError, match="no column 'command'"):
        make("scan", rows, command="command")
    with pytest.raises(UsageError, match="holds Int64"):
        make("scan", rows.with_columns(output=pl.lit(3, pl.Int64)), kinds="length")
    # columns that no kind reads need not be there
    assert make("scan", rows.drop("output"), kinds="add_primitive", primitives="jump", controls=False).counts
    assert make("scan", rows.select("example_id"), kinds="simple", controls=False).counts.get("test_ood", 0) == 0


# --- COGS


def test_cogs_leaves_the_published_files_as_they_are(data: Path) -> None:
    parts = []
    for name in ("train", "dev", "test"):
        part = pl.read_csv(
            data / "cogs" / f"{name}.tsv.gz", separator="\t", has_header=False, quote_char=None,
            new_columns=["input", "output", "type"],
        )  # fmt: skip
        parts.append(part.with_columns(file=pl.lit(name)))
    # the file of generalisation cases is too large to be at hand: its cases, ten rows each
    gen = pl.DataFrame({"type": [case for case in ORDER for _ in range(10)]})
    gen = gen.with_columns(
        input=pl.format("sentence {}", pl.int_range(pl.len())), output=pl.lit("x"), file=pl.lit("gen")
    )
    rows = pl.concat([*parts, gen.select("input", "output", "type", "file")])
    rows = rows.with_columns(example_id=pl.format("c{}", pl.int_range(pl.len())))
    split = make("cogs", rows, files="file", controls=False)
    counts = {name: count for name, count in split.counts.items() if count}
    assert counts == {"train": 24_155, "validation": 3_000, "test": 3_000, "test_ood": 210}
    both = split.main.join(rows, on="example_id")
    assert (both["split"] == both["file"].replace({"dev": "validation", "gen": "test_ood"})).all()
    checks = constraint("cogs", split.settings, both)
    assert all(check.holds for check in checks)
    drawn = make("cogs", rows, controls=False)
    shown = drawn.main.join(rows.filter(pl.col("type") != "in_distribution"), on="example_id")
    assert shown.filter(~pl.col("type").is_in(ORDER))["split"].value_counts().rows() == [("train", 155)]


def test_cogs_cases_are_the_21_of_the_published_index(data: Path) -> None:
    index = json.loads((data / "cogs" / "gen_cases_to_paper_sections.json").read_text())
    published = {name for name, told in index.items() if not told.startswith(("X.", "Dev"))}
    assert set(ORDER) == published
    structural = {name for name, told in index.items() if told.startswith(("3.2", "3.3"))}
    split = make("cogs", cogs(), by="kind", controls=False)
    named = {
        axis: {text.removeprefix("type=") for text in part["held_out"].drop_nulls()}
        for (axis,), part in split.main.group_by("axis")
    }
    assert named == {"structural": structural, "lexical": published - structural}
    assert len(published) == 21


@pytest.mark.parametrize("by", ["all", "kind", "case"])
def test_cogs_rows_are_where_a_loop_puts_them(by: str) -> None:
    rows = cogs().with_columns(type=pl.when(pl.col("example_id") == "e00003").then(None).otherwise("type"))
    split = make("cogs", rows, by=by, seed=4, controls=False)
    folds = {"all": {0: set(ORDER)}, "case": {sorted(ORDER).index(case): {case} for case in ORDER}}.get(by) or {
        0: set(ORDER) - {"cp_recursion", "pp_recursion", "obj_pp_to_subj_pp"},
        1: {"cp_recursion", "pp_recursion", "obj_pp_to_subj_pp"},
    }
    assert set(split.main["fold"].unique()) == set(folds)
    for fold, cases in folds.items():
        assert sides(split, fold) == {row["example_id"]: loops.cogs(row, cases) for row in rows.to_dicts()}
    shown = rows.filter(pl.col("type").str.contains("primitive|exposure"))["example_id"].implode()
    assert split.main.filter(pl.col("example_id").is_in(shown))["split"].unique().to_list() == ["train"]


def test_cogs_refuses_what_it_does_not_know() -> None:
    rows = cogs()
    with pytest.raises(UsageError, match="did you mean 'cp_recursion'"):
        make("cogs", rows.with_columns(type=pl.col("type").replace({"cp_recursion": "cp_recursions"})))
    with pytest.raises(UsageError, match="did you mean 'cp_recursion'"):
        make("cogs", rows, cases="cp_recursions")
    with pytest.raises(DataRefused, match="no row is of a generalisation case"):
        make("cogs", rows.filter(~pl.col("type").is_in(ORDER)))
    with pytest.raises(DataRefused, match="no row is of the case 'cp_recursion'"):
        make("cogs", rows.filter(pl.col("type") != "cp_recursion"), cases="cp_recursion")
    filed = rows.with_columns(file=pl.lit("train"))
    with pytest.raises(DataRefused, match="would be empty"):
        make("cogs", filed, files="file")
    with pytest.raises(DataRefused, match="is in distribution, and its file is 'gen'"):
        make("cogs", filed.with_columns(file=pl.lit("gen")), files="file")
    with pytest.raises(UsageError, match="no file of COGS"):
        make("cogs", filed.with_columns(file=pl.lit("traim")), files="file")
    with pytest.raises(UsageError, match="no 'folds'"):
        make("cogs", filed, files="file", folds=3)
    lone = make("cogs", rows.filter(~pl.col("type").str.contains("primitive|exposure")), controls=False)
    assert "never seen" in lone.warnings[0]


def test_a_group_over_several_published_files_goes_to_the_last_of_them() -> None:
    rows = cogs().with_columns(
        file=pl.when(pl.int_range(pl.len()) < 300).then(pl.lit("train")).otherwise(pl.lit("test")),
        group=pl.when(pl.col("example_id").is_in(["e00001", "e00310"])).then(pl.lit("same")),
    )
    split = make("cogs", rows, files="file", controls=False)
    assert split.main.filter(pl.col("example_id").is_in(["e00001", "e00310"]))["split"].to_list() == ["test", "test"]
    assert split.certify(rows).holds


# --- gCOG


@given(seed=st.integers(0, 200), nulls=st.booleans())
@settings(max_examples=12, deadline=None)
def test_gcog_rows_are_where_a_loop_puts_them(seed: int, nulls: bool) -> None:
    rows = gcog(1500, seed)
    if nulls:
        gone = (pl.int_range(pl.len()) * 7919) % 13 == 0
        rows = rows.with_columns(pl.when(gone).then(None).otherwise(pl.all().exclude("example_id")).name.keep())
    colors, shapes = {"red", "pink", "grey"}, {"e", "f", "g", "h"}
    split = make(
        "gcog", rows, seed=seed, regimes=EVERY_GCOG, colors=sorted(colors), shapes=sorted(shapes), controls=False
    )
    setting = {"operators": OPERATORS, "starts": STARTS, "endings": ENDINGS}
    for fold, regime in enumerate(EVERY_GCOG):
        expected = {row["example_id"]: loops.gcog(row, regime, colors, shapes, setting) for row in rows.to_dicts()}
        assert sides(split, fold) == expected, regime
        part = split.main.filter(pl.col("fold") == fold).join(rows, on="example_id")
        assert all(check.holds is not False for check in constraint("gcog", split.settings, part))


def test_gcog_reads_the_depth_off_trees_and_names_each_depth_that_is_tested() -> None:
    rows = gcog(600)
    chain = {1: "exist", 3: "(exist (if (go) (go)))", 5: "(exist (if (go) (sumodd (if go go))))"}
    chain[7] = "(exist (if (go) (sumodd (if go (exist (if go go))))))"
    trees, wrong = parse(rows["depth"].replace_strict(chain, return_dtype=pl.String))
    assert wrong.null_count() == len(wrong)
    by_column = make("gcog", rows, regimes="productive", controls=False)
    grown = rows.drop("depth").with_columns(structure=trees)
    by_tree = make("gcog", grown, regimes="productive", depth=None, controls=False)
    assert by_tree.main["split"].equals(by_column.main["split"])
    assert all(check.holds for check in constraint("gcog", by_tree.settings, by_tree.main.join(grown, on="example_id")))
    assert by_column.main["held_out"].drop_nulls().unique().sort().to_list() == ["depth=5", "depth=7"]
    assert set(by_column.main.filter(pl.col("split") == "test_ood").join(rows, on="example_id")["depth"]) == {5, 7}
    nodes = [{"node": 0, "parent": 1, "label": "a"}, {"node": 1, "parent": 0, "label": "b"}]
    for last, words in (([], None), (nodes, "are no trees: no root")):
        some = pl.concat([trees.head(599), pl.Series([last], dtype=trees.dtype)])
        mixed = grown.with_columns(structure=some)
        if words is None:
            assert make("gcog", mixed, regimes="productive", depth=None).why(rows["example_id"][599]).startswith("excl")
            continue
        with pytest.raises(DataRefused, match=words):
            make("gcog", mixed, regimes="productive", depth=None)
    with pytest.raises(UsageError, match="column is of type"):
        make("gcog", grown.with_columns(structure=pl.lit("f")), regimes="productive", depth=None)


def test_gcog_trains_each_operator_and_draws_halves_by_their_names() -> None:
    rows = gcog()
    split = make("gcog", rows, regimes="systematic_depth1", seed=1, controls=False)
    trained = split.main.filter(pl.col("split") == "train").join(rows, on="example_id")
    assert set(trained["operator"]) == {name for half in OPERATORS for name in half}
    # a value that comes later moves no other one
    fresh = rows.head(40).with_columns(pl.format("new{}", "example_id").alias("example_id"), color=pl.lit("mauve"))
    more = pl.concat([rows, fresh])
    later = make("gcog", more, regimes="systematic_depth1", seed=1, controls=False)
    assert later.main.join(split.main, on=["example_id", "split"]).height == len(split.main)


def test_gcog_tests_no_object_of_which_a_part_is_never_trained() -> None:
    rows = gcog()
    second = ["sumodd", "productodd", "go", "getcolor"]
    alone = rows.filter(pl.col("operator").is_in(second))
    with pytest.raises(DataRefused, match="that no row trains") as refused:
        make("gcog", alone, regimes="systematic_depth1")
    assert "other half of the operators" in (refused.value.remedy or "")
    # with two objects of the first half the colours and shapes of these alone are trained
    first = rows.filter((pl.col("depth") == 1) & ~pl.col("operator").is_in(second))
    whole = make("gcog", rows, regimes="systematic_depth1", controls=False)
    trained = whole.main.filter(pl.col("split") == "train").select("example_id")
    few = pl.concat([alone, first.join(trained, on="example_id").unique(["shape"], keep="first", maintain_order=True)])
    few = few.filter(pl.int_range(pl.len()) < len(few) - 1)
    split = make("gcog", few, regimes="systematic_depth1", controls=False)
    found = split.main.join(few, on="example_id")
    assert found["reason"].str.ends_with("is in no trained row").any()
    checks = constraint("gcog", split.settings, found)
    assert all(check.holds is not False for check in checks), checks


def test_gcog_says_that_no_depth_is_known_or_that_none_is_tested() -> None:
    rows = gcog()
    for depth in (pl.lit(None), pl.lit(None, pl.Int64)):
        with pytest.raises(DataRefused, match="would be empty"):
            make("gcog", rows.with_columns(depth=depth), regimes="productive")
    with pytest.raises(DataRefused, match="distractors held out") as refused:
        make("gcog", rows.with_columns(depth=pl.lit(3)), regimes="distractor")
    assert "(distractors)" in (refused.value.remedy or "")


def test_gcog_refuses_even_depths_unknown_operators_and_halves_that_are_none() -> None:
    rows = gcog(600)
    for depth, told in ((2, "2"), (2.5, "2.5"), (-1, "-1"), (float("inf"), "inf")):
        with pytest.raises(DataRefused, match=f"has the depth {told}"):
            make("gcog", rows.with_columns(depth=pl.lit(depth)), regimes="productive")
    decimal = make("gcog", rows.with_columns(pl.col("depth").cast(pl.Float64)), regimes="productive", controls=False)
    assert decimal.main.equals(make("gcog", rows, regimes="productive", controls=False).main)
    misspelt = rows.with_columns(operator=pl.col("operator").replace({"exist": "sumevens"}))
    with pytest.raises(UsageError, match="did you mean 'sumeven'"):
        make("gcog", misspelt, regimes="systematic_depth1")
    with pytest.raises(UsageError, match="in neither half"):
        make("gcog", rows.with_columns(ends=pl.lit(["stop"])), regimes="systematic_depth3")
    with pytest.raises(DataRefused, match="each of the 6 values"):
        make("gcog", rows, regimes="systematic_depth1", colors=sorted(set(rows["color"])))
    with pytest.raises(UsageError, match="no value 'rot'"):
        make("gcog", rows, regimes="systematic_depth1", colors="rot")
    cycle = [{"node": 0, "parent": 1, "label": "exist"}, {"node": 1, "parent": 0, "label": "go"}]
    trees = rows.drop("depth").with_columns(structure=pl.Series([cycle] * len(rows), dtype=TREE_DTYPE))
    with pytest.raises(DataRefused, match=r"are no trees: .*example 'e00000'"):
        make("gcog", trees, regimes="productive", depth=None)
    with pytest.raises(UsageError, match="both few"):
        make("gcog", rows, regimes="distractor", few="<= 10")
    with pytest.raises(UsageError, match="odd"):
        make("gcog", rows, regimes="productive", train_depths=[1, 2])
    with pytest.raises(UsageError, match="regimes"):
        make("gcog", rows)


# --- SKILL-MIX


@given(mixed=st.sampled_from(["exclude", "test"]), by_column=st.booleans(), seed=st.integers(0, 200))
@settings(max_examples=12, deadline=None)
def test_skill_mix_rows_are_where_a_loop_puts_them(mixed: str, by_column: bool, seed: int) -> None:
    rows: list[list[str | None] | None] = skill_mix(400, seed)["skills"].to_list()
    rows += [None, [], [None], ["irony", "irony"], ["irony", None, "induction"], list(SKILLS)[:5] * 2]
    frame = pl.DataFrame(
        {
            "example_id": [f"t{place:03d}" for place in range(len(rows))],
            "skills": rows,
            "kinds": [None if row is None else [SKILLS.get(s or "") for s in row] for row in rows],
        },
        schema_overrides={"skills": pl.List(pl.String), "kinds": pl.List(pl.String)},
    )
    held = ["literary", "rhetorical"]
    setting: dict[str, Any] = {"category": "kinds"} if by_column else {"categories": SKILLS}
    setting |= {"regimes": ["both", "k", "category"], "held_out": held, "mixed": mixed, "test": 0.3}
    split = make("skill_mix", frame, seed=seed, controls=False, **setting)
    for fold, regime in enumerate(["k", "category", "both"]):
        expected = {
            row["example_id"]: loops.skill_mix(row, regime, set(held), SKILLS, mixed) for row in frame.to_dicts()
        }
        assert sides(split, fold) == expected, regime
        part = split.main.filter(pl.col("fold") == fold).join(frame, on="example_id")
        assert all(check.holds is not False for check in constraint("skill_mix", split.settings, part)), regime


def test_skill_mix_names_k_and_categories_and_trains_on_the_same_rows_in_every_fold() -> None:
    rows = skill_mix()
    setting = {"held_out": ["literary", "rhetorical"], "categories": SKILLS, "train_k": [1, 2], "test_k": [3, 4]}
    split = make("skill_mix", rows, regimes=["k", "category", "both"], controls=False, **setting)
    pools = [set(split.select(fold=fold).ids("train")) for fold in range(3)]
    assert pools[0] == pools[1] == pools[2]
    named = {fold: set(part["held_out"].drop_nulls()) for (fold,), part in split.main.group_by("fold")}
    assert named[0] == {"k=3", "k=4"}
    assert named[1] == {"category=literary", "category=rhetorical", "category=literary; category=rhetorical"}
    assert {"category=literary; category=rhetorical; k=3", "category=literary; category=rhetorical; k=4"} <= named[2]
    plain = make("skill_mix", rows, controls=False)
    assert set(plain.main["held_out"].drop_nulls()) == {"k=4", "k=5"}
    assert plain.certify(rows).holds


def test_skill_mix_refuses_what_does_not_fit() -> None:
    rows = skill_mix(200)
    few = {"train_k": [1, 2], "test_k": [3, 4]}
    with pytest.raises(UsageError, match="need 'held_out'"):
        make("skill_mix", rows, regimes="category")
    with pytest.raises(UsageError, match="k 3 is in train_k and in test_k"):
        make("skill_mix", rows, test_k=[3, 4])
    with pytest.raises(UsageError, match="either in 'categories' or by the column"):
        make("skill_mix", rows, held_out="literary")
    with pytest.raises(UsageError, match="did you mean 'literary'"):
        make("skill_mix", rows, held_out="litterary", categories=SKILLS, **few)
    some = {skill: category for skill, category in SKILLS.items() if skill != "irony"}
    with pytest.raises(UsageError, match="the skill 'irony' has no category"):
        make("skill_mix", rows, held_out="literary", categories=some, **few)
    with pytest.raises(UsageError, match="holds String"):
        make("skill_mix", rows.with_columns(skills=pl.lit("irony")))
    uneven = rows.with_columns(skill_categories=pl.lit([], pl.List(pl.String)))
    with pytest.raises(DataRefused, match="skills and 0 categories"):
        make("skill_mix", uneven, held_out="literary", category="skill_categories", **few)


# --- Med-MAT


@given(seed=st.integers(0, 200), nulls=st.booleans())
@settings(max_examples=10, deadline=None)
def test_med_mat_rows_are_where_a_loop_puts_them(seed: int, nulls: bool) -> None:
    rows = med_mat(900, seed)
    if nulls:
        gone = (pl.int_range(pl.len()) * 7919) % 11 == 0
        rows = rows.with_columns(anatomy=pl.when(gone).then(None).otherwise("anatomy"))
    other = {"modality": "X-ray", "anatomy": "Bones", "task": "Level"}
    split = make("med_mat", rows, seed=seed, targets=[TARGET, other], regimes=EVERY_MED_MAT, controls=False)
    for number, target in enumerate([TARGET, other]):
        for place, regime in enumerate(EVERY_MED_MAT):
            fold = number * len(EVERY_MED_MAT) + place
            expected = {row["example_id"]: loops.med_mat(row, target, regime) for row in rows.to_dicts()}
            assert sides(split, fold) == expected, (target, regime)
            part = split.main.filter(pl.col("fold") == fold).join(rows, on="example_id")
            assert all(check.holds is not False for check in constraint("med_mat", split.settings, part))
    labels = split.main.drop_nulls("held_out").select("fold", "held_out").unique().sort("fold")["held_out"]
    assert labels[0] == "modality=CT, anatomy=Lung, task=Cancer"


def test_med_mat_tells_of_elements_that_nothing_provides_and_keeps_its_numbers() -> None:
    rows = med_mat()
    rare = {"modality": "Dermoscopy", "anatomy": "Skin", "task": "Recognition"}
    split = make("med_mat", rows, targets=[rare], controls=False)
    assert split.warnings == ("no other triple has task Recognition: the target modality=Dermoscopy, anatomy=Skin, "
                              "task=Recognition cannot be composed of what is trained on",)  # fmt: skip
    certificate = split.certify(rows)
    assert certificate.holds
    assert certificate.value("provided:task") == 0
    assert certificate.value("provided:anatomy") > 0
    later = make(
        "med_mat",
        {"examples": rows, "frozen": split.main},
        targets=[TARGET, rare],
        regimes=["related", "all"],
        controls=False,
    )
    found = {fold: part["held_out"].drop_nulls()[0] for (fold,), part in later.main.group_by("fold")}
    assert {fold: held.split("task=")[1] for fold, held in found.items()} == {
        0: "Recognition", 5: "Recognition", 6: "Cancer", 11: "Cancer"
    }  # fmt: skip
    even = make("med_mat", rows, targets=[TARGET], regimes=["related", "unrelated"], balance=True, controls=False)
    assert even.sizes["train"].n_unique() == 1


def test_med_mat_refuses_unknown_triples() -> None:
    rows = med_mat(300)
    with pytest.raises(UsageError, match="did you mean 'Lung'"):
        make("med_mat", rows, targets=[{**TARGET, "anatomy": "Lungs"}])
    with pytest.raises(UsageError, match="names modality, anatomy and task"):
        make("med_mat", rows, targets=[{"modality": "CT"}])
    with pytest.raises(UsageError, match="twice"):
        make("med_mat", rows, targets=[TARGET, TARGET])
    with pytest.raises(DataRefused, match="would be empty"):
        make("med_mat", rows, targets=[{"modality": "Dermoscopy", "anatomy": "Lung", "task": "Cancer"}])


# --- PGM


def test_the_definition_of_matrices_gives_the_published_numbers() -> None:
    every = [f"{relation} {attribute}" for attribute, relations in OF_ATTRIBUTE.items() for relation in relations]
    assert len(every) == 29
    assert sorted(every) == sorted(pgm_structures.NAMES)
    # number and position exclude each other, and nothing else does
    clash = {"shape number", "shape position"}
    pairs = [
        {one, other} for one, other in combinations(every, 2)
        if {" ".join(one.split()[-2:]), " ".join(other.split()[-2:])} != clash
    ]  # fmt: skip
    attributes = [{one, other} for one, other in combinations(OF_ATTRIBUTE, 2) if {one, other} != clash]
    assert (len(pairs), len(attributes), len(OF_ATTRIBUTE)) == (400, 20, 7)
    names = pgm_structures.NAMES
    assert {frozenset(names[i] for i in pair) for pair in pgm_structures.PAIRS} == set(map(frozenset, pairs))
    told = pgm_structures.ATTRIBUTE_NAMES
    assert {frozenset(told[i] for i in pair) for pair in pgm_structures.ATTRIBUTE_PAIRS} == set(
        map(frozenset, attributes)
    )


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_each_regime_holds_out_the_published_number_and_leaves_the_rest(seed: int) -> None:
    pairs = held_out("attr.rel.pairs", seed)
    assert len(set(pairs.names)) == 40
    assert 400 - len(pairs.names) == 360
    assert len(set(held_out("attrs.pairs", seed).names)) == 4
    triples = held_out("attr.rels", seed).names
    assert len(triples) == 7
    assert {" ".join(name.split()[-2:]) for name in triples} == set(OF_ATTRIBUTE)
    assert held_out("attrs.shape.color", seed).names == ("shape colour",)
    assert held_out("attrs.line.type", seed).names == ("line type",)
    assert held_out("attr.rel.pairs", seed + 1).names != pairs.names


@given(seed=st.integers(0, 200))
@settings(max_examples=8, deadline=None)
def test_pgm_rows_are_where_a_loop_puts_them_and_name_what_they_hold(seed: int) -> None:
    rows = pgm(1200, seed)
    rows = rows.with_columns(
        triples=pl.when(pl.int_range(pl.len()) % 97 == 0).then(None).otherwise("triples"),
        values=pl.when(pl.int_range(pl.len()) % 89 == 0).then([]).otherwise("values"),
    )
    split = make("pgm", rows, seed=seed, regimes=list(PGM_REGIMES), controls=False)
    for fold, regime in enumerate(PGM_REGIMES):
        held = set() if fold < 3 else set(held_out(regime, seed).names)
        part = split.main.filter(pl.col("fold") == fold).join(rows, on="example_id")
        for row in part.to_dicts():
            side, hits = loops.pgm(row, regime, held)
            assert SIDE[row["split"]] == side, (regime, row)
            if hits:
                assert sorted(row["held_out"].split("; ")) == hits
        checks = constraint("pgm", split.settings, part)
        assert all(check.holds is not False for check in checks), regime


def test_triples_may_be_texts_lists_or_fields_and_values_may_belong_to_triples() -> None:
    rows = pgm(600)
    regimes = ["interpolation", "attr.rels", "attrs.pairs"]
    plain = make("pgm", rows, regimes=regimes, controls=False)
    words = [[t.replace("consistent union", "consistent_union").split() for t in row] for row in rows["triples"]]
    listed = rows.with_columns(triples=pl.Series(words))
    fields = ("relation", "object", "attribute")
    american = [[[word.replace("colour", "color").upper() for word in t] for t in row] for row in words]
    named = rows.with_columns(triples=pl.Series([[dict(zip(fields, t, strict=True)) for t in row] for row in american]))
    for other in (listed, named):
        again = make("pgm", other, regimes=regimes, controls=False)
        assert again.main.equals(plain.main)
        part = again.select(fold=4).main.join(other, on="example_id")
        assert all(check.holds is not False for check in constraint("pgm", again.settings, part))
    # values of other attributes do not count where each triple has its own
    each = rows.with_columns(
        values=pl.Series(
            [
                [values if triple.endswith(("colour", "size")) else [0, 1] for triple in triples]
                for triples, values in rows.select("triples", "values").iter_rows()
            ]
        )
    )
    own = make("pgm", each, regimes="interpolation", controls=False)
    assert own.main["split"].equals(plain.main.filter(pl.col("fold") == 1)["split"])
    assert all(c.holds for c in constraint("pgm", own.settings, own.main.join(each, on="example_id")))


def test_pgm_refuses_what_no_matrix_has() -> None:
    rows = pgm(300)

    def with_triples(triples: list[str]) -> pl.DataFrame:
        return rows.with_columns(
            triples=pl.when(pl.col("example_id") == "e00007").then(pl.lit(triples)).otherwise("triples")
        )

    with pytest.raises(DataRefused, match="'progression line type' is no triple") as error:
        make("pgm", with_triples(["progression line type"]), regimes="attr.rels")
    assert "e00007" in error.value.where
    with pytest.raises(DataRefused, match="'e00007' has a relation of number and one of position"):
        make("pgm", with_triples(["progression shape number", "XOR shape position"]), regimes="neutral")
    with pytest.raises(DataRefused, match="has a value at place 10"):
        make("pgm", rows.with_columns(values=pl.lit([10])), regimes="interpolation")
    with pytest.raises(UsageError, match="lists of whole numbers"):
        make("pgm", rows.with_columns(values=pl.lit(3)), regimes="interpolation")
    with pytest.raises(UsageError, match="lists of triples"):
        make("pgm", rows.with_columns(triples=pl.lit("XOR shape colour")), regimes="neutral")
    with pytest.raises(UsageError, match="no two halves"):
        make("pgm", rows, regimes="extrapolation", levels=9)
    with pytest.raises(UsageError, match="no column 'values'"):
        make("pgm", rows.drop("values"), regimes="interpolation")
    assert make("pgm", rows.drop("values"), regimes="neutral", controls=False).counts.get("test_ood", 0) == 0
    with pytest.raises(DataRefused, match="would be empty"):
        make("pgm", rows.with_columns(triples=pl.lit(None, pl.List(pl.String))), regimes="attr.rels")

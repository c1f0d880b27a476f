"""The certificate: its numbers, and that each promise fails when it is broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.measures.balance import total_variation
from gradatim.tasks.splits.measures.block import Block
from gradatim.tasks.splits.measures.duplicates import across, alike, duplicates, duplicates_across, normalised
from gradatim.tasks.splits.measures.scores import detectable_gap
from gradatim.tasks.splits.measures.shift import shift_auc
from gradatim.tasks.splits.result import Split


def make(method: str, frame: pl.DataFrame, seed: int = 0, **setting: Any) -> Split:
    plugin = get("split", method)
    return plugin.run({"examples": frame}, configure(plugin, setting), seed)


def examples(n: int = 900) -> pl.DataFrame:
    number = np.arange(n)
    steps = (number * 31) % 9 + 1
    return pl.DataFrame(
        {
            "example_id": [f"q{i:05d}" for i in number],
            "domain": [("ant", "bee", "cow")[i % 3] for i in number],
            "template": [f"t{(i * 7919) % 101}" for i in number],
            "n_steps": steps,
            "input": [" ".join(["turn"] * int(k)) + f" {i * 7919 % 1000}" for i, k in zip(number, steps, strict=True)],
            "output": [str(i % 5) for i in number],
        }
    )


def tamper(split: Split, ids: list[str], to: str) -> Split:
    moved = (pl.col("strategy") == split.strategy) & pl.col("example_id").is_in(ids)
    return replace(
        split, table=split.table.with_columns(pl.when(moved).then(pl.lit(to)).otherwise("split").alias("split"))
    )


BREAKS = [
    ("threshold", {"column": "n_steps", "train": "<= 6"}, "test_ood", "train", "constraint:max n_steps in train"),
    ("threshold", {"column": "n_steps", "train": "<= 6"}, "test_ood", "validation", "constraint:train rows not"),
    ("threshold", {"column": "n_steps", "train": "<= 6"}, "test_ood", "test", "constraint:test rows not"),
    ("threshold", {"column": "n_steps", "train": "<= 6"}, "train", "test_ood", "constraint:test_ood rows n_steps"),
    ("threshold", {"column": "n_steps", "train": "> 2"}, "test_ood", "train", "constraint:min n_steps in train"),
    ("threshold", {"column": "n_steps", "train": "3..6"}, "test_ood", "train", "constraint:train rows not"),
    ("threshold", {"column": "n_steps", "train": "!= 4"}, "test_ood", "train", "constraint:train rows not"),
    ("leave_one_domain_out", {"domains": ["bee"]}, "test_ood", "train", "constraint:in-distribution rows"),
    ("leave_one_domain_out", {"domains": ["bee"]}, "train", "test_ood", "constraint:test_ood rows of another"),
    ("group", {"column": "template"}, "train", "test", "groups_across:template"),
]


@pytest.mark.parametrize(("method", "setting", "source", "to", "check"), BREAKS)
def test_one_row_in_a_wrong_split_breaks_the_promise(
    method: str, setting: dict[str, Any], source: str, to: str, check: str
) -> None:
    frame = examples()
    split = make(method, frame, **setting)
    bare = frame.drop("input")
    assert split.certify(bare).holds
    broken = tamper(split, [split.ids(source)[0]], to).certify(bare)
    assert not broken.holds
    assert any(name.startswith(check) for name in broken.failures["check"])
    assert "do not hold" in repr(broken)
    assert any(warning.startswith("does not hold") for warning in broken.summary().warnings)


def test_a_stratum_out_of_balance_breaks_the_promise() -> None:
    frame = examples().drop("input")
    split = make("stratified", frame, column="domain")
    assert split.certify(frame).holds
    bees = frame.filter((pl.col("domain") == "bee") & pl.col("example_id").is_in(split.train.implode()))["example_id"]
    assert not tamper(split, bees.head(3).to_list(), "test").certify(frame).holds


def test_rows_that_are_missing_strange_or_double_break_the_promise() -> None:
    frame = examples().drop("input")
    split = make("random", frame)
    for rows in (frame[:-1], pl.concat([frame, frame[:1].with_columns(example_id=pl.lit("new"))])):
        assert split.certify(rows).failures["check"].to_list() == ["ids_exactly_once"]
    double = replace(split, table=pl.concat([split.table, split.main[:1]]))
    assert "ids_exactly_once" in double.certify(frame).failures["check"].to_list()


def test_shares_far_from_those_asked_for_break_the_promise() -> None:
    frame = examples().drop("input")
    split = make("random", frame)
    assert split.certify(frame).value("share:test") == split.counts["test"] / 900
    assert not tamper(split, split.train.head(150).to_list(), "test").certify(frame).holds


def test_the_numbers_are_those_counted_by_hand() -> None:
    frame = examples().drop("input")
    split = make("threshold", frame, column="n_steps", train="<= 6")
    difficulty = frame.select("example_id", pl.lit("s").alias("method"), pl.col("n_steps").cast(float).alias("value"),
                              (pl.col("n_steps") % 2).cast(pl.Int32).alias("bin"))  # fmt: skip
    responses = pl.concat(
        frame.select(pl.lit(who).alias("respondent_id"), "example_id", pl.lit(0, pl.Int32).alias("attempt"),
                     (pl.col("n_steps") <= limit).cast(float).alias("score"))
        for who, limit in (("weak", 4), ("strong", 8))
    )  # fmt: skip
    found = split.certify(frame, difficulty, responses)
    assert found.table.columns == spec("certificate").schema.names
    assert found.holds
    rows = split.main.join(frame, on="example_id")
    means = {name: part["n_steps"].mean() for (name,), part in rows.group_by("split")}
    assert found.value("constraint:max n_steps in train") == 6
    assert found.value("difficulty_mean:test_ood") == pytest.approx(means["test_ood"], abs=1e-12)
    score = pl.when(pl.col("n_steps") <= 4).then(1.0).when(pl.col("n_steps") <= 8).then(0.5).otherwise(0.0)
    scored = rows.with_columns(score=score)
    zero_shot = {name: part["score"].mean() for (name,), part in scored.group_by("split")}
    assert found.value("score:test") == pytest.approx(zero_shot["test"], abs=1e-12)
    assert found.value("score_gap") == pytest.approx(zero_shot["test_ood"] - zero_shot["test"], abs=1e-12)
    odd = {name: (part["n_steps"] % 2).mean() for (name,), part in rows.group_by("split")}
    assert found.value("tv:bin:test_ood") == pytest.approx(abs(odd["train"] - odd["test_ood"]), abs=1e-12)
    pairs = min((rows.filter(pl.col("split") == "test")["n_steps"] % 2 == 0).sum(), 100) + min(
        (rows.filter(pl.col("split") == "test")["n_steps"] % 2 == 1).sum(), 200
    )
    assert found.value("matched_rows") == pytest.approx(pairs / 300)
    assert found.value("matched_support") == 1
    control = found.table.filter(pl.col("check") == "difficulty_mean:test_ood")["control_value"].item()
    ids = split.ids("test_ood", control="random")
    assert control == pytest.approx(
        frame.filter(pl.col("example_id").is_in(ids.implode()))["n_steps"].mean(), abs=1e-12
    )


def test_the_matched_gap_compares_rows_of_equal_difficulty_alone() -> None:
    frame = examples().drop("input")
    split = make("threshold", frame, column="n_steps", train="<= 6", test=0.3)
    hard = pl.when(pl.col("n_steps") > 6).then(pl.col("n_steps") % 3 > 0).otherwise(pl.col("n_steps") % 6 == 0)
    difficulty = frame.select("example_id", pl.lit("h").alias("method"), hard.cast(float).alias("value"),
                              hard.cast(pl.Int32).alias("bin"))  # fmt: skip
    responses = frame.select(pl.lit("a").alias("respondent_id"), "example_id", pl.lit(0, pl.Int32).alias("attempt"),
                             (~hard).cast(float).alias("score"))  # fmt: skip
    found = split.certify(frame, difficulty, responses)
    assert found.value("score_gap") < -0.4  # type: ignore[operator]
    assert found.value("score_gap_matched") == 0


def test_detectable_gap_is_the_textbook_number() -> None:
    # two groups of 392 at .5: (1.95996 + .84162) sqrt(.25 * 2 / 392) = .10006, the well-known "392 a group for .10"
    assert detectable_gap(392, 392) == pytest.approx(0.100057, abs=1e-6)
    assert detectable_gap(10, 1_000_000) == pytest.approx(2.801585 * 0.5 / 10**0.5, rel=1e-4)


def test_total_variation_is_half_the_sum_of_differences() -> None:
    assert total_variation(pl.Series(["a", "a", "b", None]), pl.Series(["b", "c"])) == 0.75
    assert total_variation(pl.Series([None, 1]), pl.Series([1, None])) == 0
    assert total_variation(pl.Series([1]), pl.Series([2])) == 1


def test_inputs_that_differ_in_white_space_or_unicode_form_alone_are_duplicates() -> None:
    rows = pl.DataFrame(
        {
            "split": ["train", "test", "train", "train", "test_ood", "test"],
            "input": ["caf\u00e9  now", " cafe\u0301 now\n", "alone", "alone", "other", None],
        }
    )
    assert duplicates_across(rows.with_columns(text=normalised(rows["input"]))) == 1


def texts(prefix: str, words: list[str], n: int) -> pl.DataFrame:
    drawn = np.random.default_rng(len(words)).choice(words, (n, 6))
    return pl.DataFrame(
        {"example_id": [f"{prefix}{i}" for i in range(n)], "input": [" ".join(row) for row in drawn]}
    ).with_columns(component=pl.lit(None, pl.String))


def test_the_shift_is_seen_where_there_is_one_and_is_a_half_where_there_is_none() -> None:
    left, right = texts("a", ["walk", "run", "look", "jump"], 400), texts("b", ["walk", "run", "look", "swim"], 400)
    auc = shift_auc(left, right, 0)
    assert auc is not None
    assert auc > 0.9
    same = shift_auc(left, texts("c", ["walk", "run", "look", "jump"], 900)[400:].select(left.columns), 0)
    assert same == pytest.approx(0.5, abs=0.06)
    mixed = shift_auc(left.sample(fraction=1, shuffle=True, seed=1), right.sample(fraction=1, shuffle=True, seed=2), 0)
    assert mixed == pytest.approx(auc, abs=1e-6)


def test_two_few_rows_to_see_a_shift_give_no_number() -> None:
    assert shift_auc(texts("a", ["x"], 1), texts("b", ["y"], 50), 0) is None


def test_the_scan_length_split_shifts_and_its_control_does_not(data: Path) -> None:
    scan = pl.read_parquet(data / "scan" / "scan_all_splits.parquet").with_columns(
        pl.col("command").alias("example_id"), pl.col("command").alias("input")
    )
    split = make("length", scan, column="n_actions", train="<= 22")
    certificate = split.certify(scan)
    assert certificate.holds
    assert certificate.value("constraint:max n_actions in train") == 22
    assert certificate.value("duplicates_across") == 0
    row = certificate.table.filter(pl.col("check") == "shift_auc")
    assert row["value"].item() > 0.9
    assert row["control_value"].item() == pytest.approx(0.5, abs=0.03)


def test_equal_inputs_in_two_splits_are_counted_and_kept_together_on_demand() -> None:
    frame = examples(300).with_columns(input=pl.lit("same ") + (pl.int_range(300) % 60).cast(pl.String))
    apart = make("random", frame).certify(frame)
    assert apart.value("duplicates_across") > 10  # type: ignore[operator]
    assert "keep_together: input" in apart.summary().warnings[0]
    joined = make("random", frame, keep_together="input").certify(frame)
    assert joined.value("duplicates_across") == 0
    assert joined.holds


def test_several_folds_are_summed_up_by_their_mean() -> None:
    frame = examples(300).drop("input")
    certificate = make("leave_one_domain_out", frame).certify(frame)
    gap = next(fact for fact in certificate.summary().facts if fact.name == "smallest detectable gap")
    found = certificate.table.filter(pl.col("check") == "detectable_gap")["value"]
    assert len(found) == 3
    assert gap.value == round(sum(found) / 3, 4)
    assert gap.note == "mean of 3 splits"
    row = next(line for line in certificate.to_latex().split("\n") if line.startswith("detectable"))
    assert row.split(" & ")[1] == f"{sum(found) / 3:.4g}"


def test_it_renders_to_latex_and_to_a_summary() -> None:
    frame = examples(300)
    certificate = make("threshold", frame, column="n_steps", train="<= 6").certify(frame)
    latex = certificate.to_latex()
    assert latex.startswith("\\begin{tabular}")
    assert "constraint:max n\\_steps in train & 6 & $<$= 6 & -- & " in latex
    assert latex.count(r" \\") == len(certificate.table) + 1
    summary = certificate.summary()
    assert summary.headline == "every promise holds"
    assert {fact.name for fact in summary.facts} >= {"promises that hold", "shift AUC", "smallest detectable gap"}
    assert certificate.plot().to_dict()["mark"]
    assert "Lopez-Paz" in certificate.cite()
    with pytest.raises(UsageError, match="0 values"):
        certificate.value("no such check")


def test_a_certificate_needs_the_rows_and_their_columns() -> None:
    frame = examples(300)
    split = make("threshold", frame, column="n_steps", train="<= 6")
    with pytest.raises(UsageError, match="n_steps"):
        split.certify(frame.drop("n_steps"))
    with pytest.raises(UsageError, match="needs the examples"):
        split.certify(None)
    with pytest.raises(UsageError, match="list"):
        split.certify([1, 2])
    with pytest.raises(UsageError, match="no column 'score'"):
        split.certify(frame, responses=frame.select("example_id"))
    bare = frame.drop("input")
    answers = bare.select("example_id", pl.lit(1.0).alias("score"))  # neither respondent nor attempt is needed
    assert split.certify(bare, responses=answers).value("score_gap") == 0


def test_a_split_over_factors_says_what_train_covers_and_how_far_test_ood_is() -> None:
    frame = examples().with_columns(colour=pl.Series([f"c{i % 6}" for i in range(900)]),
                                    shape=pl.Series([f"s{i // 6 % 6}" for i in range(900)]))  # fmt: skip
    split = make("grid", frame, columns=["colour", "shape"], k=3)
    certificate = split.certify(frame)
    assert certificate.value("factor_coverage") == 0.5  # k / n
    assert certificate.value("factor_distance") == 1  # each held-out cell shares a value with a trained one
    held = next(table for table in split.summary().tables if table.title == "What is held out")
    assert len(held.rows) == 18


def test_copies_are_counted_where_the_first_of_them_is_in_no_split() -> None:
    """Copies are paired with their first row alone; here that row, and its pairs with others, are left out."""
    pairs = pl.DataFrame(
        [("a0", "a1", 1.0), ("a0", "a2", 1.0), ("a0", "b", 0.9), ("c", "d", 0.85)],
        schema=["left_id", "right_id", "similarity"], orient="row",
    ).with_columns(kind=pl.lit("near_duplicate"), threshold=0.8)  # fmt: skip
    places = {"a1": "train", "a2": "test", "b": "test_ood", "c": "train", "d": "train"}
    rows = pl.DataFrame({"example_id": list(places), "split": list(places.values())})
    near = alike(pairs)
    found = across(rows, near).select("left_id", "right_id", "left", "right").sort("right_id").rows()
    assert found == [("a1", "a2", "train", "test"), ("a1", "b", "train", "test_ood")]
    block = Block(rows.with_columns(component=pl.lit(None, pl.String)), 0, near)
    assert duplicates(block)["near_duplicates_of_train"] == (2.0, 5)
    with_first = pl.concat([rows, pl.DataFrame({"example_id": ["a0"], "split": ["validation"]})])
    assert len(across(with_first, near)) == 3

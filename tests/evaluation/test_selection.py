"""Models of leave-one-domain-out runs chosen by three rules that are kept apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import examples, make

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.evaluation.selection import LEFT_OUT, ORACLE, RULES, TRAINING, select_by_records

DOMAINS = ["art", "photo", "sketch"]


def record(
    held: list[str], settings: str, checkpoint: int, domain: str, split: str, score: float, trial: int = 0
) -> Any:
    run = f"{trial}/{settings}/{'+'.join(held)}"
    return (trial, settings, run, held, checkpoint, domain, split, score)


def frame(rows: list[Any]) -> pl.DataFrame:
    names = ["trial", "hyper_parameters", "run_id", "held_out", "checkpoint", "domain", "split", "score"]
    return pl.DataFrame(rows, schema=names, orient="row")


def apart(trial: int = 0, add: float = 0.0) -> list[Any]:
    """Three settings for the test domain sketch, each the choice of another rule, with two checkpoints each."""
    rows = []
    # settings: validation art and photo, pair art and photo, oracle, test; at checkpoints 100 and 200
    numbers = {
        "fits": [(0.9, 0.8, 0.5, 0.5, 0.3, 0.60), (0.7, 0.7, 0.5, 0.5, 0.3, 0.61)],
        "wide": [(0.6, 0.6, 0.7, 0.6, 0.2, 0.70), (0.6, 0.6, 0.8, 0.7, 0.4, 0.71)],
        "lucky": [(0.5, 0.5, 0.1, 0.1, 0.95, 0.80), (0.5, 0.5, 0.1, 0.1, 0.5, 0.81)],
    }
    for settings_, checkpoints in numbers.items():
        for place, (art, photo, with_art, with_photo, oracle, test) in enumerate(checkpoints):
            at = 100 * (place + 1)
            alone = ["sketch"]
            rows += [
                record(alone, settings_, at, "art", "validation", art, trial),
                record(alone, settings_, at, "photo", "validation", photo, trial),
                record(alone, settings_, at, "art", "test", 0.99, trial),
                record(alone, settings_, at, "sketch", "validation_ood", oracle, trial),
                record(alone, settings_, at, "sketch", "test_ood", test + add, trial),
                record(["art", "sketch"], settings_, at, "art", "test_ood", with_art, trial),
                record(["art", "sketch"], settings_, at, "sketch", "test_ood", 0.99, trial),
                record(["photo", "sketch"], settings_, at, "photo", "test_ood", with_photo, trial),
                record(["photo", "sketch"], settings_, at, "sketch", "test_ood", 0.98, trial),
            ]
    return rows


def test_the_three_rules_pick_different_runs_and_the_oracle_looks_at_the_last_checkpoint_alone() -> None:
    found = select_by_records(frame(apart()))
    assert found.table.select("rule", "hyper_parameters", "checkpoint", "selection_score", "score").rows() == [
        (TRAINING, "fits", 100, pytest.approx(0.85), 0.60),
        (LEFT_OUT, "wide", 200, pytest.approx(0.75), 0.71),
        # .95 at checkpoint 100 would be early stopping by the test domain
        (ORACLE, "lucky", 200, 0.5, 0.81),
    ]
    assert found.table["run_id"].to_list() == ["0/fits/sketch", "0/wide/sketch", "0/lucky/sketch"]
    assert found.table["candidates"].to_list() == [6, 6, 3]
    assert found.missing == {}


def test_means_are_over_domains_then_trials_with_the_standard_error_over_trials() -> None:
    rows = [row for trial, add in enumerate((0.0, 0.03, 0.06)) for row in apart(trial, add)]
    found = select_by_records(frame(rows))
    for rule, mean in ((TRAINING, 0.63), (LEFT_OUT, 0.74), (ORACLE, 0.84)):
        assert found.mean(rule) == found.mean(rule, "sketch") == pytest.approx(mean)
        error = found.means.filter(rule=rule)["standard_error"].to_list()
        assert error == [pytest.approx(0.03 / math.sqrt(3))] * 2
    assert "training domains 63.0 % ± 1.7" in found.sentence()
    assert "1 domains" in found.sentence()
    assert found.plot().to_dict()["mark"]
    assert found.summary().facts[2].name == "oracle"
    assert "Lopez-Paz" in found.cite()
    with pytest.raises(UsageError, match="did you mean 'oracle'"):
        found.mean("orcale")


def test_a_rule_without_what_it_needs_is_missing_with_the_reason_and_never_borrowed() -> None:
    rows = frame(apart())
    one = select_by_records(rows.filter(pl.col("held_out").list.len() == 1))
    assert set(one.missing) == {LEFT_OUT}
    assert "cross_validation: true" in one.missing[LEFT_OUT]
    assert math.isnan(one.mean(LEFT_OUT))
    assert one.mean(TRAINING) == 0.60
    # with one pair missing for two settings, only the third can be compared
    lacking = (pl.col("held_out") == ["art", "sketch"]) & (pl.col("hyper_parameters") != "lucky")
    some = select_by_records(rows.filter(~lacking))
    assert some.table.filter(rule=LEFT_OUT)["hyper_parameters"].to_list() == ["lucky"]
    blind = select_by_records(rows.filter(~pl.col("split").is_in(["validation", "validation_ood"])))
    assert set(blind.missing) == {TRAINING, ORACLE}
    assert blind.mean(LEFT_OUT) == 0.71
    nothing = select_by_records(rows.filter((pl.col("held_out").list.len() == 1) & (pl.col("split") == "test_ood")))
    assert (set(nothing.missing), nothing.sentence()) == (set(RULES), "No rule could choose a model.")
    assert nothing.summary().warnings[0].startswith("training_domains: no predictions of the validation rows")
    # the last checkpoint has no predictions of validation_ood: an earlier one does not stand in
    early = rows.filter((pl.col("split") != "validation_ood") | (pl.col("checkpoint") == 100))
    assert set(select_by_records(early).missing) == {ORACLE}


def test_settings_not_predicted_on_every_training_domain_do_not_compete_by_the_easy_one() -> None:
    rows = frame(apart()).filter(
        ~((pl.col("hyper_parameters") == "fits") & (pl.col("domain") == "photo") & (pl.col("split") == "validation"))
    )
    assert select_by_records(rows).table.filter(rule=TRAINING)["hyper_parameters"].to_list() == ["wide"]


def test_a_tie_goes_to_the_earlier_checkpoint_then_to_the_settings_that_sort_first() -> None:
    rows = frame(apart()).with_columns(score=pl.when(pl.col("split") == "test_ood").then("score").otherwise(0.1 + 0.2))
    found = select_by_records(rows.sample(fraction=1, shuffle=True, seed=1)).table
    assert found.filter(rule=TRAINING).select("hyper_parameters", "checkpoint").rows() == [("fits", 100)]
    assert found.filter(rule=ORACLE).select("hyper_parameters", "checkpoint").rows() == [("fits", 200)]


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_each_choice_is_that_of_brute_force_whatever_the_order_of_records(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows, score = [], {}
    pairs = [["art", "photo"], ["art", "sketch"], ["photo", "sketch"]]
    for held in [[name] for name in DOMAINS] + pairs:
        for setting in ("h1", "h2"):
            for at in (1, 2):
                for domain in DOMAINS:
                    splits = ["test_ood", "validation_ood"] if domain in held else ["validation", "test"]
                    for split in splits:
                        value = round(float(chance.random()), 1)
                        score[tuple(held), setting, at, domain, split] = value
                        rows.append(record(held, setting, at, domain, split, value))
    found = select_by_records(frame(rows).sample(fraction=1, shuffle=True, seed=seed)).table
    for test in DOMAINS:
        others = [name for name in DOMAINS if name != test]
        for rule in RULES:
            best: tuple[float, int, str] | None = None
            for at in (1, 2):
                for setting in ("h1", "h2"):
                    if rule == TRAINING:
                        value = sum(score[(test,), setting, at, o, "validation"] for o in others) / 2
                    elif rule == LEFT_OUT:
                        value = sum(score[tuple(sorted((test, o))), setting, at, o, "test_ood"] for o in others) / 2
                    elif at == 2:
                        value = score[(test,), setting, at, test, "validation_ood"]
                    else:
                        continue
                    if best is None or value > best[0] + 1e-9:
                        best = (value, at, setting)
            assert best is not None
            row = found.filter(rule=rule, domain=test).row(0, named=True)
            assert (row["checkpoint"], row["hyper_parameters"]) == best[1:]
            assert row["score"] == score[(test,), best[2], best[1], test, "test_ood"]


def study() -> tuple[Any, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """A split with pairs, and predictions of two settings: `steady` is right on 3 of 4, `wild` by domain."""
    rows = examples(800)
    split = make(
        "leave_one_domain_out", rows, cross_validation=True, validation_ood=0.2, validation=0.2, controls=False
    )
    right = {"steady": dict.fromkeys(("astronomy", "biology", "chemistry", "dance"), 3)}
    right["wild"] = {"astronomy": 4, "biology": 4, "chemistry": 4, "dance": 0}
    runs, answers = [], []
    for fold in split.main["fold"].unique().sort():
        block = split.main.filter((pl.col("fold") == fold) & (pl.col("split") != "train")).join(rows, on="example_id")
        for setting, by in right.items():
            run = f"{setting}-{fold}"
            runs.append({"run_id": run, "fold": fold, "hyper_parameters": setting})
            level = block["domain"].replace_strict(by)
            score = (pl.Series(range(len(block))) % 4 < level).cast(pl.Float64)
            answers.append(block.select(pl.lit(run).alias("run_id"), "example_id").with_columns(score=score))
    return split, pl.concat(answers), pl.DataFrame(runs), rows


def test_from_predictions_splits_and_runs_the_three_choices_are_made() -> None:
    split, answers, runs, rows = study()
    found = gd.select_models(split, answers, runs, examples=rows)
    assert found.missing == {}
    chosen = {(row["rule"], row["domain"]): row["hyper_parameters"] for row in found.table.iter_rows(named=True)}
    assert chosen[TRAINING, "dance"] == "wild"  # right on all it can see, wrong where it is tested
    assert chosen[LEFT_OUT, "dance"] == "wild"
    assert chosen[ORACLE, "dance"] == "steady"
    assert found.mean(TRAINING, "dance") == 0.0
    assert found.mean(ORACLE, "dance") == pytest.approx(0.75, abs=0.1)
    assert chosen[TRAINING, "biology"] == "steady"
    shuffled = gd.select_models(split, answers.sample(fraction=1, shuffle=True, seed=5), runs[::-1], examples=rows)
    assert shuffled.table.equals(found.table)


def test_runs_that_do_not_fit_the_split_are_refused() -> None:
    split, answers, runs, rows = study()
    with pytest.raises(UsageError, match="no column 'hyper_parameters'"):
        gd.select_models(split, answers, runs.drop("hyper_parameters"), examples=rows)
    with pytest.raises(UsageError, match="'steady-0' has predictions, but is not among the runs"):
        gd.select_models(split, answers, runs[1:], examples=rows)
    with pytest.raises(UsageError, match="fold 77"):
        gd.select_models(split, answers, runs.with_columns(fold=pl.lit(77)), examples=rows)
    with pytest.raises(UsageError, match="has 2 rows"):
        gd.select_models(split, answers, pl.concat([runs, runs[:1]]), examples=rows)
    with pytest.raises(UsageError, match="the settings 'same' and the fold come twice"):
        gd.select_models(split, answers, runs.with_columns(hyper_parameters=pl.lit("same")), examples=rows)
    with pytest.raises(DataRefused, match="no predicted example is in the fold"):
        gd.select_models(split, answers.with_columns(example_id="x" + pl.col("example_id")), runs, examples=rows)
    pairs = runs.filter(pl.col("fold") > 3)
    with pytest.raises(DataRefused, match="no run that left out one domain"):
        gd.select_models(split, answers.join(pairs, on="run_id", how="semi"), pairs, examples=rows)
    two = make("leave_one_domain_out", rows, seeds=2)
    with pytest.raises(UsageError, match="the splits have 2 seeds"):
        gd.select_models(two, answers, runs, examples=rows)
    mixed = pl.concat([split.main, split.main.with_columns(strategy=pl.lit("other"))])
    with pytest.raises(UsageError, match="one strategy"):
        gd.select_models(mixed, answers, runs, examples=rows)
    with pytest.raises(DataRefused, match="1 records have no score"):
        select_by_records(frame(apart()).with_columns(score=pl.when(pl.int_range(54) > 0).then("score")))

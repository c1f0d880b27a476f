"""Evaluation of one arm: cells, gap, sentence, leave-one-out, bad input, and published accuracies."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.evaluation.evaluate import evaluate, scores_by_split


def ids(rows: int) -> list[str]:
    return [f"e{i:05d}" for i in range(rows)]


def splits(test: int, ood: int, strategy: str = "length") -> pl.DataFrame:
    return pl.DataFrame(
        {
            "strategy": [strategy] * (test + ood),
            "seed": 0,
            "fold": 0,
            "example_id": ids(test + ood),
            "split": ["test"] * test + ["test_ood"] * ood,
        }
    )


def predictions(
    correct: list[bool] | np.ndarray, run: str = "run", seed: int = 0, checkpoint: int = 100
) -> pl.DataFrame:
    right = np.asarray(correct, dtype=bool)
    return pl.DataFrame(
        {
            "run_id": [run] * len(right),
            "checkpoint": checkpoint,
            "example_id": ids(len(right)),
            "attempt": 0,
            "variant": "plain",
            "seed": seed,
            "correct": right,
        }
    )


def share(test: int, right: int, ood: int, right_ood: int) -> np.ndarray:
    return np.r_[np.arange(test) < right, np.arange(ood) < right_ood]


def test_the_sentence_says_both_scores_the_gap_and_its_interval() -> None:
    found = evaluate(predictions(share(1000, 987, 2000, 24)), splits(1000, 2000), name="the curriculum arm")
    gap = found.gap
    assert gap.value == pytest.approx(0.975)
    assert gap.low < 0.975 < gap.high
    spread = 1.96 * math.sqrt(0.987 * 0.013 / 1000 + 0.012 * 0.988 / 2000)
    assert (gap.high - gap.low) / 2 == pytest.approx(spread, rel=0.12)
    low, high = f"{100 * gap.low:.1f}", f"{100 * gap.high:.1f}"
    assert found.sentence() == (
        "On the length split the curriculum arm solves 98.7 % of the test set in distribution and 1.2 % out of "
        f"distribution (gap 97.5 points, 95 % interval {low} to {high})."
    )
    assert found.sentence() in repr(found)


def test_the_table_has_its_schema_unique_keys_and_wilson_where_rows_are_independent() -> None:
    found = evaluate(predictions(share(50, 40, 30, 0)), splits(50, 30), split_version=7)
    assert found.table.to_arrow().schema.names == spec("evaluation").schema.names
    assert not found.table.select(spec("evaluation").key).is_duplicated().any()
    assert found.table["split_version"].unique().to_list() == [7]
    cell = found.cell("split", "test")
    expected = wilson(40, 50)
    assert (cell.value, cell.low, cell.high, cell.method) == (0.8, expected.low, expected.high, "wilson")
    assert found.cell("split", "test_ood").high == pytest.approx(wilson(0, 30).high)
    assert found.gap.low < 0.8 - 0.05  # all wrong out of distribution: the bootstrap alone would see no chance there


def test_levels_domains_bins_and_the_worst_group_stand_beside_the_splits() -> None:
    correct = np.r_[np.arange(40) % 2 == 0, np.arange(40) < 10]
    examples = pl.DataFrame(
        {
            "example_id": ids(80),
            "domain": ["a" if i % 2 == 0 else "b" for i in range(80)],
            "level": [str(i % 4) for i in range(80)],
            "size": [i // 40 for i in range(80)],
        }
    )
    difficulty = pl.DataFrame({"example_id": ids(80), "method": "irt", "bin": [i % 5 for i in range(80)]})
    found = evaluate(predictions(correct), splits(40, 40), examples, difficulty, axes=("level", "domain", "size"))
    assert found.cell("domain", "test/a").value == 1.0
    assert found.cell("domain", "test/b").value == 0.0
    assert found.cell("worst_domain", "test/b").value == 0.0
    assert found.cell("worst_domain", "test_ood/a").n == 20
    assert found.cell("size", "test_ood/1").value == 0.25
    matrix = found.matrix("bin")
    assert matrix.table.filter(pl.col("split") == "test_ood")["value"].to_list() == [0.25] * 5
    assert matrix.table["bin"].to_list() == [0, 1, 2, 3, 4] * 2
    assert matrix.plot().to_dict()
    assert found.matrix("domain").plot().to_dict()
    with pytest.raises(UsageError, match="did you mean 'domain'"):
        found.matrix("domian")


def test_bins_sort_as_numbers_in_the_matrix() -> None:
    difficulty = pl.DataFrame({"example_id": ids(24), "method": "x", "bin": [i % 12 for i in range(24)]})
    found = evaluate(predictions(np.arange(24) % 2 == 0), splits(24, 0), difficulty=difficulty)
    assert found.matrix("bin").table["bin"].to_list() == list(range(12))


def test_clusters_widen_intervals_and_are_named_in_them() -> None:
    correct = np.repeat(np.arange(40) % 2 == 0, 10)
    examples = pl.DataFrame({"example_id": ids(400), "group": [f"g{i // 10}" for i in range(400)]})
    clustered = evaluate(predictions(correct), splits(400, 0), examples).cell("split", "test")
    alone = evaluate(predictions(correct), splits(400, 0)).cell("split", "test")
    assert clustered.value == alone.value == 0.5
    assert clustered.high - clustered.low > 2.5 * (alone.high - alone.low)
    assert "40 clusters of group" in clustered.method
    template = examples.rename({"group": "template"})
    assert (
        "template"
        in evaluate(predictions(correct), splits(400, 0), template, cluster="template").cell("split", "test").method
    )


def test_rows_of_a_cluster_are_never_taken_for_independent_even_where_one_of_them_at_most_is_right() -> None:
    correct = np.arange(400) % 20 == 0
    examples = pl.DataFrame({"example_id": ids(400), "group": [f"g{i // 10}" for i in range(400)]})
    assert (
        "40 clusters of group" in evaluate(predictions(correct), splits(400, 0), examples).cell("split", "test").method
    )


def test_an_example_without_a_group_is_its_own_cluster_even_where_a_group_bears_its_name() -> None:
    examples = pl.DataFrame({"example_id": ids(3), "group": ["e00002", "e00002", None]})
    found = evaluate(predictions([True, False, True]), splits(3, 0), examples)
    assert found.scores["code"].n_unique() == 2


def test_the_worst_group_is_sought_among_groups_of_ten_rows_or_more() -> None:
    domain = ["small"] * 3 + ["b"] * 20 + ["c"] * 20
    examples = pl.DataFrame({"example_id": ids(43), "domain": domain})
    correct = [False] * 3 + [True] * 10 + [False] * 10 + [True] * 20
    found = evaluate(predictions(correct), splits(43, 0), examples)
    assert found.cell("domain", "test/small").value == 0.0
    assert found.cell("worst_domain", "test/b").value == 0.5
    assert found.table.filter(pl.col("axis") == "worst_domain").height == 1


def test_shuffled_rows_and_the_same_seed_give_the_same_table() -> None:
    correct = np.random.default_rng(0).random(300) < 0.4
    examples = pl.DataFrame({"example_id": ids(300), "group": [f"g{i % 45}" for i in range(300)]})
    one = evaluate(predictions(correct), splits(100, 200), examples)
    other = evaluate(
        predictions(correct).sample(fraction=1, shuffle=True, seed=1),
        splits(100, 200).sample(fraction=1, shuffle=True, seed=2),
        examples.sample(fraction=1, shuffle=True, seed=3),
    )
    assert one.table.equals(other.table)
    assert not evaluate(predictions(correct), splits(100, 200), examples, seed=1).table.equals(one.table)


def test_several_runs_are_pooled_with_their_spread_beside_each_of_them() -> None:
    rights = [share(100, 90 + i, 100, 10 * i) for i in range(3)]
    frame = pl.concat([predictions(right, run=f"r{i}", seed=i) for i, right in enumerate(rights)])
    found = evaluate(frame, splits(100, 100), name="the random arm")
    assert found.runs == 3
    assert found.cell("split", "test_ood").value == pytest.approx(0.1)
    assert found.cell("split", "test_ood", "exact_match_sd").value == pytest.approx(0.1)
    assert found.cell("gap", "test - test_ood", "gap_max").value == pytest.approx(0.9)
    assert found.cell("split", "test", "exact_match_min").value == pytest.approx(0.9)
    assert "runs x clusters" in found.gap.method
    assert "mean of 3 runs" in found.sentence()
    assert any("only 3 runs" in warning for warning in found.warnings)
    alone = found.table.filter((pl.col("run_id") == "r2") & (pl.col("axis") == "gap"))
    assert alone["value"].to_list() == pytest.approx([0.72])
    assert found.gap.high - found.gap.low > 2 * (alone["ci_high"][0] - alone["ci_low"][0]) * 0.5


def test_all_checkpoints_are_in_the_table_and_the_last_one_speaks() -> None:
    frame = pl.concat(
        [
            predictions(share(50, 10, 50, 0), checkpoint=10),
            predictions(share(50, 45, 50, 5), checkpoint=200),
        ]
    )
    found = evaluate(frame, splits(50, 50))
    assert found.checkpoint == 200
    assert found.gap.value == pytest.approx(0.8)
    gaps = found.table.filter(pl.col("axis") == "gap").sort("checkpoint")["value"].to_list()
    assert gaps == pytest.approx([0.2, 0.8])


def test_attempts_are_averaged_within_their_example() -> None:
    frame = pl.DataFrame(
        {
            "run_id": "r",
            "example_id": ["e00000", "e00000", "e00000", "e00001"],
            "attempt": [0, 1, 2, 0],
            "score": [1.0, 0.0, 0.0, 1.0],
        }
    )
    found = evaluate(frame, splits(2, 0))
    assert found.metric == "score"
    assert found.cell("split", "test").value == pytest.approx((1 / 3 + 1) / 2)
    assert "scores" in found.sentence()


class Refits:
    """A difficulty as an estimator gives it."""

    def __init__(self, respondents: list[str], gone: tuple[str, ...] = ()) -> None:
        self.names, self.gone = respondents, gone

    @property
    def respondents(self) -> pl.DataFrame:
        return pl.DataFrame({"respondent_id": self.names})

    @property
    def table(self) -> pl.DataFrame:
        return pl.DataFrame({"example_id": ids(4), "method": "irt", "bin": [1, 1, 0, 0] if self.gone else [0, 0, 1, 1]})

    def leave_out(self, name: str) -> Refits:
        assert name in self.names
        return Refits([n for n in self.names if n != name], (*self.gone, name))


def responses(names: list[str]) -> pl.DataFrame:
    rows = [(name, example, 0, float(i < 2)) for name in names for i, example in enumerate(ids(4))]
    return pl.DataFrame(rows, schema=["respondent_id", "example_id", "attempt", "score"], orient="row")


def test_a_difficulty_that_rests_on_the_evaluated_model_is_estimated_without_it() -> None:
    found = evaluate(responses(["model-x"]), splits(4, 0), difficulty=Refits(["model-x", "model-y"]))
    assert found.difficulty == "estimated without model-x (1 respondents left)"
    assert found.matrix("bin").table["value"].to_list() == [0.0, 1.0]
    assert found.difficulty in repr(found)
    assert any(fact.value == found.difficulty for fact in found.summary().facts)


def test_a_difficulty_of_other_models_is_used_as_it_is() -> None:
    found = evaluate(responses(["model-z"]), splits(4, 0), difficulty=Refits(["model-x", "model-y"]))
    assert found.difficulty == "the evaluated model is not among its 2 respondents"
    assert found.matrix("bin").table["value"].to_list() == [1.0, 0.0]


def test_a_difficulty_frame_that_rests_on_the_model_is_refused_with_the_remedy() -> None:
    frame = Refits(["model-x"]).table
    with pytest.raises(UsageError, match="rests on responses of the evaluated model 'model-x'") as caught:
        evaluate(responses(["model-x"]), splits(4, 0), difficulty=frame, respondents=["model-x", "model-y"])
    assert "leave_out('model-x')" in caught.value.remedy
    fine = evaluate(responses(["model-x"]), splits(4, 0), difficulty=frame)
    assert fine.difficulty.startswith("not known")
    named = evaluate(predictions(share(4, 2, 0, 0)), splits(4, 0), difficulty=Refits(["m", "n"]), model="m")
    assert named.difficulty.startswith("estimated without m")


class Silent:
    """A difficulty that can be estimated again but does not list its respondents, as the pass rate."""

    refit = True

    def __init__(self, names: list[str], broken: bool = False) -> None:
        self.names, self.broken, self.table = names, broken, Refits(names).table

    def leave_out(self, name: str) -> Silent:
        if self.broken:
            raise UsageError("too few respondents stay", where="difficulty")
        if name not in self.names:
            raise UsageError(f"no respondent is called {name!r}", where="leave_out")
        return Silent([n for n in self.names if n != name])


def test_a_difficulty_that_does_not_list_its_respondents_is_asked_to_leave_the_model_out() -> None:
    inside = evaluate(responses(["model-x"]), splits(4, 0), difficulty=Silent(["model-x", "model-y"]))
    assert inside.difficulty == "estimated without model-x"
    outside = evaluate(responses(["model-z"]), splits(4, 0), difficulty=Silent(["model-x", "model-y"]))
    assert outside.difficulty == "the evaluated model is not among its respondents"
    with pytest.raises(UsageError, match="too few"):
        evaluate(responses(["model-x"]), splits(4, 0), difficulty=Silent(["model-x"], broken=True))


def test_examples_without_a_difficulty_are_counted() -> None:
    frame = pl.DataFrame({"example_id": ids(6), "method": "x", "bin": [0] * 6})
    found = evaluate(predictions(share(10, 5, 0, 0)), splits(10, 0), difficulty=frame)
    assert "4 tested examples have no difficulty, so no bin" in found.warnings


def test_responses_of_several_models_need_a_name_or_are_scored_together() -> None:
    both = responses(["model-x", "model-y"])
    with pytest.raises(UsageError, match="of 2 models"):
        evaluate(both, splits(2, 2))
    with pytest.raises(UsageError, match="did you mean 'model-x'"):
        evaluate(both, splits(2, 2), model="modelx")
    assert evaluate(both, splits(2, 2), model="model-y").gap.value == 1.0
    table = scores_by_split(both, splits(2, 2))
    assert table.filter(pl.col("axis") == "gap")["run_id"].to_list() == ["model-x", "model-y"]
    assert table.to_arrow().schema.names == spec("evaluation").schema.names


def test_one_sided_evaluations_speak_without_a_gap() -> None:
    inside = evaluate(predictions(share(50, 40, 0, 0)), splits(50, 0, "random"))
    assert math.isnan(inside.gap.value)
    assert inside.sentence().startswith("On the random split the model solves 80.0 % of the test set in distribution")
    outside = evaluate(predictions(share(0, 0, 50, 40)), splits(0, 50))
    assert "out of distribution" in outside.sentence()
    neither = evaluate(predictions(share(5, 1, 0, 0)), splits(5, 0).with_columns(split=pl.lit("train")))
    assert neither.sentence() == "On the length split the model has no predictions of test or test_ood."
    assert neither.summary().headline == neither.sentence()


def test_missing_and_surplus_predictions_are_counted_aloud() -> None:
    found = evaluate(predictions(share(50, 40, 10, 0)), splits(40, 60))
    assert "test_ood: 20 of 60 predictions are there (60 examples)" in found.warnings
    excluded = splits(40, 10).with_columns(
        split=pl.when(pl.col("example_id") < "e00005").then(pl.lit("excluded")).otherwise("split")
    )
    found = evaluate(predictions(share(50, 40, 0, 0)), excluded)
    assert "5 predicted examples are in no split (or excluded) and were left out" in found.warnings


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p: p.drop("correct"), UsageError, "no column 'score'"),
        (lambda p: p.drop("run_id"), UsageError, "no column 'run_id'.*\n.*the column run_id; it has"),
        (lambda p: p.with_columns(correct=pl.lit(None, pl.Boolean)), DataRefused, r"10 of 10 .* no score"),
        (lambda p: p.with_columns(score=pl.lit(float("nan"))), DataRefused, "no score"),
        (lambda p: p.with_columns(score=pl.lit(1.5)), DataRefused, "1.5"),
        (lambda p: pl.concat([p, p[:1]]), DataRefused, "2 predictions share"),
        (lambda p: p.with_columns(example_id=pl.lit("other")), DataRefused, "share run"),
        (lambda p: p[:1].with_columns(example_id=pl.lit("other")), DataRefused, "none of 1 predicted"),
        (lambda p: p.with_columns(variant=pl.lit("short")), DataRefused, "variant 'plain'"),
        (lambda p: p[:0], DataRefused, "variant 'plain'"),
        (lambda p: pl.concat([p, p.with_columns(run_id=pl.lit("b"))]), UsageError, "same seed"),
    ],
)
def test_bad_predictions_are_refused_with_the_reason(change, error, message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(change(predictions(share(5, 4, 5, 1))), splits(5, 5))


def test_bad_splits_axes_and_difficulties_are_refused_with_the_reason() -> None:
    good = predictions(share(5, 4, 5, 1))
    with pytest.raises(UsageError, match="2 strategies"):
        evaluate(good, pl.concat([splits(5, 5), splits(5, 5, "random")]))
    with pytest.raises(DataRefused, match="twice"):
        evaluate(good, pl.concat([splits(5, 5), splits(5, 5)]))
    with pytest.raises(DataRefused, match="'tset'"):
        evaluate(good, splits(5, 5).with_columns(split=pl.lit("tset")))
    examples = pl.DataFrame({"example_id": ids(10), "group": ["g"] * 10})
    with pytest.raises(UsageError, match="no column 'topic'"):
        evaluate(good, splits(5, 5), examples, axes=("topic",))
    with pytest.raises(UsageError, match="meaning of its own"):
        evaluate(good, splits(5, 5), examples, axes=("split",))
    with pytest.raises(UsageError, match="needs the examples"):
        evaluate(good, splits(5, 5), cluster="group")
    twice = pl.DataFrame({"example_id": ids(10) * 2, "method": ["a"] * 10 + ["b"] * 10, "bin": [0] * 20})
    with pytest.raises(UsageError, match="twice") as caught:
        evaluate(good, splits(5, 5), difficulty=twice)
    assert "a, b" in caught.value.remedy
    with pytest.raises(UsageError, match="of type list"):
        evaluate(good, splits(5, 5), difficulty=[1])


def test_one_cluster_gives_a_wide_interval_and_a_warning() -> None:
    examples = pl.DataFrame({"example_id": ids(20), "group": ["g"] * 20})
    found = evaluate(predictions(share(10, 9, 10, 1)), splits(10, 10), examples)
    assert any("only 1 clusters of group" in warning for warning in found.warnings)
    assert found.gap.low < 0 < found.gap.high


def test_the_result_explains_itself() -> None:
    found = evaluate(predictions(share(50, 40, 30, 3)), splits(50, 30))
    summary = found.summary()
    assert summary.headline == found.sentence()
    assert summary.charts[0].spec
    assert "Wilson (1927)" in found.cite()


def test_pcfg_set_shows_its_published_accuracies_and_gaps(data: Path) -> None:
    folder = data / "pcfg_set"
    frames = {
        split: pl.read_parquet(folder / f"{name}_test_9models.parquet")
        for split, name in (("test", "pcfgset"), ("test_ood", "productivity"))
    }
    places = pl.concat(
        [
            pl.DataFrame({"example_id": [f"{split}-{i}" for i in range(len(f))], "split": split})
            for split, f in frames.items()
        ]
    )
    published = {"lstms2s": (0.79, 0.30), "convs2s": (0.85, 0.31), "transformer": (0.92, 0.50)}
    for model, (inside, outside) in published.items():
        rows = [
            pl.DataFrame(
                {
                    "run_id": f"{model}_{run}",
                    "seed": run,
                    "example_id": [f"{split}-{i}" for i in range(len(frame))],
                    "correct": frame[f"{model}_{run}"].cast(pl.Boolean),
                }
            )
            for run in (1, 2, 3)
            for split, frame in frames.items()
        ]
        found = evaluate(pl.concat(rows), places, name=model)
        assert found.cell("split", "test").value == pytest.approx(inside, abs=0.0061)
        assert found.cell("split", "test_ood").value == pytest.approx(outside, abs=0.0091)
        assert found.gap.low < found.gap.value < found.gap.high


def test_gsm8k_shows_the_accuracies_of_its_four_models_and_that_long_solutions_are_harder(data: Path) -> None:
    frame = pl.read_parquet(data / "gsm8k" / "test_4models_correct.parquet")
    models = ["6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"]
    long = frame.unpivot(models, index="item", variable_name="respondent_id", value_name="score").with_columns(
        example_id=pl.col("item").cast(pl.String), score=pl.col("score").cast(pl.Float64)
    )
    places = long.select("example_id").unique().with_columns(split=pl.lit("test"))
    table = scores_by_split(long, places)
    found = dict(table.filter(pl.col("axis") == "split").select("run_id", "value").rows())
    assert found == pytest.approx(
        {"6b_finetuning": 0.2168, "6b_verification": 0.3904, "175b_finetuning": 0.3472, "175b_verification": 0.5625},
        abs=5e-5,
    )

"""The flow `pipeline` with training and evaluation, small; and the recipe on real responses."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from gradatim.flows import looking
from gradatim.schemas.errors import UsageError
from gradatim.storage.store import Store

pytestmark = pytest.mark.usefixtures("prefect")

MODULAR = """
dataset: modular
examples:
  generate: {modular_arithmetic: {p: 7}}
difficulty:
  - length: {of: output, unit: characters}
splits:
  - threshold: {column: x, train: "<= 4", as: large_x}
curriculum: {by: length, arms: [curriculum, random], passes: 4}
train:
  model: {mlp: {columns: [operation_index, x, y], target: output, hidden: 32}}
  global_batch: 16
  micro_batch: 16
evaluate: {resamples: 200}
"""


@pytest.mark.train
def test_a_pipeline_trains_in_order_evaluates_and_is_not_run_twice(tmp_path: Path) -> None:
    from gradatim.flows.pipeline import pipeline
    from gradatim.flows.train import train

    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(MODULAR + f"store: {tmp_path / 'store'}\n")
    found = pipeline(str(recipe))
    assert set(found["runs"]) == {"curriculum", "random"}
    store = Store.open(tmp_path / "store").dataset("modular")
    answers = store.scan("predictions").collect()
    places = store.scan("splits").filter(pl.col("strategy") == "large_x").collect()
    tested = places.filter(pl.col("split").is_in(["validation", "test", "test_ood"]))["example_id"]
    assert answers.group_by("run_id").len()["len"].to_list() == [len(tested)] * 2
    cells = store.scan("evaluation").collect()
    value = cells.filter(
        (pl.col("run_id") == found["runs"]["random"][0]) & (pl.col("axis") == "split") & (pl.col("slice") == "test_ood")
    ).row(0, named=True)
    mine = answers.filter(pl.col("run_id") == found["runs"]["random"][0]).join(places, on="example_id")
    share = mine.filter(pl.col("split") == "test_ood")["correct"].mean()
    assert value["value"] == pytest.approx(share)
    assert value["ci_low"] <= share <= value["ci_high"]
    assert len(found["claims"]) == 3  # one an arm and one that compares them
    assert "large_x split" in found["claims"][0]

    # the curriculum table is the order of training, example by example, and the audit proves it
    dynamics = store.scan("dynamics").collect()
    for arm, (run_id,) in found["runs"].items():
        order = store.scan("curriculum").filter(pl.col("arm") == arm).sort("position").collect()["example_id"]
        trained = dynamics.filter(pl.col("run_id") == run_id).sort("position")["example_id"]
        assert trained.to_list() == order.to_list()
        assert looking.audit_of(str(tmp_path / "store"), None, f"{arm}-0").holds

    before = {name: store.version(name).number for name in store.tables()}
    again = pipeline(str(recipe))
    assert {name: store.version(name).number for name in store.tables()} == before
    assert again["claims"] == found["claims"]
    with pytest.raises(UsageError, match="did you mean 'random'"):
        train(str(recipe), arm="randm")
    # a run on another version of the split is not taken for one of this recipe
    from gradatim.flows.curate import curate
    from gradatim.flows.evaluate import evaluate

    recipe.write_text(recipe.read_text().replace("<= 4", ">= 3"))
    curate(str(recipe))
    with pytest.raises(UsageError, match="no arm has been trained on the newest order"):
        evaluate(str(recipe))
    # a run that is refused after its splits leaves them newer than the order: they are not mixed
    recipe.write_text(recipe.read_text().replace(">= 3", "<= 4"))
    curate(str(recipe))
    recipe.write_text(recipe.read_text().replace("<= 4", "<= 2").replace("{by: length,", "{by: length, fold: 9,"))
    with pytest.raises(UsageError, match="fold 9"):
        curate(str(recipe))
    recipe.write_text(recipe.read_text().replace("fold: 9, ", ""))
    trained = train(str(recipe))["runs"]["random"][0]
    answered = store.scan("predictions").filter(pl.col("run_id") == trained).collect()["example_id"]
    learned = store.scan("dynamics").filter(pl.col("run_id") == trained).collect()["example_id"]
    assert len(answered)
    assert not set(answered) & set(learned)
    recipe.write_text(recipe.read_text().replace("operation_index", "operation_indx"))
    with pytest.raises(UsageError, match="did you mean 'operation_index'"):
        train(str(recipe))


@pytest.mark.usefixtures("prefect")
def test_the_recipe_on_real_responses_gives_the_known_correlations(data: Path, tmp_path: Path) -> None:
    from gradatim.flows.curate import curate

    recipe = Path(__file__).parents[2] / "examples" / "swe_bench" / "recipe.yaml"
    found = curate(str(recipe), store=str(tmp_path), data=str(data / "agentbench"))
    store = Store.open(tmp_path).dataset("swe-bench")
    table = store.scan("difficulty").select("example_id", "method", "value").collect()
    wide = table.pivot("method", index="example_id", values="value")
    shipped = pl.read_csv(data / "agentbench" / "swebench_verified_items.csv")
    wide = wide.join(shipped, left_on="example_id", right_on="instance_id")

    def spearman(left: str, right: str) -> float:
        return float(wide.select(pl.corr(left, right, method="spearman")).item())

    assert spearman("irt", "pass_rate_right") < -0.998
    assert spearman("irt", "b_1pl_pyirt") > 0.998
    assert spearman("irt", "human_minutes") == pytest.approx(0.45, abs=0.02)
    splits = store.scan("splits").filter(pl.col("strategy") == "leave_one_domain_out").collect()
    django = splits.filter(pl.col("held_out").str.contains("django"))
    assert len(django.filter(pl.col("split") == "test_ood")) == 231
    assert found["tables"]["curriculum"] == 0
    report = json.loads((tmp_path / "swe-bench" / "report.json").read_text())
    assert "difficulty agreement" in [step["step"] for step in report]

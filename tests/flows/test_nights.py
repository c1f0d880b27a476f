"""Three nights with a release each: components grow and keep their names, and no twin of a test row is trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_recipe import write_jsonl

from gradatim.flows.job import Job
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset

RECIPE = """\
dataset: small
examples: {from: items/, id: id, input: question, output: answer}
difficulty: [length]
diversity:
  - near_duplicates
splits:
  - threshold: {column: n_steps, train: "<= 6"}
release: true
"""


def rows(ids: list[str], **more: Any) -> list[dict[str, Any]]:
    """Rows of thirty words of their own, steps 1 to 9 by number."""
    return [
        {
            "id": i,
            "question": " ".join(f"{i}-{k}" for k in range(30)),
            "answer": "a",
            "n_steps": 1 + int(i[1:]) % 9,
            **more,
        }
        for i in ids
    ]


def twin(of: dict[str, Any], name: str, words: str, n_steps: int) -> dict[str, Any]:
    return {**of, "id": name, "question": f"{of['question']} {words}", "n_steps": n_steps}


def places(store: Dataset) -> dict[str, str]:
    return dict(store.scan("splits").filter(strategy="threshold").select("example_id", "split").collect().iter_rows())


@pytest.mark.usefixtures("prefect")
def test_three_nights(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate
    from gradatim.flows.plan import plan_recipe

    recipe = small(RECIPE, shards=0)
    folder = recipe.parent / "items"
    first = rows([f"q{i:03d}" for i in range(120)])
    write_jsonl(folder / "night-1.jsonl", first)
    one = curate(str(recipe))
    store = Store.open(recipe.parent / "store").dataset("small")
    before = places(store)
    outside = next(row for row in first if before[row["id"]] == "test_ood")
    test = next(row for row in first if before[row["id"]] == "test")
    train = [row for row in first if before[row["id"]] == "train"]
    assert curate(str(recipe))["tables"] == one["tables"], "a night without news makes no version"

    # a twin of a test_ood row that obeys the rule, a twin of a train row with a smaller id
    write_jsonl(folder / "night-2.jsonl", [twin(outside, "z1", "indeed", 1), twin(train[0], "a1", "very", 1)])
    two = curate(str(recipe))
    now = places(store)
    assert {i: now[i] for i in before} == before
    assert (now["z1"], now["a1"]) == ("excluded", "train")
    (told,) = [s for s in two["summaries"] if s["step"] == "split threshold"]
    assert told["headline"].endswith("excluded +1 (near-duplicates of frozen test rows)")
    split = store.scan("splits").filter(strategy="threshold").collect()
    reason = split.filter(example_id="z1")["reason"][0]
    assert reason.startswith(f"near-duplicate of {outside['id']} (similarity .9")
    assert reason.endswith("), a released test row")
    assert split.filter(example_id="a1")["component"].to_list() == [train[0]["id"]]
    pair = store.scan("pairs").filter(right_id="z1").collect().row(0, named=True)
    assert (pair["left_id"], pair["left_version"], pair["right_version"]) == (outside["id"], 0, 1)

    # a bridge between a test row and a train row, which with its own twin is one component; and a row goes
    bridge = {**test, "id": "b1", "question": f"{test['question']} {train[1]['question']}"}
    write_jsonl(folder / "night-3.jsonl", [bridge])
    gone = train[2]["id"]
    write_jsonl(folder / "night-1.jsonl", [row for row in first if row["id"] != gone])
    recipe.write_text(recipe.read_text().replace("- near_duplicates", "- near_duplicates: {threshold: 0.45}"))
    three = curate(str(recipe))
    after = places(store)
    (grown,) = [s for s in three["summaries"] if s["step"] == "components"]
    component, absorbed = sorted([test["id"], train[1]["id"]])
    assert [tuple(row) for row in grown["tables"][0]["rows"]] == [(component, absorbed, 1, test["id"])]
    assert f"{component!r} took in {absorbed!r}" in grown["warnings"][0]
    assert store.scan("components").filter(pl.col("absorbed").is_not_null()).collect()["absorbed"].to_list() == [
        absorbed
    ]
    assert after[test["id"]] == "test"
    assert after[train[1]["id"]] in ("test", "excluded")
    assert {i for i in now.keys() & after.keys() if now[i] != after[i]} == {train[1]["id"]}
    assert gone not in after
    assert [three["release"], two["release"], one["release"]] == [3, 2, 1]
    stands = {row[0]: row[1] for row in plan_recipe(str(recipe), None, None).to_dict()["tables"][0]["rows"]}
    assert {stands[name] for name in ("diversity near_duplicates", "components", "split threshold")} == {"stands"}


@pytest.mark.usefixtures("prefect")
def test_by_default_near_duplicates_are_counted_across_splits_and_part_nobody(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate
    from gradatim.flows.plan import plan_recipe

    bare = RECIPE.replace("diversity:\n  - near_duplicates\n", "").replace("difficulty: [length]\n", "")
    recipe = small(bare.replace("release: true\n", ""), shards=0)
    ids = [f"q{i:03d}" for i in range(90)]
    first = rows(ids)
    write_jsonl(
        recipe.parent / "items" / "all.jsonl", [*first, *(twin(row, f"t{row['id']}", "indeed", 9) for row in first)]
    )
    found = curate(str(recipe))
    assert "components" not in found["tables"]
    steps = plan_recipe(str(recipe), None, None).to_dict()["tables"][0]["rows"]
    assert {row[1] for row in steps} == {"stands"}  # what no line of the recipe asks for as well
    store = Store.open(recipe.parent / "store").dataset("small")
    assert set(store.scan("pairs").collect()["method"]) == {"near_duplicates minhash"}
    split = store.scan("splits").filter(strategy="threshold").collect()
    assert (split["split"] == "excluded").sum() == 0
    across = store.scan("certificate").filter(check="near_duplicates_across").collect().row(0, named=True)
    inside = sum(1 for row in first if row["n_steps"] <= 6)
    assert (across["value"], across["bound"]) == (inside, None)
    (told,) = [s for s in found["summaries"] if s["step"] == "split threshold"]
    assert [fact["value"] for fact in told["facts"] if fact["name"] == "near-duplicates across"] == [inside]
    recipe.write_text(recipe.read_text() + "checks: {near_duplicates: off}\n")
    assert (
        "near_duplicates_across"
        not in store.scan("certificate", curate(str(recipe))["tables"]["certificate"]).collect()["check"]
    )


STEP, HILL = "  - near_duplicates\n", "  - hill: {column: output}\n"


@pytest.mark.parametrize(
    ("change", "alike", "keeps"),
    [
        (("", ""), ("near_duplicates",), True),
        ((STEP, "  - near_duplicates: {as: copies, using: exact}\n"), ("copies",), True),
        ((STEP, HILL), ("near_duplicates",), False),
        ((STEP, "  - hill: {column: output, as: near_duplicates}\n"), ("checks.near_duplicates",), False),
        ((STEP, HILL + "checks: {near_duplicates: off}\n"), (), False),
        ((STEP, HILL + "checks: {near_duplicates: 0.6}\n"), ("near_duplicates",), False),
        (("input: question, ", ""), ("near_duplicates",), True),
        (("diversity:\n  - near_duplicates\nsplits:", "diversity: []\nsplits:"), ("near_duplicates",), False),
    ],
)  # fmt: skip
def test_a_recipe_that_names_no_step_gets_the_check(
    small: Callable[..., Path], change: tuple[str, str], alike: tuple[str, ...], keeps: bool
) -> None:
    job = Job.load(str(small(RECIPE.replace(*change, 1), shards=1, rows=3)))
    assert (job.alike, job.keeps_alike) == (alike, keeps)
    thresholds = [getattr(method.config, "threshold", None) for method in job.diversity if method.name in job.alike]
    assert thresholds == [0.6 if "0.6" in change[1] else None if keeps else 0.8] * len(alike)


def test_without_splits_or_a_text_input_there_is_no_check(small: Callable[..., Path]) -> None:
    bare = RECIPE.replace("diversity:\n  - near_duplicates\n", "")
    assert Job.load(str(small(bare.replace("input: question, ", ""), shards=1, rows=3))).diversity == ()
    no_splits = bare.split("splits:")[0]
    assert Job.load(str(small(no_splits, shards=1, rows=3))).diversity == ()


def test_a_released_test_row_that_left_is_told_kept_in_the_ledger_and_tested_again_when_it_is_back(
    small: Callable[..., Path],
) -> None:
    from gradatim.flows.bundle import write_bundle
    from gradatim.flows.steps import as_function, take_steps
    from gradatim.flows.verify import verify_bundle

    recipe = small(RECIPE.replace("diversity:\n  - near_duplicates\n", ""), shards=0)
    file, every = recipe.parent / "items" / "all.jsonl", rows([f"q{i:03d}" for i in range(150)])

    def night(kept: list[dict[str, Any]]) -> tuple[Dataset, list[str]]:
        write_jsonl(file, kept)
        job, told = Job.load(str(recipe)), []
        dataset = job.place.open()
        based_on = dataset.latest_release()
        versions = take_steps(job, as_function, lambda summary: told.extend(summary.warnings))
        dataset.release(versions, based_on=based_on.number if based_on else None)
        return dataset, told

    dataset, _ = night(every)
    before = places(dataset)
    gone = sorted([i for i in before if before[i] == "test"][:2] + [i for i in before if before[i] == "test_ood"][:1])
    without = [row for row in every if row["id"] not in gone]
    dataset, told = night(without)
    assert any(f"3 released test rows are no longer among the examples ({', '.join(gone)})" in line for line in told)
    # a night later nobody speaks of them, and the rule is another one: of the draws, too
    recipe.write_text(recipe.read_text().replace('"<= 6"', '"<= 7", test: 0.05'))
    dataset, told = night(without[:-1])
    assert not any(gone[0] in line for line in told)
    dataset, _ = night(every)
    after = places(dataset)
    assert {i: after[i] for i in gone} == {i: before[i] for i in gone}
    tested = [i for i in before if before[i] in ("test", "test_ood")]
    assert {i: after[i] for i in tested} == {i: before[i] for i in tested}
    write_bundle(str(recipe.parent / "store"), None, "threshold", str(recipe.parent / "b.zip"), anonymous=True)
    assert verify_bundle(str(recipe.parent / "b.zip"), str(file)).holds

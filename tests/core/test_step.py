"""What the thin tasks share: names of results, columns that are read, what may be retried."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, TryAgain, UsageError
from gradatim.schemas.recipe import Step
from gradatim.schemas.summary import Fact, Summary
from gradatim.storage.publish import Wanted
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import step
from gradatim.tasks.core.registry import resolve


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """A data set with three examples."""
    found = Store.open(tmp_path).dataset("d")
    rows = pl.DataFrame(
        {
            "example_id": ["a", "b", "c"],
            "source_uri": ["x"] * 3,
            "source_row": [0, 1, 2],
            "input": ["one", "two", "three"],
            "content_hash": ["0" * 32] * 3,
            "n_steps": [1, 2, 3],
        }
    )
    found.publish("examples", [Wanted("0" * 32, lambda: [rows])])
    return found


def place(dataset: Dataset, seed: int = 0) -> step.Place:
    return step.Place(dataset.store.location, dataset.name, ".", seed, "r" * 32)


def method(text: dict[str, object] | str, area: str = "split") -> step.Method:
    parsed = Step.model_validate(text)
    plugin, config = resolve(area, parsed)
    return step.Method(area, parsed.name, plugin, config, "recipe.yaml: splits[0]")


def test_a_result_is_named_by_all_that_determines_it() -> None:
    base = method({"length": {"column": "n_steps", "train": "<= 2"}})
    same = method({"length": {"train": "<= 2", "column": "n_steps", "test": 0.1}})
    assert base.fingerprint(0, ["x"]) == same.fingerprint(0, ["x"])
    others = [
        method({"length": {"column": "n_steps", "train": "<= 3"}}).fingerprint(0, ["x"]),
        method({"length": {"column": "n_steps", "train": "<= 2", "as": "short"}}).fingerprint(0, ["x"]),
        method({"threshold": {"column": "n_steps", "train": "<= 2"}}).fingerprint(0, ["x"]),
        base.fingerprint(1, ["x"]),
        base.fingerprint(0, ["y"]),
    ]
    assert len({base.fingerprint(0, ["x"]), *others}) == 6
    assert method("vendi", "diversity").fingerprint(0, [])  # infinity is among its settings


def test_needs_name_the_columns_that_settings_name() -> None:
    found = method({"length": {"column": "n_steps", "train": "<= 2", "keep_together": ["group", "template"]}}).needs()
    assert set(found) == {"examples.n_steps", "examples.group", "examples.template"}


def test_columns_are_read_with_the_key_and_a_missing_one_is_told(dataset: Dataset) -> None:
    frames = step.read_columns(dataset, {"examples": 0}, ["examples.n_steps"], where="here")
    assert frames["examples"].columns == ["example_id", "n_steps"]
    with pytest.raises(UsageError, match="did you mean 'n_steps'"):
        step.read_columns(dataset, {"examples": 0}, ["examples.n_step"], where="here")
    with pytest.raises(UsageError, match="needs the table 'responses'") as error:
        step.read_columns(dataset, {"examples": 0}, ["responses.score"], where="here")
    assert "add a section 'responses'" in str(error.value)


def test_a_summary_is_found_again_and_says_that_it_is_reused(dataset: Dataset) -> None:
    told = Summary("split length", "train 2", facts=(Fact("axis", "length"),))
    assert step.kept_summary(dataset, "1" * 32) is None
    step.keep_summary(dataset, "1" * 32, told)
    found = step.kept_summary(dataset, "1" * 32)
    assert found is not None
    assert found.reused
    assert found.facts == told.facts


def test_groups_of_a_shared_table_come_stay_and_go(dataset: Dataset) -> None:
    def rows(name: str) -> pl.DataFrame:
        return pl.DataFrame({"example_id": ["a", "b", "c"], "value": [1.0, 2.0, 3.0]}).with_columns(
            pl.lit(name).alias("method"),
            pl.lit("words").alias("scale"),
            (pl.int_range(1, 4) / 3).alias("percentile"),
            pl.lit(0, pl.Int32).alias("bin"),
        )

    for index, name in enumerate(("one", "two")):
        step.publish_group(
            dataset, place(dataset), "difficulty", name, str(index) * 32, rows(name), ["examples@0"], bases={name: "b"}
        )
    assert step.held(dataset, "difficulty", "0" * 32, "one")
    assert not step.held(dataset, "difficulty", "0" * 32, "two")
    assert dataset.version("difficulty").rows == 6
    step.keep_only(dataset, place(dataset), "difficulty", ["two"], ["examples@0"])
    assert {part.group for part in dataset.parts("difficulty")} == {"two"}
    before = dataset.version("difficulty").number
    step.keep_only(dataset, place(dataset), "difficulty", ["two"], ["examples@0"])
    assert dataset.version("difficulty").number == before


@pytest.mark.parametrize(
    ("error", "again"), [(TryAgain("a lost race"), True), (DataRefused("bad rows"), False), (ValueError("x"), False)]
)
def test_only_what_may_pass_by_itself_is_retried(error: Exception, again: bool) -> None:
    class Failed:
        def result(self) -> None:
            raise error

    assert step.retried(None, None, Failed()) is again

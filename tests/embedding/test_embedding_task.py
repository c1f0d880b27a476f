"""Vectors night after night: only new rows are embedded, old vectors stay, a fit belongs to a release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from small_recipe import items, write_jsonl

from gradatim.flows.job import Job
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import StepResult
from gradatim.tasks.embedding import task as embedding_tasks
from gradatim.tasks.ingest import task as ingest_tasks

RECIPE = """\
dataset: words
examples: {from: items/, id: id, input: question}
features:
  words: {by: {hashed_tfidf: {width: 8, rarest: 1}}}
"""


class Nights:
    """A store to which rows come night by night; counts the rows that are embedded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.embedded, self.recipe = folder, 0, RECIPE

    def add(self, night: int, rows: int = 40) -> None:
        write_jsonl(self.folder / "items" / f"night-{night}.jsonl", items(night * rows, (night + 1) * rows))

    def job(self) -> Job:
        path = self.folder / "recipe.yaml"
        path.write_text(f"{self.recipe}store: {self.folder / 'store'}\n", encoding="utf-8")
        return Job.load(str(path))

    def run(self, *, release: bool = False, seed: int = 0) -> tuple[StepResult, int]:
        """Ingest and embed as the flow does, without Prefect; returns the result and how many rows were embedded."""
        self.embedded, job = 0, self.job()
        place, examples = replace(job.place, seed=seed), job.recipe.examples
        dataset = place.open()
        with dataset.store.staging(place.dataset) as scratch:
            found = ingest_tasks.list_shards.fn(place, examples)
            schema = ingest_tasks.read_schema.fn(place, examples, found)
            mapped = [ingest_tasks.map_shard.fn(place, examples, shard, schema, str(scratch)) for shard in found]
            versions = dict(
                ingest_tasks.publish_examples.fn(
                    place, examples, job.recipe.checks, mapped, schema, str(scratch)
                ).versions
            )
        (method,) = job.embedders
        told = embedding_tasks.embed.fn(place, method, versions)
        assert embedding_tasks.rows_to_embed(dataset, place, method, versions) == 0
        if release:
            before = dataset.latest_release()
            dataset.release({**versions, **told.versions}, based_on=before.number if before else None)
        return told, self.embedded

    def dataset(self) -> Dataset:
        return self.job().place.open()

    def rows(self) -> pl.DataFrame:
        return self.dataset().scan("features_words").sort("example_id").collect()


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    made = Nights(tmp_path)
    real: Callable[..., Iterator[Any]] = embedding_tasks.vectors

    def counted(embedder: Any, fit: Any, rows: pl.DataFrame, where: str) -> Iterator[Any]:
        made.embedded += len(rows)
        return real(embedder, fit, rows, where)

    monkeypatch.setattr(embedding_tasks, "vectors", counted)
    made.add(0)
    made.add(1)
    return made


def told(result: StepResult) -> dict[str, Any]:
    return {fact.name: fact.value for fact in result.summary.facts}


def test_night_after_night_only_new_rows_are_embedded_and_old_vectors_keep_every_bit(nights: Nights) -> None:
    assert nights.run(release=True)[1] == 80
    first = nights.rows()
    nights.add(2)
    second, embedded = nights.run(release=True)
    assert embedded == 40
    assert (told(second)["embedded now"], told(second)["fitted on"]) == (40, "examples@0")
    assert nights.rows().filter(pl.col("example_id").is_in(first["example_id"].implode())).equals(first)
    nights.add(3)
    third, embedded = nights.run(release=True)  # the newest release is another one, its fit still that of the first
    assert (embedded, told(third)["fitted on"]) == (40, "examples@0")
    assert nights.rows().filter(pl.col("example_id").is_in(first["example_id"].implode())).equals(first)
    again, embedded = nights.run(release=True)
    assert (embedded, again.summary.reused, again.versions) == (0, True, third.versions)


def test_a_shard_that_goes_takes_its_vectors_along(nights: Nights) -> None:
    nights.run(release=True)
    (nights.folder / "items" / "night-1.jsonl").unlink()
    result, embedded = nights.run()
    assert (embedded, len(nights.rows()), told(result)["embedded now"]) == (0, 40, 0)


@pytest.mark.parametrize(
    ("anchor", "released", "embedded"),
    [("current", True, 40), ("1", True, 40), ("null", True, 120), ("current", False, 120)],
)
def test_a_fit_is_kept_where_a_release_anchors_it(nights: Nights, anchor: str, released: bool, embedded: int) -> None:
    nights.run(release=released)
    nights.recipe = RECIPE.replace("rarest: 1", f"rarest: 1, anchor: {anchor}")
    nights.add(2)
    assert nights.run()[1] == embedded


def test_a_later_release_can_be_named_as_the_anchor_and_going_back_costs_nothing(nights: Nights) -> None:
    nights.run(release=True)
    nights.add(2)
    nights.run(release=True)
    first = nights.rows()
    nights.recipe = RECIPE.replace("rarest: 1", "rarest: 1, anchor: 2")
    second, embedded = nights.run()
    assert (embedded, told(second)["fitted on"]) == (120, "examples@1")
    assert not nights.rows().equals(first)
    nights.recipe = RECIPE
    assert nights.run()[1] == 0
    assert nights.rows().equals(first)
    nights.recipe = RECIPE.replace("rarest: 1", "rarest: 1, anchor: 7")
    with pytest.raises(UsageError, match="no release 7"):
        nights.run()


def test_other_settings_make_other_vectors_also_of_another_width(nights: Nights) -> None:
    nights.run(release=True)
    assert nights.rows().schema["embedding"] == pl.Array(pl.Float32, 8)
    nights.recipe = RECIPE.replace("width: 8", "width: 5")
    assert nights.run()[1] == 80
    assert nights.rows().schema["embedding"] == pl.Array(pl.Float32, 5)
    released = nights.dataset().scan("features_words@current").collect()
    assert released.schema["embedding"] == pl.Array(pl.Float32, 8), "the former version keeps its width"
    assert nights.run(seed=1)[1] == 80
    nights.recipe = RECIPE.replace("hashed_tfidf: {width: 8, rarest: 1}", "standardised: {columns: [n_steps]}")
    assert nights.run()[1] == 80
    assert nights.rows()["embedding"].arr.sum().sum() == pytest.approx(0, abs=1e-4)


def test_a_fit_that_was_lost_is_made_again_with_the_same_bits_and_a_damaged_one_is_named(nights: Nights) -> None:
    nights.run(release=True)
    (kept,) = (nights.folder / "store" / "words" / "_fits").iterdir()
    raw = kept.read_bytes()
    kept.unlink()
    nights.add(2)
    nights.run()
    assert kept.read_bytes() == raw
    kept.write_bytes(raw[:-100])
    nights.add(3)
    with pytest.raises(DataRefused, match=kept.name):
        nights.run()


def test_what_was_out_of_the_ordinary_is_told_of_all_rows_not_of_the_new_ones_alone(nights: Nights) -> None:
    rows = [{**row, "question": f"{row['question']} é" if i % 2 else "¿"} for i, row in enumerate(items(200, 240))]
    nights.recipe = RECIPE.replace("rarest: 1", "rarest: 1, longest: 12")
    nights.run(release=True)
    write_jsonl(nights.folder / "items" / "odd.jsonl", [{**row, "id": f"x{row['id']}"} for row in rows[:2]])
    result, embedded = nights.run()
    assert embedded == 2
    assert [w.split(" rows ")[0] for w in result.summary.warnings] == ["81 of 82", "1 of 82"]


def test_a_column_that_came_later_is_null_in_older_parts(nights: Nights) -> None:
    nights.run(release=True)
    nights.recipe = RECIPE.replace("hashed_tfidf: {width: 8, rarest: 1}", "standardised: {columns: [size]}")
    write_jsonl(nights.folder / "items" / "night-2.jsonl", items(80, 120, size=3))
    result, _ = nights.run()
    assert any("80 of 120 rows without a number" in warning for warning in result.summary.warnings)


def test_a_column_that_the_examples_lack_is_named(nights: Nights) -> None:
    nights.recipe = RECIPE.replace("width: 8", "width: 8, column: questoin")
    with pytest.raises(UsageError, match="no column 'questoin'"):
        nights.run()
    assert pa.types.is_string(nights.dataset().version("examples").schema.field("input").type)

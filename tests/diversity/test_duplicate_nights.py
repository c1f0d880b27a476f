"""Near-duplicates night after night: equal to a comparison of everything at once, and only what is new is signed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_recipe import write_jsonl

from gradatim.flows.job import Job
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.near_duplicates import Scheme, compare, signatures
from gradatim.tasks.diversity import task as diversity_tasks
from gradatim.tasks.diversity.duplicate_nights import carried, changes, restored, stored, versioned
from gradatim.tasks.ingest import task as ingest_tasks

SCHEME = Scheme(threshold=0.4, shingle=2)
WORDS = ["a b c d e f", "a b c d e g", "a b c d h g", "k l m n", "k l m n o", "A b c d e f", "a  b c d e f", "", "z"]
NIGHT = st.dictionaries(st.sampled_from([f"q{i}" for i in range(9)]), st.sampled_from(WORDS), max_size=9)


def signed(rows: dict[str, str]) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"example_id": list(rows), "text": list(rows.values())}, schema=dict.fromkeys(("example_id", "text"), pl.String)
    )
    return signatures(frame, SCHEME)


def reader(rows: dict[str, str]) -> Callable[[pl.Series], pl.DataFrame]:
    return lambda ids: pl.DataFrame({"example_id": ids, "text": [rows[i] for i in ids]})


@given(nights=st.lists(NIGHT, min_size=1, max_size=5))
@settings(max_examples=25)
def test_whatever_comes_changes_and_goes_the_pairs_are_those_of_all_rows_at_once(nights: list[dict[str, str]]) -> None:
    pairs, before = compare(signed({}), reader({}), SCHEME).pairs, signed({})
    for rows in nights:
        now = signed(rows)
        new, gone = changes(before.select("example_id", "digest"), now)
        found = compare(new, reader(rows), SCHEME, [now[:4], now[4:]]).pairs
        pairs, before = carried(pairs, found, gone["example_id"], SCHEME.threshold), now
        assert pairs.equals(compare(now, reader(rows), SCHEME).pairs)


def test_signatures_survive_the_table_bit_by_bit() -> None:
    for banded in (True, False):
        made = signatures(
            pl.DataFrame({"example_id": ["a", "b", "c"], "text": ["x y z", None, "y z x w"]}), SCHEME, banded=banded
        )
        kept = stored(made, "near_duplicates")
        assert kept["method"].unique().to_list() == ["near_duplicates"]
        assert restored(kept, SCHEME).equals(made)
        assert restored(kept[:0], SCHEME).equals(made[:0])


def test_a_pair_says_of_which_version_its_rows_are() -> None:
    found = compare(
        signed({"a": "k l m n", "b": "k l m n o"}), reader({"a": "k l m n", "b": "k l m n o"}), SCHEME
    ).pairs
    told = versioned(found, pl.DataFrame({"example_id": ["b", "c"], "changed_version": [7, 8]}))
    assert told.select("left_id", "right_id", "left_version", "right_version").rows() == [("a", "b", None, 7)]


RECIPE = """\
dataset: words
examples: {from: items/, id: id, input: question}
diversity:
  - near_duplicates: {threshold: 0.8}
  - near_duplicates: {using: exact, column: answer, as: copies}
"""
LONG = " ".join(f"w{k}" for k in range(40))


class Nights:
    """A store to which rows come night by night; counts the rows that are signed and the texts that are read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.signed, self.recipe = folder, 0, RECIPE

    def write(self, shard: int, rows: dict[str, str]) -> None:
        listed = [{"id": i, "question": text, "answer": text[-2:]} for i, text in rows.items()]
        write_jsonl(self.folder / "items" / f"shard-{shard}.jsonl", listed)

    def run(self) -> Dataset:
        """Ingest and measure as the flow does, without Prefect."""
        self.signed = 0
        path = self.folder / "recipe.yaml"
        path.write_text(f"{self.recipe}store: {self.folder / 'store'}\n", encoding="utf-8")
        job = Job.load(str(path))
        place, examples = job.place, job.recipe.examples
        dataset = place.open()
        with dataset.store.staging(place.dataset) as scratch:
            found = ingest_tasks.list_shards.fn(place, examples)
            schema = ingest_tasks.read_schema.fn(place, examples, found)
            mapped = [ingest_tasks.map_shard.fn(place, examples, shard, schema, str(scratch)) for shard in found]
            checks = job.recipe.checks
            versions = ingest_tasks.publish_examples.fn(place, examples, checks, mapped, schema, str(scratch)).versions
        for method in job.diversity:
            diversity_tasks.measure.fn(place, method, versions)
        diversity_tasks.settle.fn(place, [method.name for method in job.diversity], versions)
        return dataset

    def pairs(self, dataset: Dataset, name: str = "near_duplicates") -> pl.DataFrame:
        return (
            dataset.scan("pairs")
            .filter(pl.col("method").str.starts_with(f"{name} "))
            .sort("left_id", "right_id")
            .collect()
        )


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    made = Nights(tmp_path)
    real: Callable[..., pl.DataFrame] = diversity_tasks.signatures

    def counted(frame: pl.DataFrame, scheme: Scheme, **settings: Any) -> pl.DataFrame:
        made.signed += len(frame)
        return real(frame, scheme, **settings)

    monkeypatch.setattr(diversity_tasks, "signatures", counted)
    return made


def test_a_night_signs_its_new_rows_alone_and_finds_what_a_fresh_store_finds(nights: Nights, tmp_path: Path) -> None:
    nights.write(0, {f"m{i}": f"{LONG} {i // 2}" for i in range(6)} | {f"p{i}": f"other {i}" for i in range(30)})
    first = nights.pairs(nights.run())
    assert nights.signed == 2 * 36
    assert set(first["left_version"]) == set(first["right_version"]) == {0}
    nights.write(1, {"a0": f"{LONG} 0", "z1": f"{LONG} new", "z2": "nothing like it"})
    dataset = nights.run()
    assert nights.signed == 2 * 3
    second = nights.pairs(dataset)
    assert second.filter(left_id="a0", right_id="m0").select("method", "left_version", "right_version").rows() == [
        ("near_duplicates exact", 1, 0)
    ]
    # a row changes, a row goes, and the shard is written anew
    nights.write(
        0, {f"m{i}": f"{LONG} {i // 2}" for i in range(1, 6)} | {f"p{i}": f"other {i + (i == 7)}" for i in range(30)}
    )
    third = nights.pairs(nights.run())
    assert nights.signed == 2 * 35
    assert "m0" not in {*third["left_id"], *third["right_id"]}
    assert third.filter(left_id="p7", right_id="p8").select("left_version", "right_version").rows() == [(2, 0)]
    nights.run()
    assert nights.signed == 0
    nights.folder = tmp_path / "fresh"
    (tmp_path / "fresh").mkdir()
    (tmp_path / "items").rename(tmp_path / "fresh" / "items")
    at_once = nights.run()
    columns = pl.exclude("left_version", "right_version")
    assert nights.pairs(at_once).select(columns).equals(third.select(columns))
    for table, name in (("diversity", "near_duplicates"), ("diversity", "copies")):
        both = [d.scan(table).filter(pl.col("method") == name).sort("example_id").collect() for d in (dataset, at_once)]
        assert both[0].equals(both[1])
    assert nights.pairs(at_once, "copies").equals(
        nights.pairs(dataset, "copies").with_columns(
            left_version=pl.lit(0, pl.Int64), right_version=pl.lit(0, pl.Int64)
        )
    )


def test_other_settings_compare_all_anew_and_a_higher_cut_of_giants_does_not(nights: Nights) -> None:
    nights.write(0, {f"m{i}": f"{LONG} {i}" for i in range(4)})
    assert len(nights.pairs(nights.run())) == 6
    nights.recipe = RECIPE.replace("threshold: 0.8", "threshold: 0.8, giant: 0.3")
    assert len(nights.pairs(nights.run())) == 6
    assert nights.signed == 0
    nights.recipe = RECIPE.replace("threshold: 0.8", "threshold: 0.99")
    assert nights.pairs(nights.run()).is_empty()
    assert nights.signed == 4
    nights.recipe = RECIPE.replace("threshold: 0.8", "threshold: 0.8, column: answer, unit: characters")
    assert nights.pairs(nights.run()).is_empty()
    assert nights.signed == 4
    nights.recipe = RECIPE.split("  - near_duplicates: {using")[0]
    assert set(nights.run().scan("signatures").collect()["method"]) == {"near_duplicates"}


def test_a_column_that_came_later_has_no_text_in_older_parts(nights: Nights) -> None:
    nights.write(0, {"a": LONG, "b": f"{LONG} b"})
    nights.run()
    nights.recipe = RECIPE.replace("{threshold: 0.8}", "{column: note}")
    write_jsonl(nights.folder / "items" / "shard-1.jsonl", [{"id": "c", "question": "q", "answer": "r", "note": LONG}])
    dataset = nights.run()
    assert nights.pairs(dataset).is_empty()
    assert dataset.scan("diversity").filter(method="near_duplicates").collect()["example_id"].to_list() == ["c"]

"""SCAN from its grammar against the public set, its count and its digest."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from gradatim.schemas.hashing import content_hash
from gradatim.schemas.tables import TABLES
from gradatim.tasks.core import trees
from gradatim.tasks.core.registry import get
from gradatim.tasks.ingest.scan import ScanConfig, scan

GOLDEN = Path(__file__).parents[1] / "golden" / "scan_digest.json"


@pytest.fixture(scope="module")
def pairs() -> pl.DataFrame:
    return pl.concat(scan(ScanConfig(), 0))


def test_count_and_digest_are_the_committed_ones(pairs: pl.DataFrame) -> None:
    golden = json.loads(GOLDEN.read_text())
    digest = content_hash(pa.table({c: pa.array(pairs[c].to_list(), pa.string()) for c in ("input", "output")}))
    ids = content_hash(pa.table({"example_id": pa.array(pairs["example_id"].to_list(), pa.string())}))
    assert {"pairs": len(pairs), "digest": digest, "ids": ids} == golden
    assert len(pairs) == 20_910


def test_it_equals_the_public_set_pair_by_pair(pairs: pl.DataFrame, data: Path) -> None:
    public = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    ours = pairs.select("input", "output", "n_words", "n_actions").sort("input")
    theirs = public.select(
        "command", "actions", pl.col("n_words").cast(pl.Int64), pl.col("n_actions").cast(pl.Int64)
    ).sort("command")
    assert ours.rows() == theirs.rows()


def test_the_length_split_has_its_published_sizes(pairs: pl.DataFrame) -> None:
    # Lake and Baroni (2018): 16,990 commands of at most 22 actions, 3,920 longer ones of 24 to 48
    assert pairs.filter(pl.col("n_actions") <= 22).height == 16_990
    longer = pairs.filter(pl.col("n_actions") > 22)["n_actions"]
    assert (longer.len(), longer.min(), longer.max()) == (3_920, 24, 48)


def test_derivations_are_trees_over_the_eighteen_rules(pairs: pl.DataFrame) -> None:
    assert trees.problems(pairs["structure"]).null_count() == len(pairs)
    labels = pairs["structure"].explode().struct.field("label")
    assert labels.n_unique() == 18
    assert set(labels.str.split(" -> ").list.first()) == {"C", "S", "V", "D", "U"}


def test_a_derivation_spells_its_command(pairs: pl.DataFrame) -> None:
    row = pairs.row(by_predicate=pl.col("input") == "walk around left twice after turn opposite right", named=True)
    assert [(node["parent"], node["label"]) for node in row["structure"]] == [
        (-1, "C -> S after S"),
        (0, "S -> V twice"),
        (1, "V -> D[1] around D[2]"),
        (2, "D -> U left"),
        (3, "U -> walk"),
        (0, "S -> V"),
        (5, "V -> D[1] opposite D[2]"),
        (6, "D -> turn right"),
    ]
    assert row["output"] == "I_TURN_RIGHT I_TURN_RIGHT" + " I_TURN_LEFT I_WALK" * 8
    assert row["template"] == "<primitive> around <direction> twice after turn opposite <direction>"
    factors = row["factors"]
    assert factors == {
        "conjunction": "after",
        "primitive1": "walk",
        "direction1": "left",
        "modifier1": "around",
        "repeat1": "twice",
        "primitive2": "turn",
        "direction2": "right",
        "modifier2": "opposite",
        "repeat2": "none",
    }
    assert list(factors) == sorted(factors)


def test_factors_determine_the_command(pairs: pl.DataFrame) -> None:
    assert len({tuple(row.items()) for row in pairs["factors"]}) == len(pairs)
    assert pairs["template"].n_unique() < len(pairs) / 20


def test_it_follows_the_contract_of_examples(pairs: pl.DataFrame) -> None:
    names = TABLES["examples"].schema.names
    assert pairs.columns == [*names, "n_words", "n_actions"]
    assert pairs["example_id"].is_sorted()
    assert pairs["example_id"].n_unique() == len(pairs)
    assert pairs["length_input"].equals(pairs["n_words"], check_names=False)
    assert pairs["length_output"].equals(pairs["n_actions"], check_names=False)


def test_it_is_a_plug_in_with_its_source() -> None:
    plugin = get("dataset", "scan")
    assert "Lake" in plugin.source
    assert plugin.summary.startswith("SCAN")

"""What repeats stays together: near-duplicates that a recipe measures never cross one of its splits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from small_recipe import items, write_jsonl

from gradatim.storage.store import Store

RECIPE = """\
dataset: small
examples: {from: items/, id: id, input: question, output: answer}
difficulty: [length]
diversity:
  - near_duplicates: {column: input}
  - near_duplicates: {column: input, using: exact, as: copies}
splits: [{random: {test: 0.3}}]
"""


@pytest.mark.usefixtures("prefect")
def test_near_duplicates_are_kept_whole_in_splits(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate

    recipe = small(RECIPE, shards=1, rows=60)
    rows = items(0, 60)
    for i, row in enumerate(rows):  # of each two rows the second adds a word
        row["question"] = " ".join([f"w{i // 2}-{k}" for k in range(30)] + ["indeed"] * (i % 2))
    write_jsonl(recipe.parent / "items" / "part-0.jsonl", rows)
    found = curate(str(recipe))
    assert "pairs" in found["tables"]
    store = Store.open(recipe.parent / "store").dataset("small")
    pairs = store.scan("pairs").collect()
    assert len(pairs) == 30
    assert set(pairs["method"]) == {"near_duplicates minhash"}
    split = store.scan("splits").filter(pl.col("strategy") == "random").select("example_id", "split").collect()
    assert split["split"].n_unique() >= 3
    sides = pairs.join(split, left_on="left_id", right_on="example_id")
    sides = sides.join(split, left_on="right_id", right_on="example_id", suffix="_right")
    assert sides.filter(pl.col("split") != pl.col("split_right")).is_empty()
    assert curate(str(recipe))["tables"] == found["tables"]

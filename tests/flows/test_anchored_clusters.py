"""Clusters over nights: a recipe that anchors them keeps those of the release, so that numbers of nights compare."""

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
features:
  words: {by: {hashed_tfidf: {width: 8, rarest: 1}}}
diversity:
  - coverage: {features: words, clusters: 6, anchor: current}
  - coverage: {features: words, clusters: 6, as: afresh}
"""


@pytest.mark.usefixtures("prefect")
def test_rows_keep_their_clusters_from_release_to_release(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate

    recipe = small(RECIPE, shards=1, rows=80)
    first = curate(str(recipe), release=True)
    store = Store.open(recipe.parent / "store").dataset("small")
    assert store.read_release(1).tables["centroids"] == first["tables"]["centroids"]
    (told,) = (one for one in first["summaries"] if one["step"] == "diversity coverage")
    assert any("no release holds clusters" in warning for warning in told["warnings"])
    centres, rows = store.scan("centroids").collect(), store.scan("diversity").collect()
    assert set(centres["method"]) == {"coverage", "afresh"}
    assert centres.group_by("method").agg(pl.col("rows").sum())["rows"].to_list() == [80, 80]
    assert curate(str(recipe), release=True)["tables"] == first["tables"]  # nothing new, nothing made

    write_jsonl(recipe.parent / "items" / "part-1.jsonl", items(80, 140))
    second = curate(str(recipe), release=True)
    (told,) = (one for one in second["summaries"] if one["step"] == "diversity coverage")
    assert not any("no release holds clusters" in warning for warning in told["warnings"])
    later, now = store.scan("centroids").collect(), store.scan("diversity").collect()
    ours = pl.col("method") == "coverage"
    kept = [frame.filter(ours).select("cluster", "centroid").sort("cluster") for frame in (centres, later)]
    assert kept[0].equals(kept[1])
    both = rows.join(now, on=["example_id", "method"], suffix="_now")
    assert len(both) == 160
    same = dict(both.group_by("method").agg((pl.col("cluster") == pl.col("cluster_now")).all()).rows())
    assert same == {"coverage": True, "afresh": False}
    assert later.filter(ours)["rows"].sum() == 140

    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace("{features: words, clusters: 6, anchor", "{features: words, clusters: 5, anchor"))
    third = curate(str(recipe))  # other settings: the released clusters are not these
    (told,) = (one for one in third["summaries"] if one["step"] == "diversity coverage")
    assert any("no release holds clusters" in warning for warning in told["warnings"])
    assert len(store.scan("centroids").filter(ours).collect()) == 5

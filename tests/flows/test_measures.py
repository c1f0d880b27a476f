"""The example of the measures runs as it stands, on a part of SCAN: every measure publishes, and says what SCAN is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gradatim.storage.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "diversity" / "recipe.yaml"


@pytest.mark.usefixtures("prefect")
def test_the_example_measures_the_published_splits_of_scan(data: Path, tmp_path: Path) -> None:
    from gradatim.flows.curate import curate
    from gradatim.flows.job import Job

    found = pl.read_parquet(data / "scan" / "scan_all_splits.parquet")
    found.gather_every(41).write_parquet(tmp_path / "scan_all_splits.parquet")
    result: dict[str, Any] = curate(str(EXAMPLE), store=str(tmp_path / "runs"), data=str(tmp_path))
    told = {one["step"]: one for one in result["summaries"]}
    measures = [method.name for method in Job.load(str(EXAMPLE), str(tmp_path / "runs"), str(tmp_path)).diversity]
    assert {f"diversity {name}" for name in measures} <= set(told)
    assert all(told[f"diversity {name}"]["charts"] and told[f"diversity {name}"]["sources"] for name in measures)

    rows = Store.open(str(tmp_path / "runs")).dataset("scan-diversity").scan("statistics").collect()

    def value(metric: str, reference: str = "") -> float:
        here = rows.filter((pl.col("metric") == metric) & (pl.col("reference") == reference))
        return float(here.filter(~pl.col("subset").str.contains(" & "))["value"][0])

    assert value("c2st_auc", "domain=train") > 0.9 > 0.6 > value("c2st_auc", "split_simple=train")
    assert value("tv(n_actions)", "domain=train") > 0.9 > 0.3 > value("tv(n_actions)", "split_simple=train")
    assert value("diversity_shift", "domain=train") == 1  # no length of a test command stands in training
    compared = set(rows.filter(pl.col("metric").str.starts_with("tv("))["metric"])
    assert "tv(ntrain_addprim_jump)" in compared  # a column of the file that the recipe does not name
    assert not {"tv(input)", "tv(command)", "tv(content_hash)", "tv(source_row)"} & compared
    aside = dict(map(tuple, told["diversity column_shift"]["tables"][-1]["rows"]))
    assert aside["split_length"] == "the environments themselves"
    assert aside["command"].endswith("as ids and free texts have")

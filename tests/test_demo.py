"""`make demo`: the published collapse on SCAN's length split, said in plain sentences with their intervals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gradatim.storage.store import Store
from gradatim.tasks.training.audit import audit

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.mark.train
@pytest.mark.timeout(900)
def test_the_demo_shows_the_published_collapse_of_both_arms(tmp_path: Path) -> None:
    # somebody's server in the environment is not the demo's business
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run(
        [sys.executable, str(DEMO)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    store = Store.open(tmp_path / "runs").dataset("scan-length")
    sizes = dict(
        store.scan("splits").filter(pl.col("strategy") == "length").group_by("split").len().collect().iter_rows()
    )
    assert sizes["test_ood"] == 3_920
    assert sizes["train"] + sizes["validation"] + sizes["test"] == 16_990
    cells = store.scan("evaluation").filter((pl.col("axis") == "split") & (pl.col("metric") == "exact_match")).collect()
    scores = {(row["run_id"].split("-")[0], row["slice"]): row for row in cells.iter_rows(named=True)}
    for arm in ("curriculum", "random"):
        assert scores[arm, "test"]["value"] >= 0.95
        assert scores[arm, "test_ood"]["value"] <= 0.25
        assert scores[arm, "test"]["ci_low"] < scores[arm, "test"]["value"] < scores[arm, "test"]["ci_high"]
    claims = json.loads((tmp_path / "runs" / "scan-length" / "report.json").read_text())[-1]
    assert claims["step"] == "claims"
    for sentence in claims["extra"]["sentences"]:
        assert "95 % interval" in sentence
    page = (tmp_path / "runs" / "scan-length" / "report.html").read_text()
    assert claims["extra"]["sentences"][0][:60] in page
    runs = store.scan("runs").select("run_id").collect()["run_id"]
    assert len(runs) == 2
    for run in runs:
        assert audit(Path(store.runs_path(run))).holds
    assert "Open " in done.stdout

"""What `log`, `show`, `paths`, `plan` and `audit` tell of a store, after one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from gradatim.flows import looking
from gradatim.flows.plan import plan_recipe
from gradatim.schemas.errors import UsageError

pytestmark = pytest.mark.usefixtures("prefect")


def test_a_store_tells_its_releases_versions_files_and_what_stands(small: Callable[..., Path]) -> None:
    from gradatim.flows.curate import curate

    recipe = small()
    store = str(recipe.parent / "store")
    steps = {row[0]: row[1] for row in plan_recipe(str(recipe), None, None).tables[0].rows}
    assert set(steps.values()) == {"new"}
    curate(str(recipe), release=True)

    log = looking.log_of(store, None)
    assert "release 1 is current" in log.headline
    versions = {str(row[0]).split("@")[0]: row for row in log.tables[0].rows}
    assert versions["examples"][2] == 400
    assert versions["splits"][5] == 1  # its release

    shown = looking.show_table(store, "small", "splits@current", 3)
    assert len(shown.tables[-1].rows) == 3
    assert next(row[0] for row in shown.tables[1].rows) == "examples@0"
    files = looking.paths_of(store, None, "splits@current")
    assert sum(len(pl.read_parquet(file)) for file in files) == versions["splits"][2]

    for call, match in (
        (lambda: looking.show_table(store, None, "split", 3), "did you mean 'splits'"),
        (lambda: looking.show_table(store, None, "splits@99", 3), "no version splits@99"),
        (lambda: looking.log_of(store, "smal"), "did you mean 'small'"),
        (lambda: looking.audit_of(store, None, "random-0"), "no run 'random-0'"),
    ):
        with pytest.raises(UsageError, match=match):
            call()

    steps = {row[0]: row[1] for row in plan_recipe(str(recipe), None, None).tables[0].rows}
    assert set(steps.values()) == {"stands"}
    recipe.write_text(recipe.read_text().replace("<= 6", "<= 5"))
    steps = {row[0]: row[1] for row in plan_recipe(str(recipe), None, None).tables[0].rows}
    assert steps["split length"] == "new"
    assert steps["curriculum"] == "new"
    assert steps["difficulty irt"] == "stands"
